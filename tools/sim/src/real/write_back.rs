//! Write-backs that fail for a while, in buffered mode, on a real file system.
//!
//! An ext4 lies in a file in a tmpfs. The blocks that the data file has reserved and not written are holes in that
//! file. Another file fills the tmpfs, so that the kernel cannot write back what goes there, and then gives the space
//! back. The database starts again, in the same process as its forerunner or behind it, writes on, and takes
//! checkpoints, which give up the log. Then the file system is mounted anew: what only the page cache had is gone.
//!
//! The loop device takes requests of one block. Linux 6.18 writes a larger request that begins in front of a hole in
//! part, and reports it as done. No database can be safe on a medium that lies about its writes.

use super::asked::Asked;
use super::ledger::{Heard, Ledger};
use super::mounts::{Mounted, command, scratch, text};
use super::totals::Totals;
use super::work::{Shift, Told, work};
use crate::random::{Random, mixed};
use foreshore::{Db, Device, Error, Options};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// A shift that ends by its count of transactions.
const SHIFT: Duration = Duration::from_secs(60);

pub(super) fn run(asked: &Asked, totals: &mut Totals) -> Result<(), String> {
    let count = asked.count.unwrap_or(3);
    let base = scratch("write-back")?;
    for seed in asked.seed..asked.seed + count {
        let bed = match Bed::new(&base) {
            Ok(bed) => bed,
            Err(why) => {
                totals.skip("ext4", &why);
                break;
            }
        };
        let outcome = round(&bed, seed, totals);
        totals.round(outcome.clone().map(drop), &format!("--count 1 --seed {seed}"));
        totals.count(if outcome == Ok(true) { "met by a writer" } else { "met by no writer" });
    }
    let _ = fs::remove_dir(&base);
    Ok(())
}

/// One run. Returns whether a writer met an error.
fn round(bed: &Bed, seed: u64, totals: &mut Totals) -> Result<bool, String> {
    let mut random = Random::new(mixed(seed));
    let mut ledger = Ledger::default();
    let said = |what: &'static str| move |error: Error| format!("{what}: {error}");
    let db = bed.open().map_err(said("open"))?;
    let (heard, loaded) = write(&db, 40 + random.below(40))?;
    loaded.map_err(said("load"))?;
    ledger.verify(&db, &heard, seed)?;
    db.checkpoint().map_err(said("first checkpoint"))?;

    bed.punch_unwritten()?;
    let fill = bed.fill()?;
    let (heard, outcome) = write(&db, 150)?;
    let outcome = outcome.and_then(|()| db.checkpoint());
    totals.commits += heard.commits;
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
    ledger.verify(&db, &heard, seed).map_err(|why| format!("after {outcome:?}: {why}"))?;
    let (heard, written) = write(&db, 30)?;
    written.map_err(said("write on"))?;
    // Two: the log is given up by the second superblock behind it.
    (0..2).try_for_each(|_| db.checkpoint()).map_err(said("last checkpoints"))?;
    drop(db);

    bed.mount_anew()?;
    let db = bed.open().map_err(said("open what is on the medium"))?;
    ledger.verify(&db, &heard, seed).map_err(|why| format!("on the medium, after {outcome:?}: {why}"))?;
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

/// Lets each writer make `most` transactions or meet an error. Returns what they heard, and that error.
fn write(db: &Db, most: u64) -> Result<(Heard, Result<(), Error>), String> {
    let heard = Mutex::new((Heard::default(), Ok(())));
    let lock = || heard.lock().unwrap_or_else(PoisonError::into_inner);
    let report = |thread: u64, number: u64, told: Told| {
        let mut heard = lock();
        let noted = heard.0.note(thread, number, told);
        heard.1 = heard.1.clone().and(noted);
        Ok(())
    };
    let done = work(db, Shift { until: Instant::now() + SHIFT, most, shrinks: false, is_disk_bad: false }, &report);
    let (heard, noted) = lock().clone();
    noted.map(|()| (heard, done))
}

/// A tmpfs, and in it a file with an ext4.
struct Bed {
    ext4: PathBuf,
    tmpfs: Mounted,
}

impl Bed {
    /// # Errors
    /// What is missing here.
    fn new(base: &Path) -> Result<Self, String> {
        let bed = Self { ext4: base.join("on-top"), tmpfs: Mounted::new(base, "tmpfs", 64 * MIB)? };
        fs::create_dir_all(&bed.ext4).map_err(|error| error.to_string())?;
        let image = bed.image();
        fs::File::create(&image).and_then(|file| file.set_len(48 << 20)).map_err(|error| error.to_string())?;
        command("mkfs.ext4", &["-q", "-F", "-b", "4096", "-J", "size=4", "-m", "0", "-E", "nodiscard", text(&image)])?;
        // Every block gets its space, so that only those fail that are taken out again, and the file system goes on.
        let mut file = fs::OpenOptions::new().write(true).open(&image).map_err(|error| error.to_string())?;
        fs::read(&image).and_then(|bytes| file.write_all(&bytes)).map_err(|error| error.to_string())?;
        bed.mount()?;
        Ok(bed)
    }

    fn image(&self) -> PathBuf {
        self.tmpfs.dir.join("image")
    }

    fn mount(&self) -> Result<(), String> {
        command("mount", &["-o", "loop", text(&self.image()), text(&self.ext4)])?;
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
        let options =
            Options::new().memory_limit(8 << 20).lab(|lab| lab.segment_bytes = 64 << 10).log_budget(512 << 10);
        options.device(Device::Buffered).open(self.ext4.join("db"))
    }

    /// Takes the space from blocks that the data file has reserved and not written.
    fn punch_unwritten(&self) -> Result<(), String> {
        let image = self.image();
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

    /// Takes all space of the tmpfs.
    fn fill(&self) -> Result<PathBuf, String> {
        self.tmpfs.fill()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Lazily: a database that a failed round has left open keeps the mount busy.
        let _ = command("umount", &["-l", text(&self.ext4)]);
        let _ = fs::remove_dir(&self.ext4);
    }
}
