//! A damaged page makes no database unopenable: it is quarantined and named, and everything else in the database works.
//!
//! `FORESHORE_DAMAGE_STRIDE=1` damages every page in every way.

use crate::support::{DIR, NUMBERS, Snapshot};
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{Db, Error, Options, PageId, Place, TableDef, TableId};
use foreshore_base::{Error as Storage, crc32c};
use foreshore_io::sim::Persist;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Mem, Sim};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Large rows, so that few of them make many leaves.
pub(crate) const WIDE: TableDef<u64, &[u8]> = TableDef::new("wide");
/// Long keys, so that few of them make a tree of three levels.
const DEEP: TableDef<&str, u64> = TableDef::new("deep");
/// Named longer than all others.
const PREPARED: TableDef<u64, i64> = TableDef::new("prepared");

const STRIDE: usize = 3;
/// Page of the first map, and of the root of the catalogue.
const MAP: u64 = 2;
const CATALOGUE: u64 = 3;

type Rows = BTreeMap<(&'static str, Vec<u8>), Vec<u8>>;

pub(crate) fn options(fs: &Arc<dyn Fs>) -> Options {
    Options::new()
        .memory_limit(8 << 20)
        .lab(|lab| lab.segment_bytes = 64 << 10)
        .log_budget(2 << 20)
        .lab(|lab| lab.background = false)
        .lock_timeout(Duration::ZERO)
        .lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

fn open(fs: &Arc<dyn Fs>) -> Result<Db, Error> {
    options(fs).open(DIR)
}

pub(crate) fn wide(n: u64, round: u8) -> Vec<u8> {
    vec![n as u8 ^ round; 1500]
}

fn deep(n: u64) -> String {
    format!("{n:0900}")
}

/// A table of those that make the catalogue more than one leaf.
fn many(n: u64) -> String {
    format!("{n:0250}")
}

const MANY: u64 = 40;

/// What is committed when the database is filled.
fn fill(db: &Db) {
    db.run(|tx| {
        let (numbers, wides, deeps) = (tx.open(NUMBERS)?, tx.open(WIDE)?, tx.open(DEEP)?);
        (0..600).try_for_each(|n| numbers.insert(n, n as i64).map(drop))?;
        (0..60).try_for_each(|n| wides.insert(n, &wide(n, 0)[..]).map(drop))?;
        (0..120).try_for_each(|n| deeps.insert(&*deep(n), n).map(drop))?;
        (0..MANY).try_for_each(|n| tx.open(TableDef::<u64, u64>::new(&many(n)))?.insert(n, n).map(drop))
    })
    .unwrap();
}

/// What is committed after a checkpoint.
fn change(db: &Db) {
    db.run(|tx| {
        let (numbers, wides, deeps) = (tx.open(NUMBERS)?, tx.open(WIDE)?, tx.open(DEEP)?);
        (0..600).step_by(7).try_for_each(|n| numbers.insert(n, -(n as i64)).map(drop))?;
        (0..60).step_by(5).try_for_each(|n| wides.insert(n, &wide(n, 1)[..]).map(drop))?;
        (60..70).try_for_each(|n| wides.insert(n, &wide(n, 1)[..]).map(drop))?;
        wides.remove(11)?;
        (120..150).try_for_each(|n| deeps.insert(&*deep(n), n).map(drop))
    })
    .unwrap();
}

/// All rows, by table and encoded key.
fn expected(changed: bool) -> Rows {
    let mut rows = Rows::new();
    let mut put = |table: &'static str, n: u64, value: Vec<u8>| rows.insert((table, n.to_be_bytes().to_vec()), value);
    for n in 0..600_u64 {
        let value = if changed && n % 7 == 0 { -(n as i64) } else { n as i64 };
        put("numbers", n, value.to_le_bytes().to_vec());
    }
    for n in (0..if changed { 70 } else { 60 }).filter(|&n| !changed || n != 11) {
        put("wide", n, wide(n, u8::from(changed && (n % 5 == 0 || n >= 60))));
    }
    for n in 0..if changed { 150 } else { 120 } {
        put("deep", n, n.to_le_bytes().to_vec());
    }
    (0..MANY).for_each(|n| drop(put("many", n, n.to_le_bytes().to_vec())));
    rows
}

/// Reads one row by its key alone, and says in which table it should be.
fn read(db: &Db, table: &str, n: u64) -> Result<Option<Vec<u8>>, Error> {
    let tx = db.read();
    Ok(match table {
        "numbers" => tx.open(NUMBERS)?.get(n)?.map(|value| value.to_le_bytes().to_vec()),
        "wide" => tx.open(WIDE)?.get(n)?,
        "deep" => tx.open(DEEP)?.get(&*deep(n))?.map(|value| value.to_le_bytes().to_vec()),
        _ => tx.open(TableDef::<u64, u64>::new(&many(n)))?.get(n)?.map(|value| value.to_le_bytes().to_vec()),
    })
}

/// What a database beside damaged pages gave out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Rows that answered with `Corrupted`.
    lost: u64,
    /// The pages that those errors named.
    pages: BTreeSet<PageId>,
}

/// Reads every row by its key. Each is right, or the error names a page, and the table of it.
fn read_all(db: &Db, expected: &Rows, what: &str) -> Found {
    let mut found = Found::default();
    let mut tables = BTreeMap::new();
    // Keys that were deleted or never committed, too.
    let keys = expected.keys().map(|(table, key)| (*table, u64::from_be_bytes(key[..].try_into().unwrap())));
    for (table, n) in keys.chain((60..80).map(|n| ("wide", n))).chain([("wide", 11), ("deep", 150), ("deep", 151)]) {
        match read(db, table, n) {
            Ok(value) => {
                let key = (table, n.to_be_bytes().to_vec());
                assert_eq!(value.as_ref(), expected.get(&key), "{what}: row {n} of {table}");
            }
            Err(Error::Corrupted { table: Some(named), place: Place::Page(page), .. }) => {
                found.lost += 1;
                found.pages.insert(page);
                // Damage of the catalogue hides other tables.
                if named.id != TableId(1) && table != "many" {
                    assert_eq!(named.name.as_deref(), Some(table), "{what}: {named:?}");
                    assert_eq!(*tables.entry(table).or_insert(named.id), named.id, "{what}");
                }
            }
            Err(error) => panic!("{what}: row {n} of {table}: {error:?}"),
        }
    }
    found
}

/// Everything that does not need the damaged page works, commits and checkpoints among it.
fn work(db: &Db, what: &str) {
    let mut works = 0;
    for n in (0..600).step_by(40) {
        // A read and a write that change nothing.
        let written = db.run(|tx| {
            let numbers = tx.open(NUMBERS)?;
            let value = numbers.get(n)?.expect("never deleted");
            numbers.insert(n, value).map(drop)
        });
        works += u32::from(is_hidden(&written) || is_done_or_damage(written, what));
    }
    for n in (0..70).step_by(3) {
        let written = db.run(|tx| {
            let wides = tx.open(WIDE)?;
            let Some(value) = wides.get(n)? else { return Ok(()) };
            wides.insert(n, &value[..]).map(drop)
        });
        works += u32::from(is_hidden(&written) || is_done_or_damage(written, what));
    }
    assert!(works > 8, "{what}: {works} transactions");
    db.checkpoint().unwrap_or_else(|error| panic!("{what}: {error:?}"));
}

/// Damage of the catalogue hides the table, and nothing of it can be asked for.
fn is_hidden(result: &Result<(), Error>) -> bool {
    matches!(result, Err(Error::Corrupted { table: Some(table), .. }) if table.id == TableId(1))
}

fn is_done_or_damage(result: Result<(), Error>, what: &str) -> bool {
    match result {
        Ok(()) => true,
        Err(Error::Corrupted { table: Some(_), place: Place::Page(_), .. }) => false,
        Err(error) => panic!("{what}: {error:?}"),
    }
}

/// Opens a damaged database repeatedly, and always finds the same. Returns what was found; `None` if the opening was
/// refused.
fn survive(fs: &Arc<dyn Fs>, page: u64, rows: &Rows, what: &str) -> Option<Found> {
    let db = match open(fs) {
        Ok(db) => db,
        Err(Error::Corrupted { place: Place::Page(PageId(CATALOGUE)), .. }) if page == CATALOGUE => return None,
        Err(error) => panic!("{what}: {error:?}"),
    };
    let first = read_all(&db, rows, what);
    work(&db, what);
    let report = db.examine().unwrap_or_else(|error| panic!("{what}: {error:?}"));
    let named: BTreeSet<_> = report.damaged.iter().map(|damaged| damaged.page).collect();
    assert!(first.pages.is_subset(&named), "{what}: {first:?} {report:?}");
    assert!(named.iter().all(|named| named.0 == page), "{what}: {report:?}");
    assert_eq!(db.check().is_ok(), named.is_empty(), "{what}");
    let known = db.stats().damage;
    assert_eq!(known.pages, named.len() as u64, "{what}: {known:?}");
    db.close(Duration::ZERO).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    for _ in 0..2 {
        let db = open(fs).unwrap_or_else(|error| panic!("{what}, again: {error:?}"));
        assert!(db.stats().recovery.losers == 0, "{what}");
        assert_eq!(read_all(&db, rows, what), first, "{what}");
        let again: BTreeSet<_> = db.examine().unwrap().damaged.iter().map(|damaged| damaged.page).collect();
        assert_eq!(again, named, "{what}");
        work(&db, what);
        // Not closed.
    }
    Some(first)
}

/// Ways to damage a page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Flip,
    Zero,
    Swap,
}

