//! Coming back to a page without a search.

use crate::Pool;
use crate::frame::FrameNo;
use crate::guard::ExclusiveGuard;

/// Where a page was when its latch was released. As long as it is there and no thread has changed it, [`Pool::exclusive_at`] returns
/// to it.
///
/// A frame changes hands under its exclusive latch, which raises the version: a position says the bytes of one page, not of a place.
#[derive(Clone, Copy, Debug)]
pub struct PagePosition {
    no: FrameNo,
    version: u64,
}

impl ExclusiveGuard<'_> {
    /// Returns where the page will be when this guard is dropped, if it does not change the page any more.
    #[must_use]
    pub fn position(&self) -> PagePosition {
        PagePosition { no: self.slot.no(), version: self.slot.frame().latch.version_after(self.changed) }
    }
}

impl Pool {
    /// Latches the page at `position` exclusively, if it has not changed since and no latch is in the way. Waits for nothing.
    #[must_use]
    pub fn exclusive_at(&self, position: PagePosition) -> Option<ExclusiveGuard<'_>> {
        let slot = self.core.slot(position.no);
        slot.frame().latch.try_upgrade(position.version).then(|| ExclusiveGuard::adopt(slot, false))
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use crate::page::PageMut;
    use crate::pool::tests::empty_pool;
    use foreshore_base::PageId;

    #[test]
    fn a_page_that_has_changed_or_gone_is_not_returned_to() {
        let pool = empty_pool(64);
        let mut guard = pool.create(PageId(1)).unwrap();
        guard.mark_dirty();
        let position = guard.position();
        drop(guard);
        let again = pool.exclusive_at(position).expect("as it was left");
        assert_eq!(again.pid(), PageId(1));
        assert!(pool.exclusive_at(position).is_none(), "it is latched");
        drop(again);
        let mut again = pool.exclusive_at(position).expect("the latch alone is no change");
        again.write(100, &[1]);
        drop(again);
        assert!(pool.exclusive_at(position).is_none(), "it has changed");
    }
}
