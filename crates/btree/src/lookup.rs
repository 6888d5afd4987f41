//! Reading one row.

use crate::node::NO_WRITER;
use crate::tree::{Structure, Tree};
use foreshore_base::Result;
use foreshore_buffer::SharedGuard;
use foreshore_lock::TableMode;
use foreshore_txn::{RowHolder, Txn};

impl Tree {
    /// Copies the value of `key` to `out` and returns whether there is one. The answer holds to the end of the
    /// transaction: the row is locked shared, and for the sake of a row that does not exist the table is.
    ///
    /// # Errors
    /// `KeyTooLarge`, `Deadlock`, `LockTimeout`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn get(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Self::check_key(key)?;
        txn.lock_table(self.table, TableMode::IntentShared)?;
        txn.share_row(self.table, key)?;
        let mut whole_table = false;
        loop {
            // From here on a writer finds this reader's lock, or this reader finds the writer in the header.
            let leaf: SharedGuard<'_> = self.find(&mut Structure::of(txn), key, 0, 0)?;
            let damage = |why| self.corrupted(leaf.pid(), why);
            let node = self.parse(leaf.pid(), &leaf)?;
            if let Ok(at) = node.search(key).map_err(damage)? {
                let row = node.row(at).map_err(damage)?;
                match txn.row_holder(row.header.xid) {
                    RowHolder::Nobody | RowHolder::Me => {}
                    RowHolder::Other(holder) => {
                        drop(leaf);
                        txn.wait_row(self.table, key, holder)?;
                        continue;
                    }
                    RowHolder::Unknown => return Err(damage(NO_WRITER)),
                }
                if !row.header.is_ghost() {
                    out.clear();
                    out.extend_from_slice(row.value);
                    return Ok(true);
                }
            }
            drop(leaf);
            if whole_table {
                return Ok(false);
            }
            txn.lock_table(self.table, TableMode::Shared)?;
            whole_table = true;
        }
    }
}
