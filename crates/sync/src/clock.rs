//! Time as a value: engine code reads a [`Clock`] that it is given, so that a simulation controls time.

use std::ops::{Add, Sub};
use std::time::{Duration, Instant};

/// Nanoseconds since the origin of a clock. Arithmetic saturates: 2^64 ns are 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// The end of time: a deadline that never comes.
    pub const MAX: Self = Self(u64::MAX);

    /// The time from `earlier` to `self`, zero if `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl Add<Duration> for Nanos {
    type Output = Self;
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(Self::from(duration).0))
    }
}

impl Sub<Duration> for Nanos {
    type Output = Self;
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(Self::from(duration).0))
    }
}

/// Returns the time since 1970 by the clock of the system, which may be set back. Under a model checker and in the
/// simulator it is always zero.
#[cfg(not(any(foreshore_loom, foreshore_shuttle, foreshore_sim)))]
pub fn wall_clock() -> Nanos {
    use std::time::{SystemTime, UNIX_EPOCH};
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(Nanos::ZERO, Nanos::from)
}

/// Returns the time since 1970 by the clock of the system, which may be set back. Under a model checker and in the
/// simulator it is always zero.
#[cfg(any(foreshore_loom, foreshore_shuttle, foreshore_sim))]
pub fn wall_clock() -> Nanos {
    Nanos::ZERO
}

/// A source of monotonic time.
pub trait Clock: Send + Sync {
    /// Returns the time now. Never less than an earlier answer.
    fn now(&self) -> Nanos;
}

/// The machine's monotonic clock, counted from the creation of this value. Under shuttle every read advances the time
/// by a random step of at most 0.1 ms, which a replay repeats.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
    /// The same time by the clock of the ticks.
    origin_ticks: Nanos,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[expect(clippy::new_without_default, reason = "two defaults would be two different origins")]
    pub fn new() -> Self {
        Self { origin: instant(), origin_ticks: ticks(Precision::Exact) }
    }

    /// Returns the time at the last tick of the system, which is some milliseconds ago at most. That costs a fifth of
    /// [`now`](Clock::now). It may be less than an earlier answer of `now`, but not less than one of this method.
    #[inline]
    pub fn recent(&self) -> Nanos {
        match ticks(Precision::Tick) {
            Nanos::MAX => self.now(),
            Nanos(ticks) => Nanos(ticks.saturating_sub(self.origin_ticks.0)),
        }
    }
}

/// What a time is read for.
#[derive(Clone, Copy)]
enum Precision {
    Exact,
    Tick,
}

/// Returns the time by the clock from which [`Instant`] and the ticks of the system come.
#[cfg(all(target_os = "linux", not(any(foreshore_loom, foreshore_shuttle, foreshore_sim))))]
#[inline]
fn ticks(precision: Precision) -> Nanos {
    use rustix::time::{ClockId, clock_gettime};
    let time = clock_gettime(match precision {
        Precision::Exact => ClockId::Monotonic,
        Precision::Tick => ClockId::MonotonicCoarse,
    });
    // Both are positive: the clock counts from the start of the machine.
    Nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns that there are no ticks.
#[cfg(not(all(target_os = "linux", not(any(foreshore_loom, foreshore_shuttle, foreshore_sim)))))]
fn ticks(_: Precision) -> Nanos {
    Nanos::MAX
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos::from(instant().duration_since(self.origin))
    }
}

#[cfg(not(any(foreshore_shuttle, foreshore_sim)))]
fn instant() -> Instant {
    Instant::now()
}

#[cfg(foreshore_sim)]
fn instant() -> Instant {
    crate::schedule::instant()
}

/// Returns the time by which deadlines of waits are counted.
#[cfg(not(foreshore_sim))]
pub(crate) fn deadline_now() -> Instant {
    Instant::now()
}

/// Returns the time by which deadlines of waits are counted.
#[cfg(foreshore_sim)]
pub(crate) fn deadline_now() -> Instant {
    crate::schedule::instant()
}

#[cfg(foreshore_shuttle)]
fn instant() -> Instant {
    std::thread_local! {
        // All threads of a test run on one thread of the system, so they share this cell.
        static NOW: std::cell::Cell<Option<Instant>> = const { std::cell::Cell::new(None) };
    }
    let step = Duration::from_nanos(shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0..=100_000));
    let next = NOW.get().unwrap_or_else(Instant::now) + step;
    NOW.set(Some(next));
    next
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Nanos::MAX + Duration::from_secs(1), Nanos::MAX);
        assert_eq!(Nanos(5) - Duration::from_nanos(6), Nanos::ZERO);
        assert_eq!(Nanos(5).since(Nanos(7)), Duration::ZERO);
        assert_eq!(Nanos::from(Duration::MAX), Nanos::MAX);
        assert_eq!(Duration::from(Nanos(1_500)), Duration::from_nanos(1_500));
    }

    #[test]
    fn the_last_tick_is_recent() {
        let clock = SystemClock::new();
        let mut last = Nanos::ZERO;
        while last == Nanos::ZERO {
            let recent = clock.recent();
            let now = clock.now();
            assert!(last <= recent && recent <= now, "{last:?}, {recent:?}, {now:?}");
            last = recent;
        }
        assert!(clock.now().since(clock.recent()) < Duration::from_secs(1));
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock::new();
        let mut last = clock.now();
        for _ in 0..1000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
