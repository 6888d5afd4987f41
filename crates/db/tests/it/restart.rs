//! What a restart reads, redoes and undoes. It reads no page for log that is retained only for a transaction. Unended
//! transactions, however large, are undone or, on a full disk, parked.

use crate::script::{Random, disk, open, options};
use crate::support::{DIR, POLICIES, stride};
use foreshore::{Db, Error, Options, TableDef, Transaction};
use foreshore_base::Error as Storage;
use foreshore_io::sim::Persist;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
pub(crate) const FILLER: TableDef<u64, &[u8]> = TableDef::new("filler");

pub(crate) type Rows = BTreeMap<u64, Vec<u8>>;

fn put(tx: &Transaction, key: u64, value: &[u8]) {
    tx.open(ROWS).unwrap().insert(key, value).unwrap();
}

/// What a snapshot shows.
pub(crate) fn read(db: &Db) -> Rows {
    let reader = db.read();
    reader.open(ROWS).unwrap().iter().map(|row| row.unwrap()).map(|(key, value)| (key, value.to_vec())).collect()
}

/// A database with a prepared transaction of two rows. It was idle while every page was changed and checkpoints were
/// taken.
fn beside_an_idle_one(sim: &Sim) -> (Db, Rows) {
    let db = open(sim).unwrap();
    let mut rows = Rows::new();
    for key in 0..400 {
        rows.insert(key, vec![1; 1000]);
        db.run(|tx| tx.open(ROWS)?.insert(key, &rows[&key][..]).map(drop)).unwrap();
        db.step();
    }
    db.checkpoint().unwrap();
    let tx = db.begin();
    put(&tx, 7, b"prepared");
    put(&tx, 9_000, b"prepared");
    tx.prepare("idle").unwrap();
    for round in 0..4 {
        for key in (0..400).filter(|&key| key != 7) {
            rows.insert(key, vec![round; 1000]);
            db.run(|tx| tx.open(ROWS)?.insert(key, &rows[&key][..]).map(drop)).unwrap();
            db.step();
        }
    }
    (db, rows)
}

#[test]
fn log_that_is_kept_for_a_transaction_costs_no_read_of_a_page() {
    let sim = disk(1);
    let (db, mut rows) = beside_an_idle_one(&sim);
    db.checkpoint().unwrap();
    let (stats, pages) = (db.stats(), db.stats().space.used_pages);
    assert!(stats.checkpoint.redo_start > stats.checkpoint.scan_start, "{:?}", stats.checkpoint);
    assert!(stats.checkpoint.checkpoints > 5 && pages > 60, "{stats:?}");
    db.close(Duration::ZERO).unwrap();
    for _ in 0..2 {
        let db = open(&sim).unwrap();
        let stats = db.stats();
        assert!(stats.pool.pages_read < pages / 2, "{} of {pages} pages read", stats.pool.pages_read);
        assert!(stats.recovery.analysed > 2000 && stats.recovery.redone == 0, "{:?}", stats.recovery);
        assert_eq!((stats.recovery.prepared, read(&db) == rows), (1, true));
        db.close(Duration::ZERO).unwrap();
    }
    let db = open(&sim).unwrap();
    db.commit_prepared("idle").unwrap();
    rows.insert(7, b"prepared".to_vec());
    rows.insert(9_000, b"prepared".to_vec());
    assert_eq!(read(&db), rows);
    // Two checkpoints later its log is gone.
    (0..2).for_each(|_| db.checkpoint().unwrap());
    let stats = db.stats().checkpoint;
    assert_eq!(stats.scan_start, stats.redo_start);
    drop(db);
    let db = open(&sim).unwrap();
    assert_eq!((db.stats().recovery.analysed, read(&db) == rows), (0, true));
    db.check().unwrap();
}

