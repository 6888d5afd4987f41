//! BP-Wrapper: each thread queues uses and reports them to the order in batches, so that a hit rarely takes its mutex.

use super::locked::{Order, sweep};
use foreshore_base::PageId;
use foreshore_buffer::replacement::{FrameNo, Frames, ReplacementPolicy};
use foreshore_sync::primitive::MODEL;
use foreshore_sync::{CachePadded, LockRank, Mutex, thread_index};
use std::ops::ControlFlow;

/// Uses that a thread queues before it tries for the mutex.
const BATCH: usize = if MODEL { 2 } else { 32 };
/// Uses with which it waits for the mutex.
const QUEUE: usize = 2 * BATCH;
/// Number of queues. More threads share them, and a use that finds its queue locked is not counted.
const QUEUES: usize = if MODEL { 2 } else { 256 };

/// A page in a frame, at the time of its use.
#[derive(Clone, Copy, Debug)]
struct Use {
    no: FrameNo,
    pid: PageId,
}

/// An order under a mutex that is taken once for many uses, and for a miss.
#[derive(Debug)]
pub(super) struct Batched<O> {
    order: Mutex<O>,
    queues: Box<[CachePadded<Mutex<Vec<Use>>>]>,
}

impl<O: Order> Batched<O> {
    pub(super) fn new(order: O) -> Self {
        let queue = || CachePadded::new(Mutex::new(LockRank::Leaf, Vec::new()));
        let queues = std::iter::repeat_with(queue).take(QUEUES).collect();
        Self { order: Mutex::new(LockRank::Leaf, order), queues }
    }

    fn queue(&self) -> &Mutex<Vec<Use>> {
        &self.queues[thread_index() % QUEUES]
    }

    /// Reports this thread's queued uses to the order.
    fn drain(&self, frames: Frames<'_>) {
        let uses = std::mem::take(&mut *self.queue().lock());
        if !uses.is_empty() {
            tell(&mut *self.order.lock(), frames, uses);
        }
    }
}

/// Reports uses, except of pages that have left their frames since.
fn tell(order: &mut impl Order, frames: Frames<'_>, uses: impl IntoIterator<Item = Use>) {
    for Use { no, pid } in uses {
        if frames.page(no) == pid {
            order.on_use(no);
        }
    }
}

impl<O: Order> ReplacementPolicy for Batched<O> {
    fn on_use(&self, frames: Frames<'_>, no: FrameNo) {
        let Some(mut queue) = self.queue().try_lock() else { return };
        if queue.capacity() == 0 {
            queue.reserve_exact(QUEUE);
        }
        queue.push(Use { no, pid: frames.page(no) });
        if queue.len() < BATCH {
            return;
        }
        if let Some(mut order) = self.order.try_lock() {
            return tell(&mut *order, frames, queue.drain(..));
        }
        if queue.len() >= QUEUE {
            drop(queue);
            self.drain(frames);
        }
    }

    fn on_load(&self, frames: Frames<'_>, no: FrameNo, pid: PageId) {
        self.drain(frames);
        self.order.lock().on_load(no, pid);
    }

    fn on_evict(&self, _: Frames<'_>, no: FrameNo, pid: PageId) {
        self.order.lock().on_evict(no, pid);
    }

    fn sweep(&self, frames: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        self.drain(frames);
        sweep(&self.order, consider)
    }
}
