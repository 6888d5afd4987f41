//! What a history has made the engine do.

/// What a history has made the engine do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks {
    /// Operations of the disk.
    pub operations: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Batches through the doublewrite file.
    pub doublewrites: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Log segments begun or used again.
    pub segments: u64,
    /// Leaves split.
    pub leaf_splits: u64,
    /// Roots split.
    pub root_splits: u64,
    /// Leaves that ghosts were taken out of.
    pub purges: u64,
    /// Nodes merged.
    pub merges: u64,
    /// Transactions rolled back.
    pub aborts: u64,
    /// Times that a transaction has gone back to a savepoint, and had something to take back.
    pub went_back: u64,
    /// Chunks of undo read back from their file.
    pub undo_fetches: u64,
    /// Large values written.
    pub chains_built: u64,
    /// Large values whose pages were freed.
    pub chains_freed: u64,
    /// Tables created and kept.
    pub tables: usize,
}

impl Marks {
    /// Asserts that everything a crash can interrupt has happened.
    ///
    /// # Panics
    /// If something has not.
    pub fn assert_complete(&self) {
        let all = self.evictions > 0
            && self.doublewrites > 0
            && self.checkpoints > 1
            && self.segments > 1
            && self.leaf_splits > 1
            && self.root_splits > 0
            && self.purges > 0
            && self.merges > 0
            && self.aborts > 1
            && self.went_back > 1
            && self.chains_built > 1
            && self.chains_freed > 1
            && self.tables > 1;
        assert!(all, "the script leaves something out: {self:?}");
    }
}
