//! Prepared transactions: the list by name, commit, rollback, and takeover from the previous run.

use crate::catalogue::Catalogue;
use crate::format::{RowFlaw, TablesNote};
use crate::live::{Live, TableChanges};
use crate::queues::Unresolved;
use crate::reclaim::Reclaimer;
use crate::{Error, Result};
use foreshore_base::{Csn, Error as Storage, Place, TableId, Xid};
use foreshore_btree::Tree;
use foreshore_sync::model::mutant;
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, SystemClock};
use foreshore_txn::{InDoubt, MAX_PREPARED_NAME, Prepared, TakenOver, Txn, TxnManager};
use foreshore_wal::Log;
use std::collections::{BTreeMap, BTreeSet};
use std::{mem, path::Path, sync::Arc, time::Duration};

/// A prepared transaction that waits to be committed or rolled back, as [`Db::prepared`](crate::Db::prepared) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PreparedTxn {
    /// The name under which it was prepared.
    pub name: String,
    /// The label of the transaction.
    pub label: String,
    /// The transaction id in its log records.
    pub xid: Xid,
    /// Time since it was prepared, or since the database was opened if that is later.
    pub age: Duration,
}

/// State of a name.
enum Slot {
    /// A call is preparing or resolving the transaction.
    Busy,
    Waiting(Box<Waiting>),
}

/// A prepared transaction, and what its commit does to tables.
struct Waiting {
    prepared: Prepared,
    label: Box<str>,
    since: Nanos,
    tables: TableChanges,
    _unresolved: Unresolved,
}

/// The prepared transactions by name.
pub(crate) struct PreparedList {
    log: Log,
    clock: SystemClock,
    names: Mutex<BTreeMap<Box<str>, Slot>>,
}

/// Exclusive use of a name. Its drop frees the name.
pub(crate) struct Name<'a> {
    list: &'a PreparedList,
    name: Box<str>,
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        // The transaction, if there was one, belongs to the holder.
        let _busy = self.list.names.lock().remove(&self.name);
    }
}

impl Name<'_> {
    /// Stores a transaction under the name.
    fn fill(mut self, waiting: Waiting) {
        let name = mem::take(&mut self.name);
        let list = self.list;
        mem::forget(self);
        list.names.lock().insert(name, Slot::Waiting(Box::new(waiting)));
    }
}

impl PreparedList {
    pub(crate) fn new(log: Log) -> Self {
        Self { log, clock: SystemClock::new(), names: Mutex::new(LockRank::Leaf, BTreeMap::new()) }
    }

    /// Returns how many transactions wait.
    pub(crate) fn count(&self) -> usize {
        self.names.lock().values().filter(|place| matches!(place, Slot::Waiting(_))).count()
    }