/// Power is lost at operations behind a redo start that is not the scan start, with any policy, and a superblock slot
/// too.
#[test]
fn redo_from_behind_an_old_transaction_finds_every_change() {
    let sim = disk(2);
    let (db, rows) = beside_an_idle_one(&sim);
    let from = sim.ops();
    let mut commits = vec![(from, rows)];
    for n in 0..150_u64 {
        let mut rows = commits.last().unwrap().1.clone();
        let (key, value) = (n * 37 % 400, vec![100 + n as u8; 500 + 10 * (n as usize % 50)]);
        if key == 7 {
            continue;
        }
        db.run(|tx| tx.open(ROWS)?.insert(key, &value[..]).map(drop)).unwrap();
        rows.insert(key, value);
        commits.push((sim.ops(), rows));
        (0..2).for_each(|_| db.step());
        if n % 60 == 59 {
            db.checkpoint().unwrap();
        }
    }
    drop(db);
    let (mut points, mut images, mut redone, mut analysed) = (sim.crash_points(), 0_u64, 0, 0);
    loop {
        let op = points.op();
        if op >= from && op % 3 == 0 {
            let image = points.image(&POLICIES[images as usize % POLICIES.len()], op);
            images += 1;
            let db = open(&image).unwrap_or_else(|error| panic!("operation {op}: {error:?}"));
            let durable = commits.partition_point(|&(at, _)| at <= op);
            let found = read(&db);
            // The one in flight may have got there.
            let matches = commits[durable.saturating_sub(1)..].iter().take(2).any(|(_, rows)| *rows == found);
            assert!(matches, "operation {op}: {} rows", found.len());
            redone += db.stats().recovery.redone;
            analysed += db.stats().recovery.analysed;
            db.check().unwrap();
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 20 && redone > 100 && analysed > 1000, "{images} images, {redone} redone, {analysed} analysed");
}

/// Three concurrent large transactions, each of many stretches of log, with rollbacks to savepoints. One has no end,
/// one is being rolled back when power is lost, and one is prepared.
#[test]
fn large_transactions_without_an_end_are_taken_back_from_any_state() {
    let sim = disk(3);
    let db = open(&sim).unwrap();
    put_all(&db, (0..300).map(|n| 1_000_000 + n));
    let mut random = Random(3);
    let open_ones = [db.begin(), db.begin(), db.begin()];
    let mut expected: [Rows; 3] = Default::default();
    let key = |which: usize, n: u64| which as u64 * 100_000 + n * 3;
    for n in 0..420 {
        for (which, tx) in open_ones.iter().enumerate() {
            let value = vec![n as u8; 2000];
            put(tx, key(which, n), &value);
            expected[which].insert(key(which, n), value);
            if random.below(8) == 0 {
                let savepoint = tx.savepoint().unwrap();
                (0..random.below(12)).for_each(|extra| put(tx, key(which, 5000 + n + extra), &[9; 1200]));
                tx.rollback_to(&savepoint).unwrap();
            }
        }
        if n % 20 == 0 {
            put_all(&db, [1_000_000 + n].into_iter());
            db.step();
        }
    }
    let [endless, rolled_back, prepared] = open_ones;
    prepared.prepare("large").unwrap();
    db.sync().unwrap();
    let from = sim.ops();
    rolled_back.rollback().unwrap();
    db.sync().unwrap();
    let to = sim.ops();
    let committed: Rows = (0..300).chain((0..420).step_by(20)).map(|n| (1_000_000 + n, vec![5; 100])).collect();
    let (mut points, mut partly, mut wholly) = (sim.crash_points(), 0, 0);
    loop {
        let op = points.op();
        // The last one too, when the rollback is whole.
        if op >= from && ((op - from).is_multiple_of(((to - from) / 12).max(1)) || op == to) {
            let image = points.image(&POLICIES[(op % POLICIES.len() as u64) as usize], op);
            let undone = verify_large(&image, &committed, &expected[2], &mut random)
                .unwrap_or_else(|why| panic!("operation {op}: {why}"));
            // The one without an end is always among them.
            partly += u32::from((421..840).contains(&undone));
            wholly += u32::from(undone == 420 || undone == 840);
        }
        if !points.advance() {
            break;
        }
    }
    assert!(partly > 0 && wholly > 0, "{partly} rollbacks were cut short, {wholly} not");
    drop(endless);
}

fn put_all(db: &Db, keys: impl Iterator<Item = u64> + Clone) {
    db.run(|tx| {
        let rows = tx.open(ROWS)?;
        keys.clone().try_for_each(|key| rows.insert(key, &[5; 100][..]).map(drop))
    })
    .unwrap();
}

/// Recovers once, and once more from a loss of power in that; returns the changes that the first undo took back.
fn verify_large(image: &Sim, committed: &Rows, prepared: &Rows, random: &mut Random) -> Result<u64, String> {
    let db = open(image).map_err(|error| format!("{error:?}"))?;
    let undone = db.stats().recovery.undone;
    if read(&db) != *committed {
        return Err("a reader sees another state".to_owned());
    }
    let mut points = image.crash_points();
    for _ in 0..random.below(image.ops().max(1)) {
        points.advance();
    }
    drop(db);
    let again = points.image(&POLICIES[random.below(POLICIES.len() as u64) as usize], undone);
    let db = open(&again).map_err(|error| format!("second: {error:?}"))?;
    if read(&db) != *committed {
        return Err("a reader sees another state after the second".to_owned());
    }
    let mut expected = committed.clone();
    if random.below(2) == 0 {
        db.commit_prepared("large").map_err(|error| format!("{error:?}"))?;
        expected.extend(prepared.clone());
    } else {
        db.rollback_prepared("large").map_err(|error| format!("{error:?}"))?;
    }
    if read(&db) != expected {
        return Err("it was resolved to another state".to_owned());
    }
    db.check().map(|_| undone).map_err(|error| format!("{error}"))
}

/// So many rows that the pages which are kept back for rollbacks do not do.
const MANY: u64 = 400;

/// A file that does not grow while the flag is set.
#[derive(Debug)]
struct Full(Arc<dyn File>, Arc<AtomicBool>);

impl Full {
    fn check(&self) -> Result<(), Storage> {
        match self.1.load(Ordering::Relaxed) {
            true => Err(Storage::DiskFull { path: self.0.path().into(), held_by: None }),
            false => Ok(()),
        }
    }
}

impl FileLayer for Full {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn set_len(&self, len: u64) -> Result<(), Storage> {
        if len > self.0.len()? {
            self.check()?;
        }
        self.0.set_len(len)
    }

    fn allocate(&self, from: u64, len: u64) -> Result<(), Storage> {
        self.check()?;
        self.0.allocate(from, len)
    }
}

/// A disk that has space for the log, and none for pages while the flag is set.
#[derive(Debug)]
struct FullOfPages(Sim, Arc<AtomicBool>);

impl FsLayer for FullOfPages {
    fn below(&self) -> &dyn Fs {
        &self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path().ends_with("data") { Arc::new(Full(file, Arc::clone(&self.1))) } else { file }
    }
}

pub(crate) fn full_while(sim: &Sim, is_full: &Arc<AtomicBool>) -> Options {
    let disk = FullOfPages(sim.clone(), Arc::clone(is_full));
    options(sim).lab(|lab| lab.fs = Some(Arc::new(disk) as Arc<dyn Fs>))
}

fn full(sim: &Sim) -> Options {
    full_while(sim, &Arc::new(AtomicBool::new(true)))
}

fn open_full(sim: &Sim) -> Db {
    full(sim).open(DIR).unwrap()
}

/// Rows that the loser makes so small that others use their space.
pub(crate) fn is_shrunk(n: u64) -> bool {
    matches!(n % 10, 1 | 2 | 4 | 8)
}

/// A database without a free page, and a loser that needs some to be taken back.
pub(crate) fn without_a_page_and_with_a_loser() -> (Sim, Rows) {
    without_a_page_and_with_a_loser_and(|_, _| ())
}

/// The same after `more` has happened beside the loser.
pub(crate) fn without_a_page_and_with_a_loser_and(more: impl FnOnce(&Db, &Sim)) -> (Sim, Rows) {
    let sim = disk(4);
    let db = open(&sim).unwrap();
    let mut rows = Rows::new();
    for n in 0..MANY {
        rows.insert(10 * n, vec![n as u8; 1500]);
        db.run(|tx| tx.open(ROWS)?.insert(10 * n, &rows[&(10 * n)][..]).map(drop)).unwrap();
    }
    drop(db);
    let db = open_full(&sim);
    let refused = (0..10_000).find_map(|n| db.run(|tx| tx.open(FILLER)?.insert_new(n, &[7; 2000][..])).err());
    assert!(matches!(&refused, Some(Error::DiskFull { path, .. }) if path.ends_with("data")), "{refused:?}");
    let loser = db.begin();
    for n in 0..MANY {
        match n % 10 {
            // Its older change must not be taken back before the newer ones.
            1 => put(&loser, 10 * n, &[&[201][..], &rows[&(10 * n)][1..]].concat()),
            0 => put(&loser, 10 * n, &[202; 1500]),
            _ => {}
        }
    }
    for n in (0..MANY).filter(|&n| is_shrunk(n)) {
        put(&loser, 10 * n, &[204; 5]);
        put(&loser, 10 * n, &[205; 9]);
        put(&loser, 10 * n + 3, &[203; 5]);
    }
    // Others take the space that it has left.
    for n in (0..MANY).filter(|&n| is_shrunk(n)) {
        rows.insert(10 * n + 1, vec![77; 1400]);
        db.run(|tx| tx.open(ROWS)?.insert(10 * n + 1, &[77; 1400][..]).map(drop)).unwrap();
    }
    more(&db, &sim);
    db.sync().unwrap();
    let image = sim.crash_image(&Persist::None, 1);
    drop(loser);
    (image, rows)
}

#[test]
fn a_loser_that_finds_no_page_is_parked_and_ends_when_there_is_one() {
    let (mut image, rows) = without_a_page_and_with_a_loser();
    let mut undone = Vec::new();
    for seed in 0..3 {
        let db = open_full(&image);
        let stats = db.stats();
        assert_eq!((stats.recovery.losers, stats.recovery.parked, stats.txn.parked), (1, 1, 1), "{:?}", stats.recovery);
        undone.push(stats.recovery.undone);
        assert!(read(&db) == rows, "a reader sees what the loser found");
        // What needed no page is back and free.
        db.run(|tx| tx.open(ROWS)?.insert(0, &rows[&0][..]).map(drop)).unwrap();
        let refused: Vec<u64> = rows
            .keys()
            .copied()
            .filter(|&key| {
                let tx = db.begin();
                matches!(tx.open(ROWS).unwrap().get_for_update(key), Err(Error::RollbackParked { .. }))
            })
            .collect();
        assert!((1..=160).contains(&refused.len()), "{refused:?}");
        assert!(refused.iter().all(|key| key % 10 == 0 && is_shrunk(key / 10)), "{refused:?}");
        image = image.crash_image(&POLICIES[seed as usize], seed);
    }
    assert!(undone[0] >= 200 && undone[1..].iter().all(|&undone| undone == 0), "{undone:?}");
    // There is space: the run ends what the restart could not.
    let db = open(&image).unwrap();
    (0..5).for_each(|_| db.step());
    assert_eq!(db.stats().txn.parked, 0);
    verify_ended(&db, &rows);
    let image = image.crash_image(&Persist::None, 9);
    let db = open(&image).unwrap();
    assert_eq!(db.stats().recovery.losers, 0);
    verify_ended(&db, &rows);
}

/// Another transaction gives pages back, and power is lost at any operation of what follows.
#[test]
fn a_parked_loser_survives_power_loss_while_it_ends() {
    let (image, rows) = without_a_page_and_with_a_loser();
    let db = open_full(&image);
    assert_eq!(db.stats().txn.parked, 1);
    let from = image.ops();
    assert!(db.run(|tx| tx.drop_table(FILLER.name())).unwrap());
    let steps = (0..1000).find(|_| {
        db.step();
        db.sync().unwrap();
        db.stats().txn.parked == 0
    });
    assert!(steps.is_some(), "it is still parked");
    verify_ended(&db, &rows);
    drop(db);
    // No divisor in common with the number of the policies: each has its turn.
    let (mut points, mut images, stride) = (image.crash_points(), 0, stride(2));
    loop {
        let op = points.op();
        if op >= from && op % stride == 0 {
            let image = points.image(&POLICIES[(op % POLICIES.len() as u64) as usize], op);
            let db = open_full(&image);
            assert!(read(&db) == rows, "operation {op}");
            drop(db);
            let db = open(&image).unwrap_or_else(|error| panic!("operation {op}: {error:?}"));
            (0..5).for_each(|_| db.step());
            assert_eq!(db.stats().txn.parked, 0);
            verify_ended(&db, &rows);
            images += 1;
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 2, "{images} images");
}

pub(crate) fn verify_ended(db: &Db, rows: &Rows) {
    assert!(read(db) == *rows, "the rows are as they were before the loser");
    for (key, value) in rows {
        db.run(|tx| tx.open(ROWS)?.insert(*key, &value[..]).map(drop)).unwrap();
    }
    db.check().unwrap();
}

/// The options are those of the other tests of recovery.
#[test]
fn the_stretches_of_these_tests_are_many() {
    let sim = disk(5);
    let frames = options(&sim).open(DIR).unwrap().stats().pool.frames;
    // A stretch is a sixteenth of the pool; a large transaction above logs 420 rows of 2000 bytes.
    assert!(3 * (frames * 8192 / 16) < 420 * 2000, "{frames} frames");
}
