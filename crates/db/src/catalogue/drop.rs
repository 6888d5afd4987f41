//! The drop of a table or an index.

use super::{Catalogue, decode, whole_snapshot};
use crate::format::{TableRow, dropped_key, index_key};
use crate::live::Live;
use crate::{Error, Result};
use foreshore_base::TableId;
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;

impl Catalogue {
    /// Drops the table `name`, if there is one, with its indexes. The catalogue forgets the name and keeps the table,
    /// as a dropped one, until its last page is free.
    pub(crate) fn drop(&self, live: &mut Live, name: &str) -> Result<bool> {
        // No transaction creates the table or learns of it meanwhile.
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        let is_there = self.tree.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)?;
        let row = if is_there { Some(decode(&self.data, &live.scratch.found)?) } else { None };
        self.check_seen(live, name, row.as_ref().map(|row| row.table))?;
        let Some(row) = row else { return Ok(false) };
        self.end(live, name, row)?;
        for (index, row) in self.index_rows(&mut live.txn, name)? {
            self.end(live, &index_key(name, &index), row)?;
        }
        Ok(true)
    }

    /// Drops a table or an index, under the exclusive lock of the catalogue.
    pub(super) fn end(&self, live: &mut Live, name: &str, row: TableRow) -> Result<()> {
        // Waits for the end of each transaction that has used the table. One that has only opened it learns of the drop
        // when it locks it.
        if !mutant("sabotage: a drop does not wait for writers") {
            live.txn.lock_table(row.table, TableMode::Exclusive)?;
        }
        let tree = match live.created(name) {
            Some(info) => info.tree.clone(),
            None => {
                // Published here, so that its creator can no longer do that.
                self.learn(name, row.clone(), live.txn.observed())
            }
        };
        let row = TableRow { is_dropped: true, ..row };
        live.txn.freeing(|txn| {
            self.tree.remove(txn, name.as_bytes())?;
            self.tree.insert_dropped(txn, &dropped_key(row.table), &row.encode())
        })?;
        live.scratch.dropped.push(tree);
        Ok(())
    }

    /// Refuses to drop or rename a table whose name means another table to the transaction's snapshot. That one was
    /// dropped or renamed since. `newest` is the table that has the name now, if any.
    pub(super) fn check_seen(&self, live: &mut Live, name: &str, newest: Option<TableId>) -> Result<()> {
        if live.created(name).is_some() {
            return Ok(());
        }
        let Some(snapshot) = whole_snapshot(&mut live.txn)? else { return Ok(()) };
        let seen = self.seen_by(live, &snapshot, name)?.filter(|info| !live.has_ended(info));
        match seen.map(|info| info.tree.table()).filter(|&seen| newest != Some(seen)) {
            Some(seen) => Err(Error::TableDropped { table: seen.into() }),
            None => Ok(()),
        }
    }
}
