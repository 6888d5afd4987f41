//! A prepared transaction waits to be resolved, with all its locks, as long as that takes; readers see the state
//! before it.

use crate::support::{DIR, NUMBERS, TEXTS, fill, in_memory, open, small};
use foreshore::{Db, Device, Error, Isolation, Options, RowLock, TableDef, Transaction, TxnOptions};
use foreshore_io::{Fs, Mem};
use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

const WORDS: TableDef<&str, &str> = TableDef::new("words");
const MADE: TableDef<u64, i64> = TableDef::new("made");

/// For transactions that must not wait.
fn hasty() -> TxnOptions {
    TxnOptions::new().label("hasty").lock_timeout(Duration::ZERO)
}

/// Whose lock keeps `work` from being done.
fn stopped_by<T>(db: &Db, options: TxnOptions, work: impl Fn(&Transaction) -> Result<T, Error>) -> &'static str {
    let tx = db.begin_with(options);
    match work(&tx) {
        Err(Error::LockTimeout { holder, .. }) => holder,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("nothing was locked"),
    }
}

/// Rows 0 to 99, and some words.
fn filled() -> (Db, Arc<dyn Fs>) {
    let (db, fs) = in_memory();
    fill(&db, 100);
    db.run(|tx| {
        let words = tx.open(WORDS)?;
        ["a", "b", "c"].into_iter().try_for_each(|word| words.insert(word, "short").map(drop))
    })
    .unwrap();
    (db, fs)
}

/// What the tests prepare: every kind of change and of lock.
fn work(db: &Db) -> Transaction {
    let tx = db.begin_with(TxnOptions::new().label("worker"));
    let numbers = tx.open(NUMBERS).unwrap();
    numbers.insert(1, -1).unwrap();
    numbers.insert(1, -11).unwrap();
    numbers.remove(2).unwrap();
    numbers.remove(3).unwrap();
    numbers.insert(3, -3).unwrap();
    numbers.insert(1000, 1).unwrap();
    numbers.insert(1001, 1).unwrap();
    numbers.remove(1001).unwrap();
    assert_eq!(numbers.get_for_update(4).unwrap(), Some(4));
    assert_eq!(numbers.get_for_update(5).unwrap(), Some(5));
    numbers.insert(5, -5).unwrap();
    assert_eq!(numbers.get(10).unwrap(), Some(10));
    assert_eq!(numbers.get(2000).unwrap(), None);
    assert_eq!(numbers.range(20..25).count(), 5);
    let words = tx.open(WORDS).unwrap();
    words.insert("a", "much longer than it was before").unwrap();
    words.insert("a", "x").unwrap();
    words.remove("b").unwrap();
    // What is taken back stays locked.
    assert_eq!(numbers.get_for_update(8).unwrap(), Some(8));
    let savepoint = tx.savepoint().unwrap();
    numbers.insert(8, -8).unwrap();
    assert_eq!(numbers.get_for_update(9).unwrap(), Some(9));
    numbers.insert(9, -9).unwrap();
    numbers.insert(6, -6).unwrap();
    numbers.insert(1002, 1).unwrap();
    numbers.remove(7).unwrap();
    numbers.insert(1003, 1).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    numbers.insert(7, -7).unwrap();
    numbers.insert(1003, 3).unwrap();
    tx
}

