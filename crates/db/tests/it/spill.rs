//! Old versions of rows that do not fit in memory are in a file: readers find them there, or get an error. So is the
//! undo of large transactions.

use crate::support::{DIR, NUMBERS, TempDir, fill, numbers, small};
use foreshore::{
    Db, Device, Error, IndexDef, Isolation, Options, ReadOptions, ReadTransaction, Result, Stats, TableDef,
    Transaction, TxnOptions,
};
use foreshore_base::Error as Storage;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Memory for undo.
const MEMORY: u64 = 128 << 10;
/// What a reader sees of so many rows is more than that.
const ROWS: u64 = 6000;

/// What the file for old versions does.
const WORKS: u8 = 0;
const IS_FULL: u8 = 1;
const CANNOT_BE_READ: u8 = 2;
const FLIPS_A_BIT: u8 = 3;
const READS_SHORT: u8 = 4;
const MIXES_UP: u8 = 5;
const HAS_A_BAD_PLACE: u8 = 6;

/// Where the file cannot be read then.
const BAD_PLACE: u64 = 20 * 8192;

/// A disk in memory whose file for old versions can be told to misbehave.
#[derive(Debug)]
struct Moody {
    disk: Mem,
    mood: Arc<AtomicU8>,
}

#[derive(Debug)]
struct MoodyFile {
    file: Arc<dyn File>,
    mood: Arc<AtomicU8>,
}

impl Moody {
    fn new() -> Self {
        Self { disk: Mem::null(), mood: Arc::default() }
    }
}

impl FsLayer for Moody {
    fn below(&self) -> &dyn Fs {
        &self.disk
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        let is_moody = file.path().ends_with("spill");
        if is_moody { Arc::new(MoodyFile { file, mood: self.mood.clone() }) } else { file }
    }
}

impl FileLayer for MoodyFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Storage> {
        match self.mood.load(Ordering::SeqCst) {
            CANNOT_BE_READ => return Err(Storage::io("read", self.path(), std::io::Error::other("told to fail"))),
            HAS_A_BAD_PLACE if (offset..offset + buf.len() as u64).contains(&BAD_PLACE) => {
                return Err(Storage::io("read", self.path(), std::io::Error::other("told to fail")));
            }
            MIXES_UP => return self.file.read_at(buf, if offset == 0 { buf.len() as u64 } else { 0 }),
            _ => {}
        }
        let read = self.file.read_at(buf, offset)?;
        match self.mood.load(Ordering::SeqCst) {
            FLIPS_A_BIT => buf[read / 2] ^= 4,
            READS_SHORT => return Ok(read / 2),
            _ => {}
        }
        Ok(read)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Storage> {
        assert!(offset + buf.len() as u64 <= 16 << 20, "no more than it may have");
        match self.mood.load(Ordering::SeqCst) {
            IS_FULL => Err(Storage::DiskFull { path: self.path().to_owned(), held_by: None }),
            _ => self.file.write_at(buf, offset),
        }
    }

    fn sync(&self) -> Result<(), Storage> {
        panic!("nothing in it is worth a sync")
    }
}

fn options() -> Options {
    small().lab(|lab| lab.undo_limit = Some(MEMORY)).spill_limit(16 << 20)
}

/// Gives each row a new value, in transactions of a hundred.
fn change_all(db: &Db, value: i64) {
    for from in (0..ROWS).step_by(100) {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (from..from + 100).try_for_each(|n| numbers.insert(n, value).map(drop))
        })
        .unwrap();
    }
}

fn rows(reader: &ReadTransaction) -> Result<Vec<(u64, i64)>> {
    reader.open(NUMBERS)?.iter().collect()
}

fn get(reader: &ReadTransaction, n: u64) -> Result<Option<i64>> {
    reader.open(NUMBERS)?.get(n)
}

/// A database in which the reader sees much more than memory has, and that file.
fn with_an_old_reader() -> (Db, ReadTransaction, Arc<AtomicU8>) {
    let fs = Moody::new();
    let mood = fs.mood.clone();
    let db = options().lab(|lab| lab.fs = Some(Arc::new(fs))).open(DIR).unwrap();
    fill(&db, ROWS);
    let reader = db.read_with(ReadOptions::new().label("old"));
    change_all(&db, -1);
    let Stats { txn, memory_use, .. } = db.stats();
    assert!(txn.undo_spilled_bytes as u64 > 2 * MEMORY && memory_use.undo <= MEMORY, "{txn:?}");
    (db, reader, mood)
}

