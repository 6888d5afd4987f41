//! One operation has one lock timeout, and a deadline ends all waits of a transaction.

use crate::toy::{TABLE, Toy, key, small};
use foreshore_base::{Error, Result, TableId};
use foreshore_io::Mem;
use foreshore_lock::{Interval, TableMode, Target};
use foreshore_sync::pause;
use foreshore_txn::{Txn, TxnManagerOptions, TxnOptions, Undoable};
use foreshore_wal::LogLimits;
use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// A wait that nothing ends before takes at least so long.
const LONG: Duration = Duration::from_secs(20);
/// The lock timeout. A wait that has it for itself lasts at least so long.
const TIMEOUT: Duration = Duration::from_millis(150);
/// Of so many waits whose time is over, one ends before [`TIMEOUT`], however busy the machine is.
const ATTEMPTS: u32 = 100;
const OTHER: TableId = TableId(8);

fn until(deadline: Duration) -> TxnOptions {
    TxnOptions { label: "hurried", lock_timeout: LONG, deadline: Some(deadline), ..TxnOptions::default() }
}

type Wait = Box<dyn FnMut(&mut Txn) -> Result<()> + Send>;

/// Waits of each kind for locks that another transaction holds.
fn waits(toy: &Toy, reader: &mut Txn, writer: &mut Txn) -> Vec<(&'static str, Wait)> {
    toy.get(reader, 0).expect("free");
    toy.add(writer, 1, 5).expect("free");
    writer.lock_table(OTHER, TableMode::Exclusive).expect("free");
    let held = writer.xid().expect("it has written");
    vec![
        ("wait_exclusive", Box::new(|txn| txn.wait_exclusive(Target::row(TABLE, &key(0))))),
        ("wait_row", Box::new(move |txn| txn.wait_row(TABLE, &key(1), held))),
        ("lock_table", Box::new(|txn| txn.lock_table(OTHER, TableMode::Shared))),
    ]
}

