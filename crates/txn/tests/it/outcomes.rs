//! Commit and rollback: what others see, what the log says, what is given back.

use crate::toy::{Rows, TABLE, Toy, decode, log_options, page_of, records, small};
use foreshore_base::{Csn, Error, Xid};
use foreshore_buffer::format::{CLR, UNDOABLE};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_lock::TableMode;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{SystemClock, available_parallelism, pause};
use foreshore_txn::format::{COMMIT, END, XID_CEILING, split_clr};
use foreshore_txn::{RowHolder, Txn, TxnManagerOptions, TxnOptions};
use foreshore_wal::flags;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// E1: a transaction that has read a commit comes after it.
#[test]
fn a_commit_frees_the_row_and_its_number_is_observed() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    let mut writer = toy.begin("writer");
    assert_eq!(writer.xid(), None);
    toy.add(&mut writer, 0, 10).expect("free");
    let xid = writer.xid().expect("drawn at the first write");
    assert_eq!(writer.row_holder(xid), RowHolder::Me);

    let mut other = toy.begin("other");
    assert_eq!(other.row_holder(xid), RowHolder::Other(xid));
    assert_eq!(other.row_holder(Xid::ZERO), RowHolder::None);
    assert!(!other.is_settled(xid));
    let ticket = writer.commit().expect("committed");
    assert_eq!(ticket.csn().lsn(), ticket.record_lsn());
    assert_eq!(other.row_holder(xid), RowHolder::None);
    assert_eq!(other.observed(), ticket.csn());
    assert_eq!(toy.get(&mut other, 0).expect("free"), 11);
    assert_eq!(toy.manager.clock(), ticket.csn());
    ticket.wait().expect("durable");
    assert!(other.is_settled(xid));

    // Its own commit comes after what it has seen.
    toy.add(&mut other, 1, 1).expect("free");
    let later = other.commit().expect("committed");
    assert!(later.csn() > ticket.csn());
}

#[test]
fn sessions_are_as_many_as_transactions_at_once_and_not_as_threads() {
    let (toy, _) = Toy::new(Mem::null(), &[0], small());
    for _ in 0..200 {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut txn = toy.begin("one of many");
                toy.add(&mut txn, 0, 1).expect("free");
                txn.commit().expect("committed").wait().expect("durable");
            });
        });
    }
    assert_eq!(toy.sum(), 200);
    let made = toy.manager.stats().sessions;
    assert!(made <= 2 * available_parallelism(), "{made} sessions for one transaction at a time");
}

#[test]
fn a_session_that_needs_undo_memory_gets_that_of_idle_sessions() {
    let changes_after = |idle: usize| {
        let options = TxnManagerOptions { undo_limit_bytes: 32 * (8 << 10), ..small() };
        let (toy, _) = Toy::new(Mem::null(), &[0; 9], options);
        let mut txns: Vec<_> = (0..idle).map(|_| toy.begin("idle soon")).collect();
        for (row, txn) in txns.iter_mut().enumerate() {
            toy.add(txn, row as u64, 1).expect("free");
        }
        txns.into_iter().for_each(|txn| txn.commit().expect("committed").wait().expect("durable"));
        let mut large = toy.begin("large");
        let mut changes = 0;
        loop {
            match toy.add(&mut large, 8, 1) {
                Ok(_) => changes += 1,
                Err(Error::TransactionTooLarge { .. }) => return changes,
                Err(error) => panic!("{error:?}"),
            }
        }
    };
    let alone = changes_after(1);
    assert!(alone > 32, "{alone} changes");
    // Seven chunks of 32 would be more than a fifth. What does not fit behind the entries of others is less.
    let beside = changes_after(8);
    assert!(beside > alone * 15 / 16, "{beside} changes beside idle sessions, and {alone} alone");
}

