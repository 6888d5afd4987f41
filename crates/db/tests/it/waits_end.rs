//! A database that is closed, reopened or stopped by its disk wakes all waits for other transactions, at once and with
//! the reason. The timeouts of the waits are longer than the test.

use crate::script::disk;
use crate::support::{DIR, NUMBERS, TEXTS, fill, small};
use foreshore::{Db, Error, Isolation, ReadOptions, TxnOptions};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_io::Sim;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_sync::pause;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A wait that is not woken takes this long.
const LONG: Duration = Duration::from_secs(600);
/// What takes longer has not been woken.
const SOON: Duration = Duration::from_secs(60);

/// What stops the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Close,
    Reopen,
    Poison,
}

fn database() -> (Db, Sim) {
    let sim = disk(7);
    let db = small()
        .lock_timeout(LONG)
        .lab(|lab| {
            lab.undo_limit = Some(64 << 10);
            lab.fs = Some(std::sync::Arc::new(sim.clone()));
        })
        .open(DIR)
        .unwrap();
    fill(&db, 100);
    db.run(|tx| tx.open(TEXTS).map(drop)).unwrap();
    (db, sim)
}

fn stop(db: &Db, sim: &Sim, how: Stop) {
    match how {
        Stop::Close => db.close(Duration::ZERO).unwrap(),
        Stop::Reopen => drop(db.reopen().unwrap()),
        Stop::Poison => {
            sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
            db.begin_with(TxnOptions::new().label("last")).commit().ok();
            // Needs no memory for undo, which a test may have spent, and no log but what is prepared.
            db.checkpoint().unwrap_err();
            let refused = db.run(|tx| tx.open(TEXTS)?.insert("q", "r").map(drop));
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        }
    }
}

/// Has `waits` wait in a thread until the database is stopped.
fn ends(how: Stop, name: &str, hold: impl FnOnce(&Db) -> foreshore::Transaction, waits: fn(&Db) -> Result<(), Error>) {
    let (db, sim) = database();
    let holder = hold(&db);
    let before = db.stats().txn.locks.waits;
    let (report, reports) = mpsc::channel();
    let waiter = db.clone();
    let thread = thread::spawn(move || report.send(waits(&waiter)).unwrap());
    while db.stats().txn.locks.waits == before {
        thread::yield_now();
    }
    stop(&db, &sim, how);
    let outcome = reports.recv_timeout(SOON).unwrap_or_else(|_| panic!("{how:?}: {name} was not woken"));
    match how {
        Stop::Poison => assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{name}: {outcome:?}"),
        Stop::Close | Stop::Reopen => assert!(matches!(outcome, Err(Error::Closed)), "{how:?}, {name}: {outcome:?}"),
    }
    thread.join().unwrap();
    drop(holder);
}

fn writer(db: &Db) -> foreshore::Transaction {
    let tx = db.begin_with(TxnOptions::new().label("writer"));
    tx.open(NUMBERS).unwrap().insert(1, -1).unwrap();
    tx
}

fn reader(db: &Db) -> foreshore::Transaction {
    let tx = db.begin_with(TxnOptions::new().label("reader"));
    assert_eq!(tx.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    tx
}

#[test]
fn waits_for_locks_end_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        ends(how, "a writer that waits for a writer", writer, |db| db.begin().open(NUMBERS)?.insert(1, 2).map(drop));
        ends(how, "a reader that waits for a writer", writer, |db| db.begin().open(NUMBERS)?.get(1).map(drop));
        ends(how, "a writer that waits for a reader", reader, |db| db.begin().open(NUMBERS)?.insert(1, 2).map(drop));
        ends(how, "one that waits for a table", writer, |db| db.begin().drop_table("numbers").map(drop));
        ends(how, "a transaction that is run again", writer, |db| {
            db.run(|tx| tx.open(NUMBERS)?.insert(1, 2).map(drop))
        });
    }
}

/// A large value, another one for each number and the next.
fn long(n: u64) -> String {
    ["x", "y", "z"][n as usize % 3].repeat(1500)
}

/// A transaction that holds most of the memory for undo, and does nothing.
fn hoarder(db: &Db) -> foreshore::Transaction {
    let tx = db.begin_with(TxnOptions::new().label("hoarder"));
    let texts = tx.open(TEXTS).unwrap();
    (0..12).for_each(|n| drop(texts.insert("a", &*long(n)).unwrap()));
    tx
}

