//! `log-skew`: what a few large records among small ones do to the others.

use super::{
    Bound, Promise, Row,
    chart::{Axis, Panel, Plot},
    drive::{Counted, Span, Worker, drive},
    experiment::{Experiment, Lab},
    log_insert::{RECORD, describe, rates, repeats, span},
    repeat::{median, rounds},
    row::find,
    subject::{HEADER, built, discarding, payload},
};
use crate::random::Random;
use foreshore::{Error, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_wal::{Dep, Log, LogOptions, Record, Session};

const BUFFERS: [&str; 4] = ["hybrid", "delegated", "faa", "lanes"];
/// With the header.
const OUTLIERS: [usize; 8] = [48, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10];
const QUICK_OUTLIERS: [usize; 5] = [48, 1 << 10, 8 << 10, 64 << 10, 256 << 10];
/// Small records for each outlier, on average.
const SMALL_PER_OUTLIER: u64 = 60;

pub(super) struct LogSkew;

impl Experiment for LogSkew {
    fn name(&self) -> &'static str {
        "log-skew"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 11"
    }

    fn paper(&self) -> &'static str {
        "One outlier for every 60 records of 120 bytes. Up to outliers of about 8 KiB the hybrid (CD) is some 10 % ahead of its \
         delegating variant (CDME). Beyond, records behind an outlier wait for its copy in CD, and CDME, which hands their \
         release over, reaches up to twice its throughput above 64 KiB."
    }

    fn differs(&self) -> &'static str {
        "Two threads. Outliers come after 0 to 120 small records, 60 on average, drawn by each thread for itself. faa and lanes take what exceeds their \
         largest record as fragments, which others may come between; the papers' buffers take it whole, up to a quarter of \
         the ring. Bandwidth counts an outlier once, without the headers of its fragments."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[2], &[2]);
        let outliers: &[usize] = lab.choose(&OUTLIERS, &QUICK_OUTLIERS);
        let options = LogOptions::default();
        let span = span(lab);
        lab.configure("threads", threads.clone());
        lab.configure("record_bytes", RECORD);
        lab.configure("outlier_bytes", outliers.to_vec());
        lab.configure("small_per_outlier", SMALL_PER_OUTLIER);
        describe(lab, &options);
        let mut points = Vec::new();
        for &threads in &threads {
            for &outlier in outliers {
                let point = |buffer| Mixed { buffer, threads, outlier, seed: lab.settings.seed };
                points.extend(built(&BUFFERS).into_iter().map(point));
            }
        }
        let measured = rounds(lab, repeats(lab), &points, |point| point.measure(&options, span))?;
        Ok(points.iter().zip(measured).map(|(point, measured)| point.row(measured)).collect())
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot {
            x: Axis::log("bytes of an outlier", 4),
            y: Axis::linear("GB/s of records"),
            of: ["outlier_bytes", "gb_per_s"],
        };
        let title = |row: &Row| {
            let threads = row.number("threads").unwrap_or_default();
            format!("{threads} threads, one outlier for every 60 records of 120 bytes")
        };
        plot.panels(rows, title, |row| row.text("buffer").to_owned())
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let mut promises = Vec::new();
        for outlier in [64 << 10, 256 << 10] {
            let rate = |buffer: &str| {
                let values = [("buffer", buffer.into()), ("threads", 2.into()), ("outlier_bytes", outlier.into())];
                find(rows, &values, "gb_per_s")
            };
            for (over, under, least) in [("delegated", "hybrid", 1.3), ("lanes", "delegated", 1.0)] {
                if let (Some(a), Some(b)) = (rate(over), rate(under)) {
                    let promise = format!("2 threads, {} KiB outliers: {over} / {under}", outlier >> 10);
                    promises.push(Promise::new(promise, a / b, Bound::Least(least)));
                }
            }
        }
        promises
    }
}

struct Mixed {
    buffer: BufferKind,
    threads: usize,
    outlier: usize,
    seed: u64,
}

impl Mixed {
    /// What was counted, or what refused the outliers.
    fn measure(&self, options: &LogOptions, span: Span) -> Result<std::result::Result<Counted, String>> {
        let log = discarding(&LogOptions { buffer: self.buffer.maker(), ..options.clone() })?;
        let workers: Result<Vec<Mixer>> = (0..self.threads).map(|thread| Mixer::new(&log, self, thread)).collect();
        match drive(workers?, span) {
            Ok(counted) => Ok(Ok(counted)),
            Err(e @ Error::ValueTooLarge { .. }) => Ok(Err(e.to_string())),
            Err(e) => Err(e),
        }
    }

    fn row(&self, measured: Vec<std::result::Result<Counted, String>>) -> Row {
        let row = Row::new()
            .with("buffer", self.buffer.to_string())
            .with("threads", self.threads)
            .with("record_bytes", RECORD)
            .with("outlier_bytes", self.outlier);
        match measured.into_iter().collect::<std::result::Result<Vec<Counted>, String>>() {
            Ok(counted) => {
                let (median, keys) = median(&counted, Counted::records_per_s);
                rates(row, &median, keys)
            }
            Err(refused) => row.with("refused", refused),
        }
    }
}

/// Appends small records and now and then an outlier.
struct Mixer {
    session: Session,
    small: Vec<u8>,
    outlier: Vec<u8>,
    random: Random,
    /// Small records until the next outlier.
    left: u64,
}

impl Mixer {
    fn new(log: &Log, mixed: &Mixed, thread: usize) -> Result<Self> {
        let mut random = Random::new(mixed.seed, thread as u64);
        let left = gap(&mut random);
        let (small, outlier) = (payload(RECORD - HEADER), payload(mixed.outlier - HEADER));
        Ok(Self { session: log.session()?, small, outlier, random, left })
    }
}

/// Small records before the next outlier: 0 to 120, each as likely, 60 on average.
fn gap(random: &mut Random) -> u64 {
    random.below(2 * SMALL_PER_OUTLIER + 1)
}

impl Worker for Mixer {
    fn insert(&mut self) -> Result<usize> {
        let Some(left) = self.left.checked_sub(1) else {
            self.left = gap(&mut self.random);
            self.session.append_large(Record { tag: 1, flags: 0, parts: &[&self.outlier] }, Dep::none())?;
            return Ok(Session::cost(self.outlier.len()));
        };
        self.left = left;
        let bytes = Session::cost(self.small.len());
        self.session.reserve(bytes)?;
        self.session.append(Record { tag: 1, flags: 0, parts: &[&self.small] }, Dep::none());
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixty_small_records_come_between_outliers() {
        let mut random = Random::new(1, 0);
        let small: u64 = (0..10_000).map(|_| gap(&mut random)).sum();
        assert!((590_000..610_000).contains(&small), "{small}");
    }
}
