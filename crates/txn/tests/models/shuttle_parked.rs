//! A rollback that is parked while others come to wait for its row, and that is tried again. Each of them gets the row
//! or is told, and none waits for ever.

use crate::toy::{self, Toy};
use foreshore_base::{Error, TableId};
use foreshore_io::Mem;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::primitive::thread;
use foreshore_txn::{TxnManagerOptions, Undoable};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 500;

fn a_row_of_a_parked_rollback() {
    writers_of_a_parked_rollback(false);
}

fn a_row_that_stays_parked() {
    writers_of_a_parked_rollback(true);
}

/// Two writers come to the row of a transaction that another thread rolls back, in vain at first. `stays`: it is tried
/// again when they have ended.
fn writers_of_a_parked_rollback(stays: bool) {
    let options = TxnManagerOptions { status_capacity: 64, undo_limit_bytes: 64 << 10, ..toy::small() };
    let (mut toy, rows) = Toy::lazy_on(Mem::null(), &[0], options);
    toy.timeout = Duration::MAX;
    let toy = Arc::new(toy);
    let mut txn = toy.begin("large");
    toy.add(&mut txn, 0, 100).expect("free");
    rows.stuck.store(0, Ordering::Relaxed);
    let writers = [1, 1].map(|amount| {
        let toy = toy.clone();
        thread::spawn(move || {
            let added = toy.try_begin("writer").and_then(|mut writer| {
                toy.add(&mut writer, 0, amount)?;
                writer.commit_pipelined().map(drop)
            });
            match added {
                Ok(()) => amount,
                Err(Error::RollbackParked { .. }) => 0,
                Err(error) => panic!("neither the row nor RollbackParked: {error:?}"),
            }
        })
    });
    assert!(matches!(txn.rollback(), Err(Error::RollbackParked { .. })));
    let join = || writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
    let retry = || {
        rows.stuck.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(toy.manager.retry_parked().left, 0);
    };
    let added: i64 = if stays {
        let added = join();
        retry();
        added
    } else {
        retry();
        join()
    };
    assert_eq!(toy.sum(), added);
}

#[test]
fn no_writer_waits_for_a_parked_rollback() {
    shuttle(ITERATIONS, a_row_of_a_parked_rollback);
    shuttle(ITERATIONS, a_row_that_stays_parked);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_that_is_about_to_park_looks_whether_its_holder_is_hidden() {
    shuttle_mutated("parked: a waiter stays with a hidden holder", ITERATIONS, a_row_that_stays_parked);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_hidden_holder_keeps_its_obligations() {
    shuttle_mutated("parked: a hidden holder forgets its obligations", 4 * ITERATIONS, a_row_of_a_parked_rollback);
}

#[test]
#[should_panic(expected = "RollbackParked")]
fn a_rollback_without_a_page_does_not_stop_the_log() {
    shuttle_mutated("parked: a rollback without a page stops the log", 1, a_row_of_a_parked_rollback);
}

/// Two transactions want undo memory, all of which one holds whose rollback is parked meanwhile. They wait without a
/// limit of time.
fn memory_of_a_parked_rollback() {
    const LARGE: usize = 5000;
    let options = TxnManagerOptions {
        status_capacity: 64,
        undo_limit_bytes: 2 << 13,
        undo_timeout: Duration::MAX,
        max_sessions: 4,
        ..toy::small()
    };
    let (toy, rows) = Toy::lazy_on(Mem::null(), &[0], options);
    let toy = Arc::new(toy);
    let mut txn = toy.begin("large");
    for _ in 0..2 {
        txn.ensure_xid().expect("an xid");
        txn.reserve(0, LARGE).expect("a chunk is left");
        txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; LARGE], before: None, structure: 0 });
    }
    toy.add(&mut txn, 0, 1).expect("free");
    txn.release();
    rows.stuck.store(0, Ordering::Relaxed);
    let waiters = [0, 1].map(|_| {
        let toy = toy.clone();
        thread::spawn(move || {
            let mut waiter = ManuallyDrop::new(toy.begin("waiter"));
            waiter.ensure_xid().expect("an xid");
            let refused = waiter.reserve(0, LARGE);
            assert!(matches!(refused, Err(Error::UndoMemory { holder: "large", .. })), "{refused:?}");
            drop(ManuallyDrop::into_inner(waiter).commit_pipelined().expect("committed"));
        })
    });
    assert!(matches!(txn.rollback(), Err(Error::RollbackParked { .. })));
    waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
}

#[test]
fn no_session_waits_for_memory_of_a_parked_rollback() {
    shuttle(ITERATIONS, memory_of_a_parked_rollback);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_parked_rollback_gives_up_no_memory() {
    shuttle_mutated("parked: a parked rollback goes on", ITERATIONS, memory_of_a_parked_rollback);
}

#[test]
#[should_panic(expected = "deadlock")]
fn sessions_that_wait_for_memory_are_told_of_a_parked_rollback() {
    shuttle_mutated("parked: no session that waits for memory is told", ITERATIONS, memory_of_a_parked_rollback);
}