const KINDS: [Kind; 3] = [Kind::Flip, Kind::Zero, Kind::Swap];

pub(crate) fn damage(files: &mut Snapshot, page: u64, kind: Kind) {
    // Images would mend the page.
    files.file("dw")[BLOCK..].fill(0);
    let at = page as usize * PAGE_SIZE;
    let data = files.file("data");
    match kind {
        Kind::Flip => data[at + PAGE_SIZE / 2 + 100] ^= 0x20,
        Kind::Zero => data[at..at + PAGE_SIZE].fill(0),
        // In the place of this one comes a copy of another page, as after a misdirected write.
        Kind::Swap => data.copy_within(MAP as usize * PAGE_SIZE..(MAP as usize + 1) * PAGE_SIZE, at),
    }
}

/// The pages in use, with type and level.
pub(crate) fn pages(files: &Snapshot) -> Vec<(u64, u8, u8)> {
    let mut files = files.clone();
    let data = files.file("data").clone();
    let pages = data.chunks_exact(PAGE_SIZE).enumerate().skip(MAP as usize);
    let known = pages.map(|(number, page)| (number as u64, page[4], page[5]));
    known.filter(|&(_, kind, _)| kind == 2 || kind == 3).collect()
}

fn stride() -> usize {
    std::env::var("FORESHORE_DAMAGE_STRIDE").map_or(STRIDE, |text| text.parse().unwrap())
}

