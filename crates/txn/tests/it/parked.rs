//! A rollback that finds no page stops in front of the change, keeps its rows and is tried again.

use crate::toy::{TABLE, Toy, decode, log_options, records, small};
use foreshore_base::TableId;
use foreshore_base::{Error, GroupNo, Lsn, Xid};
use foreshore_buffer::format::{CLR, UNDOABLE};
use foreshore_io::{Fs, Mem};
use foreshore_lock::TableMode;
use foreshore_sync::Signal;
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::primitive::thread;
use foreshore_txn::format::{COPY, CopyBody, END};
use foreshore_txn::{Forward, LoggedChange, Start, Txn, TxnManagerOptions, Undoable, Unfinished};
use foreshore_wal::LogOptions;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

fn is_parked<T>(outcome: Result<T, Error>, of: &str) -> bool {
    match outcome {
        Err(Error::RollbackParked { label, cause }) => label == of && matches!(*cause, Error::DiskFull { .. }),
        _ => false,
    }
}

fn add_each(toy: &Toy, txn: &mut Txn, rows: Range<u64>, amount: i64) {
    for row in rows {
        toy.add(txn, row, amount).expect("free");
    }
}

#[test]
fn a_rollback_without_a_page_keeps_its_rows_until_it_is_tried_again() {
    let (toy, rows) = Toy::new(Mem::null(), &[1, 2, 3], small());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..3, 10);
    rows.stuck.store(1, Ordering::Relaxed);
    assert!(is_parked(txn.rollback(), "large"));
    assert_eq!([0, 1, 2].map(|row| toy.value(row)), [11, 12, 3], "what comes before the row that is stuck is back");
    let parked = toy.manager.parked();
    assert_eq!((parked.len(), parked[0].label, toy.manager.stats().parked), (1, "large", 1));
    assert!(toy.log.poisoned().is_none());

    let mut other = toy.begin("other");
    assert_eq!(toy.add(&mut other, 2, 1).expect("back"), 4);
    // Neither waits, though each would for a minute.
    assert!(is_parked(toy.add(&mut other, 1, 1), "large"));
    assert!(is_parked(toy.add(&mut other, 0, 1), "large"));
    assert!(is_parked(toy.get(&mut other, 0), "large"));
    assert!(!other.try_lock_table(TABLE, TableMode::Exclusive), "its table is not dropped under it");
    assert_eq!(toy.manager.retry_parked().left, 1, "nothing has changed");
    assert_eq!(toy.manager.checkpoint_view().active.len(), 2, "a restart would take it back");

    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
    assert_eq!([0, 1].map(|row| toy.add(&mut other, row, 0).expect("free")), [1, 2]);
    other.commit().expect("committed").wait().expect("durable");
    assert_eq!((toy.manager.stats().parked, toy.manager.checkpoint_view().active.len()), (0, 0));
}

/// The thread that tries again is told of each rollback once, or it would wake itself for as long as one is parked.
#[test]
fn a_rollback_that_is_parked_again_wakes_no_waiter() {
    let (toy, rows) = Toy::new(Mem::null(), &[1], small());
    let signal = Signal::new();
    toy.manager.signal_parked(signal.clone());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..1, 10);
    rows.stuck.store(0, Ordering::Relaxed);
    assert!(is_parked(txn.rollback(), "large"));
    assert!(signal.wait(Some(Duration::ZERO)), "parked for the first time");
    for _ in 0..3 {
        assert_eq!(toy.manager.retry_parked().left, 1);
        assert!(!signal.wait(Some(Duration::ZERO)), "parked again");
    }
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
}