/// What [`work`] holds is held, under `label`, and readers see what was before it.
fn is_held(db: &Db, label: &str) {
    let written = |key: u64| stopped_by(db, hasty(), |tx| tx.open(NUMBERS)?.insert(key, 7));
    for key in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 22, 24, 1000, 1001, 1002, 1003, 2000] {
        assert_eq!(written(key), label, "{key}");
    }
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        for key in [1, 4, 6, 7, 10, 1002, 2000] {
            let written = |tx: &Transaction| tx.open(NUMBERS)?.insert(key, 7);
            assert_eq!(stopped_by(db, hasty().isolation(isolation), written), label, "{key}");
        }
    }
    for key in [1, 2, 3, 5, 7, 1000, 1001, 1003] {
        assert_eq!(stopped_by(db, hasty(), |tx| tx.open(NUMBERS)?.get(key)), label, "{key}");
    }
    for key in ["a", "b"] {
        assert_eq!(stopped_by(db, hasty(), |tx| tx.open(WORDS)?.get(key)), label, "{key}");
    }
    // A step of the purge may hold the table for a moment, too.
    let holder = || stopped_by(db, hasty(), |tx| tx.drop_table("numbers"));
    assert!(std::iter::repeat_with(holder).take(1000).any(|holder| holder == label), "the holder is {}", holder());
    // What it has only read others may read, too.
    db.run_with(hasty(), |tx| {
        let numbers = tx.open(NUMBERS)?;
        assert_eq!((numbers.get(10)?, numbers.get(2000)?), (Some(10), None));
        assert_eq!(numbers.range(20..25).count(), 5);
        Ok::<_, Error>(())
    })
    .unwrap();
    let read = db.read();
    let rows: Vec<_> = read.open(NUMBERS).unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(rows, (0..100).map(|n| (n, n as i64)).collect::<Vec<_>>());
    for (key, value) in &rows {
        assert_eq!(read.open(NUMBERS).unwrap().get(*key).unwrap(), Some(*value));
    }
    for key in 1000..1005 {
        assert_eq!(read.open(NUMBERS).unwrap().get(key).unwrap(), None);
    }
    assert_eq!(read.open(WORDS).unwrap().get("a").unwrap().as_deref(), Some("short"));
    assert_eq!(read.open(WORDS).unwrap().get("b").unwrap().as_deref(), Some("short"));
}

fn names(db: &Db) -> Vec<String> {
    db.prepared().unwrap().into_iter().map(|found| found.name).collect()
}

/// The rows after [`work`], if it was committed.
fn is_resolved(db: &Db, committed: bool) {
    assert!(names(db).is_empty());
    assert_eq!(db.stats().prepared, 0);
    let expected = |n: u64| match n {
        1 => Some(-11),
        2 => None,
        3 => Some(-3),
        5 => Some(-5),
        7 => Some(-7),
        1000 => Some(1),
        1003 => Some(3),
        _ => Some(n as i64),
    };
    let rows = (0..100).chain([1000, 1003]);
    let before = |n: u64| (n < 100).then_some(n as i64);
    let expected: Vec<_> = rows.filter_map(|n| Some((n, if committed { expected(n)? } else { before(n)? }))).collect();
    db.run_with(hasty(), |tx| {
        let numbers = tx.open(NUMBERS)?;
        let found: Vec<_> = numbers.iter().collect::<Result<_, _>>()?;
        assert_eq!(found, expected);
        for key in [1, 2, 3, 4, 5, 6, 7, 10, 20, 22, 24, 1000, 1001, 1002, 1003, 2000] {
            numbers.insert(key, 7)?;
        }
        let words = tx.open(WORDS)?;
        let (a, b) = if committed { ("x", None) } else { ("short", Some("short")) };
        assert_eq!((words.get("a")?.as_deref(), words.get("b")?.as_deref()), (Some(a), b));
        Err::<(), _>(Error::NoSavepoint)
    })
    .unwrap_err();
    let read = db.read();
    let found: Vec<_> = read.open(NUMBERS).unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(found, expected);
    drop(read);
    db.check().unwrap();
}

fn resolve(db: &Db, name: &str, commit: bool) {
    if commit {
        db.commit_prepared(name).unwrap();
    } else {
        db.rollback_prepared(name).unwrap();
    }
}

#[test]
fn a_prepared_transaction_is_held_until_it_is_resolved() {
    for commit in [true, false] {
        let (db, fs) = filled();
        work(&db).prepare("two-phase").unwrap();
        let found = db.prepared().unwrap();
        assert_eq!((found.len(), &*found[0].name, &*found[0].label), (1, "two-phase", "worker"));
        assert_eq!(db.stats().prepared, 1);
        is_held(&db, "worker");
        db.checkpoint().unwrap();
        is_held(&db, "worker");
        resolve(&db, "two-phase", commit);
        is_resolved(&db, commit);
        db.close(Duration::ZERO).unwrap();
        is_resolved(&open(&fs).unwrap(), commit);
    }
}

