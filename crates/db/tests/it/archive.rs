//! The archive of a log has no gap that is not named: log is copied to it before it is recycled, whatever fails.

use crate::restore::{ARCHIVE, BACKUP, TARGET, restore_on};
use crate::script::{Loss, Script, disk, lose_power, options, read};
use crate::support::{DIR, NUMBERS, fill, numbers, small, stride};
use foreshore::{Db, Error, RestoreRefusal, TableDef, Until};
use foreshore_io::{Fs, Mem, Sim};
use std::path::Path;
use std::sync::Arc;
use std::thread;

pub(crate) const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");

pub(crate) fn update(db: &Db, n: u64) {
    db.run(|tx| tx.open(BLOBS)?.put(n % 50, &[n as u8; 500][..])).unwrap();
    db.step();
}

pub(crate) fn lost(db: &Db) -> u64 {
    db.stats().archive.unwrap().lost_groups
}

pub(crate) fn read_blobs(db: &Db) -> Vec<(u64, Vec<u8>)> {
    let reader = db.read();
    reader.open(BLOBS).unwrap().iter().collect::<Result<_, _>>().unwrap()
}

/// Power is lost at any operation while log is archived and recycled. The archive has no gap then, and what it has is
/// durable: backup and archive restore the database of that moment.
#[test]
fn power_loss_leaves_no_gap() {
    let stride = stride(61);
    let (mut images, mut archived, mut recycled) = (0_u64, 0, 0);
    for seed in 0..2 {
        let sim = disk(seed);
        let open = |sim: &Sim| options(sim).lab(|lab| lab.step_seed = seed).archive(ARCHIVE).open(DIR);
        let db = open(&sim).unwrap();
        let mut script = Script::new(&sim, seed);
        script.run(&db, 10).unwrap();
        db.backup(BACKUP).unwrap();
        let first = sim.ops();
        script.run(&db, 150).unwrap();
        let stats = db.stats();
        archived += stats.archive.unwrap().written_files;
        recycled += stats.log.segments_recycled;
        assert_eq!(stats.archive.unwrap().lost_groups, 0);
        images += lose_power(&sim, (first, stride), |Loss { image, op, what, .. }| {
            let db = open(image).unwrap_or_else(|error| panic!("seed {seed}, {what}: {error:?}"));
            let found = script.verify(&db, *op).unwrap_or_else(|why| panic!("seed {seed}, {what}: {why}"));
            assert_eq!(lost(&db), 0, "seed {seed}, {what}");
            db.archive().unwrap_or_else(|error| panic!("seed {seed}, {what}: {error:?}"));
            let fs: Arc<dyn Fs> = Arc::new(image.clone());
            let restored = restore_on(&fs, TARGET, Until::End).run();
            restored.unwrap_or_else(|error| panic!("seed {seed}, {what}: {error:?}"));
            assert!(read(&options(image).open(TARGET).unwrap()).unwrap() == found, "seed {seed}, {what}");
        });
    }
    assert!(images > 10 && archived > 10 && recycled > 10, "{images} images, {archived} files, {recycled} recycled");
}

/// Writers with a small log budget recycle each segment many times. The archive keeps up, and has every commit.
#[test]
fn recycling_under_load_leaves_no_gap() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = || small().log_budget(256 << 10).lab(|lab| lab.fs = Some(Arc::clone(&fs)));
    let db = options().archive(ARCHIVE).open(DIR).unwrap();
    fill(&db, 100);
    db.backup(BACKUP).unwrap();
    thread::scope(|scope| {
        for writer in 0..4 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..1500 {
                    db.run(|tx| {
                        tx.open(BLOBS)?.put(writer * 100 + n % 100, &[n as u8; 700][..])?;
                        tx.open(NUMBERS)?.put(1000 + writer, n as i64)
                    })
                    .unwrap();
                }
            });
        }
    });
    let stats = db.stats();
    assert!(stats.log.segments_recycled > 20, "{} recycled", stats.log.segments_recycled);
    db.sync().unwrap();
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert!(archive.lost_groups == 0 && archive.failures == 0 && archive.files > 20, "{archive:?}");
    let (rows, blobs) = (numbers(&db), read_blobs(&db));
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    let copy = options().open(TARGET).unwrap();
    copy.check().unwrap();
    assert!(numbers(&copy) == rows && read_blobs(&copy) == blobs);
}

/// The limit drops the oldest files and names what they had. A newer backup restores, an older one does not.
#[test]
fn the_limit_drops_the_oldest_files_and_names_them() {
    let sim = disk(11);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let limited = || options(&sim).archive(ARCHIVE).archive_limit(512 << 10).open(DIR).unwrap();
    let mut db = limited();
    update(&db, 1);
    db.backup(BACKUP).unwrap();
    (0..2000).for_each(|n| update(&db, n));
    db.backup("/later").unwrap();
    (0..40).for_each(|n| update(&db, n + 3));
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert!(archive.dropped_files > 0 && archive.dropped_upto < archive.archived, "{archive:?}");
    assert!(archive.bytes <= 512 << 10 && archive.files > 1 && archive.lost_groups == 0, "{archive:?}");
    let refused = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(refused, Err(Error::Restore(RestoreRefusal::Gap { .. }))), "{refused:?}");
    foreshore::restore("/later", TARGET).archive(ARCHIVE).lab(Arc::clone(&fs), 64 << 10).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), read_blobs(&db));
    // The files of an earlier run count.
    db = db.reopen().unwrap();
    let again = db.stats().archive.unwrap();
    assert!(again.files >= archive.files && again.bytes >= archive.bytes, "{again:?}");
}

/// A run without the archive recycles log. The next one with it counts the gap.
#[test]
fn a_run_without_the_archive_leaves_a_gap_that_is_named() {
    let sim = disk(12);
    let archived = || options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    let db = archived();
    (0..100).for_each(|n| update(&db, n));
    drop(db);
    let db = options(&sim).open(DIR).unwrap();
    (0..3).for_each(|n| update(&db, n));
    drop(db);
    let db = archived();
    assert_eq!(lost(&db), 0, "the log of that run is still there");
    drop(db);
    let db = options(&sim).open(DIR).unwrap();
    (0..2000).for_each(|n| update(&db, n));
    drop(db);
    let db = archived();
    let gap = lost(&db);
    assert!(gap > 0);
    update(&db, 1);
    assert_eq!(lost(&db.reopen().unwrap()), gap, "a later start names it, too");
}

/// Two databases never write to one archive, not even if they have the same id.
#[test]
fn an_archive_in_use_is_refused() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let open = |dir: &str| small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).archive(ARCHIVE).open(dir);
    let db = open(DIR).unwrap();
    assert!(matches!(open("/other"), Err(Error::Locked { path }) if path == Path::new(ARCHIVE)));
    fill(&db, 10);
    let db = db.reopen().unwrap();
    assert_eq!(numbers(&db).len(), 10);
    drop(db);
    assert!(matches!(open("/other"), Err(Error::Foreign { .. })));
    open(DIR).unwrap();
}
