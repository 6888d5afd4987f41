//! The hand of `nbgclock`. What its pages do is in [`crate::nb`].

use super::{Frames, Replacer, Uses};
use crate::frame::FrameNo;
use foreshore_base::PageId;
use foreshore_sync::CachePadded;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use std::ops::ControlFlow;

/// Frames that a sweep takes from the hand at once.
const BATCH: usize = 8;

/// The hand is a counter, so that concurrent sweeps share a lap and age no page twice.
#[derive(Debug)]
pub(super) struct NbGClock {
    hand: CachePadded<AtomicUsize>,
    cap: u8,
    /// Uses of a page that has just got its frame.
    initial: u8,
}

impl NbGClock {
    /// With the weights of `gclock`: the fix that reads a page is the first use of it.
    pub(super) fn new(cap: u8, initial: u8) -> Self {
        assert!(1 <= initial && initial <= cap, "{initial} uses of {cap}");
        Self { hand: CachePadded::new(AtomicUsize::new(0)), cap, initial: initial - 1 }
    }
}

impl Replacer for NbGClock {
    fn uses(&self) -> Uses {
        Uses::WithPin { cap: self.cap, initial: self.initial }
    }

    fn on_load(&self, _: &Frames, _: FrameNo, _: PageId) {}

    fn sweep(&self, frames: &Frames, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        let looks = (usize::from(self.cap) + 1) * frames.len();
        for _ in 0..looks.div_ceil(BATCH) {
            // ORDERING: Relaxed, the hand guards nothing.
            let first = self.hand.fetch_add(BATCH, Ordering::Relaxed);
            for index in first..first + BATCH {
                let no = index % frames.len();
                if !frames[no].cool() && consider(no as FrameNo).is_break() {
                    // What was not looked at goes back, unless another sweep has gone on from its end.
                    // ORDERING: as above.
                    let hand = &self.hand;
                    let _ = hand.compare_exchange(first + BATCH, index + 1, Ordering::Relaxed, Ordering::Relaxed);
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }
}
