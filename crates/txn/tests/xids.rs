//! Xids: none twice across restarts, a window that slides, views for checkpoints.
#![cfg(not(foreshore_loom))]

mod toy;

use foreshore_base::{Csn, Error, GroupNo, Uuid, Xid};
use foreshore_io::{Fs, Mem};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::format::{XID_CEILING, decode_ceiling};
use foreshore_txn::{RowHolder, Start, TxnManagerOptions};
use foreshore_wal::Log;
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use toy::{Toy, decode, log_options, records, small};

fn ceiling_in(fs: &Arc<dyn Fs>) -> Xid {
    let log = records(fs);
    let ceilings = log.iter().filter(|record| decode(record).kind == XID_CEILING);
    ceilings.map(|record| decode_ceiling(decode(record).body).expect("a ceiling")).max().unwrap_or(Xid(1))
}

/// Each run hands out xids that only locked rows, so that the log knows none of them, and ends without a goodbye.
#[test]
fn no_xid_is_handed_out_twice_across_restarts() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    Log::create(&fs, Path::new("log"), Uuid::default(), &log_options()).expect("a new log");
    let mut seen = HashSet::new();
    for run in 0..4 {
        let next_xid = ceiling_in(&fs);
        let (toy, _) = Toy::open(&fs, &[0; 4], small(), Start { next_xid, clock: Csn::ZERO });
        for n in 0..50 * (run + 1) {
            let mut txn = toy.begin("locks");
            toy.lock(&mut txn, n % 4).expect("free");
            let xid = txn.xid().expect("it locked");
            assert!(seen.insert(xid), "{xid} twice");
            let view = toy.manager.checkpoint_view();
            assert!(xid < view.ceiling && xid < view.next_xid);
            drop(txn.commit().expect("committed"));
        }
    }
    assert!(ceiling_in(&fs) > *seen.iter().max().expect("some"));
}

#[test]
fn the_window_slides_over_what_is_durable_and_numbers_before_it_are_free() {
    let options = TxnManagerOptions { status_capacity: 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0], options);
    for n in 1..=500 {
        let mut txn = toy.begin("writer");
        assert_eq!(toy.add(&mut txn, 0, 1).expect("free"), n);
        if n % 7 == 0 {
            txn.rollback().expect("undone");
            let mut again = toy.begin("again");
            toy.add(&mut again, 0, 1).expect("free");
            drop(again.commit_pipelined().expect("committed"));
        } else {
            drop(txn.commit_pipelined().expect("committed"));
        }
    }
    let view = toy.manager.checkpoint_view();
    assert!(view.window_lo > Xid(500) && view.next_xid.0 - view.window_lo.0 <= 16, "{view:?}");
    let mut txn = toy.begin("reader");
    assert_eq!(txn.row_holder(Xid(3)), RowHolder::Nobody);
    assert_eq!(txn.observed(), Csn::ZERO, "what is frozen is durable");
}

#[test]
fn an_old_transaction_that_holds_the_window_is_named() {
    let options = TxnManagerOptions { status_capacity: 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], options);
    let mut old = toy.begin("old");
    toy.add(&mut old, 1, 1).expect("free");
    let error = loop {
        let mut txn = toy.begin("young");
        match toy.add(&mut txn, 0, 1) {
            Ok(_) => drop(txn.commit_pipelined().expect("committed")),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooManyTransactions { max: 16, oldest: "old" }), "{error:?}");
    let oldest = toy.manager.oldest_active().expect("it runs");
    assert_eq!((Some(oldest.xid), oldest.label), (old.xid(), "old"));
    assert_eq!(toy.value(0), 15, "a window of 16 less the old one");
    drop(old.commit_pipelined().expect("committed"));
    let mut txn = toy.begin("young");
    toy.add(&mut txn, 0, 1).expect("there is room again");
}

/// What a checkpoint relies on: an xid below the view's next one that is not active has ended, at or below its clock, and
/// an active one logs nothing before its first group.
#[test]
fn a_view_misses_no_running_transaction() {
    let (toy, _) = Toy::new(Mem::null(), &[0; 16], small());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (toy, stop) = (&toy, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut txn = toy.begin("worker");
                    toy.add(&mut txn, worker, 1).expect("its own row");
                    thread::yield_now();
                    drop(txn.commit_pipelined().expect("committed"));
                }
            });
        }
        let mut viewed = 0;
        while viewed < 300 {
            let group: GroupNo = toy.log.next_group();
            let view = toy.manager.checkpoint_view();
            let active: HashSet<_> = view.active.iter().map(|&(xid, _)| xid).collect();
            let mut judge = toy.begin("judge");
            for xid in (view.window_lo.0..view.next_xid.0).map(Xid).filter(|xid| !active.contains(xid)) {
                assert_eq!(judge.row_holder(xid), RowHolder::Nobody, "{xid} runs and is not in {view:?}");
            }
            assert!(judge.observed() <= view.clock, "{view:?}");
            assert!(view.active.iter().all(|&(xid, first)| xid < view.ceiling && first <= toy.log.next_group()));
            assert!(group <= toy.log.next_group());
            viewed += u64::from(view.next_xid > Xid(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
}
