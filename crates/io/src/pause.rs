//! The latency of a device in memory: a sleep of the requested length, and little longer.
//!
//! A plain sleep of 300 µs ends after 390 µs. The kernel delays the timers of ordinary threads by up to 50 µs, so that
//! they expire together (*timer slack*), and a wake-up takes time too. A measurement on a device of a known latency
//! would then show the scheduler. So a sleeper requests no slack, and sleeps less than the rest of its time by the
//! *lead*. The lead follows the measured time of wake-ups.

use crate::os::{NoSlack, sleep_until};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// The first lead, in nanoseconds. It is too small for most machines, so the first sleeps are a little long.
const FIRST_LEAD: u64 = 10_000;
/// Steps by which a late sleep raises the lead and an early one lowers it. Their ratio sets the share of sleeps that
/// end early and have to go on: one in ten.
const RAISE: u64 = 250;
const LOWER: u64 = 9 * RAISE;

/// A fixed latency.
#[derive(Debug)]
pub(crate) struct Pause {
    nanos: u64,
    /// The lead: the nanoseconds by which a requested sleep is shorter than the latency.
    lead: AtomicU64,
}

impl Pause {
    pub(crate) fn new(delay: Duration) -> Self {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        Self { nanos, lead: AtomicU64::new(FIRST_LEAD.min(nanos / 2)) }
    }

    /// Sleeps for the latency, never less. Calls of several threads overlap. Called with no lock held.
    pub(crate) fn run(&self) {
        if self.nanos == 0 {
            return;
        }
        let end = now().saturating_add(self.nanos);
        let _exact = NoSlack::new();
        // ORDERING: Relaxed, an estimate that publishes nothing; later sleeps make up for a lost update.
        let lead = self.lead.load(Ordering::Relaxed);
        sleep_until(end - lead);
        let early = now() < end;
        // Bounded, so that the lead recovers soon after a time of overload, when every sleep is late.
        let next = next_lead(lead, early).min(self.nanos / 2);
        // ORDERING: Relaxed, as above.
        self.lead.store(next, Ordering::Relaxed);
        if early {
            sleep_until(end);
        }
    }
}

/// Returns the lead after a sleep.
fn next_lead(lead: u64, early: bool) -> u64 {
    if early { lead.saturating_sub(LOWER) } else { lead + RAISE }
}

/// Returns the nanoseconds of a monotonic clock.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn no_pause_is_too_short_and_the_slack_comes_back() {
        use rustix::thread::{current_timer_slack, set_current_timer_slack};
        set_current_timer_slack(std::num::NonZeroU64::new(70_000)).unwrap();
        for micros in [0, 1, 30, 300] {
            let pause = Pause::new(Duration::from_micros(micros));
            for _ in 0..100 {
                let begun = now();
                pause.run();
                assert!(now() - begun >= micros * 1000);
            }
        }
        assert_eq!(current_timer_slack(), Ok(70_000));
    }

    #[test]
    fn the_lead_settles_where_one_sleep_in_ten_is_early() {
        // Wake-ups that take 20 to 29 µs, each as often.
        let mut lead = FIRST_LEAD;
        for i in 0..10_000 {
            let late = 20_000 + i * 7 % 10 * 1000;
            lead = next_lead(lead, late < lead);
        }
        assert!((18_000..=23_000).contains(&lead), "{lead}");
        assert_eq!(next_lead(0, true), 0);
    }
}
