//! Policies that keep pages in order, under one mutex.

use foreshore_base::PageId;
use foreshore_buffer::replacement::{FrameNo, Frames, ReplacementPolicy};
use foreshore_sync::{LockRank, Mutex};
use std::fmt;
use std::ops::ControlFlow;

/// Frames that a sweep notes first; then as many as it has tried, so that the whole sweep is linear.
const FIRST_LOOK: usize = 4;

/// An order of the pages in memory, and a memory of others.
pub(super) trait Order: Send + fmt::Debug {
    /// The page in the frame is used. The frame may hold another page by now, or none.
    fn on_use(&mut self, no: FrameNo);
    /// A page has entered the frame.
    fn on_load(&mut self, no: FrameNo, pid: PageId);
    /// The page leaves the frame.
    fn on_evict(&mut self, no: FrameNo, pid: PageId);
    /// Returns the frames with a page, the first victim first.
    fn victims(&self) -> impl Iterator<Item = FrameNo>;
}

/// An order under a mutex, which every hit takes.
#[derive(Debug)]
pub(super) struct Locked<O> {
    order: Mutex<O>,
}

impl<O: Order> Locked<O> {
    pub(super) fn new(order: O) -> Self {
        Self { order: Mutex::new(LockRank::Leaf, order) }
    }
}

impl<O: Order> ReplacementPolicy for Locked<O> {
    fn on_use(&self, _: Frames<'_>, no: FrameNo) {
        self.order.lock().on_use(no);
    }

    fn on_load(&self, _: Frames<'_>, no: FrameNo, pid: PageId) {
        self.order.lock().on_load(no, pid);
    }

    fn on_evict(&self, _: Frames<'_>, no: FrameNo, pid: PageId) {
        self.order.lock().on_evict(no, pid);
    }

    fn sweep(&self, _: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        sweep(&self.order, consider)
    }
}

/// Names the victims of an order.
pub(super) fn sweep<O: Order>(
    order: &Mutex<O>,
    consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut tried: Vec<FrameNo> = Vec::with_capacity(FIRST_LOOK);
    loop {
        let known = tried.len();
        {
            let order = order.lock();
            // The ones that were tried and not evicted are still first, in the same order.
            let mut before = tried.iter();
            let news = order.victims().skip_while(|no| before.any(|tried| tried == no));
            let news: Vec<_> = news.take(known.max(FIRST_LOOK)).collect();
            tried.extend(news);
        }
        if tried.len() == known {
            return ControlFlow::Continue(());
        }
        for &no in &tried[known..] {
            consider(no)?;
        }
    }
}