#[test]
fn a_rollback_restores_values_and_headers_and_logs_each_step() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    foreshore_wal::Log::create(&fs, "log".as_ref(), Default::default(), &log_options()).expect("a new log");
    let start = foreshore_txn::Start { next_xid: Xid(1), clock: Csn::ZERO };
    let (toy, _) = Toy::open(&fs, &[1, 2, 3], small(), start);
    let mut first = toy.begin("first");
    toy.add(&mut first, 0, 4).expect("free");
    let before = first.xid().expect("it wrote");
    first.commit().expect("committed").wait().expect("durable");

    let mut txn = toy.begin("rolled back");
    toy.add(&mut txn, 0, 10).expect("free");
    toy.add(&mut txn, 1, 10).expect("free");
    toy.lock(&mut txn, 2).expect("free");
    toy.add(&mut txn, 0, 10).expect("held");
    let xid = txn.xid().expect("it wrote");
    assert_eq!((toy.value(0), toy.header(0), toy.header(2)), (25, xid, xid));
    let watermark = txn.rollback().expect("undone");
    let clock = toy.manager.clock();
    assert!(watermark > Csn::ZERO, "it overwrote the first one's row");
    assert_eq!([0, 1, 2].map(|row| toy.value(row)), [5, 2, 3]);
    assert_eq!([0, 1, 2].map(|row| toy.header(row)), [before, Xid::ZERO, Xid::ZERO]);
    let mut next = toy.begin("next");
    assert_eq!(next.row_holder(xid), RowHolder::None);
    toy.add(&mut next, 0, 1).expect("free again");
    drop(next);
    assert_eq!(toy.value(0), 5, "a dropped transaction is rolled back");
    let stats = toy.manager.stats();
    assert_eq!((stats.commits, stats.aborts), (1, 2));

    toy.log.force(toy.log.current()).expect("durable");
    drop(toy);
    let log = records(&fs);
    let ours: Vec<_> = log.iter().filter(|record| record.tag == xid.0).collect();
    let changes: Vec<_> = ours.iter().map(|record| decode(record)).collect();
    let done: Vec<_> = changes.iter().zip(&ours).filter(|(change, _)| change.flags == UNDOABLE).collect();
    let undone = changes.iter().filter(|change| change.flags == CLR);
    let taken_back: Vec<_> = undone.map(|change| split_clr(change.body).expect("a prefix").0).collect();
    assert_eq!(taken_back, done.iter().rev().map(|(_, record)| record.lsn).collect::<Vec<_>>());
    assert_eq!((done.len(), ours.len(), changes.last().expect("records").kind), (3, 7, END));
    let end = ours.last().expect("records").lsn;
    assert!(end.csn() <= clock, "a checkpoint that counts it as ended must not survive its end");
    let commits: Vec<_> = log.iter().filter(|record| decode(record).kind == COMMIT).collect();
    assert!(matches!(&commits[..], [one] if one.tag == before.0 && one.flags == flags::COMMIT));
    assert!(log.iter().any(|record| decode(record).kind == XID_CEILING && record.tag == 0));
}

/// E2: nothing takes a commit back, though the disk refuses it. Its row stays as it is, others find it committed, and
/// the log has nothing of it after its commit record, if that has got there.
#[test]
fn a_commit_that_the_disk_refuses_is_not_taken_back() {
    let mut on_disk = 0;
    for seed in 0..20 {
        let sim = Sim::new(seed);
        let (toy, rows) = Toy::lazy_on(sim.clone(), &[1, 1], small());
        sim.sync_dir("".as_ref()).expect("the log keeps its name");
        let (mut judge, mut running) = (toy.begin("judge"), toy.begin("running"));
        toy.add(&mut running, 1, 10).expect("free");
        let mut writer = toy.begin("writer");
        toy.add(&mut writer, 0, 10).expect("free");
        let xid = writer.xid().expect("it wrote");
        let ticket = writer.commit().expect("committed");
        assert!(!ticket.is_durable(), "nobody has waited for it");
        rows.panics.store(true, Ordering::Relaxed);
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
        assert!(matches!(ticket.wait(), Err(Error::Poisoned { .. })));
        drop(ticket);
        assert!(matches!(running.rollback(), Err(Error::Poisoned { .. })), "the log has stopped");
        assert_eq!((toy.value(0), toy.header(0), judge.row_holder(xid)), (11, xid, RowHolder::None));
        assert!(judge.observed() > Csn::ZERO, "it counts as a commit");
        assert_eq!(toy.manager.stats().commits, 1);
        drop((judge, toy));
        // What the refused write has left, as a loss of power shows it.
        sim.power_off();
        let policy = &Persist::ALL[seed as usize % Persist::ALL.len()];
        let fs: Arc<dyn Fs> = Arc::new(sim.crash_image(policy, seed));
        let log = records(&fs);
        let ours: Vec<_> = log.iter().filter(|record| record.tag == xid.0).map(decode).collect();
        let kinds: Vec<_> = ours.iter().map(|record| (record.kind == COMMIT, record.flags == CLR)).collect();
        // A group is there or not.
        assert!(matches!(kinds[..], [] | [(false, false), (true, false)]), "{kinds:?}");
        on_disk += usize::from(!kinds.is_empty());
    }
    assert!((1..20).contains(&on_disk), "{on_disk} of 20 commits were on the disk");
}

