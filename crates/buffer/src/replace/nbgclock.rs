//! The hand of `nbgclock`. What its pages do is in [`crate::nb`].

use super::{Frames, Replacer, Uses};
use crate::frame::FrameNo;
use foreshore_base::PageId;
use foreshore_sync::CachePadded;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use std::ops::ControlFlow;

/// Uses that a frame counts, as `gclock` does.
const CAP: u8 = 5;
/// Uses of a page that has just got its frame; the fix that reads it is the first, so that it begins with one as in `gclock`.
const INITIAL: u8 = 0;
/// Frames that a sweep takes from the hand at once.
const BATCH: usize = 8;

/// The hand is a counter, so that concurrent sweeps share a lap and age no page twice.
#[derive(Debug, Default)]
pub(super) struct NbGClock {
    hand: CachePadded<AtomicUsize>,
}

impl Replacer for NbGClock {
    fn uses(&self) -> Uses {
        Uses::WithPin { cap: CAP, initial: INITIAL }
    }

    fn on_load(&self, _: &Frames, _: FrameNo, _: PageId) {}

    fn sweep(&self, frames: &Frames, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        let looks = (usize::from(CAP) + 1) * frames.len();
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
