//! Options and progress of a compaction.

use crate::{Error, Result};

/// Options of [`Db::compact_with`](crate::Db::compact_with).
#[derive(Clone, Copy, Debug)]
pub struct CompactOptions {
    share: u8,
}

impl CompactOptions {
    /// Returns the default options.
    ///
    /// ```
    /// use foreshore::CompactOptions;
    ///
    /// let options = CompactOptions::new().share(10);
    /// assert!(format!("{options:?}").contains("10"));
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { share: 100 }
    }

    /// Sets the share of its thread's time that the compaction uses, in percent from 1 to 100. It pauses between two
    /// steps for the rest. The default is 100: no pauses. Any other number is refused by
    /// [`Db::compact_with`](crate::Db::compact_with).
    ///
    /// ```
    /// use foreshore::{CompactOptions, Db, Error};
    /// use std::ops::ControlFlow;
    ///
    /// let db = Db::in_memory()?;
    /// let refused = db.compact_with(CompactOptions::new().share(250), |_| ControlFlow::Continue(()));
    /// assert!(matches!(refused, Err(Error::InvalidOption { name: "share", .. })));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn share(self, percent: u8) -> Self {
        Self { share: percent }
    }

    /// Returns the share in percent, if it is in its range.
    pub(super) fn percent(self) -> Result<u32> {
        match self.share {
            percent @ 1..=100 => Ok(percent.into()),
            percent => {
                let (value, expected) = (percent.to_string(), "1 to 100 percent".to_owned());
                Err(Error::InvalidOption { name: "share", value, expected })
            }
        }
    }
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Progress and result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Pages that were visited.
    pub visited: u64,
    /// Pages that are to be visited, about: those in use when the compaction began, and those to be moved.
    pub to_visit: u64,
    /// Pages that became free because their rows fit into others.
    pub freed: u64,
    /// Pages that were moved.
    pub moved: u64,
    /// Pages that could not be moved, because others changed them at that moment or because they are damaged.
    pub stuck: u64,
    /// Visits of tables that were given up, because other transactions were in the way: one kept the table locked, for
    /// instance.
    pub skipped: u64,
    /// Bytes by which the data file is shorter than when the compaction began.
    pub truncated: u64,
    /// Bytes of log files that were removed. They held no log, and were kept for later log.
    pub log_removed: u64,
    /// Whether the compaction has come to its end, and the file has no free end that it would truncate.
    pub is_complete: bool,
}
