//! Models of `hybrid`: groups that are released in turn.
#![cfg(foreshore_loom)]

#[path = "common/regions.rs"]
mod regions;

use foreshore_sync::WaitMode;
use foreshore_sync::model::{check, mutated};
use foreshore_wal::model::{Hybrid, Shape};
use regions::{ring, run, shape};

fn log(wait: WaitMode) -> Hybrid {
    Hybrid::new(ring(4), &shape(wait))
}

/// Two sessions and a cut.
fn two_and_a_cut() {
    run(log(WaitMode::Spin), &[1, 1], 1);
}

/// Three sessions: one holds the lock, one leads a group, one follows it.
fn a_group() {
    run(log(WaitMode::Spin), &[1, 1, 1], 0);
}

/// A pool of two slots: whoever closes one while another group holds the other waits for it.
fn a_short_pool() {
    run(Hybrid::new(ring(4), &Shape { pool: 2, ..shape(WaitMode::Spin) }), &[1, 1, 1], 0);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(two_and_a_cut);
}

#[test]
fn a_group_is_released_as_one() {
    check(a_group);
}

#[test]
fn a_slot_is_used_again() {
    check(a_short_pool);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_release_without_waiting_for_the_predecessor_is_noticed() {
    mutated("ordered: release out of turn", two_and_a_cut);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_copy_that_the_last_member_cannot_see_is_noticed() {
    mutated("c-array: leave without order", a_group);
}
