//! The interface of replacement policies.

use crate::frame::{Frame, FrameNo, MAX_USES};
use foreshore_base::PageId;
use std::fmt;
use std::io;
use std::ops::ControlFlow;

/// Makes a replacement policy for a pool.
pub trait MakeReplacementPolicy: Send + Sync + fmt::Debug {
    /// Returns a policy for a pool of `frames` frames, all of them free.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn make(&self, frames: usize) -> io::Result<Box<dyn ReplacementPolicy>>;
}

/// A replacement policy. It only names frames; the pool decides whether a page may go (no pin, no latch, clean).
///
/// `on_load` and `on_evict` are called under the exclusive latch of the frame, and alternate for each frame. `on_use`
/// may be late: the frame may hold another page by then.
pub trait ReplacementPolicy: Send + Sync + fmt::Debug {
    /// Returns up to how many uses the pool itself counts in the word of each frame, at most [`MAX_USES`]. If `None`,
    /// it calls [`on_use`](Self::on_use) for each use instead.
    fn use_cap(&self) -> Option<u8> {
        None
    }

    /// Notes a use of the page in the frame. Never called if there is a [`use_cap`](Self::use_cap).
    fn on_use(&self, _frames: Frames<'_>, _no: FrameNo) {}

    /// Notes that page `pid` was loaded into the frame.
    fn on_load(&self, frames: Frames<'_>, no: FrameNo, pid: PageId);

    /// Notes that page `pid` is evicted from the frame.
    fn on_evict(&self, _frames: Frames<'_>, _no: FrameNo, _pid: PageId) {}

    /// Passes frames to `consider`, the best victim first, until it breaks or there are no more.
    ///
    /// Ends after a bounded number of steps, holds no lock while `consider` runs, and may run in several threads at
    /// once.
    fn sweep(&self, frames: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()>;
}

/// The frames of a pool, as a policy sees them. An answer may be stale at once, unless the policy is called under the
/// latch of the frame.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [Frame]);

impl<'a> Frames<'a> {
    pub(crate) fn new(frames: &'a [Frame]) -> Self {
        Self(frames)
    }

    pub(super) fn frame(self, no: FrameNo) -> &'a Frame {
        &self.0[no as usize]
    }

    /// Returns the number of frames. The frames are numbered from 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a pool has frames")]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Returns the page in a frame, [`PageId::ZERO`] if it is free.
    #[must_use]
    pub fn page(self, no: FrameNo) -> PageId {
        self.frame(no).pid()
    }

    /// Returns whether a thread has the page pinned.
    #[must_use]
    pub fn is_pinned(self, no: FrameNo) -> bool {
        self.frame(no).is_pinned()
    }

    /// Returns whether the page was loaded for a scan, so that the policy does not know it.
    #[must_use]
    pub fn is_in_scan_ring(self, no: FrameNo) -> bool {
        self.frame(no).is_in_ring()
    }

    /// Returns the uses counted, less those taken away.
    #[must_use]
    pub fn uses(self, no: FrameNo) -> u8 {
        self.frame(no).uses()
    }

    /// Sets the uses counted.
    ///
    /// # Panics
    /// If there are more than [`MAX_USES`].
    pub fn set_uses(self, no: FrameNo, uses: u8) {
        assert!(uses <= MAX_USES, "{uses} uses of frame {no}");
        self.frame(no).set_policy_bits(uses, false);
    }

    /// Takes one use away. Returns true if the page is spared: it had a use left, or was used at this moment.
    #[must_use]
    pub fn take_use(self, no: FrameNo) -> bool {
        self.frame(no).take_use()
    }
}
