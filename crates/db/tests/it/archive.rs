//! The archive of a log has no gap that is not named: log is copied to it before it is recycled, whatever fails.

use crate::restore::{ARCHIVE, BACKUP, TARGET, restore_on};
use crate::script::{Script, disk, options, read};
use crate::support::{DIR, NUMBERS, POLICIES, fill, numbers, small};
use foreshore::{Db, Error, RestoreRefusal, TableDef, Until};
use foreshore_io::{DirLock, File, FileLayer, Fs, FsLayer, Mem, Sim};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");

fn update(db: &Db, n: u64) {
    db.run(|tx| tx.open(BLOBS)?.put(n % 50, &[n as u8; 500][..])).unwrap();
    db.step();
}

fn lost(db: &Db) -> u64 {
    db.stats().archive.unwrap().lost_groups
}

/// A file system on which nothing can be written to the archive while `fails`.
#[derive(Debug, Clone)]
struct Failing {
    below: Sim,
    fails: Arc<AtomicBool>,
    kind: io::ErrorKind,
}

#[derive(Debug)]
struct FailingFile(Arc<dyn File>, Failing);

impl Failing {
    fn check(&self, op: &'static str, path: &Path) -> foreshore_base::Result<()> {
        if path.starts_with(ARCHIVE) && self.fails.load(Ordering::Relaxed) {
            return Err(foreshore_base::Error::io(op, path, self.kind.into()));
        }
        Ok(())
    }
}

impl FsLayer for Failing {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FailingFile(file, self.clone()))
    }

    fn rename(&self, from: &Path, to: &Path) -> foreshore_base::Result<()> {
        self.check("rename", to)?;
        self.below.rename(from, to)
    }

    fn lock(&self, path: &Path) -> foreshore_base::Result<Box<dyn DirLock>> {
        self.below.lock(path)
    }
}

impl FileLayer for FailingFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.1.check("write", self.0.path())?;
        self.0.write_at(buf, offset)
    }
}

fn failing(kind: io::ErrorKind) -> (Failing, Sim) {
    let sim = disk(8);
    (Failing { below: sim.clone(), fails: Arc::default(), kind }, sim)
}

fn open_failing(failing: &Failing) -> Db {
    let fs: Arc<dyn Fs> = Arc::new(failing.clone());
    options(&failing.below).archive(ARCHIVE).lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap()
}

/// Log waits for an archive that fails, up to the budget, and goes there when it works again. No writer fails.
#[test]
fn an_archive_that_fails_for_a_while_has_no_gap() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::TimedOut] {
        let (failing, sim) = failing(kind);
        let db = open_failing(&failing);
        update(&db, 0);
        db.backup(BACKUP).unwrap();
        for round in 0..4 {
            failing.fails.store(true, Ordering::Relaxed);
            let before = db.stats().log_retained_bytes;
            // Each commit is a group of 4 KiB.
            (0..45).for_each(|n| update(&db, n));
            let stats = db.stats();
            assert!(matches!(stats.archive_failure, Some(Error::DiskFull { .. } | Error::Io { .. })), "round {round}");
            let archive = stats.archive.unwrap();
            assert!(archive.failures > 0 && archive.behind_bytes > 64 << 10 && archive.lost_groups == 0, "{archive:?}");
            assert!(stats.log_retained_bytes > before, "the log is kept");
            assert!(db.archive().is_err());
            failing.fails.store(false, Ordering::Relaxed);
            (0..100).for_each(|n| update(&db, n));
            db.archive().unwrap();
            let stats = db.stats();
            assert!(stats.archive_failure.is_none() && stats.archive.unwrap().behind_bytes < 64 << 10, "{stats:?}");
        }
        update(&db, 77);
        db.archive().unwrap();
        let rows = read_blobs(&db);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        restore_on(&fs, TARGET, Until::End).run().unwrap();
        assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), rows);
    }
}

fn read_blobs(db: &Db) -> Vec<(u64, Vec<u8>)> {
    let reader = db.read();
    reader.open(BLOBS).unwrap().iter().collect::<Result<_, _>>().unwrap()
}

/// An archive that fails for longer does not stop the database, and the log stays within twice its budget. What the
/// archive lacks is counted, and no restore passes it. A later backup restores.
#[test]
fn an_archive_that_fails_for_long_has_a_gap_that_is_named() {
    let (failing, sim) = failing(io::ErrorKind::StorageFull);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let mut db = open_failing(&failing);
    (0..100).for_each(|n| update(&db, n));
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    failing.fails.store(true, Ordering::Relaxed);
    let mut most = 0;
    for n in 0..4000 {
        update(&db, n);
        most = most.max(db.stats().log_retained_bytes);
    }
    let archive = db.stats().archive.unwrap();
    assert!(archive.lost_groups > 0 && archive.lost_upto.0 >= archive.lost_groups, "{archive:?}");
    // Budget and a quarter for restarts, once the budget for the archive, and segments that are not full.
    assert!(most > 300 << 10 && most < (256 << 10) * 9 / 4 + (256 << 10), "{most} bytes of log");
    failing.fails.store(false, Ordering::Relaxed);
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    let refused = restore_on(&fs, TARGET, Until::End).run();
    assert!(matches!(refused, Err(Error::Restore(RestoreRefusal::Gap { .. }))), "{refused:?}");
    db = db.reopen().unwrap();
    assert_eq!(lost(&db), 0, "the log goes on where the archive ends");
    let again = foreshore::restore("/later", TARGET).archive(ARCHIVE).lab(Arc::clone(&fs), 64 << 10);
    db.backup("/later").unwrap();
    (0..300).for_each(|n| update(&db, n + 7));
    db.archive().unwrap();
    again.run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), read_blobs(&db));
}

/// Power is lost at any operation while log is archived and recycled. The archive has no gap then, and what it has is
/// durable: backup and archive restore the database of that moment.
#[test]
fn power_loss_leaves_no_gap() {
    let stride = std::env::var("FORESHORE_CRASH_STRIDE").map_or(61, |text| text.parse().unwrap());
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
        let mut points = sim.crash_points();
        while points.op() < first {
            assert!(points.advance());
        }
        loop {
            let op = points.op();
            if op.is_multiple_of(stride) {
                let policy = &POLICIES[(images % POLICIES.len() as u64) as usize];
                images += 1;
                let image = points.image(policy, op);
                let what = format!("seed {seed}, operation {op} of {first}.., {policy:?}");
                let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                let found = script.verify(&db, op).unwrap_or_else(|why| panic!("{what}: {why}"));
                assert_eq!(lost(&db), 0, "{what}");
                db.archive().unwrap_or_else(|error| panic!("{what}: {error:?}"));
                let fs: Arc<dyn Fs> = Arc::new(image.clone());
                let restored = restore_on(&fs, TARGET, Until::End).run();
                restored.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert!(read(&options(&image).open(TARGET).unwrap()).unwrap() == found, "{what}");
            }
            if !points.advance() {
                break;
            }
        }
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
    assert!(lost(&archived()) > 0);
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