fn sees_all(reader: &ReadTransaction) {
    let expected: Vec<(u64, i64)> = (0..ROWS).map(|n| (n, n as i64)).collect();
    assert!(rows(reader).unwrap() == expected);
    for n in (0..ROWS).rev().step_by(37) {
        assert_eq!(get(reader, n).unwrap(), Some(n as i64));
    }
}

#[test]
fn a_reader_sees_more_versions_than_memory_has() {
    let (db, reader, _) = with_an_old_reader();
    sees_all(&reader);
    let fetches = db.stats().txn.undo_fetches;
    assert!(fetches > 0);
    // Others see what they should, and come between the versions in the file.
    let younger = db.read();
    for value in 0..4 {
        change_all(&db, value);
        assert_eq!(rows(&younger).unwrap(), (0..ROWS).map(|n| (n, -1)).collect::<Vec<_>>(), "round {value}");
        sees_all(&reader);
    }
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
    drop((reader, younger));
    // No transaction needs the content of the file, so it has space for new undo.
    for value in 0..20 {
        let reader = db.read();
        change_all(&db, value + 100);
        assert_eq!(get(&reader, 7).unwrap(), Some(if value == 0 { 3 } else { value + 99 }));
    }
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
    db.check().unwrap();
}

#[test]
fn rows_that_were_removed_and_inserted_since_are_read_from_the_file() {
    let (db, reader, _) = with_an_old_reader();
    let run = |from: u64, each: fn(&foreshore::Table<'_, u64, i64>, u64) -> Result<()>| {
        for from in (from..from + ROWS).step_by(100) {
            db.run(|tx| {
                let numbers = tx.open(NUMBERS)?;
                (from..from + 100).try_for_each(|n| each(&numbers, n))
            })
            .unwrap();
        }
    };
    run(0, |numbers, n| numbers.remove(n).map(drop));
    run(ROWS, |numbers, n| numbers.insert(n, 1).map(drop));
    let between = db.read();
    run(0, |numbers, n| numbers.insert(n, 2).map(drop));
    run(ROWS, |numbers, n| numbers.insert(n, 3).map(drop));
    sees_all(&reader);
    assert_eq!(rows(&between).unwrap(), (ROWS..2 * ROWS).map(|n| (n, 1)).collect::<Vec<_>>());
    assert_eq!((get(&reader, ROWS + 5).unwrap(), get(&between, 5).unwrap()), (None, None));
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
}

#[test]
fn a_full_disk_costs_the_reader_its_snapshot_and_the_writers_nothing() {
    let fs = Moody::new();
    let mood = fs.mood.clone();
    mood.store(IS_FULL, Ordering::SeqCst);
    let db = options().lab(|lab| lab.fs = Some(Arc::new(fs))).open(DIR).unwrap();
    fill(&db, ROWS);
    let reader = db.read_with(ReadOptions::new().label("old"));
    change_all(&db, -1);
    assert!(matches!(get(&reader, 7), Err(Error::SnapshotTooOld { label: "old", .. })));
    assert_eq!(db.stats().txn.undo_spilled_bytes, 0);
    // Once there is room it is used.
    mood.store(WORKS, Ordering::SeqCst);
    let reader = db.read();
    change_all(&db, -2);
    assert!(rows(&reader).unwrap().iter().all(|&(_, value)| value == -1));
    assert!(db.stats().txn.undo_spilled_bytes > 0);
}

#[test]
fn a_file_of_its_limit_is_full() {
    let db = options().spill_limit(MEMORY).device(Device::Null).open(DIR).unwrap();
    fill(&db, ROWS);
    let reader = db.read_with(ReadOptions::new().label("old"));
    change_all(&db, -1);
    assert!(matches!(rows(&reader), Err(Error::SnapshotTooOld { label: "old", .. })));
    assert!(db.stats().txn.undo_spilled_bytes as u64 <= MEMORY);
}

