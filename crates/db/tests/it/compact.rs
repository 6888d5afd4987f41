//! Promise: a compacted file is little longer than its rows, whatever others read and write meanwhile, and the
//! compaction may be stopped between any two steps.

use crate::quarantine::{Kind, damage};
use crate::script::{self, disk};
use crate::support::{DIR, POLICIES, Snapshot, fill, numbers, small};
use foreshore::{CompactOptions, Db, Device, Error, Options, TableDef, Transaction};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_sync::pause;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const FIRST: TableDef<u64, &[u8]> = TableDef::new("first");
const PAGE: u64 = 8192;

fn in_memory() -> (Db, Arc<dyn Fs>) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    (on(&fs).open(DIR).unwrap(), fs)
}

/// Options without threads: what is freed depends on the calls of a test alone.
pub(crate) fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::clone(fs));
    })
}

fn data_pages(fs: &Arc<dyn Fs>) -> u64 {
    fs.open(&Path::new(DIR).join("data")).unwrap().len().unwrap() / PAGE
}

/// A number that is spread over all keys.
fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn put(db: &Db, table: TableDef<u64, &[u8]>, rows: impl Iterator<Item = u64>) {
    let rows: Vec<_> = rows.collect();
    for some in rows.chunks(200) {
        let value = |key: u64| [key as u8; 100];
        db.run(|tx| some.iter().try_for_each(|&key| tx.open(table)?.insert(key, &value(key)[..]).map(drop))).unwrap();
    }
}

fn remove(db: &Db, table: TableDef<u64, &[u8]>, rows: impl Iterator<Item = u64>) {
    let rows: Vec<_> = rows.collect();
    for some in rows.chunks(200) {
        db.run(|tx| some.iter().try_for_each(|&key| tx.open(table)?.remove(key).map(drop))).unwrap();
    }
}

fn rows(db: &Db, table: TableDef<u64, &[u8]>) -> BTreeMap<u64, Vec<u8>> {
    db.read().open(table).unwrap().iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_compacted_file_is_little_longer_than_its_rows() {
    let (db, fs) = in_memory();
    let all = 60_000;
    put(&db, ROWS, (0..all).map(spread));
    let long = data_pages(&fs);
    remove(&db, ROWS, (0..all).filter(|n| n % 10 > 0).map(spread));
    let before = rows(&db, ROWS);
    assert_eq!(before.len() as u64, all / 10);
    let done = db.compact().unwrap();
    let short = data_pages(&fs);
    assert!(done.is_complete && done.freed > 0 && done.moved > 0 && done.stuck + done.skipped == 0, "{done:?}");
    assert_eq!(done.truncated, (long - short) * PAGE);
    // The reserve for rollbacks, and what a multiple of 64 pages takes.
    let data = (all / 10 * 108).div_ceil(PAGE);
    assert!(short <= data * 13 / 10 + 32 + 64, "{short} pages for {data} of rows, {long} before");
    assert_eq!(rows(&db, ROWS), before);
    db.check().unwrap();
    let again = db.compact().unwrap();
    // Nodes above the leaves are merged in passing, as long as they are thin.
    assert!(again.freed <= 2 && again.moved == 0 && again.truncated == 0, "a compacted file stays as it is: {again:?}");
    db.close(Duration::ZERO).unwrap();
    let db = on(&fs).open(DIR).unwrap();
    assert_eq!((rows(&db, ROWS), data_pages(&fs)), (before, short));
    db.check().unwrap();
    put(&db, ROWS, 0..1000);
    db.check().unwrap();
}

/// Files of truncated segments are kept, because they need not be filled with zeros. Here nothing would be written
/// soon.
#[test]
fn a_compaction_removes_log_files_that_are_kept_for_later() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = on(&fs).open(DIR).unwrap();
    let log_bytes = || {
        let files = fs.list(&Path::new(DIR).join("log")).unwrap();
        let len = |name| fs.open(&Path::new(DIR).join("log").join(name)).unwrap().len().unwrap();
        files.into_iter().map(len).sum::<u64>()
    };
    put(&db, ROWS, 0..20_000);
    db.checkpoint().unwrap();
    let before = log_bytes();
    let done = db.compact().unwrap();
    // Its checkpoint has truncated more.
    let after = log_bytes();
    assert!(done.log_removed > 0 && after + done.log_removed <= before && after < before / 4, "{after}, {done:?}");
    put(&db, ROWS, 20_000..40_000);
    let retained = || db.stats().log_retained_bytes;
    assert!(retained() > 1 << 20, "{} bytes", retained());
    db.compact().unwrap();
    assert!(retained() < 64 << 10, "the older superblock retains {} bytes of log", retained());
    drop(db);
    let db = on(&fs).open(DIR).unwrap();
    assert_eq!(rows(&db, ROWS).len(), 40_000);
    db.check().unwrap();
}