#[test]
fn a_restart_has_it_again_with_rows_locks_and_versions() {
    for commit in [true, false] {
        for closed in [true, false] {
            let (db, fs) = filled();
            work(&db).prepare("two-phase").unwrap();
            let xid = db.prepared().unwrap()[0].xid;
            if closed {
                db.close(Duration::from_secs(10)).unwrap();
            }
            let db = db.reopen().unwrap();
            assert_eq!(db.stats().recovery.prepared, 1);
            let found = db.prepared().unwrap();
            assert_eq!((found.len(), &*found[0].name, &*found[0].label), (1, "two-phase", "worker"));
            assert_eq!(found[0].xid, xid);
            is_held(&db, "two-phase");
            db.check().unwrap();
            resolve(&db, "two-phase", commit);
            is_resolved(&db, commit);
            db.close(Duration::ZERO).unwrap();
            is_resolved(&open(&fs).unwrap(), commit);
        }
    }
}

#[test]
fn it_outlives_restart_after_restart_with_checkpoints_and_the_work_of_others() {
    for commit in [true, false] {
        let (mut db, _fs) = filled();
        work(&db).prepare("two-phase").unwrap();
        for round in 0..3 {
            // The others have segments of the log come and go, and pages leave the pool.
            for n in 0..40 {
                db.run(|tx| {
                    let others = tx.open(TableDef::<u64, &[u8]>::new("others"))?;
                    (0..20).try_for_each(|k| others.insert(n * 20 + k, &[round; 300][..]).map(drop))
                })
                .unwrap();
            }
            db.checkpoint().unwrap();
            is_held(&db, if round == 0 { "worker" } else { "two-phase" });
            db = db.reopen().unwrap();
            is_held(&db, "two-phase");
        }
        let stats = db.stats();
        assert!(stats.log_retained_bytes > 500_000, "the log is kept from its first record on: {stats:?}");
        resolve(&db, "two-phase", commit);
        db = db.reopen().unwrap();
        is_resolved(&db, commit);
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        assert!(db.stats().log_retained_bytes < 500_000, "and is given up then");
    }
}

#[test]
fn tables_created_and_dropped_wait_with_it() {
    for (commit, restarts) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
        let (mut db, _fs) = filled();
        let tx = db.begin();
        let made = tx.open(MADE).unwrap();
        (0..500).for_each(|n| assert_eq!(made.insert(n, 1).unwrap(), None));
        // The lock of a row that was never there, on a page that goes with the table.
        let savepoint = tx.savepoint().unwrap();
        made.insert(1000, 1).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        // A table that comes and goes, and one that goes and comes.
        tx.open(TableDef::<u64, u64>::new("brief")).unwrap().insert(1, 1).unwrap();
        assert!(tx.drop_table("brief").unwrap());
        // Twice, the first time in vain: a restart refuses a note that names it twice.
        let savepoint = tx.savepoint().unwrap();
        assert!(tx.drop_table("words").unwrap());
        tx.rollback_to(&savepoint).unwrap();
        assert!(tx.drop_table("words").unwrap());
        tx.open(WORDS).unwrap().insert("new", "word").unwrap();
        tx.prepare("tables").unwrap();
        for _ in 0..restarts {
            db = db.reopen().unwrap();
        }
        let label = if restarts == 0 { "" } else { "tables" };
        for _ in 0..2 {
            assert_eq!(stopped_by(&db, hasty(), |tx| tx.open(MADE).map(drop)), label);
            assert_eq!(stopped_by(&db, hasty(), |tx| tx.open(WORDS)?.insert("a", "b")), label);
            assert!(matches!(db.read().open(MADE), Err(Error::NoTable { .. })));
            assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), 100);
            db.checkpoint().unwrap();
        }
        resolve(&db, "tables", commit);
        for _ in 0..2 {
            db.check().unwrap();
            db.vacuum().unwrap();
            let words = db.run(|tx| tx.open(WORDS)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap();
            let words: Vec<_> = words.iter().map(|(word, _)| word.as_str()).collect();
            if commit {
                assert_eq!(db.read().open(MADE).unwrap().iter().count(), 500);
                assert_eq!(words, ["new"]);
            } else {
                assert!(matches!(db.read().open(MADE), Err(Error::NoTable { .. })));
                assert_eq!(words, ["a", "b", "c"]);
            }
            db = db.reopen().unwrap();
        }
        // No id is given twice.
        db.run(|tx| tx.open(TableDef::<u64, u64>::new("later"))?.insert(1, 1).map(drop)).unwrap();
        db.check().unwrap();
    }
}

