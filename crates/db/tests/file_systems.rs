//! Promise: on file systems that write a changed block to a new place, a full disk stops writers and nothing more. How
//! files are written depends on what the file system supports, never on its current state.
//!
//! File systems are mounted for these tests. A test that cannot mount one says so, by name, and continues without it.

use foreshore::{Db, Error, Options, PageWrites, Result, TableDef};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
const MIB: u64 = 1 << 20;
/// Many times what the pool holds.
const COUNT: u64 = 10_000;
/// Rows of a transaction.
const BATCH: u64 = 100;

/// A mounted file system, with an image behind it or in memory.
struct Mounted {
    dir: PathBuf,
    image: PathBuf,
}

impl Mounted {
    /// Mounts a new file system of this kind, or says why there is none.
    fn new(kind: &str, test: &str, bytes: u64) -> Option<Self> {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let name = format!("{kind}-{test}-{}", std::process::id());
        let mounted = Self { dir: base.join(&name), image: base.join(name + ".img") };
        fs::create_dir_all(&mounted.dir).unwrap();
        File::create(&mounted.image).unwrap().set_len(bytes).unwrap();
        mounted.mount(kind, bytes).inspect_err(|why| eprintln!("{test}: skipped on {kind}: {why}")).ok()?;
        Some(mounted)
    }

    fn mount(&self, kind: &str, bytes: u64) -> Result<(), String> {
        let mut mount = Command::new("mount");
        if matches!(kind, "tmpfs" | "ramfs") {
            mount.args(["-t", kind, "-o", &format!("size={bytes}"), "none"]);
        } else {
            let force = if kind == "ext4" { "-F" } else { "-f" };
            run(Command::new(format!("mkfs.{kind}")).args(["-q", force]).arg(&self.image))?;
            mount.args(["-t", kind, "-o", "loop"]).arg(&self.image);
        }
        run(mount.arg(&self.dir))
    }

    /// Takes all space, in a file that is returned.
    fn fill(&self) -> PathBuf {
        let path = self.dir.join("filler");
        let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        for bytes in [MIB as usize, 4096, MIB as usize, 4096] {
            while file.write_all(&vec![7; bytes]).is_ok() {}
            // Space that was put aside may come back.
            let _ = file.sync_data();
        }
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.dir).output();
        let _ = fs::remove_dir(&self.dir);
        let _ = fs::remove_file(&self.image);
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(why) => Err(format!("{command:?}: {why}")),
    }
}

fn options() -> Options {
    Options::new().memory_limit(8 * MIB).lab(|lab| lab.segment_bytes = MIB).log_budget(8 * MIB)
}

fn row(n: u64, version: u64) -> Vec<u8> {
    [n.to_le_bytes(), version.to_le_bytes()].concat().repeat(60)
}

/// Gives the rows of a batch a version.
fn write(db: &Db, batch: u64, version: u64) -> Result<()> {
    db.run(|tx| {
        let rows = tx.open(ROWS)?;
        (batch * BATCH..(batch + 1) * BATCH).try_for_each(|n| rows.insert(n, &row(n, version)[..]).map(drop))
    })
}

fn verify(db: &Db, versions: &[u64], when: &str) {
    db.check().unwrap();
    let read = db.read();
    let rows: Vec<(u64, Vec<u8>)> = read.open(ROWS).unwrap().iter().collect::<Result<_>>().unwrap();
    assert_eq!(rows.len() as u64, COUNT, "{when}");
    for (n, found) in rows {
        assert!(found == row(n, versions[(n / BATCH) as usize]), "{when}: row {n} is of another version");
    }
}

/// Writes while the disk is full. `DiskFull` is an answer; whatever else goes wrong is not.
fn write_while_full(db: &Db, versions: &mut [u64], when: &str) {
    let mut random = 1_u64;
    for turn in 0..80 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let batch = (random >> 33) % (COUNT / BATCH);
        let next = versions[batch as usize] + 1;
        match write(db, batch, next) {
            Ok(()) => versions[batch as usize] = next,
            Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("{when}, write {turn}: {error}"),
        }
        if turn % 20 == 19 {
            match db.checkpoint() {
                Ok(()) | Err(Error::DiskFull { .. }) => {}
                Err(error) => panic!("{when}, checkpoint after write {turn}: {error}"),
            }
        }
    }
}

