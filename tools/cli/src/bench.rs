//! `foreshore bench`: options, and where the report goes.

use crate::bar::Bar;
use clap::Args;
use foreshore::{Device, DoublewriteKind, Error, Isolation};
use foreshore_bench::{
    Config, Report,
    config::{Claim, Commit, Distribution, Parts, Records, Sides, Storage, Window, Workload},
    group::GroupName,
    stepper::{self, Counts, Plan},
    units,
};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_classics::growth::GrowthKind;
use foreshore_classics::intents::IntentKind;
use foreshore_classics::log_buffers::{BufferKind, WaitKind};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_classics::status_tables::StatusKind;
use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// Each row runs the workload with one number of threads; all rows share one database.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What to run: tpcb, tatp, tatp-update-location, tpcc, tpcc-payment, tpcc-new-order, ycsb-a to ycsb-f, update,
    /// insert, read, queue
    workload: Workload,
    /// Where the database lives [default: a fresh directory below this one, removed at the end]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Worker threads, one row each [default: the number of cores; of queue its producers and consumers]
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Transactions in flight per thread with pipelined commits
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Measured time per row, after a warm-up of 1 s, or of as long if that is less
    #[arg(long, default_value = "10", value_parser = |text: &str| units::time("secs", text))]
    secs: Duration,
    /// Repeats of each row; the median is reported
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Size: branches of 100,000 accounts each, subscribers, warehouses, records, or rows of a table [default: 10
    /// branches, 100,000 subscribers, 1 warehouse, 1,000,000 records, 100,000 rows of update, 1,000,000 of read]
    #[arg(long)]
    scale: Option<u64>,
    /// When a transaction counts: blocking, pipelined, async
    #[arg(long, default_value_t)]
    commit: Commit,
    /// serializable
    #[arg(long, default_value = "serializable")]
    isolation: Isolation,
    /// Log buffer: mutex, carray, decoupled, hybrid, delegated, laser, faa, lanes
    #[arg(long, default_value_t)]
    log_buffer: BufferKind,
    /// How appends wait in the log buffers that make them wait: spin, park
    #[arg(long, default_value_t)]
    wait: WaitKind,
    /// Places where threads consolidate in carray, hybrid and delegated, 1 to 64
    #[arg(long, default_value_t = 4)]
    slots: usize,
    /// When a group of commits goes to the disk: greedy, window:TIME (waits for more, so long at most), and for
    /// comparison fixed:TIME,Ntxn,SIZE, adaptive, delay:TIME
    #[arg(long, default_value_t)]
    group: GroupName,
    /// Early lock release: off, s_only, full
    #[arg(long, default_value_t)]
    elr: EarlyRelease,
    /// Page replacement: lru, 2q, bp-lru, bp-2q, clock, gclock, s3c; gclock:W:C where a new page has W uses and C of
    /// them count
    #[arg(long, default_value_t)]
    replacement: ReplacementKind,
    /// What is asked whether a transaction has committed: csnmap, direct, lru:8, lru:32, lru:128, lru:128:banks
    #[arg(long, default_value_t)]
    status: StatusKind,
    /// Intents on tables: table (the shared lock table, each time), fastpath (words of the session, kept for its next
    /// transaction)
    #[arg(long, default_value_t)]
    intents: IntentKind,
    /// Growth of the data file: inline, ahead
    #[arg(long, default_value_t)]
    growth: GrowthKind,
    /// Doublewrite of pages: auto (unless the device writes pages whole), on, off (power loss may tear pages)
    #[arg(long, default_value_t)]
    doublewrite: DoublewriteKind,
    /// auto, direct, uring (by feature), buffered, null (in memory), delay:300us (in memory, durable after that long)
    #[arg(long, default_value = "auto")]
    device: Device,
    /// The engine's memory limit
    #[arg(long, default_value = "1GiB", value_parser = |text: &str| units::size("memory", text))]
    memory: u64,
    /// Largest size of a temporary file for undo that memory has no room for; 0: none
    #[arg(long, default_value = "0", value_parser = |text: &str| units::size("spill", text))]
    spill: u64,
    /// Hold a snapshot over each row
    #[arg(long)]
    reader: bool,
    /// Hold it so long, from the start of the warm-up on [default: to the end of the row]
    #[arg(long, requires = "reader", value_parser = |text: &str| units::time("reader-secs", text))]
    reader_secs: Option<Duration>,
    /// Size of a log segment [default: 16MiB, or a quarter of the log budget if that is less]
    #[arg(long, value_parser = |text: &str| units::size("segment", text))]
    segment: Option<u64>,
    /// Log behind the redo start: at least four segments
    #[arg(long, default_value = "512MiB", value_parser = |text: &str| units::size("log-budget", text))]
    log_budget: u64,
    /// How long a restart after a crash may take: the log behind the redo start follows from it, up to 512MiB
    #[arg(long, value_name = "TIME", conflicts_with = "log_budget",
        value_parser = |text: &str| units::time("restart-target", text))]
    restart_target: Option<Duration>,
    /// Archive the log in a directory beside the database, and keep so many bytes of it; 0: do not
    #[arg(long, default_value = "0", value_parser = |text: &str| units::size("archive", text))]
    archive: u64,
    /// Rows of update in one table that all threads share [default: a table for each thread]
    #[arg(long)]
    rows: Option<u64>,
    /// Bytes of a row of update and queue
    #[arg(long, default_value_t = 100)]
    row_bytes: usize,
    /// Rows of a transaction of insert
    #[arg(long, default_value_t = 1000)]
    batch: u32,
    /// Threads of queue that insert rows
    #[arg(long, default_value_t = 1)]
    producers: usize,
    /// Threads of queue that take rows; 0: the queue grows
    #[arg(long, default_value_t = 1)]
    consumers: usize,
    /// Rows that are in the queue at any time: at least so many, at most twice as many
    #[arg(long, default_value_t = 100)]
    backlog: u64,
    /// How consumers of queue take a row: skip-locked (the first that no other has locked), first
    #[arg(long, default_value_t)]
    claim: Claim,
    /// Offered load in transactions a second. They begin at random times, whether earlier ones have ended or not
    /// [default: as many as possible]
    #[arg(long)]
    load: Option<f64>,
    /// Records of YCSB that are read and written: uniform, zipf, latest [default: zipf; of ycsb-d latest]
    #[arg(long)]
    distribution: Option<Distribution>,
    /// Exponent of Zipf's distribution over the accounts, subscribers or records; 0: as the specification draws them
    #[arg(long, default_value_t = 0.0)]
    skew: f64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Before the measured time, count contended read-modify-writes: those on cache lines that two threads write.
    /// Another process runs the transactions by turns, and is stepped through one instruction at a time (Linux on
    /// x86-64)
    #[arg(long)]
    count_rmw: bool,
    /// Be that process, with so many threads
    #[arg(long, hide = true)]
    by_turns: Option<usize>,
    /// Measure where the time of one in 32 transactions goes
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    breakdown: bool,
    /// Write the report as JSON to this file; `-` is standard output, and the table goes to standard error
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,
}