#[test]
fn a_transaction_that_changes_nothing_logs_nothing_whether_it_has_locked_rows_or_not() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("free");
    let written = writer.commit().expect("committed");
    let before = toy.log.stats().records;
    let mut reader = toy.begin("reader");
    toy.get(&mut reader, 0).expect("free");
    let mut locker = toy.begin("locker");
    toy.get(&mut locker, 0).expect("free");
    toy.lock(&mut locker, 1).expect("free");
    let xid = locker.xid().expect("it locked");
    let read = reader.commit().expect("committed");
    assert_eq!(read.csn(), written.csn(), "its place is that of what it has seen");
    assert_eq!(toy.log.stats().records, before);
    let stats = toy.manager.stats();
    let locked = locker.commit().expect("committed");
    assert_eq!(locked.csn(), written.csn());
    assert_eq!(toy.log.stats().records, before);
    assert_ne!(toy.header(1), xid, "the header is as before");
    let now = toy.manager.stats();
    assert_eq!((now.commits, now.aborts), (stats.commits + 1, stats.aborts));
    let mut next = toy.begin("next");
    assert_eq!(toy.add(&mut next, 1, 1).expect("free"), 3);
    drop(next);
    // The number of what it has read is not known any more, but that it is durable.
    toy.log.force(toy.log.current()).expect("durable");
    let idle = toy.begin("idle").commit().expect("committed");
    assert!(idle.csn() >= written.csn() && idle.is_durable());
}

#[test]
fn a_transaction_too_large_is_refused_before_it_changes_anything() {
    let options = TxnManagerOptions { undo_limit_bytes: 128 << 10, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[0], options);
    let mut txn = toy.begin("large");
    let (mut changes, error) = (
        0,
        loop {
            if let Err(error) = toy.add(&mut txn, 0, 1) {
                break error;
            }
        },
    );
    assert!(matches!(error, Error::TransactionTooLarge { max: 131_072 }), "{error:?}");
    changes += toy.value(0);
    assert!(changes > 1000);
    txn.rollback().expect("undone");
    assert_eq!(toy.value(0), 0);
    assert!(toy.manager.stats().undo_bytes <= 16 << 10, "its session keeps the chunk that it fills and the next one");
}

#[test]
fn a_rollback_that_fails_stops_the_log_and_ends_all_waits() {
    give_up(|rows| &rows.fails, |writer| assert!(matches!(writer.rollback(), Err(Error::Io { .. }))));
}

#[test]
fn a_rollback_that_panics_stops_the_log_and_ends_all_waits() {
    give_up(
        |rows| &rows.panics,
        |writer| {
            let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.rollback()));
            assert!(unwound.is_err());
        },
    );
}

