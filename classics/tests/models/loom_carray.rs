//! Models of `carray`, and of the consolidation array that `hybrid` and `delegated` share.

use crate::regions::{SIZE, append, cut, join, ring, run, shape, spawn};
use foreshore_classics::log_buffers::{CArray, Shape, WaitKind};
use foreshore_sync::model::{check, mutated};
use foreshore_wal::log_buffer::LogBuffer;
use std::sync::Arc;

fn log(wait: WaitKind) -> CArray {
    CArray::new(ring(4), &shape(wait))
}

/// Two sessions and a cut.
fn two_and_a_cut() {
    run(log(WaitKind::Spin), &[1, 1], 1);
}

/// A session comes back while the other one leads a group, and follows it; the cut may come when both have left.
fn a_group_and_a_cut() {
    run(log(WaitKind::Spin), &[2, 1], 1);
}

/// Three sessions: one holds the lock, one leads a group, one follows it.
fn a_group() {
    run(log(WaitKind::Park), &[1, 1, 1], 0);
}

/// As above, and two may not consolidate: one has to wait for the next slot, or for the lock.
fn full_slots() {
    run(CArray::new(ring(4), &Shape { group: SIZE, ..shape(WaitKind::Park) }), &[1, 1, 1], 0);
}

/// Waits that park.
fn parked() {
    run(log(WaitKind::Park), &[1, 1], 0);
}

/// Space for two records, both taken: the next ones wait for the cut through their credit. The thread that draws first
/// may copy into space whose credit the other has taken.
fn reuse() {
    let log = Arc::new(CArray::new(ring(2), &shape(WaitKind::Spin)));
    for session in 0..2 {
        log.admit(session, SIZE);
        append(&*log, session);
    }
    let writer = |session: usize| {
        spawn(&log, move |log| {
            if log.admit(session, SIZE).is_some() {
                append(log, session);
            }
        })
    };
    join([writer(0), writer(1), spawn(&log, |log| _ = cut(log, foreshore_base::Lsn(0)))]);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(two_and_a_cut);
}

#[test]
fn a_group_is_released_as_one() {
    check(a_group_and_a_cut);
}

#[test]
fn no_appender_waits_for_a_group_in_vain() {
    check(a_group);
}

#[test]
fn a_full_slot_is_replaced() {
    check(full_slots);
}

#[test]
fn no_thread_is_left_parked() {
    check(parked);
}

#[test]
fn room_is_used_again_only_after_it_was_drained() {
    check(reuse);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_copy_that_the_last_member_cannot_see_is_noticed() {
    mutated("c-array: leave without order", a_group_and_a_cut);
}
