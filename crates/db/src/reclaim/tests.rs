use super::*;
use crate::{Db, Options, TableDef, Transaction};
use foreshore_base::limits::BLOCK;
use foreshore_io::{Fs, Mem};
use foreshore_space::CHAINS_ROOT;
use std::path::Path;
use std::sync::Arc;
use std::thread;

const ROWS: TableDef<u64, u64> = TableDef::new("rows");
const DROPPED: [TableDef<u64, u64>; 2] = [TableDef::new("first"), TableDef::new("second")];

const DIR: &str = "/db";
const SHORT: Duration = Duration::from_millis(20);

/// Opens a database without background work.
fn open(fs: &Arc<dyn Fs>, timeout: Duration) -> Db {
    let options = Options::new().memory_limit(64 << 20).lock_timeout(timeout).lab(|lab| {
        lab.segment_bytes = 256 << 10;
        lab.background = false;
        lab.fs = Some(Arc::clone(fs));
    });
    options.open(DIR).unwrap()
}

/// A database in which two tables are dropped.
fn with_dropped_tables(timeout: Duration) -> Db {
    drop_tables(open(&(Arc::new(Mem::null()) as Arc<dyn Fs>), timeout))
}

fn drop_tables(db: Db) -> Db {
    db.run(|tx| DROPPED.into_iter().try_for_each(|table| tx.open(table)?.insert(1, 1).map(drop))).unwrap();
    db.run(|tx| tx.open(ROWS).map(drop)).unwrap();
    DROPPED.iter().for_each(|table| assert!(db.run(|tx| tx.drop_table(table.name())).unwrap()));
    db
}

/// The dropped tables that have pages left.
fn left(db: &Db) -> Vec<TableId> {
    let tables = db.engine().reclaimer.tables.lock();
    tables.held.iter().chain(&tables.free).map(|dropped| dropped.tree.table()).collect()
}

/// Begins a transaction that has something to undo and a lock of a dropped table, as a check does.
fn begin_with_lock(db: &Db, table: TableId) -> Transaction {
    let tx = db.begin();
    tx.open(ROWS).unwrap().insert(1, 1).unwrap();
    lock(&tx, table, TableMode::IntentShared).unwrap();
    tx
}

fn lock(tx: &Transaction, table: TableId, mode: TableMode) -> crate::Result<()> {
    tx.with(|_, live| Ok(live.txn.lock_table(table, mode)?))
}

/// The other transaction asks for the catalogue in the opposite order. It has more to undo, so the reclaim is the
/// victim.
fn meet_a_deadlock<T: Send>(work: impl FnOnce(&Db) -> T + Send) -> T {
    let db = with_dropped_tables(Duration::from_secs(60));
    let other = begin_with_lock(&db, left(&db)[0]);
    let done = thread::scope(|scope| {
        let waits = db.stats().lock.waits;
        let worker = scope.spawn(|| work(&db));
        while db.stats().lock.waits == waits {
            thread::yield_now();
        }
        lock(&other, db.engine().catalogue.table(), TableMode::Shared).unwrap();
        other.commit().unwrap();
        worker.join().unwrap()
    });
    assert_eq!((db.stats().lock.deadlocks, left(&db)), (1, Vec::new()));
    done
}

#[test]
fn a_vacuum_that_is_the_victim_of_a_deadlock_tries_again() {
    meet_a_deadlock(Db::vacuum).unwrap();
}

#[test]
fn a_compaction_that_is_the_victim_of_a_deadlock_tries_again() {
    let done = meet_a_deadlock(Db::compact).unwrap();
    assert_eq!(done.skipped, 0, "{done:?}");
}

#[test]
fn a_locked_table_does_not_keep_the_other_from_being_freed() {
    let db = with_dropped_tables(SHORT);
    let [first, _] = left(&db)[..] else { panic!("two tables are dropped") };
    let other = begin_with_lock(&db, first);
    thread::scope(|scope| {
        let vacuum = scope.spawn(|| db.vacuum()).join().unwrap();
        assert!(matches!(vacuum, Err(crate::Error::LockTimeout { .. })), "{vacuum:?}");
        assert_eq!(left(&db), [first]);
        let done = scope.spawn(|| db.compact()).join().unwrap().unwrap();
        assert!(done.skipped > 0, "{done:?}");
    });
    other.commit().unwrap();
    db.vacuum().unwrap();
    assert_eq!(left(&db), []);
}

#[test]
fn a_locked_table_hides_no_damage_of_large_values() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    drop_tables(open(&fs, SHORT)).close(Duration::ZERO).unwrap();
    let file = |name: &str| fs.open(&Path::new(DIR).join(name)).unwrap();
    file("data").write_at(&[0; PAGE_SIZE], CHAINS_ROOT.offset()).unwrap();
    // No image of a page is left that could mend it.
    let images = file("dw").len().unwrap() as usize - BLOCK;
    file("dw").write_at(&vec![0; images], BLOCK as u64).unwrap();
    let db = open(&fs, SHORT);
    let [first, _] = left(&db)[..] else { panic!("two tables are dropped") };
    let other = begin_with_lock(&db, first);
    let works: [fn(&Db) -> Option<crate::Error>; 2] = [|db| db.vacuum().err(), |db| db.compact().err()];
    let report_damage = || {
        for work in works {
            let error = thread::scope(|scope| scope.spawn(|| work(&db)).join().unwrap());
            assert!(matches!(error, Some(crate::Error::Corrupted { .. })), "{error:?}");
            assert_eq!(left(&db), [first]);
        }
    };
    report_damage();
    // A compaction then ends before its passes over the tables.
    lock(&other, db.engine().catalogue.table(), TableMode::Exclusive).unwrap();
    report_damage();
    other.commit().unwrap();
}

/// Each dropped table needs the catalogue, so one wait for that is enough.
#[test]
fn a_locked_catalogue_is_waited_for_once_and_not_for_each_table() {
    let db = with_dropped_tables(SHORT);
    let other = db.begin();
    lock(&other, db.engine().catalogue.table(), TableMode::Exclusive).unwrap();
    let timeouts = |work: fn(&Db) -> Option<crate::Error>| {
        let before = db.stats().lock.timeouts;
        let error = thread::scope(|scope| scope.spawn(|| work(&db)).join().unwrap());
        assert!(matches!(error, Some(crate::Error::LockTimeout { .. })), "{error:?}");
        assert_eq!(left(&db).len(), DROPPED.len());
        db.stats().lock.timeouts - before
    };
    assert_eq!(timeouts(|db| db.vacuum().err()), 1);
    // It also reads the catalogue.
    assert_eq!(timeouts(|db| db.compact().err()), 2);
    other.commit().unwrap();
    db.vacuum().unwrap();
    assert_eq!(left(&db), []);
}

#[test]
fn a_table_with_a_damaged_page_is_tried_less_and_less_often() {
    let (mut backoff, mut now, mut tries) = (Backoff::default(), Nanos::ZERO, 0);
    assert!(backoff.left(now).is_zero(), "the first try does not wait");
    while now < Nanos::from(Duration::from_secs(3600)) {
        let last = backoff;
        backoff = last.next(now, DAMAGED);
        tries += 1;
        let expected = if tries == 1 { DAMAGED[0] } else { (2 * last.pause).min(DAMAGED[1]) };
        assert_eq!((backoff.left(now), backoff.pause), (expected, expected));
        now = backoff.due;
        assert!(backoff.left(now).is_zero());
    }
    assert!(tries < 80, "{tries} tries in an hour");
}
