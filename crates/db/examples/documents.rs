//! Documents of about 200 KB. Two threads put, replace and delete them, each with a durable commit, and one thread
//! reads them in parts. Each line shows the time since the last: files, memory, and how long operations took.
//!
//! ```text
//! cargo run --release -p foreshore --example documents -- [SECONDS [DOCUMENTS [MEMORY_MIB]]]
//! ```

use foreshore::{Db, Error, Options, TableDef};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Documents by number. Each repeats one byte.
const DOCUMENTS: TableDef<u64, &[u8]> = TableDef::new("documents");
/// Bytes of a document: between half of it and one and a half.
const MEAN: u64 = 200_000;
const MIB: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().expect("a number"));
    let mut next = |default: u64| args.next().unwrap_or(default);
    let (seconds, count, memory) = (next(1), next(100), next(64));
    let dir = std::env::temp_dir().join(format!("foreshore-documents-{}", std::process::id()));
    let db = Options::new().memory_limit(memory * MIB).open(&dir)?;
    println!("{seconds} s, {count} documents of {MEAN} bytes, half of them there, memory limit {memory} MiB");
    println!(
        "      s  MiB live  data  free   log  resident  put/s  ms p50    p99    max  read/s  ms p50    p99    max"
    );
    let (is_over, puts, reads) = (AtomicBool::new(false), Latencies::default(), Latencies::default());
    std::thread::scope(|scope| {
        let workers: Vec<_> = [0, 1, 2]
            .map(|seed| {
                let (db, is_over, puts, reads) = (&db, &is_over, &puts, &reads);
                scope.spawn(move || {
                    let mut random = Random(seed);
                    while !is_over.load(Ordering::Relaxed) {
                        if seed < 2 {
                            write(db, count, &mut random, puts)?
                        } else {
                            read(db, count, &mut random, reads)?
                        }
                    }
                    Ok::<_, Error>(())
                })
            })
            .into_iter()
            .collect();
        let (began, every) = (Instant::now(), Duration::from_millis(100 * seconds));
        let mut shown = began;
        while began.elapsed() < Duration::from_secs(seconds) && !workers.iter().any(|worker| worker.is_finished()) {
            std::thread::sleep(every);
            let now = Instant::now();
            show(&db, &dir, (now - began, now - shown), &puts, &reads)?;
            shown = now;
        }
        is_over.store(true, Ordering::Relaxed);
        workers.into_iter().try_for_each(|worker| worker.join().expect("no thread panics"))
    })?;
    let freed = db.vacuum()?;
    db.check()?;
    println!(
        "The check finds no damage. The vacuum has cut off {} MiB, {} MiB are left.",
        freed / MIB,
        data(&dir) / MIB
    );
    db.close(Duration::MAX)?;
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("remove", dir, error))
}

/// Puts, replaces or deletes a document.
fn write(db: &Db, count: u64, random: &mut Random, took: &Latencies) -> Result<(), Error> {
    let (number, byte) = (random.below(count), random.below(256) as u8);
    let document = vec![byte; (MEAN / 2 + random.below(MEAN)) as usize];
    let began = Instant::now();
    db.run(|tx| {
        let documents = tx.open(DOCUMENTS)?;
        if byte < 128 { documents.put(number, &*document) } else { documents.remove(number).map(drop) }
    })?;
    took.add(began);
    Ok(())
}

/// Reads a document in parts and checks its bytes.
fn read(db: &Db, count: u64, random: &mut Random, took: &Latencies) -> Result<(), Error> {
    let began = Instant::now();
    let tx = db.read();
    let Some(mut reader) = tx.open(DOCUMENTS)?.get_reader(random.below(count))? else { return Ok(()) };
    let (mut part, mut first) = ([0; 32 << 10], None);
    loop {
        let read = reader.read(&mut part).map_err(|error| Error::io("read", "a document", error))?;
        if read == 0 {
            break;
        }
        let first = *first.get_or_insert(part[0]);
        assert!(part[..read].iter().all(|&byte| byte == first), "a document is a mixture of two");
    }
    took.add(began);
    Ok(())
}

/// Prints a line about the time `last` that has passed since the line before.
fn show(
    db: &Db,
    dir: &Path,
    (all, last): (Duration, Duration),
    puts: &Latencies,
    reads: &Latencies,
) -> Result<(), Error> {
    let live = db.read().open(DOCUMENTS)?.stats()?.row_bytes;
    let free = db.stats().space.free_pages * 8192;
    let [live, data, free, log, resident] =
        [live, data(dir), free, size(&dir.join("log")), resident()].map(|n| n / MIB);
    print!("{:7.1}  {live:8}  {data:4}  {free:4}  {log:4}  {resident:8}", all.as_secs_f64());
    for took in [puts, reads] {
        let mut took = std::mem::take(&mut *took.0.lock().expect("no thread panics"));
        took.sort_unstable();
        let at = |share: usize| took.get((took.len() * share / 100).min(took.len().saturating_sub(1)));
        let ms = |share| at(share).map_or(0.0, |took| took.as_secs_f64() * 1e3);
        let per_second = took.len() as f64 / last.as_secs_f64();
        print!("  {per_second:5.0}  {:6.1} {:6.1} {:6.1}", ms(50), ms(99), ms(100));
    }
    println!();
    Ok(())
}

/// How long operations took since the last line.
#[derive(Default)]
struct Latencies(Mutex<Vec<Duration>>);

impl Latencies {
    fn add(&self, began: Instant) {
        self.0.lock().expect("no thread panics").push(began.elapsed());
    }
}

/// Returns the bytes of the data file.
fn data(dir: &Path) -> u64 {
    std::fs::metadata(dir.join("data")).map_or(0, |file| file.len())
}

/// Returns the bytes of the files in a directory.
fn size(dir: &PathBuf) -> u64 {
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

/// Returns the bytes of memory that the process has in use; 0 where the system does not tell.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// SplitMix64.
struct Random(u64);

impl Random {
    const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}
