//! The free list: a lock-free stack of frames.
//!
//! From Treiber, "Systems Programming: Coping with Parallelism" (1986). The memory of frames is never freed, so a
//! thread that reads the link of a frame that another has just taken reads a stale link and nothing worse.

use crate::frame::{Frame, FrameNo};
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};

// The top word.
//
//   63             32 31              0
//  +-----------------+-----------------+
//  |       tag       |       top       |
//  +-----------------+-----------------+
//
// top: number of the uppermost frame + 1, or 0. The link of a frame holds the same for the frame below it, and in its
//      upper half the count of frames from it down.
// tag: raised by each push, wraps.
//
// 1. The link of a frame is stored by the thread that pushes it, before it is on the stack, and changes only when it is
//    pushed again. So while the top word stays what it was, the link of the top is what it was.
// 2. A pop replaces the top word that it saw before it read the link. Without a tag the frame could have been taken and
//    pushed again meanwhile, on top of another one (ABA). With it, a multiple of 2^32 pushes would have to come in
//    between.
const TAG: u64 = 1 << 32;
const TOP: u64 = TAG - 1;

/// The free list of a pool. All calls pass the same frames.
#[derive(Debug, Default)]
pub struct FreeList {
    top: CachePadded<AtomicU64>,
}

impl FreeList {
    /// Returns a list of all `frames`, the lowest on top. So a pool that was never full commits only the memory that it
    /// has used.
    pub fn all(frames: &[Frame]) -> Self {
        let list = Self::default();
        (0..frames.len() as FrameNo).rev().for_each(|no| list.push(frames, no));
        list
    }

    /// Adds a frame that is not in the list.
    pub fn push(&self, frames: &[Frame], no: FrameNo) {
        let link = frames[no as usize].link();
        // ORDERING: Acquire, pairs with the exchange below: the link of the top is the one that it was pushed with.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            // ORDERING: Relaxed, published by the exchange.
            link.store((Self::count(frames, top) + 1) << 32 | top & TOP, Ordering::Relaxed);
            let tag = if mutant("free list: no tag") { 0 } else { (top & !TOP).wrapping_add(TAG) };
            // ORDERING: Release, publishes the link; Acquire on failure, as above.
            match self.top.compare_exchange_weak(top, tag | u64::from(no + 1), release(), Ordering::Acquire) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// Takes a frame, and returns it with the number of those left.
    pub fn pop(&self, frames: &[Frame]) -> Option<(FrameNo, usize)> {
        // ORDERING: Acquire, pairs with `push`: the link of the top is the one that it was pushed with.
        let mut top = self.top.load(Ordering::Acquire);
        loop {
            let no = ((top & TOP) as FrameNo).checked_sub(1)?;
            // ORDERING: Relaxed, ordered by the Acquire of the top; if it is stale, so is the top.
            let link = frames[no as usize].link().load(Ordering::Relaxed);
            // ORDERING: Acquire on failure, as above. On success this publishes nothing of its own. It continues the
            // release sequence of the push of the new top, so a reader of that top sees the link of its frame.
            let next = top & !TOP | link & TOP;
            match self.top.compare_exchange_weak(top, next, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => {
                    let left = (link >> 32).checked_sub(1);
                    assert!(
                        left.is_some_and(|left| left < frames.len() as u64),
                        "frame {no} was free with {left:?} others"
                    );
                    return left.map(|left| (no, left as usize));
                }
                Err(now) => top = now,
            }
        }
    }

    /// Returns how many frames are in the list. A hint.
    pub fn len(&self, frames: &[Frame]) -> usize {
        // ORDERING: Acquire, as in `pop`.
        Self::count(frames, self.top.load(Ordering::Acquire)) as usize
    }

    fn count(frames: &[Frame], top: u64) -> u64 {
        match (top & TOP).checked_sub(1) {
            // ORDERING: Relaxed, as in `pop`.
            Some(no) => frames[no as usize].link().load(Ordering::Relaxed) >> 32,
            None => 0,
        }
    }
}

fn release() -> Ordering {
    // ORDERING: publish, see `FreeList::push`.
    if mutant("free list: relaxed push") { Ordering::Relaxed } else { Ordering::Release }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn frames_come_lowest_first_and_then_last_freed_first() {
        let frames: Vec<_> = (0..3).map(|_| Frame::new()).collect();
        let list = FreeList::all(&frames);
        let pop = || list.pop(&frames);
        assert_eq!((list.len(&frames), pop(), pop()), (3, Some((0, 2)), Some((1, 1))));
        list.push(&frames, 0);
        assert_eq!((list.len(&frames), pop(), pop(), pop()), (2, Some((0, 1)), Some((2, 0)), None));
        list.push(&frames, 1);
        assert_eq!((list.len(&frames), pop()), (1, Some((1, 0))));
    }

    #[test]
    fn the_tag_may_wrap() {
        let frames: Vec<_> = (0..2).map(|_| Frame::new()).collect();
        let list = FreeList { top: CachePadded::new(AtomicU64::new(!TOP)) };
        list.push(&frames, 1);
        assert_eq!(list.pop(&frames), Some((1, 0)));
        assert_eq!(list.pop(&frames), None);
    }
}
