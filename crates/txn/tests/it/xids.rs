//! Xids: none twice across restarts, a window that slides, views for checkpoints.

use crate::toy::{Toy, decode, log_options, records, small};
use foreshore_base::limits::MAX_XID;
use foreshore_base::{Csn, Error, GroupNo, Uuid, Xid};
use foreshore_io::{Fs, Mem};
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::format::{XID_CEILING, decode_ceiling};
use foreshore_txn::{RowHolder, Start, TxnManagerOptions, TxnOptions};
use foreshore_wal::Log;
use std::cell::Cell;
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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
    assert_eq!(txn.row_holder(Xid(3)), RowHolder::None);
    assert_eq!(txn.observed(), Csn::ZERO, "what is frozen is durable");
}

/// One idle writer, and many times as many commits as the window has words.
#[test]
fn an_old_transaction_does_not_stop_the_others() {
    for status_capacity in [16, 1 << 10] {
        let (toy, _) = Toy::new(Mem::null(), &[0, 0], TxnManagerOptions { status_capacity, ..small() });
        let mut old = toy.begin("old");
        toy.add(&mut old, 1, 1).expect("free");
        old.release();
        let xid = old.xid().expect("it wrote");
        let many = 20 * status_capacity as i64;
        for n in 1..=many {
            let mut txn = toy.begin("young");
            assert_eq!(toy.add(&mut txn, 0, 1).expect("an idle writer is in no one's way"), n);
            assert_eq!(txn.row_holder(xid), RowHolder::Other(xid), "it has its row still");
            drop(txn.commit_pipelined().expect("committed"));
        }
        let (view, stats) = (toy.manager.checkpoint_view(), toy.manager.stats());
        assert!(view.window_lo > xid && stats.status_pinned == 1, "{view:?}, {stats:?}");
        assert_eq!(view.active.iter().map(|active| active.0).collect::<Vec<_>>(), [xid]);
        let oldest = toy.manager.xids().oldest_transaction().expect("it runs");
        assert_eq!((oldest.xid, oldest.label, oldest.versions), (xid, "old", 1));
        assert!(oldest.log_bytes > 16 * 20, "{oldest:?}");
        // Others wait for its row, and get it when it ends.
        let options = TxnOptions { label: "waits", lock_timeout: Duration::from_millis(20), ..TxnOptions::default() };
        let mut waits = toy.manager.begin(options).expect("a session");
        assert!(matches!(toy.add(&mut waits, 1, 1), Err(Error::LockTimeout { holder: "old", .. })));
        drop(waits);
        drop(old.commit_pipelined().expect("committed"));
        let mut next = toy.begin("next");
        assert_eq!(toy.add(&mut next, 1, 1).expect("free"), 2);
        drop(next.commit_pipelined().expect("committed"));
        for _ in 0..2 * status_capacity {
            let mut txn = toy.begin("young");
            toy.add(&mut txn, 0, 1).expect("free");
            drop(txn.commit_pipelined().expect("committed"));
        }
        assert_eq!(toy.manager.stats().status_pinned, 0);
    }
}

/// What it has changed comes back though the window has passed it.
#[test]
fn an_old_transaction_is_rolled_back() {
    let (toy, _) = Toy::new(Mem::null(), &[0, 7], TxnManagerOptions { status_capacity: 16, ..small() });
    let mut old = toy.begin("old");
    toy.add(&mut old, 1, 1).expect("free");
    for _ in 0..1000 {
        let mut txn = toy.begin("young");
        toy.add(&mut txn, 0, 1).expect("free");
        drop(txn.commit_pipelined().expect("committed"));
    }
    old.rollback().expect("undone");
    assert_eq!((toy.value(0), toy.value(1)), (1000, 7));
}

/// Half of the words may be those of pinned xids.
#[test]
fn more_old_transactions_than_the_window_can_pin_are_refused_by_name() {
    let options = TxnManagerOptions { status_capacity: 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0; 20], options);
    let mut old = Vec::new();
    let error = loop {
        let mut txn = toy.begin("old");
        match toy.add(&mut txn, 1 + old.len() as u64, 1) {
            Ok(_) => old.push(txn),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooManyTransactions { max: 16, oldest: "old" }), "{error:?}");
    assert_eq!(old.len(), 16, "as many as there are words");
    drop(old.pop().expect("some").commit_pipelined().expect("committed"));
    drop(old.drain(..8).map(|txn| txn.rollback().expect("undone")).collect::<Vec<_>>());
    for n in 1..=100 {
        let mut txn = toy.begin("young");
        assert_eq!(toy.add(&mut txn, 0, 1).expect("there is room again"), n);
        drop(txn.commit_pipelined().expect("committed"));
    }
}

