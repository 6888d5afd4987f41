//! Prepared transactions: the list by name, commit, rollback, and takeover from the previous run.

use crate::engine::Engine;
use crate::format::{RowFlaw, TableRow, TablesNote};
use crate::run::Unresolved;
use crate::tables::TableInfo;
use crate::transaction::Live;
use crate::{Db, Error, Result, catalogue};
use foreshore_base::{Csn, Error as Storage, Place, Xid};
use foreshore_btree::Tree;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, SystemClock};
use foreshore_txn::{InDoubt, MAX_PREPARED_NAME, Prepared, TakenOver, TxnManager};
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// A prepared transaction that waits to be committed or rolled back, as [`Db::prepared`] lists it.
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

/// A prepared transaction, and the tables that its end creates or drops.
struct Waiting {
    prepared: Prepared,
    label: Box<str>,
    since: Nanos,
    created: Vec<TableInfo>,
    dropped: Vec<Tree>,
    _unresolved: Unresolved,
}

/// The prepared transactions by name.
pub(crate) struct PreparedList {
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
    pub(crate) fn new() -> Self {
        Self { clock: SystemClock::new(), names: Mutex::new(LockRank::Leaf, BTreeMap::new()) }
    }

    /// Returns how many transactions wait.
    pub(crate) fn count(&self) -> usize {
        self.names.lock().values().filter(|place| matches!(place, Slot::Waiting(_))).count()
    }

    /// Takes a free name.
    pub(crate) fn take_name(&self, name: &str) -> Result<Name<'_>> {
        if !(1..=MAX_PREPARED_NAME).contains(&name.len()) {
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

    fn all(&self) -> Vec<PreparedTxn> {
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
}

impl Db {
    /// Lists the prepared transactions by name: those for which [`Transaction::prepare`](crate::Transaction::prepare)
    /// has returned, in this run or an earlier one, and that are not resolved.
    ///
    /// # Errors
    /// `Poisoned`, `Closed`.
    pub fn prepared(&self) -> Result<Vec<PreparedTxn>> {
        self.engine().check_open()?;
        Ok(self.engine().prepared.all())
    }

    /// Commits a prepared transaction, and waits until the commit survives power loss. Returns its commit number.
    ///
    /// # Errors
    /// - `NoPrepared`: there is none of that name. If there was one, its end is durable.
    /// - `PreparedBusy`: another call resolves it.
    /// - `Closed`, `Poisoned`: whether it is committed is unknown until the next open.
    pub fn commit_prepared(&self, name: &str) -> Result<Csn> {
        let engine = self.engine();
        engine.working(|| engine.commit_prepared(name))
    }

    /// Rolls back a prepared transaction. That is durable when this returns.
    ///
    /// # Errors
    /// Those of [`commit_prepared`](Self::commit_prepared). `RollbackParked`: the decision is durable, and the rest is
    /// rolled back later (see [`Transaction::rollback`](crate::Transaction::rollback)).
    pub fn rollback_prepared(&self, name: &str) -> Result<()> {
        let engine = self.engine();
        engine.working(|| engine.rollback_prepared(name))
    }
}

impl Engine {
    /// Prepares a transaction under a name.
    pub(crate) fn prepare(&self, place: Name<'_>, live: Live) -> Result<()> {
        let (txn, created, dropped) = live.into_parts();
        let row = |info: &TableInfo| {
            let (key_type, value_type) = (info.key_type.to_string(), info.value_type.to_string());
            let (table, root) = (info.tree.table(), info.tree.root());
            (info.name.to_string(), TableRow { table, root, key_type, value_type, is_dropped: false })
        };
        let is_dropped = |info: &TableInfo| dropped.iter().any(|tree| tree.table() == info.tree.table());
        let note = TablesNote {
            created: created.iter().filter(|info| !is_dropped(info)).map(row).collect(),
            dropped: dropped.iter().map(|tree| (tree.table(), tree.root())).collect(),
        };
        let label = txn.label().into();
        let prepared = txn.prepare(&place.name, &note.encode())?;
        let since = self.prepared.clock.now();
        place.fill(Waiting { prepared, label, since, created, dropped, _unresolved: Unresolved::here() });
        Ok(())
    }

    fn commit_prepared(&self, name: &str) -> Result<Csn> {
        let Some((place, waiting)) = self.prepared.take(name)? else { return Err(self.no_prepared(name)?) };
        let Waiting { prepared, created, dropped, .. } = *waiting;
        // Before the locks go. A commit that fails has stopped the log.
        dropped.iter().for_each(|tree| tree.retire(prepared.xid_in_rows()));
        let ticket = prepared.commit()?;
        self.know_tables(created, dropped, ticket.csn());
        // WAIT: park - for durability, or help by writing the group when the log is free. Not by the ticket: the name
        // is still taken, and a callback of a user may want it.
        if !mutant("sabotage: a prepared commit is answered before it is durable") {
            self.log.force(ticket.csn().lsn())?;
        }
        drop(place);
        Ok(ticket.csn())
    }

    fn rollback_prepared(&self, name: &str) -> Result<()> {
        let Some((place, waiting)) = self.prepared.take(name)? else { return Err(self.no_prepared(name)?) };
        waiting.prepared.rollback()?;
        drop(place);
        Ok(())
    }

    /// Returns the error for a name without a waiting transaction. If one had the name, its end is durable: the name is
    /// free only after that.
    fn no_prepared(&self, name: &str) -> Result<Error> {
        self.check_open()?;
        Ok(Error::NoPrepared { name: name.to_owned() })
    }

    /// Lists the prepared transactions of the previous run again, and restores their table locks. The catalogue has
    /// been read; `known` are the trees of its tables.
    pub(crate) fn hold_again(&self, taken_over: Vec<TakenOver>, known: &[Tree]) -> Result<()> {
        let damage = |why| Storage::corrupted(&self.files.log, Place::File, why);
        let mut ends = BTreeSet::new();
        for taken in taken_over {
            let InDoubt { body, .. } = taken.in_doubt().clone();
            let note = TablesNote::decode(&body.note).map_err(|flaw| match flaw {
                RowFlaw::Malformed => damage("the note of a prepare record is malformed"),
                RowFlaw::Newer(_) => damage("the note of a prepare record is of a newer version"),
            })?;
            let ids = note.created.iter().map(|(_, row)| row.table).chain(note.dropped.iter().map(|&(table, _)| table));
            for table in ids {
                // ORDERING: hint. No other thread has the engine yet.
                self.last_table.fetch_max(table.0, Ordering::Relaxed);
            }
            if !note.dropped.iter().all(|&(table, _)| ends.insert(table)) {
                return Err(damage("prepare records drop a table twice").into());
            }
            let created = note.created.into_iter();
            let created =
                created.map(|(name, row)| catalogue::table_info(&self.trees, &name, row, Csn::ZERO)).collect();
            // A table that is known shares its tree with this transaction, and so learns of the drop.
            let tree = |(table, root)| match known.iter().find(|tree| tree.table() == table) {
                Some(tree) => tree.clone(),
                None => self.trees.tree(table, root),
            };
            let dropped = note.dropped.into_iter().map(tree).collect();
            let place = self
                .prepared
                .take_name(&body.name)
                .map_err(|_| damage("two transactions are prepared under a name"))?;
            let since = self.prepared.clock.now();
            let prepared = taken.hold_tables().map_err(damage)?;
            let _unresolved = Unresolved::here();
            place.fill(Waiting { prepared, label: body.label, since, created, dropped, _unresolved });
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
