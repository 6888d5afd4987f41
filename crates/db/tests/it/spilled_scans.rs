//! A scan of old versions in the spill file reads each chunk of the file for many rows at once. It returns the rows
//! that its snapshot sees, or an error.

use crate::support::{DIR, NUMBERS, fill, numbers, small};
use foreshore::{Db, Device, Error, Isolation, Options, ReadOptions, ReadTransaction, Result, TableDef, TxnOptions};
use foreshore_base::Error as Storage;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

const ROWS: u64 = 6000;
const OTHER: TableDef<u64, i64> = TableDef::new("other");

fn options() -> Options {
    small().lab(|lab| lab.undo_limit = Some(128 << 10)).spill_limit(16 << 20).device(Device::Null)
}

/// Sets each row to `value`, in an order that keeps neighbouring rows far apart. So each leaf has old versions in all
/// chunks.
fn scatter(db: &Db, count: u64, value: i64) {
    let rows: Vec<u64> = (0..count).map(|n| n * 2477 % count).collect();
    for rows in rows.chunks(100) {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            rows.iter().try_for_each(|&n| numbers.insert(n, value).map(drop))
        })
        .unwrap();
    }
}

fn rows(reader: &ReadTransaction) -> Result<Vec<(u64, i64)>> {
    reader.open(NUMBERS)?.iter().collect()
}

fn as_filled(count: u64) -> Vec<(u64, i64)> {
    (0..count).map(|n| (n, n as i64)).collect()
}

/// Returns how many chunks the spill file holds, and how many were read from it.
fn chunks(db: &Db) -> (u64, u64) {
    let txn = db.stats().txn;
    (txn.undo_spilled_bytes as u64 / 8192, txn.undo_fetches)
}

/// A scan reads each spilled chunk only a few times. It does not read a chunk again for each row, or for each version
/// that it skips.
#[test]
fn a_scan_reads_each_chunk_for_many_rows() {
    let db = options().open(DIR).unwrap();
    fill(&db, ROWS);
    let reader = db.read();
    let expected = as_filled(ROWS);
    for value in 0..4 {
        scatter(&db, ROWS, value);
        let (spilled, before) = chunks(&db);
        assert!(rows(&reader).unwrap() == expected, "round {value}");
        let fetches = chunks(&db).1 - before;
        // The scan fetches for windows of 1, 2, 4, .. leaves. Each window may need every chunk.
        assert!(spilled > 32 && fetches > spilled / 2 && fetches <= 8 * spilled, "{fetches} of {spilled} chunks");
        // The same scan, from the other end.
        let before = chunks(&db).1;
        let mut back: Vec<(u64, i64)> = reader.open(NUMBERS).unwrap().iter().rev().collect::<Result<_>>().unwrap();
        back.reverse();
        assert!(back == expected, "round {value}");
        let fetches = chunks(&db).1 - before;
        assert!(fetches <= 8 * spilled, "{fetches} of {spilled} chunks");
    }
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
}

/// The number of versions in one fetch is bounded. A scan keeps them for all leaves that they were fetched for.
#[test]
fn a_scan_of_many_rows_uses_all_that_it_has_fetched() {
    const MANY: u64 = 40_000;
    let db = options().memory_limit(64 << 20).lab(|lab| lab.undo_limit = Some(512 << 10)).open(DIR).unwrap();
    fill(&db, MANY);
    let reader = db.read();
    scatter(&db, MANY, -1);
    let (spilled, before) = chunks(&db);
    assert!(rows(&reader).unwrap() == as_filled(MANY));
    let fetches = chunks(&db).1 - before;
    assert!(spilled > 256 && fetches > spilled / 2 && fetches <= 20 * spilled, "{fetches} of {spilled} chunks");
}

/// A cursor takes one row at a time if its transaction writes between them. It still fetches the versions of all rows
/// of a leaf.
#[test]
fn a_scan_whose_transaction_writes_reads_each_chunk_for_many_rows() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot] {
        let db = options().open(DIR).unwrap();
        fill(&db, ROWS);
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let (table, other) = (tx.open(NUMBERS).unwrap(), tx.open(OTHER).unwrap());
        let mut scan = table.iter();
        let mut found = vec![scan.next().unwrap().unwrap()];
        scatter(&db, ROWS, -1);
        let (spilled, before) = chunks(&db);
        for row in scan {
            let (n, value) = row.unwrap();
            other.insert(n, value).unwrap();
            found.push((n, value));
        }
        assert!(found == as_filled(ROWS), "{isolation:?}");
        let fetches = chunks(&db).1 - before;
        assert!(spilled > 32 && fetches > spilled / 2 && fetches <= 8 * spilled, "{fetches} of {spilled} chunks");
        tx.rollback().unwrap();
    }
}

