//! Real file systems of 128 MiB that fill up: existing rows can be changed and removed, and writes resume by
//! themselves once there is space. Skipped, by name, if they cannot be mounted.

use crate::support::TempDir;
use foreshore::{Db, Error, Options, TableDef};
use std::{fs, path::PathBuf, process::Command};

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
const THREADS: u64 = 4;
const SIZE: u64 = 128 << 20;

/// A mounted file system, unmounted on drop.
struct Mount {
    point: PathBuf,
    _dir: TempDir,
}

impl Mount {
    /// `None`, with a word about it, where it cannot be mounted.
    fn new(kind: &str) -> Option<Self> {
        let dir = TempDir::new(&format!("full-{kind}"));
        let (image, point) = (dir.path().join("image"), dir.path().join("mount"));
        fs::create_dir(&point).unwrap();
        let is_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let is_mounted = if kind == "tmpfs" {
            let size = format!("size={SIZE}");
            is_done(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&point))
        } else {
            fs::File::create(&image).unwrap().set_len(SIZE).unwrap();
            is_done(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image))
                && is_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point))
        };
        if !is_mounted {
            println!("skipped: {kind} cannot be mounted here");
        }
        is_mounted.then_some(Self { point, _dir: dir })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.point).status();
    }
}

fn options() -> Options {
    Options::new().memory_limit(32 << 20).lab(|lab| lab.segment_bytes = 1 << 20).log_budget(8 << 20)
}

/// Inserts rows by some threads until each is refused. Returns the first key that each has not inserted.
fn fill(db: &Db, from: &[u64]) -> Vec<u64> {
    let insert_all = |thread: u64, first: u64| {
        for n in first.. {
            match db.run(|tx| tx.open(ROWS)?.insert(thread << 32 | n, &[n as u8; 2000][..]).map(drop)) {
                Ok(()) => {}
                Err(Error::DiskFull { .. }) => return n,
                Err(error) => panic!("{error:?}"),
            }
        }
        unreachable!("the disk is full at some time")
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..).zip(from).map(|(thread, &first)| scope.spawn(move || insert_all(thread, first))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Changes rows that are there, by all threads at once, without a refusal.
fn update(db: &Db, ends: &[u64]) {
    std::thread::scope(|scope| {
        for (thread, &end) in (0..).zip(ends) {
            scope.spawn(move || {
                for n in 0..2000 {
                    let key = thread << 32 | (n * 7 % end);
                    db.run(|tx| tx.open(ROWS)?.insert(key, &[n as u8; 2000][..]).map(drop)).unwrap();
                }
            });
        }
    });
}

fn remove(db: &Db, ends: &mut [u64], count: u64) {
    for (thread, end) in (0..).zip(ends) {
        for _ in 0..count {
            *end -= 1;
            assert!(db.run(|tx| tx.open(ROWS)?.remove(thread << 32 | *end)).unwrap().is_some());
        }
    }
}

fn fills_up_and_goes_on(kind: &str) {
    let Some(mount) = Mount::new(kind) else { return };
    let dir = mount.point.join("db");
    // What others have on the disk, and remove when it is full.
    let ballast = mount.point.join("ballast");
    fs::write(&ballast, vec![1; 24 << 20]).unwrap();
    let db = options().open(&dir).unwrap();
    for n in 0..2000 {
        db.run(|tx| tx.open(OTHERS)?.insert(n, &[n as u8; 2000][..]).map(drop)).unwrap();
    }
    let mut ends = fill(&db, &[0; THREADS as usize]);
    assert!(ends.iter().sum::<u64>() > 5000, "{ends:?}");
    // The log goes round.
    update(&db, &ends);
    remove(&db, &mut ends, 100);
    let db = reopened_while_full(db);
    // Rows come where rows were.
    let more = fill(&db, &ends);
    assert!(more.iter().sum::<u64>() > ends.iter().sum::<u64>() + 200, "{ends:?} {more:?}");
    ends = more;
    // The pages of a table that is dropped are used by others.
    assert!(db.run(|tx| tx.drop_table(OTHERS.name())).unwrap());
    db.vacuum().unwrap();
    let more = fill(&db, &ends);
    assert!(more.iter().sum::<u64>() > ends.iter().sum::<u64>() + 1000, "{ends:?} {more:?}");
    ends = more;
    // Room that others make is found without help.
    fs::remove_file(&ballast).unwrap();
    // A journal gives the blocks back when it is committed.
    assert!(Command::new("sync").arg("-f").arg(&mount.point).status().unwrap().success());
    let more = fill(&db, &ends);
    // The log first takes what it lacks.
    assert!(more.iter().sum::<u64>() > ends.iter().sum::<u64>() + 2000, "{ends:?} {more:?}");
    ends = more;
    update(&db, &ends);
    assert_eq!(db.stats().checkpoint.failures, 0);
    db.check().unwrap();
    drop(reopened_while_full(db));
}

fn reopened_while_full(db: Db) -> Db {
    let db = db.reopen().unwrap();
    db.check().unwrap();
    db
}

#[test]
fn a_tmpfs_fills_up_and_writes_go_on() {
    fills_up_and_goes_on("tmpfs");
}

#[test]
fn an_ext4_fills_up_and_writes_go_on() {
    fills_up_and_goes_on("ext4");
}
