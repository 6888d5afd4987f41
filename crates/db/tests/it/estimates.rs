//! What the upper nodes of a table tell: about how many rows it has, and keys that split it.

use crate::support::{NUMBERS, TEXTS, small};
use foreshore::{Db, Error, Isolation, Options, ReadTransaction, TableDef, TxnOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const SPREAD: TableDef<u64, &[u8]> = TableDef::new("spread");

/// Fills a table with `count` rows of `len` bytes, in the order of their numbers or in a mixed one.
fn fill(db: &Db, count: u64, len: usize, is_mixed: bool) {
    let value = vec![7; len];
    let key = |n: u64| if is_mixed { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { n };
    for from in (0..count).step_by(1000) {
        db.run(|tx| {
            let table = tx.open(SPREAD)?;
            (from..count.min(from + 1000)).try_for_each(|n| table.put(key(n), &value[..]))
        })
        .unwrap();
    }
}

#[test]
fn an_estimate_is_exact_for_one_page_and_near_for_many() {
    for (count, len, is_mixed) in
        [(0, 0, false), (1, 10, true), (100, 10, false), (5_000, 10, false), (60_000, 40, true), (60_000, 40, false)]
    {
        let db = Options::in_memory().open("db").unwrap();
        fill(&db, count, len, is_mixed);
        for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
            let tx = db.begin_with(TxnOptions::new().isolation(isolation));
            let estimate = tx.open(SPREAD).unwrap().len_estimate().unwrap();
            if count <= 100 {
                assert_eq!(estimate, count);
            }
            assert!(estimate.abs_diff(count) * 5 <= count, "{estimate} of {count} rows, mixed: {is_mixed}");
        }
        assert_eq!(db.read().open(SPREAD).map_or(Ok(0), |table| table.len()).unwrap(), count);
    }
}

#[test]
fn deleted_rows_do_not_count() {
    let db = Options::in_memory().open("db").unwrap();
    db.run(|tx| (0..100).try_for_each(|n| tx.open(NUMBERS)?.put(n, 1))).unwrap();
    let tx = db.begin();
    let numbers = tx.open(NUMBERS).unwrap();
    (0..40).try_for_each(|n| numbers.remove(n).map(drop)).unwrap();
    assert_eq!(numbers.len_estimate().unwrap(), 60);
}

/// Returns the number of rows of each part between the points.
fn counts<'k>(points: &'k [u64], count: impl Fn((Bound<u64>, Bound<u64>)) -> Result<u64, Error> + 'k) -> Vec<u64> {
    let starts = [Bound::Unbounded].into_iter().chain(points.iter().copied().map(Bound::Included));
    let ends = points.iter().copied().map(Bound::Excluded).chain([Bound::Unbounded]);
    starts.zip(ends).map(|part| count(part).unwrap()).collect()
}

#[test]
fn points_split_a_table_into_parts_of_like_size() {
    for is_mixed in [false, true] {
        let db = Options::in_memory().open("db").unwrap();
        fill(&db, 40_000, 40, is_mixed);
        let reader = db.read();
        let table = reader.open(SPREAD).unwrap();
        assert_eq!(table.split_points(usize::MAX).unwrap().len(), 255);
        for parts in [0, 1, 2, 3, 4, 7, 16] {
            let points = table.split_points(parts).unwrap();
            assert_eq!(points.len(), parts.saturating_sub(1), "mixed: {is_mixed}");
            assert!(points.is_sorted_by(|one, next| one < next));
            let counts = counts(&points, |part| table.count(part));
            assert_eq!(counts.iter().sum::<u64>(), 40_000);
            let fair = 40_000 / parts.max(1) as u64;
            assert!(counts.iter().all(|&count| count <= fair * 2 && count >= fair / 3), "{parts}: {counts:?}");
        }
    }
}

#[test]
fn a_small_table_has_no_more_parts_than_rows_and_strings_split_too() {
    let db = Options::in_memory().open("db").unwrap();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    assert!(db.read().open(NUMBERS).unwrap().split_points(4).unwrap().is_empty());
    db.run(|tx| (0..3).try_for_each(|n| tx.open(NUMBERS)?.put(n, 1))).unwrap();
    let points = db.read().open(NUMBERS).unwrap().split_points(10).unwrap();
    assert_eq!(points, [0, 1, 2]);
    db.run(|tx| {
        let texts = tx.open(TEXTS)?;
        (0..5000).try_for_each(|n| texts.put(&*format!("a long common prefix of all keys {n:05}"), "text"))
    })
    .unwrap();
    let points = db.read().open(TEXTS).unwrap().split_points(8).unwrap();
    assert_eq!(points.len(), 7);
    assert!(points.iter().all(|point| point.len() == 38));
}

#[test]
fn four_threads_scan_disjoint_parts_of_one_snapshot_while_others_write() {
    let db = Options::in_memory().open("db").unwrap();
    fill(&db, 20_000, 40, true);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = (n % 20_000).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                db.run(|tx| tx.open(SPREAD)?.remove(key).map(drop)).unwrap();
                db.run(|tx| tx.open(SPREAD)?.put(n, &[1][..])).unwrap();
            }
        });
        for _ in 0..5 {
            let reader = db.read();
            let points = reader.open(SPREAD).unwrap().split_points(4).unwrap();
            let count = |fork: ReadTransaction, part: (Bound<u64>, Bound<u64>)| {
                let rows = fork.open(SPREAD).unwrap().range(part).map(|row| row.unwrap().0).collect::<Vec<_>>();
                (rows, fork)
            };
            let starts = [Bound::Unbounded].into_iter().chain(points.iter().copied().map(Bound::Included));
            let ends = points.iter().copied().map(Bound::Excluded).chain([Bound::Unbounded]);
            let threads: Vec<_> = starts
                .zip(ends)
                .map(|part| {
                    let fork = reader.fork().unwrap();
                    scope.spawn(move || count(fork, part))
                })
                .collect();
            let whole: Vec<_> = reader.open(SPREAD).unwrap().iter().map(|row| row.unwrap().0).collect();
            // A fork goes on when the first transaction has ended.
            drop(reader);
            let (mut all, mut last) = (Vec::new(), None);
            for thread in threads {
                let (rows, fork) = thread.join().unwrap();
                all.extend(rows);
                last = Some(fork);
            }
            assert_eq!(all, whole);
            let last = last.unwrap().fork().unwrap();
            assert_eq!(last.open(SPREAD).unwrap().len().unwrap(), whole.len() as u64);
            last.finish().unwrap().wait().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(db.stats().oldest_snapshot.is_none());
}

#[test]
fn a_cancelled_snapshot_is_cancelled_for_its_forks() {
    let options = small().snapshot_max_bytes(8 << 10);
    let db = options.lab(|lab| lab.fs = Some(Arc::new(foreshore_io::Mem::null()))).open("/db").unwrap();
    db.run(|tx| (0..200).try_for_each(|n| tx.open(NUMBERS)?.put(n, 1))).unwrap();
    let reader = db.read();
    let fork = reader.fork().unwrap();
    let is_cancelled = |reader: &ReadTransaction| {
        let read = reader.open(NUMBERS).and_then(|numbers| numbers.get(1));
        matches!(read, Err(Error::SnapshotTooOld { .. } | Error::RolledBack))
    };
    for value in 0.. {
        db.run(|tx| (0..200).try_for_each(|n| tx.open(NUMBERS)?.put(n, value))).unwrap();
        if is_cancelled(&fork) {
            break;
        }
    }
    assert!(is_cancelled(&reader));
    assert!(reader.fork().is_err() && fork.fork().is_err());
}