fn waited(outcome: &Result<()>) -> Duration {
    match outcome {
        Err(Error::LockTimeout { waited, .. }) => *waited,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn the_waits_of_an_operation_for_several_locks_have_one_timeout() {
    let (mut toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    let (mut reader, mut writer) = (toy.begin("reader"), toy.begin("writer"));
    toy.timeout = TIMEOUT;
    let of_each: Vec<_> = (0..3).map(|_| waits(&toy, &mut reader, &mut writer)).collect();
    let toy = &toy;
    std::thread::scope(|scope| {
        // Threads that have begun none of the others.
        let threads =
            of_each.into_iter().enumerate().map(|(first, waits)| scope.spawn(move || one_time_for(toy, first, waits)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    });
}

/// An operation waits for all of them, for the one at `first` until its time is over.
fn one_time_for(toy: &Toy, first: usize, mut waits: Vec<(&'static str, Wait)>) {
    let mut txn = toy.begin("waiter");
    for second in 0..waits.len() {
        let is_over_at_once = (0..ATTEMPTS).any(|_| {
            txn.release();
            let outcome = waits[first].1(&mut txn);
            assert!(waited(&outcome) >= TIMEOUT, "{}: {outcome:?}", waits[first].0);
            let began = Instant::now();
            waited(&waits[second].1(&mut txn));
            began.elapsed() < TIMEOUT
        });
        assert!(is_over_at_once, "{} has a time of its own", waits[second].0);
    }
    // The next operation has its own.
    txn.release();
    let outcome = txn.lock_table(OTHER, TableMode::Shared);
    assert!(waited(&outcome) >= TIMEOUT, "{outcome:?}");
}

fn in_another_thread(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"));
}

/// The same for waits behind writers that wait themselves.
#[test]
fn the_waits_of_a_reader_behind_queued_writers_have_one_timeout() {
    let (mut toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    let mut holder = toy.begin("holder");
    toy.get(&mut holder, 0).expect("free");
    let mut queued = toy.begin("queued");
    toy.timeout = TIMEOUT;
    let before = toy.manager.stats().locks.waits;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || {
            queued.wait_exclusive(Target::row(TABLE, &key(0))).expect("the holder ends");
            let (locks, owner) = queued.locks();
            locks.end_exclusive(owner);
        });
        while toy.manager.stats().locks.waits == before {
            std::thread::yield_now();
        }
        in_another_thread(|| {
            let mut reader = toy.begin("reader");
            let is_over_at_once = (0..ATTEMPTS).any(|_| {
                reader.release();
                let shared = reader.share(Target::row(TABLE, &key(0)));
                assert!(waited(&shared) >= TIMEOUT, "{shared:?}");
                let covered = reader.wait_to_cover(TABLE, &Interval::of_key(&key(0)));
                waited(&covered) < TIMEOUT
            });
            assert!(is_over_at_once, "the second wait has a time of its own");
            reader.release();
            let covered = reader.wait_to_cover(TABLE, &Interval::of_key(&key(0)));
            assert!(waited(&covered) >= TIMEOUT, "{covered:?}");
        });
        drop(holder);
        waiter.join().expect("no panic");
    });
}

#[test]
fn a_deadline_ends_a_wait_for_a_lock_and_names_the_holder() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    let (mut reader, mut writer) = (toy.begin("reader"), toy.begin("writer"));
    for (name, wait) in &mut waits(&toy, &mut reader, &mut writer) {
        let mut txn = toy.manager.begin(until(Duration::from_millis(20))).expect("a session");
        let outcome = wait(&mut txn);
        let Err(Error::LockTimeout { holder, waited, .. }) = outcome else { panic!("{name}: {outcome:?}") };
        assert!(["reader", "writer"].contains(&holder) && waited < LONG, "{name}: {holder} {waited:?}");
    }
}

/// Enters the largest value, with an xid.
fn enter(txn: &mut Txn) -> Result<()> {
    const BODY: usize = 4000;
    txn.ensure_xid()?;
    txn.reserve(0, BODY)?;
    txn.push_undo(&Undoable { kind: 41, table: TABLE, body: &[7; BODY], before: None, structure: 0 });
    txn.release();
    Ok(())
}

#[test]
fn a_deadline_ends_a_wait_for_undo_memory_and_names_the_holder() {
    let memory = TxnManagerOptions { undo_limit_bytes: 4 << 13, undo_timeout: LONG, ..small() };
    let (toy, _) = Toy::new(Mem::null(), &[1], memory);
    let mut hoarder = toy.begin("hoarder");
    while {
        let mut last = toy.manager.begin(until(Duration::ZERO)).expect("a session");
        // It takes no more than is free at once.
        enter(&mut last).is_ok()
    } {
        enter(&mut hoarder).expect("free");
    }
    let began = Instant::now();
    let mut txn = toy.manager.begin(until(Duration::from_millis(50))).expect("a session");
    let refused = enter(&mut txn);
    assert!(matches!(refused, Err(Error::UndoMemory { holder: "hoarder", .. })), "{refused:?}");
    assert!(Duration::from_millis(50) <= began.elapsed() && began.elapsed() < LONG);
}

/// Has the log slow down all that append, without an end, and the session of the next transaction owe for a record.
fn slow_down(toy: &Toy) {
    let mut txn = toy.begin("before");
    toy.log_a_change(&mut txn);
    txn.commit().expect("committed").wait().expect("durable");
    toy.log.limit_backlog(Some(LogLimits { soft: 0, hard: 1 }));
}

#[test]
fn a_deadline_ends_a_wait_for_log_space() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    slow_down(&toy);
    let began = Instant::now();
    let mut txn = toy.manager.begin(until(Duration::from_millis(50))).expect("a session");
    let refused = toy.add(&mut txn, 0, 1);
    assert!(matches!(refused, Err(Error::LogSpace)), "{refused:?}");
    assert!(Duration::from_millis(50) <= began.elapsed() && began.elapsed() < LONG);
    txn.rollback().expect("what a rollback needs is not limited");
    toy.log.limit_backlog(None);
    let mut next = toy.manager.begin(until(LONG)).expect("a session");
    toy.add(&mut next, 0, 1).expect("the limit was that of the transaction before");
}

/// A checkpoint that comes while a prepare waits for log space may give up all log.
#[test]
fn a_prepare_that_waits_for_log_space_keeps_no_log() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], small());
    slow_down(&toy);
    let mut txn = toy.manager.begin(until(Duration::from_millis(20))).expect("a session");
    txn.ensure_xid().expect("an xid");
    assert_eq!(txn.last_lsn().0, 0, "the prepare record is its first one");
    let (looks, manager) = (Rc::new(Cell::new(0)), toy.manager.clone());
    let counter = looks.clone();
    pause::set("wal: a session is slowed", move || {
        counter.set(counter.get() + 1);
        assert_eq!(manager.xids().oldest_group(), None, "nothing of it is in the log");
    });
    let refused = txn.prepare("one", b"");
    pause::set("nowhere", || ());
    assert!(matches!(refused, Err(Error::LogSpace)) && looks.get() > 0, "{refused:?}");
    toy.log.limit_backlog(None);
    let mut txn = toy.manager.begin(until(LONG)).expect("a session");
    txn.ensure_xid().expect("an xid");
    let prepared = txn.prepare("two", b"").expect("log space");
    assert!(toy.manager.xids().oldest_group().is_some(), "its record is kept");
    prepared.rollback().expect("resolved");
}