/// Damages the pages of `files` one by one. Returns how many lost rows, and how many none.
fn damage_each(files: &Snapshot, rows: &Rows) -> (u32, u32) {
    let (mut lost, mut none) = (0, 0);
    let all = pages(files);
    for (index, &(page, _, level)) in all.iter().enumerate() {
        // Leaves are many, everything else is rare.
        if page > CATALOGUE && level == 0 && index % stride() != 0 {
            continue;
        }
        for kind in KINDS.into_iter().filter(|&kind| page != MAP || !matches!(kind, Kind::Swap)) {
            let mut damaged = files.clone();
            damage(&mut damaged, page, kind);
            let what = format!("page {page}, level {level}, {kind:?}");
            match survive(&damaged.restore(), page, rows, &what) {
                Some(found) if found.lost > 0 => lost += 1,
                Some(_) => none += 1,
                None => assert_eq!(page, CATALOGUE, "{what}"),
            }
        }
    }
    (lost, none)
}

#[test]
fn a_database_that_was_closed_opens_beside_any_damaged_page() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    fill(&db);
    change(&db);
    assert_eq!(read_all(&db, &expected(true), "sound"), Found::default());
    db.close(Duration::ZERO).unwrap();
    let files = Snapshot::of(&fs);
    assert!(pages(&files).iter().any(|&(_, kind, level)| kind == 3 && level == 2), "a tree of three levels");
    let (lost, _) = damage_each(&files, &expected(true));
    assert!(lost > 20, "{lost} lost rows");
}

