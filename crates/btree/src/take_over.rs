//! Prepared transactions after a restart: their rows are locked again, with the undo and older versions that memory
//! has lost.
//!
//! The pages have the rows as the last change left them. Two passes over the changes restore the rest:
//!
//! 1. From the newest to the oldest: compute the value before each change, which is the version that readers see.
//! 2. From the oldest to the newest: enter each change as undo.

use crate::before::before;
use crate::damage::UnreachableRow;
use crate::format::RowHeader;
use crate::load_record::Loaded;
use crate::node::{self, Damage, NO_WRITER};
use crate::record::{CreateTable, Delta, RowChange, RowInsert, RowLock, RowRestore, RowWrite, TreeKind, decode_erase};
use crate::split::structure_cost;
use crate::tree::{Structure, Tree, Trees};
use foreshore_base::codec::Put;
use foreshore_base::{Error, Lsn, PageId, Result, TableId, Xid};
use foreshore_buffer::ExclusiveGuard;
use foreshore_space::{CATALOGUE_ROOT, Purpose};
use foreshore_txn::{Before, LoggedChange, TakeOver, UndoPtr, Undoable};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Table and key of a row.
type RowKey<'a> = (TableId, &'a [u8]);

/// A change as its undo entry describes it.
struct Change<'a> {
    logged: &'a LoggedChange,
    root: PageId,
    key: &'a [u8],
    /// Kind and body of the undo entry.
    kind: TreeKind,
    body: Vec<u8>,
    /// The header of the row before the change; `None` if there was no row.
    header: Option<RowHeader>,
    /// Length of the common prefix of the values before and after the change.
    prefix: usize,
    /// Number of bytes between the common prefix and the common suffix, in the value after the change.
    cut: usize,
    /// The bytes between them in the value before the change.
    old: &'a [u8],
    /// The value before the change; not used if the row was deleted then. Empty if an older change of this transaction
    /// wrote that value. No reader sees such a value, and copies for all changes of a large row would be many times as
    /// large as the undo.
    value: Vec<u8>,
    /// The table that the change creates, if its row is one of the catalogue.
    creates: Option<TableId>,
    /// The rows of a load. Its key is that of the first one.
    loaded: Option<Loaded<'a>>,
}

impl<'a> Change<'a> {
    /// Decodes a change of a transaction whose records have `old_xid`, and whose rows get `new_xid`.
    fn of(logged: &'a LoggedChange, (old_xid, new_xid): (Xid, Xid)) -> Result<Self, Damage> {
        let kind = TreeKind::from_number(logged.kind).ok_or("a change of unknown kind")?;
        if logged.lsn == Lsn::ZERO {
            let lock = RowLock::of(RowChange { kind, body: &logged.body })?;
            let kind = TreeKind::RowLock;
            let header = renamed(lock.old_owner, old_xid, new_xid);
            let mut body = Vec::with_capacity(logged.body.len());
            RowLock { old_owner: header.owner(), ..lock }.encode(&mut body);
            let (root, key, header) = (lock.root, lock.key, Some(header));
            return Ok(Self {
                logged,
                root,
                key,
                kind,
                body,
                header,
                prefix: 0,
                cut: 0,
                old: &[],
                value: Vec::new(),
                creates: None,
                loaded: None,
            });
        }
        if matches!(kind, TreeKind::Load | TreeKind::Unload) {
            let loaded = Loaded::of(kind, &logged.body)?;
            let new_row = Self::of_new_row(logged, loaded.root, loaded.first, Vec::new());
            return Ok(Self { kind: TreeKind::Unload, loaded: Some(loaded), ..new_row });
        }
        if kind != TreeKind::CreateTable {
            return Self::of_row(logged, RowChange { kind, body: &logged.body }, (old_xid, new_xid));
        }
        let create = CreateTable::decode(&logged.body)?;
        let row = Self::of_row(logged, create.row, (old_xid, new_xid))?;
        let body = rename(kind, &logged.body, (old_xid, new_xid))?;
        Ok(Self { kind, body, root: CATALOGUE_ROOT, creates: Some(create.table), ..row })
    }

    /// Returns whether the row's writer before this change was the transaction itself, which has `xid` in rows.
    fn overwrites_own(&self, xid: Xid) -> bool {
        self.header.is_some_and(|header| header.xid == xid)
    }

    /// Returns whether this is only a lock of the row. It stands in the prepare record, and has no record of its own.
    fn is_lock(&self) -> bool {
        self.logged.lsn == Lsn::ZERO
    }

