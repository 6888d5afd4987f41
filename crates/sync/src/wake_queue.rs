//! Waking many threads without delaying the waker.
//!
//! A wake-up is a system call of a few microseconds, and a flusher that has made a hundred commits durable has other
//! work to do. It wakes a few; each woken thread wakes two more before it continues.
//!
//! With 128 parked threads on two processors the waker uses 8 us of processor time instead of 320. It is free 15 to
//! 20 % earlier, since the woken threads run in its place meanwhile. The last thread continues earlier by as much.
//! Measured with `examples/wakes.rs`.

use crate::model::mutant;
use crate::primitive::atomic::{AtomicUsize, Ordering};
use crate::{LockRank, Mutex, Unparker};
use std::collections::VecDeque;

/// Threads that each woken thread wakes. One would be enough; the second makes the tree grow, and covers for a thread
/// that the system does not run.
const EACH: usize = 2;

/// The threads to be woken, shared by wakers and woken threads.
///
/// The owner keeps a list of its waiters under a lock. It has three duties, each at one place of its code:
///
/// 1. A waker removes entries from the list and [`put`](Self::put)s them here **in one critical section**, and then
///    calls [`start`](Self::start).
/// 2. A waiter ends its wait under that lock: it removes its entry from the list. If the entry is gone it calls
///    [`help`](Self::help), whatever ended the wait: a wake-up, a timeout, or a timely check.
/// 3. No other thread removes entries from the list, except to wake them itself.
///
/// **Why no thread is forgotten:** every entry that is put belongs to a thread that helps once, after the put. Since
/// the queue was last empty, a start has taken at least one entry and each help at least one. If all threads of taken
/// entries were done while the queue is not empty, more entries would have been taken than threads have helped, that
/// is, more than were taken.
///
/// **Why no single thread matters:** entries wait in one queue and belong to no branch. A woken thread that the system
/// does not run only fails to help; the others and the next start take its share.
#[derive(Debug)]
pub struct WakeQueue {
    first: usize,
    /// Entries in `rest`. Written under its lock.
    left: AtomicUsize,
    rest: Mutex<VecDeque<Unparker>>,
}

impl Default for WakeQueue {
    /// Four direct wake-ups.
    fn default() -> Self {
        Self::new(4)
    }
}

impl WakeQueue {
    /// Makes a queue whose [`start`](Self::start) wakes at most `first` threads, and at least one. With `usize::MAX`
    /// it is a loop over all.
    pub fn new(first: usize) -> Self {
        let rest = Mutex::new(LockRank::Leaf, VecDeque::new());
        Self { first: first.max(1), left: AtomicUsize::new(0), rest }
    }

    /// Adds threads at the end and wakes none; the caller holds the lock of its list.
    pub fn put(&self, threads: impl IntoIterator<Item = Unparker>) {
        let mut rest = self.rest.lock();
        rest.extend(threads);
        // ORDERING: Relaxed, see `wake`.
        self.left.store(rest.len(), Ordering::Relaxed);
    }

    /// Wakes the first threads of the queue. Called after [`put`](Self::put), without a lock.
    pub fn start(&self) {
        self.wake(self.first);
    }

    /// Wakes two more: called by a thread whose entry was taken, after its wait. Costs one load if none is left.
    pub fn help(&self) {
        if !mutant("wake queue: leave without helping") {
            self.wake(EACH);
        }
    }

    /// Wakes up to `most` threads.
    fn wake(&self, most: usize) {
        for _ in 0..most {
            // ORDERING: Relaxed, a thread that has put entries or has found its own gone has passed through the
            // owner's lock since, and sees that put or what followed.
            if self.left.load(Ordering::Relaxed) == 0 {
                return;
            }
            let next = {
                let mut rest = self.rest.lock();
                let next = rest.pop_front();
                // ORDERING: Relaxed, as above.
                self.left.store(rest.len(), Ordering::Relaxed);
                next
            };
            // Woken outside the lock: others remove their entries meanwhile.
            let Some(thread) = next else { return };
            thread.unpark();
        }
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use crate::Parker;
    use crate::primitive::atomic::AtomicU64;
    use crate::primitive::thread;
    use std::collections::BTreeMap;

    #[test]
    fn a_start_wakes_a_few_and_each_helper_two() {
        let parkers: Vec<Parker> = (0..9).map(|_| Parker::new()).collect();
        let unparkers: Vec<Unparker> = parkers.iter().map(Parker::unparker).collect();
        let woken = || unparkers.iter().map(|unparker| u8::from(unparker.is_notified())).collect::<Vec<_>>();
        let queue = WakeQueue::default();
        queue.put(unparkers[..7].iter().cloned());
        assert_eq!(woken(), [0; 9], "a put wakes nobody");
        queue.start();
        assert_eq!(woken(), [1, 1, 1, 1, 0, 0, 0, 0, 0]);
        queue.help();
        assert_eq!(woken(), [1, 1, 1, 1, 1, 1, 0, 0, 0]);
        queue.put(unparkers[7..].iter().cloned());
        queue.start();
        assert_eq!(woken(), [1; 9], "a later start takes what earlier ones have left");
        queue.help();
    }

    #[test]
    fn a_plain_loop_is_a_queue_without_helpers() {
        let parkers: Vec<Parker> = (0..100).map(|_| Parker::new()).collect();
        let queue = WakeQueue::new(usize::MAX);
        queue.put(parkers.iter().map(Parker::unparker));
        queue.start();
        assert!(parkers.iter().all(|parker| parker.unparker().is_notified()));
    }

    /// A watermark that threads wait for, like the log's: the list and its duties.
    #[derive(Default)]
    struct Watermark {
        done: AtomicU64,
        list: std::sync::Mutex<BTreeMap<(u64, usize), Unparker>>,
        queue: WakeQueue,
    }

    impl Watermark {
        fn wait(&self, target: u64, own: usize) {
            let parker = Parker::current();
            self.list.lock().expect("no panic").insert((target, own), parker.unparker());
            while self.done.load(Ordering::SeqCst) < target {
                parker.park();
            }
            if self.list.lock().expect("no panic").remove(&(target, own)).is_none() {
                self.queue.help();
            }
        }

        fn raise(&self, target: u64) {
            self.done.store(target, Ordering::SeqCst);
            {
                let mut list = self.list.lock().expect("no panic");
                let above = list.split_off(&(target + 1, 0));
                let reached = std::mem::replace(&mut *list, above);
                self.queue.put(reached.into_values());
            }
            self.queue.start();
        }
    }

    #[test]
    fn every_waiter_of_every_round_gets_through() {
        const ROUNDS: u64 = 100;
        const THREADS: usize = 32;
        let mark = Watermark::default();
        let arrived = AtomicU64::new(0);
        thread::scope(|scope| {
            for own in 0..THREADS {
                let (mark, arrived) = (&mark, &arrived);
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        arrived.fetch_add(1, Ordering::SeqCst);
                        mark.wait(round, own);
                    }
                });
            }
            for round in 1..=ROUNDS {
                // Most threads are parked by then; some are on their way, which is the other case.
                while arrived.load(Ordering::SeqCst) < round * THREADS as u64 {
                    thread::yield_now();
                }
                mark.raise(round);
            }
        });
        assert_eq!(mark.queue.left.load(Ordering::Relaxed), 0);
    }
}
