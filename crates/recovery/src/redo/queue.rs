//! The queue between the thread that reads the log and a worker: batches in order, bounded by their bytes.

use foreshore_base::{GroupNo, Lsn};
use foreshore_sync::{Condvar, LockRank, Mutex};
use std::collections::VecDeque;

/// Changes that are handed over at a time.
const BATCH: usize = 64;
/// Bytes after which fewer are.
const BATCH_BYTES: usize = 16 << 10;
/// Emptied batches that are kept for the sender.
const SPARE: usize = 2;

/// A record, for one of its pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageChange<'b> {
    pub(super) lsn: Lsn,
    pub(super) group: GroupNo,
    pub(super) payload: &'b [u8],
    /// Which of its pages.
    pub(super) index: usize,
    /// A number that grows from change to change, in log order.
    pub(super) number: u64,
}

/// A change in a batch.
#[derive(Debug)]
struct Entry {
    lsn: Lsn,
    group: GroupNo,
    /// Where its payload ends, which begins where that of the change before ends.
    end: usize,
    index: usize,
    number: u64,
}

/// Changes for one worker, in log order. The payloads are copied behind each other: a worker then reads them from
/// memory that is new to its processor only once, and frees none that another thread has allocated.
#[derive(Debug, Default)]
pub(super) struct Batch {
    entries: Vec<Entry>,
    payloads: Vec<u8>,
}

impl Batch {
    /// Adds a change. Returns whether the batch is to be handed over.
    pub(super) fn add(&mut self, change: &PageChange<'_>) -> bool {
        let &PageChange { lsn, group, payload, index, number } = change;
        self.payloads.extend_from_slice(payload);
        self.entries.push(Entry { lsn, group, end: self.payloads.len(), index, number });
        self.entries.len() >= BATCH || self.bytes() >= BATCH_BYTES
    }

    fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Entry>() + self.payloads.len()
    }

    /// Returns the changes in their order.
    pub(super) fn changes(&self) -> impl Iterator<Item = PageChange<'_>> {
        let mut begin = 0;
        self.entries.iter().map(move |&Entry { lsn, group, end, index, number }| {
            let payload = &self.payloads[std::mem::replace(&mut begin, end)..end];
            PageChange { lsn, group, payload, index, number }
        })
    }

    /// Removes the changes. A batch that was enlarged for one record gets a new one.
    fn clear(&mut self) {
        if self.payloads.capacity() > 2 * BATCH_BYTES {
            *self = Self::default();
        }
        self.entries.clear();
        self.payloads.clear();
    }
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Emptied batches.
    spare: Vec<Batch>,
    is_closed: bool,
}

/// A queue of one sender and one receiver.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Signals a batch, or the close.
    filled: Condvar,
    /// Signals that a batch was taken.
    drained: Condvar,
    limit: usize,
}

impl Queue {
    /// Returns a queue of at most `limit` bytes, or of one batch.
    pub(super) fn new(limit: usize) -> Self {
        let state = Mutex::new(LockRank::Leaf, State::default());
        Self { state, filled: Condvar::new(), drained: Condvar::new(), limit }
    }

    /// Adds a batch, when there is space for it, and returns an empty one. The receiver takes all that is added, also
    /// after a failure.
    pub(super) fn push(&self, batch: Batch) -> Batch {
        let mut state = self.state.lock();
        while state.bytes > 0 && state.bytes + batch.bytes() > self.limit {
            // WAIT: park - until the worker has taken a batch; it takes all, and applies none after a failure.
            state = self.drained.wait(state);
        }
        assert!(!state.is_closed, "no batch follows the close");
        state.bytes += batch.bytes();
        state.batches.push_back(batch);
        let empty = state.spare.pop().unwrap_or_default();
        drop(state);
        self.filled.notify_one();
        empty
    }

    /// Replaces `batch`, which is done with, by the oldest batch. Returns false once the queue is closed and empty.
    pub(super) fn pop(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut state = self.state.lock();
        loop {
            if let Some(oldest) = state.batches.pop_front() {
                state.bytes -= oldest.bytes();
                let done = std::mem::replace(batch, oldest);
                if state.spare.len() < SPARE {
                    state.spare.push(done);
                }
                drop(state);
                self.drained.notify_one();
                return true;
            }
            assert_eq!(state.bytes, 0, "an empty queue holds no bytes");
            if state.is_closed {
                return false;
            }
            // WAIT: park - until the reader of the log has a batch, or ends.
            state = self.filled.wait(state);
        }
    }

    /// Whether no batch waits.
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().batches.is_empty()
    }

    /// Nothing more will be added.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_sync::primitive::thread;

    /// Bytes of the change of a number. Now and then one that no queue has space for.
    fn bytes(number: u64) -> usize {
        if number.is_multiple_of(5000) { 20 * BATCH_BYTES } else { number as usize % 700 }
    }

    #[test]
    fn batches_come_in_order_and_never_exceed_the_limit() {
        let queue = Queue::new(10 * BATCH_BYTES);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Batch::default();
                for number in 0..20_000 {
                    let payload = &vec![number as u8; bytes(number)][..];
                    let (lsn, group, index) = (Lsn(number), GroupNo(number / 2), number as usize % 3);
                    if batch.add(&PageChange { lsn, group, payload, index, number }) {
                        batch = queue.push(batch);
                        assert_eq!(batch.bytes(), 0, "it is empty");
                    }
                }
                queue.push(batch);
                queue.close();
            });
            let (mut next, mut batch) = (0, Batch::default());
            while queue.pop(&mut batch) {
                let (waiting, batches) = {
                    let state = queue.state.lock();
                    (state.bytes, state.batches.len())
                };
                assert!(waiting <= queue.limit || batches == 1, "{waiting} bytes in {batches} batches");
                for PageChange { lsn, group, payload, index, number } in batch.changes() {
                    assert_eq!((number, lsn, group, index), (next, Lsn(next), GroupNo(next / 2), next as usize % 3));
                    assert!(payload == vec![next as u8; bytes(next)], "the payload of {next}");
                    next += 1;
                }
            }
            assert_eq!(next, 20_000);
        });
    }
}