#[test]
fn a_wait_for_undo_memory_ends_when_the_database_stops() {
    for how in [Stop::Close, Stop::Poison] {
        let (db, sim) = database();
        let holder = hoarder(&db);
        let ((report, reports), (begun, begins)) = (mpsc::channel(), mpsc::channel());
        let waiter = db.clone();
        let thread = thread::spawn(move || {
            pause::set("txn: found no space for undo", move || begun.send(()).unwrap_or(()));
            let tx = waiter.begin();
            let outcome =
                tx.open(TEXTS).and_then(|texts| (0..200).try_for_each(|n| texts.insert("z", &*long(n)).map(drop)));
            pause::set("nowhere", || ());
            report.send(outcome).unwrap();
        });
        begins.recv_timeout(SOON).expect("the memory is spent");
        stop(&db, &sim, how);
        let outcome = reports.recv_timeout(SOON).expect("woken");
        match how {
            Stop::Poison => assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}"),
            _ => assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}"),
        }
        thread.join().unwrap();
        drop(holder);
    }
}

/// The first in line for a session, and the one behind it.
#[test]
fn a_wait_in_line_for_a_session_ends_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        let sim = disk(7);
        let options =
            small().lock_timeout(LONG).max_transactions(1).lab(|lab| lab.fs = Some(std::sync::Arc::new(sim.clone())));
        let db = options.open(DIR).unwrap();
        fill(&db, 1);
        let holder = db.begin();
        let ((report, reports), (stands, is_first)) = (mpsc::channel(), mpsc::channel());
        let threads = [true, false].map(|first| {
            let (waiter, report, stands) = (db.clone(), report.clone(), stands.clone());
            let thread = thread::spawn(move || {
                pause::set("txn: first in the queue for a session", move || stands.send(()).unwrap_or(()));
                let outcome = waiter.begin().open(NUMBERS).map(drop);
                pause::set("nowhere", || ());
                report.send(outcome).unwrap();
            });
            if first {
                is_first.recv_timeout(SOON).expect("it stands in line");
            }
            thread
        });
        // The second one has most probably come by then; if not, it finds that all has stopped.
        reports.recv_timeout(Duration::from_millis(50)).unwrap_err();
        match how {
            Stop::Poison => {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
                db.checkpoint().unwrap_err();
            }
            _ => stop(&db, &sim, how),
        }
        for _ in &threads {
            let outcome = reports.recv_timeout(SOON).unwrap_or_else(|_| panic!("{how:?}: not woken"));
            match how {
                Stop::Poison => assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}"),
                _ => assert!(matches!(outcome, Err(Error::Closed)), "{how:?}: {outcome:?}"),
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(holder);
    }
}

/// Small transactions that others keep from the undo memory are retried, and each succeeds; so does a large one if it
/// fits alone.
#[test]
fn transactions_that_others_keep_from_undo_memory_come_through() {
    let (db, _) = database();
    let _old = db.read_with(ReadOptions::new().label("old"));
    thread::scope(|scope| {
        for thread in 0..8_u64 {
            let db = &db;
            scope.spawn(move || {
                for round in 0..20 {
                    let many = if thread == 0 { 12 } else { 3 };
                    let keys: Vec<String> = (0..many).map(|n| format!("{}", (thread + n * 7 + round) % 24)).collect();
                    db.run(|tx| {
                        let texts = tx.open(TEXTS)?;
                        keys.iter().try_for_each(|key| texts.insert(&**key, &*long(thread + round)).map(drop))
                    })
                    .unwrap_or_else(|error| panic!("thread {thread}: {error}"));
                }
            });
        }
    });
    let refused = db.run(|tx| {
        let texts = tx.open(TEXTS)?;
        (0..500).try_for_each(|n| texts.insert(&*format!("{}", n % 24), &*long(n)).map(drop))
    });
    let Err(error @ Error::TransactionTooLarge { max: 65_536 }) = refused else { panic!("{refused:?}") };
    let text = error.to_string();
    assert!(text.contains("memory_limit") && text.contains("spill_limit"), "{text}");
}

/// Whether `outcome` tells that the database was stopped, and how.
fn tells(outcome: &Result<(), Error>, how: Stop) -> bool {
    match how {
        Stop::Poison => matches!(outcome, Err(Error::Poisoned { .. })),
        Stop::Close | Stop::Reopen => matches!(outcome, Err(Error::Closed)),
    }
}

