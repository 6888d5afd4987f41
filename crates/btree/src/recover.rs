//! Redo and undo of the records of trees, and redo of those of the space layer.

use crate::apply::apply;
use crate::damage::UnreachableRow;
use crate::format::{CHAINS, RowHeader};
use crate::load_record::Loaded;
use crate::node;
use crate::record::{
    CreateTable, DropTable, RowChange, RowInsert, RowLock, RowRestore, RowWrite, TreeKind, decode_erase,
};
use crate::rows_record::{DeletedRow, RESTORE_BODY, RowsDelete};
use crate::sound::assert_fits;
use crate::take_over::rename;
use crate::tree::{Structure, Trees, record, to_log};
use foreshore_base::codec::Put;
use foreshore_base::{Error, Lsn, PageId, Result, Xid};
use foreshore_buffer::format::{CLR, SPACE_KINDS};
use foreshore_buffer::{ChangeRecord, ExclusiveGuard, Pinned};
use foreshore_space::CHAINS_ROOT;
use foreshore_sync::model::mutant;
use foreshore_txn::{LoggedChange, ResourceManager, TakeOver, UndoContext, UndoEntry};
use foreshore_wal::Dep;

/// The location of an undo entry's row, and the compensation of its change.
struct Compensation<'a> {
    root: PageId,
    key: &'a [u8],
    kind: TreeKind,
    body: Vec<u8>,
    /// Bytes that the row grows by.
    grow: usize,
}

/// Bytes by which [`to_ghost`] may be longer than the body of a [`TreeKind::RowErase`].
pub(crate) const GHOST_BODY: usize = 16;

/// Returns the body of the [`TreeKind::RowRestore`] that leaves a ghost where a row was.
pub(crate) fn to_ghost(key: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(key.len() + GHOST_BODY);
    RowRestore { owner: RowHeader::GONE.owner(), key, prefix: 0, cut: 0, middle: &[] }.encode(&mut body);
    let more = body.len() - key.len();
    assert!(more <= 2 + GHOST_BODY, "the body that leaves a ghost is {more} bytes longer than its key");
    body
}

impl<'a> Compensation<'a> {
    /// Changes the compensation of an insert so that it leaves a ghost. This is done if the row stays locked, or if the
    /// leaf has no other entry. Otherwise the rollback of a large transaction would leave many empty leaves.
    fn leave_ghost(&mut self) {
        (self.kind, self.body) = (TreeKind::RowRestore, to_ghost(self.key));
    }

    fn of(change: RowChange<'a>) -> Result<Self, node::Damage> {
        let mut body = Vec::with_capacity(change.body.len());
        match change.kind {
            TreeKind::RowInsert => {
                let RowInsert { root, key, .. } = RowInsert::decode(change.body)?;
                body.put_short_bytes(key);
                Ok(Self { root, key, kind: TreeKind::RowErase, body, grow: 0 })
            }
            TreeKind::RowWrite => {
                let write = RowWrite::decode(change.body)?;
                let restore = write.restore();
                restore.encode(&mut body);
                let grow = restore.middle.len().saturating_sub(restore.cut);
                Ok(Self { root: write.root, key: write.key, kind: TreeKind::RowRestore, body, grow })
            }
            // This entry comes from memory, or from a copy in the log. The compensation follows the root.
            kind @ (TreeKind::RowErase | TreeKind::RowRestore) => {
                let (root, compensation) = change.body.split_first_chunk().ok_or("an undo entry that is cut off")?;
                let root = PageId(u64::from_le_bytes(*root));
                body.extend_from_slice(compensation);
                if kind == TreeKind::RowErase {
                    return Ok(Self { root, key: decode_erase(compensation)?, kind, body, grow: 0 });
                }
                let restore = RowRestore::decode(compensation)?;
                let grow = restore.middle.len().saturating_sub(restore.cut);
                Ok(Self { root, key: restore.key, kind, body, grow })
            }
            _ => Err("an undo entry of unknown kind"),
        }
    }
}

/// A root that is freed together with its row in the catalogue.
pub(crate) struct FreedRoot<'a> {
    pub(crate) root: PageId,
    pub(crate) map: &'a Pinned<'a>,
    /// The last LSN of the root.
    pub(crate) lsn: Lsn,
}

impl ResourceManager for Trees {
    fn redo(&self, record: &ChangeRecord<'_>, index: usize, page: &mut ExclusiveGuard<'_>) -> Result<()> {
        if SPACE_KINDS.contains(&record.kind) {
            return self.space().redo(record, index, page);
        }
        let pid = page.pid();
        apply(record, index, page).map_err(|why| self.corrupted(pid, why))
    }

