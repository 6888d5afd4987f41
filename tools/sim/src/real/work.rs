//! The threads of the workload: writers that report what they were told, a reader, and upkeep.

use super::plan::{
    Detour, PROGRESS, Plan, SHARED, THREADS, WINDOW, create_tables, fill_and_shrink, is_refusal, is_refused_by_disk,
    of_prepared, prepared_name,
};
use foreshore::{CommitTicket, Db, Error, Result};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What a writer was told of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is durable.
    Committed,
    /// It is prepared, durably.
    Prepared,
    /// The disk does not take it.
    Refused,
}

/// How long the threads work, and on what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shift {
    /// When they end.
    pub(super) until: Instant,
    /// Transactions of each writer after which it ends.
    pub(super) most: u64,
    /// Whether the data file grows and shrinks beside the writers.
    pub(super) shrinks: bool,
    /// Whether the disk may refuse what a writer asks for.
    pub(super) is_disk_bad: bool,
}

/// Called with a thread, a transaction's number and what was said of it. An error ends the thread.
pub(super) type Report<'a> = &'a (dyn Fn(u64, u64, Told) -> Result<()> + Sync);

/// Runs the threads to the end of the shift, or until one of them meets an error.
///
/// # Errors
/// The first error of a writer that is not a refusal.
///
/// # Panics
/// If a snapshot does not hold together.
pub(super) fn work(db: &Db, shift: Shift, report: Report<'_>) -> Result<()> {
    settle_prepared(db, shift)?;
    // Not in a transaction that may stay prepared: it would keep a check from the catalogue.
    retried(shift, || db.run(create_tables))?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let write = |thread| {
            let mut writer = Writer { db, shift, report, stop: &stop, thread, window: VecDeque::new() };
            let done = writer.run().and_then(|()| writer.drain(0));
            // ORDERING: a hint, by which the others end sooner.
            stop.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        let begin = |work: Box<dyn FnOnce() -> Result<()> + Send>| {
            // The system may refuse a thread, which is an error like others.
            let begun = thread::Builder::new().spawn_scoped(scope, work);
            begun.map_err(|error| Error::io("start", "a thread", error))
        };
        let others = [begin(Box::new(|| read(db, &stop))), begin(Box::new(|| keep_up(db, shift.shrinks, &stop)))];
        let writers: Vec<_> = (0..THREADS).map(|thread| begin(Box::new(move || write(thread)))).collect();
        let is_short = writers.iter().chain(&others).any(Result::is_err);
        // ORDERING: as above.
        stop.fetch_or(is_short, Ordering::Relaxed);
        let end = |thread: Result<ScopedJoinHandle<'_, Result<()>>>| thread?.join().expect("no panic");
        let done: Vec<Result<()>> = writers.into_iter().map(end).collect();
        // ORDERING: as above.
        stop.store(true, Ordering::Relaxed);
        done.into_iter().chain(others.map(end)).collect()
    })
}

/// Commits what the run before has left prepared.
fn settle_prepared(db: &Db, shift: Shift) -> Result<()> {
    for found in db.prepared()? {
        if of_prepared(&found.name).is_some() {
            retried(shift, || db.commit_prepared(&found.name).map(drop))?;
        }
    }
    Ok(())
}

/// Runs `attempt` again while it is refused and the shift lasts.
fn retried<T>(shift: Shift, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let mut disk = 0;
    loop {
        match attempt() {
            Err(error) if is_refusal(&error) && Instant::now() < shift.until => {}
            Err(error) if shift.is_disk_bad && is_refused_by_disk(&error) && Instant::now() < shift.until => {
                disk += 1;
                // A disk that has failed for long is an answer, too.
                if disk == 2000 {
                    return Err(error);
                }
                thread::sleep(Duration::from_millis(1));
            }
            answer => return answer,
        }
    }
}

struct Writer<'a> {
    db: &'a Db,
    shift: Shift,
    report: Report<'a>,
    stop: &'a AtomicBool,
    thread: u64,
    /// Commits that are not durable yet.
    window: VecDeque<(u64, CommitTicket)>,
}