#[test]
fn what_cannot_be_read_back_is_an_error_and_no_row() {
    type Check = fn(&Error) -> bool;
    let is_io = |error: &Error| matches!(error, Error::Io { .. });
    let is_damage = |error: &Error| matches!(error, Error::Corrupted { .. });
    let moods: [(u8, Check); 4] =
        [(CANNOT_BE_READ, is_io), (FLIPS_A_BIT, is_damage), (READS_SHORT, is_damage), (MIXES_UP, is_damage)];
    for (bad, is_expected) in moods {
        let (db, reader, mood) = with_an_old_reader();
        mood.store(bad, Ordering::SeqCst);
        // What memory has is read as before.
        let failed = (0..ROWS).rev().map(|n| (n, get(&reader, n))).find(|(n, found)| match found {
            Ok(found) => *found != Some(*n as i64),
            Err(_) => true,
        });
        let (_, found) = failed.expect("most of it is in the file");
        assert!(found.as_ref().is_err_and(is_expected), "{bad}: {found:?}");
        // No other transaction is affected.
        change_all(&db, 5);
        let younger = db.read();
        assert_eq!(get(&younger, 7).unwrap(), Some(5));
        change_all(&db, 6);
        let error = rows(&younger).unwrap_err();
        assert!(is_expected(&error), "{bad}: {error:?}");
        mood.store(WORKS, Ordering::SeqCst);
        let youngest = db.read();
        change_all(&db, 7);
        assert!(rows(&youngest).unwrap().iter().all(|&(_, value)| value == 6), "{bad}");
    }
}

/// The versions of a leaf, and of those behind it, are read in parallel: an error affects only what lies in the bad
/// place.
#[test]
fn one_bad_place_costs_a_scan_nothing_before_it_comes_there() {
    let fs = Moody::new();
    let mood = fs.mood.clone();
    let db = options().lab(|lab| lab.fs = Some(Arc::new(fs))).open(DIR).unwrap();
    fill(&db, ROWS);
    let [scans, gets, last] = [(); 3].map(|()| db.read());
    change_all(&db, -1);
    mood.store(HAS_A_BAD_PLACE, Ordering::SeqCst);
    let bad = (0..ROWS).find(|&n| get(&gets, n).is_err()).expect("a row in the bad place");
    let table = scans.open(NUMBERS).unwrap();
    let mut found: Vec<(u64, i64)> = Vec::new();
    let error = table.iter().find_map(|row| row.map(|row| found.push(row)).err()).expect("a bad place");
    assert!(matches!(error, Error::Io { .. }), "{error:?}");
    // All of the leaves before are there.
    assert!(found.len() as u64 <= bad && found.len() as u64 + 400 > bad, "{} of {bad}", found.len());
    assert!((0..).zip(&found).all(|(n, row)| *row == (n, n as i64)));
    mood.store(WORKS, Ordering::SeqCst);
    sees_all(&last);
}

#[test]
fn the_file_has_no_name_while_it_is_in_use() {
    let dir = TempDir::new("spill");
    let names = || std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    // Power was lost before its name had gone for good.
    std::fs::write(dir.path().join("spill"), b"left").unwrap();
    let db = options().device(Device::Buffered).open(dir.path()).unwrap();
    fill(&db, ROWS);
    let reader = db.read();
    change_all(&db, -1);
    assert!(db.stats().txn.undo_spilled_bytes > 0);
    assert!(names().iter().all(|name| name != "spill"), "{:?}", names());
    sees_all(&reader);
}

