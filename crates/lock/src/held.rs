//! The locks of a transaction as a list, and taking them again by it: for those that outlive a restart.

use crate::interval::Interval;
use crate::manager::LockManager;
use crate::mode::TableMode;
use crate::owner::Owner;
use crate::target::Target;
use foreshore_base::TableId;

/// Keys of a table that are locked shared. A point lock is the interval of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldRange {
    /// The table.
    pub table: TableId,
    /// The keys.
    pub keys: Interval,
}

impl Owner {
    /// Tables that it has locked.
    #[must_use]
    pub fn held_tables(&self) -> &[(TableId, TableMode)] {
        &self.tables
    }

    /// Keys that it has locked shared.
    #[must_use]
    pub fn held_ranges(&self) -> Vec<HeldRange> {
        let point = |(table, key)| HeldRange { table, keys: Interval::of_key(key) };
        let mut held: Vec<HeldRange> = self.shares.iter().map(point).collect();
        for &(table, _) in &self.ranges {
            let ranges = self.manager.ranges_of(self.index, table);
            held.extend(ranges.iter().map(|keys| HeldRange { table, keys: keys.clone() }));
        }
        held
    }
}

impl LockManager {
    /// Takes keys that were held when the manager before ended. Before any other owner asks for a lock, so there is
    /// nothing to wait for. Where there is less memory for locks than there was then, the locks are coarser.
    pub fn take_ranges(&self, owner: &mut Owner, held: &[HeldRange]) {
        for HeldRange { table, keys } in held {
            match keys.as_key() {
                Some(key) => {
                    let target = Target::row(*table, key);
                    let row = self.hash(target);
                    if !owner.shares.has(row) {
                        self.enter(owner, self.entries(row), row, target);
                    }
                }
                None => {
                    self.widen_ranges(owner, *table, keys.clone());
                    self.keep_share(owner);
                }
            }
        }
    }
}
