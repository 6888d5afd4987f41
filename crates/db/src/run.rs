//! Transactions as closures, retried when other transactions ended them.

use crate::engine::Engine;
use crate::queues::{Begun, Unresolved};
use crate::{CommitTicket, Db, Error, Transaction, TxnOptions, trace};
use foreshore_base::Csn;
use foreshore_lock::Attempt;
use foreshore_sync::{Clock, Nanos, Parker, SystemClock, Turn, pause};
use std::{sync::Arc, time::Duration};

/// Number of runs after which a transaction fails with `Exhausted`.
const MAX_RUNS: u32 = 100;
/// A quarter of the longest pause before the second run. The longest pause doubles with each further run.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Longest pause before any run.
const MAX_PAUSE: Duration = Duration::from_millis(10);
/// Runs after which a transaction under contention waits in the retry queue instead of pausing. Otherwise, of many
/// transactions that write one row, one would succeed and the others would conflict again.
const RUNS_BEFORE_QUEUE: u32 = 8;
/// Default limit of retrying, in lock timeouts.
const LOCK_TIMEOUTS: u32 = 3;
/// Longest wait in the retry queue. Then the transaction runs anyway, because the one whose turn it is may be waiting
/// for work of this thread.
const MAX_QUEUE_WAIT: Duration = Duration::from_secs(2);

impl Db {
    /// Runs `f` in a transaction and commits it. The commit is durable when this returns.
    ///
    /// If a run ends by a retryable error, such as a deadlock or a conflict, it is rolled back and `f` is called again:
    /// see [`Error::is_retryable`].
    ///
    /// - A retry begins after a random pause of at most 10 ms.
    /// - After more than 8 runs, transactions that deadlocks or conflicts end run one at a time. Each waits at most 2 s
    ///   for its turn, and not at all while this thread has another transaction open.
    /// - A transaction that was the victim of two deadlocks is not the victim of one with younger transactions.
    ///
    /// Any other error, and a panic, rolls the transaction back and is returned or propagated. Two retryable errors
    /// are also returned, because the next run would probably end in the same way:
    /// [`LockTimeout`](Error::LockTimeout), unless a [deadline](TxnOptions::deadline) is set, and
    /// [`TransactionTooOld`](Error::TransactionTooOld).
    ///
    /// The result, value or error, never depends on a commit that is not durable.
    ///
    /// # Errors
    /// The error of `f`, or the reason why the transaction could not commit. [`Error::Exhausted`] after 100 runs, and
    /// [`Error::Deadline`] after the [deadline](TxnOptions::deadline), both with the cause that ended the last run.
    ///
    /// ```
    /// # use foreshore::{Db, Durability, Error, TableDef, TxnOptions};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// db.run(|tx| {
    ///     let stock = tx.open(STOCK)?;
    ///     let pieces = stock.get_for_update(1)?.unwrap_or(0);
    ///     stock.put(1, pieces + 10)
    /// })?;
    /// let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    /// assert_eq!(db.run_with(relaxed, |tx| tx.open(STOCK)?.get(1))?, Some(10));
    /// let ((), ticket) = db.run_pipelined_with(relaxed, |tx| tx.open(STOCK)?.put(2, 20))?;
    /// ticket.harden().wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run<T, E: From<Error>>(&self, f: impl FnMut(&Transaction) -> Result<T, E>) -> Result<T, E> {
        self.run_with(TxnOptions::new(), f)
    }

    /// Runs `f` like [`run`](Self::run), with options. With [`Durability::Relaxed`](crate::Durability::Relaxed) it
    /// returns when the commit record is in the log buffer, and results may depend on commits that are not durable yet.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let (result, ended) = run_until_final(self.engine(), |options| self.begin_with(options), options, false, f);
        // WAIT: park - for durability, or help by writing the group. Not at all if relaxed.
        ended.wait()?;
        result
    }

    /// Runs `f` like [`run`](Self::run), and returns without waiting for the disk. The result is the value of `f` and
    /// the ticket of the commit.
    ///
    /// The commit order is fixed and the locks are free. The value may depend on commits that are not durable, until
    /// the ticket resolves. An error is returned only after every commit that it depends on is durable.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
    /// let (old, ticket) = db.run_pipelined(|tx| tx.open(STOCK)?.insert(1, 10))?;
    /// assert_eq!(old, None);
    /// ticket.wait()?;                                // or await it
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run_pipelined<T, E: From<Error>>(
        &self,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, CommitTicket), E> {
        self.run_pipelined_with(TxnOptions::new(), f)
    }

    /// Runs `f` like [`run_pipelined`](Self::run_pipelined), with options. With
    /// [`Durability::Relaxed`](crate::Durability::Relaxed) the ticket resolves at once, and
    /// [`harden`](CommitTicket::harden) makes it wait for the disk.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_pipelined_with<T, E: From<Error>>(
        &self,
        options: TxnOptions,
        f: impl FnMut(&Transaction) -> Result<T, E>,
    ) -> Result<(T, CommitTicket), E> {
        let (result, ended) = run_until_final(self.engine(), |options| self.begin_with(options), options, true, f);
        match result {
            Ok(value) => Ok((value, ended.into_ticket())),
            Err(error) => {
                // WAIT: park - for what the error depends on, or help by writing the group.
                ended.wait()?;
                Err(error)
            }
        }
    }
}

