//! A repair makes each damaged page what it was, from a backup and the log since, or refuses it by name.
//!
//! `FORESHORE_CRASH_STRIDE=1` loses power at each operation of a repair.

use crate::script::{disk, lose_power};
use crate::support::{DIR, NUMBERS, fill, small, stride};
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{
    Db, Error, Options, PageId, Repair, RepairRefusal, RepairSource, Repaired, TableDef, Transaction, repair,
};
use foreshore_base::Lsn;
use foreshore_buffer::PageType;
use foreshore_buffer::format::{page_lsn, page_type, verify_page};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Kind, Mem};
use foreshore_space::SuperBlock;
use foreshore_wal::{HistoryEvent, Log, RestoreSource};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const ARCHIVE: &str = "/archive";
const BACKUP: &str = "/backup";
const DIRS: [&str; 5] = [DIR, "/db/log", BACKUP, "/backup/log", ARCHIVE];
const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
const DROPPED: TableDef<u64, i64> = TableDef::new("dropped");
const LOADED: TableDef<u64, i64> = TableDef::new("loaded");

type Rows = (BTreeMap<u64, i64>, BTreeMap<u64, i64>, BTreeMap<u64, Vec<u8>>);

/// A kind of damage of a page.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Zeros,
    Flip,
    /// An older state, with a right checksum.
    Older,
}

fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lock_timeout(Duration::ZERO).archive(ARCHIVE).lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::clone(fs));
    })
}

fn repair_on(fs: &Arc<dyn Fs>) -> Repair {
    repair(DIR, BACKUP).archive(ARCHIVE).lab(Arc::clone(fs), 64 << 10)
}

fn rows(db: &Db) -> Rows {
    let reader = db.read();
    let all = |def| reader.open(def).unwrap().iter().collect::<Result<_, _>>().unwrap();
    (all(NUMBERS), all(LOADED), reader.open(BLOBS).unwrap().iter().collect::<Result<_, _>>().unwrap())
}

fn blob(n: u64, round: u64) -> Vec<u8> {
    vec![(n * 7 + round) as u8; 12_000 + n as usize]
}

fn set(tx: &Transaction, keys: impl Iterator<Item = u64>, value: i64) {
    let numbers = tx.open(NUMBERS).unwrap();
    for key in keys {
        numbers.insert(key, value).unwrap();
    }
}

/// Inserts with splits, updates, deletes, large values, a load and a rollback.
fn work(db: &Db, round: u64) {
    db.run(|tx| {
        let numbers = tx.open(NUMBERS)?;
        (0..900).try_for_each(|n| numbers.insert(10_000 * round + 3 * n, n as i64).map(drop))?;
        (0..1500).step_by(5).try_for_each(|n| numbers.insert(n, -(round as i64)).map(drop))?;
        (0..1500).skip(round as usize).step_by(11).try_for_each(|n| numbers.remove(n).map(drop))?;
        let blobs = tx.open(BLOBS)?;
        (round..round + 12).try_for_each(|n| blobs.insert(n, &blob(n, round)[..]).map(drop))?;
        tx.open(LOADED)?.load((0..700).map(|n| (1000 * round + n, n as i64))).map(drop)
    })
    .unwrap();
    let tx = db.begin();
    set(&tx, (0..300).map(|n| 7 * n), -77);
    tx.rollback().unwrap();
    (0..300).for_each(|_| db.step());
}

