//! Stamps of pages: a stale page is refused, and the loss of stamps costs nothing but themselves.

use crate::compact;
use crate::script::{disk, lose_power, open, options};
use crate::support::{DIR, NUMBERS, Snapshot, closed_database, fill, in_memory, numbers, read as read_file};
use crate::support::{open as open_on, small, write};
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{Db, Error, Options, PageId, Place, TableDef};
use foreshore_base::{Lsn, crc32c};
use foreshore_buffer::PageType;
use foreshore_buffer::format::{page_level, page_lsn, page_type, verify_page};
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const OTHERS: TableDef<u64, i64> = TableDef::new("others");

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn page_of(files: &mut Snapshot, pid: PageId) -> &mut [u8] {
    &mut files.file("data")[pid.offset() as usize..][..PAGE_SIZE]
}

fn set_all(db: &Db, value: i64) {
    db.run(|tx| (0..300).try_for_each(|n| tx.open(NUMBERS)?.insert(n, value).map(drop))).unwrap();
}

/// A database whose leaf with the numbers is as it was at an earlier close, and the leaf. It was closed, or killed with
/// log behind its last checkpoint.
fn with_stale_leaf(is_closed: bool) -> (Snapshot, PageId) {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.close(Duration::ZERO).unwrap();
    let mut before = Snapshot::of(&fs);
    let db = open_on(&fs).unwrap();
    set_all(&db, -1);
    let after = if is_closed {
        db.close(Duration::ZERO).unwrap();
        Snapshot::of(&fs)
    } else {
        db.checkpoint().unwrap();
        db.run(|tx| tx.open(NUMBERS)?.insert(7, -2).map(drop)).unwrap();
        Snapshot::of(&fs)
    };
    let mut after = after;
    let pages = before.file("data").len() as u64 / PAGE_SIZE as u64;
    let is_leaf = |page: &[u8]| page_type(page) == Some(PageType::Tree) && page_level(page) == 0;
    let has_changed = |&pid: &PageId| {
        let (old, new) = (page_of(&mut before, pid).to_vec(), page_of(&mut after, pid));
        is_leaf(&old) && verify_page(&old, pid, Lsn(u64::MAX)).is_ok() && page_lsn(&old) < page_lsn(new)
    };
    let pid = (6..pages).map(PageId).find(has_changed).expect("a leaf that has changed");
    let old = page_of(&mut before, pid).to_vec();
    page_of(&mut after, pid).copy_from_slice(&old);
    after.file("dw")[BLOCK..].fill(0);
    (after, pid)
}

fn is_stale(error: &Error, pid: PageId) -> bool {
    matches!(error, Error::Corrupted { place: Place::Page(page), why, .. } if *page == pid && why.contains("stale"))
}

fn read_numbers(db: &Db) -> Result<usize, Error> {
    db.run(|tx| tx.open(NUMBERS)?.iter().try_fold(0, |count, row| row.map(|_| count + 1)))
}

