//! Models of `delegated`: the release queue.

use crate::regions::{ring, run, shape};
use foreshore_classics::log_buffers::{Delegated, WaitKind};
use foreshore_sync::model::{check, mutated};

fn log(wait: WaitKind) -> Delegated {
    Delegated::new(ring(4), &shape(wait))
}

/// Two sessions and a cut. Session 0 waits for its turn, session 1 leaves its release to it.
fn two_and_a_cut() {
    run(log(WaitKind::Spin), &[1, 1], 1);
}

/// A session with two records: its second may find the first still in the queue.
fn a_session_twice() {
    run(log(WaitKind::Spin), &[1, 2], 0);
}

/// Three sessions.
fn three() {
    run(log(WaitKind::Park), &[1, 1, 1], 0);
}

/// A wait for the turn that parks.
fn parked() {
    run(log(WaitKind::Park), &[1, 1], 0);
}

#[test]
fn records_are_whole_in_every_cut() {
    check(two_and_a_cut);
}

#[test]
fn every_release_is_done_by_a_thread() {
    check(three);
}

#[test]
fn a_session_comes_back_while_its_node_is_queued() {
    check(a_session_twice);
}

#[test]
fn no_thread_is_left_parked() {
    check(parked);
}

#[test]
#[should_panic(expected = "all that was appended is released")]
fn a_direct_path_without_a_node_is_noticed() {
    mutated("delegated: direct path without a node", two_and_a_cut);
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn dice_thrown_after_the_attempt_are_noticed() {
    mutated("delegated: dice after the attempt", three);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_relaxed_hand_over_is_noticed() {
    mutated("delegated: relaxed hand-over", two_and_a_cut);
}

#[test]
#[should_panic(expected = "all that was appended is released")]
fn a_node_that_waits_for_itself_is_noticed() {
    mutated("delegated: behind itself", a_session_twice);
}
