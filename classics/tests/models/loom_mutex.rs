//! Models of `mutex`: the release under the lock.

use crate::regions::{SIZE, append, cut, join, ring, run, shape, spawn};
use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Locked, WaitKind};
use foreshore_sync::model::{check, mutated};
use foreshore_wal::log_buffer::LogBuffer;
use std::sync::Arc;

fn log(records: u64, wait: WaitKind) -> Locked {
    Locked::new(ring(records), &shape(wait))
}

/// Two sessions, one with two records, and a cut.
fn two_and_a_cut() {
    run(log(4, WaitKind::Spin), &[2, 1], 1);
}

/// As above, and a thread that finds the lock taken sleeps.
fn sleepers_and_a_cut() {
    run(log(4, WaitKind::Park), &[2, 1], 1);
}

/// Space for one record, which is taken: the next one waits for the cut through its credit.
fn reuse() {
    let log = Arc::new(log(1, WaitKind::Spin));
    log.admit(0, SIZE);
    append(&*log, 0);
    join([
        spawn(&log, |log| _ = cut(log, Lsn(0))),
        spawn(&log, |log| {
            if log.admit(1, SIZE).is_some() {
                append(log, 1);
            }
        }),
    ]);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(two_and_a_cut);
}

#[test]
fn no_waiter_is_left_asleep() {
    check(sleepers_and_a_cut);
}

#[test]
fn room_is_used_again_only_after_it_was_drained() {
    check(reuse);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_release_without_order_is_noticed() {
    mutated("released: relaxed", two_and_a_cut);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn credit_given_without_order_is_noticed() {
    mutated("credits: relaxed give", reuse);
}