/// A database with a backup, and much work since. It was closed, or killed with log behind its last checkpoint and a
/// running transaction. Returns the pages of a moment between, too.
fn history(is_closed: bool) -> (Arc<dyn Fs>, Vec<u8>) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 1500);
    db.run(|tx| {
        (0..6).try_for_each(|n| tx.open(BLOBS)?.insert(n, &blob(n, 99)[..]).map(drop))?;
        (0..500).try_for_each(|n| tx.open(DROPPED)?.insert(n, 1).map(drop))
    })
    .unwrap();
    db.backup(BACKUP).unwrap();
    work(&db, 1);
    db.run(|tx| tx.drop_table("dropped")).unwrap();
    db.checkpoint().unwrap();
    let older = read(&fs, "/db/data");
    work(&db, 2);
    // The log before is cut: only the archive has it.
    db.archive().unwrap();
    (0..3).for_each(|_| db.checkpoint().unwrap());
    work(&db, 3);
    if is_closed {
        db.close(Duration::ZERO).unwrap();
        return (copied(&fs), older);
    }
    let tx = db.begin();
    set(&tx, 0..200, -3);
    std::mem::forget(tx);
    db.sync().unwrap();
    (copied(&fs), older)
}

/// Copies the files of database, backup and archive, as a kill would leave them.
fn copied(from: &Arc<dyn Fs>) -> Arc<dyn Fs> {
    let to: Arc<dyn Fs> = Arc::new(Mem::null());
    copy(from, &to, &DIRS);
    to
}

fn copy(from: &Arc<dyn Fs>, to: &Arc<dyn Fs>, dirs: &[&str]) {
    for dir in dirs.iter().map(Path::new) {
        if from.kind(dir).unwrap().is_none() {
            continue;
        }
        to.create_dir(dir).unwrap();
        for path in from.list(dir).unwrap().iter().map(|name| dir.join(name)) {
            if from.kind(&path).unwrap() == Some(Kind::File) {
                to.create(&path).unwrap().write_at(&read(from, &path), 0).unwrap();
            }
        }
    }
}

fn read(fs: &Arc<dyn Fs>, path: impl AsRef<Path>) -> Vec<u8> {
    let file = fs.open(path.as_ref()).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn all_files(fs: &Arc<dyn Fs>) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for dir in [DIR, "/db/log"].map(Path::new) {
        let paths = fs.list(dir).unwrap().into_iter().map(|name| dir.join(name));
        files.extend(
            paths.filter(|path| fs.kind(path).unwrap() == Some(Kind::File)).map(|path| (path.clone(), read(fs, path))),
        );
    }
    files
}

/// Damages a page, and leaves no image of it in the doublewrite file. Returns false if it is in that state already.
fn harm(fs: &Arc<dyn Fs>, pid: PageId, how: Harm, older: &[u8]) -> bool {
    let (data, at) = (fs.open(Path::new("/db/data")).unwrap(), pid.offset() as usize);
    let mut page = vec![0; PAGE_SIZE];
    data.read_at(&mut page, pid.offset()).unwrap();
    let before = page.clone();
    match how {
        Harm::Zeros => page.fill(0),
        Harm::Flip => page[4000] ^= 4,
        Harm::Older => match older.get(at..at + PAGE_SIZE) {
            Some(old) if verify_page(old, pid, Lsn(u64::MAX)).is_ok() && page_lsn(old) < page_lsn(&page) => {
                page.copy_from_slice(old);
            }
            _ => return false,
        },
    }
    data.write_at(&page, pid.offset()).unwrap();
    blank_images(fs);
    page != before
}

fn blank_images(fs: &Arc<dyn Fs>) {
    let images = fs.open(Path::new("/db/dw")).unwrap();
    let len = images.len().unwrap() as usize - BLOCK;
    images.write_at(&vec![0; len], BLOCK as u64).unwrap();
}

/// Returns the pages that were written once, without the superblocks.
fn pages(fs: &Arc<dyn Fs>) -> Vec<PageId> {
    let data = read(fs, "/db/data");
    let is_used = |pid: &PageId| data[pid.offset() as usize..][..PAGE_SIZE].iter().any(|&byte| byte != 0);
    (2..data.len() as u64 / PAGE_SIZE as u64).map(PageId).filter(is_used).collect()
}

fn repaired_pages(repaired: &Repaired) -> Vec<PageId> {
    repaired.repaired.iter().map(|page| page.page).collect()
}

