//! The clear of a whole table: a drop, and a creation of the same table with new roots.

use super::{Catalogue, decode};
use crate::Result;
use crate::admission::Admission;
use crate::format::{IndexRow, TableRow, index_key};
use crate::live::Live;
use foreshore_base::{Error as Storage, PageId, Place};
use foreshore_lock::TableMode;

impl Catalogue {
    /// Replaces the table `name` and its indexes by empty ones of the same definitions. Returns whether there was one.
    pub(crate) fn clear(&self, live: &mut Live, admission: &Admission, name: &str) -> Result<bool> {
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        if !self.tree.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)? {
            self.check_seen(live, name, None)?;
            return Ok(false);
        }
        let row = decode(&self.data, &live.scratch.found)?;
        self.check_seen(live, name, Some(row.table))?;
        self.check_tables()?;
        let indexes = self.index_rows(&mut live.txn, name)?;
        let table = self.draw();
        self.end(live, name, row.clone())?;
        self.sequences.follow(&mut live.txn, admission, row.table, table)?;
        self.create(live, name, TableRow { table, naming: table, root: PageId(0), ..row })?;
        for (index, row) in indexes {
            let name = index_key(name, &index);
            let of = row.index.ok_or_else(|| Storage::corrupted(&self.data, Place::File, "an index has no table"))?;
            let (own, index) = (self.draw(), Some(IndexRow { of: table, ..of }));
            self.end(live, &name, row.clone())?;
            self.create(live, &name, TableRow { table: own, naming: own, root: PageId(0), index, ..row })?;
        }
        if let Some(info) = live.created(name) {
            // Its indexes are counted by the first write.
            info.indexes.change();
        }
        Ok(true)
    }
}
