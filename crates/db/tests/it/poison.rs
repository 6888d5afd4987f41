//! A failed write or sync stops the database: it acknowledges nothing false, every call returns `Poisoned`, and a
//! reopen shows what has survived.
//!
//! `FORESHORE_FAULT_STRIDE=1` fails every operation in turn.

use crate::script::{Script, disk, open};
use crate::support::{NUMBERS, TEXTS};
use foreshore::{Db, Durability, Error, Transaction, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind};
use std::thread;
use std::time::{Duration, Instant};

const STRIDE: usize = 17;

#[test]
fn after_an_io_error_at_any_operation_reopening_finds_every_acknowledged_commit() {
    let stride = std::env::var("FORESHORE_FAULT_STRIDE").map_or(STRIDE, |text| text.parse().unwrap());
    let base = disk(3);
    drop(open(&base).unwrap());
    let first = base.ops();
    let total = {
        let sim = base.fork();
        let db = open(&sim).unwrap();
        Script::new(&sim, 5).run(&db, 60).unwrap();
        sim.ops()
    };
    let mut poisoned = 0;
    for at in (first..total).step_by(stride) {
        let sim = base.fork();
        sim.inject(Fault { at, kind: FaultKind::Eio, sticky: false });
        let Ok(db) = open(&sim) else {
            // It struck the start; the next one works.
            open(&sim).unwrap().check().unwrap();
            continue;
        };
        let mut script = Script::new(&sim, 5);
        let result = script.run(&db, 60);
        if let Err(error) = &result {
            assert!(matches!(error, Error::Poisoned { .. } | Error::Io { .. }), "operation {at}: {error:?}");
        }
        if db.begin().commit().is_err() {
            poisoned += 1;
            // Reads are refused as well.
            assert!(matches!(db.begin().open(NUMBERS), Err(Error::Poisoned { .. })), "operation {at}");
            assert!(matches!(db.checkpoint(), Err(Error::Poisoned { .. })), "operation {at}");
            assert!(matches!(db.sync(), Err(Error::Poisoned { .. })), "operation {at}");
        }
        let db = db.reopen().unwrap_or_else(|error| panic!("operation {at}: {error:?}"));
        script.verify(&db, sim.ops()).unwrap_or_else(|why| panic!("operation {at}: {why}"));
    }
    assert!(poisoned > 3, "{poisoned} databases stopped");
}

#[test]
fn a_commit_that_was_refused_is_all_there_or_not_at_all_after_reopen() {
    let sim = disk(4);
    let db = open(&sim).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(1, 100).unwrap();
    table.insert(2, 200).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
    assert!(matches!(tx.commit(), Err(Error::Poisoned { .. })));
    sim.clear_faults();
    // The device works again, and still nothing is acknowledged.
    assert!(matches!(db.run(|tx| tx.open(NUMBERS)?.insert(3, 3)), Err(Error::Poisoned { .. })));
    let db = db.reopen().unwrap();
    let found = db.run(|tx| tx.open(NUMBERS)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap();
    assert!(found == [(1, 1)] || found == [(1, 100), (2, 200)], "{found:?}");
}

/// A rollback that a stopped database refuses has ended its transaction all the same: `close` does not wait for it.
#[test]
fn a_refused_rollback_leaves_nothing_for_close_to_wait_for() {
    let sim = disk(6);
    let db = open(&sim).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(1, 2).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
    db.sync().unwrap_err();
    assert!(matches!(tx.rollback(), Err(Error::Poisoned { .. })));
    let began = Instant::now();
    assert!(matches!(db.close(Duration::from_secs(3600)), Err(Error::Poisoned { .. })));
    assert!(began.elapsed() < Duration::from_secs(600), "it waited for a transaction that has ended");
}

/// E6: the closure has seen a commit that was never durable, and the log stops before it can be. Its result about that
/// commit must not be returned.
#[test]
fn an_error_that_rests_on_a_lost_commit_is_not_given_back() {
    #[derive(Debug)]
    enum Refused {
        Taken(#[expect(dead_code, reason = "shown when the test fails")] i64),
        Engine(Error),
    }
    impl From<Error> for Refused {
        fn from(error: Error) -> Self {
            Self::Engine(error)
        }
    }
    let sim = disk(7);
    let db = open(&sim).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    db.run_with(relaxed, |tx| tx.open(NUMBERS)?.insert(1, 2).map(drop)).unwrap();
    let result = db.run(|tx| -> Result<(), Refused> {
        let table = tx.open(NUMBERS)?;
        let seen = table.get(1)?.unwrap();
        table.insert(2, 2)?;
        sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
        db.sync().unwrap_err();
        Err(Refused::Taken(seen))
    });
    assert!(matches!(result, Err(Refused::Engine(Error::Poisoned { .. }))), "{result:?}");
    sim.clear_faults();
    let db = db.reopen().unwrap();
    let found = db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap();
    assert_eq!(found, Some(1), "the answer would have told of a value that never was");
}

/// No call ends a prepared transaction once the log has stopped. Waiters for its locks learn that from the call that
/// tries.
#[test]
fn a_waiter_for_a_prepared_transaction_ends_when_the_log_stops() {
    type Does<T> = fn(&T) -> Result<(), Error>;
    let waits: [Does<Transaction>; 4] = [
        |tx| tx.open(NUMBERS)?.insert(1, 3).map(drop),
        |tx| tx.open(NUMBERS)?.get(1).map(drop),
        |tx| tx.open(NUMBERS)?.insert(5, 5).map(drop),
        |tx| tx.drop_table("numbers").map(drop),
    ];
    let resolve: [Does<Db>; 2] = [|db| db.commit_prepared("waits").map(drop), |db| db.rollback_prepared("waits")];
    for resolve in resolve {
        let sim = disk(8);
        let db = open(&sim).unwrap();
        db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
        let other = db.begin();
        other.open(TEXTS).unwrap().insert("more", "to write").unwrap();
        let tx = db.begin();
        let numbers = tx.open(NUMBERS).unwrap();
        numbers.insert(1, 2).unwrap();
        assert_eq!(numbers.get(5).unwrap(), None);
        tx.prepare("waits").unwrap();
        let before = db.stats().lock.waits;
        thread::scope(|scope| {
            let db = &db;
            let wait = move |work: Does<Transaction>| {
                let tx = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_secs(60)));
                work(&tx)
            };
            let waiting = waits.map(|work| scope.spawn(move || wait(work)));
            while db.stats().lock.waits < before + waits.len() as u64 {
                thread::yield_now();
            }
            sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
            other.commit().unwrap_err();
            for _ in 0..2 {
                assert!(matches!(resolve(db), Err(Error::Poisoned { .. })));
            }
            for thread in waiting {
                let ended = thread.join().unwrap();
                assert!(matches!(ended, Err(Error::Poisoned { .. })), "{ended:?}");
            }
        });
        sim.clear_faults();
        let db = db.reopen().unwrap();
        db.commit_prepared("waits").unwrap();
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(2));
    }
}
