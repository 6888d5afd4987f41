//! One measured row: workers on an open database, a window, and what changed in it.

use crate::{
    Config, Progress,
    counters::Counters,
    home::Home,
    process::{Peak, cpu_seconds, resident_bytes, stolen_seconds, user_and_system_seconds, voluntary_switches},
    report::{Breakdown, Checks, Kind, Row},
    terminal::{Arrivals, Phase, Tally, Terminal},
    units::thousandths,
    workload::{Audit, Work, Worker},
};
use foreshore::{Db, Profile, ReadOptions, ReadTransaction, Result, TimeSplit};
use foreshore_base::limits::PAGE_SIZE;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Time before the window, in which caches fill and threads start.
pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
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
    let mut looks = Looks::begin(&db, config, progress)?;
    let phase = Phase::new();
    let warm_up = warm_up(config, &db, work, checks)?;
    let window = config.secs + warm_up;
    progress.phase(&format!("{threads} threads, {}", config.commit), window.as_millis() as u64);

    let (tally, before, after) = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let worker = Worker { run: found.next_run, thread: thread as u32 };
                let arrivals = config.load.map(|load| Arrivals::new(load / threads as f64, config.seed, worker));
                let terminal = Terminal::new(config, &db, &phase, work.transactions(worker)).arriving(arrivals);
                scope.spawn(move || terminal.work())
            })
            .collect();
        let window = watch(&mut looks, &phase, (warm_up, config.secs));
        phase.raise(Phase::STOP);
        let mut tally = Tally::new();
        for worker in workers {
            let worked = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            tally.add(&worked?);
        }
        let (before, after) = window?;
        Ok::<_, foreshore::Error>((tally, before, after))
    })?;

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
    Ok(row(config, threads, &tally, (&before, &after), (rss_open_bytes, peak.bytes()), kinds, checks))
}

/// How long to warm up: a second, or as long as a shorter row. Rows that are not checked one by one are short and begin
/// with what they need in memory.
fn warm_up(config: &Config, db: &Db, work: &dyn Work, checks: Check) -> Result<Duration> {
    if checks == Check::Skip {
        work.read_in(db)?;
    }
    Ok(WARM_UP.min(config.secs))
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
    fn begin(db: &'a Db, config: &Config, progress: &'a dyn Progress) -> Result<Self> {
        let peak = Peak::begin()?;
        let reader = config.reader.then(|| db.read_with(ReadOptions::new().label("held over the row")));
        Ok(Self { db, peak, retained: 0, reader, held: config.reader_secs.unwrap_or(Duration::MAX), progress })
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
    checks.with(work.check_kinds(kinds))
}

fn row(
    config: &Config,
    threads: usize,
    tally: &Tally,
    (before, after): (&Sample, &Sample),
    (rss_open_bytes, rss_peak_bytes): (u64, u64),
    kinds: Vec<Kind>,
    checks: Checks,
) -> Row {
    let seconds = (after.at - before.at).as_secs_f64();
    let counters = after.counters - before.counters;
    let per = |count: u64, of: u64| if of == 0 { 0.0 } else { thousandths(count as f64 / of as f64) };
    let commits = [before.counters.commits].into_iter().chain(after.seconds.iter().map(|&(commits, _)| commits));
    let tps_each_second = after.seconds.iter().zip(commits).map(|(&(until, _), from)| until - from).collect();
    let latency_us = |quantile| thousandths(tally.latency.value_at_quantile(quantile) as f64 / 1000.0);
    Row {
        threads,
        clients: config.in_flight(),
        commits: tally.commits,
        rollbacks: tally.rollbacks,
        aborts: tally.aborts,
        retries: tally.retries,
        seconds: thousandths(seconds),
        tps: thousandths(tally.commits as f64 / seconds),
        tps_each_second,
        file_bytes_each_second: after.seconds.iter().map(|&(_, bytes)| bytes).collect(),
        p50_us: latency_us(0.5),
        p95_us: latency_us(0.95),
        p99_us: latency_us(0.99),
        p999_us: latency_us(0.999),
        cpu_cores: thousandths((after.cpu_seconds - before.cpu_seconds) / seconds),
        cpu_user_cores: thousandths((after.cpu_split[0] - before.cpu_split[0]) / seconds),
        cpu_system_cores: thousandths((after.cpu_split[1] - before.cpu_split[1]) / seconds),
        cpu_stolen_cores: thousandths((after.stolen_seconds - before.stolen_seconds) / seconds),
        voluntary_switches_per_txn: per(after.switches.saturating_sub(before.switches), tally.commits),
        log_bytes_per_txn: per(counters.log_bytes, tally.commits),
        log_groups: counters.log_groups,
        txns_per_group: per(tally.commits, counters.log_groups),
        log_writes: counters.log_writes,
        data_syncs: counters.data_syncs,
        pages_read: counters.pages_read,
        pages_written: counters.pages_written,
        checkpoints: counters.checkpoints,
        log_retained_peak_bytes: after.retained,
        log_slowed: thousandths(counters.slowed_nanos as f64 / 1e9 / seconds / threads as f64),
        rss_peak_bytes,
        rss_open_bytes,
        contended_rmw_per_txn: None,
        tagged_rmw_per_txn: None,
        instructions_per_txn: None,
        contended_rmw_sites: None,
        snapshots_killed: config.reader.then_some(counters.snapshots_killed),
        undo_spilled_bytes: (config.spill > 0).then_some(counters.undo_spilled_bytes),
        breakdown: config.breakdown.then(|| {
            let spent = after.spent - before.spent;
            Breakdown::new(spent, Profile::ONE_IN, tally.waited, after.at - before.at, threads)
        }),
        kinds,
        checks,
        repeats: Vec::new(),
    }
}
