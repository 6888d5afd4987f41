//! Waits for locks: how a thread sleeps, for how long, and what ends all waits at once.
//!
//! **A thread's own transactions.** A thread that waits for a transaction that it has begun itself waits for ever: the
//! transaction cannot end before the wait does. So a waiter looks, first after [`FIRST_LOOK`], then each time that its
//! wait has doubled, whether the path of waits leads to a running transaction of its own thread. A wait that is over
//! before costs a look at the slots. A waiter for a row leaves its queue to look, and comes back at its end. So only a
//! waiter looks whose thread works for another transaction, too, when the wait begins: while it waits its thread
//! begins none and takes none.
//!
//! **The end of all waits**, when the database has stopped: [`LockManager::stop`](crate::LockManager::stop) sets the
//! reason, then wakes every waiter. A waiter of a queue looks at the reason before it parks, and parks only while its
//! signal, which the stop raises, stands still. A waiter of a row is validated by its caller's `is_live`, which has to
//! be false from before the stop, and publishes its edge before it parks. So each waiter is woken or does not park.

use crate::deadlock::Detector;
use crate::graph::WaitGraph;
use crate::slot::Edge;
use crate::target::LockName;
use foreshore_base::{Error, Lockable, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{Clock, EventCount, Hot, Hottest, Nanos, ParkOutcome, ShardedCounter, SpinSite, SystemClock};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The wait after which a waiter looks for transactions of its own thread for the first time.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// The times of one wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTime {
    since: Nanos,
    timeout: Duration,
    /// After how long it looks for transactions of its own thread.
    next_look: Duration,
    /// Whether it looks at all; known from the first park on.
    looks: Option<bool>,
}

impl WaitTime {
    pub(crate) const fn new(since: Nanos, timeout: Duration) -> Self {
        Self { since, timeout, next_look: FIRST_LOOK, looks: None }
    }
}

/// Waits for locks, of all owners.
#[derive(Debug)]
pub struct Waits {
    detector: Detector,
    clock: SystemClock,
    /// Whether it pays to spin in front of a park for a row's holder.
    row_spins: SpinSite,
    /// Notified whenever an owner begins to wait for a lock.
    watcher: OnceLock<Arc<EventCount>>,
    /// Why all waits have ended.
    stopped: OnceLock<Error>,
    begun: ShardedCounter,
    timeouts: ShardedCounter,
    hot: Hottest<Lockable>,
}

impl Waits {
    pub(crate) fn new() -> Self {
        Self {
            detector: Detector::new(),
            clock: SystemClock::new(),
            row_spins: SpinSite::new(),
            watcher: OnceLock::new(),
            stopped: OnceLock::new(),
            begun: ShardedCounter::new(),
            timeouts: ShardedCounter::new(),
            hot: Hottest::new(),
        }
    }

    /// Returns the clock that stamps the begins of transactions.
    #[must_use]
    pub const fn clock(&self) -> SystemClock {
        self.clock
    }

    /// Returns the time by that clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns what measured threads (see [`foreshore_sync::spent`]) have waited longest for.
    #[must_use]
    pub fn hot(&self) -> Vec<Hot<Lockable>> {
        self.hot.list()
    }

    /// Returns the reason why all waits have ended, if they have.
    #[must_use]
    pub fn stopped(&self) -> Option<&Error> {
        self.stopped.get()
    }

    /// Makes every wait in a queue fail with `cause` from here on. The first cause stays.
    pub(crate) fn set_stopped(&self, cause: &Error) {
        // No thread waits for the outcome: another thread may have been faster, with the same effect.
        let _ = self.stopped.set(cause.clone());
    }

    /// Has `watcher` notified whenever an owner begins to wait for a lock.
    ///
    /// # Panics
    /// The second time.
    pub fn watch(&self, watcher: Arc<EventCount>) {
        assert!(self.watcher.set(watcher).is_ok(), "waits are watched by one");
    }

