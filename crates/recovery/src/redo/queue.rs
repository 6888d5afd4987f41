//! The queue between the thread that reads the log and a worker: batches in order, bounded by their bytes.

use foreshore_sync::{Condvar, LockRank, Mutex};
use foreshore_wal::LoggedRecord;
use std::collections::VecDeque;
use std::sync::Arc;

/// Changes that are handed over at a time.
const BATCH: usize = 64;
/// Bytes after which fewer are.
const BATCH_BYTES: usize = 16 << 10;
/// Memory of a change besides the payload.
const CHANGE_BYTES: usize = size_of::<PageChange>() + size_of::<LoggedRecord>() + 2 * size_of::<usize>();

/// A record, for one of its pages.
#[derive(Debug)]
pub(super) struct PageChange {
    pub(super) record: Arc<LoggedRecord>,
    /// Which of its pages.
    pub(super) index: usize,
    /// A number that grows from change to change, in log order.
    pub(super) number: u64,
}

/// Changes for one worker, in log order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) changes: Vec<PageChange>,
    bytes: usize,
}

impl Batch {
    /// Adds a change. Returns whether the batch is to be handed over.
    pub(super) fn add(&mut self, change: PageChange) -> bool {
        self.bytes += CHANGE_BYTES + change.record.payload.len();
        self.changes.push(change);
        self.changes.len() >= BATCH || self.bytes >= BATCH_BYTES
    }
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<Batch>,
    bytes: usize,
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

    /// Adds a batch, when there is space for it. The receiver takes all that is added, also after a failure.
    pub(super) fn push(&self, batch: Batch) {
        let mut state = self.state.lock();
        while state.bytes > 0 && state.bytes + batch.bytes > self.limit {
            // WAIT: park - until the worker has taken a batch; it takes all, and applies none after a failure.
            state = self.drained.wait(state);
        }
        assert!(!state.is_closed, "no batch follows the close");
        state.bytes += batch.bytes;
        state.batches.push_back(batch);
        drop(state);
        self.filled.notify_one();
    }

    /// Removes the oldest batch. Returns `None` once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                state.bytes -= batch.bytes;
                drop(state);
                self.drained.notify_one();
                return Some(batch);
            }
            assert_eq!(state.bytes, 0, "an empty queue holds no bytes");
            if state.is_closed {
                return None;
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
    use foreshore_base::{GroupNo, Lsn};
    use foreshore_sync::primitive::thread;

    fn change(number: u64, bytes: usize) -> PageChange {
        let record = LoggedRecord { lsn: Lsn(number), tag: 0, flags: 0, payload: vec![0; bytes], group: GroupNo(1) };
        PageChange { record: Arc::new(record), index: 0, number }
    }

    #[test]
    fn batches_come_in_order_and_never_exceed_the_limit() {
        let queue = Queue::new(10 * BATCH_BYTES);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut batch = Batch::default();
                for number in 0..20_000 {
                    // Now and then one that no queue has space for.
                    let bytes = if number % 5000 == 0 { 20 * BATCH_BYTES } else { number as usize % 700 };
                    if batch.add(change(number, bytes)) {
                        queue.push(std::mem::take(&mut batch));
                    }
                }
                queue.push(batch);
                queue.close();
            });
            let mut next = 0;
            while let Some(batch) = queue.pop() {
                let (bytes, batches) = {
                    let state = queue.state.lock();
                    (state.bytes, state.batches.len())
                };
                assert!(bytes <= queue.limit || batches == 1, "{bytes} bytes in {batches} batches");
                for change in batch.changes {
                    assert_eq!(change.number, next);
                    next += 1;
                }
            }
            assert_eq!(next, 20_000);
        });
    }
}
