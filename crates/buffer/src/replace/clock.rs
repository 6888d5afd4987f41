//! The clock and its generalisation: a few bits a frame, and a hand that counts them down.

use super::{Frames, Replacer, Uses};
use crate::frame::FrameNo;
use foreshore_base::PageId;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, rmw};
use std::ops::ControlFlow;

/// The hand is a counter: each look takes one position, so concurrent sweeps share a lap instead of aging pages twice.
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

impl Replacer for Clock {
    fn uses(&self) -> Uses {
        Uses::Counted { cap: self.cap }
    }

    fn on_load(&self, frames: &Frames, no: FrameNo, _: PageId) {
        frames[no as usize].place(self.initial, false);
    }

    fn sweep(&self, frames: &Frames, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        // All laps but the last may only count uses down.
        for _ in 0..(usize::from(self.cap) + 1) * frames.len() {
            rmw::contended(1);
            // ORDERING: Relaxed, the hand guards nothing.
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % frames.len();
            let frame = &frames[index];
            if frame.pid() == PageId::ZERO || frame.is_pinned() || frame.is_passing() || frame.age() {
                continue;
            }
            consider(index as FrameNo)?;
        }
        ControlFlow::Continue(())
    }
}