    /// Counts of waits, of victims of deadlocks, and of time-outs.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.begun.sum(), self.detector.refused(), self.timeouts.sum()]
    }

    /// Waits in a queue until `attempt` answers with a grant. A refusal names what is waited for; the owner stands in
    /// the queue by then. The first sleep publishes the edge and walks for a cycle. On an error the caller leaves the
    /// queue.
    pub(crate) fn until_granted<'n, T>(
        &self,
        graph: WaitGraph<'_>,
        (owner, edge): (u32, Edge),
        timeout: Duration,
        mut attempt: impl FnMut() -> Result<T, LockName<'n>>,
    ) -> Result<T> {
        let slot = graph.slots.get(owner);
        let (mut time, mut is_published) = (WaitTime::new(self.now(), timeout), false);
        let mut sleep = |seen: u32, name: &LockName<'_>| {
            if let Some(cause) = self.stopped() {
                return Err(cause.clone());
            }
            if !is_published {
                is_published = true;
                self.publish(graph, owner, edge, name)?;
            }
            self.detector.check_verdict(graph.slots, owner)?;
            let is_unseen = || slot.signal() == seen;
            // WAIT: park - until a release makes this waiter grantable, or it becomes a victim.
            self.noted(name, || self.park(graph, (owner, edge), &mut time, name, &is_unseen))
        };
        let outcome = loop {
            let seen = slot.signal();
            match attempt() {
                Ok(granted) => break Ok(granted),
                Err(name) => match sleep(seen, &name) {
                    Ok(_) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        if is_published {
            // A verdict that comes after the grant means nothing, and an error has been found before.
            slot.end_wait();
        }
        outcome
    }

    /// Sleeps at a row because of its holder, once, and answers whether the owner was woken.
    pub(crate) fn for_holder(
        &self,
        graph: WaitGraph<'_>,
        (owner, edge): (u32, Edge),
        time: &mut WaitTime,
        name: &LockName<'_>,
        is_held: &dyn Fn() -> bool,
        woken: impl FnOnce(),
    ) -> Result<()> {
        let slot = graph.slots.get(owner);
        let seen = slot.signal();
        let has_signal = || slot.signal() != seen;
        let is_unchanged = || is_held() && (!has_signal() || mutant("deadlock: a waiter for a row has no signal"));
        // WAIT: park - until the holder ends or is hidden, or this waiter becomes a victim.
        let outcome = self
            .publish(graph, owner, edge, name)
            .and_then(|()| self.park(graph, (owner, edge), time, name, &is_unchanged))
            .map(|outcome| {
                if matches!(outcome, ParkOutcome::Unparked(_)) {
                    woken()
                }
            });
        // It has not got the row: if it is a victim, it ends.
        let verdict = self.detector.end_ungranted(graph.slots, owner);
        outcome.and(verdict)
    }

    /// Whether the holder of a row ends while one can wait for it without a park, which takes as long as a short
    /// transaction.
    pub(crate) fn ends_soon(&self, is_live: &dyn Fn() -> bool) -> bool {
        let mut spin = self.row_spins.begin();
        // WAIT: window - as bounded as the budget.
        while spin.spin() {
            if !is_live() {
                spin.end();
                return true;
            }
        }
        false
    }

    /// Runs a wait, and notes it if the thread is measured.
    pub(crate) fn noted<T>(&self, name: &LockName<'_>, wait: impl FnOnce() -> T) -> T {
        spent::during_noted(Spent::LockWait, wait, |took| self.hot.add(name.to_lockable(), took))
    }

    /// Shows the edge, and counts the wait once it is decided whether it closes a cycle.
    fn publish(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge, name: &LockName<'_>) -> Result<()> {
        let outcome = self.detector.publish(graph, owner, edge, name);
        self.begun.add(1);
        if let Some(watcher) = self.watcher.get().filter(|_| !mutant("memory: a wait for a lock is not told")) {
            watcher.notify_all();
        }
        outcome
    }

    /// Parks at the row whose holder is waited for, or at the owner's number, until it is woken, while `is_unchanged`
    /// holds, and no longer than `time` allows.
    fn park(
        &self,
        graph: WaitGraph<'_>,
        (owner, edge): (u32, Edge),
        time: &mut WaitTime,
        name: &LockName<'_>,
        is_unchanged: &dyn Fn() -> bool,
    ) -> Result<ParkOutcome> {
        let key = if let Edge::Holder { row, .. } = edge { row.park_key() } else { u64::from(owner) };
        // Threads of a model have no numbers.
        let has_another = || !MODEL && graph.slots.has_another_of_this_thread(owner);
        let may_look = *time.looks.get_or_insert_with(has_another);
        loop {
            let waited = self.now().since(time.since);
            let left = (time.timeout < Duration::MAX).then(|| time.timeout.saturating_sub(waited));
            let looks = may_look && left.is_none_or(|left| time.next_look.saturating_sub(waited) < left);
            let rest = if looks { Some(time.next_look.saturating_sub(waited)) } else { left };
            // WAIT: park - for what the caller says.
            match graph.slots.parking().park_as(key, owner, rest, is_unchanged) {
                ParkOutcome::TimedOut if looks => {
                    time.next_look = time.next_look.saturating_mul(2);
                    if let Some(holder) = graph.own_thread_blocker(owner, edge) {
                        let waited = self.now().since(time.since);
                        return Err(Error::OwnThreadLock { holder, what: name.to_lockable(), waited });
                    }
                }
                ParkOutcome::TimedOut => {
                    // A victim is told that it is one.
                    self.detector.check_verdict(graph.slots, owner)?;
                    self.timeouts.add(1);
                    let (holder, waited) = (graph.first_blocker(owner), self.now().since(time.since));
                    return Err(Error::LockTimeout { holder, what: name.to_lockable(), waited });
                }
                outcome => return Ok(outcome),
            }
        }
    }
}
