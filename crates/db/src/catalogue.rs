//! Tables by name: found without a lock where they are known, created in the transaction that asks for them.

use crate::engine::Engine;
use crate::files::Files;
use crate::format::{RowFlaw, TableRow, dropped_key};
use crate::tables::TableInfo;
use crate::transaction::Live;
use crate::{Error, Result};
use foreshore_base::key::{Key, Value};
use foreshore_base::{Csn, Error as Storage, Place, TableId};
use foreshore_btree::{Tree, Trees};
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_txn::{Isolation, Snapshot, SnapshotRef, Txn};
use std::collections::HashSet;
use std::ops::{Bound, Deref};
use std::{any::TypeId, sync::Arc};

/// Highest version of a catalogue row that this build reads.
const NEWEST: u32 = 1;

/// The tree of an open table: one that all transactions may see, or one that only its creator knows.
#[derive(Clone, Debug)]
pub(crate) enum TreeRef<'e> {
    Known(&'e Tree),
    Created(Tree),
}

impl Deref for TreeRef<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        match self {
            Self::Known(tree) => tree,
            Self::Created(tree) => tree,
        }
    }
}

/// Returns the tree of the table `name` with keys `K` and values `V`. A transaction with a snapshot gets the table that
/// the snapshot sees.
pub(crate) fn open_table<'e, K: Key + 'static, V: Value + 'static>(
    engine: &'e Engine,
    live: &mut Live,
    name: &str,
) -> Result<TreeRef<'e>> {
    if let Some(info) = live.created(name) {
        check_types::<K, V>(info)?;
        return Ok(TreeRef::Created(info.tree.clone()));
    }
    let known = match whole_snapshot(&mut live.txn)? {
        Some(snapshot) => seen_by(engine, live, &snapshot, name)?,
        None => engine.tables.get(name),
    };
    if let Some(info) = known.filter(|info| !live.has_dropped(info.tree.table())) {
        return use_table::<K, V>(info, live);
    }
    // A transaction that opens an unknown table locks the catalogue exclusively until its end. So of several that want
    // to create a table, each waits for the one before. With shared locks on the absence of the name none could
    // continue.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Exclusive)?;
    if engine.catalogue.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)? {
        let row = decode(&engine.files, &live.scratch.found)?;
        // The creator has committed, or the lock would not have been granted. The grant has raised the watermark of
        // this transaction to that commit.
        let created = live.txn.observed();
        let info = engine.tables.add(table_info(&engine.trees, name, row, created));
        return use_table::<K, V>(info, live);
    }
    engine.damage.check_tables()?;
    create_table::<K, V>(engine, live, name)
}

/// Returns the tree of the table `name` that the transaction's snapshot sees. If there is none, returns that of a table
/// created since, in which the snapshot sees no row.
///
/// The answer that there is no table is returned at once, without a commit. So this waits until the commit that
/// dropped the table is durable.
pub(crate) fn known_table<'e, K: Key + 'static, V: Value + 'static>(
    engine: &'e Engine,
    live: &mut Live,
    name: &str,
) -> Result<TreeRef<'e>> {
    let no_table = || Error::NoTable { name: name.to_owned() };
    let Some(snapshot) = whole_snapshot(&mut live.txn)? else { return Err(no_table()) };
    if let Some(info) = seen_by(engine, live, &snapshot, name)? {
        return use_table::<K, V>(info, live);
    }
    engine.damage.check_tables()?;
    // Each table is known once its creation is acknowledged. A snapshot may see the commit before that.
    if engine.catalogue.get_at(&mut live.txn, &snapshot, name.as_bytes(), &mut live.scratch.found)? {
        let row = decode(&engine.files, &live.scratch.found)?;
        let id = row.table;
        engine.tables.add(table_info(&engine.trees, name, row, live.txn.observed()));
        let info = engine.tables.all(name).find(|info| info.tree.table() == id).ok_or_else(no_table)?;
        return use_table::<K, V>(info, live);
    }
    let gone = engine.tables.all(name).find_map(|info| info.tree.gone_at(&snapshot)).unwrap_or_default();
    live.txn.observe(gone);
    // WAIT: help - or park behind the leader.
    engine.log.force(gone.lsn())?;
    Err(no_table())
}

