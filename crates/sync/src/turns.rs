//! A FIFO lock: one holder at a time, in the order of arrival, with a timeout.

use crate::model::mutant;
use crate::{Clock, LockRank, Mutex, Parker, Unparker};
use std::collections::VecDeque;
use std::time::Duration;

/// A FIFO lock: one thread holds it, the others wait in a queue.
///
/// **Invariant:** a caller that holds something for which other threads wait passes a timeout. So no deadlock through
/// this lock lasts.
#[derive(Debug)]
pub struct Turns {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// The number of the last thread that asked.
    last: u64,
    /// The thread that holds the lock. The previous holder sets it, so no thread overtakes a waiting one.
    holder: Option<u64>,
    waiting: VecDeque<(u64, Unparker)>,
    /// Set by [`Turns::close`]: later calls return `None`.
    is_closed: bool,
}

/// Holds the lock until it is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
}

impl Default for Turns {
    fn default() -> Self {
        Self { queue: Mutex::new(LockRank::Leaf, Queue::default()) }
    }
}

impl Turns {
    /// Waits for the lock, at most `max` by `clock`; [`Duration::MAX`] means no limit. Returns `None` after that time,
    /// or after [`close`](Self::close).
    pub fn take(&self, clock: &impl Clock, max: Duration) -> Option<Turn<'_>> {
        let (parker, until) = (Parker::current(), clock.now() + max);
        let me = {
            let mut queue = self.queue.lock();
            if queue.is_closed {
                return None;
            }
            queue.last += 1;
            let me = queue.last;
            if queue.holder.is_none() {
                queue.holder = Some(me);
                return Some(Turn { turns: self });
            }
            queue.waiting.push_back((me, parker.unparker()));
            me
        };
        loop {
            let left = if max == Duration::MAX { max } else { until.since(clock.now()) };
            if !left.is_zero() {
                // WAIT: park - for the holders before, or a timeout.
                parker.park_timeout(left);
            }
            let mut queue = self.queue.lock();
            // Even after the timeout: a lock that was handed over has to be taken.
            if queue.holder == Some(me) {
                return Some(Turn { turns: self });
            }
            if left.is_zero() || queue.is_closed {
                if !mutant("turns: a timed-out waiter stays queued") {
                    queue.waiting.retain(|&(waiter, _)| waiter != me);
                }
                return None;
            }
        }
    }

    /// Wakes all waiting threads. They return `None`, except one to which the lock is handed meanwhile. Later calls
    /// return `None` at once.
    pub fn close(&self) {
        let waiting: Vec<Unparker> = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            queue.waiting.iter().map(|(_, unparker)| unparker.clone()).collect()
        };
        if !mutant("turns: a close wakes no waiter") {
            waiting.iter().for_each(Unparker::unpark);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = {
            let mut queue = self.turns.queue.lock();
            let next = queue.waiting.pop_front();
            queue.holder = next.as_ref().map(|&(waiter, _)| waiter);
            next
        };
        if let Some((_, unparker)) = next {
            unparker.unpark();
        }
    }
}