/// A killed process: some changes are not home, one uncommitted transaction is partly home, and one has created a
/// table.
fn killed() -> Snapshot {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    fill(&db);
    db.checkpoint().unwrap();
    let loser = db.begin();
    let (wides, deeps) = (loser.open(WIDE).unwrap(), loser.open(DEEP).unwrap());
    for n in (1..60).step_by(5) {
        wides.insert(n, &wide(n, 9)[..]).unwrap();
    }
    wides.remove(12).unwrap();
    (70..80).for_each(|n| drop(wides.insert(n, &wide(n, 9)[..]).unwrap()));
    (150..155).for_each(|n| assert_eq!(deeps.insert(&*deep(n), 9).unwrap(), None));
    let made = loser.open(TableDef::<u64, &[u8]>::new("made")).unwrap();
    (0..20).for_each(|n| drop(made.insert(n, &wide(n, 9)[..]).unwrap()));
    db.sync().unwrap();
    for _ in 0..20 {
        db.step();
    }
    change_without(&db);
    (0..9).for_each(|n| drop(wides.insert(n * 5 + 3, &wide(n, 8)[..]).unwrap()));
    db.sync().unwrap();
    Snapshot::of(&fs)
}

/// As [`change`], but for rows that the loser has or would have to wait for.
fn change_without(db: &Db) {
    let changed = db.run(|tx| {
        let numbers = tx.open(NUMBERS)?;
        (0..600).step_by(7).try_for_each(|n| numbers.insert(n, -(n as i64)).map(drop))?;
        let wides = tx.open(WIDE)?;
        (0..60).step_by(5).try_for_each(|n| wides.insert(n, &wide(n, 1)[..]).map(drop))
    });
    changed.unwrap();
}

/// What the killed process has committed.
fn expected_of_killed() -> Rows {
    let mut rows = expected(false);
    for ((table, key), value) in &mut rows {
        let n = u64::from_be_bytes(key[..].try_into().unwrap());
        match *table {
            "numbers" if n % 7 == 0 => *value = (-(n as i64)).to_le_bytes().to_vec(),
            "wide" if n % 5 == 0 => *value = wide(n, 1),
            _ => {}
        }
    }
    rows
}

#[test]
fn a_database_that_was_killed_opens_beside_any_damaged_page() {
    let (files, rows) = (killed(), expected_of_killed());
    let fs = files.restore();
    let db = open(&fs).unwrap();
    let recovery = db.stats().recovery;
    assert!(recovery.redone > 100 && recovery.losers == 1 && recovery.undone > 30, "{recovery:?}");
    assert_eq!(read_all(&db, &rows, "sound"), Found::default());
    drop(db);
    let (lost, none) = damage_each(&files, &rows);
    assert!(lost > 20 && none > 3, "{lost} lost rows, {none} rebuilt");
}

/// Power is lost during the recovery that quarantines, and once more during the next one.
#[test]
fn power_loss_in_a_recovery_beside_damage_changes_nothing() {
    let (files, rows) = (killed(), expected_of_killed());
    let all = pages(&files);
    let mut images = 0;
    for &(page, ..) in all.iter().filter(|&&(page, ..)| page != CATALOGUE).step_by(if stride() == 1 { 1 } else { 9 }) {
        let mut damaged = files.clone();
        damage(&mut damaged, page, Kind::Flip);
        let sim = on_sim(&damaged);
        let fs: Arc<dyn Fs> = Arc::new(sim.clone());
        let db = open(&fs).unwrap();
        let first = read_all(&db, &rows, "first");
        let total = sim.ops();
        drop(db);
        let mut points = sim.crash_points();
        loop {
            if points.op() % 7 == page % 7 {
                let policy = &crate::support::POLICIES[images % crate::support::POLICIES.len()];
                let what = format!("page {page}, power lost in operation {} of {total}, {policy:?}", points.op());
                let image: Arc<dyn Fs> = Arc::new(points.image(policy, page));
                images += 1;
                let db = open(&image).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                let found = read_all(&db, &rows, &what);
                assert_eq!(found, first, "{what}");
                work(&db, &what);
            }
            if !points.advance() {
                break;
            }
        }
    }
    assert!(images > 30, "{images} images");
}

