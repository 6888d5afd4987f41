//! `buffer-miss`: how many pages threads read a second when most are not in memory, beside what the device gives.

use super::{
    Row,
    buffer_pool::{Counting, PoolKind, TestPool, page, reads},
    chart::{Axis, Panel, Plot},
    commits::Place,
    drive::{Counted, Span, Worker, drive},
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    repeat::{median, rounds},
    row::find,
};
use crate::random::Random;
use foreshore::Result;
use foreshore_base::{PageId, limits::PAGE_SIZE};
use foreshore_buffer::format::{blank_page, page_checksum};
use foreshore_io::{AlignedBuf, File};
use std::{fmt, hint::black_box, sync::Arc, thread, time::Duration};

/// The yardstick: threads that read the file and do nothing else.
const RAW: &str = "raw-direct-read";
/// Data over memory.
const MEMORY_RATIO: u64 = 8;
/// Pages written at a time while the file is made.
const CHUNK: u64 = 128;
/// Threads that fill a pool before it is measured.
const FILLERS: u64 = 16;

pub(super) struct BufferMiss;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pool(PoolKind),
    Raw,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(kind) => kind.fmt(f),
            Self::Raw => f.write_str(RAW),
        }
    }
}

/// Threads that read pages of one file.
#[derive(Clone, Copy, Debug)]
struct Point {
    subject: Subject,
    threads: usize,
    pages: u64,
    seed: u64,
}

/// What a point gave.
#[derive(Clone, Copy, Debug)]
struct Measured {
    counted: Counted,
    /// Reads over pages that came into frames, since the pool was opened.
    reads_per_miss: f64,
}

impl Measured {
    fn pages_read_per_s(&self) -> f64 {
        self.counted.bytes as f64 / PAGE_SIZE as f64 / self.counted.seconds
    }
}

impl Experiment for BufferMiss {
    fn name(&self) -> &'static str {
        "buffer-miss"
    }

    fn figure(&self) -> &'static str {
        "Nb-GCLOCK slide 22"
    }

    fn paper(&self) -> &'static str {
        "32 GB of data over a smaller memory: what a buffer manager adds to a read decides how far its throughput follows the \
         processors, and Nb-GCLOCK follows furthest."
    }

    fn differs(&self) -> &'static str {
        "Reads are uniform, so that seven in eight miss whatever the policy does, and the device is the limit. Its rows read the \
         same file past the page cache with as many threads and do nothing else."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let place = Place::new(lab.settings.device)?;
        lab.machine = place.machine()?;
        let threads = lab.threads(&[1, 8, 32], &[1, 8, 32]);
        let pages = lab.pages(65_536, 16_384);
        let seed = lab.settings.seed;
        let window = lab.settings.secs.unwrap_or(Duration::from_millis(lab.choose(1000, 400)));
        let span = Span { warm_up: Duration::from_millis(50).min(window), window };
        lab.configure("threads", threads.clone());
        lab.configure("pages", pages);
        lab.configure("page_bytes", PAGE_SIZE);
        lab.configure("distribution", "uniform");
        lab.configure("secs", window.as_secs_f64());
        let file = make(&place, pages)?;
        let subjects = PoolKind::ALL.map(Subject::Pool).into_iter().chain([Subject::Raw]);
        let mut points = Vec::new();
        for threads in threads {
            points.extend(subjects.clone().map(|subject| Point { subject, threads, pages, seed }));
        }
        let measured = rounds(lab, lab.choose(5, 3), &points, |point| point.measure(&file, span))?;
        let row = |(point, measured): (&Point, Vec<Measured>)| {
            let (median, keys) = median(&measured, Measured::pages_read_per_s);
            let repeats: Vec<f64> = keys.into_iter().map(f64::round).collect();
            // The worst of the rounds: it is a promise about every miss.
            let most = measured.iter().map(|measured| measured.reads_per_miss).fold(1.0, f64::max);
            Row::new()
                .with("policy", point.subject.to_string())
                .with("threads", point.threads)
                .with("memory_ratio", MEMORY_RATIO)
                .measured("pages_read_per_s", median.pages_read_per_s())
                .with("reads_per_miss", most)
                .with("repeats", repeats)
        };
        Ok(points.iter().zip(measured).map(row).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let (x, y) = (Axis::log("threads", 2), Axis::linear("pages read per second"));
        let plot = Plot { x, y, of: ["threads", "pages_read_per_s"] };
        plot.panels(rows, |_| "uniform".to_owned(), |row| row.text("policy").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let get = |policy: &str, threads: u64, field| {
            find(rows, &[("policy", policy.into()), ("threads", threads.into())], field)
        };
        let ratio = |policy: &str, threads: u64| {
            let (pool, raw) = (get(policy, threads, "pages_read_per_s")?, get(RAW, threads, "pages_read_per_s")?);
            let promise = format!("{policy}: pages read / {RAW}, {threads} threads");
            Some(Promise::new(promise, pool / raw, Bound::Least(0.8)))
        };
        let reads = |threads: u64| {
            let promise = format!("s3c: reads per miss, {threads} threads");
            Some(Promise::new(promise, get("s3c", threads, "reads_per_miss")?, Bound::Most(1.0)))
        };
        let of = |threads| [ratio("s3c", threads), ratio("nbgclock", threads), reads(threads)];
        [1, 8, 32].into_iter().flat_map(of).flatten().collect()
    }
}

