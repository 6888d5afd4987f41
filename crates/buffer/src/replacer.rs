//! Replacement as a pool does it: the policy for the pages that are used, and the scan ring beside it.

use crate::frame::{self, FrameNo};
use crate::guard::{ExclusiveGuard, LatchGuard};
use crate::memory::{Memory, Slot};
use crate::replacement::{MAX_USES, ReplacementPolicy};
use crate::scan_ring::{AccessPattern, RingEntry, ScanRing};
use foreshore_base::PageId;
use foreshore_sync::model::mutant;
use std::io;
use std::ops::ControlFlow;

/// Victims of the policy that a sweep spares because they were used. A bound, so that a sweep names one soon.
const SPARED: usize = 16;
/// Pages that a sweep gives over from the ring to the policy before it asks the policy for victims.
pub(crate) const HAND_OVERS: usize = 16;

/// Considers a frame to be emptied, and says whether the sweep goes on.
pub(crate) type Consider<'a> = &'a mut dyn FnMut(FrameNo) -> ControlFlow<()>;

#[derive(Debug)]
pub(crate) struct Replacer {
    policy: Box<dyn ReplacementPolicy>,
    /// [`ReplacementPolicy::use_cap`] of the policy.
    use_cap: Option<u8>,
    /// The use bits of a frame from which on one more use makes no difference to the policy.
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

    /// Tells the policy of a fix, if that counts as a use and makes a difference.
    #[inline]
    pub(crate) fn note_use(&self, slot: Slot<'_>, pattern: AccessPattern) {
        if pattern == AccessPattern::Random && slot.frame().use_bits() < self.enough {
            self.tell_use(slot);
        }
    }

    // Cold where it matters: pages in use have enough.
    #[cold]
    fn tell_use(&self, slot: Slot<'_>) {
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

    /// Page `pid` has come into the frame, whose exclusive latch is held.
    pub(crate) fn arrive(&self, slot: Slot<'_>, pid: PageId, pattern: AccessPattern) {
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

    /// Page `pid` leaves the frame, whose exclusive latch is held.
    pub(crate) fn leave(&self, slot: Slot<'_>, pid: PageId) {
        if slot.frame().is_in_ring() {
            slot.frame().leave_ring();
        } else {
            self.policy.on_evict(slot.memory().view(), slot.no(), pid);
        }
    }

    /// Hands frames to `consider`, the best victim first, until it breaks or there are no more.
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

    /// Hands the frames of the ring to `consider`, the oldest first, but for the youngest `keep`, until it has given
    /// `hand_overs` pages to the policy.
    fn sweep_ring(
        &self,
        memory: &Memory,
        keep: usize,
        mut hand_overs: usize,
        consider: Consider<'_>,
    ) -> ControlFlow<()> {
        // Each once: those that stay stand behind the others then.
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
                    self.ring.leave(entry);
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

    /// Gives a page over from the ring to the policy, unless its frame is latched.
    fn hand_over(&self, slot: Slot<'_>, entry: RingEntry) {
        if let Some(_latched) = ExclusiveGuard::try_latch(slot)
            && entry.holds(slot.frame())
        {
            slot.frame().leave_ring();
            self.policy.on_load(slot.memory().view(), entry.no, entry.pid);
        }
    }
}