/// A simulated disk that holds these files, durably.
pub(crate) fn on_sim(files: &Snapshot) -> Sim {
    let sim = Sim::new(1);
    sim.create_dir(Path::new(DIR)).unwrap();
    sim.create_dir(&Path::new(DIR).join("log")).unwrap();
    for (name, bytes) in &files.0 {
        let file = sim.create(&Path::new(DIR).join(name)).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
    }
    sim.sync_dir(&Path::new(DIR).join("log")).unwrap();
    sim.sync_dir(Path::new(DIR)).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim.crash_image(&Persist::None, 0)
}

/// What a file system does to reads of one page of `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// They fail.
    Fail,
    /// They give a byte that is not on the medium.
    Flip,
}

#[derive(Debug)]
struct BadPage {
    fs: Arc<dyn Fs>,
    page: u64,
    reads: Reads,
    met: Arc<AtomicU64>,
}

#[derive(Debug)]
struct BadFile {
    file: Arc<dyn File>,
    page: u64,
    reads: Reads,
    met: Arc<AtomicU64>,
}

impl FsLayer for BadPage {
    fn below(&self) -> &dyn Fs {
        &*self.fs
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        if !file.path().ends_with("data") {
            return file;
        }
        Arc::new(BadFile { file, page: self.page, reads: self.reads, met: Arc::clone(&self.met) })
    }
}

