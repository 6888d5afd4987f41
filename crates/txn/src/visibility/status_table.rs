//! Tables of transaction status, consulted beside the status window.
//!
//! The engine needs none. Its status window has the status of each recent xid, and the transactions of all others have
//! ended. PostgreSQL instead asks a table whether a transaction has committed, and orders transactions by another
//! structure. A plugged-in table serves to measure that cost. It never changes what is visible.

use super::readers::Readers;
use super::status::{Status, StatusWindow};
use foreshore_base::{Csn, Result, Xid};
use foreshore_io::Fs;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// A table that tells whether an ended transaction has committed.
pub trait StatusTable: Send + Sync + fmt::Debug {
    /// Prepares the table for xids some way ahead of `xid`, so that no other transaction has to wait for that.
    ///
    /// # Errors
    /// Errors of the disk.
    fn prepare(&self, xid: Xid) -> Result<()>;

    /// Records how the transaction with `xid` ends. The transaction calls it once, before others learn that it has
    /// ended.
    ///
    /// # Errors
    /// Errors of the disk. In that case the end is not recorded.
    fn set(&self, xid: Xid, committed: bool) -> Result<()>;

    /// Returns whether the transaction with `xid` has committed. For a transaction from before the table began, returns
    /// whether it has ended.
    ///
    /// # Errors
    /// Errors of the disk.
    fn has_committed(&self, xid: Xid) -> Result<bool>;
}

/// A constructor for the status table of a database that is being opened.
pub trait MakeStatusTable: Send + Sync + fmt::Debug {
    /// Returns an empty table for xids from `first` on. If the table needs a file, the file is made at `path`. It has
    /// no name any more when this returns.
    ///
    /// # Errors
    /// Errors of memory or disk.
    fn make(&self, first: Xid, fs: &dyn Fs, path: &Path) -> Result<Arc<dyn StatusTable>>;
}

/// The status window of the engine as a table, to compare its cost with others. Each xid serves as its transaction's
/// commit number, and all commits count as durable.
pub struct CsnMap {
    window: StatusWindow,
    readers: Readers,
}

impl CsnMap {
    /// Makes a table that begins at `first` and distinguishes `capacity` xids, a power of two.
    ///
    /// # Errors
    /// `Io` when the window cannot be mapped.
    pub fn new(first: Xid, capacity: usize) -> Result<Self> {
        Ok(Self { window: StatusWindow::new(capacity, 0, first)?, readers: Readers::new(1) })
    }
}

impl fmt::Debug for CsnMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