/// Returns the snapshot by which a transaction reads from begin to end, if it has one.
fn whole_snapshot(txn: &mut Txn) -> Result<Option<SnapshotRef>> {
    Ok(if txn.isolation() == Isolation::Snapshot { txn.reads_at()? } else { None })
}

/// Returns the table `name` that `snapshot` sees.
///
/// Tables of one name follow each other in time, so that is the oldest one whose drop the snapshot does not see. If it
/// was created after the snapshot was taken, the name was free then. The result is in that case the newest table of the
/// name while that is in use; the snapshot sees no row of it.
///
/// The transaction has not created the table itself.
fn seen_by<'e>(engine: &'e Engine, live: &mut Live, snapshot: &Snapshot, name: &str) -> Result<Option<&'e TableInfo>> {
    let oldest = engine.tables.all(name).take_while(|info| info.tree.gone_at(snapshot).is_none()).last();
    // `created` is at or above the commit that created the table.
    let may_have_come_since = |info: &&TableInfo| info.tree.is_retired() && info.created > snapshot.csn();
    let Some(info) = oldest.filter(may_have_come_since) else { return Ok(oldest) };
    let was_there = engine.catalogue.get_at(&mut live.txn, snapshot, name.as_bytes(), &mut live.scratch.found)?;
    Ok(if was_there { Some(info) } else { engine.tables.get(name) })
}

fn use_table<'e, K: Key + 'static, V: Value + 'static>(info: &'e TableInfo, live: &mut Live) -> Result<TreeRef<'e>> {
    // Rows that are read, and the types of the table, rest on the commit that created it.
    live.txn.observe(info.created);
    check_types::<K, V>(info)?;
    Ok(TreeRef::Known(&info.tree))
}

fn check_types<K: Key + 'static, V: Value + 'static>(info: &TableInfo) -> Result<()> {
    let types = (TypeId::of::<K>(), TypeId::of::<V>());
    if info.fits(types) {
        return Ok(());
    }
    let (key, value) = (K::type_name(), V::type_name());
    if *info.key_type == *key && *info.value_type == *value {
        info.remember_fit(types);
        return Ok(());
    }
    Err(Error::TableTypes {
        table: info.name.to_string(),
        stored: format!("{} to {}", info.key_type, info.value_type),
        wanted: format!("{key} to {value}"),
    })
}

fn create_table<'e, K: Key + 'static, V: Value + 'static>(
    engine: &'e Engine,
    live: &mut Live,
    name: &str,
) -> Result<TreeRef<'e>> {
    // Locked before the id is drawn. A check that reads the catalogue under its shared lock then finds a table for
    // every id drawn, unless the transaction was rolled back.
    live.txn.lock_table(engine.catalogue.table(), TableMode::IntentExclusive)?;
    // ORDERING: ticket. An id of a transaction that is rolled back is not used again.
    let table = TableId(engine.last_table.fetch_add(1, Ordering::Relaxed) + 1);
    let (key_type, value_type) = (K::type_name(), V::type_name());
    let tree = engine.catalogue.create_table(&mut live.txn, name.as_bytes(), table, |root| {
        let (key_type, value_type) = (key_type.clone(), value_type.clone());
        TableRow { table, root, key_type, value_type, is_dropped: false }.encode()
    })?;
    live.scratch.created.push(TableInfo::new(name, tree.clone(), key_type, value_type, Csn::ZERO));
    Ok(TreeRef::Created(tree))
}

/// Drops the table `name`, if there is one. The catalogue forgets the name and keeps the table, as a dropped one, until
/// its last page is free.
pub(crate) fn drop_table(engine: &Engine, live: &mut Live, name: &str) -> Result<bool> {
    // No transaction creates the table or learns of it meanwhile.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Exclusive)?;
    let is_there = engine.catalogue.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)?;
    let row = if is_there { Some(decode(&engine.files, &live.scratch.found)?) } else { None };
    check_seen(engine, live, name, row.as_ref().map(|row| row.table))?;
    let Some(row) = row else { return Ok(false) };
    // Waits for the end of each transaction that has used the table. One that has only opened it learns of the drop
    // when it locks it.
    if !mutant("sabotage: a drop does not wait for writers") {
        live.txn.lock_table(row.table, TableMode::Exclusive)?;
    }
    let tree = match live.created(name) {
        Some(info) => info.tree.clone(),
        None => {
            // Published here, so that its creator can no longer do that.
            let info = table_info(&engine.trees, name, row.clone(), live.txn.observed());
            engine.tables.add(info).tree.clone()
        }
    };
    let row = TableRow { is_dropped: true, ..row };
    live.txn.freeing(|txn| {
        engine.catalogue.remove(txn, name.as_bytes())?;
        engine.catalogue.insert_dropped(txn, &dropped_key(row.table), &row.encode())
    })?;
    live.scratch.dropped.push(tree);
    Ok(true)
}

