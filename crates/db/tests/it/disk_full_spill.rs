//! Real file systems that are full. A large transaction that spills is rolled back, and nothing is poisoned. The
//! directory opens repeatedly while it is full and writers run, and writes resume by themselves when there is space.
//! Skipped, by name, if they cannot be mounted.
//!
//! `FORESHORE_FULL_OPENS=100` opens each 100 times while it is full. `FORESHORE_FULL_MIB` is the size of each, 128
//! without it; XFS takes 320 at least.

use foreshore::{Db, Error, Options, TableDef, Transaction};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BLOBS: TableDef<u64, &[u8]> = TableDef::new("blobs");
const MIB: u64 = 1 << 20;
/// Rows of 1,000 bytes that are there before.
const ROWS: u64 = 8000;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A file system, unmounted on drop.
struct Small {
    at: PathBuf,
    size: u64,
    image: Option<PathBuf>,
}

fn ran(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

impl Small {
    /// A new one of that kind; `None` where it cannot be made or mounted.
    fn mount(kind: &str) -> Option<Self> {
        let least = if kind == "xfs" { 320 } else { 128 };
        let size = number("FORESHORE_FULL_MIB", least).max(least) * MIB;
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let at = base.join(format!("small-{kind}-{}", std::process::id()));
        fs::create_dir_all(&at).ok()?;
        let target = at.to_str()?.to_owned();
        if kind == "tmpfs" {
            let option = format!("size={size}");
            let made = ran("mount", &["-t", "tmpfs", "-o", &option, "tmpfs", &target]);
            return made.then_some(Self { at, size, image: None });
        }
        let image = base.join(format!("small-{kind}-{}.img", std::process::id()));
        fs::File::create(&image).and_then(|file| file.set_len(size)).ok()?;
        let name = image.to_str()?.to_owned();
        let made = ran(&format!("mkfs.{kind}"), &["-q", &name]) && ran("mount", &["-o", "loop", &name, &target]);
        let small = Self { at, size, image: Some(image) };
        if made {
            return Some(small);
        }
        small.remove();
        None
    }

    fn remove(&self) {
        let _ = fs::remove_dir(&self.at);
        self.image.iter().for_each(|image| drop(fs::remove_file(image)));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = ran("umount", &[&self.at.to_string_lossy()]);
        self.remove();
    }
}

fn open(small: &Small) -> Result<Db, Error> {
    let options = Options::new()
        .memory_limit(16 * MIB)
        .lab(|lab| lab.segment_bytes = MIB)
        .log_budget(8 * MIB)
        .lab(|lab| lab.undo_limit = Some(MIB));
    options.spill_limit(256 * MIB).open(small.at.join("db"))
}

/// Gives rows from `from` on another value of `len` bytes, each again and again, until the disk is full.
fn change_until_full(tx: &Transaction, len: usize) -> Error {
    for round in 2..u8::MAX {
        for n in 0..ROWS {
            if let Err(error) = tx.open(BLOBS).and_then(|table| table.insert(n, &vec![round; len][..]).map(drop)) {
                return error;
            }
        }
    }
    panic!("the disk was never full");
}

fn verify(db: &Db) {
    let reader = db.read();
    let table = reader.open(BLOBS).unwrap();
    for n in (0..ROWS).step_by(7) {
        assert_eq!(table.get(n).unwrap().as_deref(), Some(&[1; 1000][..]), "row {n}");
    }
}

/// Opens the directory repeatedly while the disk is full, each time while writers change rows and roll back, insert
/// and remove.
fn opens_under_load(small: &Small, mut db: Db, kind: &str) -> Db {
    let rest = small.at.join("rest");
    for round in 0..number("FORESHORE_FULL_OPENS", 4) {
        let _ = fs::write(&rest, vec![7; small.size as usize]);
        let (ended, tx) = (AtomicBool::new(false), db.begin());
        let outcome = |done: Result<(), Error>| match done {
            Ok(()) => {}
            Err(
                Error::DiskFull { .. } | Error::RollbackParked { .. } | Error::RolledBack | Error::LockTimeout { .. },
            ) => {}
            Err(Error::TransactionTooLarge { .. } | Error::UndoMemory { .. } | Error::Closed) => {}
            Err(error) => panic!("{kind}, open {round}: {error:?}"),
        };
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (db, ended) = (&db, &ended);
                scope.spawn(move || {
                    for n in 0.. {
                        let key = ROWS + 1 + thread * 1000 + n % 200;
                        outcome(match n % 3 {
                            2 => db.run(|tx| tx.open(BLOBS)?.remove(key - 1).map(drop)),
                            _ => db.run(|tx| tx.open(BLOBS)?.insert(key, &[n as u8; 700][..]).map(drop)),
                        });
                        if ended.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                });
            }
            let from = round * 37 % (ROWS - 300);
            let change = |n| tx.open(BLOBS)?.insert(n, &[3; 5][..]).map(drop);
            outcome((from..from + 300).try_for_each(change));
            ended.store(true, Ordering::Relaxed);
        });
        // As after a kill: the transaction is not rolled back before.
        db.close(Duration::ZERO).unwrap_or_else(|error| panic!("{kind}, close {round}: {error}"));
        drop(tx);
        db = open(small).unwrap_or_else(|error| panic!("{kind}, open {round} while full: {error}"));
        verify(&db);
        fs::remove_file(&rest).unwrap();
    }
    db.check().unwrap_or_else(|error| panic!("{kind}: {error}"));
    println!("{kind}: {} opens of a full file system of {} MiB", number("FORESHORE_FULL_OPENS", 4), small.size / MIB);
    db
}

