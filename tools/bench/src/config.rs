//! Options of a run. Names that are not built are refused with what is.

/// Gives a fieldless enum the names that users type. A name that is not here is refused with those that are.
macro_rules! names {
    ($kind:ident, $option:literal, $($name:literal => $variant:ident),+) => {
        impl FromStr for $kind {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(invalid($option, text, &[$($name),+].join(", "))),
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }
    };
}

mod workload;

pub use workload::Workload;

use crate::group::GroupName;
use crate::units::{invalid, show_bytes};
use foreshore::{Device, DoublewriteKind, Error, Isolation, Result};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::growth::GrowthKind;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_classics::status_tables::StatusKind;
use foreshore_wal::log_buffer::MakeLogBuffer;
use serde::{Serialize, Serializer};
use std::{fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

/// When a transaction counts as committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// Durable when the call returns: one transaction in flight per thread.
    Blocking,
    /// Durable when its ticket says so: many in flight per thread.
    #[default]
    Pipelined,
    /// At pre-commit. The same log and flusher; what a relaxed transaction gets.
    Async,
}

/// How a consumer of a queue takes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// The first row that no other transaction has locked.
    #[default]
    SkipLocked,
    /// The first row. Of several consumers only one at a time gets on.
    First,
}

/// Which records the operations of YCSB are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All alike.
    Uniform,
    /// Some are hot, wherever they lie.
    Zipf,
    /// Those that were inserted last are hot.
    Latest,
}

names!(Distribution, "distribution", "uniform" => Uniform, "zipf" => Zipf, "latest" => Latest);
names!(Claim, "claim", "skip-locked" => SkipLocked, "first" => First);
names!(Commit, "commit", "blocking" => Blocking, "pipelined" => Pipelined, "async" => Async);

/// Everything that a run depends on, defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// Where the database lives; `None`: a fresh directory below the current one, removed at the end.
    #[serde(serialize_with = "path")]
    pub dir: Option<PathBuf>,
    /// Worker threads, one row each.
    pub threads: Vec<usize>,
    /// Transactions in flight per thread when commits are pipelined.
    pub clients: usize,
    /// Measured seconds per row, after a warm-up of one second, or of as long if that is less.
    #[serde(serialize_with = "seconds")]
    pub secs: Duration,
    /// Repeats of each row; the median is reported.
    pub repeat: usize,
    /// Size of the workload: branches of TPC-B, warehouses of TPC-C, rows of the others.
    pub scale: u64,
    /// When a transaction counts as committed.
    pub commit: Commit,
    /// Isolation of the transactions.
    #[serde(serialize_with = "isolation")]
    pub isolation: Isolation,
    /// The log buffer.
    #[serde(serialize_with = "text")]
    pub log_buffer: BufferKind,
    /// How appends wait for each other in the log buffers that make them wait.
    #[serde(serialize_with = "text")]
    pub wait: WaitKind,
    /// Places where threads consolidate, in the log buffers that have such.
    pub slots: usize,
    /// When a group of commits goes to the disk.
    #[serde(serialize_with = "text")]
    pub group: GroupName,
    /// How much is released when the commit record is appended.
    #[serde(serialize_with = "text")]
    pub elr: EarlyRelease,
    /// Which page leaves the buffer pool.
    #[serde(serialize_with = "text")]
    pub replacement: ReplacementKind,
    /// How the outcome of a transaction is looked up.
    #[serde(serialize_with = "text")]
    pub status: StatusKind,
    /// Where intents on tables are entered.
    #[serde(serialize_with = "text")]
    pub intents: IntentKind,
    /// When the data file grows.
    #[serde(serialize_with = "text")]
    pub growth: GrowthKind,
    /// Whether pages go through the doublewrite file.
    #[serde(serialize_with = "text")]
    pub doublewrite: DoublewriteKind,
    /// The backend.
    #[serde(serialize_with = "text")]
    pub device: Device,
    /// The engine's memory limit, in bytes.
    pub memory: u64,
    /// Most bytes of the file for undo that memory has no room for; none if zero.
    pub spill: u64,
    /// Whether a snapshot is held over each row.
    pub reader: bool,
    /// How long it is held; to the end of the row if that is not said.
    #[serde(serialize_with = "optional_seconds")]
    pub reader_secs: Option<Duration>,
    /// Bytes of a log segment.
    pub segment: u64,
    /// Bytes of log that may stand behind the redo start.
    pub log_budget: u64,
    /// Rows of the one table that all threads of `update` share; a table for each, of `scale` rows, if none.
    pub rows: Option<u64>,
    /// Bytes of a row of `update` and `queue`.
    pub row_bytes: usize,
    /// Rows of a transaction of `insert`.
    pub batch: u32,
    /// Threads of `queue` that insert. Together with the consumers they are its threads.
    pub producers: usize,
    /// Threads of `queue` that take rows. Without any, nothing slows the producers down.
    pub consumers: usize,
    /// Rows that are in the queue at any time, at least; twice as many at most.
    pub backlog: u64,
    /// How consumers of `queue` take a row.
    #[serde(serialize_with = "text")]
    pub claim: Claim,
    /// Transactions a second of all threads together, begun at random times; as many as go if none.
    pub load: Option<f64>,
    /// Which records YCSB reads and writes; `None`: those of the workload.
    pub distribution: Option<Distribution>,
    /// Exponent of Zipf's distribution over the accounts; 0: as the specification draws them.
    pub skew: f64,
    /// Seed of all randomness.
    pub seed: u64,
    /// Whether contended read-modify-writes are counted, by the caller of [`run`](crate::run()).
    pub count_rmw: bool,
    /// Whether it is measured where the time goes.
    pub breakdown: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: None,
            threads: vec![foreshore_sync::available_parallelism()],
            clients: 64,
            secs: Duration::from_secs(10),
            repeat: 1,
            scale: 10,
            commit: Commit::default(),
            isolation: Isolation::default(),
            log_buffer: BufferKind::default(),
            wait: WaitKind::default(),
            slots: 4,
            group: GroupName::default(),
            elr: EarlyRelease::default(),
            replacement: ReplacementKind::default(),
            status: StatusKind::default(),
            intents: IntentKind::default(),
            growth: GrowthKind::default(),
            doublewrite: DoublewriteKind::default(),
            device: Device::Auto,
            memory: 1 << 30,
            spill: 0,
            reader: false,
            reader_secs: None,
            segment: 16 << 20,
            log_budget: 512 << 20,
            rows: None,
            row_bytes: 100,
            batch: 1000,
            producers: 1,
            consumers: 1,
            backlog: 100,
            claim: Claim::default(),
            load: None,
            distribution: None,
            skew: 0.0,
            seed: 1,
            count_rmw: false,
            breakdown: true,
        }
    }
}

