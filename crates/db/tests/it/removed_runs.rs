//! Rows of a leaf that are removed together: they take one record, and are as single removals in every other way.

use crate::script::{disk, open, options};
use crate::support::{DIR, NUMBERS, fill, in_memory, numbers};
use foreshore::{Db, Error, Isolation, TableDef, Transaction, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];
/// Rows of several leaves.
const MANY: u64 = 2000;

fn begin(db: &Db, level: Isolation) -> Transaction {
    db.begin_with(TxnOptions::new().isolation(level).lock_timeout(Duration::from_millis(20)))
}

/// Returns the records and the bytes of log that `work` takes before its transaction commits.
fn logged(db: &Db, work: impl Fn(&Transaction)) -> (u64, u64) {
    let tx = db.begin();
    let before = db.stats().log;
    work(&tx);
    let after = db.stats().log;
    tx.commit().unwrap();
    (after.records - before.records, after.record_bytes - before.record_bytes)
}

#[test]
fn neighbours_take_one_record_and_no_more_log_than_their_keys() {
    let db = open(&disk(1)).unwrap();
    fill(&db, MANY);
    let (_, one) = logged(&db, |tx| assert!(tx.open(NUMBERS).unwrap().remove(MANY - 1).unwrap().is_some()));
    let range = logged(&db, |tx| assert_eq!(tx.open(NUMBERS).unwrap().remove_range(0..500).unwrap(), 500));
    let retain = logged(&db, |tx| {
        let kept = tx.open(NUMBERS).unwrap().retain(|number, _| !(500..1000).contains(number));
        assert_eq!(kept.unwrap(), 500);
    });
    for (records, bytes) in [range, retain] {
        assert!(records < 500 / 20, "{records} records for 500 rows");
        assert!(bytes < 500 * one / 3, "{bytes} bytes of log for 500 rows, {one} for one");
    }
}

#[test]
fn a_reader_sees_every_removed_row_after_splits_and_merges() {
    let db = options(&disk(1)).memory_limit(64 << 20).open(DIR).unwrap();
    let put = |numbers: std::ops::Range<u64>| {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            numbers.clone().try_for_each(|number| table.put(number, if number % 5 == 0 { number as i64 } else { -1 }))
        })
        .unwrap();
    };
    (0..10).for_each(|part| put(part * 1000..(part + 1) * 1000));
    // Four of five go before the reader comes, and their leaves are merged beside it.
    db.run(|tx| tx.open(NUMBERS)?.retain(|number, _| number % 5 == 0).map(drop)).unwrap();
    let old = db.read();
    let rows = || (0..10_000).step_by(5).map(|number| (number, number as i64));
    let counts = || (db.stats().tree.leaf_splits, db.stats().tree.merges);
    // One row after another removed and inserted again, so the versions of neighbours go different ways.
    for round in 1..4 {
        let (_, merges) = counts();
        db.run(|tx| tx.open(NUMBERS)?.remove_range(1500..8500).map(drop)).unwrap();
        (0..200).for_each(|_| db.step());
        assert!(round > 1 || counts().1 > merges + 10, "{} merges", counts().1 - merges);
        assert!(old.open(NUMBERS).unwrap().iter().map(Result::unwrap).eq(rows()), "round {round}, removed");
        let (splits, _) = counts();
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            // More than were removed: leaves split between them.
            (1500..8500).filter(|number| number % 5 <= round).try_for_each(|number| table.put(number, -1))
        })
        .unwrap();
        assert!(counts().0 > splits + 4, "{} splits", counts().0 - splits);
        (0..50).for_each(|_| db.step());
        let found = old.open(NUMBERS).unwrap();
        assert!(found.iter().map(Result::unwrap).eq(rows()), "round {round}, inserted");
        assert!(rows().all(|(number, value)| found.get(number).unwrap() == Some(value)), "round {round}");
    }
    db.run(|tx| tx.open(NUMBERS)?.clear()).unwrap();
    (0..50).for_each(|_| db.step());
    assert!(old.open(NUMBERS).unwrap().iter().map(Result::unwrap).eq(rows()));
    db.check().unwrap();
}

