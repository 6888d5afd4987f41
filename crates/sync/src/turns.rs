//! Turns: one at a time, in the order of arrival, with a timeout.

use crate::model::mutant;
use crate::{Clock, LockRank, Mutex, Parker, Unparker};
use std::collections::VecDeque;
use std::time::Duration;

/// A queue of threads, the first of which has its turn. Threads that wait in it hold nothing that another might need,
/// so it takes part in no deadlock. A thread that does hold something waits with a timeout.
#[derive(Debug)]
pub struct Turns {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    last: u64,
    /// The thread that has its turn. The turn is handed over, so no thread overtakes.
    holder: Option<u64>,
    waiting: VecDeque<(u64, Unparker)>,
    /// Whether no request waits any more.
    is_closed: bool,
}

/// A turn. It ends when this is dropped.
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
    /// Waits for a turn: for at most `most` by `clock`, without a limit if that is [`Duration::MAX`], or until
    /// [`close`](Self::close).
    pub fn take(&self, clock: &impl Clock, most: Duration) -> Option<Turn<'_>> {
        let (parker, until) = (Parker::current(), clock.now() + most);
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
            let left = if most == Duration::MAX { most } else { until.since(clock.now()) };
            if !left.is_zero() {
                // WAIT: park - for the end of the earlier turns, or a timeout.
                parker.park_timeout(left);
            }
            let mut queue = self.queue.lock();
            // Even after the timeout: a turn that was handed over has to be taken.
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
}

impl Turns {
    /// Ends all waits without a turn, and later ones too.
    pub fn close(&self) {
        let waiting: Vec<Unparker> = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            queue.waiting.iter().map(|(_, unparker)| unparker.clone()).collect()
        };
        if !mutant("turns: a close wakes no request") {
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
