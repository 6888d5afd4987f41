//! Indexes in the catalogue: found, created and dropped with their tables.

use super::{Catalogue, TreeRef, decode, whole_snapshot};
use crate::format::{IndexRow, TableRow, TablesNote, index_key, split_index_key, write_index_key};
use crate::index_def::Definition;
use crate::index_state::IndexState;
use crate::live::Live;
use crate::tables::TableInfo;
use crate::{Error, Result};
use foreshore_base::{Error as Storage, Few, PageId, Place, TableId};
use foreshore_lock::{RowLock, TableMode};
use foreshore_txn::{Snapshot, SnapshotRef, Txn};
use std::mem;
use std::ops::Bound;
use std::sync::Arc;

/// An index that the definition of an open table declares.
pub(crate) struct Declared<'e> {
    pub(crate) def: &'static dyn Definition,
    pub(crate) tree: TreeRef<'e>,
    /// Whether the transaction has just created it, so that it has no entries.
    pub(crate) is_new: bool,
}

/// What opening a table does if the catalogue has no such index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Create,
    Refuse,
}

impl Catalogue {
    /// Returns the declared indexes of a table that the transaction has opened, if all of them are known without a
    /// lock.
    pub(crate) fn known_indexes(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        defs: impl Iterator<Item = &'static dyn Definition>,
    ) -> Option<Few<Declared<'_>>> {
        defs.map(|def| {
            let tree = by_key(live, base, def, |live, key| self.known_index(live, base, def, key))?;
            Some(Declared { def, tree, is_new: false })
        })
        .collect()
    }

    /// Returns the declared indexes of a table that the transaction has opened, under a lock of the catalogue.
    pub(crate) fn open_indexes(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        defs: impl Iterator<Item = &'static dyn Definition>,
        missing: Missing,
    ) -> Result<Few<Declared<'_>>> {
        self.check_tables()?;
        let mode = if missing == Missing::Create { TableMode::Exclusive } else { TableMode::Shared };
        live.txn.lock_table(self.tree.table(), mode)?;
        let rows = self.index_rows(&mut live.txn, base.name())?;
        defs.map(|def| {
            let stored = rows.iter().find(|(name, _)| name == def.name()).map(|(_, row)| row);
            self.open_index(live, base, def, stored, missing)
        })
        .collect()
    }

    /// Returns an index that is known without a lock, if it fits its definition.
    fn known_index(&self, live: &mut Live, base: &TreeRef<'_>, def: &dyn Definition, key: &str) -> Option<TreeRef<'_>> {
        if let Some(info) = live.created(key) {
            return is_fit(base, info, def).then(|| TreeRef::created(info));
        }
        let info = self.get(key).filter(|info| is_fit(base, info, def) && !live.has_ended(info))?;
        // Under the lock, an index that was created since the snapshot is a conflict.
        let sees = |snapshot: Option<SnapshotRef>| snapshot.is_none_or(|snapshot| info.created <= snapshot.csn());
        if !whole_snapshot(&mut live.txn).is_ok_and(sees) {
            return None;
        }
        live.txn.observe(info.created);
        Some(TreeRef::Known(info))
    }

    /// Returns an index under the lock of the catalogue. `stored` is its row, if there is one.
    fn open_index(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        def: &'static dyn Definition,
        stored: Option<&TableRow>,
        missing: Missing,
    ) -> Result<Declared<'_>> {
        let name = index_key(base.name(), def.name());
        match (stored, missing) {
            (Some(row), _) if is_row_fit(base, row, def) => {
                let tree = self.index_of(live, &name, row);
                Ok(Declared { def, tree, is_new: false })
            }
            (Some(row), Missing::Refuse) => Err(differs(base, def, &row.key_type, row.index)),
            (None, Missing::Refuse) => Err(no_index(base, def)),
            (stored, Missing::Create) => {
                self.begin_change(live, base)?;
                if let Some(row) = stored {
                    self.end(live, &name, row.clone())?;
                }
                let tree = self.create_index(live, base, &name, def)?;
                Ok(Declared { def, tree, is_new: true })
            }
        }
    }

    fn create_index(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        name: &str,
        def: &dyn Definition,
    ) -> Result<TreeRef<'static>> {
        // As for a table: before the id is drawn.
        live.txn.lock_table(self.tree.table(), TableMode::IntentExclusive)?;
        let index = IndexRow { of: base.table(), version: def.version(), is_unique: def.is_unique() };
        let (key_type, value_type) = def.type_names();
        let table = self.draw();
        let row = TableRow {
            table,
            naming: table,
            root: PageId(0),
            key_type,
            value_type,
            is_dropped: false,
            index: Some(index),
        };
        self.create(live, name, row)
    }

    /// Notes that the transaction changes the indexes of a table. No other transaction writes the table from here on.
    fn begin_change(&self, live: &mut Live, base: &TreeRef<'_>) -> Result<()> {
        base.lock_against_writes(&mut live.txn)?;
        let state = base.indexes();
        state.change();
        live.scratch.indexes.changed.push(Arc::clone(state));
        Ok(())
    }

    /// Drops the index `index` of the table `table`, and returns whether there was one.
    pub(crate) fn drop_index(&self, live: &mut Live, table: &str, index: &str) -> Result<bool> {
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        let rows = self.index_rows(&mut live.txn, table)?;
        let Some((_, row)) = rows.into_iter().find(|(name, _)| name == index) else { return Ok(false) };
        let base = match live.created(table) {
            Some(info) => TreeRef::created(info),
            None => match self.newest(live, table)? {
                Some(info) => TreeRef::Known(info),
                None => return Err(Storage::corrupted(&self.data, Place::File, "an index has no table").into()),
            },
        };
        self.begin_change(live, &base)?;
        self.end(live, &index_key(table, index), row)?;
        Ok(true)
    }

    /// Returns the names and rows of the indexes that a table has, as they are under a lock of the catalogue. Refuses
    /// with a conflict if they have changed since the snapshot of the transaction.
    pub(super) fn index_rows(&self, txn: &mut Txn, table: &str) -> Result<Vec<(String, TableRow)>> {
        let (lower, upper) = (index_key(table, ""), format!("{table}\u{1}"));
        let bounds = (Bound::Included(lower.as_bytes()), Bound::Excluded(upper.as_bytes()));
        let mut cursor = self.tree.range_locked(txn, bounds.0, bounds.1, RowLock::share())?;
        let mut rows = Vec::new();
        while let Some((key, row)) = cursor.next(txn)? {
            let row = decode(&self.data, row)?;
            let name = std::str::from_utf8(key).ok().and_then(split_index_key).filter(|_| row.index.is_some());
            let damage = || Storage::corrupted(&self.data, Place::File, "the row of an index is malformed");
            rows.push((name.ok_or_else(damage)?.1.to_owned(), row));
        }
        Ok(rows)
    }

    /// Checks, under the shared lock of the catalogue, that a transaction which writes a table keeps exactly the
    /// indexes that the table has. `kept` are their names and ids. The transaction has not dropped the table.
    pub(crate) fn check_kept(
        &self,
        txn: &mut Txn,
        changed: &[Arc<IndexState>],
        base: &TreeRef<'_>,
        kept: &[(&'static str, TableId)],
    ) -> Result<()> {
        txn.lock_table(self.tree.table(), TableMode::Shared)?;
        let state = base.indexes();
        let word = state.word();
        let mut row = Vec::new();
        let is_there = self.tree.get_newest(txn, base.name().as_bytes(), &mut row)?;
        if !is_there || decode(&self.data, &row)?.table != base.table() {
            // The table has another name by now, and so have its indexes.
            return Err(Error::IndexesChanged { table: base.table().into() });
        }
        let rows = self.index_rows(txn, base.name())?;
        if let Some((index, _)) = rows.iter().find(|(name, _)| kept.iter().all(|(known, _)| known != name)) {
            return Err(Error::IndexUndeclared { table: base.name().to_owned(), index: index.clone() });
        }
        let has = |&(_, id): &(_, TableId)| rows.iter().any(|(_, row)| row.table == id);
        if rows.len() != kept.len() || !kept.iter().all(has) {
            return Err(Error::IndexesChanged { table: base.table().into() });
        }
        // Changes of this transaction are not committed.
        if !changed.iter().any(|own| Arc::ptr_eq(own, state)) {
            state.settle(word, rows.len());
        }
        Ok(())
    }

    /// Returns the tree of an index to read it. A transaction with a snapshot gets the index that the snapshot sees.
    pub(crate) fn index_to_read(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        def: &dyn Definition,
    ) -> Result<TreeRef<'_>> {
        by_key(live, base, def, |live, key| self.find_to_read(live, base, def, key))
    }

    /// Returns the index with the catalogue key `key`, as [`index_to_read`](Self::index_to_read) does.
    fn find_to_read(
        &self,
        live: &mut Live,
        base: &TreeRef<'_>,
        def: &dyn Definition,
        key: &str,
    ) -> Result<TreeRef<'_>> {
        if let Some(info) = live.created(key) {
            return if is_fit(base, info, def) {
                Ok(TreeRef::created(info))
            } else {
                Err(differs(base, def, &info.key_type, info.index))
            };
        }
        if let Some(snapshot) = live.txn.reads_at()? {
            let found = self.index_at(live, &snapshot, base, def, key);
            live.txn.end_reads_at(snapshot);
            return found;
        }
        if let Some(info) = self.get(key).filter(|info| !live.has_ended(info)) {
            live.txn.lock_table(info.tree.table(), TableMode::IntentShared)?;
            // It may have been dropped during the wait for the lock.
            if !info.tree.is_retired() {
                return use_index(live, base, def, info);
            }
        }
        match self.newest(live, key)? {
            Some(info) => use_index(live, base, def, info),
            None => Err(no_index(base, def)),
        }
    }

    /// Returns the tree of the index that `snapshot` sees.
    fn index_at(
        &self,
        live: &mut Live,
        snapshot: &Snapshot,
        base: &TreeRef<'_>,
        def: &dyn Definition,
        name: &str,
    ) -> Result<TreeRef<'_>> {
        let oldest = self.seen_by(live, snapshot, name)?;
        if let Some(info) = oldest.filter(|info| info.created <= snapshot.csn() && !live.has_ended(info)) {
            return use_index(live, base, def, info);
        }
        // Created since, or not yet published.
        self.check_tables()?;
        if !self.tree.get_at(&mut live.txn, snapshot, name.as_bytes(), &mut live.scratch.found)? {
            return match oldest.filter(|info| !info.tree.is_retired() && !live.has_ended(info)) {
                // An empty index would hide the rows that the snapshot sees.
                Some(_) => Err(Error::Conflict { table: self.table().into(), key: name.as_bytes().into() }),
                None => Err(no_index(base, def)),
            };
        }
        let row = decode(&self.data, &live.scratch.found)?;
        let naming = row.naming;
        self.tables.add(self.info(name, row, live.txn.observed()));
        let info = self.tables.all(name).find(|info| info.naming == naming && !live.has_ended(info));
        use_index(live, base, def, info.ok_or_else(|| no_index(base, def))?)
    }

    /// Returns the tree of an index that has the row `row`.
    fn index_of(&self, live: &mut Live, name: &str, row: &TableRow) -> TreeRef<'_> {
        if let Some(info) = live.created(name) {
            return TreeRef::created(info);
        }
        TreeRef::Known(self.tables.add(self.info(name, row.clone(), live.txn.observed())))
    }

    /// Notes that a prepared transaction of the previous run, which holds its locks again, changes the indexes of the
    /// tables of these indexes.
    pub(crate) fn note_changed_indexes(&self, note: &TablesNote) {
        let created = note.created.iter().filter_map(|(_, row)| row.index);
        let dropped = note.dropped.iter().filter_map(|&(id, _)| self.by_id(id)?.index);
        created.chain(dropped).filter_map(|index| self.by_id(index.of)).for_each(|base| base.indexes.change());
    }
}

