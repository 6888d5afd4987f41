//! The throttle: slows writers down while too much log stands behind the redo start.
//!
//! The owner of the log reports now and then where redo starts ([`Throttle::redo_from`]). Writers measure the growth of
//! the log since then themselves, so they are slowed even while the owner waits for the disk. The policy is in
//! [`rate`].
//!
//! At each reservation a writer pays for the bytes that it has appended since the last one. Payments wait in one queue:
//!
//! ```text
//! granted ----- rate x time -----> issued: the sum of all payments
//!                   ^ a payment that ends here waits until the queue has been granted that far
//! ```
//!
//! So all writers together keep to the rate, and none overtakes another. A payment that is nearly granted does not
//! wait, because a park of less than [`SHORTEST`] costs more than it slows. Bytes that are not granted stay in the
//! queue.
//!
//! **Invariant:** a writer that waits here holds no latch, no lane and no ring space. So the owner can move the redo
//! start without any resource of a waiting writer.

mod rate;

pub use rate::LogLimits;

use foreshore_sync::primitive::atomic::{AtomicI64, AtomicU64, Ordering};
use foreshore_sync::{Clock, EventCount, LockRank, Mutex, Nanos, SystemClock};
use std::time::Duration;

/// The shortest wait that is worth a park.
const SHORTEST: Duration = Duration::from_micros(100);
/// The longest sleep before a writer checks again: the rate may have changed, or the log may have stopped.
const CHECK: Duration = Duration::from_millis(10);

#[derive(Debug)]
struct Queue {
    limits: LogLimits,
    /// Bytes, in floating point, so that a short time at a low rate counts.
    issued: f64,
    granted: f64,
    /// When `granted` was last moved on.
    at: Nanos,
}

/// The throttle of one log.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// The redo start, in bytes of log written. Negative in log from before the opening.
    redo: AtomicI64,
    /// The position from which writers are slowed, in the same bytes; `i64::MAX` for never.
    slow_from: AtomicI64,
    queue: Mutex<Queue>,
    /// Notified when the redo start moves.
    moved: EventCount,
    clock: SystemClock,
    waited: AtomicU64,
}

impl Default for Throttle {
    fn default() -> Self {
        let (clock, limits) = (SystemClock::new(), LogLimits { soft: u64::MAX, hard: u64::MAX });
        let queue = Queue { limits, issued: 0.0, granted: 0.0, at: clock.now() };
        Self {
            redo: AtomicI64::new(0),
            slow_from: AtomicI64::new(i64::MAX),
            queue: Mutex::new(LockRank::Leaf, queue),
            moved: EventCount::new(),
            clock,
            waited: AtomicU64::new(0),
        }
    }
}

impl Throttle {
    /// Sets the limits; `None` for none.
    pub(crate) fn limit(&self, limits: Option<LogLimits>) {
        let limits = limits.unwrap_or(LogLimits { soft: u64::MAX, hard: u64::MAX });
        self.queue.lock().limits = limits;
        // ORDERING: hint. The numbers are measures; each payment reads them anew.
        self.redo_from(self.redo.load(Ordering::Relaxed));
    }

    /// Sets the redo start to `position`, in bytes of log written since the opening.
    pub(crate) fn redo_from(&self, position: i64) {
        let soft = i64::try_from(self.queue.lock().limits.soft);
        let slow_from = soft.map_or(i64::MAX, |soft| position.saturating_add(soft));
        // ORDERING: Relaxed, measures that each payment reads anew; sleepers are notified below.
        self.redo.store(position, Ordering::Relaxed);
        self.slow_from.store(slow_from, Ordering::Relaxed);
        self.moved.notify_all();
    }

    /// Whether a log with so many bytes written slows its writers.
    #[inline]
    pub(crate) fn slows(&self, written: u64) -> bool {
        // ORDERING: Relaxed, as in `redo_from`.
        written.cast_signed() > self.slow_from.load(Ordering::Relaxed)
    }

    /// Returns the nanoseconds that all writers have waited here.
    pub(crate) fn waited(&self) -> u64 {
        // ORDERING: Relaxed, a counter.
        self.waited.load(Ordering::Relaxed)
    }

