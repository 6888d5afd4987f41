//! `buffer-scale`: how many pages threads fix a second, all of them in memory.

use super::{
    Row,
    buffer_pool::{PoolKind, SCATTER, SKEW, TestPool, page},
    chart::{Axis, Panel, Plot},
    drive::{Counted, Span, Worker, drive},
    experiment::{Experiment, Lab},
    log_insert::span,
    promise::{Bound, Promise},
    repeat::{median, rounds},
    row::find,
};
use crate::random::{Random, Zipf};
use foreshore::Result;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::{AccessPattern, Pool};
use foreshore_classics::nbgclock;
use std::{fmt, hint::black_box};

/// The yardstick: pages in a vector.
const VEC: &str = "vec";
/// Places that are drawn before threads begin, a power of two, so that the measured time excludes drawing. Their cache
/// lines are twice what the largest cache holds.
const DRAWN: usize = 1 << 20;
/// Words of a page, each of eight bytes.
const WORDS: u64 = PAGE_SIZE as u64 / 8;

pub(super) struct BufferScale;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Pool(PoolKind),
    Vec,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(kind) => kind.fmt(f),
            Self::Vec => f.write_str(VEC),
        }
    }
}

/// Threads that read pages of one subject.
#[derive(Clone, Copy, Debug)]
struct Point {
    subject: Subject,
    zipf: bool,
    threads: usize,
    pages: u64,
    seed: u64,
}

impl Experiment for BufferScale {
    fn name(&self) -> &'static str {
        "buffer-scale"
    }

    fn figure(&self) -> &'static str {
        "Nb-GCLOCK slide 23"
    }

    fn paper(&self) -> &'static str {
        "All pages in memory, 1 to 64 hardware threads: Nb-GCLOCK is linear up to 64, the others with locks up to 16 at best."
    }

    fn differs(&self) -> &'static str {
        "Two cores cannot show where locks end to scale, so the contrast is that of one thread, two, and more threads than cores. A \
         page is fixed optimistically (nbgclock pins it), eight bytes at a place drawn with it are read and validated; vec reads the same places \
         through a bounds-checked vector of boxes. The pages are four times the largest cache, so both pay for misses of caches \
         and of translations."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 8, 32], &[1, 2, 32]);
        let pages = lab.pages(65_536, 16_384);
        let seed = lab.settings.seed;
        let span = span(lab);
        lab.configure("threads", threads.clone());
        lab.configure("pages", pages);
        lab.configure("skew", SKEW);
        let subjects = PoolKind::ALL.map(Subject::Pool).into_iter().chain([Subject::Vec]);
        let mut points = Vec::new();
        for subject in subjects {
            for zipf in [false, true] {
                points.extend(threads.iter().map(|&threads| Point { subject, zipf, threads, pages, seed }));
            }
        }
        let measured = rounds(lab, lab.choose(3, 1), &points, |point| point.measure(span))?;
        let row = |(point, measured): (&Point, Vec<Counted>)| {
            let (median, keys) = median(&measured, Counted::records_per_s);
            let repeats: Vec<f64> = keys.into_iter().map(f64::round).collect();
            Row::new()
                .with("policy", point.subject.to_string())
                .with("distribution", point.distribution())
                .with("threads", point.threads)
                .measured("ops_per_s", median.records_per_s())
                .with("repeats", repeats)
        };
        Ok(points.iter().zip(measured).map(row).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot =
            Plot { x: Axis::log("threads", 2), y: Axis::log("fixes per second", 10), of: ["threads", "ops_per_s"] };
        plot.panels(rows, |row| row.text("distribution").to_owned(), |row| row.text("policy").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let rate = |policy: &str, threads: usize| {
            let at = [("policy", policy.into()), ("distribution", "uniform".into()), ("threads", threads.into())];
            find(rows, &at, "ops_per_s")
        };
        let ratio = |policy: &str, over: usize, under: usize, least: f64| {
            let promise = format!("{policy}: {over} threads / {under}, uniform");
            Some(Promise::new(promise, rate(policy, over)? / rate(policy, under)?, Bound::Least(least)))
        };
        let cost = || {
            let promise = format!("s3c: time of a fix / {VEC}, 1 thread, uniform");
            Some(Promise::new(promise, rate(VEC, 1)? / rate("s3c", 1)?, Bound::Most(4.0)))
        };
        let scale =
            ["s3c", "nbgclock"].into_iter().flat_map(|policy| [ratio(policy, 2, 1, 1.8), ratio(policy, 32, 2, 0.9)]);
        scale.chain([cost()]).flatten().collect()
    }
}

