//! Promise: the space of deleted rows comes back by itself, also after a reopen and after a long reader. Space that a
//! snapshot holds is counted.

use crate::support::{DIR, NUMBERS, TEXTS, fill, small};
use foreshore::{Db, ReadOptions, TableDef, TxnOptions};
use foreshore_io::{Fs, Mem};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const ROWS: u64 = 20_000;
/// Rows whose old versions the memory for undo has the space for.
const HELD: u64 = 3000;
/// Steps of background work that are more than enough.
const STEPS: usize = 4000;

fn without_threads(fs: &Arc<dyn Fs>) -> Db {
    small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(fs));
        })
        .open(DIR)
        .unwrap()
}

fn empty(db: &Db, count: u64) {
    for from in (0..count).step_by(100) {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            (from..from + 100).try_for_each(|n| table.remove(n).map(drop))
        })
        .unwrap();
    }
    db.sync().unwrap();
}

/// Runs background work until `is_done`.
fn until(db: &Db, what: &str, is_done: impl Fn(&Db) -> bool) {
    for _ in 0..STEPS {
        if is_done(db) {
            return;
        }
        db.step();
    }
    panic!("{what}: {:?}", db.stats());
}

#[test]
fn an_emptied_table_is_small_again() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = without_threads(&fs);
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    let before = db.stats().space.used_pages;
    fill(&db, ROWS);
    assert!(db.stats().space.used_pages > before + 50);
    empty(&db, ROWS);
    until(&db, "the pages of an emptied table", |db| db.stats().space.used_pages <= before + 1);
    let report = db.check().unwrap();
    assert_eq!(report.rows, 0);
    assert!(db.stats().tree.collapses > 0 && db.stats().held.is_empty(), "{:?}", db.stats());
    fill(&db, ROWS);
    assert_eq!(db.check().unwrap().rows, ROWS);
}

/// Nothing queues a leaf while a database is closed: the next scan does, of one leaf at least, and the rest of the
/// table is swept.
#[test]
fn a_scan_after_a_reopen_has_deleted_rows_purged() {
    for is_locked in [true, false] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let db = without_threads(&fs);
        fill(&db, ROWS);
        empty(&db, ROWS);
        db.close(Duration::ZERO).unwrap();
        let db = without_threads(&fs);
        if is_locked {
            assert!(db.run(|tx| tx.open(NUMBERS)?.range(11_000..11_010).next().transpose()).unwrap().is_none());
        } else {
            assert_eq!(db.read().open(NUMBERS).unwrap().range(11_000..11_010).count(), 0);
        }
        until(&db, "the leaves of the table", |db| db.stats().space.used_pages < 8);
        db.check().unwrap();
    }
}

#[test]
fn what_a_snapshot_holds_is_counted_by_table_and_goes_after_it() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = without_threads(&fs);
    fill(&db, HELD);
    db.run(|tx| tx.open(TEXTS)?.insert("one", "text").map(drop)).unwrap();
    db.sync().unwrap();
    let used = db.stats().space.used_pages;
    let reader = db.read_with(ReadOptions::new().latest());
    assert_eq!(reader.open(NUMBERS).unwrap().get(7).unwrap(), Some(7));
    empty(&db, HELD);
    until(&db, "rows are held", |db| db.stats().held.iter().map(|held| held.rows).sum::<u64>() == HELD);
    let held = db.stats().held;
    assert_eq!(held.len(), 1, "of one table: {held:?}");
    assert!(db.stats().space.used_pages >= used, "the reader needs them");
    assert_eq!(reader.open(NUMBERS).unwrap().iter().count(), HELD as usize);
    drop(reader);
    until(&db, "what was held goes", |db| db.stats().held.is_empty() && db.stats().space.used_pages < 9);
    db.check().unwrap();
}