/// Writers, and readers of all ages, while memory is always short.
#[test]
fn readers_see_one_state_while_writers_change_it() {
    const ACCOUNTS: u64 = 1500;
    let db = options().device(Device::Null).open(DIR).unwrap();
    fill(&db, ACCOUNTS);
    let sum: i64 = (0..ACCOUNTS as i64).sum();
    let stop = AtomicBool::new(false);
    // None if file and memory were full: a reader that continues takes another snapshot.
    let read = |reader: &ReadTransaction| match rows(reader) {
        Err(Error::SnapshotTooOld { .. }) => None,
        rows => {
            let rows = rows.unwrap();
            assert_eq!((rows.len() as u64, rows.iter().map(|(_, value)| value).sum::<i64>()), (ACCOUNTS, sum));
            Some(rows)
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut state = thread + 1;
                while !stop.load(Ordering::Relaxed) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // Half of them among few.
                    let among = if state >> 63 == 0 { ACCOUNTS } else { 20 };
                    let (from, to) = ((state >> 33) % among, (state >> 20) % among);
                    db.run(|tx| {
                        let accounts = tx.open(NUMBERS)?;
                        let balance = accounts.get_for_update(from)?.unwrap();
                        accounts.insert(from, balance - 10)?;
                        let balance = accounts.get_for_update(to)?.unwrap();
                        accounts.insert(to, balance + 10).map(drop)
                    })
                    .unwrap();
                }
            });
        }
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let reader = db.read();
                        let first = read(&reader);
                        for n in 0..2000 {
                            let again = read(&reader);
                            assert!(again.is_none() || again == first, "a snapshot changes");
                            if again.is_none() || (n > 12 && db.stats().txn.undo_fetches > 0) {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(outcomes.iter().all(|outcome| outcome.is_ok()), "a reader has failed");
    });
    let stats = db.stats().txn;
    assert!(stats.undo_fetches > 0, "{stats:?}");
    db.check().unwrap();
}

/// Rows whose changes by one transaction take more than ten times the memory.
const MANY: u64 = 16_000;

fn roomy() -> Options {
    options().log_budget(64 << 20)
}

/// A database of so many rows, and the mood of its file.
fn with_many_rows() -> (Db, Arc<AtomicU8>, Arc<dyn Fs>) {
    let fs = Moody::new();
    let mood = fs.mood.clone();
    let fs: Arc<dyn Fs> = Arc::new(fs);
    let db = roomy().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    fill(&db, MANY);
    (db, mood, fs)
}

/// Changes each `step`-th row from `from` on.
fn change(tx: &Transaction, from: u64, step: usize, value: i64) -> Result<()> {
    let table = tx.open(NUMBERS)?;
    (from..MANY).step_by(step).try_for_each(|n| table.insert(n, value).map(drop))
}

fn all_are(db: &Db, value: impl Fn(u64) -> i64) {
    assert!(numbers(db) == (0..MANY).map(|n| (n, value(n))).collect::<Vec<_>>());
    db.check().unwrap();
}

#[test]
fn a_transaction_larger_than_memory_commits_and_rolls_back() {
    let (db, _, _) = with_many_rows();
    for round in 0..3 {
        let before = db.read();
        let tx = db.begin();
        change(&tx, 0, 1, 1000 + round).unwrap();
        // Once more, and so that what was new goes.
        change(&tx, 0, 3, 2000 + round).unwrap();
        (MANY..MANY + 500).for_each(|n| assert!(tx.open(NUMBERS).unwrap().insert(n, 1).unwrap().is_none()));
        let Stats { txn, memory_use, .. } = db.stats();
        assert!(txn.undo_spilled_bytes as u64 > 8 * MEMORY && memory_use.undo <= MEMORY, "{txn:?}");
        let during: Vec<_> = rows(&db.read()).unwrap();
        tx.rollback().unwrap();
        for seen in [during, rows(&before).unwrap(), rows(&db.read()).unwrap()] {
            assert!(seen == (0..MANY).map(|n| (n, n as i64)).collect::<Vec<_>>(), "round {round}");
        }
        all_are(&db, |n| n as i64);
    }
    let before = db.read();
    let tx = db.begin();
    change(&tx, 0, 1, 7).unwrap();
    tx.commit().unwrap();
    all_are(&db, |_| 7);
    assert!(rows(&before).unwrap() == (0..MANY).map(|n| (n, n as i64)).collect::<Vec<_>>());
    assert_eq!(db.stats().txn.snapshots_cancelled, 0);
    drop(before);
    // The file has room again for as much, and again.
    for round in 0..4 {
        let tx = db.begin();
        change(&tx, 0, 1, round).unwrap();
        tx.commit().unwrap();
    }
    all_are(&db, |_| 3);
}

