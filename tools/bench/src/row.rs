//! One measured row: workers on an open database, a window, and what changed in it.

use crate::{
    Config, Progress,
    config::Window,
    counters::Counters,
    home::Home,
    process::{Peak, cpu_seconds, resident_bytes, stolen_seconds, user_and_system_seconds, voluntary_switches},
    report::{Breakdown, Checks, CountedRmw, DataUse, Ended, Kind, Latency, LogUse, MemoryUse, Row, TimeUse},
    terminal::{Arrivals, Phase, Tally, Terminal},
    units::thousandths,
    workload::{Audit, Work, Worker, begin_run},
};
use foreshore::{Db, Profile, ReadOptions, ReadTransaction, Result, TimeSplit};
use foreshore_base::limits::PAGE_SIZE;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How often the main thread looks at memory and phase.
const TICK: Duration = Duration::from_millis(10);

/// When the database is looked through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Behind the row, live and reopened.
    LiveAndReopened,
    /// Not for this row: a later audit looks for its commits too.
    Skip,
}

/// What is read at both ends of the window.
struct Sample {
    at: Instant,
    cpu_seconds: f64,
    /// User and system, in ticks of the kernel.
    cpu_split: [f64; 2],
    /// From the whole machine, in ticks of the kernel.
    stolen_seconds: f64,
    switches: u64,
    counters: Counters,
    spent: TimeSplit,
    /// The most log that was kept at any look so far.
    retained: u64,
    /// Commits, and size of the data file, at the end of each second so far.
    seconds: Vec<(u64, u64)>,
}

impl Sample {
    fn take(db: &Db) -> Result<Self> {
        // A kernel counts a yield as if the thread had been pushed aside.
        let (switches, counters) = (voluntary_switches()? + db.stats().log.yields, Counters::read(db));
        let cpu_split = user_and_system_seconds()?;
        Ok(Self {
            at: Instant::now(),
            cpu_seconds: cpu_seconds(),
            cpu_split,
            stolen_seconds: stolen_seconds()?,
            switches,
            counters,
            spent: db.profile().total(),
            retained: db.stats().log_retained_bytes,
            seconds: Vec::new(),
        })
    }
}

/// Measures one row with `threads` workers, checks the database as `checks` says, and updates `found`, the result of
/// the last audit.
pub(crate) fn measure(
    config: &Config,
    home: &Home,
    work: &dyn Work,
    threads: usize,
    found: &mut Audit,
    checks: Check,
    progress: &dyn Progress,
) -> Result<Row> {
    let db = home.open()?;
    let rss_open_bytes = resident_bytes()?;
    let mut looks = Looks::begin(&db, &config.window, progress)?;
    if checks == Check::Skip {
        // Rows that are not checked one by one are short, and begin with what they need in memory.
        work.read_in(&db)?;
    }
    begin_run(&db, found.next_run)?;
    let (tally, before, after) = drive(config, &mut looks, work, threads, found.next_run)?;

    let Looks { mut peak, reader, .. } = looks;
    drop(reader);
    let expected = work.count_after(found.count, tally.all_commits);
    let (live, reopened) = match checks {
        Check::Skip => {
            Home::close(&db)?;
            (Audit { is_sound: true, count: expected, next_run: found.next_run + 1 }, None)
        }
        Check::LiveAndReopened => {
            progress.phase("checking", 2);
            // What async commits acknowledged early must be durable before the checks.
            db.sync()?;
            let live = work.audit(&db)?;
            peak.observe()?;
            Home::close(&db)?;
            drop(db);
            progress.at(1);
            let db = home.open()?;
            let reopened = work.audit(&db)?;
            Home::close(&db)?;
            progress.at(2);
            (live, Some(reopened))
        }
    };
    *found = Audit { next_run: live.next_run.max(found.next_run + 1), ..live };
    let kinds = work.take_kinds();
    let checks = reopened.map_or_else(Checks::none, |reopened| checked(work, &kinds, live, reopened, expected));
    let change = Change::new((&before, &after), threads);
    Ok(Row {
        threads,
        clients: config.in_flight(),
        tps: thousandths(tally.commits as f64 / change.seconds),
        ended: change.ended(&tally, kinds),
        latency: latency(&tally),
        time: change.time(&tally, config.window.breakdown),
        log: change.log(tally.commits),
        data: change.data(),
        memory: change.memory(config, (rss_open_bytes, peak.bytes())),
        rmw: CountedRmw::default(),
        checks,
        repeats: Vec::new(),
    })
}

