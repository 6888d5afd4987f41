//! The workers of a row: each draws transactions, runs them on a session, and counts what was acknowledged.

mod task;

use crate::{
    engine::{Engine, Session},
    error::Result,
    spec::Spec,
    workload::{Table, Workload, own_rows},
};
use hdrhistogram::Histogram;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use task::Task;

/// Longest latency that is told apart, in nanoseconds: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;
/// Significant digits of latencies.
const DIGITS: u8 = 2;
/// How long a worker of `queue` sleeps that has nothing to do.
const PAUSE: Duration = Duration::from_micros(50);
/// Rows that producers may be ahead of consumers.
const AHEAD: i64 = 1_000;

/// What the workers do; the measuring thread moves it forward.
pub(crate) struct Phase {
    step: AtomicU8,
    /// Whether a timed transaction was acknowledged while measuring.
    has_timed: AtomicBool,
}

impl Phase {
    pub(crate) const WARM: u8 = 0;
    pub(crate) const MEASURE: u8 = 1;
    pub(crate) const STOP: u8 = 2;

    pub(crate) const fn new() -> Self {
        Self { step: AtomicU8::new(Self::WARM), has_timed: AtomicBool::new(false) }
    }

    pub(crate) fn get(&self) -> u8 {
        self.step.load(Ordering::Relaxed)
    }

    /// Moves forward, never back: a worker that failed has stopped the row for all.
    pub(crate) fn raise(&self, to: u8) {
        self.step.fetch_max(to, Ordering::Relaxed);
    }

    /// Whether the row has a latency to report.
    pub(crate) fn has_timed(&self) -> bool {
        self.has_timed.load(Ordering::Relaxed)
    }

    /// Notes a timed transaction. Only the first one writes.
    fn note_timed(&self) {
        if !self.has_timed() {
            self.has_timed.store(true, Ordering::Relaxed);
        }
    }
}

/// What workers counted.
pub(crate) struct Tally {
    /// Transactions acknowledged while measuring.
    pub(crate) measured: u64,
    /// Transactions acknowledged at any time.
    pub(crate) commits: u64,
    /// Latency of the timed transactions, in nanoseconds.
    pub(crate) latency: Histogram<u32>,
    /// Reads that returned other rows than were loaded.
    pub(crate) wrong_reads: u64,
    /// The word of each value of `values` that was replaced.
    pub(crate) words: BTreeMap<u64, u64>,
    /// Exclusive or of the keys that `churn` has deleted and inserted.
    pub(crate) churned_sum: u64,
    /// Rows that `delete-range` has deleted, and the exclusive or of their keys.
    pub(crate) deleted: u64,
    pub(crate) deleted_sum: u64,
    /// Rows of each table of `insert` and `bulk`.
    pub(crate) inserted: BTreeMap<u16, u64>,
    pub(crate) pushed: u64,
    pub(crate) pushed_sum: u64,
    pub(crate) popped: u64,
    pub(crate) popped_sum: u64,
    /// Keys that a consumer claimed after a larger one.
    pub(crate) out_of_order: u64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds and digits are in range");
        Self {
            measured: 0,
            commits: 0,
            latency,
            wrong_reads: 0,
            words: BTreeMap::new(),
            churned_sum: 0,
            deleted: 0,
            deleted_sum: 0,
            inserted: BTreeMap::new(),
            pushed: 0,
            pushed_sum: 0,
            popped: 0,
            popped_sum: 0,
            out_of_order: 0,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.measured += other.measured;
        self.commits += other.commits;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.wrong_reads += other.wrong_reads;
        self.words.extend(&other.words);
        self.churned_sum ^= other.churned_sum;
        self.deleted += other.deleted;
        self.deleted_sum ^= other.deleted_sum;
        self.inserted.extend(&other.inserted);
        self.pushed += other.pushed;
        self.pushed_sum ^= other.pushed_sum;
        self.popped += other.popped;
        self.popped_sum ^= other.popped_sum;
        self.out_of_order += other.out_of_order;
    }
}

/// How far the producers of `queue` are, and the consumers.
pub(crate) struct Flow {
    /// The next key.
    next: AtomicU64,
    /// Committed rows above the backlog that no consumer has reserved.
    free: AtomicI64,
}

impl Flow {
    pub(crate) const fn new(backlog: u64) -> Self {
        Self { next: AtomicU64::new(backlog), free: AtomicI64::new(0) }
    }

    fn may_push(&self) -> bool {
        self.free.load(Ordering::Relaxed) < AHEAD
    }

    /// Reserves one row above the backlog.
    fn reserve(&self) -> bool {
        let less = |free: i64| (free > 0).then_some(free - 1);
        self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self) {
        self.free.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs the transactions of one thread until the phase says stop, then waits for those in flight.
///
/// # Errors
/// What the engine gives. The phase is `STOP` then.
pub(crate) fn work(engine: &dyn Engine, spec: &Spec, thread: usize, flow: &Flow, phase: &Phase) -> Result<Tally> {
    let mut tally = Tally::new();
    if spec.workload == Workload::Bulk {
        let done = bulk(engine, spec, thread, &mut tally);
        return done.inspect_err(|_| phase.raise(Phase::STOP)).map(|()| tally);
    }
    let worked = engine.session(&mut |session| {
        let mut worker = Worker { phase, tally: &mut tally, begun: VecDeque::new() };
        worker.work(Task::new(spec, thread, flow), session)
    });
    if worked.is_err() {
        phase.raise(Phase::STOP);
    }
    worked.map(|()| tally)
}

/// Fills the table of one thread.
fn bulk(engine: &dyn Engine, spec: &Spec, thread: usize, tally: &mut Tally) -> Result<()> {
    let (table, rows, begun) = (Table(thread as u16), spec.bulk_rows(thread), Instant::now());
    engine.bulk(table, &mut own_rows(0..rows))?;
    tally.inserted.insert(table.0, rows);
    (tally.commits, tally.measured) = (1, 1);
    tally.latency.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    Ok(())
}

struct Worker<'a> {
    phase: &'a Phase,
    tally: &'a mut Tally,
    /// When the transactions in flight began, oldest first; none for those that are not timed.
    begun: VecDeque<Option<Instant>>,
}

impl Worker<'_> {
    fn work(&mut self, mut task: Task<'_>, session: &mut dyn Session) -> Result<()> {
        let (timed, mut drawn) = (task.timed(), 0_u64);
        while self.phase.get() != Phase::STOP && !task.is_over() {
            if !task.is_due() {
                thread::sleep(PAUSE);
                continue;
            }
            let begun = drawn.is_multiple_of(timed).then(Instant::now);
            drawn += 1;
            if task.run(session, self.tally)? {
                self.begun.push_back(begun);
            }
            self.acknowledge(session.pending()?);
        }
        session.drain()?;
        self.acknowledge(0);
        Ok(())
    }

    /// Counts the oldest transactions until `pending` are left.
    fn acknowledge(&mut self, pending: usize) {
        let is_measured = self.phase.get() == Phase::MEASURE;
        while self.begun.len() > pending {
            let begun = self.begun.pop_front().flatten();
            self.tally.commits += 1;
            self.tally.measured += u64::from(is_measured);
            if let Some(begun) = begun.filter(|_| is_measured) {
                let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.tally.latency.saturating_record(ns);
                self.phase.note_timed();
            }
        }
    }
}