fn over(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

#[test]
fn a_stale_page_is_named_when_it_is_read_and_by_a_check() {
    let (files, pid) = with_stale_leaf(true);
    let fs = files.restore();
    let db = open_on(&fs).unwrap();
    let error = read_numbers(&db).unwrap_err();
    assert!(is_stale(&error, pid), "{error:?}");
    assert!(error.to_string().contains("numbers"), "{error}");
    assert!(is_stale(&db.check().unwrap_err(), pid));
    let report = db.examine().unwrap();
    assert!(report.damaged.iter().any(|page| page.page == pid && page.why.starts_with("stale")), "{report:?}");
    let error = db.backup("/copy").unwrap_err();
    assert!(is_stale(&error, pid), "{error:?}");
    db.close(Duration::ZERO).unwrap();
    let before = Snapshot::of(&fs);
    let db = over(&fs).open_read_only(DIR).unwrap();
    assert!(is_stale(&read_numbers(&db).unwrap_err(), pid));
    drop(db);
    assert_eq!(Snapshot::of(&fs), before);
}

#[test]
fn a_stale_page_that_redo_meets_keeps_its_bytes_and_stays_refused() {
    let (mut files, pid) = with_stale_leaf(false);
    let old = page_of(&mut files, pid).to_vec();
    let fs = files.restore();
    for _ in 0..2 {
        let db = open_on(&fs).unwrap();
        let error = read_numbers(&db).unwrap_err();
        assert!(is_stale(&error, pid), "{error:?}");
        assert!(db.stats().damage.first.iter().any(|page| page.page == pid), "the superblock lists it");
        db.close(Duration::ZERO).unwrap();
        let mut now = Snapshot::of(&fs);
        let page = page_of(&mut now, pid);
        assert_eq!(page_type(page), Some(PageType::Quarantined));
        assert!(page[32..] == old[32..] && page[28..32] == old[4..8] && page[24..28] == old[24..28]);
        // Neither is it trusted without its stamp.
        fs.remove(&path("stamps")).unwrap();
    }
}

#[test]
fn page_ids_that_are_used_again_are_not_stale() {
    for is_closed in [true, false] {
        let mut fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let mut db = compact::on(&fs).open(DIR).unwrap();
        let (mut most, mut cuts) = (0, 0);
        for round in 0..4 {
            fill(&db, 8000);
            db.checkpoint().unwrap();
            most = most.max(db.stats().space.used_pages);
            db.run(|tx| (1..8000).try_for_each(|n| tx.open(NUMBERS)?.remove(n).map(drop))).unwrap();
            if round % 2 == 1 {
                db.compact().unwrap();
            }
            (0..2000).for_each(|_| db.step());
            assert!(db.stats().space.used_pages < most / 2, "pages are free");
            if is_closed {
                db.checkpoint().unwrap();
            }
            db.run(|tx| (1..1000).try_for_each(|n| tx.open(NUMBERS)?.insert(n, round).map(drop))).unwrap();
            let before = numbers(&db);
            cuts += db.stats().space.cuts;
            if is_closed {
                db.close(Duration::ZERO).unwrap();
            } else {
                fs = Snapshot::of(&fs).restore();
            }
            db = compact::on(&fs).open(DIR).unwrap();
            assert!(numbers(&db) == before, "round {round}");
            db.check().unwrap();
        }
        assert!(cuts > 0, "the end of the file was cut off");
    }
}

/// Opens a database whose stamps were lost: all rows are there, and writes get new stamps.
fn has_lost_its_stamps(files: &Snapshot) {
    let fs = files.restore();
    for is_new in [true, false] {
        let db = open_on(&fs).unwrap();
        assert_eq!(numbers(&db).len(), 300, "no row is lost");
        let stats = db.stats().pool.stamps;
        assert_eq!((stats.is_new, stats.failures), (is_new, 0));
        set_all(&db, -1);
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
    }
    assert!(read_file(&fs, "stamps")[BLOCK..].iter().any(|&byte| byte != 0));
}

#[test]
fn lost_stamps_cost_nothing_but_themselves() {
    let sound = closed_database();
    let damaged = |damage: &dyn Fn(&mut Vec<u8>)| {
        let mut files = sound.clone();
        damage(files.file("stamps"));
        files
    };
    let mut missing = sound.clone();
    missing.0.retain(|(name, _)| name != "stamps");
    has_lost_its_stamps(&missing);
    missing.0.push(("stamps.tmp".to_owned(), b"begun".to_vec()));
    has_lost_its_stamps(&missing);
    has_lost_its_stamps(&damaged(&|bytes| bytes[20] ^= 1));
    has_lost_its_stamps(&damaged(&|bytes| bytes.truncate(100)));
    for cut in [BLOCK, BLOCK + 100, 2 * BLOCK - 16] {
        let fs = damaged(&|bytes| bytes.truncate(cut)).restore();
        let db = open_on(&fs).unwrap();
        db.check().unwrap();
        assert!(!db.stats().pool.stamps.is_new);
        db.close(Duration::ZERO).unwrap();
    }
    let fs = missing.restore();
    write(&fs, "LOCK", &[]);
    let before = fs.list(Path::new(DIR)).unwrap();
    let db = over(&fs).open_read_only(DIR).unwrap();
    assert_eq!(numbers(&db).len(), 300);
    drop(db);
    assert_eq!(fs.list(Path::new(DIR)).unwrap(), before, "a reader creates none");
}

#[test]
fn stamps_of_another_database_or_format_are_refused_and_nothing_is_written() {
    let sound = closed_database();
    let refused = |files: &Snapshot| {
        let fs = files.restore();
        let error = open_on(&fs).map(drop).unwrap_err();
        assert_eq!(&Snapshot::of(&fs), files);
        error
    };
    let mut foreign = sound.clone();
    *foreign.file("stamps") = closed_database().file("stamps").clone();
    let error = refused(&foreign);
    assert!(matches!(&error, Error::Foreign { path, .. } if path.ends_with("stamps")), "{error:?}");
    let mut newer = sound.clone();
    let header = &mut newer.file("stamps")[..BLOCK];
    header[12] = 9;
    let crc = crc32c(&header[12..]);
    header[8..12].copy_from_slice(&crc.to_le_bytes());
    let error = refused(&newer);
    assert!(matches!(&error, Error::Newer { path, found: 9, .. } if path.ends_with("stamps")), "{error:?}");
    let alone: Arc<dyn Fs> = Arc::new(Mem::null());
    alone.create_dir(Path::new(DIR)).unwrap();
    write(&alone, "stamps", sound.clone().file("stamps"));
    let error = open_on(&alone).map(drop).unwrap_err();
    assert!(matches!(error, Error::Corrupted { .. }), "it is what is left of a database: {error:?}");
    assert_eq!(alone.list(Path::new(DIR)).unwrap(), ["LOCK", "stamps"]);
}

/// A file system on which operations of one kind on `stamps` fail.
#[derive(Debug)]
struct Failing(Arc<dyn Fs>, &'static str);

#[derive(Debug)]
struct FailingFile(Arc<dyn File>, &'static str);

impl FailingFile {
    fn check(&self, op: &'static str) -> foreshore_base::Result<()> {
        let path = self.0.path();
        let is_meant = op == self.1 && path.file_stem().is_some_and(|name| name == "stamps");
        if is_meant { Err(foreshore_base::Error::io(op, path, std::io::ErrorKind::Other.into())) } else { Ok(()) }
    }
}

impl FsLayer for Failing {
    fn below(&self) -> &dyn Fs {
        &*self.0
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(FailingFile(file, self.1))
    }

    fn open(&self, path: &Path) -> foreshore_base::Result<Arc<dyn File>> {
        let file = FailingFile(self.0.open(path)?, self.1);
        file.check("open")?;
        Ok(Arc::new(file))
    }
}

impl FileLayer for FailingFile {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> foreshore_base::Result<usize> {
        // The header can be read.
        let op = if offset < BLOCK as u64 { "read the header" } else { "read" };
        self.check(op).and_then(|()| self.0.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> foreshore_base::Result<()> {
        self.check("write").and_then(|()| self.0.write_at(buf, offset))
    }

    fn sync(&self) -> foreshore_base::Result<()> {
        self.check("sync").and_then(|()| self.0.sync())
    }
}

#[test]
fn errors_of_the_file_stop_nothing_and_are_counted() {
    let sound = closed_database();
    let mut missing = sound.clone();
    missing.0.retain(|(name, _)| name != "stamps");
    let mut killed = {
        let fs = sound.restore();
        let db = open_on(&fs).unwrap();
        db.checkpoint().unwrap();
        set_all(&db, -7);
        Snapshot::of(&fs)
    };
    killed.file("dw")[BLOCK..].fill(0);
    let ops = ["open", "read the header", "read", "write", "sync"];
    for (files, op) in [&sound, &missing, &killed].into_iter().flat_map(|files| ops.map(|op| (files, op))) {
        if op == "read the header" && std::ptr::eq(files, &missing) {
            continue;
        }
        let below = files.restore();
        let fs: Arc<dyn Fs> = Arc::new(Failing(Arc::clone(&below), op));
        let db = open_on(&fs).unwrap();
        set_all(&db, 5);
        db.checkpoint().unwrap();
        db.check().unwrap();
        assert!(db.stats().pool.stamps.failures > 0, "{op}");
        db.close(Duration::ZERO).unwrap();
        let db = open_on(&below).unwrap();
        assert!(numbers(&db).iter().all(|&(_, number)| number == 5));
        db.check().unwrap();
        assert_eq!(db.stats().pool.stamps.failures, 0);
    }
}

/// Older files of the database under newer stamps: all rows are there, also at the next open.
#[test]
fn stamps_of_a_later_moment_than_the_other_files_harm_no_row() {
    let mut files = closed_database();
    let fs = files.restore();
    for value in [-1, -2] {
        let db = open_on(&fs).unwrap();
        set_all(&db, value);
        db.checkpoint().unwrap();
        set_all(&db, value);
        db.close(Duration::ZERO).unwrap();
    }
    *files.file("stamps") = read_file(&fs, "stamps");
    let fs = files.restore();
    for is_new in [true, false] {
        let db = open_on(&fs).unwrap();
        assert_eq!(db.stats().pool.stamps.is_new, is_new);
        assert!(numbers(&db).into_iter().eq((0..300).map(|n| (n, n as i64))));
        db.check().unwrap();
        db.run(|tx| (1000..3000).try_for_each(|n| tx.open(OTHERS)?.insert(n, 0).map(drop))).unwrap();
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
    }
}

/// Pages that redo has made anew may be home below their stamps meanwhile. So they are home at their stamps before the
/// redo start moves behind the records that initialised them.
#[test]
fn a_page_made_anew_is_home_when_redo_ends() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = compact::on(&fs).open(DIR).unwrap();
    db.checkpoint().unwrap();
    fill(&db, 300);
    db.sync().unwrap();
    let mut killed = Snapshot::of(&fs);
    drop(db);
    let fs = killed.restore();
    compact::on(&fs).open(DIR).unwrap().close(Duration::ZERO).unwrap();
    let mut redone = Snapshot::of(&fs);
    let pages = (6..redone.file("data").len() as u64 / PAGE_SIZE as u64).map(PageId);
    let is_leaf = |page: &[u8]| page_type(page) == Some(PageType::Tree) && page_level(page) == 0;
    let leaves: Vec<_> = pages.filter(|&pid| is_leaf(page_of(&mut redone, pid))).collect();
    let mut lsn_of = |pid| page_lsn(page_of(&mut redone, pid));
    let newest = leaves.into_iter().max_by_key(|&pid| lsn_of(pid)).expect("a leaf");
    let stamp = lsn_of(newest);
    page_of(&mut killed, newest).fill(0);
    killed.file("dw")[BLOCK..].fill(0);
    let mut entry = [&stamp.0.to_le_bytes()[..], &newest.0.to_le_bytes()[..4]].concat();
    entry.extend(crc32c(&entry).to_le_bytes());
    let at = BLOCK + 16 * newest.0 as usize;
    let stamps = killed.file("stamps");
    stamps.resize(stamps.len().max(2 * BLOCK), 0);
    stamps[at..at + 16].copy_from_slice(&entry);
    let fs = killed.restore();
    let db = compact::on(&fs).open(DIR).unwrap();
    let mut now = Snapshot::of(&fs);
    assert!(page_lsn(page_of(&mut now, newest)) >= stamp, "no step has run since the start");
    assert_eq!(numbers(&db).len(), 300);
    drop(db);
    let db = compact::on(&now.restore()).open(DIR).unwrap();
    assert_eq!(numbers(&db).len(), 300);
    db.check().unwrap();
}

#[test]
fn a_restored_database_begins_without_stamps() {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.checkpoint().unwrap();
    db.backup("/copy").unwrap();
    assert!(!fs.list(Path::new("/copy")).unwrap().contains(&"stamps".to_owned()));
    foreshore::restore("/copy", "/restored").lab(Arc::clone(&fs), 64 << 10).run().unwrap();
    assert!(!fs.list(Path::new("/restored")).unwrap().contains(&"stamps".to_owned()));
    for dir in ["/copy", "/restored"] {
        for is_new in [true, false] {
            let db = over(&fs).open(dir).unwrap();
            assert_eq!(db.stats().pool.stamps.is_new, is_new);
            set_all(&db, -3);
            db.check().unwrap();
            db.close(Duration::ZERO).unwrap();
        }
    }
}

#[test]
fn a_crash_while_the_file_is_created_harms_nothing() {
    let sim = disk(1);
    let db = options(&sim).open(DIR).unwrap();
    fill(&db, 300);
    db.close(Duration::ZERO).unwrap();
    sim.remove(&path("stamps")).unwrap();
    sim.sync_dir(Path::new(DIR)).unwrap();
    let first = sim.ops();
    let db = open(&sim).unwrap();
    assert!(db.stats().pool.stamps.is_new);
    set_all(&db, 9);
    db.close(Duration::ZERO).unwrap();
    let mut found = [0, 0];
    let losses = lose_power(&sim, (first, 1), |loss| {
        let db = open(&loss.image).unwrap_or_else(|error| panic!("{}: {error:?}", loss.what));
        db.check().unwrap_or_else(|error| panic!("{}: {error:?}", loss.what));
        assert_eq!(numbers(&db).len(), 300);
        found[usize::from(db.stats().pool.stamps.is_new)] += 1;
        assert_eq!(db.stats().pool.stamps.failures, 0);
    });
    assert!(losses > 10 && found[0] > 0 && found[1] > 0, "{losses}: {found:?}");
}