/// Opens the database, and checks its rows and all of its pages.
fn is_whole(fs: &Arc<dyn Fs>, expected: &Rows, is_closed: bool, what: &str) {
    // A repair changes no superblock.
    assert_eq!(on(fs).open_read_only(DIR).is_ok(), is_closed, "{what}");
    let db = on(fs).open(DIR).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(rows(&db) == *expected, "{what}: other rows");
    db.check().unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(db.stats().damage.pages, 0, "{what}");
}

/// Damages each page in turn, in each way, and repairs it. Returns how many were repaired from the backup and from the
/// log alone.
fn each_page_in_turn(is_closed: bool) -> [usize; 2] {
    let (fs, older) = history(is_closed);
    let sound = copied(&fs);
    let expected = rows(&on(&sound).open(DIR).unwrap());
    let mut counts = [0; 2];
    for pid in pages(&fs) {
        for how in [Harm::Zeros, Harm::Flip, Harm::Older] {
            let (damaged, what) = (copied(&fs), format!("page {pid}, {how:?}"));
            if !harm(&damaged, pid, how, &older) {
                continue;
            }
            let planned = repair_on(&damaged).dry_run().unwrap();
            let repaired = repair_on(&damaged).run().unwrap();
            assert_eq!(planned, repaired, "{what}");
            assert!(repaired.unrepaired.is_empty(), "{what}: {repaired:?}");
            for page in &repaired.repaired {
                assert_eq!(page.page, pid, "{what}");
                counts[usize::from(page.source == RepairSource::Log)] += 1;
            }
            let again = repair_on(&damaged).run().unwrap();
            assert!(again.repaired.is_empty() && again.unrepaired.is_empty(), "{what}: {again:?}");
            is_whole(&damaged, &expected, is_closed, &what);
        }
    }
    counts
}

#[test]
fn each_page_of_a_closed_database_is_repaired() {
    let [from_backup, from_log] = each_page_in_turn(true);
    assert!(from_backup > 30 && from_log > 60, "{from_backup} and {from_log}");
}

#[test]
fn each_page_of_a_killed_database_is_repaired_and_its_start_goes_on() {
    let [from_backup, from_log] = each_page_in_turn(false);
    // Those that the restart would make anew are repaired, too: it could hide other damage of them.
    assert!(from_backup > 40 && from_log > 120, "{from_backup} and {from_log}");
}

#[test]
fn a_database_of_which_all_pages_are_lost_is_repaired() {
    for is_closed in [true, false] {
        let (fs, _) = history(is_closed);
        let expected = rows(&on(&copied(&fs)).open(DIR).unwrap());
        for pid in pages(&fs) {
            harm(&fs, pid, Harm::Zeros, &[]);
        }
        let repaired = repair_on(&fs).run().unwrap();
        assert!(repaired.unrepaired.is_empty() && repaired.repaired.len() > 30, "{repaired:?}");
        is_whole(&fs, &expected, is_closed, "all pages");
    }
}

#[test]
fn without_damage_nothing_is_written() {
    for is_closed in [true, false] {
        let (fs, older) = history(is_closed);
        let before = all_files(&fs);
        let repaired = repair_on(&fs).run().unwrap();
        assert!(repaired.repaired.is_empty() && repaired.unrepaired.is_empty() && repaired.pages > 30, "{repaired:?}");
        assert!(before == all_files(&fs));
        // A dry run does not write, either.
        assert!(harm(&fs, PageId(3), Harm::Flip, &older));
        let before = all_files(&fs);
        assert_eq!(repaired_pages(&repair_on(&fs).dry_run().unwrap()), [PageId(3)]);
        assert!(before == all_files(&fs));
    }
}

