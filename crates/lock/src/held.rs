//! The locks of a transaction as a list, and taking them again by it: for those that outlive a restart.
//!
//! Keys are listed by hash. So the manager that takes them again has the seed of the one that held them, and two keys with
//! one hash are locked as one there, too.

use crate::hash::RowHash;
use crate::manager::LockManager;
use crate::mode::TableMode;
use crate::owner::Owner;
use crate::target::Part;
use foreshore_base::{Result, TableId};

/// A key that is locked shared: its hash, and what of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldKey {
    /// Of the table and the key, or the end of the table.
    pub hash: u64,
    /// What of it.
    pub part: Part,
}

impl Owner {
    /// Tables that it has locked.
    #[must_use]
    pub fn held_tables(&self) -> &[(TableId, TableMode)] {
        &self.tables
    }

    /// Keys and gaps that it has shared.
    #[must_use]
    pub fn held_keys(&self) -> Vec<HeldKey> {
        let part_of =
            |row: RowHash| self.manager.entries(row).get(&row.0).and_then(|entry| entry.sharers.part_of(self.index));
        let held = |&row: &RowHash| part_of(row).map(|part| HeldKey { hash: row.0, part });
        self.shares.iter().filter_map(held).collect()
    }
}

impl LockManager {
    /// Takes keys that were held when the manager before ended. Before anybody else asks for a lock, so there is nobody to wait for.
    ///
    /// # Errors
    /// [`LockLimit`](foreshore_base::Error::LockLimit), for table zero: whose key it is is not known.
    pub fn take_keys(&self, owner: &mut Owner, keys: &[HeldKey]) -> Result<()> {
        for &HeldKey { hash, part } in keys {
            if owner.shares.len() == owner.room {
                owner.room = self.room.more(owner.room, TableId::ZERO)?;
            }
            let row = RowHash(hash);
            self.enter(owner, self.entries(row), row, part);
        }
        Ok(())
    }
}
