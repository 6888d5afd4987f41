//! Guards the promise that a write-back that fails for a while loses nothing in buffered mode, on a real file system.
//!
//! An ext4 lies in a file in a tmpfs. The blocks that the data file has reserved and not written are holes in that file. Another
//! file fills the tmpfs, so that the kernel cannot write back what goes there, and then gives the space back. The database starts
//! again, writes on, and takes checkpoints, which give up the log. Then the file system is mounted anew: what only the page cache
//! had is gone.
//!
//! The loop device takes requests of one block. A larger one that begins in front of a hole is written in part, and Linux 6.18
//! reports such a request as done: that medium would lie about its writes, which no database can mend.
//!
//! Needs root, mounts, `mkfs.ext4`, `findmnt`, `filefrag` and `fallocate`; without them it says so and is skipped.
//! `FORESHORE_WRITE_BACKS` sets the number of runs.

use foreshore::{Db, Device, Error, Options, TableDef};
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");
/// Bytes of a row.
const ROW: usize = 1500;
const WRITERS: u64 = 2;
/// Rows of a writer.
const KEYS: u64 = 700;

#[test]
fn a_failed_write_back_loses_nothing() {
    let runs = std::env::var("FORESHORE_WRITE_BACKS").map_or(3, |text| text.parse().expect("a number"));
    let mut failed = 0;
    for seed in 1..=runs {
        let bed = match Bed::new(seed) {
            Ok(bed) => bed,
            Err(why) => return eprintln!("a_failed_write_back_loses_nothing is skipped: {why}"),
        };
        failed += u64::from(run(&bed, seed).unwrap_or_else(|why| panic!("run {seed}: {why}")));
    }
    println!("{failed} of {runs} runs met a failure");
    assert!(failed > 0, "no write-back has failed");
}

/// One run. Returns whether a writer met an error.
fn run(bed: &Bed, seed: u64) -> Result<bool, String> {
    let mut writers: Vec<_> = (0..WRITERS).map(|number| Writer::new(number, seed)).collect();
    let said = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let db = bed.open().map_err(said("open"))?;
    write(&db, &mut writers, 100).map_err(said("load"))?;
    db.checkpoint().map_err(said("first checkpoint"))?;

    bed.punch_unwritten()?;
    let fill = bed.fill();
    let outcome = write(&db, &mut writers, 400).and_then(|()| db.checkpoint());
    fs::remove_file(fill).map_err(|error| error.to_string())?;
    let db = match start_again(bed, db, seed) {
        // A block of the file system itself could not be written.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::ReadOnlyFilesystem => {
            bed.mount_anew()?;
            bed.open()
        }
        started => started,
    };
    let db = db.map_err(|error| format!("open after {outcome:?}: {error}"))?;
    verify(&db, &mut writers).map_err(|why| format!("after {outcome:?}: {why}"))?;
    write(&db, &mut writers, 50).map_err(said("write on"))?;
    // Two: the log is given up by the second superblock behind it.
    (0..2).try_for_each(|_| db.checkpoint()).map_err(said("last checkpoints"))?;
    drop(db);

    bed.mount_anew()?;
    let db = bed.open().map_err(said("open what is on the medium"))?;
    verify(&db, &mut writers).map_err(|why| format!("on the medium, after {outcome:?}: {why}"))?;
    Ok(outcome.is_err())
}

/// Starts the database in the same process as its forerunner, which is still there, or behind it.
fn start_again(bed: &Bed, db: Db, seed: u64) -> Result<Db, Error> {
    if seed.is_multiple_of(2) {
        return db.reopen();
    }
    drop(db);
    bed.open()
}

/// What one writer has been told, and the transaction that it was told nothing of.
struct Writer {
    number: u64,
    random: Random,
    rows: BTreeMap<u64, u64>,
    doubtful: BTreeMap<u64, u64>,
}

impl Writer {
    fn new(number: u64, seed: u64) -> Self {
        Self { number, random: Random(seed << 8 | number), rows: BTreeMap::new(), doubtful: BTreeMap::new() }
    }

    fn transaction(&mut self, db: &Db) -> Result<(), Error> {
        let keys = 1 + self.random.below(4);
        let first = self.number * KEYS;
        self.doubtful = (0..keys).map(|_| (first + self.random.below(KEYS), self.random.below(1 << 40))).collect();
        db.run(|tx| {
            let rows = tx.open(ROWS)?;
            self.doubtful.iter().try_for_each(|(&key, &value)| rows.insert(key, &row(value)[..]).map(drop))
        })?;
        self.rows.append(&mut self.doubtful);
        Ok(())
    }
}

