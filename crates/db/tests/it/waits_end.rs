//! Waits for other transactions end at once, with the reason, when the database is closed, reopened, or stopped by a
//! disk error. The timeouts of the waits are longer than the test.

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

/// Timeout of the waits under test. Only a wait that is not woken lasts so long.
const LOCK_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest time for a wake-up. After this time the test fails.
const WAKE_TIMEOUT: Duration = Duration::from_secs(60);

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
        .lock_timeout(LOCK_TIMEOUT)
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
            // A checkpoint needs no undo memory, which a test may have used up, and only log space that is prepared.
            db.checkpoint().unwrap_err();
            let refused = db.run(|tx| tx.open(TEXTS)?.insert("q", "r").map(drop));
            assert!(matches!(refused, Err(Error::Poisoned { .. })), "{refused:?}");
        }
    }
}

/// Calls `waits` in a thread, stops the database, and checks that the wait ends with the reason. `hold` begins the
/// transaction that `waits` has to wait for.
fn check_wait_ends(
    how: Stop,
    name: &str,
    hold: impl FnOnce(&Db) -> foreshore::Transaction,
    waits: fn(&Db) -> Result<(), Error>,
) {
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
    let outcome = reports.recv_timeout(WAKE_TIMEOUT).unwrap_or_else(|_| panic!("{how:?}: {name} was not woken"));
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
        check_wait_ends(how, "a writer that waits for a writer", writer, |db| {
            db.begin().open(NUMBERS)?.insert(1, 2).map(drop)
        });
        check_wait_ends(how, "a reader that waits for a writer", writer, |db| {
            db.begin().open(NUMBERS)?.get(1).map(drop)
        });
        check_wait_ends(how, "a writer that waits for a reader", reader, |db| {
            db.begin().open(NUMBERS)?.insert(1, 2).map(drop)
        });
        check_wait_ends(how, "one that waits for a table", writer, |db| db.begin().drop_table("numbers").map(drop));
        check_wait_ends(how, "a transaction that is run again", writer, |db| {
            db.run(|tx| tx.open(NUMBERS)?.insert(1, 2).map(drop))
        });
    }
}

/// Returns a large value. Consecutive numbers have different values.
fn large_value(n: u64) -> String {
    ["x", "y", "z"][n as usize % 3].repeat(1500)
}

/// Begins a transaction that holds most of the undo memory and stays idle.
fn hoarder(db: &Db) -> foreshore::Transaction {
    let tx = db.begin_with(TxnOptions::new().label("hoarder"));
    let texts = tx.open(TEXTS).unwrap();
    (0..12).for_each(|n| drop(texts.insert("a", &*large_value(n)).unwrap()));
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
            let outcome = tx
                .open(TEXTS)
                .and_then(|texts| (0..200).try_for_each(|n| texts.insert("z", &*large_value(n)).map(drop)));
            // Replaces the hook above: no point has this name.
            pause::set("nowhere", || ());
            report.send(outcome).unwrap();
        });
        begins.recv_timeout(WAKE_TIMEOUT).expect("the memory is spent");
        stop(&db, &sim, how);
        let outcome = reports.recv_timeout(WAKE_TIMEOUT).expect("woken");
        match how {
            Stop::Poison => assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}"),
            _ => assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}"),
        }
        thread.join().unwrap();
        drop(holder);
    }
}

/// Two transactions wait: the first in the queue for a session, and the one behind it.
#[test]
fn waits_in_the_queue_for_a_session_end_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        let sim = disk(7);
        let options = small()
            .lock_timeout(LOCK_TIMEOUT)
            .max_transactions(1)
            .lab(|lab| lab.fs = Some(std::sync::Arc::new(sim.clone())));
        let db = options.open(DIR).unwrap();
        fill(&db, 1);
        let holder = db.begin();
        let ((report, reports), (arrival, arrivals)) = (mpsc::channel(), mpsc::channel());
        let threads = [true, false].map(|first| {
            let (waiter, report, arrival) = (db.clone(), report.clone(), arrival.clone());
            let thread = thread::spawn(move || {
                pause::set("txn: first in the queue for a session", move || arrival.send(()).unwrap_or(()));
                let outcome = waiter.begin().open(NUMBERS).map(drop);
                pause::set("nowhere", || ());
                report.send(outcome).unwrap();
            });
            if first {
                arrivals.recv_timeout(WAKE_TIMEOUT).expect("it stands in line");
            }
            thread
        });
        // By then the second transaction is most probably in the queue. If not, it finds the database stopped.
        reports.recv_timeout(Duration::from_millis(50)).unwrap_err();
        match how {
            Stop::Poison => {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
                db.checkpoint().unwrap_err();
            }
            _ => stop(&db, &sim, how),
        }
        for _ in &threads {
            let outcome = reports.recv_timeout(WAKE_TIMEOUT).unwrap_or_else(|_| panic!("{how:?}: not woken"));
            match how {
                Stop::Poison => assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}"),
                _ => assert!(matches!(outcome, Err(Error::Closed)), "{how:?}: {outcome:?}"),
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(holder);
    }
}

