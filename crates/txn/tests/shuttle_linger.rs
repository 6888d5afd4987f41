//! Commits that keep their sessions until they are durable, as many as there are sessions, and transactions that begin: each
//! gets a session, and nobody waits for ever.
#![cfg(foreshore_shuttle)]

mod toy;

use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{EarlyRelease, TxnManagerOptions};
use std::sync::Arc;
use toy::Toy;

const ITERATIONS: usize = 200;
const THREADS: u64 = 3;

fn commits_that_nobody_waits_for() {
    let options = TxnManagerOptions {
        early_release: EarlyRelease::Off,
        max_sessions: THREADS as usize,
        status_capacity: 64,
        undo_limit_bytes: 64 << 10,
        ..toy::small()
    };
    let toy = Arc::new(Toy::lazy_with(&[0; THREADS as usize], options));
    let threads: Vec<_> = (0..THREADS)
        .map(|row| {
            let toy = toy.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    // The others run one each at most, so one session at least is free or comes back.
                    let mut txn = toy.begin("writer");
                    toy.add(&mut txn, row, 1).expect("its own row");
                    drop(txn.commit_pipelined().expect("committed"));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a session"));
    assert_eq!(toy.sum(), 3 * THREADS as i64);
}

#[test]
fn a_transaction_waits_for_the_session_of_a_commit() {
    shuttle(ITERATIONS, commits_that_nobody_waits_for);
}

#[test]
#[should_panic(expected = "deadlock")]
fn who_comes_back_with_a_session_wakes_those_who_wait() {
    shuttle_mutated("leases: one comes back without a word", ITERATIONS, commits_that_nobody_waits_for);
}
