//! `log-insert`: how many records a buffer takes, by threads.

use super::{
    Bound, Promise, Row,
    chart::{Axis, Data, Panel, Plot},
    drive::{Counted, Span},
    experiment::{Experiment, Lab},
    repeat::{median, rounds},
    row::find,
    subject::{BOUND_FETCH_ADD, BUFFERS, InsertPoint, PAPERS, Subject, built, private_bytes},
};
use crate::group::GroupName;
use crate::units::show_count;
use foreshore::Result;
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_wal::LogOptions;
use std::time::Duration;

/// Header and 96 bytes of payload: the average of Aether's workloads.
pub(super) const RECORD: usize = 120;

pub(super) struct LogInsert;

impl Experiment for LogInsert {
    fn name(&self) -> &'static str {
        "log-insert"
    }

    fn figure(&self) -> &'static str {
        "Aether Fig. 8 left"
    }

    fn paper(&self) -> &'static str {
        "64 hardware contexts of a Sun Niagara II, 120-byte records. The one-mutex baseline saturates near 0.14 GB/s and falls \
         as contention grows; the consolidation array (C) starts lower and keeps scaling; decoupled copies (D) start high and \
         flatten; the hybrid (CD) scales almost linearly, to more than 1.8 GB/s."
    }

    fn differs(&self) -> &'static str {
        "Threads beyond the cores measure what a preempted inserter costs the others, not scaling. Every record carries a \
         CRC-32C and is copied twice: into the buffer, and by a cut into a staging buffer that is dropped. Contended \
         read-modify-writes per record are counted, because they are what a machine with more cores would pay for. The \
         buffers whose appends wait stand twice: parking, our default, and spinning, as published. The yardsticks do less than a log must: bound-fetch-add shares one counter and copies without order or checksum, \
         bound-private shares nothing."
    }

    fn measure(&self, lab: &mut Lab<'_>) -> Result<Vec<Row>> {
        let threads = lab.threads(&[1, 2, 4, 8, 16, 32, 64, 128], &[1, 2, 8, 32, 128]);
        let options = LogOptions::default();
        let span = span(lab);
        lab.configure("record_bytes", RECORD);
        lab.configure("threads", threads.clone());
        describe(lab, &options);
        // The papers' buffers as the papers have them too, spinning. With more threads than cores that measures the
        // scheduler, and a short run leaves it out.
        let spin_up_to = lab.choose(usize::MAX, foreshore_sync::available_parallelism());
        let subjects: Vec<Subject> = subjects().collect();
        let mut points = Vec::new();
        for &threads in &threads {
            let point = |subject| InsertPoint { subject, threads, record_bytes: RECORD, options: options.clone() };
            let parked: Vec<InsertPoint> = subjects.iter().map(|&subject| point(subject)).collect();
            let waiting = parked.iter().filter(|point| point.wait().is_some() && threads <= spin_up_to);
            let spins = |point: &InsertPoint| match point.subject {
                Subject::Log(buffer) => Some(Subject::Log(BufferOptions { wait: WaitKind::Spin, ..buffer })),
                _ => None,
            };
            let spinning: Vec<InsertPoint> = waiting.filter_map(spins).map(point).collect();
            points.extend(parked.into_iter().chain(spinning));
        }
        measure_points(lab, &points, span, |row, point| row.with("record_bytes", point.record_bytes))
    }

    fn panels(&self, rows: &[Row]) -> Vec<Panel> {
        let rates =
            Plot { x: Axis::log("threads", 2), y: Axis::log("GB/s of records", 10), of: ["threads", "gb_per_s"] };
        let mut panels = rates.panels(rows, |_| "120-byte records".to_owned(), name);
        let threads = rows.iter().filter_map(|row| row.number("threads")).find(|threads| *threads > 1.0);
        let two: Vec<&Row> = rows.iter().filter(|row| row.number("threads") == threads).collect();
        let counted = |row: &&Row| (name(row), row.number("contended_rmw_per_record").unwrap_or(0.0));
        panels.push(Panel {
            title: format!("Contended read-modify-writes, {} threads", threads.unwrap_or_default()),
            x: Axis::linear(""),
            y: Axis::linear("per record"),
            data: Data::bars(two.iter().map(counted)),
        });
        panels
    }

    fn promises(&self, rows: &[Row]) -> Vec<Promise> {
        let rate = |buffer, threads| best_rate(rows, buffer, threads);
        let mut promises = Vec::new();
        let mut least = |promise: String, over: Option<f64>, under: Option<f64>, least| {
            if let (Some(over), Some(under)) = (over, under) {
                promises.push(Promise::new(promise, over / under, Bound::Least(least)));
            }
        };
        let best = PAPERS.iter().filter_map(|name| rate(name, 2)).max_by(f64::total_cmp);
        least("2 threads: lanes / best buffer of the papers".to_owned(), rate("lanes", 2), best, 3.0);
        // Where the line does not move between cores, nothing is gained by leaving it alone.
        let moves = rate(BOUND_FETCH_ADD, 2).zip(rate(BOUND_FETCH_ADD, 1)).is_some_and(|(two, one)| two < one / 2.0);
        let bound = rate(BOUND_FETCH_ADD, 2).filter(|_| moves);
        least(format!("2 threads: lanes / {BOUND_FETCH_ADD}"), rate("lanes", 2), bound, 5.0);
        least("1 thread: lanes / mutex".to_owned(), rate("lanes", 1), rate("mutex", 1), 0.9);
        least(format!("1 thread: lanes / {BOUND_FETCH_ADD}"), rate("lanes", 1), rate(BOUND_FETCH_ADD, 1), 0.4);
        for threads in [8, 32, 128] {
            least(format!("lanes: {threads} threads / 2 threads"), rate("lanes", threads), rate("lanes", 2), 0.9);
        }
        let counted = find(rows, &[("buffer", "lanes".into()), ("threads", 2.into())], "contended_rmw_per_record");
        let promise = "2 threads: lanes, contended read-modify-writes a record";
        promises.extend(counted.map(|counted| Promise::new(promise, counted, Bound::Most(0.0))));
        promises
    }

    fn findings(&self, rows: &[Row]) -> Vec<String> {
        let rate = |buffer, threads| best_rate(rows, buffer, threads);
        let mut findings = Vec::new();
        let best = PAPERS.iter().filter_map(|name| Some((rate(name, 2)?, *name))).max_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(lanes), Some((best, name))) = (rate("lanes", 2), best) {
            let (lanes, best) = (show_count(lanes), show_count(best));
            findings.push(format!("2 threads: lanes {lanes} records/s; best of the papers' is {name} with {best}"));
        }
        if let (Some(one), Some(two)) = (rate(BOUND_FETCH_ADD, 1), rate(BOUND_FETCH_ADD, 2)) {
            let fell = if two < one / 2.0 { "the line moves between cores" } else { "the line hardly moves" };
            let (one, two) = (show_count(one), show_count(two));
            findings.push(format!("{BOUND_FETCH_ADD} makes {one} records/s at 1 thread and {two} at 2: {fell}"));
        }
        findings
    }
}