/// Runs `f` in transactions that `begin` begins, until a run is not retried. Returns the result of the last run, and
/// its ended transaction. No user may get the result before that transaction is durable, unless it is relaxed.
///
/// `is_pipelined`: this thread does not wait for the commit, so the flusher makes it durable.
pub(crate) fn run_until_final<T, E: From<Error>>(
    engine: &Engine,
    begin: impl Fn(TxnOptions) -> Transaction,
    options: TxnOptions,
    is_pipelined: bool,
    mut f: impl FnMut(&Transaction) -> Result<T, E>,
) -> (Result<T, E>, Ended) {
    let mut runs = Runs { engine, options, is_pipelined, count: 0, retry: None, turn: None, was_measured: false };
    loop {
        let tx = begin(runs.next());
        let result = f(&tx);
        if let Some((error, ended)) = runs.end(tx, result.is_ok()) {
            return (error.map_or(result, |error| Err(error.into())), ended);
        }
    }
}

/// The runs of a closure. Not generic, since the compiler copies generic code for each closure.
struct Runs<'e> {
    engine: &'e Engine,
    options: TxnOptions,
    is_pipelined: bool,
    /// Number of runs that began.
    count: u32,
    /// State of the retries; `None` before the first.
    retry: Option<Retry>,
    /// The turn in the retry queue, for a run.
    turn: Option<Turn<'e>>,
    /// Whether the last run was measured.
    was_measured: bool,
}

impl<'e> Runs<'e> {
    /// Waits until the next run may begin, and returns the options of its transaction.
    fn next(&mut self) -> TxnOptions {
        self.count += 1;
        let Some(retry) = &mut self.retry else { return self.options };
        // WAIT: park - see `Retry::wait`.
        let mut wait = || retry.wait(self.engine, self.count);
        self.turn =
            if self.was_measured { self.engine.profiler.between_runs(self.options.label, wait) } else { wait() };
        TxnOptions { attempt: retry.attempt, ..self.options }
    }

    /// Ends a run: commits if the closure returned a value. Returns `None` if another run follows. Otherwise returns
    /// the ended transaction, and the error that replaces the closure's result, if there is one.
    fn end(&mut self, tx: Transaction, is_ok: bool) -> Option<(Option<Error>, Ended)> {
        let cause = match tx.failure() {
            // Retried whatever the closure has returned.
            Some(cause) if is_run_again(&cause, self.options) => cause,
            _ if !is_ok => return Some((None, self.without_commit(tx))),
            Some(cause) => return Some((Some(cause), self.without_commit(tx))),
            None => match tx.pre_commit(self.is_pipelined) {
                Ok(ticket) => {
                    // The locks are free: the next one in the queue need not wait for the disk.
                    self.turn = None;
                    return Some((None, Ended { tx, end: End::Commit { ticket, is_check: self.options.is_check } }));
                }
                Err(error) if is_run_again(&error, self.options) => error,
                Err(error) => return Some((Some(error), self.without_commit(tx))),
            },
        };
        let retry = self.retry.get_or_insert_with(|| Retry::new(self.engine, tx.began(), self.options));
        if let Some(cause) = retry.final_error(self.engine, self.count, &cause) {
            trace::given_up(self.options.label, self.count, &cause);
            return Some((Some(cause), self.without_commit(tx)));
        }
        retry.note(&cause);
        trace::runs_again(self.options.label, self.count, &cause);
        self.was_measured = tx.is_measured();
        drop(tx);
        self.turn = None;
        None
    }

    /// Ends `tx` without a commit. The next transaction in the queue need not wait for the disk.
    fn without_commit(&mut self, tx: Transaction) -> Ended {
        let seen = tx.end_without_commit();
        self.turn = None;
        Ended { tx, end: End::Rollback(seen) }
    }
}

/// The last transaction of a closure. It has ended, and may not be durable.
pub(crate) struct Ended {
    tx: Transaction,
    end: End,
}

