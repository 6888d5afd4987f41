//! The database lives with an archive that fails, is damaged or is forged, and what the archive lacks is named.

use crate::archive::{lost, read_blobs, update};
use crate::restore::{ARCHIVE, BACKUP, TARGET, restore_on};
use crate::script::{disk, options};
use crate::support::{DIR, TempDir, fill, small};
use foreshore::{Db, Error, Options, RestoreRefusal, Until};
use foreshore_base::crc32c;
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{DirLock, File, FileLayer, Fs, FsLayer, Sim};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What an archive does with a file.
const WRITES: &[&str] = &["write", "rename"];

/// A file system on which some operations of the archive fail.
#[derive(Debug, Clone)]
struct Failing {
    below: Sim,
    kind: io::ErrorKind,
    /// Which fail, and how many are left to fail.
    plan: Arc<Mutex<(&'static [&'static str], u64)>>,
}

#[derive(Debug)]
struct FailingFile(Arc<dyn File>, Failing);

impl Failing {
    fn new(seed: u64, kind: io::ErrorKind) -> Self {
        Self { below: disk(seed), kind, plan: Arc::default() }
    }

    fn fail(&self, ops: &'static [&'static str], count: u64) {
        *self.plan.lock().unwrap() = (ops, count);
    }

    fn mend(&self) {
        self.fail(&[], 0);
    }

    fn options(&self) -> Options {
        let fs = self.fs();
        options(&self.below).archive(ARCHIVE).lab(|lab| lab.fs = Some(fs))
    }

    fn open(&self) -> Db {
        self.options().open(DIR).unwrap()
    }

    fn fs(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    fn check(&self, op: &'static str, path: &Path) -> foreshore_base::Result<()> {
        let mut plan = self.plan.lock().unwrap();
        if path.starts_with(ARCHIVE) && plan.0.contains(&op) && plan.1 > 0 {
            plan.1 -= 1;
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

    fn remove(&self, path: &Path) -> foreshore_base::Result<()> {
        self.check("remove", path)?;
        self.below.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> foreshore_base::Result<()> {
        self.check("sync_dir", dir)?;
        self.below.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> foreshore_base::Result<Box<dyn DirLock>> {
        self.below.lock(path)
    }
}

impl FileLayer for FailingFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        self.1.check("read", self.0.path())?;
        self.0.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.1.check("write", self.0.path())?;
        self.0.write_at(buf, offset)
    }
}

/// Damages a file.
type Damage = fn(&mut Vec<u8>);

/// The files of the archive, ascending.
fn files(fs: &dyn Fs) -> Vec<PathBuf> {
    let mut names = fs.list(Path::new(ARCHIVE)).unwrap();
    names.retain(|name| name.ends_with(".arc"));
    names.sort();
    names.into_iter().map(|name| Path::new(ARCHIVE).join(name)).collect()
}

fn change(fs: &dyn Fs, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let file = fs.open(path).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    change(&mut bytes);
    file.set_len(bytes.len() as u64).unwrap();
    file.write_at(&bytes, 0).unwrap();
}

fn assert_gap(fs: &Arc<dyn Fs>) {
    let refused = restore_on(fs, TARGET, Until::End).run();
    assert!(matches!(refused, Err(Error::Restore(RestoreRefusal::Gap { .. }))), "{refused:?}");
}

/// Restores the newest backup, which is that in `/later`, to the end.
fn assert_later_restores(failing: &Failing, db: &Db) {
    db.backup("/later").unwrap();
    (0..300).for_each(|n| update(db, n + 7));
    db.archive().unwrap();
    foreshore::restore("/later", TARGET).archive(ARCHIVE).lab(failing.fs(), 64 << 10).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(db));
}

/// Log waits for an archive that fails, up to the budget, and goes there when it works again. No writer fails.
#[test]
fn an_archive_that_fails_for_a_while_has_no_gap() {
    for kind in [io::ErrorKind::StorageFull, io::ErrorKind::TimedOut] {
        let failing = Failing::new(8, kind);
        let db = failing.open();
        update(&db, 0);
        db.backup(BACKUP).unwrap();
        for round in 0..4 {
            failing.fail(WRITES, u64::MAX);
            let before = db.stats().log_retained_bytes;
            // Each commit is a group of 4 KiB.
            (0..45).for_each(|n| update(&db, n));
            let stats = db.stats();
            assert!(matches!(stats.archive_failure, Some(Error::DiskFull { .. } | Error::Io { .. })), "round {round}");
            let archive = stats.archive.unwrap();
            assert!(archive.failures > 0 && archive.behind_bytes > 64 << 10 && archive.lost_groups == 0, "{archive:?}");
            assert!(stats.log_retained_bytes > before, "the log is kept");
            assert!(db.archive().is_err());
            failing.mend();
            (0..100).for_each(|n| update(&db, n));
            db.archive().unwrap();
            let stats = db.stats();
            assert!(stats.archive_failure.is_none() && stats.archive.unwrap().behind_bytes < 64 << 10, "{stats:?}");
        }
        update(&db, 77);
        db.archive().unwrap();
        let rows = read_blobs(&db);
        restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
        assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), rows);
    }
}