impl FileLayer for BadFile {
    fn below(&self) -> &dyn File {
        &*self.file
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Storage> {
        let len = self.file.read_at(buf, offset)?;
        let at = self.page * PAGE_SIZE as u64 + 500;
        if (offset..offset + len as u64).contains(&at) {
            self.met.fetch_add(1, Ordering::Relaxed);
            if self.reads == Reads::Fail {
                return Err(Storage::io("read", self.file.path(), std::io::Error::other("a bad sector")));
            }
            buf[(at - offset) as usize] ^= 1;
        }
        Ok(len)
    }
}

/// The file system of these files, with one page that cannot be read as it is.
fn with_bad_page(files: &Snapshot, page: u64, reads: Reads) -> (Arc<dyn Fs>, Arc<dyn Fs>, Arc<AtomicU64>) {
    let mut files = files.clone();
    files.file("dw")[BLOCK..].fill(0);
    let (fs, met) = (files.restore(), Arc::new(AtomicU64::new(0)));
    let bad = BadPage { fs: Arc::clone(&fs), page, reads, met: Arc::clone(&met) };
    (fs, Arc::new(bad), met)
}

/// A page that cannot be read may be whole. It is not given up, and neither is the log that it needs.
#[test]
fn a_page_that_cannot_be_read_once_loses_nothing() {
    let (files, rows) = (killed(), expected_of_killed());
    let (mut refused, mut opened) = (0, 0);
    for &(page, ..) in &pages(&files) {
        let (fs, bad, _) = with_bad_page(&files, page, Reads::Fail);
        let what = format!("page {page}");
        match open(&bad) {
            Ok(db) => {
                opened += 1;
                drop(db);
            }
            Err(Error::Io { .. }) => refused += 1,
            Err(error) => panic!("{what}: {error:?}"),
        }
        let db = open(&fs).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(read_all(&db, &rows, &what), Found::default(), "{what}");
        db.check().unwrap_or_else(|error| panic!("{what}: {error:?}"));
    }
    assert!(refused > 10 && opened > 10, "{refused} refused, {opened} opened");
}

/// A page reads damaged at one restart, whole and stale at the next. Records skipped at the first are not forgotten.
#[test]
fn a_page_that_reads_whole_later_is_not_believed() {
    let (files, rows) = (killed(), expected_of_killed());
    let mut quarantined = 0;
    for &(page, ..) in pages(&files).iter().filter(|&&(page, ..)| page > CATALOGUE) {
        let (fs, bad, met) = with_bad_page(&files, page, Reads::Flip);
        let what = format!("page {page}");
        let db = open(&bad).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let known = db.stats().damage;
        assert!(met.load(Ordering::Relaxed) > 0 || known.pages == 0, "{what}");
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        db.close(Duration::ZERO).unwrap();
        let db = open(&fs).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        let again = db.stats().damage;
        let found = read_all(&db, &rows, &what);
        assert!(found.pages.iter().all(|found| found.0 == page), "{what}: {found:?}");
        if db.examine().unwrap().damaged.is_empty() {
            assert_eq!(found, Found::default(), "{what}");
        } else {
            quarantined += 1;
            assert_eq!(again, known, "{what}: it is still known by its table, without being read");
            assert!(again.first[0].table.is_some() && again.first[0].page.0 == page, "{what}: {again:?}");
        }
    }
    assert!(quarantined > 10, "{quarantined} pages");
}

/// The same, with power lost at any operation of the first restart. The transaction that it undoes has an end by then,
/// or has none and is undone again.
#[test]
fn a_page_that_reads_whole_after_power_loss_is_not_believed() {
    let (files, rows) = (killed(), expected_of_killed());
    let (mut images, mut tried) = (0, 0);
    for &(page, ..) in pages(&files).iter().filter(|&&(page, ..)| page > CATALOGUE) {
        let mut whole = files.clone();
        whole.file("dw")[BLOCK..].fill(0);
        let sim = on_sim(&whole);
        let (fs, met) = (Arc::new(sim.clone()) as Arc<dyn Fs>, Arc::default());
        let bad: Arc<dyn Fs> = Arc::new(BadPage { fs, page, reads: Reads::Flip, met });
        // Leaves that the transaction has changed which is taken back.
        let known = open(&bad).unwrap().stats().damage.first;
        let of_loser =
            known.iter().any(|page| page.table.as_ref().is_some_and(|table| table.name.as_deref() == Some("wide")));
        if !of_loser || (tried == 4 && stride() > 1) {
            continue;
        }
        tried += 1;
        let mut points = sim.crash_points();
        loop {
            let what = format!("page {page}, power lost in operation {}", points.op());
            for policy in [Persist::None, Persist::All] {
                let image: Arc<dyn Fs> = Arc::new(points.image(&policy, page));
                let db = open(&image).unwrap_or_else(|error| panic!("{what}, {policy:?}: {error:?}"));
                let found = read_all(&db, &rows, &what);
                assert!(found.pages.iter().all(|found| found.0 == page), "{what}: {found:?}");
                images += 1;
            }
            if !points.advance() {
                break;
            }
        }
    }
    assert!(images > 50, "{images} images");
}

/// Leaves and inner nodes beside a damaged page are split repeatedly. No acknowledged row is lost with it.
#[test]
fn splits_beside_a_damaged_page_harm_nothing() {
    const SPARSE: TableDef<u64, &[u8]> = TableDef::new("sparse");
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    db.run(|tx| (0..80).try_for_each(|n| tx.open(SPARSE)?.insert(n * 100, &[1; 1000][..]).map(drop))).unwrap();
    db.close(Duration::ZERO).unwrap();
    let files = Snapshot::of(&fs);
    let (mut refused, mut tried) = (0, 0);
    for &(page, ..) in pages(&files).iter().filter(|&&(page, ..)| page > CATALOGUE) {
        let mut damaged = files.clone();
        damage(&mut damaged, page, Kind::Flip);
        let (fs, what) = (damaged.restore(), format!("page {page}"));
        let mut rows: BTreeMap<u64, u8> = (0..80).map(|n| (n * 100, 1)).collect();
        for round in 2..4_u8 {
            let db = open(&fs).unwrap();
            for key in (0..80 * 100).step_by(17 + usize::from(round)).map(|key| key as u64) {
                tried += 1;
                let value = [round; 1000];
                let put = db.run(|tx| tx.open(SPARSE)?.insert(key, &value[..]).map(drop));
                match is_done_or_damage(put, &what) {
                    true => drop(rows.insert(key, round)),
                    false => refused += 1,
                }
            }
            db.checkpoint().unwrap();
            let named = db.examine().unwrap().damaged;
            assert!(named.iter().all(|named| named.page.0 == page), "{what}: {named:?}");
            drop(db);
            let db = open(&fs).unwrap();
            for (&key, &round) in &rows {
                match db.read().open(SPARSE).and_then(|table| table.get(key)) {
                    Ok(value) => assert_eq!(value.as_deref(), Some(&[round; 1000][..]), "{what}: {key}"),
                    Err(Error::Corrupted { place: Place::Page(found), .. }) => assert_eq!(found.0, page, "{what}"),
                    Err(error) => panic!("{what}: {error:?}"),
                }
            }
        }
    }
    assert!(refused > 20 && refused < tried / 4, "{refused} of {tried} refused");
}

/// A page that the medium left at an older state is sound by its checksum. Without stamps a record that does not fit
/// tells.
#[test]
fn a_stale_page_that_a_record_does_not_fit_is_quarantined() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    fill(&db);
    db.checkpoint().unwrap();
    let before = Snapshot::of(&fs).file("data").clone();
    db.run(|tx| (0..600).step_by(2).try_for_each(|n| tx.open(NUMBERS)?.remove(n).map(drop))).unwrap();
    db.run(|tx| (1000..1100).try_for_each(|n| tx.open(NUMBERS)?.insert(n, n as i64).map(drop))).unwrap();
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    // What it removes came after the state that the page is left at.
    db.run(|tx| (1000..1100).try_for_each(|n| tx.open(NUMBERS)?.remove(n).map(drop))).unwrap();
    db.sync().unwrap();
    let mut files = Snapshot::of(&fs);
    drop(db);
    files.file("dw")[BLOCK..].fill(0);
    files.0.retain(|(name, _)| name != "stamps");
    let now = files.file("data").clone();
    let mut quarantined = 0;
    for (page, old) in before.chunks_exact(PAGE_SIZE).enumerate().skip(CATALOGUE as usize + 1) {
        let range = page * PAGE_SIZE..(page + 1) * PAGE_SIZE;
        if old[4..6] != [3, 0] || now[range.clone()] == *old {
            continue;
        }
        let mut stale = files.clone();
        stale.file("data")[range].copy_from_slice(old);
        let db = open(&stale.restore()).unwrap_or_else(|error| panic!("page {page}: {error:?}"));
        if db.stats().recovery.quarantined == 0 {
            continue;
        }
        quarantined += 1;
        let named = db.examine().unwrap().damaged;
        assert!(matches!(&named[..], [one] if one.page.0 == page as u64), "{named:?}");
        assert!(named[0].why.contains("does not fit the log"), "{named:?}");
    }
    assert!(quarantined > 0);
}

