//! `log-size`: how many bytes a buffer takes, by the size of the records.

use super::{
    Row,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    log_insert::{describe, measure_points, span, subjects},
    row::find,
    subject::{BUFFERS, InsertPoint},
};
use crate::units::show;
use foreshore::Result;
use foreshore_wal::LogOptions;

/// With the header: 48 bytes to the 12 KiB that are Shore-MT's largest.
const SIZES: [usize; 9] = [48, 120, 264, 512, 1200, 2048, 4096, 8192, 12288];
const QUICK_SIZES: [usize; 5] = [48, 120, 512, 2048, 12288];
/// A ring that stays in the second-level cache of a core. Twelve KiB are no larger than an eighth of it.
const CACHED_RING: usize = 128 << 10;

pub(super) struct LogSize;

impl Experiment for LogSize {
    fn name(&self) -> &'static str {
        "log-size"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 8 right"
    }

    fn paper(&self) -> &'static str {
        "64 threads, records of 48 B to 12 kB. The baseline gains with size and stays far behind; the consolidation array wins \
         for small records, decoupled copies from about 1 kB on; the hybrid leads everywhere until memory bandwidth limits \
         all three. With the log in thread-local storage that fits the L1 cache the hybrid goes on to 21 GB/s."
    }

    fn differs(&self) -> &'static str {
        "Every record carries a CRC-32C, and every byte is copied once more when a cut moves it to a staging buffer, so large \
         records meet the limit of the copies earlier. The cache-resident curve (--l1) keeps the buffer as it is and gives \
         it a ring of 128 KiB, which stays in the second-level cache; a smaller ring could not hold eight of the largest records."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[2, 64], &[2]);
        let sizes: &[usize] = lab.choose(&SIZES, &QUICK_SIZES);
        let options = LogOptions::default();
        let span = span(lab);
        lab.configure("threads", threads.clone());
        lab.configure("record_bytes", sizes.to_vec());
        lab.configure("l1", lab.settings.l1);
        lab.configure("l1_ring_bytes", CACHED_RING);
        describe(lab, &options);
        let mut points = Vec::new();
        let rings = [options.ring_bytes, CACHED_RING];
        for ring_bytes in &rings[..1 + usize::from(lab.settings.l1)] {
            for &threads in &threads {
                // Few sessions, so that what an idle one may keep does not eat up a small ring.
                let max_sessions = if *ring_bytes == CACHED_RING { threads } else { options.max_sessions };
                let options = LogOptions { ring_bytes: *ring_bytes, max_sessions, ..options.clone() };
                for &record_bytes in sizes {
                    let point = |subject| InsertPoint { subject, threads, record_bytes, options: options.clone() };
                    points.extend(subjects().map(point));
                }
            }
        }
        measure_points(lab, &points, span, |row, point| {
            row.with("record_bytes", point.record_bytes).with("ring_bytes", point.options.ring_bytes)
        })
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot {
            x: Axis::log("bytes of a record", 10),
            y: Axis::log("GB/s of records", 10),
            of: ["record_bytes", "gb_per_s"],
        };
        let title = |row: &Row| {
            let cached = if row.number("ring_bytes") == Some(CACHED_RING as f64) { ", ring in cache" } else { "" };
            format!("{} threads{cached}", row.number("threads").unwrap_or_default())
        };
        plot.panels(rows, title, |row| row.text("buffer").to_owned())
    }

    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let best = |ring: usize| {
            let of_ring = rows.iter().filter(|row| row.number("ring_bytes") == Some(ring as f64));
            let logs = of_ring.filter(|row| BUFFERS.contains(&row.text("buffer")));
            logs.max_by(|a, b| a.number("gb_per_s").unwrap_or(0.0).total_cmp(&b.number("gb_per_s").unwrap_or(0.0)))
        };
        let shown = |(name, row): (&str, &Row)| {
            let rate = show(row.number("gb_per_s").unwrap_or(0.0));
            let bytes = row.number("record_bytes").unwrap_or(0.0);
            format!("most of all buffers{name}: {rate} GB/s, {} with {bytes}-byte records", row.text("buffer"))
        };
        let default = LogOptions::default().ring_bytes;
        let rings = [("", default), (" with the ring in cache", CACHED_RING)];
        let mut findings: Vec<String> =
            rings.iter().filter_map(|(name, ring)| Some(shown((name, best(*ring)?)))).collect();
        for bytes in [48, 12288] {
            let rate = |buffer: &str| {
                let values =
                    [("buffer", buffer.into()), ("record_bytes", bytes.into()), ("ring_bytes", default.into())];
                find(rows, &values, "gb_per_s")
            };
            if let (Some(lanes), Some(mutex)) = (rate("lanes"), rate("mutex")) {
                findings.push(format!("{bytes}-byte records: lanes {} x mutex", show(lanes / mutex)));
            }
        }
        findings
    }
}