enum End {
    Commit {
        ticket: CommitTicket,
        is_check: bool,
    },
    /// It was rolled back, and its results depend on commits up to this one.
    Rollback(Csn),
}

impl Ended {
    /// Waits until the result may be handed out.
    fn wait(&self) -> crate::Result<()> {
        match &self.end {
            // Other checks wait until this one ends, so it runs no callbacks of users.
            End::Commit { ticket, is_check: true } => self.tx.wait_until_durable(ticket.csn()),
            // WAIT: park - for durability, or help by writing the group. Not at all if relaxed.
            End::Commit { ticket, is_check: false } => self.tx.measured(|| ticket.wait()),
            End::Rollback(seen) => self.tx.wait_until_durable(*seen),
        }
    }

    /// Returns the ticket that resolves when the result may be handed out.
    pub(crate) fn into_ticket(self) -> CommitTicket {
        match self.end {
            End::Commit { ticket, .. } => ticket,
            End::Rollback(seen) => self.tx.ticket_of(seen),
        }
    }
}

/// Returns whether a transaction that ended with this error is retried.
const fn is_run_again(error: &Error, options: TxnOptions) -> bool {
    match error {
        Error::LockTimeout { .. } => options.deadline.is_some(),
        Error::TransactionTooOld { .. } => false,
        _ => error.is_retryable(),
    }
}

/// State of one transaction that is retried.
struct Retry {
    clock: SystemClock,
    /// How long it is retried, from the beginning of the first run.
    limit: Duration,
    first: Nanos,
    /// For the next run.
    attempt: Attempt,
    /// State of the random generator, different in each transaction.
    random: u64,
    /// Whether the last run ended by contention with transactions that a retry would meet again. After any other error
    /// the queue does not help, and only time does.
    is_contended: bool,
}

impl Retry {
    fn new(engine: &Engine, first: Nanos, options: TxnOptions) -> Self {
        let seed = engine.queues.seed();
        let (default, _) = engine.options.for_transaction();
        let lock_timeout = options.lock_timeout.unwrap_or(default);
        // A transaction that does not wait for locks is retried for as long as one with the default timeout.
        let waits = lock_timeout.max(default);
        let limit = options.deadline.unwrap_or_else(|| waits.saturating_mul(LOCK_TIMEOUTS));
        Self { limit, first, attempt: Attempt { first: Some(first), losses: 0 }, ..Self::seeded(seed) }
    }

    fn seeded(seed: u64) -> Self {
        let (first, attempt) = (Nanos::ZERO, Attempt::default());
        let (clock, random) = (SystemClock::new(), mixed(seed));
        Self { clock, limit: Duration::MAX, first, attempt, random, is_contended: false }
    }

    fn elapsed(&self, engine: &Engine) -> Duration {
        engine.admission.now().since(self.first)
    }

    /// Returns the final error, if run number `runs`, which `cause` ended, was the last one.
    fn final_error(&self, engine: &Engine, runs: u32, cause: &Error) -> Option<Error> {
        let elapsed = self.elapsed(engine);
        let holder = cause.blocker().unwrap_or_default();
        let cause = || match cause {
            Error::Deadline { cause, .. } => Arc::clone(cause),
            _ => Arc::new(cause.clone()),
        };
        if elapsed >= self.limit {
            return Some(Error::Deadline { holder, runs, elapsed, cause: cause() });
        }
        (runs == MAX_RUNS).then(|| Error::Exhausted { runs, cause: cause() })
    }

    /// Notes what has ended a run.
    const fn note(&mut self, cause: &Error) {
        self.is_contended = matches!(cause, Error::Deadlock { .. } | Error::Conflict { .. } | Error::UndoMemory { .. });
        self.attempt.losses += matches!(cause, Error::Deadlock { .. }) as u32;
    }

    /// Waits before run number `runs`, without any lock. A turn in the retry queue lasts for the run.
    fn wait<'e>(&mut self, engine: &'e Engine, runs: u32) -> Option<Turn<'e>> {
        if self.joins_queue(runs) {
            pause::point("run: stands in line");
            let left = self.limit.saturating_sub(self.elapsed(engine));
            return engine.queues.take_retry(&self.clock, MAX_QUEUE_WAIT.min(left));
        }
        let until = self.clock.now() + self.pause(runs);
        loop {
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return None;
            }
            // WAIT: park - to the end of the time; only a stale token wakes this thread early.
            Parker::current().park_timeout(left);
        }
    }

    /// Returns whether to wait in the retry queue before run number `runs`. Not while this thread has another
    /// transaction open or prepared: the transaction whose turn it is may wait for its locks. Nor while this thread
    /// has the turn itself, in an outer run.
    fn joins_queue(&self, runs: u32) -> bool {
        runs > RUNS_BEFORE_QUEUE && self.is_contended && !Begun::has_open() && !Unresolved::has_any()
    }

    /// Returns a random time, longer after more runs, so that contending transactions do not collide again.
    fn pause(&mut self, runs: u32) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << runs.min(10)).min(MAX_PAUSE);
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        Duration::from_nanos(mixed(self.random) % u64::try_from(longest.as_nanos()).expect("at most ten milliseconds"))
    }
}