/// The rows that the snapshot sees are purged, and their leaf tells of no change.
#[test]
fn a_removal_with_a_cancelled_snapshot_finds_no_empty_range() {
    for clears in [false, true] {
        let db = options(&disk(1)).open(DIR).unwrap();
        fill(&db, 100);
        let own =
            TxnOptions::new().isolation(Isolation::Snapshot).label("own").snapshot_max_age(Duration::from_millis(5));
        let tx = db.begin_with(own);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.get(15).unwrap(), Some(15));
        db.run(|tx| tx.open(NUMBERS)?.clear()).unwrap();
        let is_purged = (0..10_000).any(|round| {
            db.run(|tx| tx.open(TableDef::<u64, i64>::new("other"))?.put(round, 1)).unwrap();
            db.step();
            db.stats().txn.snapshots_cancelled > 0 && db.stats().tree.purges > 0
        });
        assert!(is_purged, "{:?}", db.stats().tree);
        let removed = if clears { table.clear() } else { table.remove_range(10..20) };
        assert!(matches!(removed, Err(Error::SnapshotTooOld { label: "own", .. })), "{removed:?}");
    }
}

/// Rows together take the log space of each, not that of the longest for each.
#[test]
fn a_long_key_among_short_ones_needs_little_space_on_a_full_disk() {
    const TEXTS: TableDef<&str, u64> = TableDef::new("texts");
    let sim = disk(1);
    let db = open(&sim).unwrap();
    fill(&db, 100);
    let long = "5".repeat(900);
    db.run(|tx| {
        let table = tx.open(TEXTS)?;
        table.put(&*long, 0)?;
        (10..60).try_for_each(|number| table.put(&*format!("{number}"), number))
    })
    .unwrap();
    let tx = db.begin();
    let table = tx.open(TEXTS).unwrap();
    table.put("0", 0).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
    // What removals may use of a full disk, too.
    let put = |number| db.run(|tx| tx.open(NUMBERS)?.put(number, 1)).err();
    let remove = |number| db.run(|tx| tx.open(NUMBERS)?.remove(number).map(drop)).err();
    for error in [(100..100_000).find_map(put), (0..100_000).find_map(remove)] {
        assert!(matches!(error, Some(Error::DiskFull { .. })), "{error:?}");
    }
    let before = db.stats().log.records;
    assert_eq!(table.remove_range("1"..).unwrap(), 51);
    assert_eq!(db.stats().log.records - before, 1, "one record");
    tx.commit().unwrap();
}

#[test]
fn a_rollback_brings_back_rows_that_lie_in_other_leaves_by_now() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        (0..1000).try_for_each(|number| table.put(10 * number, number as i64))
    })
    .unwrap();
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
    assert_eq!(tx.open(NUMBERS).unwrap().remove_range(..).unwrap(), 1000);
    // Between the removed rows, in leaves that split.
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        (0..10_000).filter(|number| number % 10 != 0).try_for_each(|number| table.put(number, -1))
    })
    .unwrap();
    tx.rollback().unwrap();
    let found = numbers(&db);
    assert_eq!(found.len(), 10_000);
    assert!(found.iter().all(|&(number, value)| value == if number % 10 == 0 { number as i64 / 10 } else { -1 }));
    db.check().unwrap();
}

#[test]
fn a_row_that_others_have_locked_keeps_the_rows_from_it_on() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, 100);
        let shares = begin(&db, Isolation::Serializable);
        assert_eq!(shares.open(NUMBERS).unwrap().get(60).unwrap(), Some(60));
        let writes = begin(&db, Isolation::Serializable);
        writes.open(NUMBERS).unwrap().put(80, 8).unwrap();
        let tx = begin(&db, level);
        assert_eq!(tx.open(NUMBERS).unwrap().remove_range(..60).unwrap(), 60, "{level:?}");
        tx.rollback().unwrap();
        for range in [60..70, 55..65, 75..90] {
            let tx = begin(&db, level);
            let removed = tx.open(NUMBERS).unwrap().remove_range(range.clone());
            assert!(matches!(removed, Err(Error::LockTimeout { .. })), "{level:?}, {range:?}: {removed:?}");
        }
        drop((shares, writes));
        assert_eq!(numbers(&db).len(), 100);
    }
}

