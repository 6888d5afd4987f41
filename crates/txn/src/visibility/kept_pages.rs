//! Pages that commits have taken away and that older snapshots may still read, such as those of dropped tables. Their
//! owner frees them when [`Visibility::passed`](crate::Visibility::passed) has reached the commit; here they count for
//! what a snapshot costs.

use foreshore_base::{Csn, TableId};
use foreshore_sync::{LockRank, Mutex};
use std::collections::HashMap;

/// How much of each table is kept, and the commit that has taken it away.
#[derive(Debug)]
pub(crate) struct KeptPages(Mutex<HashMap<TableId, (Csn, u64)>>);

impl Default for KeptPages {
    fn default() -> Self {
        Self(Mutex::new(LockRank::Leaf, HashMap::new()))
    }
}

impl KeptPages {
    /// Notes `bytes` of `table` that commit `by` took away. To note them twice is to note them once.
    pub(crate) fn note(&self, table: TableId, by: Csn, bytes: u64) {
        self.0.lock().insert(table, (by, bytes));
    }

    /// Nothing that commits up to `passed` took away is kept any more.
    pub(crate) fn forget(&self, passed: Csn) {
        self.0.lock().retain(|_, &mut (by, _)| by > passed);
    }

    /// Returns what is kept for snapshots from `from` on that none from `to` on needs.
    pub(crate) fn bytes_between(&self, from: Csn, to: Csn) -> u64 {
        self.0.lock().values().filter(|&&(by, _)| from < by && by <= to).map(|&(_, bytes)| bytes).sum()
    }
}