/// Refuses to drop a table whose name means another table to the transaction's snapshot. That one was dropped since.
/// `newest` is the table that has the name now, if any.
fn check_seen(engine: &Engine, live: &mut Live, name: &str, newest: Option<TableId>) -> Result<()> {
    if live.created(name).is_some() {
        return Ok(());
    }
    let Some(snapshot) = whole_snapshot(&mut live.txn)? else { return Ok(()) };
    let seen = seen_by(engine, live, &snapshot, name)?.map(|info| info.tree.table());
    match seen.filter(|&seen| newest != Some(seen) && !live.has_dropped(seen)) {
        Some(seen) => Err(Error::TableDropped { table: seen.into() }),
        None => Ok(()),
    }
}

/// Calls `learn` for each catalogue row that `txn` sees, and `damage` for each `Corrupted` that hides others. A dropped
/// table has no name. No table id comes twice: a dropped table must free no page of another one.
pub(crate) fn each_row(
    engine: &Engine,
    txn: &mut Txn,
    mut learn: impl FnMut(Option<&str>, TableRow),
    mut damage: impl FnMut(Error),
) -> Result<()> {
    let (mut from, mut ids) = (Vec::new(), HashSet::new());
    loop {
        let mut cursor = engine.catalogue.range(txn, Bound::Included(&from), Bound::Unbounded)?;
        let error = loop {
            match cursor.next(txn) {
                Ok(Some((key, value))) => {
                    let (name, row) = sound_row(&engine.files, key, value, &mut ids)?;
                    learn(name, row);
                    // The smallest key above.
                    from.clear();
                    from.extend_from_slice(key);
                    from.push(0);
                }
                Ok(None) => return Ok(()),
                Err(error) => break error,
            }
        };
        if error.damaged_page().is_none() {
            return Err(error.into());
        }
        damage(error.into());
        match engine.catalogue.beyond_damage(&from)? {
            Some(key) => from = key,
            None => return Ok(()),
        }
    }
}

/// Decodes a catalogue row and checks it against its key and the ids of earlier rows. Returns the name of the table,
/// `None` for a dropped one.
fn sound_row<'k>(
    files: &Files,
    key: &'k [u8],
    row: &[u8],
    ids: &mut HashSet<TableId>,
) -> Result<(Option<&'k str>, TableRow), Storage> {
    let row = decode(files, row)?;
    let damage = |why| Storage::corrupted(&files.data, Place::File, why);
    if !ids.insert(row.table) {
        return Err(damage("two rows of the catalogue have one table"));
    }
    if !row.is_dropped {
        let name = std::str::from_utf8(key).map_err(|_| damage("a name in the catalogue is not UTF-8"))?;
        return Ok((Some(name), row));
    }
    if *key != dropped_key(row.table) {
        return Err(damage("a dropped table has a name in the catalogue"));
    }
    Ok((None, row))
}

/// Returns the table that a catalogue row describes.
pub(crate) fn table_info(trees: &Arc<Trees>, name: &str, row: TableRow, created: Csn) -> TableInfo {
    TableInfo::new(name, trees.tree(row.table, row.root), row.key_type, row.value_type, created)
}

/// Decodes a catalogue row.
pub(crate) fn decode(files: &Files, bytes: &[u8]) -> Result<TableRow, Storage> {
    TableRow::decode(bytes).map_err(|flaw| match flaw {
        RowFlaw::Malformed => Storage::corrupted(&files.data, Place::File, "a row of the catalogue is malformed"),
        RowFlaw::Newer(version) => {
            Storage::Newer { path: files.data.clone(), found: u32::from(version).max(NEWEST + 1), supported: NEWEST }
        }
    })
}