    fn of_row(logged: &'a LoggedChange, change: RowChange<'a>, (old_xid, new_xid): (Xid, Xid)) -> Result<Self, Damage> {
        let mut body = Vec::with_capacity(change.body.len());
        let (kind, restore, root) = match change.kind {
            TreeKind::RowInsert => {
                let RowInsert { root, key, .. } = RowInsert::decode(change.body)?;
                body.put_u64(root.0);
                body.put_short_bytes(key);
                return Ok(Self::of_new_row(logged, root, key, body));
            }
            TreeKind::RowWrite => {
                let write = RowWrite::decode(change.body)?;
                (TreeKind::RowRestore, write.restore(), write.root)
            }
            // A rollback that was copied forward has logged its undo entries themselves.
            kind @ (TreeKind::RowErase | TreeKind::RowRestore) => {
                let (root, compensation) = change.body.split_first_chunk().ok_or("an undo entry that is cut off")?;
                let root = PageId(u64::from_le_bytes(*root));
                if kind == TreeKind::RowErase {
                    body.put(change.body);
                    return Ok(Self::of_new_row(logged, root, decode_erase(compensation)?, body));
                }
                (kind, RowRestore::decode(compensation)?, root)
            }
            _ => return Err("a change that is none of a row"),
        };
        let header = renamed(restore.owner, old_xid, new_xid);
        body.put_u64(root.0);
        RowRestore { owner: header.owner(), ..restore }.encode(&mut body);
        let RowRestore { key, prefix, cut, middle: old, .. } = restore;
        let (header, value) = (Some(header), Vec::new());
        Ok(Self { logged, root, key, kind, body, header, prefix, cut, old, value, creates: None, loaded: None })
    }

    fn of_new_row(logged: &'a LoggedChange, root: PageId, key: &'a [u8], body: Vec<u8>) -> Self {
        let (kind, value) = (TreeKind::RowErase, Vec::new());
        Self {
            logged,
            root,
            key,
            kind,
            body,
            header: None,
            prefix: 0,
            cut: 0,
            old: &[],
            value,
            creates: None,
            loaded: None,
        }
    }
}

/// Returns the body of an undo entry of `kind`, with `new_xid` in place of `old_xid` as the former owner of the row.
pub(crate) fn rename(kind: TreeKind, body: &[u8], (old_xid, new_xid): (Xid, Xid)) -> Result<Vec<u8>, Damage> {
    let mut out = Vec::with_capacity(body.len());
    match kind {
        TreeKind::RowWrite => {
            let write = RowWrite::decode(body)?;
            RowWrite { old_owner: renamed(write.old_owner, old_xid, new_xid).owner(), ..write }.encode(&mut out);
        }
        TreeKind::RowRestore => {
            let (root, compensation) = body.split_first_chunk::<8>().ok_or("an undo entry that is cut off")?;
            let restore = RowRestore::decode(compensation)?;
            out.put(root);
            RowRestore { owner: renamed(restore.owner, old_xid, new_xid).owner(), ..restore }.encode(&mut out);
        }
        TreeKind::CreateTable => {
            let create = CreateTable::decode(body)?;
            let row = rename(create.row.kind, create.row.body, (old_xid, new_xid))?;
            CreateTable { row: RowChange { kind: create.row.kind, body: &row }, ..create }.encode(&mut out);
        }
        // Other kinds name no former owner.
        _ => out.put(body),
    }
    assert_eq!(out.len(), body.len(), "bytes of an undo entry under {new_xid}, and of the one under {old_xid}");
    Ok(out)
}

/// Returns the header that `owner` encodes. If its xid is `old_xid`, it gets `new_xid`.
fn renamed(owner: u64, old_xid: Xid, new_xid: Xid) -> RowHeader {
    let header = RowHeader::from_owner(owner);
    if header.xid == old_xid { RowHeader { xid: new_xid, ..header } } else { header }
}

