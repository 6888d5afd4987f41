//! Models of `hybrid`: groups that are released in turn.

use crate::regions::{SIZE, append, cut, join, ring, run, shape, spawn};
use foreshore_base::Lsn;
use foreshore_classics::log_buffers::{Hybrid, Shape, WaitKind};
use foreshore_sync::model::{check, mutated};
use foreshore_wal::log_buffer::LogBuffer;
use std::sync::Arc;

fn log(wait: WaitKind) -> Hybrid {
    Hybrid::new(ring(4), &shape(wait))
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

/// A pool of two slots: a thread that closes one while another group holds the other waits for it.
fn a_short_pool() {
    run(Hybrid::new(ring(4), &Shape { pool: 2, ..shape(WaitKind::Park) }), &[1, 1, 1], 0);
}

/// The last space of the ring waits for a cut. Session 1 has credit for two records before that. It may use the space
/// for the second one, because session 0 has joined its group with credit from the cut.
fn credit_of_a_follower() {
    let log = Arc::new(log(WaitKind::Spin));
    for session in [0, 1, 2] {
        log.admit(session, SIZE);
        append(&*log, session);
    }
    let first = cut(&*log, Lsn(0));
    log.admit(2, SIZE);
    append(&*log, 2);
    join([
        spawn(&log, |log| {
            for _ in 0..2 {
                if log.admit(0, SIZE).is_some() {
                    append(log, 0);
                }
            }
        }),
        spawn(&log, |log| {
            if log.admit(1, 2 * SIZE).is_some() {
                append(log, 1);
                append(log, 1);
            }
        }),
        spawn(&log, move |log| _ = cut(log, first)),
    ]);
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
fn a_slot_is_used_again() {
    check(a_short_pool);
}

#[test]
#[should_panic(expected = "all that was appended is released")]
fn a_release_without_waiting_for_the_predecessor_is_noticed() {
    mutated("ordered: release out of turn", two_and_a_cut);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_copy_that_the_last_member_cannot_see_is_noticed() {
    mutated("c-array: leave without order", a_group_and_a_cut);
}

#[test]
fn room_is_used_again_on_the_credit_of_others() {
    check(credit_of_a_follower);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_join_that_the_leader_cannot_see_is_noticed() {
    mutated("c-array: join without order", credit_of_a_follower);
}
