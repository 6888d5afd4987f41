//! Tables by name: looked up without a lock where they are known, created in the transaction that asks for them.

use crate::engine::Engine;
use crate::files::Files;
use crate::format::{RowFlaw, TableRow, dropped_key};
use crate::tables::TableInfo;
use crate::transaction::Live;
use foreshore_base::key::{Key, Value};
use foreshore_base::{Csn, Error, Place, Result, TableId};
use foreshore_btree::{Tree, Trees};
use foreshore_lock::TableMode;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_txn::{Isolation, Snapshot, Txn};
use std::ops::{Bound, Deref};
use std::{any::TypeId, sync::Arc};

/// Highest catalogue row version that this build reads.
const NEWEST: u32 = 1;

/// A tree to work in: of a table that all transactions may see, or of one that only its transaction knows.
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

/// The tree of the table `name` with keys `K` and values `V`: the one that the transaction's snapshot sees, if it has
/// one.
pub(crate) fn open_table<'e, K: Key + 'static, V: Value + 'static>(
    engine: &'e Engine,
    live: &mut Live,
    name: &str,
) -> Result<TreeRef<'e>> {
    if let Some(info) = live.created(name) {
        check_types::<K, V>(info)?;
        return Ok(TreeRef::Created(info.tree.clone()));
    }
    let known = match whole_snapshot(&live.txn)? {
        Some(snapshot) => seen_by(engine, live, &snapshot, name)?,
        None => engine.tables.get(name),
    };
    if let Some(info) = known.filter(|info| !live.has_dropped(info.tree.table())) {
        return use_table::<K, V>(info, live);
    }
    // A transaction that asks for an unknown table takes the catalogue for itself until the end: of several that want to create one,
    // each waits for the one before, instead of all sharing the absence and none being able to end it.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Exclusive)?;
    if engine.catalogue.get_newest(&mut live.txn, name.as_bytes(), &mut live.found)? {
        let row = decode(&engine.files, &live.found)?;
        // Its creator has committed, or the lock would not have been granted, and has raised the watermark of this
        // transaction with the lock.
        let created = live.txn.observed();
        let info = engine.tables.add(table_info(&engine.trees, name, row, created));
        return use_table::<K, V>(info, live);
    }
    engine.damage.check_tables()?;
    create_table::<K, V>(engine, live, name)
}

/// The tree of the table `name` that the transaction's snapshot sees, if there is one; or that of a table that was
/// created since, in which the snapshot sees nothing.
///
/// That there is none is told at once, without a commit. So the commit that dropped the table is durable by then.
pub(crate) fn known_table<'e, K: Key + 'static, V: Value + 'static>(
    engine: &'e Engine,
    live: &mut Live,
    name: &str,
) -> Result<TreeRef<'e>> {
    let no_table = || Error::NoTable { name: name.to_owned() };
    let Some(snapshot) = whole_snapshot(&live.txn)? else { return Err(no_table()) };
    if let Some(info) = seen_by(engine, live, &snapshot, name)? {
        return use_table::<K, V>(info, live);
    }
    engine.damage.check_tables()?;
    // All tables are known from the moment at which their creation is acknowledged. A snapshot may see a commit before
    // that.
    if engine.catalogue.get_at(&mut live.txn, &snapshot, name.as_bytes(), &mut live.found)? {
        let row = decode(&engine.files, &live.found)?;
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

/// The snapshot by which a transaction reads from its begin to its end, if it does.
fn whole_snapshot(txn: &Txn) -> Result<Option<Arc<Snapshot>>> {
    if txn.isolation() == Isolation::Snapshot { txn.reads_at() } else { Ok(None) }
}

/// The table `name` that `snapshot` sees. Tables of a name come one after the other, so that is the oldest one whose
/// drop the snapshot does not see. If that one was created after the snapshot was taken, the name was free: then it is
/// the newest one, while that is in use, and the snapshot sees no row of it.
///
/// The transaction has not created the table itself.
fn seen_by<'e>(engine: &'e Engine, live: &mut Live, snapshot: &Snapshot, name: &str) -> Result<Option<&'e TableInfo>> {
    let oldest = engine.tables.all(name).take_while(|info| info.tree.gone_at(snapshot).is_none()).last();
    // `created` is at or above the commit that created the table.
    let may_have_come_since = |info: &&TableInfo| info.tree.is_retired() && info.created > snapshot.csn();
    let Some(info) = oldest.filter(may_have_come_since) else { return Ok(oldest) };
    let was_there = engine.catalogue.get_at(&mut live.txn, snapshot, name.as_bytes(), &mut live.found)?;
    Ok(if was_there { Some(info) } else { engine.tables.get(name) })
}

