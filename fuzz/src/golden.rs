//! The databases that inputs change: small ones, built once a process.

use crate::layout::{self, Group, Place};
use crate::sums;
use foreshore::{Db, IndexDef, Options, Result, TableDef, Transaction, TxnOptions};
use foreshore_base::Uuid;
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Sim};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The directory of each database.
pub const DIR: &str = "/db";
/// The identity of each database, so that an input means the same in every process.
pub const UUID: Uuid = Uuid([7; 16]);
/// Numbers.
pub const NUMBERS: TableDef<'static, u64, i64> = TableDef::new("numbers");
/// Texts of many lengths.
pub const TEXTS: TableDef<'static, &str, &str> = TableDef::new("texts");
/// Documents at first.
pub const DOCUMENT_COUNT: u64 = 24;
/// Keys so long that the tree has three levels.
pub const LONG: TableDef<'static, &[u8], &[u8]> = TableDef::new("long");
/// Texts from short to long, with an index of each kind.
pub const DOCUMENTS: TableDef<'static, u64, &str> = TableDef::new("documents").with_indexes(&[&BY_TITLE, &BY_LENGTH]);
/// By the first bytes, which no two documents share.
pub const BY_TITLE: IndexDef<u64, &str, &str> =
    IndexDef::unique("by title", |_, text: &String, keys| keys.add(text.get(..8).unwrap_or(text)));
/// By the number of bytes.
pub const BY_LENGTH: IndexDef<u64, &str, u64> =
    IndexDef::new("by length", |_, text: &String, keys| keys.add(text.len() as u64));

/// Options that every database here is opened with: one thread, little memory, short waits.
#[must_use]
pub fn options(fs: Arc<dyn Fs>) -> Options {
    Options::new()
        .memory_limit(4 << 20)
        .lab(|lab| lab.segment_bytes = 64 << 10)
        .log_budget(256 << 10)
        .max_transactions(16)
        .lock_timeout(Duration::from_millis(1))
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(fs);
        })
}

/// A database at rest, and where its structures are.
#[derive(Debug)]
pub struct Golden {
    /// The disk. Inputs are tried on forks of it.
    pub disk: Sim,
    /// Path and bytes of each file.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// The structures in the files.
    pub places: Vec<Place>,
    /// The groups of the log, in the order of their numbers.
    pub groups: Vec<Group>,
}

/// The databases: one that was closed, and one that lost power with transactions under way.
pub fn all() -> &'static [Golden; 2] {
    static ALL: OnceLock<[Golden; 2]> = OnceLock::new();
    ALL.get_or_init(|| [closed(), crashed()].map(|disk| Golden::of(&disk)))
}

impl Golden {
    fn of(disk: &Sim) -> Self {
        let disk = disk.fork();
        disk.stop_recording();
        let mut files: Vec<_> = disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
        files.sort();
        let mut files: Vec<_> =
            files.into_iter().map(|(path, _)| (path.clone(), disk.contents(&path).expect("a file"))).collect();
        let (places, groups) = layout::of(&files);
        for place in places.iter().filter(|place| place.kind.has_uuid()) {
            files[place.file].1[place.at + 16..place.at + 32].copy_from_slice(&UUID.0);
        }
        sums::fix(&mut files, &places, &groups, &|_| true);
        for (path, bytes) in &files {
            disk.patch(path, 0, bytes).expect("the file is there");
        }
        // The checksums have changed, and with them the links between groups.
        let (places, groups) = layout::of(&files);
        Self { disk, files, places, groups }
    }

    /// The index of the file whose path ends in `name`.
    #[must_use]
    pub fn file(&self, name: &str) -> Option<usize> {
        self.files.iter().position(|(path, _)| path.ends_with(name))
    }
}

fn new_disk() -> (Sim, Db) {
    let disk = Sim::new(1);
    disk.stop_recording();
    let db = options(Arc::new(disk.clone())).open(DIR).expect("a new database");
    (disk, db)
}