/// Has the workers of run `run` at work through warm-up and window. Returns what they counted, and what was read at the
/// window's ends.
fn drive(
    config: &Config,
    looks: &mut Looks<'_>,
    work: &dyn Work,
    threads: usize,
    run: u64,
) -> Result<(Tally, Sample, Sample)> {
    let (db, phase) = (looks.db, Phase::new());
    let (warm_up, secs) = (config.window.warm_up(), config.window.secs);
    looks.progress.phase(&format!("{threads} threads, {}", config.commit), (warm_up + secs).as_millis() as u64);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let worker = Worker { run, thread: thread as u32 };
                let arrivals = config.window.load.map(|load| Arrivals::new(load / threads as f64, config.seed, worker));
                let terminal = Terminal::new(config, db, &phase, work.transactions(worker)).arriving(arrivals);
                scope.spawn(move || terminal.work())
            })
            .collect();
        let window = watch(looks, &phase, (warm_up, secs));
        phase.raise(Phase::STOP);
        let mut tally = Tally::new();
        for worker in workers {
            let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.add(&worked?);
        }
        let (before, after) = window?;
        Ok((tally, before, after))
    })
}

/// What the main thread does while the workers are at work.
struct Looks<'a> {
    db: &'a Db,
    peak: Peak,
    /// The most log that was kept at any look.
    retained: u64,
    /// The snapshot that is held.
    reader: Option<ReadTransaction>,
    /// From the begin on.
    held: Duration,
    progress: &'a dyn Progress,
}

impl<'a> Looks<'a> {
    fn begin(db: &'a Db, window: &Window, progress: &'a dyn Progress) -> Result<Self> {
        let peak = Peak::begin()?;
        let reader = window.reader.then(|| db.read_with(ReadOptions::new().label("held over the row")));
        Ok(Self { db, peak, retained: 0, reader, held: window.reader_secs.unwrap_or(Duration::MAX), progress })
    }

    /// Looks at memory, log and snapshot until `end`, or until a worker has failed.
    fn until(&mut self, end: Duration, begun: Instant, phase: &Phase) -> Result<()> {
        while begun.elapsed() < end && phase.get() != Phase::STOP {
            thread::sleep(TICK.min(end.saturating_sub(begun.elapsed())));
            self.peak.observe()?;
            self.retained = self.retained.max(self.db.stats().log_retained_bytes);
            self.reader.take_if(|_| begun.elapsed() >= self.held);
            self.progress.at(begun.elapsed().as_millis() as u64);
        }
        Ok(())
    }
}

/// Waits through warm-up and window, and returns what was read at the window's ends. Ends early when a worker has
/// failed.
fn watch(looks: &mut Looks<'_>, phase: &Phase, (warm_up, secs): (Duration, Duration)) -> Result<(Sample, Sample)> {
    let (db, begun) = (looks.db, Instant::now());
    looks.until(warm_up, begun, phase)?;
    let before = Sample::take(db)?;
    phase.raise(Phase::MEASURE);
    let mut seconds = Vec::new();
    for second in 1..=secs.as_secs() {
        looks.until(warm_up + Duration::from_secs(second), begun, phase)?;
        let stats = db.stats();
        seconds.push((stats.txn.commits, stats.space.file_pages * PAGE_SIZE as u64));
    }
    looks.until(warm_up + secs, begun, phase)?;
    let after = Sample::take(db)?;
    Ok((before, Sample { retained: looks.retained, seconds, ..after }))
}

