//! Where the time of a thread goes, kept by each thread for itself while somebody measures it.
//!
//! A measurement is begun by [`start`] and ended by [`stop`] on the same thread. In between the places where time goes, each in
//! a call of [`during`], read the clock. Of two such calls, one inside of the other, the outer one has all the time: who
//! writes a group of the log because he waits for it, waits for the log. Without a measurement such a call costs one look at
//! a thread-local word.

use crate::{Clock, SystemClock};
use std::cell::Cell;
use std::time::Duration;

/// What time is spent on, beside work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Records on their way into the log buffer.
    LogInsert,
    /// Waits for durability, for room in the log buffer or on its disk.
    LogWait,
    /// Waits for locks of others.
    LockWait,
    /// Waits for page latches.
    LatchWait,
    /// Reads and writes of pages.
    Io,
}

impl Spent {
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// Nanoseconds, by [`Spent`].
pub type SpentNanos = [u64; Spent::COUNT];

std::thread_local! {
    static MEASURES: Cell<bool> = const { Cell::new(false) };
    static NANOS: Cell<SpentNanos> = const { Cell::new([0; Spent::COUNT]) };
    static DRAWS: Cell<u32> = const { Cell::new(0) };
}

/// Begins a measurement of the calling thread.
pub fn start() {
    NANOS.set([0; Spent::COUNT]);
    MEASURES.set(true);
}

/// Ends the measurement and returns what it has found.
pub fn stop() -> SpentNanos {
    MEASURES.set(false);
    NANOS.get()
}

/// Whether the calling thread is measured.
#[inline(always)]
pub fn is_measured() -> bool {
    MEASURES.get()
}

/// Whether it is the thread's turn to be measured: the first time, and each `every`th time from there.
pub fn is_due(every: u32) -> bool {
    let draw = DRAWS.get();
    DRAWS.set((draw + 1) % every);
    draw == 0
}

/// Does `work`, whose time goes to `what` if the thread is measured.
#[inline(always)]
pub fn during<T>(what: Spent, work: impl FnOnce() -> T) -> T {
    if MEASURES.get() { timed(what, work, |_| {}) } else { work() }
}

/// As [`during`]; `note` is told how long it took, if that was measured.
#[inline(always)]
pub fn during_noted<T>(what: Spent, work: impl FnOnce() -> T, note: impl FnOnce(Duration)) -> T {
    if MEASURES.get() { timed(what, work, note) } else { work() }
}

#[cold]
fn timed<T>(what: Spent, work: impl FnOnce() -> T, note: impl FnOnce(Duration)) -> T {
    // Off inside, so that no time counts twice.
    MEASURES.set(false);
    let clock = SystemClock::new();
    let result = work();
    let took = Duration::from(clock.now());
    let mut nanos = NANOS.get();
    nanos[what as usize] += clock_nanos(took);
    NANOS.set(nanos);
    note(took);
    MEASURES.set(true);
    result
}

fn clock_nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    fn pass(clock: &SystemClock, time: Duration) {
        let until = clock.now() + time;
        while clock.now() < until {}
    }

    #[test]
    fn the_outer_call_has_the_time_of_those_inside() {
        let (clock, mut noted) = (SystemClock::new(), Duration::ZERO);
        let tick = Duration::from_micros(200);
        start();
        during(Spent::LogWait, || during(Spent::Io, || pass(&clock, tick)));
        during_noted(Spent::LockWait, || pass(&clock, tick), |took| noted = took);
        let spent = stop();
        let tick = clock_nanos(tick);
        assert!(spent[Spent::LogWait as usize] >= tick && spent[Spent::LockWait as usize] >= tick, "{spent:?}");
        assert_eq!(spent[Spent::Io as usize], 0);
        assert_eq!(clock_nanos(noted), spent[Spent::LockWait as usize]);
        during(Spent::Io, || pass(&clock, Duration::from_micros(1)));
        assert_eq!(stop(), spent, "nobody measures");
        start();
        assert_eq!(stop(), [0; Spent::COUNT], "each measurement begins at zero");
    }

    #[test]
    fn every_so_often_it_is_a_threads_turn() {
        let due: Vec<bool> = (0..9).map(|_| is_due(4)).collect();
        assert_eq!(due, [true, false, false, false, true, false, false, false, true]);
    }
}
