//! A start after a crash writes no page before it returns: the first checkpoint is taken in the background. Until then
//! the log stays that the pages in memory need, so that a crash at any moment loses nothing. A start that is not the
//! first one for its log writes the pages itself, so that starts that crash get on.

use crate::script::{Random, disk, lose_power, open, options};
use crate::support::{DIR, POLICIES};
use foreshore::{Db, TableDef};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const COUNT: u64 = 600;

type Rows = BTreeMap<u64, Vec<u8>>;

fn put(db: &Db, rows: &mut Rows, key: u64, value: Vec<u8>) {
    db.run(|tx| tx.open(ROWS)?.insert(key, &value[..]).map(drop)).unwrap();
    rows.insert(key, value);
}

fn read(db: &Db) -> Rows {
    let reader = db.read();
    reader.open(ROWS).unwrap().iter().map(|row| row.unwrap()).map(|(key, value)| (key, value.to_vec())).collect()
}

/// What a killed process leaves: most pages have changed since the last checkpoint, and one transaction has no end.
fn killed(seed: u64) -> (Sim, Rows) {
    killed_with(seed, COUNT)
}

fn killed_with(seed: u64, count: u64) -> (Sim, Rows) {
    let (sim, mut rows) = (disk(seed), Rows::new());
    let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    (0..count).for_each(|key| put(&db, &mut rows, key, vec![0; 900]));
    db.checkpoint().unwrap();
    (0..count).step_by(4).for_each(|key| put(&db, &mut rows, key, vec![1; 300]));
    let unended = db.begin();
    (0..count).step_by(9).for_each(|key| drop(unended.open(ROWS).unwrap().insert(key, &[9; 200][..]).unwrap()));
    db.sync().unwrap();
    (sim.kill(), rows)
}

/// Runs steps until the first checkpoint is taken.
fn finish(db: &Db) {
    for _ in 0..200 {
        if db.stats().checkpoint.checkpoints > 0 {
            return;
        }
        db.step();
    }
    panic!("no step has taken the checkpoint: {:?}", db.stats().checkpoint);
}

#[test]
fn a_start_writes_no_page_and_the_background_writes_all() {
    let (sim, rows) = killed(1);
    let db = open(&sim).unwrap();
    let (began, pages) = (db.stats(), db.stats().pool.pages_dirty);
    assert!(began.recovery.redone > 100 && began.recovery.undone > 50, "{:?}", began.recovery);
    assert_eq!((began.pool.pages_written, began.checkpoint.checkpoints), (0, 0), "{began:?}");
    assert!(pages > 50, "{pages} pages differ from their homes");
    assert_eq!(read(&db), rows);
    finish(&db);
    let stats = db.stats();
    assert!(stats.pool.pages_written >= pages, "{stats:?}");
    assert!(stats.checkpoint.redo_start > began.checkpoint.redo_start, "{stats:?}");
    // The pages are home, so the next start has nothing to redo, and its log is that of the last run.
    let db = open(&sim.kill()).unwrap();
    let recovery = db.stats().recovery;
    assert_eq!((recovery.redone, recovery.undone, recovery.was_clean), (0, 0, false), "{recovery:?}");
    assert_eq!(read(&db), rows);
    db.check().unwrap();
}

/// The superblock must not name the log of the crashed run until the last page is home, while writers add to it.
#[test]
fn a_checkpoint_that_comes_due_meanwhile_is_taken() {
    let (sim, rows) = killed_with(11, 4 * COUNT);
    let db = open(&sim).unwrap();
    let began = db.stats();
    assert!(began.pool.pages_dirty > 130, "{} pages, some batches", began.pool.pages_dirty);
    assert!(began.checkpoint.page_log_bytes > 64 << 10, "one is due: {:?}", began.checkpoint);
    finish(&db);
    assert!(db.stats().checkpoint.checkpoints > 1, "one before the last: {:?}", db.stats().checkpoint);
    assert_eq!(read(&db), rows);
}

#[test]
fn a_start_that_redid_nothing_or_closed_takes_its_checkpoint_at_once() {
    let sim = disk(2);
    let checkpoints = |db: &Db| db.stats().checkpoint.checkpoints;
    let db = open(&sim).unwrap();
    assert_eq!(checkpoints(&db), 1, "a new database");
    db.close(std::time::Duration::ZERO).unwrap();
    assert_eq!(checkpoints(&open(&sim).unwrap()), 1, "it was closed");
}

