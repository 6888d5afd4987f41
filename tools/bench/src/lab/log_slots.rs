//! `log-slots`: how many slots the consolidation array needs.

use super::{
    Row,
    chart::{Axis, Panel, Plot},
    experiment::{Experiment, Lab},
    log_insert::{RECORD, describe, measure_points, span},
    subject::{InsertPoint, Subject, built},
};
use foreshore::Result;
use foreshore_classics::log_buffers::BufferOptions;
use foreshore_wal::LogOptions;

pub(super) struct LogSlots;

impl Experiment for LogSlots {
    fn name(&self) -> &'static str {
        "log-slots"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 12"
    }

    fn paper(&self) -> &'static str {
        "The consolidation array with 1 to 10 slots and up to 64 threads. Three or four slots are best for most thread counts; \
         more threads want slightly more, and low counts lose a little with every slot. The paper fixes the array at four."
    }

    fn differs(&self) -> &'static str {
        "With two cores there are rarely more than two threads at the array at once, so a second slot is all that can help; \
         further ones show what an array that is too large costs."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 4, 8, 16, 32, 64], &[2, 8, 32]);
        let slots: Vec<usize> = if lab.settings.quick { vec![1, 2, 3, 4, 6, 10] } else { (1..=10).collect() };
        let options = LogOptions::default();
        let span = span(lab);
        lab.configure("threads", threads.clone());
        lab.configure("record_bytes", RECORD);
        describe(lab, &options);
        lab.configure("slots", slots.clone());
        let mut points = Vec::new();
        for buffer in built(&["carray"]) {
            for &threads in &threads {
                let point = |&slots| {
                    let subject = Subject::Log(BufferOptions { slots, ..BufferOptions::new(buffer) });
                    InsertPoint { subject, threads, record_bytes: RECORD, options: options.clone() }
                };
                points.extend(slots.iter().map(point));
            }
        }
        measure_points(lab, &points, span, |row, point| {
            let slots = match point.subject {
                Subject::Log(buffer) => Some(buffer.slots),
                _ => None,
            };
            row.with("record_bytes", point.record_bytes).with("slots", slots)
        })
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let plot = Plot { x: Axis::linear("slots"), y: Axis::linear("GB/s of records"), of: ["slots", "gb_per_s"] };
        let name = |row: &Row| format!("{} threads", row.number("threads").unwrap_or_default());
        plot.panels(rows, |_| "carray, 120-byte records".to_owned(), name)
    }

    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let rate = |row: &&Row| row.number("records_per_s").unwrap_or(0.0);
        let mut threads: Vec<f64> = rows.iter().filter_map(|row| row.number("threads")).collect();
        threads.dedup();
        let best = |threads: f64| {
            let own = rows.iter().filter(|row| row.number("threads") == Some(threads));
            let best = own.max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
            Some(format!("{threads} threads: best with {} slots", best.number("slots")?))
        };
        threads.into_iter().filter_map(best).collect()
    }
}
