//! The clock: second chance by one bit a frame.

use super::Replacer;
use crate::frame::{Frame, FrameNo};
use foreshore_base::PageId;
use foreshore_sync::CachePadded;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use std::ops::ControlFlow;

/// The hand is a counter: each look takes one position, so concurrent sweeps share a lap instead of aging pages twice.
#[derive(Debug, Default)]
pub(super) struct Clock {
    hand: CachePadded<AtomicUsize>,
}

impl Replacer for Clock {
    fn on_load(&self, frame: &Frame) {
        frame.reference();
    }

    #[inline]
    fn on_hit(&self, frame: &Frame) {
        frame.reference();
    }

    fn sweep(
        &self,
        frames: &[CachePadded<Frame>],
        consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        // Two laps: the first may only take second chances away.
        for _ in 0..2 * frames.len() {
            // ORDERING: Relaxed, the hand guards nothing.
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % frames.len();
            let frame = &frames[index];
            if frame.pid() == PageId::ZERO || frame.is_pinned() || frame.unreference() {
                continue;
            }
            consider(index as FrameNo)?;
        }
        ControlFlow::Continue(())
    }
}