/// It keeps the window until it is durable, which is no error.
#[test]
fn a_fresh_commit_does_not_hold_the_window() {
    let toy = Toy::lazy_with(&[0, 0], TxnManagerOptions { status_capacity: 16, ..small() });
    let mut old = toy.begin("old");
    toy.add(&mut old, 1, 1).expect("free");
    let mut old = Some(old);
    let turns = Rc::new(Cell::new(0));
    let counter = turns.clone();
    pause::set("txn: the window is full", move || {
        counter.set(counter.get() + 1);
        drop(old.take().map(|old| old.commit_pipelined().expect("committed")));
    });
    let outcomes: Vec<_> = (0..40)
        .map(|_| {
            let mut txn = toy.begin("young");
            toy.add(&mut txn, 0, 1).map(|_| drop(txn.commit_pipelined().expect("committed")))
        })
        .collect();
    pause::set("nowhere", || ());
    outcomes.into_iter().for_each(|outcome| outcome.expect("nobody who runs holds the window"));
    assert!(turns.get() > 0, "it was full");
}

/// The window is as small as what runs needs, however large it may be.
#[test]
fn what_is_left_of_an_old_block_holds_the_window_for_a_while_only() {
    let options = TxnManagerOptions { status_capacity: 1 << 20, max_sessions: 4, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], options);
    let mut first = toy.begin("first");
    toy.add(&mut first, 1, 1).expect("free");
    let writer = toy.begin("has another session");
    drop(first.commit_pipelined().expect("committed"));
    let idle = toy.begin("has the session of the first");
    drop(writer);
    for _ in 0..40_000 {
        let mut txn = toy.begin("writer");
        toy.lock(&mut txn, 0).expect("free");
        drop(txn.commit_pipelined().expect("committed"));
    }
    let used = toy.manager.stats().status_used;
    assert!(used < 30_000, "{used}");
    drop(idle);
}

/// What a checkpoint relies on. An xid below the view's next one that is not active has ended, at or below its clock.
/// An active one logs nothing before its first group.
#[test]
fn a_view_misses_no_running_transaction() {
    // Sessions draw xids in blocks, larger ones where the window is large.
    for status_capacity in [1 << 10, 1 << 16] {
        views_miss_no_running_transaction(TxnManagerOptions { status_capacity, ..small() });
    }
}

fn views_miss_no_running_transaction(options: TxnManagerOptions) {
    let (toy, _) = Toy::new(Mem::null(), &[0; 16], options);
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
                assert_eq!(judge.row_holder(xid), RowHolder::None, "{xid} runs and is not in {view:?}");
            }
            assert!(judge.observed() <= view.clock, "{view:?}");
            assert!(view.active.iter().all(|&(xid, first)| xid < view.ceiling && first <= Some(toy.log.next_group())));
            assert!(group <= toy.log.next_group());
            viewed += u64::from(view.next_xid > Xid(1));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A session that has drawn a block of xids and is idle, or runs without one, holds neither the window nor the others.
#[test]
fn the_rest_of_a_block_holds_up_no_transaction() {
    let options = TxnManagerOptions { status_capacity: 1 << 10, max_sessions: 4, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], options);
    let mut first = toy.begin("first");
    toy.add(&mut first, 1, 1).expect("free");
    let drawn = first.xid().expect("it wrote");
    drop(first.commit().expect("committed"));
    let mut idle = toy.begin("idle");
    let mut before = None;
    for n in 1..=5000 {
        let mut txn = toy.begin("writer");
        assert_eq!(toy.add(&mut txn, 0, 1).expect("there is room"), n);
        before = before.max(txn.xid());
        drop(txn.commit_pipelined().expect("committed"));
    }
    let view = toy.manager.checkpoint_view();
    assert!(view.window_lo > drawn && Some(view.next_xid) > before, "{view:?}");
    toy.add(&mut idle, 1, 1).expect("free");
    let xid = idle.xid().expect("it wrote");
    assert!(Some(xid) > before, "what was taken away is not used: {xid}");
    assert_eq!(toy.manager.checkpoint_view().active.iter().map(|active| active.0).collect::<Vec<_>>(), [xid]);
    drop(idle.commit().expect("committed"));
    assert_eq!((toy.value(0), toy.value(1)), (5000, 2));
}

/// Where one transaction holds the window for long, sessions that go on drawing keep their blocks, or they would draw
/// anew at each move of the window.
#[test]
fn sessions_keep_their_blocks_while_an_old_transaction_holds_the_window() {
    const SESSIONS: usize = 64;
    let options = TxnManagerOptions { status_capacity: 1 << 12, max_sessions: SESSIONS, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0; SESSIONS], options);
    let mut all: Vec<_> = (0..SESSIONS).map(|_| Some(toy.begin("young"))).collect();
    let mut old = all.pop().flatten().expect("one of them");
    toy.add(&mut old, SESSIONS as u64 - 1, 1).expect("free");
    let first = toy.manager.checkpoint_view().next_xid;
    let mut last = first;
    // In no order that moves of the window could be in step with.
    let (mut turn, mut turns) = (1_usize, 0);
    while last.0 - first.0 < 3500 {
        turn = turn.wrapping_mul(1_103_515_245).wrapping_add(12_345);
        let row = (turn >> 16) % all.len();
        let mut txn = all[row].take().expect("it is not used");
        toy.add(&mut txn, row as u64, 1).expect("there is room");
        last = last.max(txn.xid().expect("it wrote"));
        drop(txn.commit_pipelined().expect("committed"));
        all[row] = Some(toy.begin("young"));
        turns += 1;
    }
    let not_used = last.0 - first.0 - turns;
    assert!(not_used <= 8 * SESSIONS as u64, "of {turns} and {not_used} xids the latter were drawn for nothing");
    drop(old.commit().expect("committed"));
}

