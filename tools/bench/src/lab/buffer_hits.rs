//! `buffer-hits`: how often reads by Zipf's law find their page in memory, beside scans.

use super::{
    Row,
    buffer_pool::{PoolKind, SCATTER, SKEW, page, ratio, reads},
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    promise::{Bound, Promise},
    row::find,
};
use crate::random::{Random, Zipf};
use foreshore::Result;
use std::time::Instant;

pub(super) struct BufferHits;

/// One pool and what reads it.
#[derive(Clone, Copy, Debug)]
struct Point {
    kind: PoolKind,
    pages: u64,
    cache_percent: u64,
    scan_percent: u64,
    /// Page accesses per page of the data, before the window and in it.
    laps: u64,
    seed: u64,
}

/// What happened in the window.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    accesses: u64,
    hits: u64,
    point_accesses: u64,
    point_hits: u64,
    seconds: f64,
}

impl Experiment for BufferHits {
    fn name(&self) -> &'static str {
        "buffer-hits"
    }

    fn figure(&self) -> &'static str {
        "Nb-GCLOCK slides 21-22"
    }

    fn paper(&self) -> &'static str {
        "Zipf 80/20 with 20 % of sequential scans, 32 GB of data, 64 hardware threads: at a hit ratio of just under 60 % the \
         throughput of Nb-GCLOCK is above that of GCLOCK, 2Q and LRU, the more so the more processors there are."
    }

    fn differs(&self) -> &'static str {
        "The ratios of the policies are what is looked for, so one thread reads pages that need no disk. A scan goes round all \
         pages in order, one page between two others; the pool is not told that it is a scan, as it is by a long range of the engine. What one loses between no scans \
         and some is all that telling it could win."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let (pages, laps) = (lab.pages(100_000, 10_000), lab.choose(10, 5));
        let caches: &[u64] = lab.choose(&[5, 10, 20], &[10]);
        lab.configure("pages", pages);
        lab.configure("threads", 1);
        lab.configure("skew", SKEW);
        lab.configure("accesses", pages * laps);
        let mut points = Vec::new();
        for &cache_percent in caches {
            for scan_percent in [0, 20, 50] {
                let seed = lab.settings.seed;
                points.extend(PoolKind::ALL.map(|kind| Point { kind, pages, cache_percent, scan_percent, laps, seed }));
            }
        }
        lab.progress.phase("points", points.len() as u64);
        let mut rows = Vec::new();
        for point in points {
            let counted = point.measure()?;
            let row = Row::new()
                .with("policy", point.kind.to_string())
                .with("cache_fraction", point.cache_percent as f64 / 100.0)
                .with("scan_fraction", point.scan_percent as f64 / 100.0)
                .with("hit_ratio", ratio(counted.point_hits, counted.point_accesses))
                .with("hit_ratio_all", ratio(counted.hits, counted.accesses));
            rows.push(row.measured("ops_per_s", counted.accesses as f64 / counted.seconds));
            lab.progress.at(rows.len() as u64);
        }
        Ok(rows)
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot {
            x: Axis::linear("memory / data"),
            y: Axis::linear("hit ratio of point accesses"),
            of: ["cache_fraction", "hit_ratio"],
        };
        let title = |row: &Row| format!("{:.0} % scans", 100.0 * row.number("scan_fraction").unwrap_or_default());
        plot.panels(rows, title, |row| row.text("policy").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let ratio = |policy: &str, scans: f64| {
            let at = [("policy", policy.into()), ("cache_fraction", 0.1.into()), ("scan_fraction", scans.into())];
            find(rows, &at, "hit_ratio")
        };
        let points = |policy: &str| Some(100.0 * (ratio(policy, 0.2)? - ratio("gclock", 0.2)?));
        let above = points("s3c").map(|points| {
            let promise = "10 % memory, 20 % scans: points of s3c above gclock";
            Promise::new(promise, points, Bound::Least(8.0))
        });
        let beside = points("nbgclock").map(|points| {
            let promise = "10 % memory, 20 % scans: points between nbgclock and gclock";
            Promise::new(promise, points.abs(), Bound::Most(1.0))
        });
        let lost = || {
            let promise = "10 % memory: points that s3c loses to 20 % scans";
            Some(Promise::new(promise, 100.0 * (ratio("s3c", 0.0)? - ratio("s3c", 0.2)?), Bound::Most(2.0)))
        };
        above.into_iter().chain(beside).chain(lost()).collect()
    }
}

impl Point {
    fn measure(&self) -> Result<Counted> {
        let pool = self.kind.open((self.pages * self.cache_percent / 100) as usize)?;
        let zipf = Zipf::new(self.pages, SKEW);
        let mut random = Random::new(self.seed, 0);
        let mut scanned = 0;
        let mut counted = Counted::default();
        let accesses = self.pages * self.laps;
        let mut begun = Instant::now();
        for n in 0..2 * accesses {
            if n == accesses {
                (counted, begun) = (Counted::default(), Instant::now());
            }
            let scan = random.below(100) < self.scan_percent;
            let number = if scan {
                scanned = (scanned + 1) % self.pages;
                scanned
            } else {
                zipf.draw(&mut random) * SCATTER % self.pages
            };
            let before = reads();
            pool.read(page(number))?;
            let hit = u64::from(reads() == before);
            counted.accesses += 1;
            counted.hits += hit;
            if !scan {
                counted.point_accesses += 1;
                counted.point_hits += hit;
            }
        }
        counted.seconds = begun.elapsed().as_secs_f64();
        Ok(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_classics::replacement::ReplacementKind;

    #[test]
    fn nbgclock_hits_about_as_often_as_gclock() {
        let [nb, gclock] = [PoolKind::NbGClock, PoolKind::Engine(ReplacementKind::GCLOCK)].map(|kind| point(kind, 20));
        assert!((nb - gclock).abs() <= 0.01, "{nb} {gclock}");
    }

    fn point(kind: PoolKind, scan_percent: u64) -> f64 {
        let point = Point { kind, pages: 4000, cache_percent: 10, scan_percent, laps: 6, seed: 1 };
        let Counted { accesses, hits, point_accesses, point_hits, .. } = point.measure().unwrap();
        assert!(accesses == 24_000 && hits >= point_hits && point_accesses <= accesses);
        ratio(point_hits, point_accesses)
    }

    #[test]
    fn scans_cost_lru_more_hits_than_s3c() {
        let [lru, s3c] = [ReplacementKind::Lru, ReplacementKind::S3c]
            .map(PoolKind::Engine)
            .map(|kind| [point(kind, 0), point(kind, 50)]);
        assert!(lru[0] - lru[1] > 0.05, "{lru:?}");
        assert!(s3c[0] - s3c[1] < (lru[0] - lru[1]) / 2.0 && s3c[1] > lru[1] + 0.05, "{lru:?} {s3c:?}");
    }
}