#[test]
fn names_are_checked_and_each_has_one_transaction() {
    let (db, _fs) = filled();
    let change = |n: u64| {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(n, -1).unwrap();
        tx
    };
    for name in ["", "a\0b", &*"n".repeat(201)] {
        assert!(matches!(change(1).prepare(name), Err(Error::PreparedName { .. })));
    }
    change(1).prepare(&"n".repeat(200)).unwrap();
    change(2).prepare("two").unwrap();
    assert!(matches!(change(3).prepare("two"), Err(Error::PreparedExists { .. })));
    let db = db.reopen().unwrap();
    assert_eq!(names(&db), ["n".repeat(200), "two".to_owned()]);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(3, -1).unwrap();
    assert!(matches!(tx.prepare("two"), Err(Error::PreparedExists { .. })));
    db.commit_prepared("two").unwrap();
    assert!(matches!(db.commit_prepared("two"), Err(Error::NoPrepared { .. })));
    assert!(matches!(db.rollback_prepared("two"), Err(Error::NoPrepared { .. })));
    db.rollback_prepared(&"n".repeat(200)).unwrap();
    assert!(names(&db).is_empty());
    let found =
        db.run(|tx| tx.open(NUMBERS)?.range(0..5).map(|row| row.map(|(_, n)| n)).collect::<Result<Vec<_>, Error>>());
    assert_eq!(found.unwrap(), [0, 1, -1, 3, 4]);
    db.close(Duration::ZERO).unwrap();
    assert!(matches!(db.prepared(), Err(Error::Closed)));
    assert!(matches!(db.commit_prepared("two"), Err(Error::Closed)));
}

#[test]
fn one_that_has_only_read_keeps_its_locks_too() {
    let (db, _fs) = filled();
    let tx = db.begin();
    assert_eq!(tx.open(NUMBERS).unwrap().range(10..20).count(), 10);
    tx.prepare("reader").unwrap();
    let db = db.reopen().unwrap();
    let written = |key: u64| stopped_by(&db, hasty(), |tx| tx.open(NUMBERS)?.remove(key));
    assert_eq!((written(10), written(19)), ("reader", "reader"));
    db.run_with(hasty(), |tx| tx.open(NUMBERS)?.remove(9).map(drop)).unwrap();
    db.commit_prepared("reader").unwrap();
    db.run_with(hasty(), |tx| tx.open(NUMBERS)?.remove(10).map(drop)).unwrap();
}

#[test]
fn a_lock_of_the_whole_table_is_kept() {
    let (db, _fs) = filled();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().lock_against_writes().unwrap();
    tx.prepare("table").unwrap();
    let db = db.reopen().unwrap();
    for key in [7, 99, 30_000] {
        assert_eq!(stopped_by(&db, hasty(), |tx| tx.open(NUMBERS)?.insert(key, 0)), "table");
    }
    db.rollback_prepared("table").unwrap();
    db.run_with(hasty(), |tx| tx.open(NUMBERS)?.insert(30_000, 0).map(drop)).unwrap();
}