/// An archive that fails for longer does not stop the database, and the log stays within twice its budget. What the
/// archive lacks is counted, also by later starts, and no restore passes it. A later backup restores.
#[test]
fn an_archive_that_fails_for_long_has_a_gap_that_is_named() {
    let failing = Failing::new(8, io::ErrorKind::StorageFull);
    let mut db = failing.open();
    (0..100).for_each(|n| update(&db, n));
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    failing.fail(WRITES, u64::MAX);
    let mut most = 0;
    for n in 0..4000 {
        update(&db, n);
        most = most.max(db.stats().log_retained_bytes);
    }
    let archive = db.stats().archive.unwrap();
    assert!(archive.lost_groups > 0 && archive.lost_upto.0 >= archive.lost_groups, "{archive:?}");
    // Budget and a quarter for restarts, once the budget for the archive, and segments that are not full.
    assert!(most > 300 << 10 && most < (256 << 10) * 9 / 4 + (256 << 10), "{most} bytes of log");
    failing.mend();
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    let archive = db.stats().archive.unwrap();
    assert_gap(&failing.fs());
    db = db.reopen().unwrap();
    let again = db.stats().archive.unwrap();
    assert_eq!((again.lost_groups, again.lost_upto), (archive.lost_groups, archive.lost_upto));
    assert_later_restores(&failing, &db);
}

/// One error while much log waits is no failure of the archive: the attempt is repeated, and nothing is lost.
#[test]
fn one_error_of_an_archive_that_is_behind_leaves_no_gap() {
    let failing = Failing::new(9, io::ErrorKind::TimedOut);
    let db = failing.open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    let put = |n: u64| db.run(|tx| tx.open(crate::archive::BLOBS)?.put(n % 50, &[n as u8; 500][..])).unwrap();
    // No step of the archiver runs.
    (0..300).for_each(put);
    assert!(db.stats().archive.unwrap().behind_bytes > 1 << 20);
    failing.fail(WRITES, 1);
    (0..3).for_each(|_| db.checkpoint().unwrap());
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.failures, archive.lost_groups), (1, 0));
    db.archive().unwrap();
    restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(&db));
}

/// The disk of the log is full, and the archive fails. Writers go on, and the archive has a gap that is named. A full
/// disk that is mended soon leaves none.
#[test]
fn writers_on_a_full_disk_go_on_when_the_archive_fails() {
    for (seed, fails) in [(10, true), (11, false)] {
        let failing = Failing::new(seed, io::ErrorKind::TimedOut);
        let db = failing.open();
        (0..300).for_each(|n| update(&db, n));
        db.backup(BACKUP).unwrap();
        db.archive().unwrap();
        let at = failing.below.ops();
        failing.below.inject(Fault { at, kind: FaultKind::Enospc, sticky: true });
        if fails {
            failing.fail(WRITES, u64::MAX);
            (0..2000).for_each(|n| update(&db, n));
            assert!(lost(&db) > 0);
            failing.mend();
        } else {
            // Without space nothing is archived, until there is some.
            (0..40).for_each(|n| update(&db, n));
        }
        failing.below.clear_faults();
        (0..300).for_each(|n| update(&db, n));
        db.archive().unwrap();
        assert!(db.stats().archive_failure.is_none());
        if fails {
            assert_gap(&failing.fs());
            assert_later_restores(&failing, &db);
        } else {
            assert_eq!(lost(&db), 0);
            restore_on(&failing.fs(), TARGET, Until::End).run().unwrap();
        }
        db.check().unwrap();
    }
}

