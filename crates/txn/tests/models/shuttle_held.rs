//! Commits that keep their sessions until they are durable, as many as there are sessions, and transactions that begin:
//! each gets a session, and no thread waits for ever.

use crate::toy::{self, TABLE, Toy};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_lock::TableMode;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::TxnManagerOptions;
use foreshore_wal::Log;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 200;
const THREADS: u64 = 3;

fn commits_without_a_waiter() {
    commits(EarlyRelease::Off, THREADS, 3);
}

/// Each thread commits so many times.
fn commits(early_release: EarlyRelease, threads: u64, times: i64) {
    let options = TxnManagerOptions {
        hold_until_durable: early_release.hook(),
        max_sessions: threads as usize,
        status_capacity: 64,
        undo_limit_bytes: 64 << 10,
        ..toy::small()
    };
    let toy = Arc::new(Toy::lazy_with(&vec![0; threads as usize], options));
    let running: Vec<_> = (0..threads)
        .map(|row| {
            let toy = toy.clone();
            thread::spawn(move || {
                for _ in 0..times {
                    // The others run one each at most, so one session at least is free or comes back.
                    let mut txn = toy.begin("writer");
                    toy.add(&mut txn, row, 1).expect("its own row");
                    drop(txn.commit_pipelined().expect("committed"));
                }
            })
        })
        .collect();
    running.into_iter().for_each(|thread| thread.join().expect("a session"));
    assert_eq!(toy.sum(), times * threads as i64);
}

#[test]
fn a_transaction_waits_for_the_session_of_a_commit() {
    shuttle(ITERATIONS, commits_without_a_waiter);
    shuttle(ITERATIONS, || commits(EarlyRelease::Off, 2, 4));
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_return_of_a_session_wakes_its_waiters() {
    shuttle_mutated("leases: one comes back without a word", ITERATIONS, commits_without_a_waiter);
}

/// A thread that has counted the held commits is held up until another commits with one of two sessions and begins with
/// the other.
fn one_is_held_since_the_count() {
    let options = TxnManagerOptions { hold_until_durable: EarlyRelease::Off.hook(), max_sessions: 2, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    let idle = toy.begin("idle soon");
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("its own row");
    drop(idle);
    let log = toy.log.clone();
    let acknowledger = thread::spawn(move || log.force(log.current()).expect("durable"));
    let (mut writer, mut next, other) = (Some(writer), None, toy.clone());
    pause::set("txn: counted the commits that hold locks", move || {
        if let Some(writer) = writer.take() {
            drop(writer.commit_pipelined().expect("committed"));
            next = Some(other.begin("the next one"));
        }
    });
    let begun = toy.try_begin("held up");
    pause::set("nowhere", || ());
    acknowledger.join().expect("no panic");
    drop(begun.expect("the session of a commit"));
}

#[test]
fn a_commit_that_is_held_since_the_count_is_waited_for() {
    shuttle(ITERATIONS, one_is_held_since_the_count);
}

#[test]
#[should_panic(expected = "TooManyTransactions")]
fn held_commits_are_counted_twice() {
    shuttle_mutated("leases: held commits are counted once", ITERATIONS, one_is_held_since_the_count);
}

/// Makes the log durable and then calls what waits for that, as a thread that has waited for a ticket does.
fn make_durable(log: &Log) {
    log.force(log.current()).expect("durable");
    log.acknowledge_all();
}

/// All sessions are kept by commits, and the thread that acknowledges those begins a transaction in a callback.
fn callbacks_that_begin() {
    let options = TxnManagerOptions { hold_until_durable: EarlyRelease::Off.hook(), max_sessions: 2, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0, 0], options));
    let writers = [0, 1].map(|row| {
        let mut writer = toy.begin("writer");
        toy.add(&mut writer, row, 1).expect("its own row");
        writer
    });
    let begun = Arc::new(AtomicU64::new(0));
    for writer in writers {
        let (other, counter) = (toy.clone(), begun.clone());
        writer.commit_pipelined().expect("committed").on_durable(move |outcome| {
            outcome.expect("a log without faults");
            let mut txn = other.begin("begun in a callback");
            assert_eq!(other.get(&mut txn, 0).expect("free") + other.get(&mut txn, 1).expect("free"), 2);
            counter.fetch_add(1, Ordering::Relaxed);
        });
    }
    let threads = [(); 2].map(|()| {
        let log = toy.log.clone();
        thread::spawn(move || make_durable(&log))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    assert_eq!(toy.log.stats().callback_panics, 0);
    assert_eq!(begun.load(Ordering::Relaxed), 2, "each is called once, by one of the two");
}

#[test]
fn a_begin_in_a_callback_gets_the_session_of_a_commit() {
    shuttle(ITERATIONS, callbacks_that_begin);
}

#[test]
#[should_panic(expected = "deadlock")]
fn sessions_come_back_before_callbacks_are_called() {
    shuttle_mutated("pipeline: releases among callbacks", ITERATIONS, callbacks_that_begin);
}

/// A callback wants the table that the next transaction of its session writes in, while others write the log.
fn callbacks_that_lock() {
    let options = TxnManagerOptions { max_sessions: 3, ..toy::small() };
    // No time-outs: they come at any time here.
    let mut toy = Toy::lazy_with(&[0], options);
    toy.timeout = Duration::MAX;
    let toy = Arc::new(toy);
    let commit = |toy: &Toy| {
        let mut writer = toy.begin("writer");
        toy.add(&mut writer, 0, 1).expect("nobody waits for it for ever");
        writer.commit_pipelined().expect("committed")
    };
    let called = Arc::new(AtomicU64::new(0));
    let (other, counter) = (toy.clone(), called.clone());
    commit(&toy).on_durable(move |outcome| {
        outcome.expect("a log without faults");
        let mut txn = other.begin("begun in a callback");
        txn.lock_table(TABLE, TableMode::Shared).expect("free when the writer has committed");
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let log = toy.log.clone();
    let leader = thread::spawn(move || make_durable(&log));
    drop([(); 2].map(|()| commit(&toy)));
    leader.join().expect("no panic");
    assert_eq!((toy.log.stats().callback_panics, called.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn a_callback_may_want_what_the_next_commit_has() {
    shuttle(ITERATIONS, callbacks_that_lock);
}

#[test]
#[should_panic(expected = "deadlock")]
fn callbacks_are_called_when_the_locks_are_free() {
    shuttle_mutated("txn: callbacks before the locks are free", ITERATIONS, callbacks_that_lock);
}

/// Two threads with two sessions, of which one takes its time to search for one.
fn sessions_that_move() {
    let options = TxnManagerOptions { max_sessions: 2, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    pause::set("txn: searched a shard", || (0..20).for_each(|_| thread::yield_now()));
    let threads = [(); 2].map(|()| {
        let toy = toy.clone();
        thread::spawn(move || (0..10).try_for_each(|_| toy.try_begin("reader").map(drop)))
    });
    let outcomes = threads.map(|thread| thread.join().expect("no panic"));
    pause::set("nowhere", || ());
    outcomes.into_iter().for_each(|outcome| outcome.expect("a session"));
}

#[test]
fn a_session_that_moves_is_found() {
    shuttle(ITERATIONS, sessions_that_move);
}

#[test]
#[should_panic(expected = "TooManyTransactions")]
fn what_comes_back_stays_for_a_searcher() {
    shuttle_mutated("leases: taken from under a search", ITERATIONS, sessions_that_move);
}
