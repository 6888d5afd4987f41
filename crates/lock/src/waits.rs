//! Waits for locks: how and for how long a thread sleeps, and what ends all waits at once.
//!
//! **A thread's own transactions.** A thread that waits for a transaction of its own waits for ever: that transaction
//! cannot end before the wait does. So a waiter checks whether the path of waits leads to a running transaction of its
//! own thread. It checks first after [`FIRST_LOOK`], then each time that its wait has doubled. A shorter wait only
//! costs a look at the slots. A soft wait on the path ends as in a cycle (see [`crate::deadlock`]).
//!
//! A waiter for a row leaves its queue for the check, and returns at the queue's end. To spare that, a waiter checks
//! only if its thread also works for another transaction when the wait begins. While the thread waits it can neither
//! begin nor adopt one.
//!
//! **The end of all waits** comes when the database has stopped. [`LockManager::stop`](crate::LockManager::stop) sets
//! the reason, then wakes every waiter. So each waiter is woken or does not park:
//!
//! - A waiter of a queue checks the reason before it parks. It parks only while its signal is unchanged, and the stop
//!   raises the signal.
//! - A waiter of a row publishes its edge before it parks. Its caller's `is_live` is checked when it parks, and has to
//!   be false from before the stop.

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

/// The wait after which a waiter first checks for transactions of its own thread.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// The longest time between two checks of a waiter that looks in any case.
const LOOK: Duration = Duration::from_secs(1);

/// The start and the limits of one wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitTime {
    since: Nanos,
    timeout: Duration,
    /// The length of wait at which the waiter next checks for transactions of its own thread.
    next_look: Duration,
    /// The longest time between two such checks. Each sends the waiter to the end of its queue.
    longest: Duration,
    /// Whether the waiter makes such checks at all; decided at the first park.
    looks: Option<bool>,
}

impl WaitTime {
    /// Returns the limits of a wait that begins at `since`.
    pub(crate) const fn new(since: Nanos, timeout: Duration) -> Self {
        Self { since, timeout, next_look: FIRST_LOOK, longest: Duration::MAX, looks: None }
    }

    /// Makes the waiter check in any case.
    pub(crate) const fn look_around(&mut self) {
        (self.looks, self.longest) = (Some(true), LOOK);
    }
}

/// The waits of all owners for locks.
#[derive(Debug)]
pub struct Waits {
    detector: Detector,
    clock: SystemClock,
    /// Measures whether spinning before a park for a row's holder pays off.
    row_spins: SpinSite,
    /// Notified whenever an owner begins to wait for a lock.
    watcher: OnceLock<Arc<EventCount>>,
    /// The reason why all waits have ended.
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

    /// Returns the clock that stamps the starts of transactions.
    #[must_use]
    pub const fn clock(&self) -> SystemClock {
        self.clock
    }

    /// Returns the time by that clock.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the time by that clock, up to some milliseconds ago. For ages, which are compared.
    pub(crate) fn recent(&self) -> Nanos {
        self.clock.recent()
    }

    /// Returns the locks that measured threads (see [`foreshore_sync::spent`]) have waited longest for.
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
        // If another thread has set a cause before, that one stays.
        let _ = self.stopped.set(cause.clone());
    }

    /// Registers `watcher`, which is notified whenever an owner begins to wait for a lock.
    ///
    /// # Panics
    /// When it is called a second time.
    pub fn watch(&self, watcher: Arc<EventCount>) {
        assert!(self.watcher.set(watcher).is_ok(), "waits are watched by one");
    }

    /// Returns the numbers of waits, of deadlock victims, and of timeouts.
    pub(crate) fn counts(&self) -> [u64; 3] {
        [self.begun.sum(), self.detector.refused(), self.timeouts.sum()]
    }

    /// Waits in a queue until `attempt` returns a grant. A refusal names what is waited for, and the owner stands in
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
            // A verdict that comes after the grant is void. An error has taken its verdict already.
            slot.end_wait();
        }
        outcome
    }

    /// Sleeps once at a row, until its holder ends or the owner is woken. Calls `woken` if the owner was woken.
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
        // The owner has not got the row yet. If it is a victim, the wait fails.
        let verdict = self.detector.end_ungranted(graph.slots, owner);
        outcome.and(verdict)
    }

    /// Spins for about as long as a short transaction takes, and returns whether the holder of a row ended meanwhile.
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

    /// Runs a wait, and records its length if the thread is measured.
    pub(crate) fn noted<T>(&self, name: &LockName<'_>, wait: impl FnOnce() -> T) -> T {
        spent::during_noted(Spent::LockWait, wait, |took| self.hot.add(name.to_lockable(), took))
    }

    /// Publishes the edge, and counts the wait after the check for a cycle.
    fn publish(&self, graph: WaitGraph<'_>, owner: u32, edge: Edge, name: &LockName<'_>) -> Result<()> {
        let outcome = self.detector.publish(graph, owner, edge, name);
        self.begun.add(1);
        if let Some(watcher) = self.watcher.get().filter(|_| !mutant("memory: a wait for a lock is not told")) {
            watcher.notify_all();
        }
        outcome
    }

    /// Parks until the owner is woken, while `is_unchanged` holds, and no longer than `time` allows. A waiter for a
    /// holder parks at the row, any other at the owner's number.
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
                    time.next_look = time.next_look.max(waited).saturating_add(time.next_look.min(time.longest));
                    if let Some(holder) = self.detector.own_thread_blocker(graph, owner, edge) {
                        let waited = self.now().since(time.since);
                        return Err(Error::OwnThreadLock { holder, what: name.to_lockable(), waited });
                    }
                }
                ParkOutcome::TimedOut => {
                    // If the waiter is a victim, the deadlock is reported and not the timeout.
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
