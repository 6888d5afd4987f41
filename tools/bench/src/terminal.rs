//! One worker thread: draws transactions, runs them, and counts what was acknowledged.

use crate::{
    Config,
    config::Commit,
    random::Random,
    workload::{End, Transactions, Worker},
};
use foreshore::{CommitTicket, Csn, Db, Durability, Result, Transaction, TxnOptions};
use hdrhistogram::Histogram;
use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU8, Ordering},
    time::{Duration, Instant},
};

/// Longest latency that is told apart, in nanoseconds: 100 s.
const LONGEST_NS: u64 = 100_000_000_000;
/// Significant digits of latencies: a histogram takes some 20 KiB.
const DIGITS: u8 = 2;

/// What the workers do; the main thread moves it forward.
pub(crate) struct Phase(AtomicU8);

impl Phase {
    pub(crate) const WARM: u8 = 0;
    pub(crate) const MEASURE: u8 = 1;
    pub(crate) const STOP: u8 = 2;

    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(Self::WARM))
    }

    pub(crate) fn get(&self) -> u8 {
        // ORDERING: a signal without data, joined before its counts are read.
        self.0.load(Ordering::Relaxed)
    }

    /// Moves forward, never back: a worker that failed has stopped the row for all.
    pub(crate) fn raise(&self, to: u8) {
        // ORDERING: as in `get`.
        self.0.fetch_max(to, Ordering::Relaxed);
    }
}

/// What a worker counted.
pub(crate) struct Tally {
    /// Commits acknowledged while measuring.
    pub(crate) commits: u64,
    /// All commits, warm-up and end included.
    pub(crate) all_commits: u64,
    /// Transactions that the workload rolled back while measuring.
    pub(crate) rollbacks: u64,
    /// Transactions given up while measuring.
    pub(crate) aborts: u64,
    /// Transactions run again while measuring.
    pub(crate) retries: u64,
    /// Time that the worker waited for tickets while measuring.
    pub(crate) waited: Duration,
    /// Latency of the counted commits, in nanoseconds.
    pub(crate) latency: Histogram<u32>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("bounds and digits are in range");
        Self { commits: 0, all_commits: 0, rollbacks: 0, aborts: 0, retries: 0, waited: Duration::ZERO, latency }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.commits += other.commits;
        self.all_commits += other.all_commits;
        self.rollbacks += other.rollbacks;
        self.aborts += other.aborts;
        self.retries += other.retries;
        self.waited += other.waited;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
    }
}

/// The times at which the transactions of an offered load begin, whatever becomes of those before.
pub(crate) struct Arrivals {
    random: Random,
    /// Between two of them, on average.
    gap: Duration,
    next: Instant,
}

/// Tells the draws of arrivals from those of the workload.
const ARRIVALS: u64 = 1 << 63;

impl Arrivals {
    /// `load` a second for one worker.
    pub(crate) fn new(load: f64, seed: u64, worker: Worker) -> Self {
        let random = Random::new(seed, ARRIVALS | worker.stream());
        Self { random, gap: Duration::from_secs_f64(1.0 / load), next: Instant::now() }
    }

    /// Sleeps until the next arrival is due, and returns when that was. Gaps are exponential.
    fn wait(&mut self) -> Instant {
        let due = self.next;
        self.next += self.gap.mul_f64(-(1.0 - self.random.fraction()).ln());
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }
}

/// A worker.
pub(crate) struct Terminal<'a> {
    db: &'a Db,
    phase: &'a Phase,
    commit: Commit,
    options: TxnOptions,
    transactions: Box<dyn Transactions + Send>,
    /// When transactions begin; one after the other if none.
    arrivals: Option<Arrivals>,
    /// Transactions in flight at most.
    clients: usize,
    /// What is not yet known to be durable, oldest first.
    in_flight: VecDeque<InFlight>,
    tally: Tally,
}

/// A transaction that has ended, and perhaps is not durable yet.
struct InFlight {
    ticket: CommitTicket,
    begun: Instant,
    end: End,
}

impl<'a> Terminal<'a> {
    /// A worker that runs `transactions`.
    pub(crate) fn new(
        config: &Config,
        db: &'a Db,
        phase: &'a Phase,
        transactions: Box<dyn Transactions + Send>,
    ) -> Self {
        let durability = if config.commit == Commit::Async { Durability::Relaxed } else { Durability::Durable };
        Self {
            db,
            phase,
            commit: config.commit,
            options: TxnOptions::new().label("bench").durability(durability).isolation(config.isolation),
            transactions,
            arrivals: None,
            clients: config.in_flight(),
            in_flight: VecDeque::with_capacity(config.in_flight()),
            tally: Tally::new(),
        }
    }

    /// Has the worker begin its transactions at these times.
    pub(crate) fn arriving(self, arrivals: Option<Arrivals>) -> Self {
        Self { arrivals, ..self }
    }

    /// Runs transactions until the phase says stop, then waits until all are durable.
    pub(crate) fn work(mut self) -> Result<Tally> {
        let worked = self.work_until_stop();
        if worked.is_err() {
            self.phase.raise(Phase::STOP);
        }
        worked?;
        while !self.in_flight.is_empty() {
            self.acknowledge_oldest()?;
        }
        Ok(self.tally)
    }

    fn work_until_stop(&mut self) -> Result<()> {
        while self.phase.get() != Phase::STOP {
            self.operate()?;
        }
        Ok(())
    }

