//! Two samples to what is shown: a pure function.

use super::sample::Sample;
use foreshore_bench::units::{show, show_bytes, show_count};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A transaction or a snapshot, and the bytes that are kept for it.
#[derive(Clone, Debug, PartialEq)]
struct Oldest {
    label: String,
    age_seconds: f64,
    bytes: f64,
}

/// What an interval was like. Rates are per second.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct View {
    seconds: f64,
    commits: f64,
    rollbacks: f64,
    deadlocks: f64,
    log_bytes: f64,
    /// `None` if the log was not written.
    commits_per_write: Option<f64>,
    bytes_per_write: Option<f64>,
    log_slowed_seconds: f64,
    log_retained_bytes: f64,
    pages_read: f64,
    pages_written: f64,
    misses_per_commit: Option<f64>,
    dirty_pages: f64,
    frames: f64,
    frames_free: f64,
    damaged_pages: f64,
    waits: BTreeMap<String, f64>,
    /// Shares of the time of the measured transactions. Empty if none was measured.
    time: BTreeMap<String, f64>,
    oldest_transaction: Option<Oldest>,
    oldest_snapshot: Option<Oldest>,
}

impl View {
    pub(super) fn between(before: &Sample, after: &Sample, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64().max(1e-9);
        let growth = |name| after.growth(name, before);
        let rate = |name| growth(name) / seconds;
        let (commits, writes, bytes) = (growth("commits_total"), growth("log_writes_total"), growth("log_bytes_total"));
        let by_class = |name| after.growth_by(name, "class", before);
        let times = by_class("profile_seconds_total");
        let time: f64 = times.values().sum();
        let owned = |(class, value): (&str, f64)| (class.to_owned(), value);
        Self {
            seconds,
            commits: commits / seconds,
            rollbacks: rate("rollbacks_total"),
            deadlocks: rate("deadlocks_total"),
            log_bytes: bytes / seconds,
            commits_per_write: quotient(commits, writes),
            bytes_per_write: quotient(bytes, writes),
            log_slowed_seconds: rate("log_slowed_seconds_total"),
            log_retained_bytes: after.gauge("log_retained_bytes"),
            pages_read: rate("pages_read_total"),
            pages_written: rate("pages_written_total"),
            misses_per_commit: quotient(growth("pool_misses_total"), commits),
            dirty_pages: after.gauge("pool_dirty_pages"),
            frames: after.gauge("pool_frames"),
            frames_free: after.gauge("pool_frames_free"),
            damaged_pages: after.gauge("damaged_pages"),
            waits: by_class("waits_total").into_iter().map(|(class, count)| owned((class, count / seconds))).collect(),
            time: times.into_iter().filter_map(|(class, of)| Some(owned((class, quotient(of, time)?)))).collect(),
            oldest_transaction: oldest(after, "oldest_transaction", "log_bytes"),
            oldest_snapshot: oldest(after, "oldest_snapshot", "bytes"),
        }
    }

    /// The lines of a terminal, each with its name.
    pub(super) fn rows(&self) -> Vec<(&'static str, String)> {
        let per_write = |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| "-".to_owned(), show);
        let bytes = |bytes: f64| show_bytes(bytes as u64);
        let list = |values: &BTreeMap<String, f64>, one: fn(&str, f64) -> String| {
            values.iter().map(|(class, &value)| one(class, value)).collect::<Vec<_>>().join(", ")
        };
        let mut shares: Vec<_> = self.time.iter().map(|(class, &share)| (share, class)).collect();
        shares.sort_by(|one, other| other.0.total_cmp(&one.0));
        shares.retain(|(share, _)| (share * 100.0).round() > 0.0);
        let shares: Vec<_> = shares.iter().map(|(share, class)| format!("{class} {:.0} %", share * 100.0)).collect();
        let log = format!(
            "{}/s, {} commits and {} a write; {} retained; writers slowed for {} s/s",
            bytes(self.log_bytes),
            per_write(self.commits_per_write, show),
            per_write(self.bytes_per_write, |value| show_bytes(value as u64)),
            bytes(self.log_retained_bytes),
            show(self.log_slowed_seconds),
        );
        let pages = format!(
            "{}/s read, {}/s written, {} misses a commit; {} of {} frames dirty, {} free; {} damaged",
            show_count(self.pages_read),
            show_count(self.pages_written),
            per_write(self.misses_per_commit, show),
            self.dirty_pages,
            self.frames,
            self.frames_free,
            self.damaged_pages,
        );
        vec![
            ("commits", format!("{}/s", show_count(self.commits))),
            ("rollbacks", format!("{}/s, {} deadlocks/s", show_count(self.rollbacks), show_count(self.deadlocks))),
            ("log", log),
            ("pages", pages),
            ("waits", list(&self.waits, |class, rate| format!("{class} {}/s", show_count(rate)))),
            (
                "time",
                if shares.is_empty() {
                    "not measured: the program profiles nothing".to_owned()
                } else {
                    shares.join(", ")
                },
            ),
            ("oldest transaction", shown(self.oldest_transaction.as_ref(), "of log")),
            ("oldest snapshot", shown(self.oldest_snapshot.as_ref(), "kept")),
        ]
    }

    /// The same as an object, as `schema/top.json` describes it.
    pub(super) fn json(&self) -> Json {
        let oldest = |of: &Option<Oldest>| {
            let object = |of: &Oldest| json!({ "label": of.label, "age_seconds": of.age_seconds, "bytes": of.bytes });
            of.as_ref().map(object)
        };
        let map = |values: &BTreeMap<String, f64>| -> Map<String, Json> {
            values.iter().map(|(class, &value)| (class.clone(), json!(value))).collect()
        };
        json!({
            "seconds": self.seconds,
            "commits_per_second": self.commits,
            "rollbacks_per_second": self.rollbacks,
            "deadlocks_per_second": self.deadlocks,
            "log_bytes_per_second": self.log_bytes,
            "commits_per_write": self.commits_per_write,
            "log_bytes_per_write": self.bytes_per_write,
            "log_slowed_seconds_per_second": self.log_slowed_seconds,
            "log_retained_bytes": self.log_retained_bytes,
            "pages_read_per_second": self.pages_read,
            "pages_written_per_second": self.pages_written,
            "misses_per_commit": self.misses_per_commit,
            "dirty_pages": self.dirty_pages,
            "frames": self.frames,
            "free_frames": self.frames_free,
            "damaged_pages": self.damaged_pages,
            "waits_per_second": map(&self.waits),
            "time_shares": map(&self.time),
            "oldest_transaction": oldest(&self.oldest_transaction),
            "oldest_snapshot": oldest(&self.oldest_snapshot),
        })
    }
}