    fn undo(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<bool> {
        let mut undone = self.undo_entry(context, entry);
        while let Err(error @ Error::Corrupted { .. }) = undone {
            let Some((root, key)) = place_of(entry).filter(|_| entry.keep.is_none()) else { return Err(error) };
            let quarantines = context.may_quarantine();
            undone =
                match self.tree(entry.table, root).decide_unreachable(context.session(), key, error, quarantines)? {
                    UnreachableRow::Retry => self.undo_entry(context, entry),
                    // A lock is not logged.
                    UnreachableRow::Lost if entry.lsn == Lsn::ZERO => Ok(false),
                    UnreachableRow::Lost => context.pass_for_good(entry).map(|()| false),
                };
        }
        undone
    }

    fn row_of<'c>(&self, kind: u8, body: &'c [u8]) -> Result<Option<&'c [u8]>> {
        let row = match TreeKind::from_number(kind) {
            Some(TreeKind::CreateTable | TreeKind::Load | TreeKind::Unload) => return Ok(None),
            Some(TreeKind::RowInsert) => RowInsert::decode(body).map(|insert| (insert.root, insert.key)),
            Some(TreeKind::RowWrite) => RowWrite::decode(body).map(|write| (write.root, write.key)),
            Some(kind @ (TreeKind::RowErase | TreeKind::RowRestore)) => {
                RowLock::of(RowChange { kind, body }).map(|row| (row.root, row.key))
            }
            _ => Err("a change of unknown kind"),
        };
        let (root, key) = row.map_err(|why| self.corrupted(PageId::ZERO, why))?;
        // The row of a chain changes back only after the row of a table that refers to the chain.
        Ok((root != CHAINS_ROOT).then_some(key))
    }

    fn is_row_change(&self, kind: u8) -> bool {
        use TreeKind::{RowInsert, RowWrite, RowsDelete};
        matches!(TreeKind::from_number(kind), Some(RowInsert | RowWrite | RowsDelete))
    }

    fn shorten(&self, kind: u8, body: &[u8]) -> Result<Option<(u8, Vec<u8>)>> {
        if TreeKind::from_number(kind) != Some(TreeKind::Load) {
            return Ok(None);
        }
        let loaded = Loaded::of(TreeKind::Load, body).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let mut short = Vec::new();
        loaded.encode(&mut short);
        Ok(Some((TreeKind::Unload as u8, short)))
    }

    fn split(&self, kind: u8, body: &[u8]) -> Result<Vec<(u8, Vec<u8>)>> {
        if TreeKind::from_number(kind) != Some(TreeKind::RowsDelete) {
            return Err(self.corrupted(PageId::ZERO, "a record of several changes of unknown kind"));
        }
        let RowsDelete { root, rows, .. } =
            RowsDelete::decode(body).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let single = |row: DeletedRow<'_>| {
            let mut undo = Vec::with_capacity(RESTORE_BODY + row.key.len());
            row.encode_undo(root, &mut undo);
            (TreeKind::RowRestore as u8, undo)
        };
        Ok(rows.into_iter().map(single).collect())
    }

    fn rename(&self, kind: u8, body: &[u8], was: Xid, is: Xid) -> Result<Vec<u8>> {
        let renamed = TreeKind::from_number(kind).ok_or("an undo entry of unknown kind");
        renamed.and_then(|kind| rename(kind, body, (was, is))).map_err(|why| self.corrupted(PageId::ZERO, why))
    }

    fn take_over(&self, again: &mut dyn TakeOver, changes: &[LoggedChange]) -> Result<()> {
        self.hold_again(again, changes)
    }
}

/// Returns root and key of an undo entry's row.
fn place_of<'a>(entry: &UndoEntry<'a>) -> Option<(PageId, &'a [u8])> {
    let change = match TreeKind::from_number(entry.kind)? {
        TreeKind::CreateTable => CreateTable::decode(entry.body).ok()?.row,
        TreeKind::RowLock => return RowLock::decode(entry.body).ok().map(|lock| (lock.root, lock.key)),
        kind => RowChange { kind, body: entry.body },
    };
    Compensation::of(change).ok().map(|way| (way.root, way.key))
}

impl Trees {
    fn undo_entry(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>) -> Result<bool> {
        match TreeKind::from_number(entry.kind) {
            Some(kind) if entry.lsn == Lsn::ZERO => {
                if kind != TreeKind::RowLock && !entry.is_undone {
                    return Err(self.corrupted(PageId::ZERO, "an undo entry of a change that was not logged"));
                }
                self.undo_lock(context, entry, kind).map(|()| false)
            }
            // The transaction keeps the lock of the table.
            Some(kind @ (TreeKind::Load | TreeKind::Unload)) => self.undo_load(context, entry, kind).map(|()| false),
            // The transaction keeps the lock of the catalogue, and the entry refers to a dropped table.
            Some(TreeKind::CreateTable) => {
                self.undo_create(context, &UndoEntry { keep: None, ..*entry }).map(|()| false)
            }
            Some(kind) => {
                let keep = entry.keep.filter(|_| !mutant("btree: a savepoint gives rows back"));
                let entry = UndoEntry { keep, ..*entry };
                self.undo_row(context, &entry, RowChange { kind, body: entry.body }, None)?;
                if entry.table == CHAINS {
                    // The chain that the transaction had adopted has its row again.
                    self.note_chain();
                }
                Ok(keep.is_some())
            }
            None => Err(self.corrupted(PageId::ZERO, "an undo entry of unknown kind")),
        }
    }