fn give_up(broken: impl Fn(&Rows) -> &AtomicBool, roll_back: impl FnOnce(Txn)) {
    let (toy, rows) = Toy::new(Mem::null(), &[1], small());
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("free");
    let xid = writer.xid().expect("it wrote");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| toy.get(&mut toy.begin("waiter"), 0));
        while toy.manager.stats().locks.waits == 0 {
            thread::yield_now();
        }
        broken(&rows).store(true, Ordering::Relaxed);
        roll_back(writer);
        let outcome = waiter.join().expect("no panic");
        assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    });
    assert!(matches!(toy.try_begin("later").map(drop), Err(Error::Poisoned { .. })));
    // A group that was being cut may still carry a checkpoint to the disk: it must not call the transaction ended.
    let active = toy.manager.checkpoint_view().active;
    assert_eq!(active.iter().map(|&(xid, _)| xid).collect::<Vec<_>>(), [xid]);
}

/// The locks of its tables are free, yet its rows are not as they were.
#[test]
fn a_waiter_for_the_table_of_a_failed_rollback_gets_the_error() {
    let (toy, rows) = Toy::new(Mem::null(), &[1], small());
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("free");
    thread::scope(|scope| {
        let reader = scope.spawn(|| toy.begin("reader").lock_table(TABLE, TableMode::Shared));
        while toy.manager.stats().locks.waits == 0 {
            thread::yield_now();
        }
        rows.fails.store(true, Ordering::Relaxed);
        writer.rollback().expect_err("told to fail");
        let outcome = reader.join().expect("no panic");
        assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    });
}

#[test]
fn an_xid_that_was_not_handed_out_is_told_from_one_that_runs() {
    let (toy, _) = Toy::new(Mem::null(), &[1], small());
    let mut txn = toy.begin("reader");
    let mut other = toy.begin("writer");
    toy.add(&mut other, 0, 1).expect("free");
    let xid = other.xid().expect("it wrote");
    assert_eq!(txn.row_holder(xid), RowHolder::Other(xid));
    assert_eq!(txn.row_holder(Xid(xid.0 + 1)), RowHolder::Unknown);
    assert_eq!(txn.row_holder(Xid(1 << 40)), RowHolder::Unknown);
}

/// Each could hold a quarter of the log's buffer; together they would leave nothing to the last one.
#[test]
fn idle_transactions_do_not_sit_on_log_space() {
    let (toy, _) = Toy::new(Mem::null(), &[0; 16], small());
    let most = toy.log.max_reserve() - 1024;
    let idle: Vec<_> = (0..16)
        .map(|row| {
            let mut txn = toy.begin("idle");
            txn.reserve(most, 0).expect("there is room");
            toy.add(&mut txn, row, 1).expect("its own row");
            txn.release();
            txn
        })
        .collect();
    idle.into_iter().for_each(|txn| drop(txn.commit().expect("committed")));
    assert_eq!(toy.sum(), 16);
}

/// Returns when the clock that stamps the begin of transactions has moved.
fn next_tick() {
    let clock = SystemClock::new();
    let before = clock.recent();
    while clock.recent() == before {
        thread::yield_now();
    }
}

#[test]
fn sessions_are_counted_and_come_back() {
    let (toy, _) = Toy::new(Mem::null(), &[1], TxnManagerOptions { max_sessions: 3, ..small() });
    for _ in 0..3 {
        let first = toy.begin("first");
        // The order of transactions that begin within one tick is arbitrary.
        next_tick();
        let running = [first, toy.begin("second"), toy.begin("third")];
        let refused = toy.try_begin("fourth").map(drop);
        assert!(matches!(refused, Err(Error::TooManyTransactions { max: 3, oldest: "first" })), "{refused:?}");
        for txn in running {
            drop(txn.commit().expect("nothing to do"));
        }
    }
}

/// Headers that cannot be put back need the commit: the rows are free in any case, and nothing stops.
#[test]
fn locks_that_cannot_be_put_back_end_with_a_logged_commit() {
    let (toy, rows) = Toy::new(Mem::null(), &[1, 2, 3], small());
    let mut locker = toy.begin("locker");
    for row in 0..3 {
        toy.lock(&mut locker, row).expect("free");
    }
    let before = toy.log.stats().records;
    // Its way back goes from row 2 to row 0.
    rows.damaged.store(1, Ordering::Relaxed);
    locker.commit().expect("committed").wait().expect("durable");
    assert!(toy.manager.parked().is_empty(), "a transaction that has committed keeps no row");
    assert_eq!(toy.log.stats().records, before + 1);
    let mut next = toy.begin("next");
    for row in 0..3 {
        toy.add(&mut next, row, 1).expect("free");
    }
    drop(next.commit().expect("committed"));
}