fn quotient(value: f64, of: f64) -> Option<f64> {
    (of > 0.0).then(|| value / of)
}

fn oldest(sample: &Sample, name: &str, bytes: &str) -> Option<Oldest> {
    let (label, age_seconds) = sample.labelled(&format!("{name}_age_seconds"), "label").next()?;
    Some(Oldest { label: label.to_owned(), age_seconds, bytes: sample.gauge(&format!("{name}_{bytes}")) })
}

fn shown(oldest: Option<&Oldest>, what: &str) -> String {
    let Some(Oldest { label, age_seconds, bytes }) = oldest else { return "none".to_owned() };
    format!("{label:?}, {} s, {} {what}", show(*age_seconds), show_bytes(*bytes as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "foreshore_commits_total 100
foreshore_rollbacks_total 1
foreshore_log_writes_total 10
foreshore_log_bytes_total 4096
foreshore_pool_misses_total 50
foreshore_waits_total{class=\"lock\"} 8
foreshore_waits_total{class=\"growth\"} 0
foreshore_profile_seconds_total{label=\"a\",class=\"work\"} 1
foreshore_profile_seconds_total{label=\"a\",class=\"log_wait\"} 1
";

    const AFTER: &str = "foreshore_commits_total 20100
foreshore_rollbacks_total 3
foreshore_deadlocks_total 4
foreshore_log_writes_total 1010
foreshore_log_bytes_total 8196096
foreshore_log_retained_bytes 1048576
foreshore_log_slowed_seconds_total 0.5
foreshore_pool_misses_total 10050
foreshore_pool_frames 2048
foreshore_pool_frames_free 12
foreshore_pool_dirty_pages 100
foreshore_pages_read_total 10
foreshore_damaged_pages 1
foreshore_waits_total{class=\"lock\"} 28
foreshore_waits_total{class=\"growth\"} 0
foreshore_profile_seconds_total{label=\"a\",class=\"work\"} 1.5
foreshore_profile_seconds_total{label=\"a\",class=\"log_wait\"} 2
foreshore_profile_seconds_total{label=\"b\",class=\"log_wait\"} 0.5
foreshore_profile_seconds_total{label=\"b\",class=\"retry\"} 0.001
foreshore_oldest_transaction_age_seconds{label=\"import\"} 61.5
foreshore_oldest_transaction_log_bytes{label=\"import\"} 2048
";

    fn view(before: &str, after: &str) -> View {
        View::between(&Sample::parse(before).unwrap(), &Sample::parse(after).unwrap(), Duration::from_secs(2))
    }

    #[test]
    fn two_samples_become_rates() {
        let rows = view(BEFORE, AFTER).rows();
        let expected = [
            ("commits", "10.0 k/s"),
            ("rollbacks", "1.00/s, 2.00 deadlocks/s"),
            ("log", "3.9 MiB/s, 20.0 commits and 8.0 KiB a write; 1.0 MiB retained; writers slowed for 0.25 s/s"),
            (
                "pages",
                "5.00/s read, 0.00/s written, 0.50 misses a commit; 100 of 2048 frames dirty, 12 free; 1 damaged",
            ),
            ("waits", "growth 0.00/s, lock 10.0/s"),
            ("time", "log_wait 75 %, work 25 %"),
            ("oldest transaction", "\"import\", 61.5 s, 2.0 KiB of log"),
            ("oldest snapshot", "none"),
        ];
        assert_eq!(rows, expected.map(|(name, text)| (name, text.to_owned())));
    }

    #[test]
    fn an_interval_without_work_has_no_quotients() {
        let idle = view(BEFORE, BEFORE);
        assert_eq!((idle.commits, idle.commits_per_write, idle.misses_per_commit), (0.0, None, None));
        assert!(idle.time.is_empty());
        let rows = idle.rows();
        assert!(rows[2].1.starts_with("0 B/s, - commits and - a write"), "{rows:?}");
        assert!(rows[5].1.starts_with("not measured"), "{rows:?}");
    }
}