impl Trees {
    /// Implements [`foreshore_txn::ResourceManager::take_over`].
    pub(crate) fn hold_again(&self, txn: &mut dyn TakeOver, changes: &[LoggedChange]) -> Result<()> {
        let damage = |why| self.corrupted(PageId::ZERO, why);
        let names = (txn.was(), txn.xid());
        let mut changes: Vec<Change<'_>> =
            changes.iter().map(|logged| Change::of(logged, names).map_err(damage)).collect::<Result<_>>()?;
        // Locks come before all changes, so a rollback reaches them last. By then the tables that the transaction has
        // created are gone. Locks in these are left out.
        let created: HashSet<TableId> = changes.iter().filter_map(|change| change.creates).collect();
        changes.retain(|change| !(change.is_lock() && created.contains(&change.logged.table)));
        // For each row the index of the oldest change met so far, and the value before that change.
        let mut values: HashMap<RowKey<'_>, (usize, Vec<u8>)> = HashMap::new();
        // Rows that cannot be reached: for good, or until the next restart.
        let mut lost: HashSet<RowKey<'_>> = HashSet::new();
        for at in (0..changes.len()).rev() {
            if changes[at].loaded.is_some() {
                continue;
            }
            let Change { logged, root, key, .. } = changes[at];
            let row = (logged.table, key);
            if lost.contains(&row) {
                continue;
            }
            let after = match values.remove(&row) {
                Some((newer, value)) => {
                    if !changes[newer].overwrites_own(txn.xid()) {
                        changes[newer].value.clone_from(&value);
                    }
                    value
                }
                None => match self.tree(logged.table, root).held_row_or_lost(txn, key) {
                    Ok(Some(value)) => value,
                    Ok(None) => {
                        lost.insert(row);
                        continue;
                    }
                    Err(cause) => {
                        txn.leave_out(cause)?;
                        lost.insert(row);
                        continue;
                    }
                },
            };
            let Change { header, prefix, cut, old, .. } = changes[at];
            if header.is_some() {
                let value = Delta::splice(&after, prefix, cut, old).map_err(damage)?;
                values.insert(row, (at, value));
            }
        }
        let loads = Loads::of(&changes);
        // Of a row that was loaded no earlier value is needed.
        for ((table, key), (oldest, value)) in values {
            if !loads.has(table, key) {
                changes[oldest].value = value;
            }
        }
        self.hold_all(txn, &changes, &loads, &lost)
    }