#[test]
fn each_change_is_compensated_once_however_often_a_rollback_is_tried() {
    let mem = Mem::null();
    let fs: Arc<dyn Fs> = Arc::new(mem.clone());
    let (toy, rows) = Toy::new(mem, &[0; 4], small());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..4, 1);
    for stuck in [3, 2, 2, 0] {
        rows.stuck.store(stuck, Ordering::Relaxed);
        match toy.manager.stats().parked {
            0 => assert!(is_parked(std::mem::replace(&mut txn, toy.begin("next")).rollback(), "large")),
            _ => assert_eq!(toy.manager.retry_parked().left, 1),
        }
    }
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
    assert_eq!(toy.sum(), 0);
    drop(txn);
    toy.log.close().expect("closed");
    drop(toy);
    let all = records(&fs);
    let count = |is: &dyn Fn(u8, u8) -> bool| {
        let is = |record| {
            let change = decode(record);
            is(change.kind, change.flags)
        };
        all.iter().filter(|record| is(record)).count()
    };
    let kinds = (count(&|_, flags| flags & UNDOABLE != 0), count(&|_, flags| flags & CLR != 0));
    assert_eq!((kinds, count(&|kind, _| kind == END)), ((4, 4), 1));
}

#[test]
fn one_that_waits_for_a_row_is_told_when_the_rollback_of_its_holder_is_parked() {
    let (toy, rows) = Toy::new(Mem::null(), &[0; 2], small());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..2, 1);
    rows.stuck.store(1, Ordering::Relaxed);
    thread::scope(|scope| {
        let waiters = [0, 1, 1].map(|row| {
            let toy = &toy;
            scope.spawn(move || {
                let mut waiter = toy.begin("waiter");
                is_parked(toy.add(&mut waiter, row, 1), "large")
            })
        });
        while toy.manager.stats().locks.waits < 3 {
            thread::yield_now();
        }
        assert!(is_parked(txn.rollback(), "large"));
        assert!(waiters.map(|waiter| waiter.join().expect("no panic")).iter().all(|&told| told));
    });
}

#[test]
fn a_savepoint_that_cannot_be_gone_back_to_leaves_a_transaction_that_only_ends() {
    let (toy, rows) = Toy::new(Mem::null(), &[0; 3], small());
    let mut txn = toy.begin("large");
    toy.add(&mut txn, 0, 1).expect("free");
    let savepoint = txn.savepoint();
    add_each(&toy, &mut txn, 1..3, 1);
    rows.stuck.store(1, Ordering::Relaxed);
    assert!(matches!(txn.rollback_to(&savepoint, |_| false), Err(Error::DiskFull { .. })));
    assert!(toy.log.poisoned().is_none());
    // Its end is a rollback, which is parked in turn.
    assert!(matches!(txn.commit(), Err(Error::RolledBack)));
    assert_eq!(toy.manager.stats().parked, 1);
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!((toy.manager.retry_parked().left, toy.sum()), (0, 0));
}

#[test]
fn a_rollback_that_meets_a_damaged_page_is_parked() {
    let (toy, rows) = Toy::new(Mem::null(), &[0; 3], small());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..3, 1);
    rows.damaged.store(1, Ordering::Relaxed);
    let outcome = txn.rollback();
    let cause = match &outcome {
        Err(Error::RollbackParked { cause, .. }) => &**cause,
        other => panic!("{other:?}"),
    };
    assert!(matches!(cause, Error::Corrupted { .. }), "{cause:?}");
    assert_eq!((toy.manager.retry_parked().left, toy.value(2)), (1, 0));
    assert!(toy.log.poisoned().is_none());
    toy.log.close().expect("closed beside it");
}