/// A thread that ends a transaction and begins the next one at once comes behind those that wait for its session.
#[test]
fn a_transaction_that_begins_comes_behind_those_in_line() {
    let (toy, _) = Toy::new(Mem::null(), &[1], TxnManagerOptions { max_sessions: 1, ..small() });
    let patient = TxnOptions { session_timeout: Duration::from_secs(60), ..TxnOptions::default() };
    for _ in 0..20 {
        let running = toy.begin("running");
        let (stands, is_first) = std::sync::mpsc::channel();
        let was_served = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                pause::set("txn: first in the queue for a session", move || stands.send(()).unwrap_or_default());
                let txn = toy.manager.begin(patient).expect("a session comes back");
                pause::set("nowhere", || ());
                was_served.store(true, Ordering::Release);
                drop(txn);
            });
            is_first.recv().expect("it stands in line");
            drop(running);
            drop(toy.manager.begin(patient).expect("a session comes back"));
            assert!(was_served.load(Ordering::Acquire), "it went ahead of the line");
        });
    }
}

/// The deadline is that of all attempts together, and the wait for a session is one of the waits.
#[test]
fn a_wait_in_line_ends_with_the_deadline_of_the_first_attempt() {
    let (toy, _) = Toy::new(Mem::null(), &[1], TxnManagerOptions { max_sessions: 1, ..small() });
    let _running = toy.begin("running");
    let first = Some(toy.manager.now());
    std::thread::sleep(Duration::from_millis(20));
    let again = TxnOptions {
        session_timeout: Duration::MAX,
        deadline: Some(Duration::from_millis(10)),
        attempt: foreshore_lock::Attempt { first, losses: 0 },
        ..TxnOptions::default()
    };
    // The timeout alone would never end the wait.
    assert!(matches!(toy.manager.begin(again), Err(Error::TooManyTransactions { .. })));
}

/// As many threads as sessions, each with one transaction at a time, and all sessions made by threads that have ended.
#[test]
fn no_session_is_refused_while_another_is_idle() {
    const THREADS: usize = 3;
    let options = TxnManagerOptions { max_sessions: THREADS, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[1], options);
    // One by each of several threads, so that they lie apart.
    let barrier = std::sync::Barrier::new(THREADS);
    let make = || {
        let made = toy.begin("maker");
        barrier.wait();
        drop(made.commit().expect("nothing to do"));
    };
    let run = || {
        for _ in 0..5000 {
            let txn = toy.try_begin("runner").expect("fewer transactions than sessions");
            drop(txn.commit().expect("nothing to do"));
        }
    };
    for work in [&make as &(dyn Fn() + Sync), &run] {
        thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(work))));
    }
}

/// The thread that ends a transaction works for it, as long as that takes.
#[test]
fn a_waiter_for_a_transaction_of_its_own_goes_on_when_another_thread_ends_it() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 1], small());
    let mut given = toy.begin("given away");
    toy.add(&mut given, 0, 1).expect("free");
    toy.add(&mut given, 1, 1).expect("free");
    let ((latched, is_latched), (_hold, never)) = (channel(), channel::<()>());
    thread::scope(|scope| {
        let toy = &toy;
        scope.spawn(move || {
            let page = toy.pool.exclusive(page_of(1)).expect("resident");
            latched.send(()).expect("received");
            never.recv_timeout(Duration::from_millis(300)).expect_err("nothing is sent");
            drop(page);
        });
        is_latched.recv().expect("sent");
        scope.spawn(move || given.rollback().expect("undone"));
        let mut waiter = toy.begin("waiter");
        assert_eq!(toy.get(&mut waiter, 0).expect("the other thread rolls it back"), 1);
    });
}