/// No page is certain behind a gap, not even one that a record initialises: a later change of it may lie in the gap.
#[test]
fn behind_a_gap_of_the_log_no_page_is_repaired_and_the_gap_is_named() {
    let (fs, _) = history(true);
    let expected = rows(&on(&copied(&fs)).open(DIR).unwrap());
    for pid in pages(&fs) {
        harm(&fs, pid, Harm::Zeros, &[]);
    }
    let without = repair(DIR, BACKUP).lab(Arc::clone(&fs), 64 << 10).dry_run().unwrap();
    // A file that the repair needs: neither the backup nor the database has its groups.
    let lacking = |name: &String| {
        let lost = copied(&fs);
        lost.remove(&Path::new(ARCHIVE).join(name)).unwrap();
        let gap = repair_on(&lost).dry_run().unwrap();
        (!gap.unrepaired.is_empty()).then(|| (Path::new(ARCHIVE).join(name), lost, gap))
    };
    let names = fs.list(Path::new(ARCHIVE)).unwrap();
    // The last such file: the backup has no part of it.
    let (path, lost, gap) = names.iter().rev().filter(|name| name.ends_with(".arc")).find_map(lacking).unwrap();
    let first: u64 = path.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    for (repaired, is_first) in [(&without, false), (&gap, true)] {
        assert!(repaired.repaired.is_empty() && repaired.unrepaired.len() > 30, "{repaired:?}");
        for page in &repaired.unrepaired {
            let RepairRefusal::Gap { missing, next } = page.why else { panic!("{page:?}") };
            assert!(missing < next && (!is_first || missing.0 <= first), "{page:?}, without {first}");
        }
    }
    let before = all_files(&lost);
    assert_eq!(repair_on(&lost).run().unwrap(), gap);
    assert!(before == all_files(&lost));
    lost.create(&path).unwrap().write_at(&read(&fs, &path), 0).unwrap();
    // Without the map, pages that were never used are listed, too.
    let whole = repair_on(&lost).run().unwrap();
    let listed: BTreeSet<_> = gap.unrepaired.iter().map(|page| page.page).collect();
    assert_eq!(whole.unrepaired, []);
    assert_eq!(repaired_pages(&whole).iter().find(|page| !listed.contains(page)), None, "{gap:?}");
    is_whole(&lost, &expected, true, "with the whole archive");
}

/// A record that initialises the page is no help, either: a later change of the page may lie in an earlier group.
#[test]
fn a_backup_without_a_sound_image_is_no_help() {
    let (fs, older) = history(true);
    let image = read(&fs, "/backup/data");
    let was_used = |pid: &PageId| {
        let at = pid.offset() as usize;
        image.get(at..at + PAGE_SIZE).is_some_and(|page| page.iter().any(|&byte| byte != 0))
    };
    for source in [RepairSource::Backup, RepairSource::Log] {
        let is_from_it = |&pid: &PageId| {
            let fs = copied(&fs);
            harm(&fs, pid, Harm::Flip, &older);
            repair_on(&fs).dry_run().unwrap().repaired.iter().any(|page| page.source == source)
        };
        let pid = pages(&fs).into_iter().skip(1).filter(was_used).find(is_from_it).unwrap();
        let fs = copied(&fs);
        assert!(harm(&fs, pid, Harm::Flip, &older));
        fs.open(Path::new("/backup/data")).unwrap().write_at(&[7], pid.offset() + 4000).unwrap();
        let before = all_files(&fs);
        let repaired = repair_on(&fs).run().unwrap();
        assert!(repaired.repaired.is_empty(), "{repaired:?}");
        assert_eq!(
            repaired.unrepaired.iter().map(|page| (page.page, &page.why)).collect::<Vec<_>>(),
            [(pid, &RepairRefusal::NoImage)]
        );
        assert!(before == all_files(&fs));
    }
}

