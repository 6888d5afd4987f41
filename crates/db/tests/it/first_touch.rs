//! The database opens before its pages are redone. Each is redone when it is first read, and the rest behind that.
//! Until then a crash loses nothing: neither what the last run has committed, nor what this one commits beside pages
//! that wait.

use crate::script::{Random, disk, lose_power, options};
use crate::support::{DIR, POLICIES};
use foreshore::{Db, DoublewriteKind, Error, Options, TableDef};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_io::Sim;
use foreshore_io::sim::Persist;
use foreshore_sync::pause;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const BETWEEN: TableDef<u64, &[u8]> = TableDef::new("between");
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
const COUNT: u64 = 600;

type Rows = BTreeMap<u64, Vec<u8>>;

/// Redo waits for reads, whatever there is to redo. The changes that wait fit in memory.
fn waiting(sim: &Sim) -> Options {
    options(sim).memory_limit(32 << 20).lab(|lab| lab.redo_waits_from = Some(0))
}

fn put(db: &Db, rows: &mut Rows, key: u64, value: Vec<u8>) {
    db.run(|tx| tx.open(ROWS)?.insert(key, &value[..]).map(drop)).unwrap();
    rows.insert(key, value);
}

fn read(db: &Db) -> Rows {
    let reader = db.read();
    reader.open(ROWS).unwrap().iter().map(|row| row.unwrap()).map(|(key, value)| (key, value.to_vec())).collect()
}

fn pending(db: &Db) -> u64 {
    db.stats().recovery.pending_pages
}

/// What a killed process leaves: all pages have changed since the last checkpoint, and some are new. One transaction
/// has no end.
fn killed(seed: u64) -> (Sim, Rows) {
    killed_with(seed, DoublewriteKind::Auto)
}

fn killed_with(seed: u64, doublewrite: DoublewriteKind) -> (Sim, Rows) {
    let (sim, mut rows) = (disk(seed), Rows::new());
    let db = options(&sim).doublewrite(doublewrite).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    (0..COUNT).for_each(|key| put(&db, &mut rows, key, vec![0; 900]));
    db.checkpoint().unwrap();
    (0..COUNT).step_by(4).for_each(|key| put(&db, &mut rows, key, vec![1; 300]));
    (COUNT..COUNT + 100).for_each(|key| put(&db, &mut rows, key, vec![2; 900]));
    let unended = db.begin();
    (0..6).for_each(|key| drop(unended.open(ROWS).unwrap().insert(key, &[9; 200][..]).unwrap()));
    db.sync().unwrap();
    (sim.kill(), rows)
}

#[test]
fn pages_wait_for_their_first_read_or_the_first_checkpoint() {
    let (sim, mut rows) = killed(1);
    let db = waiting(&sim).open(DIR).unwrap();
    let began = db.stats();
    assert!(began.recovery.pending_pages > 50 && began.recovery.pending_bytes > 10_000, "{:?}", began.recovery);
    assert_eq!((began.pool.pages_written, began.checkpoint.checkpoints), (0, 0), "{began:?}");
    assert_eq!(began.recovery.undone, 6, "of the pages that they need");
    assert_eq!(db.read().open(ROWS).unwrap().get(400).unwrap().as_deref(), Some(&rows[&400][..]));
    let after = db.stats().recovery;
    assert!(after.pending_pages < began.recovery.pending_pages && after.redone > began.recovery.redone, "{after:?}");
    put(&db, &mut rows, 222, vec![3; 100]);
    assert!(pending(&db) > 40);
    db.checkpoint().unwrap();
    let stats = db.stats();
    assert_eq!((stats.recovery.pending_pages, stats.recovery.pending_bytes), (0, 0));
    assert!(stats.checkpoint.redo_start > began.checkpoint.redo_start, "{stats:?}");
    assert!(stats.recovery.redone > 150, "{:?}", stats.recovery);
    // Nothing is left for the next start.
    let db = waiting(&sim.kill()).open(DIR).unwrap();
    assert_eq!((db.stats().recovery.redone, pending(&db)), (0, 0));
    assert_eq!(read(&db), rows);
    db.check().unwrap();
}