fn on(kind: &str) {
    let Some(small) = Small::mount(kind) else {
        println!("skipped: a small {kind} cannot be mounted here");
        return;
    };
    let mut db = open(&small).unwrap();
    for from in (0..ROWS).step_by(100) {
        let fill = |tx: &Transaction| {
            let table = tx.open(BLOBS)?;
            (from..from + 100).try_for_each(|n| table.insert(n, &[1; 1000][..]).map(drop))
        };
        db.run(fill).unwrap();
    }
    // What a user has there, and can remove.
    let ballast = small.at.join("ballast");
    fs::write(&ballast, vec![7; 8 << 20]).unwrap();
    for len in [990, 1000] {
        let tx = db.begin();
        let refused = change_until_full(&tx, len);
        assert!(matches!(refused, Error::DiskFull { .. } | Error::TransactionTooLarge { .. }), "{kind}: {refused:?}");
        drop(tx);
        verify(&db);
        db.check().unwrap_or_else(|error| panic!("{kind}: {error}"));
        // Whatever is left is taken by others.
        let rest = small.at.join("rest");
        let _ = fs::write(&rest, vec![7; small.size as usize]);
        db = db.reopen().unwrap_or_else(|error| panic!("{kind}, reopened while full: {error}"));
        verify(&db);
        let tx = db.begin();
        let _ = tx.open(BLOBS).and_then(|table| (0..100).try_for_each(|n| table.insert(n, &[3; 5][..]).map(drop)));
        // As after a kill: the transaction is not rolled back before.
        db.close(Duration::ZERO).unwrap();
        drop(tx);
        db = open(&small).unwrap_or_else(|error| panic!("{kind}, opened while full: {error}"));
        verify(&db);
        fs::remove_file(&rest).unwrap();
    }
    db = opens_under_load(&small, db, kind);
    fs::remove_file(&ballast).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        match db.run(|tx| tx.open(BLOBS)?.insert(ROWS, &[1; 1000][..]).map(drop)) {
            Ok(()) => break,
            Err(Error::DiskFull { .. }) if std::time::Instant::now() < until => {}
            Err(error) => panic!("{kind}, with free space: {error}"),
        }
    }
    assert_eq!(db.stats().txn.parked, 0);
    db.close(Duration::ZERO).unwrap();
}

#[test]
fn a_full_tmpfs_stops_writers_and_nothing_else() {
    on("tmpfs");
}

#[test]
fn a_full_ext4_stops_writers_and_nothing_else() {
    on("ext4");
}

#[test]
fn a_full_xfs_stops_writers_and_nothing_else() {
    on("xfs");
}

#[test]
fn a_full_btrfs_stops_writers_and_nothing_else() {
    on("btrfs");
}
