//! More threads than sessions: each that waits in line gets a session.

use crate::toy::{self, Toy};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{TxnManagerOptions, TxnOptions};
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 200;

fn threads_with_one_session(threads: u64, times: i64) {
    let options = TxnManagerOptions { max_sessions: 1, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&vec![0; threads as usize], options));
    let run = |row| {
        let toy = toy.clone();
        thread::spawn(move || {
            for _ in 0..times {
                let patient = TxnOptions { session_timeout: Duration::MAX, ..TxnOptions::default() };
                let mut txn = toy.manager.begin(patient).expect("a session comes back");
                toy.add(&mut txn, row, 1).expect("its own row");
                drop(txn.commit().expect("committed"));
            }
        })
    };
    let running: Vec<_> = (0..threads).map(run).collect();
    running.into_iter().for_each(|thread| thread.join().expect("a session"));
    assert_eq!(toy.sum(), times * threads as i64);
}

#[test]
fn each_thread_in_line_gets_a_session() {
    shuttle(ITERATIONS, || threads_with_one_session(2, 3));
    shuttle(ITERATIONS, || threads_with_one_session(3, 3));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_session_that_comes_back_is_told_to_the_first_in_line() {
    shuttle_mutated("queue: a session comes back without a word", ITERATIONS, || threads_with_one_session(2, 1));
}