#[test]
fn an_index_larger_than_memory_is_built() {
    const BY_VALUE: IndexDef<u64, i64, i64> = IndexDef::unique("by value", |_, value, keys| keys.add(value));
    const INDEXED: TableDef<'_, u64, i64> = NUMBERS.with_indexes(&[&BY_VALUE]);
    let (db, _, _) = with_many_rows();
    db.run(|tx| tx.open(INDEXED).map(drop)).unwrap();
    assert_eq!(db.read().open(NUMBERS).unwrap().by_index(BY_VALUE).unwrap().check().unwrap(), MANY);
    // And taken back, when the last row has the key of another one.
    db.run(|tx| tx.drop_index("numbers", "by value")).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.put(MANY - 1, 0)).unwrap();
    let tx = db.begin();
    let refused = tx.open(INDEXED).map(drop);
    assert!(matches!(refused, Err(Error::IndexKeyExists { .. })), "{refused:?}");
    assert!(db.stats().txn.undo_spilled_bytes as u64 > MEMORY);
    assert!(matches!(tx.commit(), Err(Error::RolledBack)));
    all_are(&db, |n| if n == MANY - 1 { 0 } else { n as i64 });
    assert_eq!(db.check().unwrap().indexes, 0);
}

#[test]
fn large_transactions_side_by_side_share_the_file() {
    let (db, _, _) = with_many_rows();
    let (stays, goes) = (db.begin(), db.begin());
    for from in (0..100).step_by(2) {
        change(&stays, from, 100, -1).unwrap();
        change(&goes, from + 1, 100, -2).unwrap();
    }
    assert!(db.stats().txn.undo_spilled_bytes as u64 > 8 * MEMORY);
    goes.rollback().unwrap();
    stays.commit().unwrap();
    all_are(&db, |n| if n % 2 == 0 { -1 } else { n as i64 });
}

#[test]
fn a_large_transaction_goes_back_to_a_savepoint_and_prepares() {
    let (db, _, _) = with_many_rows();
    for round in 0..2 {
        let tx = db.begin();
        change(&tx, 0, 2, -1).unwrap();
        let savepoint = tx.savepoint().unwrap();
        for _ in 0..3 {
            // Rows that it had, and others.
            change(&tx, 0, 100, -2).unwrap();
            change(&tx, 1, 100, -2).unwrap();
            tx.rollback_to(&savepoint).unwrap();
        }
        drop(savepoint);
        change(&tx, 1, 2, -3).unwrap();
        let spilled = db.stats().txn.undo_spilled_bytes as u64;
        assert!(spilled > 8 * MEMORY, "{spilled}");
        if round == 0 {
            tx.rollback().unwrap();
            all_are(&db, |n| n as i64);
        } else {
            tx.prepare("large").unwrap();
            db.rollback_prepared("large").unwrap();
            all_are(&db, |n| n as i64);
        }
    }
}

#[test]
fn a_transaction_larger_than_the_file_is_refused_and_rolls_back() {
    let db = roomy().spill_limit(2 * MEMORY).device(Device::Null).open(DIR).unwrap();
    fill(&db, MANY);
    let tx = db.begin();
    let refused = change(&tx, 0, 1, -1).unwrap_err();
    let max = 3 * MEMORY as usize;
    assert!(matches!(refused, Error::TransactionTooLarge { max: is } if is == max), "{refused:?}");
    drop(tx);
    all_are(&db, |n| n as i64);
}

#[test]
fn a_transaction_that_cannot_be_moved_is_told_why_and_rolls_back() {
    let (db, mood, _) = with_many_rows();
    let tx = db.begin();
    change(&tx, 0, 10, -1).unwrap();
    assert!(db.stats().txn.undo_spilled_bytes > 0, "some of it is in the file");
    mood.store(IS_FULL, Ordering::SeqCst);
    let refused = change(&tx, 1, 1, -1).unwrap_err();
    assert!(matches!(refused, Error::DiskFull { .. }), "{refused:?}");
    drop(tx);
    all_are(&db, |n| n as i64);
}