/// Most worker threads: each has a transaction, and the engine runs 1024 at once by default.
const MAX_THREADS: usize = 1000;
/// Bytes of a row of `update` and `queue`: a number, and what the engine takes.
const ROW_BYTES: std::ops::RangeInclusive<usize> = 8..=2048;
/// Most transactions in flight per thread, and most repeats.
const MANY: usize = 100_000;

impl Config {
    /// Transactions in flight per thread.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        if self.commit == Commit::Pipelined { self.clients } else { 1 }
    }

    /// Whether the files live in memory and so begin empty in every process.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.device, Device::Null | Device::Delay(_))
    }

    /// Refuses values out of range and names that are not built. The engine checks its own options itself.
    ///
    /// # Errors
    /// `InvalidOption`.
    pub fn check(&self, workload: Workload) -> Result<()> {
        let count = |name, value: usize, most: usize| {
            let fits = (1..=most).contains(&value);
            if fits { Ok(()) } else { Err(invalid(name, &value.to_string(), &format!("1 to {most}"))) }
        };
        if self.threads.is_empty() {
            return Err(invalid("threads", "", "at least one number"));
        }
        self.threads.iter().try_for_each(|&threads| count("threads", threads, MAX_THREADS))?;
        count("clients", self.clients, MANY)?;
        count("repeat", self.repeat, MANY)?;
        count("batch", self.batch as usize, MANY)?;
        self.check_queue(workload)?;
        self.log_buffer()?;
        if self.secs.is_zero() {
            return Err(invalid("secs", "0", "a time above zero"));
        }
        let (of, _, most) = workload.scale();
        if !(1..=most).contains(&self.scale) {
            return Err(invalid("scale", &self.scale.to_string(), &format!("1 to {most} {of}")));
        }
        if self.rows.is_some_and(|rows| !(1..=most).contains(&rows)) {
            return Err(invalid("rows", &self.rows.unwrap_or(0).to_string(), &format!("1 to {most}")));
        }
        if !ROW_BYTES.contains(&self.row_bytes) {
            return Err(invalid("row-bytes", &self.row_bytes.to_string(), "8 to 2048"));
        }
        if self.load.is_some_and(|load| !(1e-3..=1e9).contains(&load)) {
            return Err(invalid("load", &self.load.unwrap_or(0.0).to_string(), "0.001 to 1000000000"));
        }
        if !(0.0..=100.0).contains(&self.skew) {
            return Err(invalid("skew", &self.skew.to_string(), "0 to 100"));
        }
        Ok(())
    }

    /// What makes the log buffer, if it is not the engine's own.
    pub(crate) fn log_buffer(&self) -> Result<Option<Arc<dyn MakeLogBuffer>>> {
        let (wait, slots) = (self.wait, self.slots);
        Ok(BufferOptions { wait, slots, ..BufferOptions::new(self.log_buffer) }.maker()?)
    }

    fn check_queue(&self, workload: Workload) -> Result<()> {
        let threads = self.producers.saturating_add(self.consumers);
        if workload != Workload::Queue {
            return Ok(());
        }
        if self.producers == 0 {
            return Err(invalid("producers", "0", "at least one"));
        }
        if self.threads != [threads] {
            let given: Vec<String> = self.threads.iter().map(ToString::to_string).collect();
            return Err(invalid("threads", &given.join(","), &format!("{threads}, the producers and consumers")));
        }
        if !(1..=MANY as u64).contains(&self.backlog) {
            return Err(invalid("backlog", &self.backlog.to_string(), &format!("1 to {MANY}")));
        }
        Ok(())
    }

    /// One line for the head of a table.
    #[must_use]
    pub fn summary(&self) -> String {
        format!(
            "scale {} commit {} isolation {} log-buffer {} wait {} slots {} group {} elr {} replacement {} status {} \
             intents {} growth {} doublewrite {} device {} memory {} spill {} reader {} segment {} log-budget {} rows {} row-bytes {} batch {} producers {} consumers {} backlog {} claim {} load {} distribution {} skew {} seed {} secs {} repeat {}",
            self.scale,
            self.commit,
            isolation_name(self.isolation),
            self.log_buffer,
            self.wait,
            self.slots,
            self.group,
            self.elr,
            self.replacement,
            self.status,
            self.intents,
            self.growth,
            self.doublewrite,
            self.device,
            show_bytes(self.memory),
            show_bytes(self.spill),
            self.reader,
            show_bytes(self.segment),
            show_bytes(self.log_budget),
            self.rows.map_or("-".to_owned(), |rows| rows.to_string()),
            self.row_bytes,
            self.batch,
            self.producers,
            self.consumers,
            self.backlog,
            self.claim,
            self.load.map_or("-".to_owned(), |load| load.to_string()),
            self.distribution.map_or("-".to_owned(), |distribution| distribution.to_string()),
            self.skew,
            self.seed,
            self.secs.as_secs_f64(),
            self.repeat,
        )
    }
}

