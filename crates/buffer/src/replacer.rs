//! Replacement in a pool: the scan ring for scanned pages, and the policy for all others.

use crate::frame::{self, FrameNo};
use crate::guard::{ExclusiveGuard, LatchGuard};
use crate::memory::{Memory, Slot};
use crate::replacement::{MAX_USES, ReplacementPolicy};
use crate::scan_ring::{AccessPattern, RingEntry, ScanRing};
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use std::io;
use std::ops::ControlFlow;

/// The most victims of the policy that a sweep spares because they were used, so that a sweep soon names one.
const SPARED: usize = 16;
/// The most pages that a sweep moves from the ring to the policy before it takes victims of the policy.
pub(crate) const HAND_OVERS: usize = 16;

/// A function that considers a frame for eviction, and returns whether the sweep goes on.
pub(crate) type Consider<'a> = &'a mut dyn FnMut(FrameNo) -> ControlFlow<()>;

#[derive(Debug)]
pub(crate) struct Replacer {
    policy: Box<dyn ReplacementPolicy>,
    /// [`ReplacementPolicy::use_cap`] of the policy.
    use_cap: Option<u8>,
    /// The least use bits of a frame that one more use does not change.
    enough: u32,
    ring: ScanRing,
}

impl Replacer {
    /// # Errors
    /// When the system has no memory for the ring.
    pub(crate) fn new(policy: Box<dyn ReplacementPolicy>, frames: usize) -> io::Result<Self> {
        let use_cap = policy.use_cap();
        assert!(use_cap <= Some(MAX_USES), "{policy:?} counts more uses than a frame can");
        Ok(Self { enough: use_cap.map_or(u32::MAX, frame::enough), use_cap, policy, ring: ScanRing::new(frames)? })
    }

    /// Notes a fix with the policy, if it counts as a use and changes the use bits.
    #[inline]
    pub(crate) fn note_use(&self, slot: Slot<'_>, pattern: AccessPattern) {
        if pattern == AccessPattern::Random && slot.frame().use_bits() < self.enough {
            self.count_use_slow(slot);
        }
    }

    // Cold, since the use bits of pages in use are at their cap.
    #[cold]
    fn count_use_slow(&self, slot: Slot<'_>) {
        match self.use_cap {
            Some(cap) => slot.frame().count_use(cap),
            // The policy does not know the page yet.
            None if slot.frame().is_in_ring() => slot.frame().count_use(1),
            None => {
                slot.frame().count_use(0);
                self.policy.on_use(slot.memory().view(), slot.no());
            }
        }
    }

    /// Notes that page `pid` was loaded into the frame, whose exclusive latch is held.
    pub(crate) fn note_load(&self, slot: Slot<'_>, pid: PageId, pattern: AccessPattern) {
        match pattern {
            AccessPattern::Random => {
                slot.frame().clear_recency();
                self.ring.shrink();
                self.policy.on_load(slot.memory().view(), slot.no(), pid);
            }
            AccessPattern::Scan => {
                slot.frame().enter_ring();
                let frames = slot.memory().frames();
                self.ring.arrive(slot.no(), pid).for_each(|no| frames[no % frames.len()].decay_recency());
            }
        }
    }

    /// Notes that page `pid` is evicted from the frame, whose exclusive latch is held.
    pub(crate) fn note_eviction(&self, slot: Slot<'_>, pid: PageId) {
        if slot.frame().is_in_ring() {
            slot.frame().leave_ring();
        } else {
            self.policy.on_evict(slot.memory().view(), slot.no(), pid);
        }
    }

    /// Passes frames to `consider`, the best victim first, until it breaks or there are no more.
    pub(crate) fn sweep(&self, memory: &Memory, consider: Consider<'_>) -> ControlFlow<()> {
        self.sweep_ring(memory, self.ring.quota(), HAND_OVERS, consider)?;
        let mut spared = 0;
        self.policy.sweep(memory.view(), &mut |no| {
            if spared == SPARED || !memory.slot(no).frame().is_recent() || !self.ring.shrink() {
                return consider(no);
            }
            spared += 1;
            self.sweep_ring(memory, self.ring.quota(), HAND_OVERS, consider)
        })?;
        self.sweep_ring(memory, 0, usize::MAX, consider)
    }

    /// Passes the frames of the ring to `consider`, the oldest first, except the youngest `keep`. Ends when it has
    /// moved `hand_overs` pages to the policy.
    fn sweep_ring(
        &self,
        memory: &Memory,
        keep: usize,
        mut hand_overs: usize,
        consider: Consider<'_>,
    ) -> ControlFlow<()> {
        // Each entry once: those that stay are put behind the others.
        for _ in 0..self.ring.len() {
            let Some(entry) = self.ring.pop(keep) else { break };
            let (slot, mut flow) = (memory.slot(entry.no), ControlFlow::Continue(()));
            let frame = slot.frame();
            if frame.uses() > 0 || frame.is_dirty() {
                self.hand_over(slot, entry);
                hand_overs -= 1;
            } else if entry.holds(frame) {
                flow = consider(entry.no);
                if !entry.holds(frame) {
                    self.ring.note_eviction(entry);
                }
            }
            if entry.holds(frame) && !mutant("scan ring: an entry whose page stays is dropped") {
                self.ring.push(entry);
            }
            flow?;
            if hand_overs == 0 {
                break;
            }
        }
        ControlFlow::Continue(())
    }

    /// Moves a page from the ring to the policy, unless its frame is latched.
    fn hand_over(&self, slot: Slot<'_>, entry: RingEntry) {
        if let Some(_latched) = ExclusiveGuard::try_latch(slot)
            && entry.holds(slot.frame())
        {
            slot.frame().leave_ring();
            self.policy.on_load(slot.memory().view(), entry.no, entry.pid);
        }
    }
}