/// A scan uses a version that was fetched ahead only if the row still leads to that version.
#[test]
fn scans_beside_writers_see_their_snapshots_row_by_row() {
    let db = options().open(DIR).unwrap();
    fill(&db, ROWS);
    let mut model: BTreeMap<u64, i64> = (0..ROWS).map(|n| (n, n as i64)).collect();
    let mut state = 1_u64;
    let mut random = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut write = |model: &mut BTreeMap<u64, i64>, count: u64| {
        db.run(|tx| {
            let mut next = model.clone();
            let numbers = tx.open(NUMBERS)?;
            for _ in 0..count {
                let (n, value) = (random(ROWS + 500), random(1 << 40) as i64);
                if value % 7 == 0 {
                    assert_eq!(numbers.remove(n)?, next.remove(&n));
                } else {
                    assert_eq!(numbers.insert(n, value)?, next.insert(n, value));
                }
            }
            *model = next;
            Ok::<_, Error>(())
        })
        .unwrap();
    };
    let old = (db.read(), model.clone());
    (0..60).for_each(|_| write(&mut model, 100));
    let young = (db.read(), model.clone());
    (0..60).for_each(|_| write(&mut model, 100));
    let fetches = chunks(&db).1;
    for (reader, seen) in [&old, &young, &old] {
        let table = reader.open(NUMBERS).unwrap();
        let mut scan = table.iter();
        let (mut front, mut back) = (Vec::new(), Vec::new());
        let mut step = 0_u64;
        loop {
            step += 1;
            // Mostly from the front, so that the scan fetches far ahead.
            let is_back = step / 1000 % 3 == 2;
            let Some(row) = (if is_back { scan.next_back() } else { scan.next() }) else { break };
            if is_back { &mut back } else { &mut front }.push(row.unwrap());
            if step.is_multiple_of(100) {
                write(&mut model, 40);
                let n = step * 31 % (ROWS + 500);
                assert_eq!(table.get(n).unwrap(), seen.get(&n).copied(), "row {n}");
            }
        }
        front.extend(back.into_iter().rev());
        assert!(front == seen.iter().map(|(&n, &value)| (n, value)).collect::<Vec<_>>());
    }
    assert!(chunks(&db).1 > fetches);
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
    assert_eq!(numbers(&db), model.into_iter().collect::<Vec<_>>());
    drop((old, young));
    db.check().unwrap();
}

/// A hook that is called once, before a read of the spill file.
type Hook = Box<dyn FnOnce() + Send>;

/// A disk in memory that calls a hook before a chosen read of the spill file.
struct HookedDisk {
    disk: Mem,
    /// The number of reads before it, and the hook.
    hook: Arc<Mutex<Option<(u32, Hook)>>>,
}

struct HookedFile {
    file: Arc<dyn File>,
    hook: Arc<Mutex<Option<(u32, Hook)>>>,
}

impl fmt::Debug for HookedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedDisk").finish_non_exhaustive()
    }
}

impl fmt::Debug for HookedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedFile").finish_non_exhaustive()
    }
}

impl FsLayer for HookedDisk {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        let is_spill = file.path().ends_with("spill");
        if is_spill { Arc::new(HookedFile { file, hook: self.hook.clone() }) } else { file }
    }
}

impl FileLayer for HookedFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Storage> {
        let due = {
            let mut hook = self.hook.lock().unwrap();
            match hook.take() {
                Some((0, due)) => Some(due),
                Some((reads, due)) => {
                    *hook = Some((reads - 1, due));
                    None
                }
                None => None,
            }
        };
        if let Some(due) = due {
            due();
        }
        self.file.read_at(buf, offset)
    }
}

/// During one read of the scan, a writer continues until the snapshot is cancelled and its chunks hold other versions.
#[test]
fn a_snapshot_that_is_cancelled_during_a_fetch_hands_out_nothing_wrong() {
    for reads in [0, 1, 5, 15, 30] {
        let hook = Arc::new(Mutex::new(None));
        let fs = HookedDisk { disk: Mem::null(), hook: hook.clone() };
        let options =
            small().lab(|lab| lab.undo_limit = Some(128 << 10)).spill_limit(16 << 20).snapshot_max_bytes(2 << 20);
        let db = options.lab(|lab| lab.fs = Some(Arc::new(fs))).open(DIR).unwrap();
        fill(&db, ROWS);
        let reader = db.read_with(ReadOptions::new().label("old"));
        scatter(&db, ROWS, -1);
        let before = chunks(&db).1;
        let writer = db.clone();
        let cancel: Hook = Box::new(move || {
            let write = || (-9..-1).for_each(|value| scatter(&writer, ROWS, value));
            std::thread::scope(|scope| scope.spawn(write).join().unwrap());
            assert_eq!(writer.stats().txn.snapshots_cancelled, 1);
        });
        *hook.lock().unwrap() = Some((reads, cancel));
        let table = reader.open(NUMBERS).unwrap();
        let mut found = Vec::new();
        let error = table.iter().find_map(|row| row.map(|row| found.push(row)).err());
        assert!(found == as_filled(found.len() as u64), "after {reads} reads");
        let read = chunks(&db).1 - before;
        assert!(matches!(error, Some(Error::SnapshotTooOld { label: "old", .. })), "{error:?} after {read} reads");
        assert!(hook.lock().unwrap().is_none());
        let young = db.read();
        assert!(rows(&young).unwrap() == (0..ROWS).map(|n| (n, -2)).collect::<Vec<_>>());
        drop((reader, young));
        db.check().unwrap();
    }
}