/// Nothing is removed from the table at the end of the file: its pages move as they are.
#[test]
fn a_table_moves_to_where_a_dropped_one_was() {
    let (db, fs) = in_memory();
    put(&db, ROWS, 0..10);
    put(&db, FIRST, 0..30_000);
    put(&db, ROWS, (0..30_000).map(spread));
    let (long, before) = (data_pages(&fs), rows(&db, ROWS));
    assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
    db.vacuum().unwrap();
    assert!(data_pages(&fs) > long * 9 / 10, "the end of the file is in use");
    // A snapshot reads the same rows beside it.
    let read = db.read();
    let mut cursor = read.open(ROWS).unwrap().iter();
    let mut seen = Vec::new();
    let done = db
        .compact_with(CompactOptions::new(), |_| {
            seen.extend(cursor.by_ref().take(500).map(|row| row.unwrap().0));
            ControlFlow::Continue(())
        })
        .unwrap();
    seen.extend(cursor.map(|row| row.unwrap().0));
    assert!(seen.iter().eq(before.keys()), "{} of {} rows", seen.len(), before.len());
    let short = data_pages(&fs);
    assert!(done.moved > 100 && short < long * 6 / 10, "{done:?}, {short} of {long} pages");
    assert_eq!(rows(&db, ROWS), before);
    db.check().unwrap();
}

#[test]
fn a_compaction_can_be_stopped_between_steps() {
    let (db, fs) = in_memory();
    put(&db, ROWS, (0..8000).map(spread));
    remove(&db, ROWS, (0..8000).filter(|n| n % 8 > 0).map(spread));
    let before = rows(&db, ROWS);
    let (mut stops, mut last) = (0, data_pages(&fs));
    for most in (0..).step_by(3) {
        let mut steps = 0;
        let done = db
            .compact_with(CompactOptions::new(), |_| {
                steps += 1;
                if steps > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
            .unwrap();
        db.check().unwrap();
        assert_eq!(rows(&db, ROWS), before);
        assert!(data_pages(&fs) <= last, "a compaction makes the file longer");
        last = data_pages(&fs);
        if done.is_complete {
            break;
        }
        assert_eq!(steps, most + 1, "a stop comes at once");
        stops += 1;
    }
    assert!(stops > 2, "{stops} stops");
}

#[test]
fn no_row_is_lost_during_compactions() {
    const WRITERS: u64 = 3;
    let db = small().device(Device::Null).open(DIR).unwrap();
    db.run(|tx| tx.open(ROWS).map(drop)).unwrap();
    let (has_ended, compared) = (AtomicBool::new(false), AtomicU64::new(0));
    // ORDERING: hint, the others end a little later.
    let goes_on = || !has_ended.load(Ordering::Relaxed);
    let write = |me: u64| {
        let mut model = BTreeMap::new();
        for round in 0..30_u64 {
            let keys = |from: u64| (from..from + 400).map(move |n| spread(n * WRITERS + me) * WRITERS + me);
            let value = [round as u8; 90];
            for some in keys(round * 200).collect::<Vec<_>>().chunks(50) {
                db.run(|tx| some.iter().try_for_each(|&key| tx.open(ROWS)?.insert(key, &value[..]).map(drop))).unwrap();
            }
            keys(round * 200).for_each(|key| drop(model.insert(key, value.to_vec())));
            let gone: Vec<_> = keys(round * 200).filter(|key| key % 7 > 0).collect();
            for some in gone.chunks(50) {
                db.run(|tx| some.iter().try_for_each(|&key| tx.open(ROWS)?.remove(key).map(drop))).unwrap();
            }
            gone.iter().for_each(|key| drop(model.remove(key)));
        }
        model
    };
    let model: BTreeMap<_, _> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|me| scope.spawn(move || write(me))).collect();
        scope.spawn(|| {
            while goes_on() {
                let read = db.read();
                let table = read.open(ROWS).unwrap();
                let forwards: Result<Vec<_>, Error> = table.iter().collect();
                let backwards: Result<Vec<_>, Error> = table.iter().rev().collect();
                // Pages of dropped tables count for the cost of the snapshot, so it may be cancelled.
                let is_old = |rows: &Result<Vec<_>, Error>| matches!(rows, Err(Error::SnapshotTooOld { .. }));
                if is_old(&forwards) || is_old(&backwards) {
                    continue;
                }
                let (forwards, mut backwards) = (forwards.unwrap(), backwards.unwrap());
                backwards.reverse();
                assert!(forwards == backwards, "{} rows forwards, {} backwards", forwards.len(), backwards.len());
                // ORDERING: Relaxed, a counter that is read after the scope.
                compared.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while goes_on() {
                // The writers' new pages lie behind those of this table, so there are pages to move.
                put(&db, FIRST, 0..2000);
                assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
                db.compact().unwrap();
            }
        });
        scope.spawn(|| {
            while goes_on() {
                db.check().unwrap();
            }
        });
        let models: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // Before a panic of a writer goes on: the other threads would never end.
        // ORDERING: hint, as above.
        has_ended.store(true, Ordering::Relaxed);
        models.into_iter().flat_map(|model| model.unwrap()).collect()
    });
    // ORDERING: Relaxed, the scope has ended.
    assert!(compared.load(Ordering::Relaxed) > 0, "no scan was compared");
    assert_eq!(rows(&db, ROWS), model);
    assert_eq!(db.check().unwrap().rows, model.len() as u64);
    let stats = db.stats();
    assert!(stats.tree.moves > 0 && stats.tree.merges > 0 && stats.space.cuts > 0, "{stats:?}");
}