/// A copy of a backup was refreshed in part: its log is that of a later one.
#[test]
fn a_backup_with_the_log_of_a_later_one_is_refused() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 1500);
    db.backup(BACKUP).unwrap();
    work(&db, 1);
    (0..3).for_each(|_| db.checkpoint().unwrap());
    db.backup("/later").unwrap();
    work(&db, 2);
    db.close(Duration::ZERO).unwrap();
    let log = Path::new("/backup/log");
    fs.list(log).unwrap().iter().for_each(|name| fs.remove(&log.join(name)).unwrap());
    for name in fs.list(Path::new("/later/log")).unwrap() {
        let bytes = read(&fs, Path::new("/later/log").join(&name));
        fs.create(&log.join(&name)).unwrap().write_at(&bytes, 0).unwrap();
    }
    assert!(harm(&fs, PageId(3), Harm::Flip, &[]));
    let before = all_files(&fs);
    let lost = repair_on(&fs).run().unwrap_err();
    assert!(matches!(&lost, Error::LostLog { file, .. } if file == log), "{lost:?}");
    assert!(before == all_files(&fs));
}

/// A large cut lies in several groups. If the last one of them is missing, the others have no records that count.
#[test]
fn no_record_from_before_a_gap_follows_it() {
    let (fs, _) = history(true);
    let (superblock, _) = SuperBlock::read_newest(&*fs.open(Path::new("/db/data")).unwrap()).unwrap();
    let mut files: Vec<_> = fs.list(Path::new(ARCHIVE)).unwrap();
    files.retain(|name| name.ends_with(".arc"));
    let (mut gaps, mut behind) = (0, 0);
    for name in files.iter().rev() {
        fs.remove(&Path::new(ARCHIVE).join(name)).unwrap();
        let (log, archive) = (Path::new("/backup/log").to_owned(), Path::new(ARCHIVE).to_owned());
        let (log, archive) = ((Arc::clone(&fs), log), Some((Arc::clone(&fs), archive)));
        let source = RestoreSource { log, archive, uuid: superblock.uuid };
        let mut begin = None;
        let mut check = |event| {
            match event {
                HistoryEvent::Gap { next, .. } => (begin, gaps) = (Some(next), gaps + 1),
                HistoryEvent::Record(record) => {
                    assert!(begin.is_none_or(|begin| begin <= record.group), "{begin:?}, {}", record.group);
                    behind += u32::from(begin.is_some());
                }
            }
            Ok(())
        };
        Log::read_history(&source, (&fs, Path::new("/db/log")), &mut check).unwrap();
    }
    assert!(gaps > 1 && behind > 100, "{gaps} and {behind}");
}

/// A page of the data file that the medium cannot read until it is written.
#[derive(Clone, Debug)]
struct Unreadable {
    fs: Arc<dyn Fs>,
    pid: PageId,
    is_written: Arc<AtomicBool>,
}

#[derive(Debug)]
struct UnreadableFile {
    file: Arc<dyn File>,
    disk: Unreadable,
}

impl UnreadableFile {
    fn has(&self, offset: u64, len: usize) -> bool {
        let at = self.disk.pid.offset();
        self.file.path() == Path::new("/db/data") && offset < at + PAGE_SIZE as u64 && at < offset + len as u64
    }
}

impl FileLayer for UnreadableFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        if self.has(offset, buf.len()) && !self.disk.is_written.load(Ordering::Relaxed) {
            return Err(foreshore_base::Error::io("read", self.file.path(), std::io::Error::other("a bad sector")));
        }
        self.file.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.disk.is_written.fetch_or(self.has(offset, buf.len()), Ordering::Relaxed);
        self.file.write_at(buf, offset)
    }
}

impl FsLayer for Unreadable {
    fn below(&self) -> &dyn Fs {
        &*self.fs
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(UnreadableFile { file, disk: self.clone() })
    }
}