/// An old file that is not sound is counted and named, and the database opens. Restores that need it name it.
#[test]
fn a_damaged_old_file_does_not_stop_an_open() {
    let damages: [(&str, Damage); 4] = [
        ("a byte of the header", |bytes| bytes[40] ^= 1),
        ("cut short", |bytes| bytes.truncate(8192)),
        ("empty", Vec::clear),
        ("another version", |bytes| {
            bytes[8] = 2;
            let crc = crc32c(&bytes[..4092]);
            bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
        }),
    ];
    for (what, damage) in damages {
        let sim = disk(12);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let db = open();
        update(&db, 0);
        db.backup(BACKUP).unwrap();
        (0..300).for_each(|n| update(&db, n));
        drop(db);
        let files = files(&*fs);
        assert!(files.len() > 4);
        change(&*fs, &files[1], damage);
        let db = open();
        let stats = db.stats();
        let archive = stats.archive.unwrap();
        assert_eq!((archive.unsound_files, archive.files), (1, files.len() as u64 - 1), "{what}");
        assert!(archive.lost_groups > 0, "{what}: {archive:?}");
        let named = stats.archive_damage.unwrap().to_string();
        assert!(named.contains(files[1].to_str().unwrap()), "{what}: {named}");
        let refused = restore_on(&fs, TARGET, Until::End).run().unwrap_err().to_string();
        assert!(refused.contains(files[1].to_str().unwrap()), "{what}: {refused}");
        (0..300).for_each(|n| update(&db, n));
        db.archive().unwrap();
        assert!(db.stats().archive_failure.is_none(), "{what}");
    }
}

/// The log still has the groups of the newest file when that is found to be damaged. They are archived again.
#[test]
fn a_damaged_new_file_is_written_again() {
    let sim = disk(13);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let open = || options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    let db = open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..100).for_each(|n| update(&db, n));
    db.archive().unwrap();
    (0..5).for_each(|n| update(&db, n + 50));
    drop(db);
    let newest = files(&*fs).pop().unwrap();
    change(&*fs, &newest, |bytes| bytes[40] ^= 1);
    let db = open();
    let archive = db.stats().archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (1, 0), "{archive:?}");
    db.archive().unwrap();
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), read_blobs(&db));
    let aside = format!("{}.unsound", newest.display());
    assert!(fs.kind(Path::new(&aside)).unwrap().is_some(), "the damaged file is there");
    assert_eq!(db.reopen().unwrap().stats().archive.unwrap().unsound_files, 0);
}

/// Files that cannot be read for a while are no damage. They stay, and the archive goes on behind them once they can.
#[test]
fn files_that_cannot_be_read_for_a_while_stay() {
    let failing = Failing::new(17, io::ErrorKind::PermissionDenied);
    let fs: Arc<dyn Fs> = Arc::new(failing.below.clone());
    let db = failing.open();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..100).for_each(|n| update(&db, n));
    drop(db);
    let before = files(&*fs);
    failing.fail(&["read"], u64::MAX);
    let db = failing.open();
    let stats = db.stats();
    assert_eq!(stats.archive.unwrap().unsound_files, before.len() as u64);
    assert!(matches!(stats.archive_failure, Some(Error::Io { op: "read", .. })), "{:?}", stats.archive_failure);
    update(&db, 7);
    assert!(matches!(db.archive(), Err(Error::Io { op: "read", .. })));
    assert_eq!(files(&*fs), before);
    failing.mend();
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert_eq!((archive.unsound_files, archive.lost_groups), (0, 0), "{archive:?}");
    assert!(stats.archive_failure.is_none() && stats.archive_damage.is_none(), "{stats:?}");
    assert!(files(&*fs).starts_with(&before), "the files are there, and others behind them");
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&failing.below).open(TARGET).unwrap()), read_blobs(&db));
}

/// A file of the archive whose groups have an incarnation before that of the backup, with right checksums.
#[test]
fn an_archive_with_a_falling_incarnation_is_refused() {
    let sim = disk(14);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let mut db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    update(&db, 0);
    db = db.reopen().unwrap();
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    update(&db, 1);
    db.archive().unwrap();
    let newest = files(&*fs).pop().unwrap();
    change(&*fs, &newest, |bytes| {
        let (mut at, mut last) = (4096, None);
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at + 60..at + 64].try_into().unwrap()) as usize;
            bytes[at + 12..at + 16].fill(0);
            if let Some(before) = last {
                bytes[at + 64..at + 68].copy_from_slice(&u32::to_le_bytes(before));
            }
            let crc = crc32c(&bytes[at..at + 92]);
            bytes[at + 92..at + 96].copy_from_slice(&crc.to_le_bytes());
            last = Some(crc);
            at += len;
        }
        bytes[76..80].copy_from_slice(&last.unwrap().to_le_bytes());
        let crc = crc32c(&bytes[..4092]);
        bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    });
    for refused in [restore_on(&fs, TARGET, Until::End).run(), restore_on(&fs, TARGET, Until::End).verify()] {
        assert!(matches!(&refused, Err(Error::Corrupted { file, .. }) if *file == newest), "{refused:?}");
    }
}