/// A small transaction that finds no undo memory, because others use it, is retried until it succeeds. So is a large
/// transaction that fits into the memory alone.
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
                        keys.iter().try_for_each(|key| texts.insert(&**key, &*large_value(thread + round)).map(drop))
                    })
                    .unwrap_or_else(|error| panic!("thread {thread}: {error}"));
                }
            });
        }
    });
    let refused = db.run(|tx| {
        let texts = tx.open(TEXTS)?;
        (0..500).try_for_each(|n| texts.insert(&*format!("{}", n % 24), &*large_value(n)).map(drop))
    });
    let Err(error @ Error::TransactionTooLarge { max: 65_536 }) = refused else { panic!("{refused:?}") };
    let text = error.to_string();
    assert!(text.contains("memory_limit") && text.contains("spill_limit"), "{text}");
}

/// Returns whether `outcome` is the error of a database that was stopped in this way.
fn is_error_of(outcome: &Result<(), Error>, how: Stop) -> bool {
    match how {
        Stop::Poison => matches!(outcome, Err(Error::Poisoned { .. })),
        Stop::Close | Stop::Reopen => matches!(outcome, Err(Error::Closed)),
    }
}

/// The only session belongs to a commit that is not durable yet: its log write is in flight.
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
        begins.recv_timeout(WAKE_TIMEOUT).expect("no session is left");
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
            let outcome = reports.recv_timeout(WAKE_TIMEOUT).unwrap_or_else(|_| panic!("{how:?}: not woken"));
            assert!(is_error_of(&outcome, how), "{how:?}: {outcome:?}");
            stopper.join().unwrap();
        });
        assert_eq!(ticket.wait().is_ok(), how != Stop::Poison, "{how:?}");
        waiter.join().unwrap();
    }
}

/// Runs a transaction that conflicts with the commit of another transaction in each run. It joins the retry queue
/// before its ninth run, and calls `has_turn` at the start of each run from then on.
fn run_with_conflicts(db: &Db, has_turn: impl Fn()) -> Result<(), Error> {
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

/// A wait in the retry queue ends by itself after two seconds, so the test measures the time. The machine may delay
/// single tries, so one fast try of ten is enough.
#[test]
fn a_wait_in_the_retry_queue_ends_when_the_database_stops() {
    for how in [Stop::Close, Stop::Reopen, Stop::Poison] {
        let times = (0..10).map(|_| {
            let (db, sim) = database();
            let ((turn, turns), (resume, resumes), (arrival, arrivals)) =
                (mpsc::channel(), mpsc::channel(), mpsc::channel());
            let (first, second) = (db.clone(), db.clone());
            let first = thread::spawn(move || {
                run_with_conflicts(&first, || {
                    turn.send(()).unwrap();
                    resumes.recv().unwrap_or(());
                })
            });
            turns.recv_timeout(WAKE_TIMEOUT).expect("the first has the turn");
            let second = thread::spawn(move || {
                pause::set("run: stands in line", move || arrival.send(()).unwrap_or(()));
                let outcome = run_with_conflicts(&second, || ());
                pause::set("nowhere", || ());
                (outcome, Instant::now())
            });
            arrivals.recv_timeout(WAKE_TIMEOUT).expect("the second stands in line");
            let begun = Instant::now();
            stop(&db, &sim, how);
            let (outcome, ended) = second.join().unwrap();
            assert!(is_error_of(&outcome, how), "{how:?}: {outcome:?}");
            drop(resume);
            let outcome = first.join().unwrap();
            assert!(is_error_of(&outcome, how), "{how:?}: {outcome:?}");
            ended - begun
        });
        assert!(times.into_iter().any(|time| time < Duration::from_secs(1)), "{how:?}: not woken");
    }
}