impl Writer<'_> {
    fn is_over(&self) -> bool {
        // ORDERING: a hint.
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.shift.until
    }

    fn run(&mut self) -> Result<()> {
        let read = || self.db.run(|tx| tx.open(PROGRESS)?.get(self.thread));
        let before = retried(self.shift, read)?.unwrap_or(0);
        for number in before + 1..=before.saturating_add(self.shift.most) {
            if !self.run_one(number)? {
                break;
            }
        }
        Ok(())
    }

    /// Runs transaction `number` until it is committed; false if the shift ends before.
    fn run_one(&mut self, number: u64) -> Result<bool> {
        let mut refusals = 0;
        while !self.is_over() {
            let plan = Plan::new(self.thread, number, refusals > 3);
            if plan.is_prepared {
                self.drain(0)?;
            }
            match self.attempt(number, &plan) {
                // An error from here on is none of this transaction's: its commit has happened.
                Ok(()) => return self.drain(WINDOW).map(|()| true),
                Err(error) if is_refusal(&error) => refusals += 1,
                Err(error) if self.shift.is_disk_bad && is_refused_by_disk(&error) => {
                    refusals += 1;
                    (self.report)(self.thread, number, Told::Refused)?;
                    thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn attempt(&mut self, number: u64, plan: &Plan) -> Result<()> {
        if plan.detour == Detour::Rollback {
            let tx = self.db.begin();
            plan.stray(&tx)?;
            tx.rollback()?;
        }
        let tx = self.db.begin();
        plan.run(&tx)?;
        if plan.is_prepared {
            let name = prepared_name(self.thread, number);
            tx.prepare(&name)?;
            (self.report)(self.thread, number, Told::Prepared)?;
            retried(self.shift, || self.db.commit_prepared(&name))?;
            return (self.report)(self.thread, number, Told::Committed);
        }
        if self.thread.is_multiple_of(2) {
            tx.commit()?;
            return (self.report)(self.thread, number, Told::Committed);
        }
        let ticket = tx.commit_pipelined()?;
        self.window.push_back((number, ticket));
        Ok(())
    }

    /// Waits for commits until at most `left` are in flight.
    fn drain(&mut self, left: usize) -> Result<()> {
        while self.window.len() > left {
            let Some((number, ticket)) = self.window.pop_front() else { break };
            ticket.wait()?;
            (self.report)(self.thread, number, Told::Committed)?;
        }
        Ok(())
    }
}

/// Looks at the balances by snapshots, some of which are kept for a while.
fn read(db: &Db, stop: &AtomicBool) -> Result<()> {
    let mut round = 0;
    // ORDERING: a hint.
    while !stop.load(Ordering::Relaxed) {
        let read = db.read();
        for _ in 0..1 + round % 2 {
            let sum = read.open(SHARED).and_then(|shared| {
                shared.iter().try_fold(0, |sum, row| row.map(|(_, balance): (u64, i64)| sum + balance))
            });
            // An error is the writers' to report.
            assert!(sum.as_ref().map_or(true, |&sum| sum == 0), "the balances of a snapshot make {sum:?}");
            thread::sleep(Duration::from_millis(20 * (round % 2)));
        }
        round += 1;
        thread::sleep(Duration::from_millis(3));
    }
    Ok(())
}

/// Takes checkpoints, and gives space back.
fn keep_up(db: &Db, shrinks: bool, stop: &AtomicBool) -> Result<()> {
    let mut round = 0_u32;
    // ORDERING: a hint.
    while !stop.load(Ordering::Relaxed) {
        // What fails there has stopped the writers as well, or concerns nothing that they were told.
        let _: Result<()> = match round % 4 {
            _ if shrinks => fill_and_shrink(db),
            3 if round % 8 == 7 => db.compact().map(drop),
            3 => db.vacuum().map(drop),
            _ => db.checkpoint(),
        };
        round += 1;
        thread::sleep(Duration::from_millis(25));
    }
    Ok(())
}
