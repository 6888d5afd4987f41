//! Threads at work, and the window in which they are counted.
//!
//! Each worker counts its work in a cache line of its own. The main thread reads all lines at both ends of the window.
//! So a worker that the scheduler has stopped is counted for what it did, and the window is real time.

use crate::terminal::Phase;
use foreshore::Result;
use foreshore_sync::{CachePadded, rmw};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Records between two looks at the clock of the run: what a worker did is known to within so many.
const BATCH: u64 = 32;
/// A reading of all lines that took longer may have been interrupted, and is repeated.
const LONG_READING: Duration = Duration::from_micros(500);
const READINGS: usize = 5;
/// Between two looks at whether all workers have begun.
const STARTING: Duration = Duration::from_micros(500);

/// What one thread does over and over.
pub(super) trait Worker: Send {
    /// Inserts one record and returns its bytes.
    fn insert(&mut self) -> Result<usize>;
}

/// How long to run before the window, and the window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
}

/// What all workers did in the window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) seconds: f64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Contended read-modify-writes.
    pub(super) rmw: u64,
}

impl Counted {
    pub(super) fn records_per_s(&self) -> f64 {
        self.records as f64 / self.seconds
    }

    pub(super) fn gb_per_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    pub(super) fn rmw_per_record(&self) -> f64 {
        if self.records == 0 { 0.0 } else { self.rmw as f64 / self.records as f64 }
    }
}

/// One worker's line.
#[derive(Debug, Default)]
struct Line {
    records: AtomicU64,
    bytes: AtomicU64,
    rmw: AtomicU64,
}

impl Line {
    /// Whether its worker has not begun.
    fn is_idle(&self) -> bool {
        // ORDERING: counts with one writer, read as they are.
        self.records.load(Ordering::Relaxed) == 0
    }
}

/// Runs the workers, a thread each, and counts the window, once all are at work.
pub(super) fn drive<W: Worker>(workers: Vec<W>, span: Span) -> Result<Counted> {
    let lines: Vec<CachePadded<Line>> = workers.iter().map(|_| CachePadded::default()).collect();
    let phase = Phase::new();
    thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .zip(&lines)
            .map(|(worker, line)| {
                let phase = &phase;
                scope.spawn(move || {
                    let worked = work(worker, line, phase);
                    if worked.is_err() {
                        phase.raise(Phase::STOP);
                    }
                    worked
                })
            })
            .collect();
        while phase.get() != Phase::STOP && lines.iter().any(|line| line.is_idle()) {
            thread::sleep(STARTING);
        }
        thread::sleep(span.warm_up);
        let before = read(&lines);
        thread::sleep(span.window);
        let after = read(&lines);
        phase.raise(Phase::STOP);
        for thread in threads {
            match thread.join() {
                Ok(worked) => worked?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        let [records, bytes, rmw] = std::array::from_fn(|i| after.1[i] - before.1[i]);
        Ok(Counted { seconds: (after.0 - before.0).as_secs_f64(), records, bytes, rmw })
    })
}

fn work<W: Worker>(mut worker: W, line: &Line, phase: &Phase) -> Result<()> {
    let (mut records, mut bytes, begun) = (0, 0, rmw::counted());
    while phase.get() != Phase::STOP {
        for _ in 0..BATCH {
            bytes += worker.insert()? as u64;
        }
        records += BATCH;
        // ORDERING: counts with one writer, read as they are.
        line.records.store(records, Ordering::Relaxed);
        line.bytes.store(bytes, Ordering::Relaxed);
        line.rmw.store(rmw::counted() - begun, Ordering::Relaxed);
    }
    Ok(())
}

/// All lines added up, and when.
fn read(lines: &[CachePadded<Line>]) -> (Instant, [u64; 3]) {
    let mut reading = (Instant::now(), [0; 3]);
    for _ in 0..READINGS {
        reading.0 = Instant::now();
        // ORDERING: counts with one writer, read as they are.
        reading.1 = lines.iter().fold([0; 3], |[records, bytes, rmw], line| {
            [
                records + line.records.load(Ordering::Relaxed),
                bytes + line.bytes.load(Ordering::Relaxed),
                rmw + line.rmw.load(Ordering::Relaxed),
            ]
        });
        if reading.0.elapsed() < LONG_READING {
            break;
        }
    }
    reading
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore::Error;

    struct Counting {
        left: u64,
    }

    impl Worker for Counting {
        fn insert(&mut self) -> Result<usize> {
            rmw::contended(2);
            self.left = self.left.checked_sub(1).ok_or(Error::Closed)?;
            Ok(100)
        }
    }

    const SPAN: Span = Span { warm_up: Duration::from_millis(1), window: Duration::from_millis(100) };

    #[test]
    fn the_window_counts_what_all_threads_do() {
        let counted = drive(vec![Counting { left: u64::MAX }, Counting { left: u64::MAX }], SPAN).unwrap();
        assert!(counted.seconds >= 0.1 && counted.records > 0, "{counted:?}");
        // Each line is read in the middle of its three stores at worst.
        assert!(counted.bytes.abs_diff(counted.records * 100) <= 4 * BATCH * 100, "{counted:?}");
        assert!((counted.rmw_per_record() - 2.0).abs() < 0.1, "{counted:?}");
        assert!(counted.gb_per_s() > 0.0 && counted.records_per_s() > counted.gb_per_s());
    }

    #[test]
    fn a_worker_that_fails_fails_the_run() {
        let failed = drive(vec![Counting { left: 10 }, Counting { left: u64::MAX }], SPAN);
        assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
    }
}