fn use_table<'e, K: Key + 'static, V: Value + 'static>(info: &'e TableInfo, live: &mut Live) -> Result<TreeRef<'e>> {
    // What is found in the table rests on the commit that created it, and so does what types it has.
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
    // Before the id is drawn: a thread that reads the catalogue under its shared lock then finds a table of every id that was drawn, or
    // its transaction was rolled back.
    live.txn.lock_table(engine.catalogue.table(), TableMode::IntentExclusive)?;
    // ORDERING: ticket. An id of a transaction that is rolled back is not used again.
    let table = TableId(engine.last_table.fetch_add(1, Ordering::Relaxed) + 1);
    let (key_type, value_type) = (K::type_name(), V::type_name());
    let tree = engine.catalogue.create_table(&mut live.txn, name.as_bytes(), table, |root| {
        let (key_type, value_type) = (key_type.clone(), value_type.clone());
        TableRow { table, root, key_type, value_type, is_dropped: false }.encode()
    })?;
    live.created.push(TableInfo::new(name, tree.clone(), key_type, value_type, Csn::ZERO));
    Ok(TreeRef::Created(tree))
}

/// Drops the table `name`, if there is one: the catalogue forgets the name, and keeps the table as a dropped one until its
/// last page is free.
pub(crate) fn drop_table(engine: &Engine, live: &mut Live, name: &str) -> Result<bool> {
    // No thread creates the table or learns of it meanwhile.
    live.txn.lock_table(engine.catalogue.table(), TableMode::Exclusive)?;
    let is_there = engine.catalogue.get_newest(&mut live.txn, name.as_bytes(), &mut live.found)?;
    let row = if is_there { Some(decode(&engine.files, &live.found)?) } else { None };
    check_seen(engine, live, name, row.as_ref().map(|row| row.table))?;
    let Some(row) = row else { return Ok(false) };
    // A transaction that has used the table has ended after this, and one that has opened it finds it gone when it locks it.
    if !mutant("sabotage: a drop does not wait for writers") {
        live.txn.lock_table(row.table, TableMode::Exclusive)?;
    }
    let tree = match live.created(name) {
        Some(info) => info.tree.clone(),
        None => {
            // Known, so that the transaction that created it cannot make it known any more.
            let info = table_info(&engine.trees, name, row.clone(), live.txn.observed());
            engine.tables.add(info).tree.clone()
        }
    };
    let row = TableRow { is_dropped: true, ..row };
    live.txn.freeing(|txn| {
        engine.catalogue.remove(txn, name.as_bytes())?;
        engine.catalogue.insert_dropped(txn, &dropped_key(row.table), &row.encode())
    })?;
    live.dropped.push(tree);
    Ok(true)
}

/// Refuses to drop a table by its name if the transaction sees another one under that name, or one where there is none, because that one was
/// dropped since its snapshot. `newest` has the name now.
fn check_seen(engine: &Engine, live: &mut Live, name: &str, newest: Option<TableId>) -> Result<()> {
    if live.created(name).is_some() {
        return Ok(());
    }
    let Some(snapshot) = whole_snapshot(&live.txn)? else { return Ok(()) };
    let seen = seen_by(engine, live, &snapshot, name)?.map(|info| info.tree.table());
    match seen.filter(|&seen| newest != Some(seen) && !live.has_dropped(seen)) {
        Some(seen) => Err(Error::TableDropped { table: seen.into() }),
        None => Ok(()),
    }
}

/// Calls `row` with each row of the catalogue that `txn` sees, and `damage` with each `Corrupted` that hides others.
pub(crate) fn each_row(
    catalogue: &Tree,
    txn: &mut Txn,
    mut row: impl FnMut(&[u8], &[u8]) -> Result<()>,
    mut damage: impl FnMut(Error),
) -> Result<()> {
    let mut from = Vec::new();
    loop {
        let mut cursor = catalogue.range(txn, Bound::Included(&from), Bound::Unbounded)?;
        let error = loop {
            match cursor.next(txn) {
                Ok(Some((key, value))) => {
                    row(key, value)?;
                    // The next key that there can be.
                    from.clear();
                    from.extend_from_slice(key);
                    from.push(0);
                }
                Ok(None) => return Ok(()),
                Err(error) => break error,
            }
        };
        if error.damaged_page().is_none() {
            return Err(error);
        }
        damage(error);
        match catalogue.beyond_damage(&from)? {
            Some(key) => from = key,
            None => return Ok(()),
        }
    }
}

/// A table as the catalogue describes it.
pub(crate) fn table_info(trees: &Arc<Trees>, name: &str, row: TableRow, created: Csn) -> TableInfo {
    TableInfo::new(name, trees.tree(row.table, row.root), row.key_type, row.value_type, created)
}

/// Decodes a catalogue row.
pub(crate) fn decode(files: &Files, bytes: &[u8]) -> Result<TableRow> {
    TableRow::decode(bytes).map_err(|flaw| match flaw {
        RowFlaw::Malformed => Error::corrupted(&files.data, Place::File, "a row of the catalogue is malformed"),
        RowFlaw::Newer(version) => {
            Error::Newer { path: files.data.clone(), found: u32::from(version).max(NEWEST + 1), supported: NEWEST }
        }
    })
}