/// Calls `find` with the catalogue key of an index, which lies in the memory of the transaction.
fn by_key<T>(live: &mut Live, base: &TreeRef<'_>, def: &dyn Definition, find: impl FnOnce(&mut Live, &str) -> T) -> T {
    let mut key = mem::take(&mut live.scratch.indexes.name);
    write_index_key(&mut key, base.name(), def.name());
    let found = find(live, &key);
    live.scratch.indexes.name = key;
    found
}

fn use_index<'e>(
    live: &mut Live,
    base: &TreeRef<'_>,
    def: &dyn Definition,
    info: &'e TableInfo,
) -> Result<TreeRef<'e>> {
    live.txn.observe(info.created);
    if is_fit(base, info, def) { Ok(TreeRef::Known(info)) } else { Err(differs(base, def, &info.key_type, info.index)) }
}

/// Returns whether an index is of this table and was built by this definition.
fn is_fit(base: &TreeRef<'_>, info: &TableInfo, def: &dyn Definition) -> bool {
    if !info.index.is_some_and(|index| is_kind(base, index, def)) {
        return false;
    }
    let types = def.types();
    if types.is_some_and(|types| info.has_matched(types)) {
        return true;
    }
    let (key_type, primary_type) = def.type_names();
    let has_types = *info.key_type == *key_type && *info.value_type == *primary_type;
    if let (true, Some(types)) = (has_types, types) {
        info.remember_match(types);
    }
    has_types
}