/// A row that was inserted and rolled back leaves nothing.
#[test]
fn rows_that_were_rolled_back_leave_no_pages() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = without_threads(&fs);
    fill(&db, 100);
    let before = db.stats().space.used_pages;
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    (100..10_000).try_for_each(|n| table.insert(n, 1).map(drop)).unwrap();
    tx.rollback().unwrap();
    db.sync().unwrap();
    until(&db, "pages of a rollback", |db| db.stats().space.used_pages <= before + 1);
    assert_eq!(db.check().unwrap().rows, 100);
}

/// Fifty series, of which each day removes the oldest of three, row by row.
#[test]
fn a_time_series_takes_no_more_after_forty_days_than_after_ten() {
    const SERIES: TableDef<(u32, u64), &[u8]> = TableDef::new("series");
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = without_threads(&fs);
    let (series, points) = (10_u32, 100_u64);
    let mut after_ten = 0;
    for day in 0..40_u64 {
        for part in 0..series {
            db.run(|tx| {
                let table = tx.open(SERIES)?;
                (0..points).try_for_each(|n| table.insert((part, day * points + n), &[7; 50][..]).map(drop))
            })
            .unwrap();
        }
        if day >= 3 {
            for part in 0..series {
                db.run(|tx| {
                    let table = tx.open(SERIES)?;
                    (0..points).try_for_each(|n| table.remove((part, (day - 3) * points + n)).map(drop))
                })
                .unwrap();
            }
        }
        db.sync().unwrap();
        (0..200).for_each(|_| db.step());
        if day == 9 {
            after_ten = db.stats().space.used_pages;
        }
    }
    let used = db.stats().space.used_pages;
    assert!(10 * used <= 11 * after_ten, "{used} pages, {after_ten} after ten days");
    let live = 3 * u64::from(series) * points * 62;
    assert!(used * 8192 <= 4 * live, "{used} pages for {live} bytes");
    assert_eq!(db.check().unwrap().rows, 3 * u64::from(series) * points);
}

/// Runs of ascending keys side by side fill their leaves as one run does.
#[test]
fn runs_side_by_side_fill_their_leaves() {
    const RUNS: TableDef<(u32, u32), &[u8]> = TableDef::new("runs");
    let pages = |runs: u32, rows: u32| {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let db = without_threads(&fs);
        for n in 0..rows {
            db.run(|tx| {
                let table = tx.open(RUNS)?;
                (0..runs).try_for_each(|run| table.insert((run, n), &[7; 50][..]).map(drop))
            })
            .unwrap();
        }
        assert_eq!(db.check().unwrap().rows, u64::from(runs * rows));
        db.stats().space.used_pages
    };
    let (one, side_by_side) = (pages(1, 40_000), pages(20, 2000));
    assert!(10 * side_by_side <= 11 * one + 200, "{side_by_side} pages side by side, {one} in one run");
}

/// The purge skips a table that a transaction has locked, and returns to it.
#[test]
fn a_table_that_is_locked_is_purged_later() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = without_threads(&fs);
    let tx = db.begin_with(TxnOptions::new().label("creator"));
    {
        let table = tx.open(NUMBERS).unwrap();
        (0..5000).try_for_each(|n| table.insert(n, 1).map(drop)).unwrap();
        (0..5000).try_for_each(|n| table.remove(n).map(drop)).unwrap();
    }
    (0..200).for_each(|_| db.step());
    let used = db.stats().space.used_pages;
    tx.commit().unwrap();
    // The first scan makes the leaves known: the purge does not know of a table that is not committed.
    db.sync().unwrap();
    assert_eq!(db.read().open(NUMBERS).unwrap().iter().count(), 0);
    until(&db, "the rows of the creator", |db| db.stats().space.used_pages + 10 < used);
    db.check().unwrap();
}

/// Rows that are few in their leaf wait for more of them, but not for long.
#[test]
fn a_few_deleted_rows_go_after_a_while() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
    fill(&db, HELD);
    let purges = db.stats().tree.purges;
    db.run(|tx| tx.open(NUMBERS)?.remove(HELD / 2)).unwrap();
    db.sync().unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while db.stats().tree.purges == purges {
        assert!(Instant::now() < limit, "{:?}", db.stats());
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(db.check().unwrap().rows, HELD - 1);
}