/// Power is lost at operations from the start to behind its first checkpoint, between commits, and again behind the
/// next start.
#[test]
fn power_lost_between_a_start_and_its_checkpoint_loses_no_commit() {
    let (mut in_window, mut behind) = (0, 0);
    for seed in 3..7 {
        let (sim, mut rows) = killed(seed);
        let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        let (from, mut random, mut taken) = (sim.ops(), Random(seed), None);
        let mut commits = vec![(from, rows.clone())];
        for n in 0..60 {
            put(&db, &mut rows, random.below(2 * COUNT), vec![n as u8; 100 + random.below(900) as usize]);
            commits.push((sim.ops(), rows.clone()));
            if n > 10 {
                db.step();
            }
            taken = taken.or((db.stats().checkpoint.checkpoints > 0).then(|| sim.ops()));
        }
        let taken = taken.expect("a step has taken the checkpoint");
        drop(db);
        lose_power(&sim, (from, 7), |loss| {
            let durable = commits.partition_point(|&(at, _)| at <= loss.op);
            let matches = |found: &Rows| commits[durable.saturating_sub(1)..].iter().take(2).any(|c| c.1 == *found);
            let db = open(&loss.image).unwrap_or_else(|error| panic!("{}: {error:?}", loss.what));
            let found = read(&db);
            assert!(matches(&found), "seed {seed}, {}", loss.what);
            db.check().unwrap_or_else(|error| panic!("seed {seed}, {}: {error:?}", loss.what));
            // Once more, before the second start has come to its checkpoint, if it has not taken one itself.
            (0..random.below(12)).for_each(|_| db.step());
            let policy = &POLICIES[random.below(POLICIES.len() as u64) as usize];
            let again = loss.image.crash_image(policy, loss.op);
            let db = open(&again).unwrap_or_else(|error| panic!("again, {}: {error:?}", loss.what));
            assert_eq!(read(&db), found, "seed {seed}, again, {policy:?}, {}", loss.what);
            *(if loss.op < taken { &mut in_window } else { &mut behind }) += 1;
        });
    }
    assert!(in_window > 30 && behind > 5, "{in_window} losses before the checkpoint, {behind} behind it");
}

#[test]
fn starts_that_crash_at_once_get_on_and_keep_the_log_short() {
    let (mut sim, mut rows) = killed(8);
    let (mut by_itself, mut retained, mut redone) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..40 {
        let db = open(&sim).unwrap();
        assert_eq!(read(&db), rows, "start {n}");
        put(&db, &mut rows, n, vec![n as u8; 50]);
        let stats = db.stats();
        by_itself.push(stats.checkpoint.checkpoints);
        redone.push(stats.recovery.redone);
        retained.push(stats.log_retained_bytes);
        sim = sim.kill();
    }
    assert!(by_itself.chunks(2).all(|two| two == [0, 1]), "every second one writes its pages: {by_itself:?}");
    assert!(redone[2..].iter().all(|&redone| redone < 20), "no start redoes the same again and again: {redone:?}");
    // That of the first run goes with two checkpoints.
    assert!(retained[4..].iter().all(|&bytes| bytes < 256 << 10), "{retained:?} bytes of log");
    open(&sim).unwrap().check().unwrap();
}

/// A file system that counts how often reads of the data file have gone back to the page cache.
#[derive(Debug)]
struct Counting {
    below: Sim,
    cached: Arc<AtomicU64>,
}

#[derive(Debug)]
struct CountingFile(Arc<dyn File>, Arc<AtomicU64>);

impl FsLayer for Counting {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if file.path().ends_with("data") { Arc::new(CountingFile(file, Arc::clone(&self.cached))) } else { file }
    }
}

impl FileLayer for CountingFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_cached(&self) {
        // ORDERING: Relaxed, a counter of one thread.
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.read_cached();
    }
}

/// The cache may have pages that the medium lacks, as long as those that were redone are not home.
#[test]
fn the_page_cache_is_passed_until_the_pages_of_the_start_are_home() {
    for is_repeated in [false, true] {
        let (mut sim, rows) = killed(9);
        if is_repeated {
            drop(open(&sim).unwrap());
            sim = sim.kill();
        }
        let cached = Arc::new(AtomicU64::new(0));
        let fs = Counting { below: sim.clone(), cached: Arc::clone(&cached) };
        let db = options(&sim).lab(|lab| lab.fs = Some(Arc::new(fs) as Arc<dyn Fs>)).open(DIR).unwrap();
        // ORDERING: Relaxed, as above.
        let count = || cached.load(Ordering::Relaxed);
        assert_eq!(count(), u64::from(is_repeated), "when the start ends");
        assert_eq!(read(&db), rows);
        finish(&db);
        assert_eq!(count(), 1, "when the checkpoint is taken");
        db.checkpoint().unwrap();
        assert_eq!(count(), 1, "later ones change nothing");
    }
}