    /// Enters all changes but those of lost rows.
    fn hold_all(
        &self,
        txn: &mut dyn TakeOver,
        changes: &[Change<'_>],
        loads: &Loads,
        lost: &HashSet<RowKey<'_>>,
    ) -> Result<()> {
        let mut newest: HashMap<RowKey<'_>, UndoPtr> = HashMap::new();
        for change in changes {
            if let Some(loaded) = &change.loaded {
                let (table, lsn) = (change.logged.table, change.logged.lsn);
                let is_own = |key: &[u8]| loads.inserts.contains(&(table, key.to_vec()));
                self.hold_load(txn, (lsn, loaded), &self.tree(table, loaded.root), is_own)?;
                continue;
            }
            if lost.contains(&(change.logged.table, change.key)) {
                Self::enter_lost(txn, change)?;
                continue;
            }
            let row = newest.entry((change.logged.table, change.key)).or_insert_with(|| {
                if loads.has(change.logged.table, change.key) { UndoPtr::ABSENT } else { UndoPtr::NULL }
            });
            *row = self.hold_row(txn, change, *row)?;
        }
        Ok(())
    }

    /// Enters the change of a row that cannot be reached, so that the rollback logs the skip. A loser's change is not
    /// entered, because the log already has the skip. Neither is a lock, which is not logged.
    fn enter_lost(txn: &mut dyn TakeOver, change: &Change<'_>) -> Result<()> {
        let Change { logged, kind, ref body, .. } = *change;
        if txn.is_loser() || logged.lsn == Lsn::ZERO {
            return Ok(());
        }
        txn.reserve(body.len())?;
        txn.enter(&Undoable { kind: kind as u8, table: logged.table, body, before: None, structure: 0 }, logged.lsn);
        Ok(())
    }

    /// Enters one change as undo, and stores the pointer to the entry in the row. `previous` is the entry of the row's
    /// last change before this one, or null.
    fn hold_row(&self, txn: &mut dyn TakeOver, change: &Change<'_>, previous: UndoPtr) -> Result<UndoPtr> {
        let Change { logged, key, kind, ref body, .. } = *change;
        let earlier = change.header.map(|header| {
            let Change { prefix, old, .. } = *change;
            // The header may name this transaction although it has no earlier entry for the row. Then the row existed
            // before the transaction.
            let is_first = previous == UndoPtr::NULL && header.xid == txn.xid();
            let has_image = is_first || header.xid != txn.xid();
            let (differs, at) =
                if has_image { (prefix..prefix + old.len(), RowWrite::old_middle(key)) } else { (0..0, 0) };
            let before = before(header, &change.value, differs, at);
            Before { undo: previous, xid: if is_first { Xid::ZERO } else { header.xid }, ..before }
        });
        let image = earlier.map_or(0, |before| before.front.len() + before.back.len());
        txn.reserve(body.len() + image)?;
        let tree = self.tree(logged.table, change.root);
        let mut leaf = tree.leaf_of(txn, key)?;
        if change.header.is_some_and(|header| !txn.may_change_row_of(header.xid)) {
            return Err(self.corrupted(leaf.pid(), NO_WRITER));
        }
        let structure = structure_cost(change.old.len().saturating_sub(change.cut));
        let undo = Undoable { kind: kind as u8, table: logged.table, body, before: earlier, structure };
        let pointer = txn.enter(&undo, logged.lsn);
        assert!(
            pointer != UndoPtr::NULL && pointer != previous,
            "a row held again leads from {previous:?} to {pointer:?}"
        );
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = tree.parse(pid, &leaf)?;
        let at = node.search(key).map_err(damage)?.map_err(|_| damage(GONE))?;
        let flags = node.row(at).map_err(damage)?.header.flags;
        let header = RowHeader { xid: txn.xid(), flags, undo: pointer.bits() };
        node::set_header(&mut leaf, at, header).map_err(damage)?;
        leaf.mark_dirty();
        Ok(pointer)
    }
}

/// The loads of a transaction, and the rows that it has inserted one by one.
struct Loads {
    /// The first and the last key of each load.
    spans: BTreeMap<(TableId, Vec<u8>), Vec<u8>>,
    /// Empty if there is no load.
    inserts: HashSet<(TableId, Vec<u8>)>,
}

impl Loads {
    fn of(changes: &[Change<'_>]) -> Self {
        let span = |change: &Change<'_>| {
            let loaded = change.loaded.as_ref()?;
            Some(((change.logged.table, loaded.first.to_vec()), loaded.last.to_vec()))
        };
        let spans: BTreeMap<_, _> = changes.iter().filter_map(span).collect();
        let mut inserts = HashSet::new();
        if !spans.is_empty() {
            let rows = changes.iter().filter(|change| change.header.is_none() && change.loaded.is_none());
            inserts.extend(rows.map(|change| (change.logged.table, change.key.to_vec())));
        }
        Self { spans, inserts }
    }

    /// Returns whether the row was loaded. No row of a load existed before, and none was inserted one by one.
    fn has(&self, table: TableId, key: &[u8]) -> bool {
        if self.spans.is_empty() {
            return false;
        }
        let (from, to) = ((table, Vec::new()), (table, key.to_vec()));
        let load = self.spans.range(from..=to.clone()).next_back();
        load.is_some_and(|(_, last)| key <= &**last) && !self.inserts.contains(&to)
    }
}

const GONE: Damage = "a row of a prepared transaction is gone";

impl Tree {
    pub(crate) fn leaf_of(&self, txn: &mut dyn TakeOver, key: &[u8]) -> Result<ExclusiveGuard<'_>> {
        let (purpose, pages) = (Purpose::Rollback, Purpose::Rollback);
        self.find(&mut Structure { session: txn.session(), purpose, pages, links: true }, key, 0, 0)
    }

    /// Returns [`held_row`](Self::held_row), or `None` if damage hides the row for good.
    fn held_row_or_lost(&self, txn: &mut dyn TakeOver, key: &[u8]) -> Result<Option<Vec<u8>>> {
        loop {
            match self.held_row(txn, key) {
                Err(error @ Error::Corrupted { .. }) => {
                    match self.decide_unreachable(txn.session(), key, error, true)? {
                        UnreachableRow::Retry => {}
                        UnreachableRow::Lost => return Ok(None),
                    }
                }
                held => return held.map(Some),
            }
        }
    }

    /// Returns the value of a row that the transaction holds, alive or deleted.
    fn held_row(&self, txn: &mut dyn TakeOver, key: &[u8]) -> Result<Vec<u8>> {
        let leaf = self.leaf_of(txn, key)?;
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &leaf)?;
        let at = node.search(key).map_err(damage)?.map_err(|_| damage(GONE))?;
        Ok(node.row(at).map_err(damage)?.value.to_vec())
    }
}
