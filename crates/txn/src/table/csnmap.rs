//! The status window as a table, to be set beside the others.

use super::StatusTable;
use crate::readers::Readers;
use crate::status::{Status, StatusWindow};
use foreshore_base::{Csn, Result, Xid};

/// Numbers of commits are those of their transactions, and all are durable.
pub struct CsnMap {
    window: StatusWindow,
    readers: Readers,
}

impl CsnMap {
    /// A table that begins at `first` and tells `capacity` xids apart, a power of two.
    ///
    /// # Errors
    /// `Io` when the window cannot be mapped.
    pub fn new(first: Xid, capacity: usize) -> Result<Self> {
        Ok(Self { window: StatusWindow::new(capacity, 0, first)?, readers: Readers::new(1) })
    }
}

impl std::fmt::Debug for CsnMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CsnMap").field("capacity", &self.window.capacity()).finish_non_exhaustive()
    }
}

impl StatusTable for CsnMap {
    fn prepare(&self, xid: Xid) -> Result<()> {
        let half = self.window.capacity() as u64 / 2;
        if xid.0 + half >= self.window.cleared().0 {
            self.window.slide(xid, Csn(xid.0), half, &self.readers);
        }
        Ok(())
    }

    fn set(&self, xid: Xid, committed: bool) -> Result<()> {
        self.window.enter(xid);
        if committed {
            self.window.begin_commit(xid);
            self.window.commit(xid, Csn(xid.0), |least| least);
        } else {
            self.window.abort(xid);
        }
        Ok(())
    }

    #[inline]
    fn has_committed(&self, xid: Xid) -> Result<bool> {
        Ok(matches!(self.window.get(xid), Status::Committed(_) | Status::Frozen))
    }
}