fn text<T: fmt::Display, S: Serializer>(value: &T, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn seconds<S: Serializer>(value: &Duration, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_secs_f64())
}

fn optional_seconds<S: Serializer>(value: &Option<Duration>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.serialize_some(&value.as_secs_f64()),
        None => serializer.serialize_none(),
    }
}

fn path<S: Serializer>(value: &Option<PathBuf>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    match value {
        Some(path) => serializer.serialize_some(&path.to_string_lossy()),
        None => serializer.serialize_none(),
    }
}

fn isolation<S: Serializer>(value: &Isolation, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&isolation_name(*value))
}

/// The name that users type.
fn isolation_name(isolation: Isolation) -> String {
    isolation.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused<T: fmt::Debug, E: Into<Error>>(result: Result<T, E>) -> String {
        match result.map_err(Into::into) {
            Err(Error::InvalidOption { expected, .. }) => expected,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_that_are_not_built_are_refused_with_those_that_are() {
        assert_eq!("async".parse::<Commit>().unwrap(), Commit::Async);
        assert_eq!(refused("lazy".parse::<Commit>()), "blocking, pipelined, async");
        assert_eq!(
            refused("tpch".parse::<Workload>()),
            "tpcb, tatp, tatp-update-location, tpcc, tpcc-payment, tpcc-new-order, ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-e, \
             ycsb-f, update, insert, read, queue"
        );
        assert_eq!(refused("sleep".parse::<WaitKind>()), "spin or park");
        assert_eq!(refused("x_only".parse::<EarlyRelease>()), "off, s_only or full");
        assert!(refused("lru".parse::<StatusKind>()).contains("csnmap"));
        assert_eq!(refused("row".parse::<IntentKind>()), "table or fastpath");
        assert_eq!(refused("late".parse::<GrowthKind>()), "inline or ahead");
        assert!(refused("ring".parse::<BufferKind>()).contains("faa"));
        assert_eq!(refused("hot".parse::<Distribution>()), "uniform, zipf, latest");
        assert!(refused("lazy".parse::<GroupName>()).contains("greedy"));
        assert!(refused("fifo".parse::<ReplacementKind>()).contains("clock"));
        assert!(refused("dirty".parse::<Isolation>()).contains("serializable"));
        assert!(refused("uring".parse::<Device>()).contains("direct"));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        Config::default().check(Workload::Tpcb).unwrap();
        for broken in [
            Config { threads: vec![2, 0], ..Config::default() },
            Config { threads: vec![], ..Config::default() },
            Config { threads: vec![1001], ..Config::default() },
            Config { clients: 0, ..Config::default() },
            Config { secs: Duration::ZERO, ..Config::default() },
            Config { repeat: 0, ..Config::default() },
            Config { scale: 0, ..Config::default() },
            Config { skew: -1.0, ..Config::default() },
            Config { rows: Some(0), ..Config::default() },
            Config { row_bytes: 7, ..Config::default() },
            Config { load: Some(0.0), ..Config::default() },
            Config { load: Some(f64::NAN), ..Config::default() },
            Config { skew: f64::NAN, ..Config::default() },
            Config { batch: 0, ..Config::default() },
            Config { slots: 0, ..Config::default() },
        ] {
            refused(broken.check(Workload::Tpcb));
        }
        let queue = Config { threads: vec![3], producers: 2, scale: 1, ..Config::default() };
        queue.check(Workload::Queue).unwrap();
        for broken in [
            Config { threads: vec![2], ..queue.clone() },
            Config { threads: vec![3, 3], ..queue.clone() },
            Config { producers: 0, consumers: 3, ..queue.clone() },
            Config { backlog: 0, ..queue },
        ] {
            broken.check(Workload::Tpcb).unwrap();
            refused(broken.check(Workload::Queue));
        }
    }

    #[test]
    fn a_path_that_is_not_text_does_not_stop_the_report() {
        use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
        let dir = Some(PathBuf::from(OsStr::from_bytes(b"a\xFFb")));
        let json = serde_json::to_value(Config { dir, ..Config::default() }).unwrap();
        assert_eq!(json["dir"], "a\u{FFFD}b");
    }

    #[test]
    fn the_json_holds_every_option() {
        let json = serde_json::to_value(Config::default()).unwrap();
        let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = [
            "backlog",
            "batch",
            "breakdown",
            "claim",
            "clients",
            "commit",
            "consumers",
            "count_rmw",
            "device",
            "dir",
            "distribution",
            "doublewrite",
            "elr",
            "group",
            "growth",
            "intents",
            "isolation",
            "load",
            "log_budget",
            "log_buffer",
            "memory",
            "producers",
            "reader",
            "reader_secs",
            "repeat",
            "replacement",
            "row_bytes",
            "rows",
            "scale",
            "secs",
            "seed",
            "segment",
            "skew",
            "slots",
            "spill",
            "status",
            "threads",
            "wait",
        ];
        assert_eq!(names, expected);
        assert_eq!(json["log_buffer"], BufferKind::default().to_string());
        assert_eq!((&json["wait"], &json["slots"]), (&"park".into(), &4.into()));
        assert_eq!(json["isolation"], "serializable");
        assert_eq!(json["secs"], 10.0);
        assert_eq!(json["device"], "auto");
        assert_eq!((&json["log_budget"], &json["row_bytes"]), (&(512_u64 << 20).into(), &100.into()));
    }
}