/// An interval is known by its bounds, whatever rows a restart takes back beside it. Point locks come back as such, of
/// rows and of keys that are not there, and nothing between them is locked.
#[test]
fn intervals_and_keys_stay_locked_as_they_were() {
    let (db, _fs) = in_memory();
    db.run(|tx| tx.open(NUMBERS)?.insert(90, 90).map(drop)).unwrap();
    let loser = db.begin();
    loser.open(NUMBERS).unwrap().insert(50, 50).unwrap();
    // Up to the loser's row, and no further.
    let scan = db.begin();
    assert_eq!(scan.open(NUMBERS).unwrap().range(10..50).count(), 0);
    let table = scan.open(NUMBERS).unwrap();
    assert_eq!((table.get(90).unwrap(), table.get(95).unwrap()), (Some(90), None));
    assert_eq!(table.range(200..).count(), 0);
    scan.prepare("scan").unwrap();
    let db = db.reopen().unwrap();
    drop(loser);
    let stopped = |key: u64| stopped_by(&db, hasty(), |tx| tx.open(NUMBERS)?.insert(key, 0));
    for key in [10, 30, 49, 90, 95, 200, u64::MAX] {
        assert_eq!(stopped(key), "scan", "{key}");
    }
    for key in [9, 50, 89, 91, 94, 96, 199] {
        db.run_with(hasty(), |tx| tx.open(NUMBERS)?.insert(key, 0).map(drop)).unwrap();
        db.run_with(hasty(), |tx| tx.open(NUMBERS)?.remove(key).map(drop)).unwrap();
    }
    let rows = db.run(|tx| tx.open(NUMBERS)?.range(50..).collect::<Result<Vec<_>, Error>>()).unwrap();
    assert_eq!(rows, [(90, 90)]);
    db.commit_prepared("scan").unwrap();
    db.run_with(hasty(), |tx| tx.open(NUMBERS)?.insert(30, 0).map(drop)).unwrap();
}

#[test]
fn a_snapshot_from_before_the_end_never_sees_it() {
    for restart in [false, true] {
        let (mut db, _fs) = filled();
        work(&db).prepare("two-phase").unwrap();
        if restart {
            db = db.reopen().unwrap();
        }
        let before = db.read();
        let first = |read: &foreshore::ReadTransaction| read.open(NUMBERS).unwrap().get(1).unwrap();
        assert_eq!(first(&before), Some(1));
        let writer = db.begin_with(hasty().isolation(Isolation::Snapshot));
        assert_eq!(writer.open(NUMBERS).unwrap().get(4).unwrap(), Some(4));
        db.commit_prepared("two-phase").unwrap();
        // Many others, so that what is known of xids moves on.
        for n in 0..10_000 {
            let tx = db.begin_with(TxnOptions::new().durability(foreshore::Durability::Relaxed));
            tx.open(NUMBERS).unwrap().insert(1 + 3 * (n % 3), 8).unwrap();
            tx.commit().unwrap();
        }
        db.sync().unwrap();
        assert_eq!(first(&before), Some(1));
        let rows: Vec<_> = before.open(NUMBERS).unwrap().iter().map(Result::unwrap).collect();
        assert_eq!(rows, (0..100).map(|n| (n, n as i64)).collect::<Vec<_>>());
        assert_eq!(first(&db.read()), Some(8));
        // It had locked the row, and was the first.
        assert!(matches!(writer.open(NUMBERS).unwrap().insert(4, 0), Err(Error::Conflict { .. })));
    }
}

/// A transaction that locks a row for update counts as having updated it, also over a restart.
#[test]
fn a_lock_without_a_change_conflicts_with_older_snapshots() {
    let (db, _fs) = filled();
    let tx = db.begin();
    assert_eq!(tx.open(NUMBERS).unwrap().get_for_update(4).unwrap(), Some(4));
    tx.prepare("lock").unwrap();
    let db = db.reopen().unwrap();
    let writer = db.begin_with(hasty().isolation(Isolation::Snapshot));
    assert_eq!(writer.open(NUMBERS).unwrap().get(4).unwrap(), Some(4));
    db.commit_prepared("lock").unwrap();
    assert!(matches!(writer.open(NUMBERS).unwrap().insert(4, 0), Err(Error::Conflict { .. })));
}