/// A close archives the end of the log, also when transactions are left.
#[test]
fn a_close_with_open_transactions_archives_the_end() {
    let sim = disk(15);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = options(&sim).archive(ARCHIVE).open(DIR).unwrap();
    update(&db, 0);
    db.backup(BACKUP).unwrap();
    (0..10).for_each(|n| update(&db, n));
    let rows = read_blobs(&db);
    let tx = db.begin();
    tx.open(crate::archive::BLOBS).unwrap().put(1, &[9; 10][..]).unwrap();
    db.close(Duration::from_millis(1)).unwrap();
    drop(tx);
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&sim).open(TARGET).unwrap()), rows);
}

/// Old files that cannot be removed, or were removed by hand, do not stop the archive.
#[test]
fn files_that_the_limit_cannot_drop_do_not_stop_the_archive() {
    let failing = Failing::new(16, io::ErrorKind::PermissionDenied);
    let db = failing.options().archive_limit(512 << 10).open(DIR).unwrap();
    failing.fail(&["remove"], u64::MAX);
    (0..400).for_each(|n| update(&db, n));
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert!(archive.bytes > 512 << 10 && archive.dropped_files == 0 && archive.failures == 0, "{archive:?}");
    assert!(archive.lost_groups == 0 && archive.behind_bytes < 64 << 10, "{archive:?}");
    assert!(matches!(stats.archive_failure, Some(Error::Io { op: "remove", .. })), "{:?}", stats.archive_failure);
    failing.mend();
    failing.below.remove(&files(&failing.below)[0]).unwrap();
    update(&db, 1);
    db.archive().unwrap();
    let stats = db.stats();
    let archive = stats.archive.unwrap();
    assert!(archive.bytes <= 512 << 10 && archive.dropped_files > 1 && stats.archive_failure.is_none(), "{stats:?}");
    assert_eq!(files(&failing.below).len() as u64, archive.files);
}

#[test]
fn a_link_in_an_archive_is_not_of_another_database() {
    let dir = TempDir::new("archive-link");
    let (data, archive) = (dir.path().join("db"), dir.path().join("archive"));
    let open = || small().archive(&archive).open(&data).unwrap();
    let db = open();
    fill(&db, 10);
    db.archive().unwrap();
    db.close(Duration::from_secs(20)).unwrap();
    let link = archive.join("09999999999999999999.arc");
    std::os::unix::fs::symlink("elsewhere", &link).unwrap();
    let db = open();
    let stats = db.stats();
    assert_eq!(stats.archive.unwrap().unsound_files, 1);
    let damage = stats.archive_damage.expect("the link");
    assert!(matches!(&damage, Error::Corrupted { .. }) && damage.to_string().contains("symbolic link"), "{damage}");
    assert!(!link.is_symlink(), "it was put aside");
    fill(&db, 20);
    db.archive().unwrap();
}

/// A start finds a file whose name is in memory only, as the sync of its directory had failed. It gives up the log of
/// that file only when the name is durable.
#[test]
fn a_start_syncs_the_names_that_it_finds() {
    let failing = Failing::new(17, io::ErrorKind::TimedOut);
    let db = failing.open();
    (0..100).for_each(|n| update(&db, n));
    db.backup(BACKUP).unwrap();
    db.archive().unwrap();
    failing.fail(&["sync_dir"], u64::MAX);
    (0..45).for_each(|n| update(&db, n));
    assert!(db.archive().is_err());
    drop(db);
    failing.mend();
    let named = files(&failing.below);
    let db = failing.open();
    let rows = read_blobs(&db);
    let image = failing.below.crash_image(&Persist::None, 0);
    let fs: Arc<dyn Fs> = Arc::new(image.clone());
    assert_eq!(files(&*fs), named);
    let db = options(&image).archive(ARCHIVE).open(DIR).unwrap();
    assert_eq!(lost(&db), 0);
    db.archive().unwrap();
    restore_on(&fs, TARGET, Until::End).run().unwrap();
    assert_eq!(read_blobs(&options(&image).open(TARGET).unwrap()), rows);
}