/// The map says which pages are free. Rebuilt, it hands out none that is in use, and new tables find space.
#[test]
fn a_damaged_map_hands_out_no_page_in_use() {
    for kind in [Kind::Flip, Kind::Zero] {
        let (mut files, rows) = (killed(), expected_of_killed());
        damage(&mut files, MAP, kind);
        let in_file = files.file("data").len() as u64 / PAGE_SIZE as u64;
        let fs = files.restore();
        let db = open(&fs).unwrap();
        for round in 0..3 {
            db.run(|tx| {
                let table = tx.open(TableDef::<u64, &[u8]>::new("new"))?;
                (0..200).try_for_each(|n| table.insert(n, &wide(n, round)[..]).map(drop))
            })
            .unwrap();
            let report = db.check().unwrap();
            assert!(report.unused > 0 && report.unused < in_file, "{report:?}");
            assert_eq!(read_all(&db, &rows, "rebuilt"), Found::default());
            assert!(db.run(|tx| tx.drop_table("new")).unwrap());
            db.vacuum().unwrap();
        }
        drop(db);
        let db = open(&fs).unwrap();
        assert_eq!(db.stats().damage.pages, 0);
        db.check().unwrap();
        assert_eq!(read_all(&db, &rows, "again"), Found::default());
    }
}