#[test]
fn a_row_that_has_changed_since_the_snapshot_is_a_conflict() {
    for deleted in [false, true] {
        let (db, _) = in_memory();
        fill(&db, 100);
        let tx = begin(&db, Isolation::Snapshot);
        let table = tx.open(NUMBERS).unwrap();
        assert_eq!(table.get(1).unwrap(), Some(1));
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            if deleted { table.remove(50).map(drop) } else { table.put(50, 5) }
        })
        .unwrap();
        assert_eq!(table.remove_range(..50).unwrap(), 50);
        assert!(matches!(table.remove_range(40..60), Err(Error::Conflict { .. })), "deleted: {deleted}");
    }
}

#[test]
fn rows_that_the_transaction_has_locked_or_written_are_removed_and_come_back() {
    for level in LEVELS {
        let (db, _) = in_memory();
        fill(&db, MANY);
        let tx = begin(&db, level);
        let table = tx.open(NUMBERS).unwrap();
        table.get_for_update(10).unwrap();
        table.put(11, -11).unwrap();
        table.remove(12).unwrap();
        table.put(5000, 1).unwrap();
        let savepoint = tx.savepoint().unwrap();
        // The lock is the newest entry, and no savepoint comes between.
        table.get_for_update(0).unwrap();
        assert_eq!(table.remove_range(..100).unwrap(), 99);
        assert_eq!(table.remove_range(..).unwrap(), MANY - 100 + 1);
        assert!(table.is_empty().unwrap());
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!((table.len().unwrap(), table.get(11).unwrap()), (MANY, Some(-11)));
        // Locks of a part that is undone stay.
        let other = begin(&db, Isolation::ReadCommitted);
        assert!(matches!(other.open(NUMBERS).unwrap().put(700, 0), Err(Error::LockTimeout { .. })), "{level:?}");
        drop(other);
        assert_eq!(table.remove_range(700..800).unwrap(), 100);
        tx.commit().unwrap();
        let found = numbers(&db);
        assert_eq!(found.len() as u64, MANY - 100);
        assert!(found.iter().all(|(number, _)| !(700..800).contains(number)));
        db.check().unwrap();
    }
}

#[test]
fn large_values_between_others_go_with_their_pages() {
    const TEXTS: TableDef<u32, &[u8]> = TableDef::new("some large");
    let db = open(&disk(1)).unwrap();
    let is_large = |number: u32| number % 7 == 3;
    let put_all = |tx: &Transaction| {
        let table = tx.open(TEXTS)?;
        (0..300).try_for_each(|number| table.put(number, &*vec![1; if is_large(number) { 20_000 } else { 20 }]))
    };
    db.run(put_all).unwrap();
    let freed = || db.stats().tree.chains_freed;
    assert_eq!(db.run(|tx| tx.open(TEXTS)?.remove_range(5..295)).unwrap(), 290);
    db.run(|tx| {
        assert_eq!(tx.open(TEXTS)?.len()?, 10);
        Ok::<_, Error>(())
    })
    .unwrap();
    for _ in 0..1000 {
        db.step();
    }
    assert_eq!(freed(), (5..295).filter(|&number| is_large(number)).count() as u64);
    db.check().unwrap();
}

#[test]
fn a_loser_with_many_removals_is_undone_at_a_restart() {
    let sim = disk(1);
    let db = open(&sim).unwrap();
    fill(&db, MANY);
    db.run(|tx| tx.open(NUMBERS)?.remove_range(10..20).map(drop)).unwrap();
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.put(5, -5).unwrap();
    table.remove_range(..1000).unwrap();
    let savepoint = tx.savepoint().unwrap();
    table.remove_range(1000..1500).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    table.remove_range(1200..).unwrap();
    // All of it is in the log, and the transaction has no end there.
    db.run(|tx| tx.open(TableDef::<u64, i64>::new("other"))?.put(1, 1)).unwrap();
    db.checkpoint().unwrap();
    let image = sim.crash_image(&Persist::None, 0);
    drop((tx, db));
    let db = open(&image).unwrap();
    let expected = (0..MANY).filter(|number| !(10..20).contains(number)).map(|number| (number, number as i64));
    assert!(numbers(&db).into_iter().eq(expected));
    assert!(db.stats().recovery.undone > 1000, "{:?}", db.stats().recovery);
    db.check().unwrap();
}