impl Arguments {
    fn config(&self) -> Config {
        let threads = match (&self.threads[..], self.workload) {
            ([], Workload::Queue) => vec![self.producers + self.consumers],
            ([], _) => Config::default().threads,
            (threads, _) => threads.to_vec(),
        };
        Config {
            dir: self.dir.clone(),
            threads,
            clients: self.clients,
            scale: self.scale.unwrap_or(self.workload.default_scale()),
            commit: self.commit,
            isolation: self.isolation,
            seed: self.seed,
            window: Window {
                secs: self.secs,
                repeat: self.repeat,
                load: self.load,
                reader: self.reader,
                reader_secs: self.reader_secs,
                count_rmw: self.count_rmw,
                breakdown: self.breakdown,
            },
            parts: Parts {
                log_buffer: self.log_buffer,
                wait: self.wait,
                slots: self.slots,
                group: self.group,
                elr: self.elr,
                replacement: self.replacement,
                status: self.status,
                intents: self.intents,
                growth: self.growth,
            },
            storage: Storage {
                doublewrite: self.doublewrite,
                device: self.device,
                memory: self.memory,
                spill: self.spill,
                segment: self.segment.unwrap_or_else(|| segment_for(self.log_budget)),
                log_budget: self.log_budget,
                restart_target: self.restart_target,
                archive: self.archive,
            },
            records: Records {
                rows: self.rows,
                row_bytes: self.row_bytes,
                batch: self.batch,
                distribution: self.distribution,
                skew: self.skew,
            },
            queue: Sides {
                producers: self.producers,
                consumers: self.consumers,
                backlog: self.backlog,
                claim: self.claim,
            },
        }
    }
}

/// The largest segment up to the default of which four go into `log_budget`.
fn segment_for(log_budget: u64) -> u64 {
    let most = Storage::default().segment;
    (log_budget / 4).checked_ilog2().map_or(most, |log2| most.min(1 << log2))
}