/// Records per second of `buffer`: the better of both ways to wait, where there are two.
fn best_rate(rows: &[Row], buffer: &str, threads: usize) -> Option<f64> {
    let values = [("buffer", buffer.into()), ("threads", threads.into())];
    let own = rows.iter().filter(|row| row.is(&values));
    own.filter_map(|row| row.number("records_per_s")).max_by(f64::total_cmp)
}

/// The buffer, and how it waits where that is not the default.
fn name(row: &Row) -> String {
    let (buffer, wait) = (row.text("buffer"), row.text("wait"));
    if wait == WaitKind::Spin.to_string() { format!("{buffer}, {wait}") } else { buffer.to_owned() }
}

/// All buffers and the yardsticks.
pub(super) fn subjects() -> impl Iterator<Item = Subject> {
    let logs = built(&BUFFERS).into_iter().map(|kind| Subject::Log(BufferOptions::new(kind)));
    logs.chain([Subject::FetchAdd, Subject::Private])
}

/// Warm-up and window of an insert experiment: every buffer wraps many times in the warm-up.
pub(super) fn span(lab: &mut Lab<'_>) -> Span {
    let window = lab.settings.secs.unwrap_or(Duration::from_millis(lab.choose(600, 200)));
    let warm_up = Duration::from_millis(50).min(window);
    lab.configure("secs", window.as_secs_f64());
    lab.configure("warm_up_secs", warm_up.as_secs_f64());
    Span { warm_up, window }
}

/// Rounds of an insert experiment.
pub(super) fn repeats(lab: &Lab<'_>) -> usize {
    lab.choose(7, 5)
}

/// Notes what the logs of an insert experiment have in common.
pub(super) fn describe(lab: &mut Lab<'_>, options: &LogOptions) {
    lab.configure("ring_bytes", options.ring_bytes);
    lab.configure("private_ring_bytes", private_bytes(options.ring_bytes));
    lab.configure("max_sessions", options.max_sessions);
    let buffer = BufferOptions::new(BufferKind::default());
    lab.configure("wait", buffer.wait.to_string());
    lab.configure("slots", buffer.slots);
    lab.configure("slot_pool", buffer.slot_pool);
    lab.configure("group", GroupName::Own(options.group).to_string());
    lab.configure("drained", "cut into staging and dropped by the thread that finds no room");
    lab.configure("repeat", lab.settings.repeat.unwrap_or(repeats(lab)));
}

/// Measures the points in rounds and makes a row of each: what varies, what `more` adds to it, and the median.
pub(super) fn measure_points(
    lab: &Lab<'_>,
    points: &[InsertPoint],
    span: Span,
    more: impl Fn(Row, &InsertPoint) -> Row,
) -> Result<Vec<Row>> {
    let measured = rounds(lab, repeats(lab), points, |point| point.measure(span))?;
    let row = |(point, measured): (&InsertPoint, Vec<Counted>)| {
        let (median, keys) = median(&measured, Counted::records_per_s);
        let wait = point.wait().map(|wait| wait.to_string());
        let row =
            Row::new().with("buffer", point.subject.to_string()).with("wait", wait).with("threads", point.threads);
        rates(more(row, point), &median, keys)
    };
    Ok(points.iter().zip(measured).map(row).collect())
}

/// The row with what an insert experiment measures.
pub(super) fn rates(row: Row, median: &Counted, keys: Vec<f64>) -> Row {
    let repeats: Vec<f64> = keys.into_iter().map(f64::round).collect();
    row.measured("records_per_s", median.records_per_s())
        .measured("gb_per_s", median.gb_per_s())
        .measured("contended_rmw_per_record", median.rmw_per_record())
        .with("repeats", repeats)
}
