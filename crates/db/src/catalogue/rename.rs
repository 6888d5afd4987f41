//! The rename of a table.
//!
//! The catalogue row moves to another key, and gets a new number for its name. The table keeps its id, its tree and its
//! indexes, so whatever has it open is not concerned. In memory the table is known under both names: the end of the old
//! one is that of the commit, as for a drop ([`TableInfo::gone_at`](crate::tables::TableInfo::gone_at)).

use super::{Catalogue, decode, no_table, whole_snapshot};
use crate::format::{TableRow, index_key};
use crate::live::{LeftName, Live};
use crate::tables::TableInfo;
use crate::{Error, Result};
use foreshore_base::{Csn, TableId};
use foreshore_lock::TableMode;
use std::sync::Arc;

impl Catalogue {
    /// Gives the table `old` the name `new`, and its indexes with it.
    pub(crate) fn rename(&self, live: &mut Live, old: &str, new: &str) -> Result<()> {
        // No transaction creates a table of either name, or learns of one, meanwhile.
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        self.check_tables()?;
        if !self.tree.get_newest(&mut live.txn, old.as_bytes(), &mut live.scratch.found)? {
            self.check_seen(live, old, None)?;
            return Err(no_table(old));
        }
        let row = decode(&self.data, &live.scratch.found)?;
        self.check_seen(live, old, Some(row.table))?;
        if self.tree.get_newest(&mut live.txn, new.as_bytes(), &mut live.scratch.found)? {
            return Err(Error::TableExists { name: new.to_owned() });
        }
        let indexes = self.index_rows(&mut live.txn, old)?;
        self.move_name(live, old, new, row)?;
        for (index, row) in indexes {
            self.move_name(live, &index_key(old, &index), &index_key(new, &index), row)?;
        }
        Ok(())
    }

    /// Moves the catalogue row of a table or an index from one name to another.
    fn move_name(&self, live: &mut Live, old: &str, new: &str, row: TableRow) -> Result<()> {
        // As for a drop. A transaction that has found the table by its name and locked it still does so.
        live.txn.lock_table(row.table, TableMode::Exclusive)?;
        let number = self.draw();
        let (info, left) = match live.created(old) {
            Some(info) => moved(info, new, number),
            // Published here, so that its creator can no longer do that.
            None => moved(self.tables.add(self.info(old, row.clone(), live.txn.observed())), new, number),
        };
        let row = TableRow { named: number, ..row };
        self.tree.remove(&mut live.txn, old.as_bytes())?;
        self.tree.insert_new(&mut live.txn, new.as_bytes(), &row.encode())?;
        live.scratch.left.push(left);
        live.scratch.created.push(info);
        Ok(())
    }

    /// Refuses a table that was given its name since the snapshot of the transaction: under that name the snapshot sees
    /// none, but it may see rows of the table.
    pub(super) fn check_name(&self, live: &mut Live, name: &str, info: &TableInfo) -> Result<()> {
        if !info.is_renamed() {
            return Ok(());
        }
        let Some(snapshot) = whole_snapshot(&mut live.txn)? else { return Ok(()) };
        if self.tree.get_at(&mut live.txn, &snapshot, name.as_bytes(), &mut live.scratch.found)? {
            return Ok(());
        }
        Err(Error::Conflict { table: self.table().into(), key: name.as_bytes().into() })
    }

    /// Returns the name that a table loses when a transaction of the previous run, which has given it another one,
    /// commits.
    pub(crate) fn left_by(&self, row: &TableRow) -> Option<LeftName> {
        let known = if row.named == row.table { None } else { self.by_id(row.table) };
        known.map(|known| LeftName { number: known.named, end: Arc::clone(&known.name_end) })
    }
}

/// Returns a table under another name, and the name that it loses.
fn moved(info: &TableInfo, new: &str, number: TableId) -> (TableInfo, LeftName) {
    (info.renamed(new, number, Csn::ZERO), LeftName { number: info.named, end: Arc::clone(&info.name_end) })
}