#[test]
fn any_end_of_the_run_redoes_what_waits_or_leaves_it_to_the_next() {
    for end in ["close", "steps", "kill", "compact", "check", "backup"] {
        let (sim, rows) = killed(2);
        let db = waiting(&sim).open(DIR).unwrap();
        assert!(pending(&db) > 50, "{end}");
        let next = match end {
            "close" => {
                db.close(Duration::ZERO).unwrap();
                let db = waiting(&sim).open(DIR).unwrap();
                assert!(db.stats().recovery.was_clean);
                db
            }
            "steps" => {
                (0..200).for_each(|_| db.step());
                assert_eq!((pending(&db), db.stats().checkpoint.checkpoints > 0), (0, true));
                db
            }
            // The next start is the second one for this log, and leaves nothing.
            "kill" => waiting(&sim.kill()).open(DIR).unwrap(),
            "compact" => {
                db.compact().unwrap();
                assert_eq!(pending(&db), 0);
                db
            }
            "check" => {
                db.check().unwrap();
                db
            }
            _ => {
                db.backup("/copy").unwrap();
                assert!(pending(&db) > 50, "a backup needs none of them");
                let copy = waiting(&sim).open("/copy").unwrap();
                assert_eq!(read(&copy), rows, "{end}");
                copy.check().unwrap();
                db
            }
        };
        assert_eq!(read(&next), rows, "{end}");
        next.check().unwrap();
        assert!(end == "backup" || pending(&next) == 0, "{end}");
    }
}

