//! Where the time of a thread goes, counted by each thread during a measurement.
//!
//! A measurement is a [`Measurement`]. While it lasts, calls of [`during`] mark the places where time goes, and read
//! the clock. Of two nested calls the outer one gets all the time: a thread that writes a log group because it waits
//! for the log counts as waiting for the log. Without a measurement such a call costs one read of a thread-local word.
//!
//! A measurement may be nested in another, or in a marked place, as when an acknowledgement runs a transaction. It
//! counts its own time and leaves the outer counts as they were. So does one that ends with a panic.

use crate::{Clock, SystemClock, thread_index};
use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

/// What time is spent on, besides work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Copying records into the log buffer.
    LogInsert,
    /// Waits for durability, and for space in the log buffer or on its disk.
    LogWait,
    /// Waits for locks of others.
    LockWait,
    /// Waits for page latches.
    LatchWait,
    /// Reads and writes of pages.
    Io,
}

impl Spent {
    /// The number of variants.
    pub const COUNT: usize = 5;
}

/// Nanoseconds, by [`Spent`].
pub type SpentNanos = [u64; Spent::COUNT];

std::thread_local! {
    static MEASURES: Cell<bool> = const { Cell::new(false) };
    static NANOS: Cell<SpentNanos> = const { Cell::new([0; Spent::COUNT]) };
    /// Calls of [`is_due`] until the thread is measured.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// State of the generator of gaps, 0 before the first.
    static RANDOM: Cell<u64> = const { Cell::new(0) };
}

/// Suspends measuring until it is dropped.
struct On;

impl On {
    fn later() -> Self {
        MEASURES.set(false);
        Self
    }
}

impl Drop for On {
    fn drop(&mut self) {
        MEASURES.set(true);
    }
}