/// Pages that cannot be read. Those of the newest batches come back from their images, also at a start.
#[test]
fn a_page_that_cannot_be_read_comes_back_from_its_image_or_the_backup() {
    let (fs, _) = history(true);
    let expected = rows(&on(&copied(&fs)).open(DIR).unwrap());
    let mut counts = [0; 2];
    for pid in pages(&fs) {
        let on_bad = || {
            let fs = copied(&fs);
            let bad: Arc<dyn Fs> = Arc::new(Unreadable { fs, pid, is_written: Arc::default() });
            bad
        };
        let what = format!("page {pid}");
        let bad = on_bad();
        let repaired = repair_on(&bad).run().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(repaired.unrepaired.is_empty(), "{what}: {repaired:?}");
        let has_image = repaired.repaired.is_empty();
        counts[usize::from(has_image)] += 1;
        is_whole(&bad, &expected, true, &what);
        if has_image {
            drop(on(&on_bad()).open(DIR).unwrap_or_else(|error| panic!("{what}: {error}")));
        }
    }
    assert!(counts[0] > 10 && counts[1] > 5, "{counts:?}");
}

#[test]
fn what_is_not_of_the_database_is_refused_and_so_is_damage_outside_of_pages() {
    let (fs, older) = history(true);
    assert!(harm(&fs, PageId(3), Harm::Flip, &older));
    let refused = |fs: &Arc<dyn Fs>, repair: Repair, what: &str| {
        let before = all_files(fs);
        let error = repair.run().unwrap_err();
        assert!(before == all_files(fs), "{what}");
        error
    };
    // Another database with its backup and archive.
    let other = copied(&fs);
    let db = on(&other).archive("/other-archive").open("/other").unwrap();
    db.backup("/other-backup").unwrap();
    drop(db);
    let lab = |repair: Repair, fs: &Arc<dyn Fs>| repair.lab(Arc::clone(fs), 64 << 10);
    let foreign = refused(&other, lab(repair(DIR, "/other-backup").archive(ARCHIVE), &other), "backup");
    assert!(matches!(&foreign, Error::Foreign { path, .. } if path == Path::new("/other-backup/data")), "{foreign:?}");
    let foreign = refused(&other, lab(repair(DIR, BACKUP).archive("/other-archive"), &other), "archive");
    assert!(matches!(foreign, Error::Foreign { .. }), "{foreign:?}");
    let none = refused(&other, lab(repair(DIR, "/nothing"), &other), "no backup");
    assert!(matches!(none, Error::NoDatabase { .. }), "{none:?}");
    // The backup was opened as a database: its log has gone on.
    let opened = copied(&fs);
    drop(small().lab(|lab| lab.fs = Some(Arc::clone(&opened))).open(BACKUP).unwrap());
    let foreign = refused(&opened, repair_on(&opened), "opened");
    assert!(
        matches!(foreign, Error::Foreign { why: "it was opened as a database since the backup was made", .. }),
        "{foreign:?}"
    );
    // A backup is not repaired, since what is written would be no part of it.
    let backup = refused(&other, lab(repair(BACKUP, BACKUP), &other), "a backup as the database");
    assert!(matches!(backup, Error::Foreign { why, .. } if why.starts_with("it is a backup: ")), "{backup:?}");
    // A database in use.
    let live = copied(&fs);
    let db = small().lab(|lab| lab.fs = Some(Arc::clone(&live))).open("/live").unwrap();
    let locked = lab(repair("/live", BACKUP), &live).run().unwrap_err();
    assert!(matches!(locked, Error::Locked { .. }), "{locked:?}");
    drop(db);
    // Superblocks, length and log.
    let superblocks = copied(&fs);
    (0..2).for_each(|slot| {
        superblocks.open(Path::new("/db/data")).unwrap().write_at(&[9], slot * PAGE_SIZE as u64 + 100).unwrap()
    });
    assert!(matches!(refused(&superblocks, repair_on(&superblocks), "superblocks"), Error::Corrupted { .. }));
    let short = copied(&fs);
    short.open(Path::new("/db/data")).unwrap().set_len(5 * PAGE_SIZE as u64).unwrap();
    assert!(matches!(refused(&short, repair_on(&short), "short"), Error::Truncated { .. }));
    let log = copied(&fs);
    let names = log.list(Path::new("/db/log")).unwrap();
    names
        .iter()
        .filter(|name| name.ends_with(".seg"))
        .for_each(|name| log.remove(&Path::new("/db/log").join(name)).unwrap());
    let lost = refused(&log, repair_on(&log), "log");
    assert!(matches!(lost, Error::LostLog { .. } | Error::Io { .. } | Error::Corrupted { .. }), "{lost:?}");
}