/// Power is lost at operations from the start on, while pages wait, between commits, and again behind the next start.
#[test]
fn commits_beside_pages_that_wait_survive_power_loss() {
    let (mut beside, mut behind) = (0, 0);
    for seed in 3..7 {
        let (sim, mut rows) = killed(seed);
        let db = waiting(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        let (from, mut random, mut redone) = (sim.ops(), Random(seed), None);
        let mut commits = vec![(from, rows.clone())];
        for n in 0..60 {
            put(&db, &mut rows, random.below(2 * COUNT), vec![n as u8; 100 + random.below(900) as usize]);
            commits.push((sim.ops(), rows.clone()));
            if n > 30 {
                db.step();
            }
            redone = redone.or((pending(&db) == 0).then(|| sim.ops()));
        }
        let redone = redone.expect("a step has redone all");
        drop(db);
        lose_power(&sim, (from, 7), |loss| {
            let durable = commits.partition_point(|&(at, _)| at <= loss.op);
            let matches = |found: &Rows| commits[durable.saturating_sub(1)..].iter().take(2).any(|c| c.1 == *found);
            let mut open = |sim: &Sim, what: &str| {
                let options = match random.below(3) {
                    0 => options(sim),
                    1 => waiting(sim),
                    // Not all of them fit.
                    _ => waiting(sim).memory_limit(4 << 20),
                };
                options.open(DIR).unwrap_or_else(|error| panic!("{what}: {error:?}"))
            };
            let db = open(&loss.image, &loss.what);
            let found = read(&db);
            assert!(matches(&found), "seed {seed}, {}", loss.what);
            db.check().unwrap_or_else(|error| panic!("seed {seed}, {}: {error:?}", loss.what));
            (0..loss.op % 12).for_each(|_| db.step());
            let policy = &POLICIES[loss.op as usize % POLICIES.len()];
            let db = open(&loss.image.crash_image(policy, loss.op), "again");
            assert_eq!(read(&db), found, "seed {seed}, again, {policy:?}, {}", loss.what);
            *(if loss.op < redone { &mut beside } else { &mut behind }) += 1;
        });
    }
    assert!(beside > 30 && behind > 5, "{beside} losses while pages waited, {behind} behind that");
}

/// A damaged page is found when it is read, quarantined and home at once, and listed from then on.
#[test]
fn a_damaged_page_that_waits_is_quarantined_when_it_is_read() {
    // No image restores a page.
    let (image, rows) = killed_with(8, DoublewriteKind::Off);
    let data = Path::new(DIR).join("data");
    let pages = image.contents(&data).unwrap().len() / PAGE_SIZE;
    let mut late = 0;
    for page in (5..pages).step_by(3) {
        let eager = image.fork();
        eager.flip(&data, (page * PAGE_SIZE + 200) as u64, 0x40).unwrap();
        let lazy = eager.fork();
        let Ok(eager) = options(&eager).open(DIR) else {
            assert!(waiting(&lazy).open(DIR).is_err(), "page {page}");
            continue;
        };
        let found = |db: &Db| {
            let get = |key: &u64| db.read().open(ROWS).unwrap().get(*key).map(|row| row.map(|row| row.to_vec()));
            rows.keys()
                .map(|key| get(key).map_err(|error| matches!(error, Error::Corrupted { .. })))
                .collect::<Vec<_>>()
        };
        let expected = found(&eager);
        assert!(!expected.contains(&Err(false)), "page {page}");
        let db = waiting(&lazy).open(DIR).unwrap();
        let opened = db.stats().recovery.quarantined;
        assert!(pending(&db) > 0);
        assert_eq!(found(&db), expected, "page {page}");
        let quarantined = eager.stats().recovery.quarantined;
        // The pages that no row needed.
        (0..200).for_each(|_| db.step());
        let stats = db.stats();
        assert_eq!((stats.recovery.quarantined, pending(&db)), (quarantined, 0), "page {page}");
        assert!(stats.damage.pages >= quarantined, "page {page}: {:?}", stats.damage);
        late += quarantined - opened;
        // It stays so, and the superblock lists it.
        let again = waiting(&lazy.kill()).open(DIR).unwrap();
        assert_eq!(found(&again), expected, "page {page}, again");
        assert!(again.stats().damage.pages >= quarantined, "page {page}, again");
    }
    assert!(late > 5, "{late} pages were quarantined when they were read");
}

/// The older part of the log changes one table only, the later part another one. A due checkpoint comes while the pages
/// of the first table wait, and finds only pages of the second one dirty.
#[test]
fn a_due_checkpoint_passes_no_page_that_waits() {
    let fill = |db: &Db, table: TableDef<u64, &[u8]>, keys: Range<u64>, byte: u8| {
        keys.for_each(|key| db.run(|tx| tx.open(table)?.insert(key, &[byte; 900][..]).map(drop)).unwrap());
    };
    let (sim, count) = (disk(9), 200);
    let db = options(&sim).open(DIR).unwrap();
    // Between the two is a table whose pages do not change, so that no read brings in pages of both.
    [ROWS, BETWEEN, OTHERS].into_iter().for_each(|table| fill(&db, table, 0..count, 0));
    db.checkpoint().unwrap();
    fill(&db, ROWS, 0..count, 1);
    fill(&db, OTHERS, 0..count, 1);
    db.sync().unwrap();
    let sim = sim.kill();
    let db = waiting(&sim).open(DIR).unwrap();
    fill(&db, OTHERS, 0..count, 2);
    fill(&db, OTHERS, 0..count, 3);
    assert!(pending(&db) > 20);
    let images = Rc::new(RefCell::new(Vec::new()));
    let (taken, disk) = (Rc::clone(&images), sim.clone());
    pause::set("checkpoint: the superblock is durable", move || {
        taken.borrow_mut().push(disk.crash_image(&Persist::None, 9));
    });
    (0..200).for_each(|_| db.step());
    pause::set("nowhere", || ());
    assert_eq!(pending(&db), 0);
    let images = images.take();
    let redone = images.iter().map(|image| {
        let again = options(image).open(DIR).unwrap();
        let found = read(&again);
        assert!(found.len() as u64 == count && found.values().all(|row| *row == [1; 900]), "rows are lost");
        again.check().unwrap();
        again.stats().recovery.redone
    });
    let redone: Vec<u64> = redone.collect();
    assert!(redone.len() > 1 && redone[0] > 2 * count, "the first one came while pages waited: {redone:?}");
}

/// Backups begin and end while a checkpoint redoes the pages that wait.
#[test]
fn no_lock_is_held_while_a_checkpoint_redoes_what_waits() {
    let (sim, rows) = killed(10);
    let db = waiting(&sim).open(DIR).unwrap();
    let copied = Rc::new(Cell::new(0));
    let (count, within) = (Rc::clone(&copied), db.clone());
    pause::set("checkpoint: some pages are redone", move || {
        if count.get() < 2 && pending(&within) > 0 {
            within.backup(format!("/copy{}", count.get())).unwrap();
            count.set(count.get() + 1);
        }
    });
    db.checkpoint().unwrap();
    pause::set("nowhere", || ());
    assert_eq!((copied.get(), pending(&db)), (2, 0));
    for copy in ["/copy0", "/copy1"] {
        assert_eq!(read(&waiting(&sim).open(copy).unwrap()), rows, "{copy}");
    }
}

/// Many threads read and write while others redo what waits.
#[test]
fn threads_find_every_page_redone() {
    for seed in 0..3 {
        let (sim, rows) = killed(20 + seed);
        let db = waiting(&sim).lab(|lab| lab.background = true).open(DIR).unwrap();
        thread::scope(|scope| {
            for thread in 0..3 {
                let (db, rows) = (&db, &rows);
                scope.spawn(move || {
                    let mut random = Random(seed * 7 + thread);
                    for _ in 0..400 {
                        let key = random.below(COUNT);
                        // Each thread writes its own rows.
                        if key % 3 == thread && random.below(4) == 0 {
                            db.run(|tx| tx.open(ROWS)?.insert(2 * COUNT + key, &[7; 500][..]).map(drop)).unwrap();
                        }
                        let found = db.read().open(ROWS).unwrap().get(key).unwrap();
                        assert_eq!(found.as_deref(), rows.get(&key).map(|row| &row[..]), "row {key}");
                    }
                });
            }
        });
        db.checkpoint().unwrap();
        assert_eq!(pending(&db), 0);
        db.check().unwrap();
    }
}