#[test]
fn what_cannot_be_read_back_is_taken_back_by_the_next_restart() {
    for bad in [CANNOT_BE_READ, FLIPS_A_BIT, READS_SHORT, MIXES_UP] {
        let (db, mood, fs) = with_many_rows();
        let tx = db.begin();
        change(&tx, 0, 1, -1).unwrap();
        mood.store(bad, Ordering::SeqCst);
        assert!(tx.rollback().is_err(), "{bad}");
        assert!(matches!(db.begin().open(NUMBERS).map(drop), Err(Error::Poisoned { .. })), "{bad}");
        drop(db);
        mood.store(WORKS, Ordering::SeqCst);
        let db = roomy().lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
        all_are(&db, |n| n as i64);
    }
}

/// The name of the file may come back with power loss, and what was in it.
#[test]
fn a_restart_does_not_care_for_the_file() {
    let sim = Sim::new(1);
    let over = |sim: &Sim| {
        roomy()
            .lab(|lab| {
                lab.background = false;
                lab.fs = Some(Arc::new(sim.clone()) as Arc<dyn Fs>);
            })
            .open(DIR)
    };
    let db = over(&sim).unwrap();
    fill(&db, MANY);
    let reader = db.read();
    db.run(|tx| change(tx, 0, 1, 5)).unwrap();
    let tx = db.begin();
    change(&tx, 0, 1, -1).unwrap();
    assert!(db.stats().txn.undo_spilled_bytes as u64 > 8 * MEMORY);
    let policies =
        [Persist::None, Persist::All, Persist::DropOne, Persist::RandomHalf, Persist::MetadataFirst, Persist::Torn];
    for (seed, policy) in policies.iter().enumerate() {
        let image = sim.crash_image(policy, seed as u64);
        let db = over(&image).unwrap_or_else(|error| panic!("{policy:?}: {error:?}"));
        all_are(&db, |_| 5);
        // And it goes on with a file of its own.
        let before = db.read();
        db.run(|tx| change(tx, 0, 1, 6)).unwrap();
        assert!(rows(&before).unwrap().iter().all(|&(_, value)| value == 5), "{policy:?}");
    }
    drop((reader, tx));
}

/// A transaction that is taken back, and one that stays, with an old reader, all larger than memory.
fn spilling(sim: &Sim) -> Result<()> {
    let db = few(sim).open(DIR)?;
    let reader = db.read();
    let tx = db.begin();
    let table = tx.open(NUMBERS)?;
    (0..FEW).try_for_each(|n| table.insert(n, -1).map(drop))?;
    drop(table);
    tx.rollback()?;
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        (0..FEW).try_for_each(|n| table.insert(n, n as i64 + 1).map(drop))
    })?;
    assert!(rows(&reader)? == (0..FEW).map(|n| (n, n as i64)).collect::<Vec<_>>());
    assert!(db.stats().txn.undo_spilled_bytes as u64 > 2 * (64 << 10));
    Ok(())
}

const FEW: u64 = 2500;

fn few(sim: &Sim) -> Options {
    roomy().lab(|lab| {
        lab.undo_limit = Some(64 << 10);
        lab.background = false;
        lab.fs = Some(Arc::new(sim.clone()) as Arc<dyn Fs>);
    })
}

#[test]
fn an_operation_that_fails_loses_nothing() {
    let disk = Sim::new(1);
    fill(&few(&disk).open(DIR).unwrap(), FEW);
    let disk = disk.crash_image(&Persist::All, 1);
    let whole = disk.fork();
    spilling(&whole).unwrap();
    let strike = |sim: Sim, what: &str| {
        let outcome = spilling(&sim);
        assert!(sim.faults_met() > 0 || outcome.is_ok(), "{what}: {outcome:?}");
        sim.clear_faults();
        if let Err(error) = &outcome {
            let is_typed = matches!(
                error,
                Error::Io { .. } | Error::DiskFull { .. } | Error::Poisoned { .. } | Error::SnapshotTooOld { .. }
            );
            assert!(is_typed, "{what}: {error:?}");
        }
        let db = few(&sim.crash_image(&Persist::None, 1)).open(DIR).unwrap();
        let found = numbers(&db);
        let is = |more: i64| found == (0..FEW).map(|n| (n, n as i64 + more)).collect::<Vec<_>>();
        assert!(is(1) || (outcome.is_err() && is(0)), "{what}: {outcome:?}");
    };
    for at in (disk.ops()..whole.ops()).step_by(7) {
        for kind in [FaultKind::Eio, FaultKind::Enospc] {
            let sim = disk.fork();
            sim.inject(Fault { at, kind, sticky: at % 2 == 0 });
            strike(sim, &format!("{kind:?} in operation {at}"));
        }
    }
    for at in (disk.reads()..whole.reads()).step_by(29) {
        let sim = disk.fork();
        // A page whose neighbours fail with it is read once more alone.
        [at, at + 1].into_iter().for_each(|at| sim.inject_read_error(at, false));
        strike(sim, &format!("read {at}"));
    }
}