    /// Takes a free name.
    pub(crate) fn take_name(&self, name: &str) -> Result<Name<'_>> {
        // A name is a text of C, too.
        if !(1..=MAX_PREPARED_NAME).contains(&name.len()) || name.contains('\0') {
            return Err(Error::PreparedName { name: name.to_owned() });
        }
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(Error::PreparedExists { name: name.to_owned() });
        }
        names.insert(name.into(), Slot::Busy);
        Ok(Name { list: self, name: name.into() })
    }

    /// Takes the transaction of a name, which stays taken; returns `None` if no transaction waits.
    fn take(&self, name: &str) -> Result<Option<(Name<'_>, Box<Waiting>)>> {
        let mut names = self.names.lock();
        let Some(place) = names.get_mut(name) else { return Ok(None) };
        match mem::replace(place, Slot::Busy) {
            Slot::Busy => Err(Error::PreparedBusy { name: name.to_owned() }),
            Slot::Waiting(waiting) => Ok(Some((Name { list: self, name: name.into() }, waiting))),
        }
    }

    pub(crate) fn all(&self) -> Vec<PreparedTxn> {
        let now = self.clock.now();
        let names = self.names.lock();
        let mut all = Vec::with_capacity(names.len());
        for (name, slot) in &*names {
            let Slot::Waiting(waiting) = slot else { continue };
            let Waiting { prepared, label, since, .. } = &**waiting;
            let (name, label) = (name.to_string(), label.to_string());
            all.push(PreparedTxn { name, label, xid: prepared.xid(), age: now.since(*since) });
        }
        all
    }

    /// Prepares a transaction under a name.
    pub(crate) fn prepare(&self, place: Name<'_>, live: Live) -> Result<()> {
        let (txn, tables) = live.into_parts();
        let note = TablesNote {
            created: tables.created.iter().map(|info| (info.name.to_string(), info.row())).collect(),
            dropped: tables.dropped.iter().map(|tree| (tree.table(), tree.root())).collect(),
        };
        let label = txn.label().into();
        let prepared = txn.prepare(&place.name, &note.encode())?;
        let since = self.clock.now();
        place.fill(Waiting { prepared, label, since, tables, _unresolved: Unresolved::here() });
        Ok(())
    }

    /// Commits the transaction of a name. Returns its commit number and the tables that it has dropped, or `None` if no
    /// transaction waits.
    pub(crate) fn commit(
        &self,
        name: &str,
        catalogue: &Catalogue,
        reclaimer: &Reclaimer,
    ) -> Result<Option<(Csn, Vec<TableId>)>> {
        let Some((place, waiting)) = self.take(name)? else { return Ok(None) };
        let Waiting { prepared, tables, .. } = *waiting;
        // Before the locks go. A commit that fails has stopped the log.
        tables.retire(|| prepared.xid_in_rows());
        let TableChanges { created, dropped, renamed } = tables;
        let gone = dropped.iter().map(Tree::table).collect();
        let ticket = prepared.commit()?;
        catalogue.publish((created, &renamed), ticket.csn());
        reclaimer.add_dropped(dropped, ticket.csn());
        // WAIT: park - for durability, or help by writing the group when the log is free. Not by the ticket: the name
        // is still taken, and a callback of a user may want it.
        if !mutant("sabotage: a prepared commit is answered before it is durable") {
            self.log.force(ticket.csn().lsn())?;
        }
        drop(place);
        Ok(Some((ticket.csn(), gone)))
    }

    /// Rolls the transaction of a name back; returns `None` if no transaction waits.
    pub(crate) fn rollback(&self, name: &str) -> Result<Option<()>> {
        let Some((place, waiting)) = self.take(name)? else { return Ok(None) };
        waiting.prepared.rollback()?;
        drop(place);
        Ok(Some(()))
    }

    /// Lists the prepared transactions of the previous run again, and restores their table locks. The catalogue has
    /// been read by the snapshot of `txn`; `known` are the trees of its tables, and `log` is the directory that errors
    /// name.
    pub(crate) fn hold_again(
        &self,
        txn: &mut Txn,
        taken_over: Vec<TakenOver>,
        catalogue: &Catalogue,
        known: &[Tree],
        log: &Path,
    ) -> Result<()> {
        let damage = |why| Storage::corrupted(log, Place::File, why);
        let mut ends = BTreeSet::new();
        if !taken_over.is_empty() {
            // One that cannot be read is that of an ended table, see below, or no number depends on it.
            known.iter().for_each(|tree| drop(catalogue.sequences().note_source(txn, tree.table())));
        }
        for taken in taken_over {
            let InDoubt { body, .. } = taken.in_doubt().clone();
            let note = TablesNote::decode(&body.note).map_err(|flaw| match flaw {
                RowFlaw::Malformed => damage("the note of a prepare record is malformed"),
                RowFlaw::Newer(_) => damage("the note of a prepare record is of a newer version"),
            })?;
            let created = note.created.iter().map(|(_, row)| row.naming);
            created.chain(note.dropped.iter().map(|&(table, _)| table)).for_each(|table| catalogue.note_drawn(table));
            catalogue.note_changed_indexes(&note);
            note.dropped.iter().try_for_each(|&(table, _)| catalogue.sequences().note_source(txn, table))?;
            if !note.dropped.iter().all(|&(table, _)| ends.insert(table)) {
                return Err(damage("prepare records drop a table twice").into());
            }
            // A table that is known shares its tree with this transaction, and so learns of the drop or the rename.
            let known = |table| known.iter().find(|tree| tree.table() == table).cloned();
            let renamed = note.created.iter().filter(|(_, row)| row.is_renamed());
            // One that the transaction has created itself is not known.
            let renamed = renamed.filter_map(|(_, row)| known(row.table)).collect();
            let created = note.created.into_iter();
            let created = created.map(|(name, row)| catalogue.info(&name, row, Csn::ZERO)).collect();
            let tree = |(table, root)| known(table).unwrap_or_else(|| catalogue.trees().tree(table, root));
            let dropped = note.dropped.into_iter().map(tree).collect();
            let tables = TableChanges { created, dropped, renamed };
            let place = self.take_name(&body.name).map_err(|_| damage("two transactions are prepared under a name"))?;
            let since = self.clock.now();
            let prepared = taken.hold_tables().map_err(damage)?;
            let _unresolved = Unresolved::here();
            place.fill(Waiting { prepared, label: body.label, since, tables, _unresolved });
        }
        Ok(())
    }
}

/// Takes over the prepared transactions that the restart has found. Errors name them by their names, which stay in
/// memory for that: some bytes for each name and restart.
pub(crate) fn take_over(txns: &Arc<TxnManager>, in_doubt: Vec<InDoubt>) -> Result<Vec<TakenOver>, Storage> {
    let take = |found: InDoubt| {
        let label: &'static str = Box::leak(found.body.name.clone());
        txns.take_over(found, label)
    };
    in_doubt.into_iter().map(take).collect()
}