#[test]
fn a_full_disk_that_copies_on_write_poisons_nothing_and_keeps_what_was_acknowledged() {
    for kind in ["xfs", "btrfs"] {
        let Some(mounted) = Mounted::new(kind, "full", 320 * MIB) else { continue };
        let dir = mounted.dir.join("db");
        let db = options().open(&dir).unwrap();
        let mut versions = vec![0; (COUNT / BATCH) as usize];
        for batch in 0..COUNT / BATCH {
            write(&db, batch, 0).unwrap();
        }
        db.checkpoint().unwrap();
        let before = db.stats().pool;
        println!("{kind}: whole writes offered: {}, used: {}", before.whole_writes, before.page_writes);
        let filler = mounted.fill();
        write_while_full(&db, &mut versions, kind);
        let full = db.stats().pool;
        assert!(full.pages_written > before.pages_written + 100, "{kind}: {before:?} {full:?}");
        println!("{kind}: after the disk was full: {}", full.page_writes);
        assert_ne!(full.page_writes, PageWrites::Plain);
        verify(&db, &versions, "while the disk is full");
        // It opens while the disk is full, after an orderly end and without one.
        drop(db);
        let db = options().open(&dir).unwrap_or_else(|error| panic!("{kind}: {error}"));
        write_while_full(&db, &mut versions, kind);
        let open = db.begin();
        let _ = db.close(Duration::ZERO);
        let db = options().open(&dir).unwrap_or_else(|error| panic!("{kind}: {error}"));
        drop(open);
        verify(&db, &versions, "after reopening");
        fs::remove_file(filler).unwrap();
        for (batch, version) in (0..).zip(&mut versions) {
            *version += 1;
            write(&db, batch, *version).unwrap_or_else(|error| panic!("{kind}, with space again: {error}"));
        }
        db.checkpoint().unwrap();
        verify(&db, &versions, "with space again");
    }
}

#[test]
fn btrfs_is_asked_to_write_files_in_place() {
    let Some(mounted) = Mounted::new("btrfs", "in-place", 320 * MIB) else { return };
    let dir = mounted.dir.join("db");
    let db = options().open(&dir).unwrap();
    write(&db, 0, 0).unwrap();
    let names = Command::new("find").arg(&dir).args(["-type", "f"]).output().unwrap();
    let names = String::from_utf8(names.stdout).unwrap();
    let mut checked = 0;
    for path in names.lines().filter(|path| fs::metadata(path).unwrap().len() > 0) {
        let Ok(output) = Command::new("lsattr").arg(path).output() else {
            return eprintln!("btrfs_is_asked_to_write_files_in_place: skipped: no lsattr");
        };
        let flags = String::from_utf8(output.stdout).unwrap();
        assert!(flags.split(' ').next().is_some_and(|flags| flags.contains('C')), "{flags}");
        checked += 1;
    }
    assert!(checked >= 4, "{names}");
}

fn backend(dir: &Path) -> Result<String> {
    options().open(dir).map(|db| db.stats().backend)
}

#[test]
fn buffered_is_chosen_where_direct_is_refused() {
    let Some(mounted) = Mounted::new("ramfs", "refuses", 64 * MIB) else { return };
    let dir = mounted.dir.join("db");
    for when in ["new", "existing"] {
        assert_eq!(backend(&dir).unwrap(), "buffered", "{when}");
    }
}

#[test]
fn a_full_or_read_only_disk_changes_nothing_about_the_way_to_write() {
    let Some(mounted) = Mounted::new("ext4", "choice", 64 * MIB) else { return };
    let dir = mounted.dir.join("db");
    assert_eq!(backend(&dir).unwrap(), "direct");
    let new = mounted.dir.join("new");
    fs::create_dir(&new).unwrap();
    let filler = mounted.fill();
    assert_eq!(backend(&dir).unwrap(), "direct", "full");
    assert!(matches!(backend(&new), Err(Error::DiskFull { .. })));
    fs::remove_file(filler).unwrap();
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(&mounted.dir)).unwrap();
    for dir in [&dir, &new] {
        match backend(dir) {
            Err(Error::Io { source, .. }) => assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem),
            other => panic!("{}: {other:?}", dir.display()),
        }
    }
    run(Command::new("mount").args(["-o", "remount,rw"]).arg(&mounted.dir)).unwrap();
    assert_eq!(backend(&dir).unwrap(), "direct");
}