/// A drop that does not end makes a compaction return `LockTimeout`.
#[test]
fn a_lock_against_writes_does_not_stop_a_compaction_and_a_drop_does() {
    let (db, _) = in_memory();
    fill(&db, 3000);
    put(&db, ROWS, 0..3000);
    remove(&db, ROWS, (0..3000).filter(|n| n % 10 > 0));
    // On another thread: a wait for a lock of the own thread is refused.
    let by_another = |work: &(dyn Fn(&Transaction) + Sync)| {
        let begun = |db: &Db| {
            let tx = db.begin();
            work(&tx);
            tx
        };
        thread::scope(|scope| scope.spawn(|| begun(&db)).join().unwrap())
    };
    let reader = by_another(&|tx| tx.open(ROWS).unwrap().lock_against_writes().unwrap());
    let done = db.compact().unwrap();
    reader.rollback().unwrap();
    assert!(done.is_complete && done.skipped == 0 && done.freed > 10, "{done:?}");
    put(&db, ROWS, 3000..6000);
    remove(&db, ROWS, (3000..6000).filter(|n| n % 10 > 0));
    let mut dropper = None;
    let done = db.compact_with(CompactOptions::new(), |_| {
        dropper.get_or_insert_with(|| by_another(&|tx| assert!(tx.drop_table(ROWS.name()).unwrap())));
        ControlFlow::Continue(())
    });
    // The drop also locks the catalogue, which the compaction reads.
    assert!(matches!(done, Err(Error::LockTimeout { .. })), "{done:?}");
    dropper.unwrap().rollback().unwrap();
    let done = db.compact().unwrap();
    assert!(done.freed > 10 && done.skipped == 0, "{done:?}");
    assert_eq!((numbers(&db).len(), rows(&db, ROWS).len()), (3000, 600));
    db.check().unwrap();
}

/// Values at the end of the file are copied to free pages near its front, unless their rows are locked.
#[test]
fn large_values_move_to_where_others_were() {
    let (db, fs) = in_memory();
    let value = |key: u64| vec![key as u8; if key == 0 { 1910 * 8136 } else { 20_000 + 1000 * key as usize }];
    let write = |keys: std::ops::Range<u64>| {
        keys.for_each(|key| db.run(|tx| tx.open(ROWS)?.insert(key, &value(key)[..]).map(drop)).unwrap());
    };
    write(100..220);
    write(0..60);
    (100..220).for_each(|key| drop(db.run(|tx| tx.open(ROWS)?.remove(key)).unwrap()));
    let (long, before) = (data_pages(&fs), rows(&db, ROWS));
    let read = db.read();
    let locked = thread::scope(|scope| {
        let lock = || {
            let tx = db.begin();
            assert!(tx.open(ROWS).unwrap().get_for_update(30).unwrap().is_some());
            tx
        };
        scope.spawn(lock).join().unwrap()
    });
    let done = db.compact().unwrap();
    assert!(done.moved > 50 && done.stuck > 0, "{done:?}");
    locked.rollback().unwrap();
    // The snapshot reads the old pages, which stay for it.
    assert_eq!(read.open(ROWS).unwrap().iter().collect::<Result<BTreeMap<_, _>, _>>().unwrap(), before);
    db.check().unwrap();
    drop(read);
    let done = db.compact().unwrap();
    let short = data_pages(&fs);
    assert!(done.truncated > 0 && done.stuck == 0 && short < long * 9 / 10, "{done:?}, {short} of {long} pages");
    assert_eq!(rows(&db, ROWS), before);
    db.check().unwrap();
    db.close(Duration::ZERO).unwrap();
    let db = on(&fs).open(DIR).unwrap();
    assert_eq!(rows(&db, ROWS), before);
    db.check().unwrap();
}

