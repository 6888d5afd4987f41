//! Models of `decoupled`, and of the releases in turn that `hybrid` shares.

use crate::regions::{ring, run, shape};
use foreshore_classics::log_buffers::{Decoupled, WaitKind};
use foreshore_sync::model::{check, mutated};

fn log(wait: WaitKind) -> Decoupled {
    Decoupled::new(ring(4), &shape(wait))
}

/// Two sessions, one with two records, and a cut.
fn two_and_a_cut() {
    run(log(WaitKind::Spin), &[2, 1], 1);
}

/// Three sessions that sleep until their turn.
fn three_sleepers() {
    run(log(WaitKind::Park), &[1, 1, 1], 0);
}

/// Two sessions that sleep until their turn, and a cut.
fn sleepers_and_a_cut() {
    run(log(WaitKind::Park), &[1, 1], 1);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(two_and_a_cut);
}

#[test]
fn a_sleeper_is_released_by_the_one_it_waits_for() {
    check(sleepers_and_a_cut);
}

#[test]
fn no_waiter_is_left_asleep() {
    check(three_sleepers);
}

#[test]
#[should_panic(expected = "all that was appended is released")]
fn a_release_out_of_turn_is_noticed() {
    mutated("ordered: release out of turn", two_and_a_cut);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_does_not_fence_is_noticed() {
    mutated("ordered: no fence before sleeping", sleepers_and_a_cut);
}
