//! Pages that commits have removed and older snapshots may still read, such as those of dropped tables.
//!
//! Their owner frees them when [`Visibility::passed`](crate::Visibility::passed) has reached the commit. Here they only
//! count for the cost of a snapshot.

use foreshore_base::{Csn, TableId};
use foreshore_sync::{LockRank, Mutex};
use std::collections::HashMap;

/// The commit that removed pages of each table, and their bytes.
#[derive(Debug)]
pub(crate) struct KeptPages(Mutex<HashMap<TableId, (Csn, u64)>>);

impl Default for KeptPages {
    fn default() -> Self {
        Self(Mutex::new(LockRank::Leaf, HashMap::new()))
    }
}

impl KeptPages {
    /// Records `bytes` of `table` that commit `by` removed. A second call for the same table replaces the first.
    pub(crate) fn note(&self, table: TableId, by: Csn, bytes: u64) {
        self.0.lock().insert(table, (by, bytes));
    }

    /// Removes the records of commits up to `passed`.
    pub(crate) fn forget(&self, passed: Csn) {
        self.0.lock().retain(|_, &mut (by, _)| by > passed);
    }

    /// Returns the bytes that are kept for snapshots from `from` on and that no snapshot from `to` on needs.
    pub(crate) fn bytes_between(&self, from: Csn, to: Csn) -> u64 {
        self.0.lock().values().filter(|&&(by, _)| from < by && by <= to).map(|&(_, bytes)| bytes).sum()
    }
}
