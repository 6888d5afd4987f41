//! The clock and its generalisation: a few bits a frame, and a hand that counts them down.

use foreshore_base::PageId;
use foreshore_buffer::replacement::{FrameNo, Frames, ReplacementPolicy};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, rmw};
use std::ops::ControlFlow;

/// The hand is a counter: each step takes one position, so concurrent sweeps share a lap instead of aging pages twice.
#[derive(Debug)]
pub(super) struct Clock {
    hand: CachePadded<AtomicUsize>,
    cap: u8,
    /// Uses that a page has as it comes in.
    initial: u8,
}

impl Clock {
    pub(super) fn new(cap: u8, initial: u8) -> Self {
        assert!(initial <= cap, "{initial} uses of {cap}");
        Self { hand: CachePadded::new(AtomicUsize::new(0)), cap, initial }
    }
}

impl ReplacementPolicy for Clock {
    fn use_cap(&self) -> Option<u8> {
        Some(self.cap)
    }

    fn on_load(&self, frames: Frames<'_>, no: FrameNo, _: PageId) {
        frames.set_uses(no, self.initial);
    }

    fn sweep(&self, frames: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        // All laps but the last may only count uses down.
        for _ in 0..(usize::from(self.cap) + 1) * frames.len() {
            rmw::contended(1);
            // ORDERING: Relaxed, the hand guards nothing.
            let no = (self.hand.fetch_add(1, Ordering::Relaxed) % frames.len()) as FrameNo;
            let is_free = frames.page(no) == PageId::ZERO;
            if is_free || frames.is_pinned(no) || frames.is_in_scan_ring(no) || frames.take_use(no) {
                continue;
            }
            consider(no)?;
        }
        ControlFlow::Continue(())
    }
}
