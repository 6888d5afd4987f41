//! Pages that commits have taken away and that older snapshots may still read, such as those of dropped tables. Their owner frees them
//! when [`TxnManager::passed`](crate::TxnManager::passed) has reached the commit; here they count for what a snapshot takes.

use foreshore_base::Csn;
use foreshore_sync::{LockRank, Mutex};

/// How much each commit has taken away that is kept.
#[derive(Debug)]
pub(crate) struct KeptPages(Mutex<Vec<(Csn, u64)>>);

impl Default for KeptPages {
    fn default() -> Self {
        Self(Mutex::new(LockRank::Leaf, Vec::new()))
    }
}

impl KeptPages {
    /// Adds `bytes` that commit `by` took away.
    pub(crate) fn add(&self, by: Csn, bytes: u64) {
        self.0.lock().push((by, bytes));
    }

    /// Nothing that commits up to `passed` took away is kept any more.
    pub(crate) fn forget(&self, passed: Csn) {
        self.0.lock().retain(|&(by, _)| by > passed);
    }

    /// What is kept for snapshots from `from` on that none from `to` on needs.
    pub(crate) fn bytes_between(&self, from: Csn, to: Csn) -> u64 {
        self.0.lock().iter().filter(|&&(by, _)| from < by && by <= to).map(|&(_, bytes)| bytes).sum()
    }
}