fn checked(work: &dyn Work, kinds: &[Kind], live: Audit, reopened: Audit, expected: u64) -> Checks {
    let [rows, count] = work.checks();
    let checks = Checks::new([
        (format!("{rows}_live"), live.is_sound),
        (format!("{rows}_reopened"), reopened.is_sound),
        (format!("{count}_live"), live.count == expected),
        (format!("{count}_reopened"), reopened.count == expected),
    ]);
    checks.with(work.check_kinds(kinds).into_iter().map(|(name, is_true)| (name.to_owned(), is_true)))
}

/// What changed in a window.
struct Change<'a> {
    before: &'a Sample,
    after: &'a Sample,
    counters: Counters,
    /// Its length.
    seconds: f64,
    threads: usize,
}

impl<'a> Change<'a> {
    fn new((before, after): (&'a Sample, &'a Sample), threads: usize) -> Self {
        let (counters, seconds) = (after.counters - before.counters, (after.at - before.at).as_secs_f64());
        Self { before, after, counters, seconds, threads }
    }

    fn ended(&self, tally: &Tally, kinds: Vec<Kind>) -> Ended {
        let (at_first, ends) = (self.before.counters.commits, &self.after.seconds);
        let begins = [at_first].into_iter().chain(ends.iter().map(|&(commits, _)| commits));
        Ended {
            seconds: thousandths(self.seconds),
            commits: tally.commits,
            rollbacks: tally.rollbacks,
            aborts: tally.aborts,
            retries: tally.retries,
            tps_each_second: ends.iter().zip(begins).map(|(&(until, _), from)| until - from).collect(),
            kinds,
        }
    }

    fn time(&self, tally: &Tally, has_breakdown: bool) -> TimeUse {
        let Self { before, after, .. } = self;
        let cores = |of: fn(&Sample) -> f64| thousandths((of(after) - of(before)) / self.seconds);
        let breakdown = || {
            let spent = after.spent - before.spent;
            Breakdown::new(spent, Profile::ONE_IN, tally.waited, after.at - before.at, self.threads)
        };
        TimeUse {
            cpu_cores: cores(|sample| sample.cpu_seconds),
            cpu_user_cores: cores(|sample| sample.cpu_split[0]),
            cpu_system_cores: cores(|sample| sample.cpu_split[1]),
            cpu_stolen_cores: cores(|sample| sample.stolen_seconds),
            voluntary_switches_per_txn: per(after.switches.saturating_sub(before.switches), tally.commits),
            breakdown: has_breakdown.then(breakdown),
        }
    }

    fn log(&self, commits: u64) -> LogUse {
        let Counters { log_bytes, log_groups, log_writes, slowed_nanos, .. } = self.counters;
        LogUse {
            log_bytes_per_txn: per(log_bytes, commits),
            log_groups,
            txns_per_group: per(commits, log_groups),
            log_writes,
            log_retained_peak_bytes: self.after.retained,
            log_slowed: thousandths(slowed_nanos as f64 / 1e9 / self.seconds / self.threads as f64),
        }
    }

    fn data(&self) -> DataUse {
        let Counters { data_syncs, pages_read, pages_written, checkpoints, .. } = self.counters;
        let file_bytes_each_second = self.after.seconds.iter().map(|&(_, bytes)| bytes).collect();
        DataUse { file_bytes_each_second, data_syncs, pages_read, pages_written, checkpoints }
    }

    fn memory(&self, config: &Config, (rss_open_bytes, rss_peak_bytes): (u64, u64)) -> MemoryUse {
        let Counters { snapshots_killed, undo_spilled_bytes, .. } = self.counters;
        MemoryUse {
            rss_peak_bytes,
            rss_open_bytes,
            snapshots_killed: config.window.reader.then_some(snapshots_killed),
            undo_spilled_bytes: (config.storage.spill > 0).then_some(undo_spilled_bytes),
        }
    }
}

fn latency(tally: &Tally) -> Latency {
    let us = |quantile| thousandths(tally.latency.value_at_quantile(quantile) as f64 / 1000.0);
    Latency { p50_us: us(0.5), p95_us: us(0.95), p99_us: us(0.99), p999_us: us(0.999) }
}

fn per(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { thousandths(count as f64 / of as f64) }
}