/// A full disk may end a compaction early. No row is lost.
#[test]
fn a_full_disk_ends_a_compaction_and_nothing_else() {
    let mut met = 0;
    for full_at_step in (0..20).map(|step| step * 5) {
        let sim = disk(full_at_step);
        let db = script::open(&sim).unwrap();
        put(&db, FIRST, 0..3000);
        put(&db, ROWS, (0..3000).map(spread));
        remove(&db, ROWS, (0..3000).filter(|n| n % 4 > 0).map(spread));
        assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
        let before = rows(&db, ROWS);
        let mut steps = 0;
        let done = db.compact_with(CompactOptions::new(), |_| {
            steps += 1;
            if steps == full_at_step {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Enospc, sticky: true });
            }
            ControlFlow::Continue(())
        });
        assert!(done.is_ok() || matches!(done, Err(Error::DiskFull { .. })), "{done:?}");
        met += sim.faults_met();
        assert_eq!(rows(&db, ROWS), before);
        db.check().unwrap();
        sim.clear_faults();
        db.compact().unwrap();
        assert_eq!(rows(&db, ROWS), before);
        db.check().unwrap();
    }
    assert!(met > 0, "no compaction met the full disk");
}

/// Cuts the power at every third disk operation of a compaction with large values.
#[test]
fn power_loss_during_a_compaction_loses_nothing() {
    for seed in 1..4 {
        let sim = disk(seed);
        let open = |sim: &Sim| script::options(sim).lab(|lab| lab.step_seed = seed).open(DIR);
        let db = open(&sim).unwrap();
        put(&db, FIRST, 0..5000);
        put(&db, ROWS, (0..2500).map(spread));
        remove(&db, ROWS, (0..2500).filter(|n| n % 4 > 0).map(spread));
        let large = |key: u64| db.run(|tx| tx.open(ROWS)?.insert(key, &[7; 30_000][..]).map(drop)).unwrap();
        (1..4).for_each(large);
        assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
        let (before, from) = (rows(&db, ROWS), sim.ops());
        let done = db.compact_with(CompactOptions::new(), |_| {
            db.step();
            ControlFlow::Continue(())
        });
        let done = done.unwrap();
        assert!(done.freed > 0 && done.moved > 20 && done.truncated > 0, "{done:?}");
        assert!(db.stats().tree.chains_freed >= 3, "{:?}", db.stats().tree);
        db.close(Duration::from_secs(10)).unwrap();
        let (mut points, mut images) = (sim.crash_points(), 0);
        loop {
            let op = points.op();
            if op >= from && (op + seed).is_multiple_of(3) {
                let policy = &POLICIES[images % POLICIES.len()];
                images += 1;
                let db = open(&points.image(policy, op)).unwrap_or_else(|error| panic!("open after {op}: {error}"));
                db.check().unwrap_or_else(|error| panic!("seed {seed}, operation {op}, {policy:?}: {error}"));
                assert!(rows(&db, ROWS) == before, "seed {seed}, operation {op}, {policy:?}");
                if images % 8 == 0 {
                    assert!(db.compact().unwrap().is_complete);
                    db.check().unwrap();
                    assert!(rows(&db, ROWS) == before, "seed {seed}, operation {op}, compacted again");
                }
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 50, "{images} images");
    }
}

/// Background work that runs during the truncation of the file does not cancel it.
#[test]
fn background_work_does_not_cancel_a_truncation() {
    let (db, fs) = in_memory();
    put(&db, FIRST, 0..9000);
    put(&db, ROWS, 0..500);
    let large = |key: u64| db.run(|tx| tx.open(ROWS)?.insert(key, &[7; 30_000][..]).map(drop)).unwrap();
    (1000..1010).for_each(large);
    let before = rows(&db, ROWS);
    let long = data_pages(&fs);
    // The pages of a dropped table were held by a snapshot, so background work still looks for pages to free.
    put(&db, TableDef::new("held"), 0..10);
    let read = db.read();
    assert_eq!(read.open(ROWS).unwrap().iter().count(), before.len());
    assert!(db.run(|tx| tx.drop_table("held")).unwrap() && db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
    drop(read);
    let steps = db.clone();
    pause::set("db: the end of the file is to be cut", move || (0..100).for_each(|_| steps.step()));
    let done = db.compact();
    pause::set("nowhere", || ());
    let done = done.unwrap();
    assert!(done.is_complete && done.truncated > 0 && data_pages(&fs) < long * 6 / 10, "{done:?} of {long} pages");
    assert_eq!(rows(&db, ROWS), before);
    db.check().unwrap();
}

/// A table that is locked against writes holds a compaction up once, not for each of its large values.
#[test]
fn large_values_of_a_locked_table_are_skipped_together() {
    let (db, _) = in_memory();
    put(&db, FIRST, 0..12_000);
    let large = |key: u64| db.run(|tx| tx.open(ROWS)?.insert(key, &[7; 9000][..]).map(drop)).unwrap();
    (0..60).for_each(large);
    assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
    let reader = thread::scope(|scope| {
        let lock = || {
            let tx = db.begin();
            tx.open(ROWS).unwrap().lock_against_writes().unwrap();
            tx
        };
        scope.spawn(lock).join().unwrap()
    });
    let done = db.compact().unwrap();
    // One timeout in each of at most three rounds.
    assert!((1..=3).contains(&done.skipped) && done.stuck <= 9, "{done:?}");
    reader.rollback().unwrap();
    let done = db.compact().unwrap();
    assert!(done.skipped == 0 && done.moved >= 60 && done.truncated > 0, "{done:?}");
    db.check().unwrap();
}

/// With one damaged page a compaction succeeds or returns `Corrupted`, and shortens most files.
#[test]
fn a_damaged_page_does_not_end_a_compaction() {
    let (db, fs) = in_memory();
    put(&db, FIRST, 0..6000);
    put(&db, ROWS, 0..2000);
    fill(&db, 2000);
    let large = |key: u64| db.run(|tx| tx.open(ROWS)?.insert(key, &[7; 20_000][..]).map(drop)).unwrap();
    (5000..5004).for_each(large);
    assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
    db.close(Duration::from_secs(10)).unwrap();
    let (files, pages) = (Snapshot::of(&fs), data_pages(&fs));
    let (mut shorter, mut opened) = (0, 0);
    for page in (3..pages).step_by(3) {
        let mut damaged = files.clone();
        damage(&mut damaged, page, Kind::Flip);
        let fs = damaged.restore();
        let Ok(db) = on(&fs).open(DIR) else { continue };
        opened += 1;
        let done = db.compact();
        assert!(matches!(done, Ok(_) | Err(Error::Corrupted { .. })), "page {page}: {done:?}");
        shorter += u64::from(data_pages(&fs) + 32 < pages);
    }
    assert!(opened > 50 && shorter > opened / 2, "{shorter} of {opened} files are shorter, of {pages} pages");
}

/// A page that cannot be read ends the passes, and the free end of the file is still truncated.
#[test]
fn a_failed_pass_still_truncates_the_file() {
    let sim = disk(3);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = script::open(&sim).unwrap();
    put(&db, ROWS, 0..3000);
    put(&db, FIRST, 0..9000);
    assert!(db.run(|tx| tx.drop_table(FIRST.name())).unwrap());
    db.close(Duration::from_secs(10)).unwrap();
    let db = script::open(&sim).unwrap();
    (0..400).for_each(|_| db.step());
    let long = data_pages(&fs);
    sim.inject_read_error(sim.reads() + 4, false);
    let done = db.compact();
    assert!(matches!(done, Err(Error::Io { .. })), "{done:?}");
    assert!(data_pages(&fs) < long, "{} of {long} pages", data_pages(&fs));
    assert!(db.compact().unwrap().is_complete);
    assert_eq!(rows(&db, ROWS).len(), 3000);
    db.check().unwrap();
}