    /// Runs one transaction and acknowledges what is durable.
    pub(crate) fn operate(&mut self) -> Result<()> {
        if self.transactions.wait_due() {
            self.transact()?;
        }
        if self.in_flight.len() >= self.clients {
            self.acknowledge_oldest()?;
        }
        // A wait is over for all that its group carried: they are counted now, not one by one.
        while self.in_flight.front().is_some_and(|oldest| oldest.ticket.is_durable()) {
            self.acknowledge_oldest()?;
        }
        Ok(())
    }

    /// Runs one transaction, again where the engine says that it may succeed then.
    fn transact(&mut self) -> Result<()> {
        // Of an offered load latency counts from the time at which the transaction was due.
        let begun = self.arrivals.as_mut().map_or_else(Instant::now, Arrivals::wait);
        self.transactions.draw();
        loop {
            let tx = self.db.begin_with(self.options);
            match self.transactions.apply(&tx).and_then(|end| self.end(tx, begun, end)) {
                Ok(end) => {
                    self.transactions.ended(end);
                    return Ok(());
                }
                Err(e) if e.is_retryable() => {
                    let counts = u64::from(self.phase.get() == Phase::MEASURE);
                    if self.phase.get() == Phase::STOP {
                        self.tally.aborts += counts;
                        return Ok(());
                    }
                    self.tally.retries += counts;
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn end(&mut self, tx: Transaction, begun: Instant, end: End) -> Result<End> {
        match (self.commit, end) {
            (Commit::Pipelined, End::Commit) => {
                self.in_flight.push_back(InFlight { ticket: tx.commit_pipelined()?, begun, end });
            }
            (Commit::Pipelined, End::Rollback) => {
                self.in_flight.push_back(InFlight { ticket: tx.rollback_pipelined()?, begun, end });
            }
            (Commit::Blocking | Commit::Async, End::Commit) => {
                let _: Csn = tx.commit()?;
                self.count(begun, end);
            }
            (Commit::Blocking | Commit::Async, End::Rollback) => {
                tx.rollback()?;
                self.count(begun, end);
            }
        }
        Ok(end)
    }

    fn acknowledge_oldest(&mut self) -> Result<()> {
        if let Some(InFlight { ticket, begun, end }) = self.in_flight.pop_front() {
            if !ticket.is_durable() {
                let from = Instant::now();
                ticket.wait()?;
                if self.phase.get() == Phase::MEASURE {
                    self.tally.waited += from.elapsed();
                }
            }
            self.count(begun, end);
        }
        Ok(())
    }

    fn count(&mut self, begun: Instant, end: End) {
        if end == End::Rollback {
            self.tally.rollbacks += u64::from(self.phase.get() == Phase::MEASURE);
            return;
        }
        self.tally.all_commits += 1;
        if self.phase.get() == Phase::MEASURE {
            self.tally.commits += 1;
            let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.tally.latency.saturating_record(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::TableDef;
    use std::sync::{Arc, atomic::AtomicU64};

    #[test]
    fn the_phase_only_moves_forward() {
        let phase = Phase::new();
        phase.raise(Phase::STOP);
        phase.raise(Phase::MEASURE);
        assert_eq!(phase.get(), Phase::STOP);
    }

    const COUNTER: TableDef<'_, u64, u64> = TableDef::new("counter");

    /// Counts in one row, and rolls every third change back.
    struct Counting {
        drawn: u64,
        committed: Arc<AtomicU64>,
        phase: Arc<Phase>,
    }

    impl Transactions for Counting {
        fn draw(&mut self) {
            self.drawn += 1;
        }

        fn apply(&mut self, tx: &Transaction) -> Result<End> {
            tx.open(COUNTER)?.update_with(0, |count| Some(count.unwrap_or(0) + 1))?;
            Ok(if self.drawn.is_multiple_of(3) { End::Rollback } else { End::Commit })
        }

        fn ended(&mut self, end: End) {
            // ORDERING: read when the worker has ended.
            self.committed.fetch_add(u64::from(end == End::Commit), Ordering::Relaxed);
            if self.drawn == 300 {
                self.phase.raise(Phase::STOP);
            }
        }
    }

    #[test]
    fn what_the_workload_rolls_back_is_no_commit_and_no_retry() {
        for commit in [Commit::Blocking, Commit::Pipelined, Commit::Async] {
            let db = Db::in_memory().unwrap();
            let config = Config { commit, ..Config::default() };
            let (phase, committed) = (Arc::new(Phase::new()), Arc::new(AtomicU64::new(0)));
            phase.raise(Phase::MEASURE);
            let counting = Counting { drawn: 0, committed: Arc::clone(&committed), phase: Arc::clone(&phase) };
            let tally = Terminal::new(&config, &db, &phase, Box::new(counting)).work().unwrap();
            let count = db.run(|tx| tx.open(COUNTER)?.get(0)).unwrap();
            assert_eq!((tally.all_commits, count, tally.retries), (200, Some(200), 0), "{commit}");
            // ORDERING: the worker has ended.
            assert_eq!(committed.load(Ordering::Relaxed), 200);
        }
    }

    #[test]
    fn tallies_add_up() {
        let (mut a, mut b) = (Tally::new(), Tally::new());
        a.commits = 2;
        a.latency.saturating_record(1_000);
        b.commits = 3;
        b.all_commits = 5;
        b.latency.saturating_record(u64::MAX);
        a.add(&b);
        assert_eq!((a.commits, a.all_commits, a.latency.len()), (5, 5, 2));
        assert!(a.latency.max() >= LONGEST_NS);
    }
}