/// Lets each writer make `count` transactions or meet an error.
fn write(db: &Db, writers: &mut [Writer], count: u32) -> Result<(), Error> {
    thread::scope(|scope| {
        let threads = writers.iter_mut().map(|writer| {
            let work = move || (0..count).try_for_each(|_| writer.transaction(db));
            scope.spawn(work)
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).fold(Ok(()), Result::and)
    })
}

/// Checks the database and that each writer finds what it was told, and of the last transaction all or nothing.
fn verify(db: &Db, writers: &mut [Writer]) -> Result<(), String> {
    db.check().map_err(|error| format!("check: {error}"))?;
    let read = || -> Result<BTreeMap<u64, Vec<u8>>, Error> { db.read().open(ROWS)?.iter().collect() };
    let found = read().map_err(|error| format!("read: {error}"))?;
    for writer in writers {
        let own = found.range(writer.number * KEYS..(writer.number + 1) * KEYS);
        let mut rows = BTreeMap::new();
        for (&key, bytes) in own {
            let value = u64::from_le_bytes(*bytes.first_chunk().ok_or("a short row")?);
            if *bytes != row(value) {
                return Err(format!("row {key} is not one that was written"));
            }
            rows.insert(key, value);
        }
        let mut with = writer.rows.clone();
        with.append(&mut writer.doubtful);
        if rows != writer.rows && rows != with {
            let wrong = with.iter().filter(|&(key, value)| rows.get(key) != Some(value)).count();
            return Err(format!("writer {}: {wrong} of {} rows are not as acknowledged", writer.number, with.len()));
        }
        writer.rows = rows;
    }
    Ok(())
}

fn row(value: u64) -> Vec<u8> {
    let mut bytes = vec![value as u8; ROW];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

/// A tmpfs, and in it a file with an ext4.
struct Bed {
    tmpfs: PathBuf,
    ext4: PathBuf,
}

impl Bed {
    /// # Errors
    /// What is missing here.
    fn new(seed: u64) -> Result<Self, String> {
        if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
            return Err("only root mounts".into());
        }
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("write-back-{}-{seed}", std::process::id()));
        let bed = Self { tmpfs: base.join("tmpfs"), ext4: base.join("ext4") };
        for dir in [&bed.tmpfs, &bed.ext4] {
            fs::create_dir_all(dir).map_err(|error| error.to_string())?;
        }
        command("mount", &["-t", "tmpfs", "-o", "size=64m", "tmpfs", text(&bed.tmpfs)])?;
        let image = bed.tmpfs.join("image");
        fs::File::create(&image).and_then(|file| file.set_len(48 << 20)).map_err(|error| error.to_string())?;
        command("mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", "size=4", "-m", "0", "-E", "nodiscard", text(&image)])?;
        // Every block gets its space, so that only those fail that are taken out again, and the file system goes on.
        let mut file = fs::OpenOptions::new().write(true).open(&image).map_err(|error| error.to_string())?;
        fs::read(&image).and_then(|bytes| file.write_all(&bytes)).map_err(|error| error.to_string())?;
        bed.mount()?;
        Ok(bed)
    }

    fn mount(&self) -> Result<(), String> {
        command("mount", &["-o", "loop", text(&self.tmpfs.join("image")), text(&self.ext4)])?;
        let device = command("findmnt", &["-n", "-o", "SOURCE", text(&self.ext4)])?;
        let name = device.trim().trim_start_matches("/dev/");
        let limit = format!("/sys/block/{name}/queue/max_sectors_kb");
        fs::write(&limit, "4").map_err(|error| format!("{limit}: {error}"))
    }

    fn mount_anew(&self) -> Result<(), String> {
        command("umount", &[text(&self.ext4)])?;
        self.mount()
    }

    fn open(&self) -> Result<Db, Error> {
        let options = Options::new().memory_limit(8 << 20).segment_bytes(64 << 10).log_budget(512 << 10);
        options.device(Device::Buffered).open(self.ext4.join("db"))
    }

    /// Takes the space from blocks that the data file has reserved and not written.
    fn punch_unwritten(&self) -> Result<(), String> {
        let image = self.tmpfs.join("image");
        let mut punched = 0;
        for line in command("filefrag", &["-v", "-b4096", text(&self.ext4.join("db/data"))])?.lines() {
            // "   1:       96..     127:       8352..      8383:     32:             unwritten"
            let numbers: Vec<u64> = line.split([':', '.', ' ']).filter_map(|number| number.parse().ok()).collect();
            let (true, [_, _, _, first, _, count, ..]) = (line.contains("unwritten"), numbers.as_slice()) else {
                continue;
            };
            let [offset, len] = [first, count].map(|blocks| (blocks * 4096).to_string());
            command("fallocate", &["--punch-hole", "--offset", &offset, "--length", &len, text(&image)])?;
            punched += count;
        }
        if punched > 0 { Ok(()) } else { Err("the data file has no unwritten blocks".into()) }
    }

    /// Fills the tmpfs with a file of this name.
    fn fill(&self) -> PathBuf {
        let path = self.tmpfs.join("fill");
        let mut file = fs::File::create(&path).expect("a file in a tmpfs");
        for piece in [1 << 20, 1 << 12] {
            let bytes = vec![0xEE; piece];
            while file.write_all(&bytes).is_ok() {}
        }
        path
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Lazily: a database that a failed test has left open keeps the mount busy.
        for dir in [&self.ext4, &self.tmpfs] {
            let _ = command("umount", &["-l", text(dir)]);
        }
        let _ = fs::remove_dir_all(self.ext4.parent().expect("it lies in a directory"));
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this repository")
}

/// Runs a program and returns its output.
fn command(name: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(name).args(arguments).output().map_err(|error| format!("{name}: {error}"))?;
    let [out, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if output.status.success() { Ok(out) } else { Err(format!("{name} {}: {}", arguments.join(" "), said.trim())) }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