/// Tables of all shapes, after a checkpoint.
fn fill(db: &Db) {
    db.run(|tx| {
        let numbers = tx.open(NUMBERS)?;
        (0..700).try_for_each(|n| numbers.insert(n, n as i64).map(drop))
    })
    .expect("there is space");
    db.run(|tx| {
        let (texts, long) = (tx.open(TEXTS)?, tx.open(LONG)?);
        for n in 0_usize..60 {
            texts.insert(&*text(n), &*"v".repeat(n * 29 % 700))?;
        }
        for n in 0..90_u8 {
            long.insert(&[&[n; 980][..], &[n]].concat()[..], &[n; 20][..])?;
        }
        let documents = tx.open(DOCUMENTS)?;
        (0..DOCUMENT_COUNT).try_for_each(|n| documents.insert_new(n, &*document(n)))?;
        tx.open(TableDef::<u64, u64>::new("dropped"))?.insert(1, 1).map(drop)
    })
    .expect("there is space");
    db.checkpoint().expect("there is space");
}

fn text(n: usize) -> String {
    format!("{n:02}{}", "x".repeat(n * 7 % 90))
}

/// Most are stored in their rows, some in a page and one in many pages.
#[must_use]
pub fn document(n: u64) -> String {
    let len = [10, 300, 3000, 9000, 10, 1900, 70_000, 2100][n as usize % 8];
    format!("{n:08}{}", "d".repeat(len))
}

/// Changes of every kind.
fn change(tx: &Transaction, from: u64) -> Result<()> {
    let (numbers, texts) = (tx.open(NUMBERS)?, tx.open(TEXTS)?);
    for n in from..from + 40 {
        numbers.remove(n)?;
        numbers.insert(n + 5000, -1)?;
        numbers.insert(n + 60, 7)?;
    }
    numbers.remove_range(from + 40..from + 60)?;
    let documents = tx.open(DOCUMENTS)?;
    // Several transactions are under way at once.
    let own = from / 100;
    documents.remove(own)?;
    documents.put(own + 8, &*document(from + 3))?;
    let savepoint = tx.savepoint()?;
    documents.put(own + 16, &*document(from + 6))?;
    texts.insert(&*text(from as usize), "back at a savepoint")?;
    tx.rollback_to(&savepoint)?;
    texts.insert(&*text(from as usize + 1), "changed").map(drop)
}

fn closed() -> Sim {
    let (disk, db) = new_disk();
    fill(&db);
    db.run(|tx| {
        change(tx, 100)?;
        tx.drop_table("dropped").map(drop)
    })
    .expect("there is space");
    db.close(Duration::ZERO).expect("it closes");
    disk
}

fn crashed() -> Sim {
    let (disk, db) = new_disk();
    fill(&db);
    db.run(|tx| {
        change(tx, 200)?;
        tx.open(TableDef::<u64, &str>::new("created"))?.insert(1, "one").map(drop)
    })
    .expect("there is space");
    db.run(|tx| tx.drop_table("dropped").map(drop)).expect("there is space");
    // Splits and merges.
    db.run(|tx| {
        let long = tx.open(LONG)?;
        (0..60_u8).try_for_each(|n| long.remove(&[&[n; 980][..], &[n]].concat()[..]).map(drop))?;
        (90..120_u8).try_for_each(|n| long.insert(&[n; 990][..], &[n; 20][..]).map(drop))
    })
    .expect("there is space");
    (0..50).for_each(|_| db.step());
    let in_doubt = db.begin_with(TxnOptions::new().label("in doubt"));
    change(&in_doubt, 300).and_then(|()| in_doubt.prepare("in doubt")).expect("there is space");
    let rolled_back = db.begin();
    change(&rolled_back, 400).and_then(|()| rolled_back.rollback()).expect("there is space");
    let loser = db.begin();
    change(&loser, 500).expect("there is space");
    db.sync().expect("there is space");
    let image = disk.crash_image(&Persist::All, 1);
    disk.power_off();
    drop(loser);
    image
}