/// Otherwise a restart would lock them again, over what others have made of them.
#[test]
fn rows_that_were_only_locked_are_free_once_the_decision_is_durable() {
    let db = small().device(Device::Delay(Duration::from_millis(5))).open(DIR).unwrap();
    fill(&db, 100);
    let tx = db.begin();
    assert_eq!(tx.open(NUMBERS).unwrap().get_for_update(7).unwrap(), Some(7));
    tx.prepare("p").unwrap();
    let groups = db.stats().log.groups;
    std::thread::scope(|scope| {
        let rollback = scope.spawn(|| db.rollback_prepared("p").unwrap());
        let tx = db.begin();
        let numbers = tx.open(NUMBERS).unwrap();
        while matches!(numbers.get_locked(7, RowLock::update().no_wait()), Err(Error::RowLocked { .. })) {
            std::thread::yield_now();
        }
        assert!(db.stats().log.groups > groups);
        assert_eq!(numbers.remove(7).unwrap(), Some(7));
        rollback.join().unwrap();
        tx.commit().unwrap();
    });
    assert!(names(&db).is_empty());
}

/// The number of a table that came and went in a transaction in doubt is not drawn again.
#[test]
fn a_dropped_table_keeps_its_number_in_doubt() {
    let (db, _fs) = filled();
    let tx = db.begin();
    (0..500).for_each(|n| assert_eq!(tx.open(MADE).unwrap().insert(n, 1).unwrap(), None));
    assert!(tx.drop_table("made").unwrap());
    tx.prepare("p").unwrap();
    let db = db.reopen().unwrap();
    db.commit_prepared("p").unwrap();
    let other = TableDef::<u64, u64>::new("other");
    db.run(|tx| tx.open(other)?.insert(1, 1).map(drop)).unwrap();
    db.check().unwrap();
    assert!(db.run(|tx| tx.drop_table("other")).unwrap());
    db.vacuum().unwrap();
    db.check().unwrap();
}

#[test]
fn as_many_may_wait_as_there_may_be_transactions() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options =
        |count: usize| -> Options { small().max_transactions(count).lab(|lab| lab.fs = Some(Arc::clone(&fs))) };
    let db = options(4).open(DIR).unwrap();
    fill(&db, 10);
    for n in 0..4 {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(n, -1).unwrap();
        tx.prepare(&format!("p{n}")).unwrap();
    }
    let full =
        |db: &Db| matches!(db.begin_with(hasty()).open(NUMBERS).map(drop), Err(Error::TooManyTransactions { .. }));
    assert!(full(&db));
    db.close(Duration::ZERO).unwrap();
    // With fewer it does not open, and nothing is lost by the try.
    assert!(matches!(options(3).open(DIR), Err(Error::TooManyTransactions { .. })));
    let db = options(4).open(DIR).unwrap();
    assert_eq!(names(&db), ["p0", "p1", "p2", "p3"]);
    assert!(full(&db));
    db.commit_prepared("p0").unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(0, 0).map(drop)).unwrap();
    for n in 1..4 {
        db.rollback_prepared(&format!("p{n}")).unwrap();
    }
    assert_eq!(crate::support::numbers(&db), (0..10).map(|n| (n, n as i64)).collect::<Vec<_>>());
}

/// Late sessions share a few lanes of the log's memory. After a restart those are all sessions except the prepared
/// ones'.
#[test]
fn a_restart_with_many_leaves_lanes_of_the_log_to_others() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let open = || Options::new().memory_limit(4 << 20).lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    let db = open();
    let prepare = |n: u64| {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(n, 1).unwrap();
        tx.prepare(&n.to_string()).unwrap();
    };
    fill(&db, 8);
    (0..8).for_each(prepare);
    db.close(Duration::ZERO).unwrap();
    let (done, is_done) = mpsc::channel();
    let db = open();
    thread::spawn(move || {
        db.checkpoint().unwrap();
        db.run(|tx| tx.open(TEXTS)?.insert("one", "more").map(drop)).unwrap();
        (0..8).for_each(|n: u64| db.rollback_prepared(&n.to_string()).unwrap());
        done.send(()).unwrap();
    });
    assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "somebody keeps a lane that others wait for");
}

