//! Positions of pages in the pool.

use crate::frame::FrameNo;

/// The frame and the version of a page when its latch was released, or when it was read without one. While the
/// page is unchanged, [`Pool::exclusive_at`](crate::Pool::exclusive_at) latches it again, and
/// [`Pool::optimistic_at`](crate::Pool::optimistic_at) reads it again, without a search.
///
/// A frame gets another page under its exclusive latch, which raises the version. So a position means one state of one
/// page, not of a frame.
#[derive(Clone, Copy, Debug)]
pub struct PagePosition {
    pub(crate) no: FrameNo,
    pub(crate) version: u64,
}

impl PagePosition {
    /// Returns whether both positions are in one frame, so that they mostly are of one page.
    #[inline]
    #[must_use]
    pub fn shares_frame(self, other: Self) -> bool {
        self.no == other.no
    }
}