    /// Undoes the change of a row, wherever the row is by now, and releases its lock unless `entry.keep` says
    /// otherwise.
    pub(crate) fn undo_row(
        &self,
        context: &mut UndoContext<'_>,
        entry: &UndoEntry<'_>,
        change: RowChange<'_>,
        freed: Option<FreedRoot<'_>>,
    ) -> Result<()> {
        let mut way = Compensation::of(change).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let has_predecessor = way.kind == TreeKind::RowRestore;
        if let Some(freed) = &freed {
            let row = std::mem::take(&mut way.body);
            DropTable { root: freed.root, row: RowChange { kind: way.kind, body: &row } }.encode(&mut way.body);
            way.kind = TreeKind::DropTable;
        }
        let (key, grow) = (way.key, way.grow);
        let tree = self.tree(entry.table, way.root);
        let most = way.body.len() + GHOST_BODY;
        let bytes = UndoContext::clr_cost(2, most);
        loop {
            let mut leaf: ExclusiveGuard<'_> = tree.find(&mut Structure::of_undo(context), key, 0, bytes)?;
            let pid = leaf.pid();
            let damage = |why| self.corrupted(pid, why);
            let node = tree.parse(pid, &leaf)?;
            let at = node.search(key).map_err(damage)?.map_err(|_| damage("a row to be taken back is gone"))?;
            let row = node.row(at).map_err(damage)?;
            if !context.may_hold(row.header.xid) {
                return Err(damage("a row to be taken back has another writer"));
            }
            if grow > node.free() {
                drop(leaf);
                tree.room_for_undo(context, key, grow)?;
                continue;
            }
            let is_last = node.len() == 1 && pid != tree.root();
            let stays = is_last || entry.keep.is_some();
            if way.kind == TreeKind::RowErase && stays {
                way.leave_ghost();
            }
            let Compensation { kind, ref body, .. } = way;
            assert_fits(body, most, "a compensation");
            match &freed {
                None => {
                    let record = record(kind, CLR, 0, entry.table, &[pid], body);
                    self.apply(&record, &mut [&mut leaf])?;
                    context.log_clr(entry, &to_log(&record, &[body]), Dep::none(), &mut [&mut leaf]);
                }
                Some(freed) => {
                    let mut map = freed.map.exclusive();
                    let record = record(kind, CLR, 0, entry.table, &[pid, map.pid()], body);
                    self.apply(&record, &mut [&mut leaf, &mut map])?;
                    let dep = Dep::none().freed(freed.lsn);
                    context.log_clr(entry, &to_log(&record, &[body]), dep, &mut [&mut leaf, &mut map]);
                }
            }
            tree.note_unless_row(pid, &tree.parse(pid, &leaf)?, key).map_err(damage)?;
            if let Some(entry) = entry.keep {
                // Not logged: a crash ends the lock.
                return tree.edit_header(&mut leaf, key, |old| RowHeader {
                    xid: context.xid(),
                    undo: entry.bits(),
                    ..old
                });
            }
            // The previous owner has the row again, with its older versions.
            if has_predecessor && !mutant("btree: a rollback keeps the undo pointer") {
                tree.point_to_undo(&mut leaf, key, entry.next)?;
            }
            return Ok(());
        }
    }

    /// Restores the former owner in the header of a locked row. The commit of that owner may not be durable yet, and
    /// readers of the row must learn of it.
    fn undo_lock(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>, kind: TreeKind) -> Result<()> {
        let lock = RowLock::of(RowChange { kind, body: entry.body });
        let lock = lock.map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let tree = self.tree(entry.table, lock.root);
        let mut leaf: ExclusiveGuard<'_> = tree.find(&mut Structure::of_undo(context), lock.key, 0, 0)?;
        let mut holder = Xid::ZERO;
        let former = RowHeader { undo: entry.next.bits(), ..RowHeader::from_owner(lock.old_owner) };
        tree.edit_header(&mut leaf, lock.key, |old| {
            holder = old.xid;
            if holder == context.xid() { former } else { old }
        })?;
        if holder != context.xid() {
            return Err(self.corrupted(leaf.pid(), "a locked row has another owner"));
        }
        if former.is_ghost() {
            tree.note_ghost(leaf.pid(), lock.key);
        }
        leaf.mark_dirty();
        Ok(())
    }
}