/// A header that names an xid which a session keeps for later was written by no transaction: to wait for it would be
/// for ever.
#[test]
fn an_xid_that_was_drawn_and_not_used_holds_no_row() {
    let options = TxnManagerOptions { status_capacity: 1 << 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], options);
    let mut first = toy.begin("first");
    toy.add(&mut first, 0, 1).expect("free");
    let xid = first.xid().expect("it wrote");
    let mut other = toy.begin("other");
    assert_eq!(other.row_holder(xid), RowHolder::Other(xid));
    let spare = Xid(xid.0 + 1);
    assert_eq!(other.row_holder(spare), RowHolder::Unknown);
    drop(first.commit().expect("committed"));
    assert_eq!(other.row_holder(spare), RowHolder::Unknown);
    let mut second = toy.begin("second");
    toy.add(&mut second, 1, 1).expect("free");
    assert_eq!(second.xid(), Some(spare), "the session is the same");
    assert_eq!(other.row_holder(spare), RowHolder::Other(spare));
    drop(second.commit().expect("committed"));
    assert_eq!(other.row_holder(spare), RowHolder::None);
}

/// Sessions take turns, each with xids of its own block: a view counts none of them as ended that is still to come.
#[test]
fn an_xid_that_is_still_to_be_used_is_not_below_the_next_one() {
    let options = TxnManagerOptions { status_capacity: 1 << 16, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], options);
    let mut seen = HashSet::new();
    for _ in 0..300 {
        let mut both = [toy.begin("one"), toy.begin("two")];
        let view = toy.manager.checkpoint_view();
        for (row, txn) in (0..).zip(&mut both) {
            toy.add(txn, row, 1).expect("free");
            let xid = txn.xid().expect("it wrote");
            assert!(xid >= view.next_xid && xid < toy.manager.checkpoint_view().ceiling, "{xid} after {view:?}");
            assert!(seen.insert(xid), "{xid} twice");
        }
        both.into_iter().for_each(|txn| drop(txn.commit_pipelined().expect("committed")));
    }
}

/// Locks are not logged. The log is kept from the first record on, however long before it the xid was drawn.
#[test]
fn a_transaction_without_a_record_keeps_no_log() {
    let (toy, _) = Toy::new(Mem::null(), &[0, 0], small());
    let mut old = toy.begin("locks");
    toy.lock(&mut old, 0).expect("free");
    let xid = old.xid().expect("it locked");
    for n in 1..=3 {
        let mut txn = toy.begin("young");
        assert_eq!(toy.add(&mut txn, 1, 1).expect("free"), n);
        txn.commit().expect("committed").wait().expect("written");
    }
    assert_eq!(toy.manager.checkpoint_view().active, [(xid, None)], "a checkpoint has to know it");
    assert_eq!(toy.manager.xids().oldest_group(), None);
    let next = toy.log.next_group();
    assert_eq!(toy.add(&mut old, 0, 1).expect("its own"), 1);
    assert_eq!(toy.manager.checkpoint_view().active, [(xid, Some(next))]);
    toy.log.force(toy.log.current()).expect("written");
    assert_eq!(toy.add(&mut old, 0, 1).expect("its own"), 2);
    assert_eq!(toy.manager.xids().oldest_group(), Some(next), "the first record is not the last");
    drop(old.commit().expect("committed"));
    assert_eq!(toy.manager.xids().oldest_group(), None);
}

/// The last xids are given out, and then each writer is refused, in this run and in the next one.
#[test]
fn the_last_xid_is_followed_by_an_error() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    Log::create(&fs, Path::new("log"), Uuid::default(), &log_options()).expect("a new log");
    for left in [5, 0] {
        let start = Start { next_xid: Xid(MAX_XID - left), clock: Csn::ZERO };
        let (toy, _) = Toy::open(&fs, &[0; 4], small(), start);
        let mut refused = 0;
        for n in 0..20 {
            let mut txn = toy.begin("writer");
            match toy.lock(&mut txn, n % 4) {
                Ok(_) => drop(txn.commit().expect("committed")),
                Err(Error::XidsUsedUp { max }) => {
                    assert_eq!(max, MAX_XID - 1);
                    refused += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(refused > 0 && refused >= 20 - left, "{refused} of 20 were refused");
    }
}
