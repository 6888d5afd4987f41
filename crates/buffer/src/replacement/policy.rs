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
/// `on_load` and `on_evict` are called with the exclusive latch of the frame held, in turns for each frame; `on_use`
/// may come late, when the frame holds another page.
pub trait ReplacementPolicy: Send + Sync + fmt::Debug {
    /// The number of uses up to which the pool counts them in the word of each frame, at most [`MAX_USES`]. `None` if
    /// the policy wants a call of [`on_use`](Self::on_use) for each.
    fn use_cap(&self) -> Option<u8> {
        None
    }

    /// The page in the frame is used. Never called if there is a [`use_cap`](Self::use_cap).
    fn on_use(&self, _frames: Frames<'_>, _no: FrameNo) {}

    /// Page `pid` has come into the frame.
    fn on_load(&self, frames: Frames<'_>, no: FrameNo, pid: PageId);

    /// Page `pid` leaves the frame.
    fn on_evict(&self, _frames: Frames<'_>, _no: FrameNo, _pid: PageId) {}

    /// Hands frames to `consider`, the one to give up first, until it breaks or there is no other to name.
    ///
    /// Ends after a bounded number of steps, holds no lock while `consider` runs, and may run in several threads at
    /// once.
    fn sweep(&self, frames: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()>;
}

/// The frames of a pool, as a policy sees them. What it finds may have changed a moment later, unless it is called with
/// the latch of the frame held.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a>(&'a [Frame]);

impl<'a> Frames<'a> {
    pub(crate) fn new(frames: &'a [Frame]) -> Self {
        Self(frames)
    }

    pub(super) fn frame(self, no: FrameNo) -> &'a Frame {
        &self.0[no as usize]
    }

    /// Returns how many there are. A policy names them by the numbers below this.
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

    /// Returns whether the page has come in for a scan, so that the policy does not know it.
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
        self.frame(no).place(uses, false);
    }

    /// Takes one use away. Returns true if the page is to be spared: it had a use left, or was used at this moment.
    #[must_use]
    pub fn take_use(self, no: FrameNo) -> bool {
        self.frame(no).take_use()
    }
}