/// The database was replaced by an older copy of itself, and has gone on from there. A backup of the time between has
/// other changes under the same LSNs.
#[test]
fn a_backup_of_another_timeline_is_refused() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    // In one segment, so no log is cut.
    let plain = |fs: &Arc<dyn Fs>| {
        small()
            .log_budget(8 << 20)
            .lab(|lab| (lab.fs, lab.segment_bytes) = (Some(Arc::clone(fs)), 1 << 20))
            .open(DIR)
            .unwrap()
    };
    let db = plain(&fs);
    fill(&db, 300);
    db.close(Duration::ZERO).unwrap();
    let (longer, shorter) = (copied(&fs), copied(&fs));
    let db = plain(&fs);
    fill(&db, 600);
    db.backup(BACKUP).unwrap();
    drop(db);
    for (other, count) in [(&longer, 3000), (&shorter, 1)] {
        let db = plain(other);
        fill(&db, count);
        db.close(Duration::ZERO).unwrap();
        copy(&fs, other, &[BACKUP, "/backup/log"]);
        harm(other, PageId(3), Harm::Flip, &[]);
        let before = all_files(other);
        let foreign = repair(DIR, BACKUP).lab(Arc::clone(other), 64 << 10).run();
        assert!(matches!(foreign, Err(Error::Foreign { why, .. }) if why.contains("timeline")), "{foreign:?}");
        assert!(before == all_files(other));
    }
}

/// A restart has quarantined the page. Without an undo that was skipped the page can come back.
#[test]
fn a_quarantined_page_is_repaired_unless_a_rollback_has_skipped_its_rows() {
    for has_loser in [false, true] {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let db = on(&fs).open(DIR).unwrap();
        fill(&db, 1500);
        db.run(|tx| tx.open(LOADED)?.load((0..10).map(|n| (n, 1_i64))).map(drop)).unwrap();
        db.run(|tx| tx.open(BLOBS)?.insert(1, &blob(1, 1)[..]).map(drop)).unwrap();
        db.backup(BACKUP).unwrap();
        db.checkpoint().unwrap();
        db.run(|tx| (0..1500).try_for_each(|n| tx.open(NUMBERS)?.insert(n, 5).map(drop))).unwrap();
        let expected = rows(&db);
        let tx = db.begin();
        if has_loser {
            // One change: only the end of the rollback can tell of it.
            set(&tx, 700..701, -3);
        }
        std::mem::forget(tx);
        db.sync().unwrap();
        let (killed, mut met) = (copied(&fs), BTreeSet::new());
        for pid in pages(&killed).into_iter().skip(2) {
            let fs = copied(&killed);
            harm(&fs, pid, Harm::Flip, &[]);
            drop(on(&fs).open(DIR).unwrap());
            blank_images(&fs);
            let page = &read(&fs, "/db/data")[pid.offset() as usize..][..PAGE_SIZE];
            if page_type(page) != Some(PageType::Quarantined) {
                continue;
            }
            let repaired = repair_on(&fs).run().unwrap();
            let refused: Vec<_> = repaired.unrepaired.iter().map(|page| (page.page, page.why.clone())).collect();
            if has_loser && !refused.is_empty() {
                // The root was quarantined by a log record.
                assert!(
                    matches!(refused[..], [(page, RepairRefusal::SkippedUndo | RepairRefusal::Contradiction)] if page == pid)
                );
                met.extend((refused[0].1 == RepairRefusal::SkippedUndo).then_some(pid));
                continue;
            }
            assert_eq!((repaired_pages(&repaired), refused), (vec![pid], Vec::new()), "page {pid}");
            is_whole(&fs, &expected, true, &format!("page {pid}"));
            met.extend((!has_loser).then_some(pid));
        }
        assert!(met.len() > if has_loser { 0 } else { 2 }, "loser {has_loser}: {met:?}");
    }
}