/// A commit keeps the only session until it is durable, and its log is on the way to the disk.
#[test]
fn a_wait_for_a_session_ends_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        let sim = disk(7);
        let one = small().max_transactions(1).lab(|lab| lab.hold_until_durable = EarlyRelease::Off.hook());
        let db = one.lab(|lab| lab.fs = Some(std::sync::Arc::new(sim.clone()))).open(DIR).unwrap();
        fill(&db, 10);
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(1, -1).unwrap();
        sim.hold(|path| path.extension().is_some_and(|extension| extension == "seg"));
        let ticket = tx.commit_pipelined().unwrap();
        let flight = sim.wait_for_flights(1)[0].no;
        let ((report, reports), (begun, begins)) = (mpsc::channel(), mpsc::channel());
        let waiter = db.clone();
        let waiter = thread::spawn(move || {
            pause::set("txn: counted the commits that hold locks", move || begun.send(()).unwrap_or(()));
            let outcome = waiter.begin().open(NUMBERS).map(drop);
            pause::set("nowhere", || ());
            report.send(outcome).unwrap();
        });
        begins.recv_timeout(SOON).expect("no session is left");
        thread::scope(|scope| {
            let stopper = scope.spawn(|| match how {
                Stop::Close => db.close(Duration::ZERO).unwrap(),
                Stop::Reopen => drop(db.reopen().unwrap()),
                Stop::Poison => {}
            });
            if how == Stop::Poison {
                sim.fail(flight);
            } else {
                // The last checkpoint waits for the disk as well.
                while !matches!(db.prepared(), Err(Error::Closed)) {
                    thread::yield_now();
                }
            }
            sim.stop_holding();
            let outcome = reports.recv_timeout(SOON).unwrap_or_else(|_| panic!("{how:?}: not woken"));
            assert!(tells(&outcome, how), "{how:?}: {outcome:?}");
            stopper.join().unwrap();
        });
        assert_eq!(ticket.wait().is_ok(), how != Stop::Poison, "{how:?}");
        waiter.join().unwrap();
    }
}

/// Runs a transaction that another one's commit ends in each of its runs, so that it joins the retry queue before the
/// ninth. Then calls `has_turn`.
fn meets_others(db: &Db, has_turn: impl Fn()) -> Result<(), Error> {
    let mut runs = 0;
    db.run_with(TxnOptions::new().isolation(Isolation::Snapshot), |tx| {
        runs += 1;
        if runs > 8 {
            has_turn();
        }
        let numbers = tx.open(NUMBERS)?;
        numbers.get(1)?;
        db.run(|other| other.open(NUMBERS)?.insert(1, runs).map(drop))?;
        numbers.insert(1, -runs).map(drop)
    })
}

/// A queued request times out after two seconds by itself, so the time counts here. One of some tries is not delayed
/// by the machine.
#[test]
fn a_wait_in_line_ends_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        let takes = (0..10).map(|_| {
            let (db, sim) = database();
            let ((turn, turns), (go_on, goes_on), (stands, in_line)) =
                (mpsc::channel(), mpsc::channel(), mpsc::channel());
            let (first, second) = (db.clone(), db.clone());
            let first = thread::spawn(move || {
                meets_others(&first, || {
                    turn.send(()).unwrap();
                    goes_on.recv().unwrap_or(());
                })
            });
            turns.recv_timeout(SOON).expect("the first has the turn");
            let second = thread::spawn(move || {
                pause::set("run: stands in line", move || stands.send(()).unwrap_or(()));
                let outcome = meets_others(&second, || ());
                pause::set("nowhere", || ());
                (outcome, Instant::now())
            });
            in_line.recv_timeout(SOON).expect("the second stands in line");
            let begun = Instant::now();
            stop(&db, &sim, how);
            let (outcome, ended) = second.join().unwrap();
            assert!(tells(&outcome, how), "{how:?}: {outcome:?}");
            drop(go_on);
            let outcome = first.join().unwrap();
            assert!(tells(&outcome, how), "{how:?}: {outcome:?}");
            ended - begun
        });
        assert!(takes.into_iter().any(|took| took < Duration::from_secs(1)), "{how:?}: not woken");
    }
}