/// What lies in the file takes a part of the memory, and a place.
#[test]
fn a_snapshot_ends_where_what_it_keeps_in_the_file_leaves_no_room() {
    for stays in [false, true] {
        let (db, reader, _) = with_an_old_reader();
        // The file is full, or nearly.
        let mut value = 0;
        while db.stats().txn.undo_spilled_bytes < 3 << 20 {
            value += 1;
            change_all(&db, value);
        }
        assert_eq!(get(&reader, 1).unwrap(), Some(1));
        // With a savepoint all of it stays in memory, of which it needs three quarters.
        let last = if stays { ROWS / 8 } else { ROWS };
        db.run(|tx| {
            let savepoint = if stays { Some(tx.savepoint()?) } else { None };
            let numbers = tx.open(NUMBERS)?;
            let changed = (0..last).try_for_each(|n| numbers.insert(n, -2).map(drop));
            drop(savepoint);
            changed
        })
        .unwrap_or_else(|error| panic!("{stays}: {error}, {:?}", db.stats().txn));
        assert!(matches!(get(&reader, 1), Err(Error::SnapshotTooOld { .. })), "{stays}");
    }
}

/// The content of the file takes a part of the memory, but less than a chunk of it: ending the reader would free no
/// space.
#[test]
fn a_snapshot_stays_where_what_it_keeps_in_the_file_makes_no_room() {
    let db = options().lab(|lab| lab.fs = Some(Arc::new(Moody::new()))).open(DIR).unwrap();
    fill(&db, ROWS);
    let reader = db.read();
    let kept = ROWS / 3;
    for from in (0..kept).step_by(100) {
        db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            (from..from + 100).try_for_each(|n| numbers.insert(n, -1).map(drop))
        })
        .unwrap();
    }
    // With a savepoint all of it stays in memory, out of which it drives all else, and has too little then.
    let refused = db.run(|tx| {
        let _savepoint = tx.savepoint()?;
        let numbers = tx.open(NUMBERS)?;
        (kept..ROWS).try_for_each(|n| numbers.insert(n, -2).map(drop))
    });
    assert!(matches!(refused, Err(Error::TransactionTooLarge { .. })), "{refused:?}");
    let spilled = db.stats().txn.undo_spilled_bytes as u64;
    assert!(spilled > 0 && spilled < 2 * MEMORY, "{spilled}");
    sees_all(&reader);
}

/// Locks of rows that are in the file are still only locks.
#[test]
fn a_read_committed_scan_sees_one_snapshot_though_its_own_locks_are_in_the_file() {
    const LAST: u64 = ROWS - 1;
    let db = options().lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open(DIR).unwrap();
    fill(&db, ROWS);
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
    let table = tx.open(NUMBERS).unwrap();
    let mut scan = table.iter();
    assert_eq!(scan.next().unwrap().unwrap(), (0, 0));
    db.run(|tx| tx.open(NUMBERS)?.insert(LAST, -1)).unwrap();
    assert_eq!(table.get_for_update(LAST).unwrap(), Some(-1), "what is newest");
    for n in 0..ROWS - 1 {
        assert_eq!(table.get_for_update(n).unwrap(), Some(n as i64));
    }
    assert!(db.stats().txn.undo_spilled_bytes > 0, "its locks are more than memory has");
    assert_eq!(scan.last().unwrap().unwrap(), (LAST, LAST as i64), "what was there when the scan began");
}
