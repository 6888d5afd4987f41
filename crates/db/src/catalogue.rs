//! Tables by name: found without a lock where they are known, created in the transaction that asks for them.

mod clear;
mod drop;
mod indexes;
mod list;
mod rename;
mod row_types;
mod tree_ref;

pub(crate) use indexes::{Declared, Missing};
pub use list::{ListedIndex, ListedTable};
pub(crate) use row_types::RowTypes;
pub(crate) use tree_ref::TreeRef;

use crate::format::{CATALOGUE, RowFlaw, SEQUENCES, TableRow};
use crate::index_state::IndexState;
use crate::live::Live;
use crate::sequences::Sequences;
use crate::tables::{TableInfo, Tables, settle_indexes};
use crate::watches::Watches;
use crate::{Error, Result};
use foreshore_base::{Csn, Error as Storage, PageId, Place, TableId};
use foreshore_btree::{Tree, Trees};
use foreshore_lock::TableMode;
use foreshore_space::CATALOGUE_ROOT;
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicU32, Ordering};
use foreshore_txn::{Isolation, Snapshot, SnapshotRef, Txn};
use foreshore_wal::Log;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Highest version of a catalogue row that this build reads.
const NEWEST: u32 = 1;

/// The tables of a database: the tree that lists them, and those that are known by name.
pub(crate) struct Catalogue {
    tree: Tree,
    trees: Arc<Trees>,
    tables: Tables<TableInfo>,
    /// Last number given out to a table or to a rename.
    last_table: AtomicU32,
    /// The first error of reading the tree, if damaged pages may hide tables.
    hidden: OnceLock<Error>,
    watches: Arc<Watches>,
    sequences: Sequences,
    log: Log,
    /// The data file, which errors name.
    data: PathBuf,
    /// See [`Catalogue::passes_damage`].
    passes_damage: bool,
}

impl Catalogue {
    /// Creates a catalogue that knows no tables yet. See
    /// [`Catalogue::passes_damage`] for that flag.
    pub(crate) fn new(trees: Arc<Trees>, log: Log, data: PathBuf, passes_damage: bool) -> Self {
        let (tree, last_table) = (trees.tree(CATALOGUE, CATALOGUE_ROOT), AtomicU32::new(SEQUENCES.0));
        let sequences = Sequences::new(&trees, log.clone(), data.clone());
        let (tables, hidden, watches) = (Tables::new(), OnceLock::new(), Arc::new(Watches::new()));
        Self { tree, trees, tables, last_table, hidden, watches, sequences, log, data, passes_damage }
    }

    /// Whether leaves below damaged inner nodes are read. No transaction changes the database, and no page was
    /// quarantined: below a quarantined one, changes of a transaction that did not commit may be left.
    pub(crate) const fn passes_damage(&self) -> bool {
        self.passes_damage
    }

    /// Reads all tables, so that opening one needs no lock, and returns their trees. Reads by a snapshot: tables
    /// created by prepared transactions are absent, and tables dropped by them are present. Calls `gone` for each
    /// dropped table that has pages left, and `damage` for each error that hides tables.
    pub(crate) fn load(
        &self,
        txn: &mut Txn,
        mut gone: impl FnMut(Tree),
        mut damage: impl FnMut(&Error),
    ) -> Result<Vec<Tree>> {
        let mut known = Vec::new();
        let learn = |name: Option<&str>, row: TableRow| {
            self.note_drawn(row.naming);
            match name {
                Some(name) => known.push(self.tables.add(self.info(name, row, Csn::ZERO))),
                None => gone(self.trees.tree(row.table, row.root)),
            }
        };
        self.each_row(txn, learn, |error| {
            damage(&error);
            let _ = self.hidden.set(error);
        })?;
        // The row of a dropped table stays, so its id is not given to another one.
        match self.sequences.last_table(txn) {
            Ok(last) => last.into_iter().for_each(|last| self.note_drawn(last)),
            Err(error @ foreshore_base::Error::Corrupted { .. }) => {
                let error = error.into();
                damage(&error);
                let _ = self.hidden.set(error);
            }
            Err(error) => return Err(error.into()),
        }
        if self.hidden.get().is_none() {
            settle_indexes(&known);
        }
        Ok(known.into_iter().map(|info| info.tree.clone()).collect())
    }

