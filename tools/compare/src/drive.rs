//! The workers of a row: each draws transactions, runs them on a session, and counts what was acknowledged.

mod flow;
mod tally;
mod task;

pub(crate) use flow::Shared;
pub(crate) use tally::Tally;

use crate::{
    engine::{Engine, Session},
    error::Result,
    spec::Spec,
    workload::{Table, Workload, own_rows},
};
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU8, Ordering},
    thread,
    time::{Duration, Instant},
};

use task::{Ran, Task};

/// How long a worker of `queue` sleeps that has nothing to do.
const PAUSE: Duration = Duration::from_micros(50);

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

/// Runs the transactions of one thread until the phase says stop, then waits for those in flight.
///
/// # Errors
/// What the engine gives. The phase is `STOP` then.
pub(crate) fn work(engine: &dyn Engine, spec: &Spec, thread: usize, shared: &Shared, phase: &Phase) -> Result<Tally> {
    let mut tally = Tally::new();
    if spec.workload == Workload::Bulk {
        let done = bulk(engine, spec, thread, &mut tally);
        return done.inspect_err(|_| phase.raise(Phase::STOP)).map(|()| tally);
    }
    let worked = engine.session(&mut |session| {
        let mut worker = Worker { phase, shared, tally: &mut tally, begun: VecDeque::new() };
        worker.work(Task::new(spec, thread, shared), session)
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
    shared: &'a Shared,
    tally: &'a mut Tally,
    /// When the transactions in flight began, oldest first; none for those that are not timed. With the number of the
    /// record that is inserted.
    begun: VecDeque<(Option<Instant>, Option<u64>)>,
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
            match task.run(session, self.tally)? {
                Ran::Nothing => {}
                Ran::Ended => self.count(begun),
                Ran::InFlight { inserted } => self.begun.push_back((begun, inserted)),
            }
            self.acknowledge(session.pending()?);
        }
        session.drain()?;
        self.acknowledge(0);
        Ok(())
    }

    /// Counts the oldest transactions until `pending` are left.
    fn acknowledge(&mut self, pending: usize) {
        while self.begun.len() > pending
            && let Some((begun, inserted)) = self.begun.pop_front()
        {
            if let Some(number) = inserted {
                self.shared.numbers().insert(number);
            }
            self.count(begun);
        }
    }

    /// Counts a transaction that is acknowledged now.
    fn count(&mut self, begun: Option<Instant>) {
        let is_measured = self.phase.get() == Phase::MEASURE;
        self.tally.commits += 1;
        self.tally.measured += u64::from(is_measured);
        if let Some(begun) = begun.filter(|_| is_measured) {
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.tally.latency.saturating_record(ns);
            self.phase.note_timed();
        }
    }
}