/// A change on a damaged page is left out, and the transaction does not end in this run: the next restart finds the
/// change in the log.
#[test]
fn a_loser_with_a_damaged_page_stays_parked() {
    let mem = Mem::null();
    let fs: Arc<dyn Fs> = Arc::new(mem.clone());
    log_of_a_loser(mem);
    let (toy, rows) = Toy::open(&fs, &[5, 6], small(), Start { next_xid: Xid(64), clock: Default::default() });
    rows.damaged.store(1, Ordering::Relaxed);
    let body = |row: u64, new: i64| [row, 0, 0, new as u64].map(u64::to_le_bytes).concat().into();
    let change = |n: u64| LoggedChange { lsn: Lsn(n + 1), kind: 40, table: TABLE, body: body(n, n as i64 + 5) };
    let (changes, cause) = (vec![change(0), change(1)], Error::DiskFull { path: "data".into(), held_by: None });
    let unfinished = Unfinished { xid: Xid(1), first_group: GroupNo(1), last_lsn: Lsn(2), changes, cause };
    toy.manager.park(unfinished).expect("parked");
    (0..3).for_each(|_| assert_eq!(toy.manager.retry_parked().left, 1));
    assert_eq!([0, 1].map(|row| toy.value(row)), [0, 6], "what is not damaged is back");
    assert!(matches!(*toy.manager.parked()[0].cause, Error::Corrupted { .. }));
    assert_eq!(toy.manager.checkpoint_view().active.len(), 1);
}

/// A restart hands over what it could not take back: the rows are locked again under a new xid, and the records carry
/// the old one.
#[test]
fn a_loser_of_a_restart_is_parked_and_ends_later() {
    let mem = Mem::null();
    let fs: Arc<dyn Fs> = Arc::new(mem.clone());
    log_of_a_loser(mem);
    let start = Start { next_xid: Xid(64), clock: Default::default() };
    let found = records(&fs);
    let changes: Vec<LoggedChange> = found
        .iter()
        .filter(|record| decode(record).flags & UNDOABLE != 0)
        .map(|record| LoggedChange {
            lsn: record.lsn,
            kind: decode(record).kind,
            table: TABLE,
            body: decode(record).body.into(),
        })
        .collect();
    let (was, last_lsn) = (Xid(found.last().expect("records").tag), changes.last().expect("two").lsn);
    let (toy, rows) = Toy::open(&fs, &[5, 6], small(), start);
    let cause = Error::DiskFull { path: "data".into(), held_by: None };
    let unfinished = Unfinished { xid: was, first_group: GroupNo(1), last_lsn, changes, cause };
    toy.manager.park(unfinished).expect("parked");
    assert_eq!(toy.manager.checkpoint_view().active, [(was, Some(GroupNo(1)))], "its log is kept");
    let mut other = toy.begin("other");
    assert!(is_parked(toy.add(&mut other, 0, 1), "rollback at restart"));
    rows.stuck.store(0, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 1);
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
    assert_eq!([0, 1].map(|row| toy.add(&mut other, row, 0).expect("free")), [0, 0]);
    drop(other);
    toy.log.close().expect("closed");
    drop((toy, rows));
    let ended = records(&fs);
    let of_loser = ended.iter().filter(|record| record.tag == was.0 && record.lsn > last_lsn);
    let kinds: Vec<u8> = of_loser.map(|record| decode(record).kind).collect();
    assert_eq!((kinds.len(), kinds.last()), (3, Some(&END)), "two compensations and the end");
}

/// Two changes that are not committed, in rows of zero.
fn log_of_a_loser(mem: Mem) {
    let (toy, rows) = Toy::new(mem, &[0, 0], small());
    let mut txn = toy.begin("lost");
    toy.add(&mut txn, 0, 5).expect("free");
    toy.add(&mut txn, 1, 6).expect("free");
    assert!(txn.last_lsn() > Lsn::ZERO);
    toy.log.force(toy.log.current()).expect("durable");
    rows.stuck.store(1, Ordering::Relaxed);
    assert!(is_parked(txn.rollback(), "lost"));
    toy.log.close().expect("closed");
}

/// Bytes of an entry that has a chunk of undo memory for itself.
const LARGE: usize = 5000;

/// A manager with two chunks of undo memory, and a transaction that holds both. Its newest change is one of row 0,
/// which its rollback finds stuck.
fn all_memory_in_one() -> (Toy, Txn) {
    let options = TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_timeout: Duration::MAX, ..small() };
    let (toy, rows) = Toy::new(Mem::null(), &[0; 2], options);
    let mut txn = toy.begin("large");
    for _ in 0..2 {
        txn.ensure_xid().expect("an xid");
        txn.reserve(0, LARGE).expect("a chunk is left");
        txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; LARGE], before: None, structure: 0 });
    }
    toy.add(&mut txn, 0, 1).expect("free");
    txn.release();
    rows.stuck.store(0, Ordering::Relaxed);
    (toy, txn)
}