    /// Notes that a number is in use, as the id of a table or as that of a naming.
    pub(crate) fn note_drawn(&self, number: TableId) {
        // ORDERING: hint. No other thread has the engine yet.
        self.last_table.fetch_max(number.0, Ordering::Relaxed);
    }

    /// Returns the last number given out.
    pub(crate) fn last_drawn(&self) -> TableId {
        // ORDERING: hint. A number is drawn under an intent lock of the catalogue. A caller that needs the last one
        // holds a lock that excludes intents.
        TableId(self.last_table.load(Ordering::Relaxed))
    }

    /// Returns an error if damage may hide tables. Then no name is known to be free, and no id to be new.
    fn check_tables(&self) -> Result<()> {
        self.hidden.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Returns the tree that lists the tables.
    pub(crate) const fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the id of that tree.
    pub(crate) fn table(&self) -> TableId {
        self.tree.table()
    }

    /// Returns what all trees share.
    pub(crate) const fn trees(&self) -> &Arc<Trees> {
        &self.trees
    }

    /// Returns the watches of tables.
    pub(crate) const fn watches(&self) -> &Arc<Watches> {
        &self.watches
    }

    /// Returns the sequences of the tables.
    pub(crate) const fn sequences(&self) -> &Sequences {
        &self.sequences
    }

    /// Returns the table with that name, if it is known and not dropped.
    pub(crate) fn get(&self, name: &str) -> Option<&TableInfo> {
        self.tables.get(name)
    }

    /// Returns the table with that id, if it is known, dropped or not.
    pub(crate) fn by_id(&self, id: TableId) -> Option<&TableInfo> {
        self.tables.by_id(id)
    }

    /// Makes a committed table known, and returns the tree that all transactions share.
    pub(crate) fn learn(&self, name: &str, row: TableRow, created: Csn) -> Tree {
        self.tables.add(self.info(name, row, created)).tree.clone()
    }

    /// Publishes the tables that commit `csn` has created or renamed. Ends the old trees of the tables that it has
    /// renamed.
    pub(crate) fn publish(&self, (created, renamed): (Vec<TableInfo>, &[Tree]), csn: Csn) {
        pause::point("db: about to make tables known");
        for mut table in created {
            table.created = csn;
            self.tables.add(table);
        }
        renamed.iter().for_each(|tree| tree.dropped_by(csn));
    }

    /// Returns the tree of the table `name` with rows of `types`, and creates it if there is none. A transaction with a
    /// snapshot gets the table that the snapshot sees.
    pub(crate) fn open(&self, live: &mut Live, name: &str, types: RowTypes<'_>) -> Result<TreeRef<'_>> {
        if let Some(info) = live.created(name) {
            types.check(info)?;
            return Ok(TreeRef::created(info));
        }
        let known = match whole_snapshot(&mut live.txn)? {
            Some(snapshot) => self.seen_by(live, &snapshot, name)?,
            None => self.get(name),
        };
        if let Some(info) = known.filter(|info| !live.has_ended(info)) {
            return use_table(info, live, types);
        }
        // A transaction that opens an unknown table locks the catalogue exclusively until its end. So transactions that
        // want to create the same table take turns. If each first locked the absence of the name shared, they would
        // deadlock.
        live.txn.lock_table(self.tree.table(), TableMode::Exclusive)?;
        if let Some(info) = self.newest(live, name)? {
            if info.is_renamed() && !self.sees_name(live, name, info)? {
                // The snapshot sees rows of the table, and not its name.
                return Err(Error::Conflict { table: self.table().into(), key: name.as_bytes().into() });
            }
            return use_table(info, live, types);
        }
        self.check_tables()?;
        self.create_table(live, name, types)
    }

    /// Returns whether the transaction's snapshot sees the table under that name; true without a snapshot. The snapshot
    /// may see the commit of a rename before that commit has published the new name.
    fn sees_name(&self, live: &mut Live, name: &str, info: &TableInfo) -> Result<bool> {
        let Some(snapshot) = whole_snapshot(&mut live.txn)? else { return Ok(true) };
        let is_there = self.tree.get_at(&mut live.txn, &snapshot, name.as_bytes(), &mut live.scratch.found)?;
        Ok(is_there && decode(&self.data, &live.scratch.found)?.naming == info.naming)
    }

    /// Returns the tree of the table `name`, if there is one. A serializable transaction locks the table against a
    /// drop, or locks the absence of the name. At the other levels the call waits for no other transaction.
    pub(crate) fn open_existing(&self, live: &mut Live, name: &str, types: RowTypes<'_>) -> Result<TreeRef<'_>> {
        if let Some(info) = live.created(name) {
            types.check(info)?;
            return Ok(TreeRef::created(info));
        }
        if let Some(snapshot) = live.txn.reads_at()? {
            return self.open_at(live, &snapshot, name, types);
        }
        if let Some(info) = self.get(name).filter(|info| !live.has_ended(info)) {
            live.txn.lock_table(info.tree.table(), TableMode::IntentShared)?;
            // It may have been dropped during the wait for the lock.
            if !info.tree.is_retired() {
                return use_table(info, live, types);
            }
        }
        if let Some(info) = self.newest(live, name)? {
            return use_table(info, live, types);
        }
        self.check_tables()?;
        Err(no_table(name))
    }

    /// Looks the table `name` up in the tree, under a lock.
    fn newest(&self, live: &mut Live, name: &str) -> Result<Option<&TableInfo>> {
        if !self.tree.get_newest(&mut live.txn, name.as_bytes(), &mut live.scratch.found)? {
            return Ok(None);
        }
        let row = decode(&self.data, &live.scratch.found)?;
        // The creator has committed, or the lock would not have been granted. The grant has raised the watermark of
        // this transaction to that commit.
        let created = live.txn.observed();
        Ok(Some(self.tables.add(self.info(name, row, created))))
    }

    /// Returns the tree of the table `name` that the transaction's snapshot sees, as [`open_at`](Self::open_at) does.
    pub(crate) fn open_known(&self, live: &mut Live, name: &str, types: RowTypes<'_>) -> Result<TreeRef<'_>> {
        match whole_snapshot(&mut live.txn)? {
            Some(snapshot) => {
                let found = self.open_at(live, &snapshot, name, types);
                live.txn.end_reads_at(snapshot);
                found
            }
            None => Err(no_table(name)),
        }
    }

    /// Returns the tree of the table `name` that `snapshot` sees, unless the transaction has dropped it. If there is
    /// none, returns that of a table created since, in which the snapshot sees no row.
    ///
    /// A caller may act on the answer that there is no table before any commit of its own. So this first waits until
    /// the commit that dropped the table is durable.
    fn open_at(&self, live: &mut Live, snapshot: &Snapshot, name: &str, types: RowTypes<'_>) -> Result<TreeRef<'_>> {
        match self.seen_by(live, snapshot, name)? {
            Some(info) if live.has_ended(info) => return Err(no_table(name)),
            Some(info) => return use_table(info, live, types),
            None => {}
        }
        self.check_tables()?;
        // Each table is known once its creation is acknowledged. A snapshot may see the commit before that.
        if self.tree.get_at(&mut live.txn, snapshot, name.as_bytes(), &mut live.scratch.found)? {
            let row = decode(&self.data, &live.scratch.found)?;
            let naming = row.naming;
            self.tables.add(self.info(name, row, live.txn.observed()));
            let info = self.tables.all(name).find(|info| info.naming == naming).ok_or_else(|| no_table(name))?;
            return use_table(info, live, types);
        }
        let gone = self.tables.all(name).find_map(|info| info.tree.gone_at(snapshot)).unwrap_or_default();
        live.txn.observe(gone);
        // WAIT: help - or park behind the leader.
        self.log.force(gone.lsn())?;
        Err(no_table(name))
    }

    /// Returns the table `name` that `snapshot` sees.
    ///
    /// Tables of one name follow each other in time, so that is the oldest one whose drop or rename the snapshot does
    /// not see. If that one got the name after the snapshot was taken, the snapshot sees no table of this name. Then
    /// the result is the newest table, if it is in use and was created under this name. The snapshot sees no row of it.
    ///
    /// The caller has checked that the transaction has not created the table itself.
    fn seen_by(&self, live: &mut Live, snapshot: &Snapshot, name: &str) -> Result<Option<&TableInfo>> {
        let oldest = self.tables.all(name).take_while(|info| info.tree.gone_at(snapshot).is_none()).last();
        // `created` is at or above the commit that created the table.
        let is_empty_if_new = |info: &TableInfo| !info.tree.is_retired() && !info.is_renamed();
        let may_have_come_since = |info: &&TableInfo| !is_empty_if_new(info) && info.created > snapshot.csn();
        let Some(info) = oldest.filter(may_have_come_since) else { return Ok(oldest) };
        let was_there = self.tree.get_at(&mut live.txn, snapshot, name.as_bytes(), &mut live.scratch.found)?;
        Ok(if was_there { Some(info) } else { self.tables.get(name).filter(|info| is_empty_if_new(info)) })
    }

    fn create_table(&self, live: &mut Live, name: &str, types: RowTypes<'_>) -> Result<TreeRef<'_>> {
        let Some((key_type, value_type)) = types.names() else { return Err(no_table(name)) };
        // Locked before the id is drawn. A check that holds the shared lock of the catalogue then finds a table for
        // every id drawn, except those of rolled-back transactions.
        live.txn.lock_table(self.tree.table(), TableMode::IntentExclusive)?;
        let table = self.draw();
        let (naming, root) = (table, PageId(0));
        let row = TableRow { table, naming, root, key_type, value_type, is_dropped: false, index: None };
        self.create(live, name, row)
    }

    /// Creates a table or an index with the catalogue row `row`. The root in `row` is filled in here.
    fn create(&self, live: &mut Live, name: &str, mut row: TableRow) -> Result<TreeRef<'static>> {
        let tree = self.tree.create_table(&mut live.txn, name.as_bytes(), row.table, |root| {
            row.root = root;
            row.encode()
        })?;
        let info = TableInfo::new(name, tree, row, Csn::ZERO, IndexState::none());
        let created = TreeRef::created(&info);
        live.scratch.created.push(info);
        Ok(created)
    }

    /// Returns a new number, for a table or a rename.
    fn draw(&self) -> TableId {
        // ORDERING: ticket. A number of a transaction that is rolled back is not used again.
        TableId(self.last_table.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Puts the names of tables into an error of a transaction.
    pub(crate) fn name_tables(&self, live: &Live, error: &mut Error) {
        error.name_tables(|id| live.own_table(id).or_else(|| self.tables.by_id(id)).map(TableInfo::names));
    }

    /// Returns the table that a catalogue row describes.
    pub(crate) fn info(&self, name: &str, row: TableRow, created: Csn) -> TableInfo {
        TableInfo::new(name, self.trees.tree(row.table, row.root), row, created, IndexState::unsettled())
    }
}

/// Returns the snapshot by which a transaction reads from begin to end, if it has one.
fn whole_snapshot(txn: &mut Txn) -> Result<Option<SnapshotRef>> {
    Ok(if txn.isolation() == Isolation::Snapshot { txn.reads_at()? } else { None })
}

fn no_table(name: &str) -> Error {
    Error::NoTable { name: name.to_owned() }
}

fn use_table<'e>(info: &'e TableInfo, live: &mut Live, types: RowTypes<'_>) -> Result<TreeRef<'e>> {
    // Rows that are read, and the types of the table, depend on the commit that created it.
    live.txn.observe(info.created);
    types.check(info)?;
    Ok(TreeRef::Known(info))
}

/// Decodes a catalogue row.
fn decode(data: &Path, bytes: &[u8]) -> Result<TableRow, Storage> {
    TableRow::decode(bytes).map_err(|flaw| match flaw {
        RowFlaw::Malformed => Storage::corrupted(data, Place::File, "a row of the catalogue is malformed"),
        RowFlaw::Newer(version) => {
            Storage::Newer { path: data.to_owned(), found: u32::from(version).max(NEWEST + 1), supported: NEWEST }
        }
    })
}
