//! The log budget: writers are slowed down so that pages, written home by a slow disk, never need much more log than
//! that. Log for open transactions is reported separately, and no writer is slowed for it. With a target for restarts,
//! the budget follows from their measured speed.

use crate::support::DIR;
use foreshore::{Db, Durability, Options, Stats, TableDef, TxnOptions};
use foreshore_io::{Fs, Mem, Sim};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const COUNT: u64 = 20_000;
const BUDGET: u64 = 4 << 20;
const SEGMENT: u64 = 256 << 10;
const THREADS: u64 = 3;

/// A database with rows on a disk that takes some milliseconds for each sync.
fn slow() -> Db {
    let fs: Arc<dyn Fs> = Arc::new(Mem::delay(Duration::from_millis(4)));
    let options = Options::new()
        .lab(|lab| lab.fs = Some(fs))
        .memory_limit(64 << 20)
        .lab(|lab| lab.segment_bytes = SEGMENT)
        .log_budget(BUDGET);
    let db = options.open(DIR).unwrap();
    fill(&db);
    db
}

fn fill(db: &Db) {
    for first in (0..COUNT).step_by(100) {
        let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
        let rows = tx.open(ROWS).unwrap();
        (first..first + 100).for_each(|n| drop(rows.insert(n, &[0; 500][..]).unwrap()));
        tx.commit().unwrap();
    }
}