#[test]
fn others_vacuum_drop_and_check_around_it() {
    let (db, _fs) = filled();
    db.run(|tx| tx.open(MADE).and_then(|made| (0..3000).try_for_each(|n| made.insert(n, 1).map(drop)))).unwrap();
    work(&db).prepare("two-phase").unwrap();
    let db = db.reopen().unwrap();
    assert!(db.run_with(hasty(), |tx| tx.drop_table("made")).unwrap());
    // It may truncate the file, although the transaction is older than the last use of those pages: no restart reads
    // them for it.
    db.vacuum().unwrap();
    db.check().unwrap();
    is_held(&db, "two-phase");
    let db = db.reopen().unwrap();
    is_held(&db, "two-phase");
    db.commit_prepared("two-phase").unwrap();
    db.vacuum().unwrap();
    is_resolved(&db, true);
}

/// Threads move money in two phases, with restarts in between that find some of it on its way.
#[test]
fn transfers_in_two_phases_keep_the_sum() {
    const ACCOUNTS: u64 = 8;
    let (mut db, _fs) = in_memory();
    db.run(|tx| (0..ACCOUNTS).try_for_each(|n| tx.open(NUMBERS)?.insert(n, 100).map(drop))).unwrap();
    let transfer = |db: &Db, name: &str, from: u64, to: u64| -> Result<(), Error> {
        let tx = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_millis(20)));
        let numbers = tx.open(NUMBERS)?;
        let held = numbers.get_for_update(from)?.unwrap_or_default();
        numbers.insert(from, held - 1)?;
        let held = numbers.get_for_update(to)?.unwrap_or_default();
        numbers.insert(to, held + 1)?;
        tx.prepare(name)
    };
    let sum = |db: &Db| -> i64 {
        let read = db.read();
        let rows: Vec<_> = read.open(NUMBERS).unwrap().iter().map(Result::unwrap).collect();
        assert_eq!(rows.len() as u64, ACCOUNTS);
        rows.iter().map(|(_, held)| held).sum()
    };
    let mut left = 0;
    for round in 0..4 {
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let db = &db;
                scope.spawn(move || {
                    for n in 0..40_u64 {
                        let name = format!("{thread} {n}");
                        let (from, to) = ((thread * 3 + n) % ACCOUNTS, (thread + n * 5 + 1) % ACCOUNTS);
                        match transfer(db, &name, from, to) {
                            Ok(()) => {}
                            Err(error) if error.is_retryable() => continue,
                            Err(error) => panic!("{error:?}"),
                        }
                        assert_eq!(sum(db), 100 * ACCOUNTS as i64);
                        match n {
                            // Left for the restart.
                            39 => {}
                            _ if n % 3 == 0 => db.rollback_prepared(&name).unwrap(),
                            _ => drop(db.commit_prepared(&name).unwrap()),
                        }
                    }
                });
            }
        });
        db = db.reopen().unwrap();
        assert_eq!(sum(&db), 100 * ACCOUNTS as i64);
        let names = names(&db);
        left += names.len();
        // Several at once, and each by two: one of them does it.
        std::thread::scope(|scope| {
            for name in &names {
                for _ in 0..2 {
                    scope.spawn(|| match db.commit_prepared(name) {
                        Ok(_) | Err(Error::NoPrepared { .. } | Error::PreparedBusy { .. }) => {}
                        Err(error) => panic!("{error:?}"),
                    });
                }
            }
        });
        assert!(db.prepared().unwrap().is_empty(), "round {round}");
        assert_eq!(sum(&db), 100 * ACCOUNTS as i64);
    }
    assert!(left > 0, "a restart found some");
    db.check().unwrap();
}

#[test]
fn its_pages_leave_the_pool_and_come_back() {
    let (db, _fs) = filled();
    work(&db).prepare("two-phase").unwrap();
    let db = db.reopen().unwrap();
    let big = TableDef::<u64, &[u8]>::new("big");
    let evictions = db.stats().pool.evictions;
    for from in (0..8000).step_by(100) {
        db.run(|tx| (from..from + 100).try_for_each(|n| tx.open(big)?.insert(n, &[1; 1500][..]).map(drop))).unwrap();
    }
    assert_eq!(db.read().open(big).unwrap().iter().count(), 8000);
    assert!(db.stats().pool.evictions > evictions + 500, "{:?}", db.stats().pool);
    is_held(&db, "two-phase");
    db.commit_prepared("two-phase").unwrap();
    is_resolved(&db, true);
}