/// Returns whether the index of a row is of this table and was built by this definition.
fn is_row_fit(base: &TreeRef<'_>, row: &TableRow, def: &dyn Definition) -> bool {
    let (key_type, primary_type) = def.type_names();
    let has_types = row.key_type == key_type && row.value_type == primary_type;
    has_types && row.index.is_some_and(|index| is_kind(base, index, def))
}

fn is_kind(base: &TreeRef<'_>, index: IndexRow, def: &dyn Definition) -> bool {
    (index.of, index.version, index.is_unique) == (base.table(), def.version(), def.is_unique())
}

fn no_index(base: &TreeRef<'_>, def: &dyn Definition) -> Error {
    Error::NoIndex { table: base.name().to_owned(), index: def.name().to_owned() }
}

fn differs(base: &TreeRef<'_>, def: &dyn Definition, key_type: &str, stored: Option<IndexRow>) -> Error {
    let describe = |is_unique: bool, key_type: &str, version: u64| {
        format!("{} {key_type} of version {version}", if is_unique { "unique keys" } else { "keys" })
    };
    Error::IndexTypes {
        table: base.name().to_owned(),
        index: def.name().to_owned(),
        stored: stored.map_or_else(String::new, |index| describe(index.is_unique, key_type, index.version)),
        wanted: describe(def.is_unique(), &def.type_names().0, def.version()),
    }
}