/// A damaged leaf of the catalogue hides tables. The others exist, and none is created in place of a hidden one.
#[test]
fn a_damaged_leaf_of_the_catalogue_hides_its_tables_alone() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    fill(&db);
    db.close(Duration::ZERO).unwrap();
    let mut files = Snapshot::of(&fs);
    let data = files.file("data").clone();
    let is_leaf = |page: &[u8]| page[4..6] == [3, 0] && page[24..28] == 1_u32.to_le_bytes();
    let leaves: Vec<_> = (4..data.len() / PAGE_SIZE).filter(|at| is_leaf(&data[at * PAGE_SIZE..])).collect();
    assert!(leaves.len() > 1, "{leaves:?}");
    for &leaf in &leaves {
        let mut damaged = files.clone();
        damage(&mut damaged, leaf as u64, Kind::Flip);
        let db = open(&damaged.restore()).unwrap();
        let (mut there, mut hidden) = (0, 0);
        let first = |n| db.run(|tx| tx.open(TableDef::<u64, u64>::new(&many(n)))?.get(n)).map(|value| value == Some(n));
        let numbers = db.run(|tx| tx.open(NUMBERS)?.get(0)).map(|value| value == Some(0));
        for found in (0..MANY).map(first).chain([numbers]) {
            match found {
                Ok(is_right) => {
                    assert!(is_right);
                    there += 1;
                }
                Err(Error::Corrupted { place: Place::Page(page), .. }) => {
                    assert_eq!(page.0, leaf as u64);
                    hidden += 1;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        assert!(there > 0 && hidden > 0, "{there} there, {hidden} hidden");
        let create = |name: &str| db.run(|tx| tx.open(TableDef::<u64, u64>::new(name)).map(drop));
        assert!(matches!(create("0"), Err(Error::Corrupted { .. })), "its id may be that of a hidden one");
        assert!(matches!(create("zzz"), Err(Error::Corrupted { .. })));
        let absent = db.read().open(TableDef::<u64, u64>::new("absent")).map(drop);
        assert!(matches!(absent, Err(Error::Corrupted { .. })), "it may be hidden: {absent:?}");
    }
}

/// Prepared transactions outlive the loss of a page, and commit what is not on it.
#[test]
fn a_prepared_transaction_is_resolved_beside_a_damaged_page() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = open(&fs).unwrap();
    fill(&db);
    db.run(|tx| tx.open(PREPARED)?.insert(0, 0).map(drop)).unwrap();
    db.checkpoint().unwrap();
    let tx = db.begin();
    tx.open(PREPARED).unwrap().insert(1, 1).unwrap();
    let wides = tx.open(WIDE).unwrap();
    (2..60).step_by(5).for_each(|n| drop(wides.insert(n, &wide(n, 7)[..]).unwrap()));
    tx.prepare("one").unwrap();
    let files = Snapshot::of(&fs);
    drop(db);
    let mut lost = 0;
    for &(page, ..) in pages(&files).iter().filter(|&&(page, ..)| page != CATALOGUE).step_by(2) {
        for commits in [true, false] {
            let mut damaged = files.clone();
            damage(&mut damaged, page, Kind::Flip);
            let fs = damaged.restore();
            let what = format!("page {page}, commits: {commits}");
            let mut rows = expected(false);
            if commits {
                (2..60_u64).step_by(5).for_each(|n| {
                    rows.insert(("wide", n.to_be_bytes().to_vec()), wide(n, 7));
                });
            }
            for round in 0..3 {
                let db = open(&fs).unwrap_or_else(|error| panic!("{what}: {error:?}"));
                if round == 1 {
                    let resolved =
                        if commits { db.commit_prepared("one").map(drop) } else { db.rollback_prepared("one") };
                    resolved.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                }
                assert_eq!(db.prepared().unwrap().len(), usize::from(round == 0), "{what}");
                if round > 0 {
                    let found = read_all(&db, &rows, &what);
                    lost += u32::from(found.lost > 0);
                    let value = db.read().open(PREPARED).and_then(|table| table.get(1));
                    match value {
                        Ok(value) => assert_eq!(value, commits.then_some(1), "{what}"),
                        Err(error) => assert!(matches!(error, Error::Corrupted { .. }), "{what}: {error:?}"),
                    }
                }
            }
        }
    }
    assert!(lost > 10, "{lost}");
}

#[test]
fn what_is_quarantined_keeps_what_was_found_for_salvage() {
    let files = killed();
    let mut quarantined = 0;
    for &(page, ..) in pages(&files).iter().filter(|&&(page, ..)| page > CATALOGUE) {
        let mut files = files.clone();
        damage(&mut files, page, Kind::Flip);
        let at = page as usize * PAGE_SIZE;
        let before = files.file("data")[at..at + PAGE_SIZE].to_vec();
        let fs = files.restore();
        if open(&fs).unwrap().stats().recovery.quarantined == 0 {
            continue;
        }
        let after = Snapshot::of(&fs).file("data")[at..at + PAGE_SIZE].to_vec();
        assert_eq!(after[..4], crc32c(&after[4..]).to_le_bytes());
        assert!(after[4] == 4 && after[32..] == before[32..], "page {page}");
        quarantined += 1;
    }
    assert!(quarantined > 10, "{quarantined}");
}