impl Point {
    fn distribution(&self) -> &'static str {
        if self.zipf { "zipf" } else { "uniform" }
    }

    /// The places that threads read, over and over, each thread from another one on.
    fn drawn(&self) -> Vec<Drawn> {
        let (zipf, mut random) = (Zipf::new(self.pages, SKEW), Random::new(self.seed, 0));
        let mut draw = || {
            let number =
                if self.zipf { zipf.draw(&mut random) * SCATTER % self.pages } else { random.below(self.pages) };
            Drawn { number: number as u32, word: random.below(WORDS) as u32 }
        };
        (0..DRAWN).map(|_| draw()).collect()
    }

    fn measure(&self, span: Span) -> Result<Counted> {
        let drawn = self.drawn();
        let places = (0..self.threads).map(|thread| Places { drawn: &drawn, next: thread * (DRAWN / self.threads) });
        match self.subject {
            Subject::Pool(kind) => {
                // One frame more than pages: none is ever looked for.
                let pool = kind.open(self.pages as usize + 1)?;
                for number in 0..self.pages {
                    pool.read(page(number))?;
                }
                match &pool {
                    TestPool::Engine(pool) => drive(places.map(|places| Fixer { pool, places }).collect(), span),
                    TestPool::NbGClock(pool) => drive(places.map(|places| Pinner { pool, places }).collect(), span),
                }
            }
            Subject::Vec => {
                let pages: Vec<Box<[u8; PAGE_SIZE]>> =
                    (0..self.pages).map(|n| Box::new([n as u8; PAGE_SIZE])).collect();
                drive(places.map(|places| Indexer { pages: &pages, places }).collect(), span)
            }
        }
    }
}

/// Eight bytes of a page.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    number: u32,
    word: u32,
}

impl Drawn {
    fn offset(self) -> usize {
        8 * self.word as usize
    }
}

/// What a thread reads next.
struct Places<'a> {
    drawn: &'a [Drawn],
    next: usize,
}

impl Places<'_> {
    #[inline]
    fn next(&mut self) -> Drawn {
        let place = self.drawn[self.next % DRAWN];
        self.next += 1;
        place
    }
}

struct Fixer<'a> {
    pool: &'a Pool,
    places: Places<'a>,
}

impl Worker for Fixer<'_> {
    #[inline]
    fn insert(&mut self) -> Result<usize> {
        let place = self.places.next();
        let guard = self.pool.optimistic(page(u64::from(place.number)), AccessPattern::Random)?;
        black_box(guard.read_u64(place.offset()));
        assert!(guard.validate(), "nobody writes");
        Ok(8)
    }
}

struct Pinner<'a> {
    pool: &'a nbgclock::Pool,
    places: Places<'a>,
}

impl Worker for Pinner<'_> {
    #[inline]
    fn insert(&mut self) -> Result<usize> {
        let place = self.places.next();
        let guard = self.pool.fix(page(u64::from(place.number)))?;
        black_box(guard.read_u64(place.offset()));
        Ok(8)
    }
}

struct Indexer<'a> {
    pages: &'a [Box<[u8; PAGE_SIZE]>],
    places: Places<'a>,
}

impl Worker for Indexer<'_> {
    #[inline]
    fn insert(&mut self) -> Result<usize> {
        let place = self.places.next();
        let bytes = &self.pages[place.number as usize][place.offset()..place.offset() + 8];
        black_box(u64::from_le_bytes(bytes.try_into().expect("eight bytes")));
        Ok(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn every_subject_is_read_by_several_threads() {
        let span = Span { warm_up: Duration::ZERO, window: Duration::from_millis(20) };
        for subject in PoolKind::ALL.map(Subject::Pool).into_iter().chain([Subject::Vec]) {
            let counted = Point { subject, zipf: true, threads: 2, pages: 100, seed: 1 }.measure(span).unwrap();
            assert_eq!(counted.bytes % 8, 0, "{subject}");
        }
    }
}