/// The finaliser of SplitMix64: close values become far apart.
const fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use foreshore_io::Mem;

    #[test]
    fn pauses_are_random_by_seed_and_bounded() {
        let pauses = |seed| {
            let mut retry = Retry::seeded(seed);
            (2..MAX_RUNS).map(|runs| retry.pause(runs)).collect::<Vec<_>>()
        };
        assert_eq!(pauses(1), pauses(1));
        assert_ne!(pauses(1), pauses(2));
        let longest = |at: usize| (0..500).map(|seed| pauses(seed)[at]).max().expect("some");
        assert!(longest(0) <= 4 * FIRST_PAUSE && longest(0) > FIRST_PAUSE);
        assert!(longest(90) <= MAX_PAUSE && longest(90) > MAX_PAUSE / 2);
    }
    #[test]
    fn neighbours_pause_independently() {
        let pauses = |seed| {
            let mut retry = Retry::seeded(seed);
            (0..50).map(|_| retry.pause(20)).collect::<Vec<_>>()
        };
        for seed in 0..100 {
            let mut all = [pauses(seed), pauses(seed + 1)].concat();
            all.sort();
            all.dedup();
            assert!(all.len() > 90, "the pauses after seed {seed} are a shifted copy");
        }
    }

    #[test]
    fn only_a_contended_run_that_is_not_nested_is_queued() {
        let db =
            Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open("/db").unwrap();
        let mut retry = Retry::new(db.engine(), Nanos::ZERO, TxnOptions::new());
        let queued = |retry: &Retry| (2..=MAX_RUNS).filter(|&runs| retry.joins_queue(runs)).count();
        assert_eq!(queued(&retry), 0, "time has to pass");
        retry.is_contended = true;
        assert_eq!(queued(&retry), (MAX_RUNS - RUNS_BEFORE_QUEUE) as usize);
        let (outer, other) = (db.begin(), db.begin());
        assert_eq!(queued(&retry), 0);
        outer.rollback().unwrap();
        assert_eq!(queued(&retry), 0);
        other.commit().unwrap();
        assert!(retry.joins_queue(MAX_RUNS));
        let nested = db.run(|_| Ok::<_, Error>(retry.joins_queue(MAX_RUNS)));
        assert!(!nested.unwrap(), "a run within a run");
        let elsewhere = db.begin();
        std::thread::spawn(move || drop(elsewhere)).join().unwrap();
        assert!(!retry.joins_queue(MAX_RUNS), "others have no count of this thread");
    }

    fn contended_retry(db: &Db) -> Retry {
        Retry { is_contended: true, ..Retry::new(db.engine(), Nanos::ZERO, TxnOptions::new()) }
    }

    #[test]
    fn a_preparer_is_queued_once_its_transaction_is_resolved() {
        let db =
            Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open("/db").unwrap();
        let retry = contended_retry(&db);
        for (name, here) in [("one", true), ("two", false)] {
            db.begin().prepare(name).unwrap();
            assert!(!retry.joins_queue(MAX_RUNS), "it holds its locks until this thread, perhaps, resolves it");
            let resolve = || db.rollback_prepared(name).unwrap();
            if here {
                resolve()
            } else {
                std::thread::scope(|scope| scope.spawn(resolve).join().unwrap())
            }
            assert!(retry.joins_queue(MAX_RUNS), "resolved here: {here}");
        }
    }

    /// A new thread may reuse the thread-local memory of an ended one.
    #[test]
    fn a_transaction_of_a_thread_that_is_gone_is_no_other_threads() {
        let db =
            Options::new().memory_limit(16 << 20).lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open("/db").unwrap();
        for _ in 0..10 {
            let left = std::thread::scope(|scope| scope.spawn(|| db.begin()).join().unwrap());
            let own = || {
                let _own = db.begin();
                drop(left);
                assert!(!contended_retry(&db).joins_queue(MAX_RUNS), "this thread's own is open");
            };
            std::thread::scope(|scope| scope.spawn(own).join().unwrap());
        }
    }
}