    /// Returns the time of the clock that measures payments.
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Pays for `bytes`. Waits in the queue while the log of `written` bytes slows writers and `stopped` returns false.
    /// Returns whether the payment was granted. Bytes that were not granted stay in the queue.
    pub(crate) fn pay(&self, bytes: u64, written: impl Fn() -> u64, stopped: impl Fn() -> bool) -> bool {
        let begun = self.clock.now();
        let mine = {
            let mut queue = self.queue.lock();
            self.grant(&mut queue, written());
            queue.issued += bytes as f64;
            queue.issued
        };
        let is_granted = loop {
            let key = self.moved.prepare();
            let left = self.left(mine, written());
            let is_granted = left < SHORTEST;
            if is_granted || stopped() {
                self.moved.cancel(key);
                break is_granted;
            }
            // WAIT: park - until the payment is granted; a later redo start notifies.
            self.moved.wait(key, Some(left.min(CHECK)));
        };
        let waited = self.clock.now().since(begun);
        // ORDERING: Relaxed, a counter.
        self.waited.fetch_add(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        is_granted
    }

    /// Returns how long a payment up to `mine` still has to wait at the present rate.
    fn left(&self, mine: f64, written: u64) -> Duration {
        let mut queue = self.queue.lock();
        assert!(
            mine <= queue.issued,
            "a session waits for byte {mine} of {} that sessions have appended",
            queue.issued
        );
        let Some(rate) = self.grant(&mut queue, written) else { return Duration::ZERO };
        let missing = (mine - queue.granted).max(0.0);
        Duration::try_from_secs_f64(if missing == 0.0 { 0.0 } else { missing / rate }).unwrap_or(Duration::MAX)
    }

    /// Grants bytes up to the present and returns the rate; `None` without a limit.
    fn grant(&self, queue: &mut Queue, written: u64) -> Option<f64> {
        let now = self.clock.now();
        let passed = now.since(queue.at);
        queue.at = now;
        // ORDERING: Relaxed, as in `redo_from`.
        let backlog = written.cast_signed().saturating_sub(self.redo.load(Ordering::Relaxed)).max(0).cast_unsigned();
        let rate = rate::rate(backlog, queue.limits);
        let granted = rate.map_or(f64::INFINITY, |rate| rate * passed.as_secs_f64());
        // Unused grants are not saved up, so there is no burst after a pause.
        let before = queue.granted;
        queue.granted = (queue.granted + granted).min(queue.issued);
        assert!(before <= queue.granted, "of {} bytes {before} were granted, and {} are", queue.issued, queue.granted);
        rate
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_sync::primitive::thread;

    const MIB: u64 = 1 << 20;

    fn limited() -> Throttle {
        let throttle = Throttle::default();
        throttle.limit(Some(LogLimits { soft: 40 * MIB, hard: 48 * MIB }));
        throttle
    }

    #[test]
    fn nothing_is_slowed_below_the_soft_limit_or_without_limits() {
        let throttle = limited();
        assert!(!throttle.slows(40 * MIB) && throttle.slows(41 * MIB));
        throttle.redo_from(10 * MIB.cast_signed());
        assert!(!throttle.slows(50 * MIB) && throttle.slows(51 * MIB));
        assert!(throttle.pay(1 << 40, || 50 * MIB, || false));
        throttle.limit(None);
        assert!(!throttle.slows(u64::MAX / 2 - 1));
        assert!(throttle.pay(1 << 40, || u64::MAX / 2 - 1, || false));
    }

    #[test]
    fn log_from_before_the_opening_counts() {
        let throttle = limited();
        throttle.redo_from(-30 * MIB.cast_signed());
        assert!(!throttle.slows(10 * MIB) && throttle.slows(11 * MIB));
        throttle.redo_from(-48 * MIB.cast_signed());
        assert!(throttle.slows(0) && !throttle.pay(1000, || 0, || true), "nothing is granted at the hard limit");
        throttle.limit(None);
        assert!(!throttle.slows(u64::MAX / 2 - 1));
    }

    #[test]
    fn writers_together_keep_to_the_rate() {
        let throttle = limited();
        let begun = throttle.clock.now();
        // 32 MiB a second at that backlog.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..64).for_each(|_| assert!(throttle.pay(MIB / 64, || 44 * MIB, || false))));
            }
        });
        let took = throttle.clock.now().since(begun);
        assert!(took > Duration::from_millis(120), "4 MiB in {took:?}");
        assert!(throttle.waited() > 0);
    }

    #[test]
    fn a_writer_at_the_hard_limit_goes_on_when_redo_starts_later_or_the_log_has_stopped() {
        let (throttle, checks) = (limited(), AtomicU64::new(0));
        thread::scope(|scope| {
            let written = || {
                // ORDERING: Relaxed, a counter.
                checks.fetch_add(1, Ordering::Relaxed);
                48 * MIB
            };
            let (throttle, checks) = (&throttle, &checks);
            let writer = scope.spawn(move || assert!(throttle.pay(1000, written, || false), "granted in the end"));
            // It has come back from a sleep and waits on.
            while checks.load(Ordering::Relaxed) < 4 {
                assert!(!writer.is_finished());
                thread::yield_now();
            }
            throttle.redo_from(20 * MIB.cast_signed());
            writer.join().expect("no panic");
        });
        throttle.redo_from(0);
        assert!(!throttle.pay(1000, || 48 * MIB, || true), "it has stopped, ungranted");
    }
}
