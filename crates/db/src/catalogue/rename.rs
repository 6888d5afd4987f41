//! The rename of a table with its indexes.
//!
//! The row of the table moves to another key of the catalogue, and its pages stay. To transactions the old name ends
//! as by a drop, and the new one begins as by a creation. The [`Tree`] found by the old name is retired, and the new
//! name has another one with the same root. So what holds for drops holds for names: writers wait, and snapshots keep
//! what they see.

use super::{Catalogue, decode};
use crate::format::{TableRow, index_key};
use crate::live::Live;
use crate::tables::TableInfo;
use crate::{Error, Result};
use foreshore_base::Csn;
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use std::sync::Arc;

impl Catalogue {
    /// Renames the table `name` with its indexes to `new`, which must be free. Returns whether there was one.
    pub(crate) fn rename(&self, live: &mut Live, name: &str, new: &str) -> Result<bool> {
        // No transaction creates a table or learns of one meanwhile.
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        let is_there = self.tree.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)?;
        let row = if is_there { Some(decode(&self.data, &live.scratch.found)?) } else { None };
        self.check_seen(live, name, row.as_ref().map(|row| row.table))?;
        self.check_tables()?;
        let Some(row) = row else { return Ok(false) };
        if name == new {
            return Ok(true);
        }
        if self.tree.get_newest(&mut live.txn, new.as_bytes(), &mut live.scratch.found)? {
            return Err(Error::TableExists { name: new.to_owned() });
        }
        let indexes = self.index_rows(&mut live.txn, name)?;
        self.end_handles(live, name, &row, indexes.len())?;
        self.give_name(live, name, new, row)?;
        for (index, row) in indexes {
            self.give_name(live, &index_key(name, &index), &index_key(new, &index), row)?;
        }
        Ok(true)
    }

    /// Locks a table that is to be renamed. A write of this transaction through a [`Table`](crate::Table) that it has
    /// opened before is refused if the table has indexes, which that one finds by the old name.
    fn end_handles(&self, live: &mut Live, name: &str, row: &TableRow, indexes: usize) -> Result<()> {
        // Waits for the end of each transaction that has used the table, as a drop does.
        live.txn.lock_table(row.table, TableMode::Exclusive)?;
        let state = match live.created(name) {
            Some(info) => Arc::clone(&info.indexes),
            None => Arc::clone(&self.known(live, name, row).indexes),
        };
        if indexes > 0 {
            state.change();
            live.scratch.indexes.changed.push(state);
        } else if !live.scratch.indexes.changed.iter().any(|own| Arc::ptr_eq(own, &state)) {
            state.settle(state.word(), 0);
        }
        Ok(())
    }

    /// Gives a table or an index the free name `new`. Both names share the state of its indexes: an index that is built
    /// under the new one is noticed by a [`Table`](crate::Table) that was opened by the old one.
    fn give_name(&self, live: &mut Live, name: &str, new: &str, row: TableRow) -> Result<()> {
        live.txn.lock_table(row.table, TableMode::Exclusive)?;
        let (old, indexes): (Tree, _) = match live.created(name) {
            Some(info) => (info.tree.clone(), Arc::clone(&info.indexes)),
            None => {
                // Published here, so that its creator can no longer do that.
                let info = self.known(live, name, &row);
                (info.tree.clone(), Arc::clone(&info.indexes))
            }
        };
        let ended = row.naming;
        let row = TableRow { naming: self.draw(), ..row };
        self.tree.remove(&mut live.txn, name.as_bytes())?;
        self.tree.insert_new(&mut live.txn, new.as_bytes(), &row.encode())?;
        live.scratch.renamed.push((ended, old));
        let mut renamed = self.info(new, row, Csn::ZERO);
        renamed.indexes = indexes;
        live.scratch.created.push(renamed);
        Ok(())
    }

    /// Returns the table of a committed row, which is made known.
    fn known(&self, live: &Live, name: &str, row: &TableRow) -> &TableInfo {
        self.tables.add(self.info(name, row.clone(), live.txn.observed()))
    }
}