/// A measurement of the calling thread. When it is dropped, the one around it goes on: the last begun is dropped first.
#[derive(Debug)]
pub struct Measurement {
    /// State of the measurement around this one.
    measures: bool,
    nanos: SpentNanos,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Measurement {
    /// Begins a measurement.
    #[must_use]
    pub fn begin() -> Self {
        let (measures, nanos) = (MEASURES.replace(true), NANOS.replace([0; Spent::COUNT]));
        Self { measures, nanos, _thread: PhantomData }
    }

    /// Returns what the time was spent on so far.
    #[must_use]
    pub fn nanos(&self) -> SpentNanos {
        NANOS.get()
    }
}

impl Drop for Measurement {
    fn drop(&mut self) {
        MEASURES.set(self.measures);
        NANOS.set(self.nanos);
    }
}

/// Returns whether the calling thread is measured.
#[inline(always)]
pub fn is_measured() -> bool {
    MEASURES.get()
}

/// Returns whether the thread is to be measured: the first time, and then once in `every` times on average. The gaps
/// are random, from 1 to `2 * every - 1`: a fixed gap would meet the same step of a thread's loop again and again.
pub fn is_due(every: u32) -> bool {
    match LEFT.get() {
        0 => LEFT.set(below(2 * every - 1)),
        left => {
            LEFT.set(left - 1);
            return false;
        }
    }
    true
}

/// Returns a random number below `bound`, by xorshift64*, from a different sequence for each thread.
fn below(bound: u32) -> u32 {
    let mut state = RANDOM.get();
    if state == 0 {
        state = (thread_index() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    RANDOM.set(state);
    let bits = state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
    ((bits * u64::from(bound)) >> 32) as u32
}

/// Runs `work`, whose time counts for `what` if the thread is measured.
#[inline(always)]
pub fn during<T>(what: Spent, work: impl FnOnce() -> T) -> T {
    if MEASURES.get() { timed(what, work, |_| {}) } else { work() }
}

/// Runs [`during`], and passes the duration to `note` if it was measured.
#[inline(always)]
pub fn during_noted<T>(what: Spent, work: impl FnOnce() -> T, note: impl FnOnce(Duration)) -> T {
    if MEASURES.get() { timed(what, work, note) } else { work() }
}

#[cold]
fn timed<T>(what: Spent, work: impl FnOnce() -> T, note: impl FnOnce(Duration)) -> T {
    // Off inside, so that no time counts twice.
    let _on = On::later();
    let clock = SystemClock::new();
    let result = work();
    let took = Duration::from(clock.now());
    let mut nanos = NANOS.get();
    nanos[what as usize] += clock_nanos(took);
    NANOS.set(nanos);
    note(took);
    result
}

fn clock_nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn measure<T>(work: impl FnOnce() -> T) -> (T, SpentNanos) {
        let measurement = Measurement::begin();
        let result = work();
        (result, measurement.nanos())
    }

    fn pass(clock: &SystemClock, time: Duration) {
        let until = clock.now() + time;
        while clock.now() < until {}
    }

    #[test]
    fn the_outer_call_has_the_time_of_those_inside() {
        let (clock, mut noted) = (SystemClock::new(), Duration::ZERO);
        let tick = Duration::from_micros(200);
        let ((), spent) = measure(|| {
            during(Spent::LogWait, || during(Spent::Io, || pass(&clock, tick)));
            during_noted(Spent::LockWait, || pass(&clock, tick), |took| noted = took);
        });
        let tick = clock_nanos(tick);
        assert!(spent[Spent::LogWait as usize] >= tick && spent[Spent::LockWait as usize] >= tick, "{spent:?}");
        assert_eq!(spent[Spent::Io as usize], 0);
        assert_eq!(clock_nanos(noted), spent[Spent::LockWait as usize]);
        during_noted(Spent::Io, || {}, |_| panic!("nobody measures"));
        assert_eq!(measure(|| {}).1, [0; Spent::COUNT], "each measurement begins at zero");
    }

    #[test]
    fn a_measurement_inside_of_another_leaves_its_time_alone() {
        let clock = SystemClock::new();
        let tick = Duration::from_micros(200);
        let spend = |what| during(what, || pass(&clock, tick));
        let (inner, outer) = measure(|| {
            spend(Spent::Io);
            let direct = measure(|| spend(Spent::LockWait)).1;
            let within = during(Spent::LogWait, || measure(|| spend(Spent::LatchWait)).1);
            spend(Spent::LogInsert);
            [direct, within]
        });
        let parts = |spent: SpentNanos| spent.map(|nanos| nanos > 0);
        assert_eq!(inner.map(parts), [[false, false, true, false, false], [false, false, false, true, false]]);
        assert_eq!(parts(outer), [true, true, false, false, true]);
        assert!(!is_measured());
    }

    #[test]
    fn a_panic_ends_a_measurement_and_no_other() {
        let unwound = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).expect_err("a panic");
        unwound(&|| measure(|| panic!("in a measurement")).0);
        assert!(!is_measured());
        let ((), spent) = measure(|| {
            during(Spent::Io, || pass(&SystemClock::new(), Duration::from_micros(1)));
            unwound(&|| during(Spent::LogWait, || panic!("in a place where time goes")));
            assert!(is_measured());
            unwound(&|| measure(|| panic!("in a measurement inside")).0);
            assert!(is_measured());
        });
        assert!(spent[Spent::Io as usize] > 0);
        assert!(!is_measured());
    }

    #[test]
    fn every_so_often_it_is_a_threads_turn_whatever_its_round() {
        const EVERY: u32 = 4;
        const DRAWS: u32 = 100_000;
        assert!(is_due(EVERY), "the first of the thread");
        let due: Vec<u32> = (0..DRAWS).filter(|_| is_due(EVERY)).collect();
        let gaps: Vec<u32> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
        for gap in 1..2 * EVERY {
            let share = gaps.iter().filter(|&&own| own == gap).count() as f64 / gaps.len() as f64;
            assert!((share * f64::from(2 * EVERY - 1) - 1.0).abs() < 0.1, "{share} of the gaps are {gap}");
        }
        assert!(gaps.iter().all(|&gap| (1..2 * EVERY).contains(&gap)));
        // Threads that do the same thing every second, third, … time.
        for round in 2..=3 * EVERY {
            for step in 0..round {
                let met = due.iter().filter(|&&draw| draw % round == step).count() as f64;
                let share = met * f64::from(round * EVERY) / f64::from(DRAWS);
                assert!((share - 1.0).abs() < 0.15, "step {step} of {round}: {share}");
            }
        }
    }
}
