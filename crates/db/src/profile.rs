//! Profiling: where the time of transactions goes, by label.
//!
//! While profiling is on, each thread measures one in [`Profile::ONE_IN`] of its transactions on average, its first
//! among them, with random gaps. Each call of a measured transaction is timed as a whole, and the parts where time goes
//! are timed within it (see [`foreshore_sync::spent`]). While profiling is off, a transaction reads one flag at its
//! begin.

use crate::Error;
use foreshore_base::PageId;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::spent::{self, Measurement, Spent, SpentNanos};
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, SystemClock};
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::{AddAssign, Sub};
use std::time::Duration;

/// Time of transactions from begin to end, by what it was spent on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimeSplit {
    /// Number of transactions.
    pub transactions: u64,
    /// Time in the engine, without the parts below.
    pub work: Duration,
    /// Appending records to the log buffer.
    pub log_insert: Duration,
    /// Waiting for durability or for log space. A wait for a ticket after the end of the transaction is not counted.
    pub log_wait: Duration,
    /// Waiting for locks.
    pub lock_wait: Duration,
    /// Waiting for latches of pages.
    pub latch_wait: Duration,
    /// Reading pages, and writing others to free frames for them.
    pub io: Duration,
    /// All the time of transactions that were rolled back because of other transactions, and the pauses of
    /// [`Db::run`](crate::Db::run) after them.
    pub retry: Duration,
    /// Between the calls of the owner.
    pub caller: Duration,
}

impl TimeSplit {
    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> Duration {
        let Self { work, log_insert, log_wait, lock_wait, latch_wait, io, retry, caller, .. } = *self;
        work + log_insert + log_wait + lock_wait + latch_wait + io + retry + caller
    }
}

impl AddAssign for TimeSplit {
    fn add_assign(&mut self, other: Self) {
        *self = self.with(other, |a, b| a + b, |a, b| a + b);
    }
}

impl Sub for TimeSplit {
    type Output = Self;

    /// Returns the difference to an earlier value.
    fn sub(self, earlier: Self) -> Self {
        self.with(earlier, Duration::saturating_sub, u64::saturating_sub)
    }
}

impl TimeSplit {
    fn with(self, other: Self, times: fn(Duration, Duration) -> Duration, counts: fn(u64, u64) -> u64) -> Self {
        Self {
            transactions: counts(self.transactions, other.transactions),
            work: times(self.work, other.work),
            log_insert: times(self.log_insert, other.log_insert),
            log_wait: times(self.log_wait, other.log_wait),
            lock_wait: times(self.lock_wait, other.lock_wait),
            latch_wait: times(self.latch_wait, other.latch_wait),
            io: times(self.io, other.io),
            retry: times(self.retry, other.retry),
            caller: times(self.caller, other.caller),
        }
    }
}

/// Result of profiling: see [`Db::profile`](crate::Db::profile).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// Time of the measured transactions by label, the longest first.
    pub labels: Vec<(&'static str, TimeSplit)>,
    /// The keys and tables that the measured transactions have waited for longest.
    pub hot_keys: Vec<HotKey>,
    /// The pages whose latches they have waited for longest.
    pub hot_pages: Vec<HotPage>,
}

impl Profile {
    /// One in so many transactions of a thread is measured, on average.
    pub const ONE_IN: u32 = 32;

    /// Returns the time of all labels together.
    ///
    /// ```
    /// # use foreshore::{Db, Error};
    /// # let db = Db::in_memory()?;
    /// let before = db.profile().total();
    /// // Later: what was added since, and its sum.
    /// let since = db.profile().total() - before;
    /// assert_eq!(since.total(), std::time::Duration::ZERO);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn total(&self) -> TimeSplit {
        let mut total = TimeSplit::default();
        self.labels.iter().for_each(|&(_, split)| total += split);
        total
    }
}

/// A key or table that transactions wait for. One with more than a 64th of all such waits is always listed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HotKey {
    /// Name of the table and its key, cut off after 64 bytes.
    pub name: String,
    /// Number of waits.
    pub waits: u64,
    /// Upper bound of the time of all waits.
    pub waited: Duration,
    /// Part of `waited` that may belong to other keys.
    pub overestimate: Duration,
}

/// A page whose latch transactions wait for, counted as in [`HotKey`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HotPage {
    /// Its number.
    pub page: PageId,
    /// See [`HotKey`].
    pub waits: u64,
    /// See [`HotKey`].
    pub waited: Duration,
    /// See [`HotKey`].
    pub overestimate: Duration,
}

/// Measurements of all transactions.
#[derive(Debug)]
pub(crate) struct Profiler {
    is_on: AtomicBool,
    clock: SystemClock,
    labels: Mutex<HashMap<&'static str, TimeSplit>>,
}