/// Runs and reports. Returns whether every check is true.
pub(crate) fn run(arguments: &Arguments) -> Result<bool, Error> {
    let config = arguments.config();
    if let Some(threads) = arguments.by_turns {
        foreshore_bench::take_turns(arguments.workload, &Config { threads: vec![threads], ..config })?;
        return Ok(true);
    }
    // First, because it may be refused.
    let counts = count_rmw(&config)?;
    let mut report = foreshore_bench::run(arguments.workload, &config, &Bar::new())?;
    report.rows.iter_mut().zip(&counts).for_each(|(row, counts)| row.counted(counts));
    print(&report, arguments.json.as_deref())?;
    Ok(report.passed())
}

/// Counts read-modify-writes for each row, if that is asked for: this program with the same options, stepped through.
fn count_rmw(config: &Config) -> Result<Vec<Counts>, Error> {
    if !config.window.count_rmw {
        return Ok(Vec::new());
    }
    let program = env::current_exe().map_err(|e| Error::io("find", "this program", e))?;
    let count = |threads: &usize| {
        let mut command = Command::new(&program);
        stepper::count(command.args(env::args_os().skip(1)).arg("--by-turns").arg(threads.to_string()), Plan::default())
    };
    config.threads.iter().map(count).collect()
}

fn print(report: &Report, json: Option<&Path>) -> Result<(), Error> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |e| Error::io("write", path, e)
    };
    let to_stdout = json == Some(Path::new("-"));
    if to_stdout {
        eprint!("{}", report.table());
        io::stdout().write_all(report.json().as_bytes()).map_err(failed(Path::new("standard output")))
    } else {
        io::stdout().write_all(report.table().as_bytes()).map_err(failed(Path::new("standard output")))?;
        json.map_or(Ok(()), |path| fs::write(path, report.json()).map_err(failed(path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Parser, error::ErrorKind};

    #[derive(Parser)]
    struct Bench {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(words: &str) -> Result<Config, clap::Error> {
        Bench::try_parse_from(["bench"].into_iter().chain(words.split_whitespace()))
            .map(|bench| bench.arguments.config())
    }

    #[test]
    fn the_defaults_are_those_of_the_library() {
        let config = parse("tpcb").unwrap();
        assert_eq!(serde_json::to_value(config).unwrap(), serde_json::to_value(Config::default()).unwrap());
    }

    #[test]
    fn options_are_taken_as_users_type_them() {
        let config =
            parse("tpcb --threads 1,2,8 --secs 500ms --memory 48MiB --commit async --device delay:300us").unwrap();
        assert_eq!(config.threads, [1, 2, 8]);
        assert_eq!(config.window.secs, Duration::from_millis(500));
        assert_eq!(config.storage.memory, 48 << 20);
        assert_eq!(config.commit, Commit::Async);
        assert_eq!(config.storage.device, Device::Delay(Duration::from_micros(300)));
        let config = parse("tpcb --log-buffer carray --wait spin --slots 7").unwrap();
        let Parts { log_buffer, wait, slots, .. } = config.parts;
        assert_eq!((log_buffer, wait, slots), (BufferKind::CArray, WaitKind::Spin, 7));
        let storage = parse("tpcb --restart-target 2500ms").unwrap().storage;
        assert_eq!(storage.restart_target, Some(Duration::from_millis(2500)));
        assert_eq!(storage.log_budget, Storage::default().log_budget, "the most that follows from the time");
    }

    #[test]
    fn a_restart_target_excludes_a_log_budget() {
        let error = parse("tpcb --restart-target 5s --log-budget 64MiB").expect_err("both");
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict);
        assert!(error.to_string().contains("--log-budget"), "{error}");
    }

    #[test]
    fn what_is_not_built_is_refused_with_what_is() {
        for (words, exists) in [
            ("tpch", "tpcc"),
            ("tpcb --log-buffer ring", "faa"),
            ("tpcb --wait sleep", "park"),
            ("tpcb --group lazy", "greedy"),
            ("tpcb --device flash", "direct"),
            ("tpcb --isolation dirty", "serializable"),
            ("tpcb --memory 1GB", "MiB"),
            ("tpcb --restart-target 5min", "ms or s"),
        ] {
            let error = parse(words).expect_err(words);
            assert_eq!(error.kind(), ErrorKind::ValueValidation, "{words}");
            assert!(error.to_string().contains(exists), "{words}: {error}");
        }
    }
}