/// Stamps of a later moment than the other files name changes that the log does not have.
#[test]
fn a_page_that_the_log_does_not_bring_to_its_stamp_is_refused() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = on(&fs).open(DIR).unwrap();
    fill(&db, 300);
    db.backup(BACKUP).unwrap();
    db.checkpoint().unwrap();
    let pid =
        pages(&fs).into_iter().rev().find(|&pid| page_lsn(&read(&fs, "/db/data")[pid.offset() as usize..]) > Lsn::ZERO);
    let pid = pid.unwrap();
    db.close(Duration::ZERO).unwrap();
    let fs = copied(&fs);
    // An entry of the stamps: LSN, page id, and their checksum.
    let end = page_lsn(&read(&fs, "/db/data")[pid.offset() as usize..]);
    let mut entry = [&(end.0 + 1).to_le_bytes()[..], &(pid.0 as u32).to_le_bytes()].concat();
    entry.extend(foreshore_base::crc32c(&entry).to_le_bytes());
    fs.open(Path::new("/db/stamps")).unwrap().write_at(&entry, BLOCK as u64 + 16 * pid.0).unwrap();
    let repaired = repair_on(&fs).run().unwrap();
    let refused: Vec<_> = repaired.unrepaired.iter().map(|page| (page.page, page.why.clone())).collect();
    assert_eq!(refused, [(pid, RepairRefusal::LostLog { end, wanted: Lsn(end.0 + 1) })]);
}

/// Power is lost in operations of a repair of many pages. Another repair makes the database whole.
#[test]
fn a_repair_that_power_loss_ends_is_continued_by_the_next() {
    let stride = stride(3);
    for is_closed in [true, false] {
        let (fs, _) = history(is_closed);
        let expected = rows(&on(&copied(&fs)).open(DIR).unwrap());
        let sim = disk(7);
        let on_sim: Arc<dyn Fs> = Arc::new(sim.clone());
        copy(&fs, &on_sim, &DIRS);
        for pid in pages(&fs) {
            harm(&on_sim, pid, Harm::Flip, &[]);
        }
        sync_all(&on_sim);
        let first = sim.ops();
        let repaired = repair_on(&on_sim).run().unwrap();
        assert!(repaired.repaired.len() > 64 || !is_closed, "several batches: {}", repaired.repaired.len());
        let mut in_part = 0;
        let losses = lose_power(&sim, (first, stride), |loss| {
            let image: Arc<dyn Fs> = Arc::new(loss.image.clone());
            let rest = repair_on(&image).run().unwrap_or_else(|error| panic!("{}: {error}", loss.what));
            assert!(rest.unrepaired.is_empty(), "{}: {rest:?}", loss.what);
            in_part += u32::from(!rest.repaired.is_empty() && rest.repaired.len() < repaired.repaired.len());
            is_whole(&image, &expected, is_closed, &loss.what);
        });
        assert!(losses > 5 && (in_part > 0 || !is_closed), "{losses} losses, {in_part} in part");
    }
}

fn sync_all(fs: &Arc<dyn Fs>) {
    for dir in DIRS.map(Path::new) {
        for path in fs.list(dir).unwrap().iter().map(|name| dir.join(name)) {
            if fs.kind(&path).unwrap() == Some(Kind::File) {
                fs.open(&path).unwrap().sync().unwrap();
            }
        }
        fs.sync_dir(dir).unwrap();
    }
    fs.sync_dir(Path::new("/")).unwrap();
}