/// A file of sound pages.
fn make(place: &Place, pages: u64) -> Result<Arc<dyn File>> {
    let file = place.create("pages")?;
    // Pages begin at number 1; what lies before the first is never read.
    let end = (1 + pages).next_multiple_of(CHUNK);
    file.allocate(0, PageId(end).offset())?;
    let mut buf = AlignedBuf::new(CHUNK as usize * PAGE_SIZE);
    for first in (0..end).step_by(CHUNK as usize) {
        for (pid, out) in (first..).map(PageId).zip(buf.chunks_exact_mut(PAGE_SIZE)) {
            out.copy_from_slice(&blank_page(pid));
            // The checksum comes first on a page.
            let checksum = page_checksum(out).to_le_bytes();
            out[..checksum.len()].copy_from_slice(&checksum);
        }
        file.write_at(&buf, PageId(first).offset())?;
    }
    file.sync()?;
    Ok(Arc::new(Counting(file)))
}

impl Point {
    fn measure(&self, file: &Arc<dyn File>, span: Span) -> Result<Measured> {
        let random = |thread| Random::new(self.seed, thread as u64);
        match self.subject {
            Subject::Pool(kind) => {
                let pool = kind.open_on(Arc::clone(file), (self.pages / MEMORY_RATIO) as usize)?;
                self.fill(&pool)?;
                let fixer = |thread| Fixer { pool: &pool, random: random(thread), pages: self.pages };
                let counted = drive((0..self.threads).map(fixer).collect(), span)?;
                let (pages_read, came_in) = pool.close();
                Ok(Measured { counted, reads_per_miss: pages_read as f64 / came_in as f64 })
            }
            Subject::Raw => {
                let file = &**file;
                let reader = |thread| {
                    let buf = AlignedBuf::new(PAGE_SIZE);
                    Reader { file, random: random(thread), pages: self.pages, buf }
                };
                let counted = drive((0..self.threads).map(reader).collect(), span)?;
                Ok(Measured { counted, reads_per_miss: 1.0 })
            }
        }
    }

    /// Fills the frames, so that every miss of the window needs one of another page.
    fn fill(&self, pool: &TestPool) -> Result<()> {
        let share = self.pages.div_ceil(MEMORY_RATIO * FILLERS);
        let fill = |filler: u64| {
            let numbers = filler * share..((filler + 1) * share).min(self.pages);
            numbers.into_iter().try_for_each(|number| pool.read(page(number)).map(drop))
        };
        thread::scope(|scope| {
            let fillers: Vec<_> = (0..FILLERS).map(|filler| scope.spawn(move || fill(filler))).collect();
            Ok(fillers.into_iter().try_for_each(|filler| filler.join().expect("a filler ends"))?)
        })
    }
}

struct Fixer<'a> {
    pool: &'a TestPool,
    random: Random,
    pages: u64,
}

impl Worker for Fixer<'_> {
    fn insert(&mut self) -> Result<usize> {
        let before = reads();
        let pid = page(self.random.below(self.pages));
        black_box(self.pool.read(pid)?);
        Ok((reads() - before) as usize * PAGE_SIZE)
    }
}

struct Reader<'a> {
    file: &'a dyn File,
    random: Random,
    pages: u64,
    buf: AlignedBuf,
}

impl Worker for Reader<'_> {
    fn insert(&mut self) -> Result<usize> {
        let pid = page(self.random.below(self.pages));
        let len = self.file.read_at(&mut self.buf, pid.offset())?;
        black_box(self.buf[len - 1]);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::Device;
    use foreshore_classics::replacement::ReplacementKind;

    #[test]
    fn every_miss_is_one_read_and_most_reads_miss() {
        let place = Place::new(Device::Null).unwrap();
        let file = make(&place, 1024).unwrap();
        let span = Span { warm_up: Duration::ZERO, window: Duration::from_millis(30) };
        for kind in [ReplacementKind::S3c, ReplacementKind::Lru].map(PoolKind::Engine) {
            let point = Point { subject: Subject::Pool(kind), threads: 2, pages: 1024, seed: 1 };
            let Measured { counted, reads_per_miss } = point.measure(&file, span).unwrap();
            assert_eq!(reads_per_miss, 1.0, "{kind}");
            let missed = counted.bytes as f64 / PAGE_SIZE as f64 / counted.records.max(1) as f64;
            assert!(counted.records < 1000 || (0.8..0.95).contains(&missed), "{kind}: {missed}");
        }
    }
}
