//! Options and progress of a compaction.

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
    /// steps for the rest. The default is 100: no pauses.
    ///
    /// ```
    /// use foreshore::CompactOptions;
    ///
    /// assert_eq!(format!("{:?}", CompactOptions::new().share(250)), format!("{:?}", CompactOptions::new()));
    /// ```
    #[must_use]
    pub const fn share(mut self, percent: u8) -> Self {
        self.share = match percent {
            0 => 1,
            1..=100 => percent,
            _ => 100,
        };
        self
    }

    pub(super) const fn percent(self) -> u8 {
        self.share
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
    /// Visits of tables that were given up, because another transaction kept the table locked.
    pub skipped: u64,
    /// Bytes by which the data file is shorter than when the compaction began.
    pub truncated: u64,
    /// Bytes of log files that were removed. They held no log, and were kept for later log.
    pub log_removed: u64,
    /// Whether the compaction has come to its end, and the file has no free end that it would truncate.
    pub is_complete: bool,
}
