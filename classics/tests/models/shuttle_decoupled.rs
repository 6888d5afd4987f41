//! Releases in turn with more sleepers than loom can explore: some are woken by those that were woken before them.

use crate::regions::{ring, run, shape};
use foreshore_classics::log_buffers::{Decoupled, Shape, WaitKind};
use foreshore_sync::model::{shuttle, shuttle_mutated};

const SESSIONS: [u64; 6] = [3; 6];

fn sleepers() {
    let shape = Shape { sessions: SESSIONS.len(), ..shape(WaitKind::Park) };
    run(Decoupled::new(ring(32), &shape), &SESSIONS, 0);
}

#[test]
fn every_sleeper_is_woken() {
    shuttle(60_000, sleepers);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_is_woken_too_soon_is_noticed() {
    shuttle_mutated("ordered: put before the raise", 60_000, sleepers);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_sleeper_that_helps_too_soon_is_noticed() {
    shuttle_mutated("ordered: help without the lock", 60_000, sleepers);
}