fn lacks_memory(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::UndoMemory { holder: "large", .. }))
}

/// It gives its undo memory up when it has ended, and nothing that the waiting session could wait for ends it.
#[test]
fn undo_memory_of_a_parked_rollback_is_not_waited_for() {
    let (toy, txn) = all_memory_in_one();
    assert!(is_parked(txn.rollback(), "large"));
    let mut other = toy.begin("other");
    other.ensure_xid().expect("an xid");
    let outcome = other.reserve(0, LARGE);
    assert!(lacks_memory(&outcome), "it fits, but for the rollback: {outcome:?}");
    assert!(toy.add(&mut other, 1, 1).is_ok(), "what the rollback has left is for others");
}

#[test]
fn one_that_waits_for_undo_memory_is_told_when_its_holder_is_parked() {
    let (toy, txn) = all_memory_in_one();
    let (begun, begins) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            pause::set("txn: found no space for undo", move || begun.send(()).unwrap_or(()));
            let mut other = toy.begin("other");
            other.ensure_xid().expect("an xid");
            let outcome = other.reserve(0, LARGE);
            pause::set("nowhere", || ());
            outcome
        });
        begins.recv().expect("the memory is spent");
        assert!(is_parked(txn.rollback(), "large"));
        let outcome = waiter.join().expect("no panic");
        assert!(lacks_memory(&outcome), "{outcome:?}");
    });
}