/// Updates rows all over the table until `bytes` of log are written, and looks at the counters meanwhile.
fn update(db: &Db, bytes: u64, mut look: impl FnMut(&Stats)) {
    let (end, is_done) = (db.stats().log.group_bytes + bytes, AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let is_done = &is_done;
            scope.spawn(move || {
                for n in 0_u64.. {
                    let key = (n * THREADS + thread).wrapping_mul(0x9E37_79B9_7F4A_7C15) % COUNT;
                    let tx = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
                    // Two threads may have come for one row.
                    if tx.open(ROWS).and_then(|rows| rows.insert(key, &[n as u8; 500][..]).map(drop)).is_ok() {
                        tx.commit().unwrap();
                    }
                    if is_done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        loop {
            let stats = db.stats();
            look(&stats);
            if stats.log.group_bytes >= end {
                break is_done.store(true, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
    });
}

#[test]
fn a_slow_disk_slows_writers_and_the_log_keeps_to_its_budget() {
    let db = slow();
    let (mut retained, mut pages) = (0, 0);
    update(&db, 10 * BUDGET, |stats| {
        retained = retained.max(stats.log_retained_bytes);
        pages = pages.max(stats.checkpoint.page_log_bytes);
    });
    let stats = db.stats();
    assert!(stats.log.slowed_nanos > 0, "the disk was fast enough");
    // A checkpoint may take as long as the log grows by some segments.
    assert!(retained <= 2 * BUDGET, "{retained} bytes of log");
    assert!(pages <= BUDGET, "{pages} bytes of log for pages");
    db.check().unwrap();
}

#[test]
fn log_that_an_open_transaction_keeps_is_shown_and_slows_no_one() {
    let db = slow();
    let old = db.begin();
    old.open(ROWS).unwrap().insert(COUNT, &[1; 500][..]).unwrap();
    let mut pages = 0;
    update(&db, 4 * BUDGET, |stats| pages = pages.max(stats.checkpoint.page_log_bytes));
    let stats = db.stats();
    assert!(stats.checkpoint.transaction_log_bytes > 2 * BUDGET, "{:?}", stats.checkpoint);
    assert!(stats.log_retained_bytes > 3 * BUDGET && pages <= BUDGET, "{:?}, {pages}", stats.checkpoint);
    old.rollback().unwrap();
    // Two, as the older slot counts too.
    (0..2).for_each(|_| db.checkpoint().unwrap());
    let stats = db.stats();
    assert!(stats.checkpoint.transaction_log_bytes == 0 && stats.log_retained_bytes < BUDGET, "{:?}", stats.checkpoint);
}

const TARGET: Duration = Duration::from_millis(125);
/// Log that a restart redoes in that time at 32 MiB a second, the speed that is assumed at first.
const TARGET_BUDGET: u64 = 4 << 20;
const MOST: u64 = 64 << 20;

fn with_target(sim: &Sim, target: Option<Duration>) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let options = Options::new()
        .memory_limit(128 << 20)
        .lab(|lab| (lab.fs, lab.segment_bytes) = (Some(fs), SEGMENT))
        .log_budget(MOST);
    target.map_or(options.clone(), |target| options.restart_target(target))
}

/// The budget at a speed in bytes a second.
fn budget_at(speed: u64, target: Duration) -> u64 {
    (speed * target.as_millis() as u64 / 1000).clamp(4 * SEGMENT, MOST)
}

/// Each round loads the database, and kills the process. The restart has no more log to redo than the budget allowed
/// then, and measures the speed from which the next budget follows. The test is exact about the log. It says nothing
/// about the time, which other work on the machine changes.
#[test]
fn a_restart_redoes_no_more_log_than_its_target_allows_and_measures_its_speed() {
    let mut sim = Sim::new(1);
    let (mut budget, mut speed) = (TARGET_BUDGET, 32 << 20);
    for round in 0..3 {
        let db = with_target(&sim, Some(TARGET)).open(DIR).unwrap();
        sim.stop_recording();
        if round == 0 {
            assert_eq!((db.stats().checkpoint.budget, db.stats().checkpoint.restart_speed), (budget, 0));
            fill(&db);
        }
        let (mut pages, mut redo) = (0, 0);
        update(&db, 6 * budget, |stats| {
            pages = pages.max(stats.checkpoint.page_log_bytes);
            redo = redo.max(stats.checkpoint.redo_log_bytes);
        });
        assert!(redo <= 2 * budget, "round {round}: {redo} bytes of log behind the redo start, {budget} are allowed");
        assert!(pages <= budget + SEGMENT, "round {round}: {pages} bytes of log for pages, {budget} are allowed");
        // What is appended while a checkpoint is being written comes on top. Without writers one ends within the bound.
        db.sync().unwrap();
        let since = Instant::now();
        while db.stats().checkpoint.redo_log_bytes > budget + SEGMENT {
            assert!(since.elapsed() < Duration::from_secs(60), "round {round}: {:?}", db.stats().checkpoint);
            std::thread::yield_now();
        }
        sim = sim.kill();
        drop(db);
        let db = with_target(&sim, Some(TARGET)).open(DIR).unwrap();
        let (recovery, checkpoint) = (db.stats().recovery, db.stats().checkpoint);
        // The scan passes over segments: `redo_bytes` counts them as full, and redo reads from the beginning of one.
        assert!(recovery.log_bytes <= budget + 2 * SEGMENT, "round {round}: {budget} are allowed, {recovery:?}");
        assert!(recovery.redo_bytes > budget / 4 && recovery.scanned_bytes >= recovery.log_bytes, "{recovery:?}");
        assert!(recovery.open_time >= recovery.redo_time + recovery.undo_time, "{recovery:?}");
        let found = checkpoint.restart_speed;
        assert!((speed / 2 - 1024..=speed + speed / 2).contains(&found), "{found} after {speed}: {recovery:?}");
        // Undo and the opening of tables are not in it.
        let least = recovery.redo_bytes as f64 / recovery.open_time.as_secs_f64();
        assert!(found as f64 + 2048.0 >= least.min((speed + speed / 2) as f64), "{found} B/s: {recovery:?}");
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
        drop(db);
        // The speed is stored, and the options of an open decide what follows from it.
        for (target, expected) in [
            (Some(TARGET), budget_at(found, TARGET)),
            (Some(2 * TARGET), budget_at(found, 2 * TARGET)),
            (Some(Duration::from_nanos(1)), 4 * SEGMENT),
            (None, MOST),
        ] {
            let db = with_target(&sim, target).open(DIR).unwrap();
            let checkpoint = db.stats().checkpoint;
            assert_eq!((checkpoint.restart_speed, checkpoint.budget), (found, expected), "round {round}, {target:?}");
            db.close(Duration::ZERO).unwrap();
        }
        (budget, speed) = (budget_at(found, TARGET), found);
    }
}

/// A killed process has left much more log than a new, small target allows. Writers are not slowed for it: the pages
/// of that log are written first, and then the small budget holds.
#[test]
fn a_smaller_target_slows_no_writer_before_the_old_log_is_done_with() {
    for has_threads in [false, true] {
        let sim = Sim::new(2);
        let db = with_target(&sim, None).lab(|lab| lab.background = false).open(DIR).unwrap();
        fill(&db);
        db.sync().unwrap();
        let sim = sim.kill();
        let target = Some(Duration::from_nanos(1));
        let db = with_target(&sim, target).lab(|lab| lab.background = has_threads).open(DIR).unwrap();
        let began = db.stats();
        let redone = began.recovery.redo_bytes;
        assert!(redone > 16 * SEGMENT, "{began:?}");
        let put = |n| db.run(|tx| tx.open(ROWS)?.insert(n, &[7; 100][..]).map(drop)).unwrap();
        (0..20).for_each(put);
        if !has_threads {
            assert!(began.checkpoint.budget >= 2 * redone && began.checkpoint.checkpoints == 0, "{began:?}");
            while db.stats().checkpoint.checkpoints == 0 {
                db.step();
            }
        }
        while db.stats().checkpoint.budget != 4 * SEGMENT {
            std::thread::yield_now();
        }
        (20..40).for_each(put);
        let stats = db.stats();
        assert_eq!(stats.log.slowed_nanos, 0, "threads: {has_threads}, {stats:?}");
        assert!(stats.checkpoint.page_log_bytes <= 4 * SEGMENT, "{stats:?}");
        db.check().unwrap();
    }
}