impl Profiler {
    pub(crate) fn new(is_on: bool) -> Self {
        let labels = Mutex::new(LockRank::Leaf, HashMap::new());
        Self { is_on: AtomicBool::new(is_on), clock: SystemClock::new(), labels }
    }

    /// Returns a meter for a transaction that begins, if it is to be measured.
    #[inline]
    pub(crate) fn meter(&self, label: &'static str) -> Option<Box<Meter>> {
        // ORDERING: hint; a stale value measures one transaction more or less.
        (self.is_on.load(Ordering::Relaxed) && spent::is_due(Profile::ONE_IN)).then(|| {
            let (inside, spent, failed) = (Cell::new(Nanos::ZERO), Cell::default(), Cell::new(false));
            Box::new(Meter { label, begun: self.clock.now(), inside, spent, failed })
        })
    }

    /// Runs `work` of a transaction, and measures it if there is a meter.
    pub(crate) fn during<T>(&self, meter: Option<&Meter>, work: impl FnOnce() -> T) -> T {
        let timing = self.timing(meter);
        let result = work();
        Timing::end(timing);
        result
    }

    /// Begins to measure a call of a transaction, if there is a meter.
    #[inline(always)]
    pub(crate) fn timing<'m>(&'m self, meter: Option<&'m Meter>) -> Option<Timing<'m>> {
        meter.map(|meter| self.begin(meter))
    }

    #[cold]
    fn begin<'m>(&'m self, meter: &'m Meter) -> Timing<'m> {
        Timing { clock: &self.clock, meter, from: self.clock.now(), parts: Measurement::begin() }
    }

    /// Adds the measurements of a transaction that has ended.
    pub(crate) fn end(&self, meter: &Meter) {
        let total = self.clock.now().since(meter.begun);
        let inside = Duration::from(meter.inside.get());
        let part = |part: Spent| Duration::from_nanos(meter.spent.get()[part as usize]);
        let mut split = TimeSplit { transactions: 1, ..TimeSplit::default() };
        if meter.failed.get() {
            split.retry = total;
        } else {
            split.log_insert = part(Spent::LogInsert);
            split.log_wait = part(Spent::LogWait);
            split.lock_wait = part(Spent::LockWait);
            split.latch_wait = part(Spent::LatchWait);
            split.io = part(Spent::Io);
            split.work = inside.saturating_sub(split.total());
            split.caller = total.saturating_sub(inside);
        }
        self.add(meter.label, split);
    }

    /// Runs `pause` between two runs of a measured transaction with `label`.
    pub(crate) fn between_runs<T>(&self, label: &'static str, pause: impl FnOnce() -> T) -> T {
        let from = self.clock.now();
        let result = pause();
        self.add(label, TimeSplit { retry: self.clock.now().since(from), ..TimeSplit::default() });
        result
    }

    /// Returns the time of the measured transactions by label, the longest first.
    pub(crate) fn labels(&self) -> Vec<(&'static str, TimeSplit)> {
        let mut labels: Vec<_> = self.labels.lock().iter().map(|(&label, &split)| (label, split)).collect();
        labels.sort_by_key(|(label, split)| (std::cmp::Reverse(split.total()), *label));
        labels
    }

    /// Switches profiling on or off for transactions that begin later.
    pub(crate) fn switch(&self, on: bool) {
        // ORDERING: hint, see `meter`.
        self.is_on.store(on, Ordering::Relaxed);
    }

    fn add(&self, label: &'static str, split: TimeSplit) {
        *self.labels.lock().entry(label).or_default() += split;
    }
}

/// A call of a measured transaction.
#[derive(Debug)]
pub(crate) struct Timing<'m> {
    clock: &'m SystemClock,
    meter: &'m Meter,
    from: Nanos,
    parts: Measurement,
}

impl Timing<'_> {
    /// Adds the time of the call to the transaction's. A call that panics adds nothing.
    #[inline(always)]
    pub(crate) fn end(timing: Option<Self>) {
        if let Some(timing) = timing {
            timing.add();
        }
    }

    #[cold]
    fn add(self) {
        let (mut sums, parts) = (self.meter.spent.get(), self.parts.nanos());
        (0..Spent::COUNT).for_each(|part| sums[part] += parts[part]);
        self.meter.spent.set(sums);
        self.meter.inside.set(self.meter.inside.get() + self.clock.now().since(self.from));
    }
}

/// Measurements of one transaction.
#[derive(Debug)]
pub(crate) struct Meter {
    label: &'static str,
    begun: Nanos,
    /// Time in the engine.
    inside: Cell<Nanos>,
    /// Parts of the time in the engine.
    spent: Cell<SpentNanos>,
    /// Whether other transactions ended it.
    failed: Cell<bool>,
}

impl Meter {
    /// Notes the error that ended the transaction. If a retry may avoid it, the time of this run counts as `retry`.
    pub(crate) fn fail(&self, error: &Error) {
        self.failed.set(error.is_retryable());
    }
}