/// The log behind a parked rollback may go: what is left of it is copied, once or more often, and compensated once.
#[test]
fn a_parked_rollback_is_copied_to_the_end_of_the_log() {
    let mem = Mem::null();
    let fs: Arc<dyn Fs> = Arc::new(mem.clone());
    let (toy, rows) = Toy::new(mem, &[0; 1500], small());
    let mut txn = toy.begin("large");
    add_each(&toy, &mut txn, 0..1500, 1);
    // A lock is not logged, and not copied.
    toy.lock(&mut txn, 0).expect("its own");
    let first = toy.manager.xids().oldest_group().expect("it runs");
    let force = || toy.log.force(toy.log.current()).expect("written");
    force();
    rows.stuck.store(1400, Ordering::Relaxed);
    assert!(is_parked(txn.rollback(), "large"));
    assert_eq!(toy.manager.copy_forward(|_, _| false), Forward::Nothing);
    assert_eq!(toy.manager.xids().oldest_group(), Some(first));
    force();
    // Another one that is older than the copies keeps the log.
    let mut other = toy.begin("other");
    assert_eq!(toy.add(&mut other, 1450, 0).expect("back"), 0);
    let begun = toy.manager.xids().oldest_group().map(|_| toy.log.next_group()).expect("both run");
    assert_eq!(toy.manager.copy_forward(|group, copies| group <= begun && copies < 100_000), Forward::Done);
    other.rollback().expect("nothing in its way");
    force();
    assert!(toy.manager.xids().oldest_group().expect("it is parked") >= begun);
    assert_eq!((toy.manager.parked().len(), toy.manager.stats().parked), (1, 1));
    assert_eq!(toy.manager.retry_parked().left, 1);
    assert!(is_parked(toy.add(&mut toy.begin("other"), 1400, 1), "large"));
    assert_eq!(toy.manager.copy_forward(|_, _| true), Forward::Done);
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
    assert_eq!(toy.sum(), 0);
    toy.log.close().expect("closed");
    drop(toy);

    let all = records(&fs);
    let sets: Vec<_> = all.iter().map(decode).filter(|change| change.kind == COPY).collect();
    let sets: Vec<_> = sets.iter().map(|change| CopyBody::decode(change.body).expect("our own body")).collect();
    assert!(sets.len() > 4, "{} records", sets.len());
    let ends = |is: fn(&CopyBody<'_>) -> bool| sets.iter().filter(|body| is(body)).count();
    assert_eq!((ends(|body| body.is_first), ends(|body| body.is_last)), (2, 2));
    let undoable = all.iter().filter(|record| decode(record).flags & UNDOABLE != 0);
    let own: Vec<_> = undoable.map(|record| record.lsn).take(1401).collect();
    let copied: Vec<_> = sets.iter().flat_map(|body| body.changes.iter().map(|change| change.lsn)).collect();
    assert!(copied == [own.clone(), own].concat(), "the oldest first, by their own LSNs");
}

/// The records of a set that failed half-way stay in the log. Those of the next set follow them, though its lane of the
/// log is behind.
#[test]
fn a_set_of_copies_follows_the_one_that_failed() {
    let mem = Mem::null();
    let fs: Arc<dyn Fs> = Arc::new(mem.clone());
    let (toy, rows) = Toy::new(mem, &[0; 600], small());
    let mut txn = toy.begin("lost");
    add_each(&toy, &mut txn, 0..600, 1);
    rows.stuck.store(599, Ordering::Relaxed);
    assert!(is_parked(txn.rollback(), "lost"));
    toy.log.close().expect("closed");
    drop((toy, rows));
    let found = records(&fs);
    let undoable = found.iter().filter(|record| decode(record).flags & UNDOABLE != 0);
    let change = |record| {
        let change = decode(record);
        LoggedChange { lsn: record.lsn, kind: change.kind, table: TABLE, body: change.body.into() }
    };
    let changes: Vec<_> = undoable.map(change).collect();
    let (was, last_lsn) = (Xid(found.last().expect("records").tag), changes.last().expect("many").lsn);
    let own: Vec<_> = changes.iter().map(|change| change.lsn).collect();

    // Eight lanes, the last two of which are shared. No group is cut meanwhile.
    let log = LogOptions { background: false, lane_memory: 512 << 10, ..log_options() };
    let start = Start { next_xid: Xid(64), clock: Default::default() };
    let (toy, rows) = Toy::with_log(&fs, &[1; 601], small(), start, &log);
    let ballast: Vec<_> = (0..8).map(|_| toy.begin("has a lane of its own")).collect();
    let cause = Error::DiskFull { path: "data".into(), held_by: None };
    let unfinished = Unfinished { xid: was, first_group: GroupNo(1), last_lsn, changes, cause };
    toy.manager.park(unfinished).expect("parked");
    rows.unnamed.store(500, Ordering::Relaxed);
    assert_eq!(toy.manager.copy_forward(|_, _| true), Forward::Nothing);
    // It keeps the lane of the log that the copies were in.
    let mut other = toy.begin("other");
    toy.add(&mut other, 600, 1).expect("free");
    rows.unnamed.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.copy_forward(|_, _| true), Forward::Done);
    other.release();
    drop((other, ballast));
    toy.log.close().expect("closed");
    drop((toy, rows));

    let all = records(&fs);
    let copies: Vec<_> = all.iter().filter(|record| decode(record).kind == COPY).collect();
    assert!(copies.iter().all(|record| record.tag == was.0));
    let bodies: Vec<_> = copies.iter().map(|record| decode(record)).collect();
    let sets: Vec<_> = bodies.iter().map(|change| CopyBody::decode(change.body).expect("our own body")).collect();
    let begins: Vec<_> = sets.iter().enumerate().filter(|(_, body)| body.is_first).map(|(at, _)| at).collect();
    assert!(begins.len() == 2 && begins[0] == 0 && begins[1] > 1, "the sets begin at records {begins:?}");
    let copied: Vec<_> =
        sets[begins[1]..].iter().flat_map(|body| body.changes.iter().map(|change| change.lsn)).collect();
    assert!(copied == own, "a restart would find {} changes in the set, of {}", copied.len(), own.len());
    assert!(sets.last().expect("two sets").is_last);
}
