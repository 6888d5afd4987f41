//! The undo of loads, and loads of transactions that a restart takes over.
//!
//! The rows of a load may have moved to other leaves since. An undo visits all leaves between the first key and the
//! last one. Only the removal in the last of them is the compensation. Those before belong to no transaction, and an
//! undo that is interrupted finds fewer rows the next time.
//!
//! **Which rows.** All rows between the two keys are those of the load. Others are kept out of the table as long as the
//! load may have to be undone, and later inserts of the transaction are undone by then. A deleted row is none of the
//! load, since its removal is undone too. It is left of an insert, and may keep a lock.
//!
//! **Several leaves.** A transaction that inserts one of the keys again depends on the removal in that leaf, and not on
//! the compensation in another one. So the compensation is durable before the undo ends, and the lock with it.

use crate::damage::UnreachableRow;
use crate::format::RowHeader;
use crate::load::UNDO_STRUCTURE;
use crate::load_record::{Loaded, encode_unload};
use crate::node::{self, Damage, Node};
use crate::record::TreeKind;
use crate::tree::{Structure, Tree, Trees, record, to_log};
use foreshore_base::{Error, Lsn, PageId, Result};
use foreshore_buffer::ExclusiveGuard;
use foreshore_buffer::format::CLR;
use foreshore_sync::pause;
use foreshore_txn::{TakeOver, UndoContext, UndoEntry, UndoPtr, Undoable};
use foreshore_wal::Dep;

/// Body of a compensation that removes one run of rows.
const ONE_RUN: usize = 4;

/// Returns the entries of a leaf from `from` on that are rows of a load, and where the next leaf begins if that may
/// have more of them.
fn rows_of(
    leaf: &Node<'_>,
    from: &[u8],
    loaded: &Loaded<'_>,
    is_it: impl Fn(&node::Row<'_>) -> bool,
) -> Result<(Vec<usize>, Option<Vec<u8>>), Damage> {
    let first = leaf.search(from)?.unwrap_or_else(|at| at);
    let mut entries = Vec::with_capacity(leaf.len());
    for at in first..leaf.len() {
        let row = leaf.row(at)?;
        if row.key > loaded.last {
            break;
        }
        if !row.header.is_ghost() && is_it(&row) {
            entries.push(at);
        }
    }
    let next = leaf.high()?.filter(|high| *high <= loaded.last);
    Ok((entries, next.map(<[u8]>::to_vec)))
}

impl Trees {
    /// Undoes a load.
    pub(crate) fn undo_load(&self, context: &mut UndoContext<'_>, entry: &UndoEntry<'_>, kind: TreeKind) -> Result<()> {
        let loaded = Loaded::of(kind, entry.body).map_err(|why| self.corrupted(PageId::ZERO, why))?;
        let tree = self.tree(entry.table, loaded.root);
        let (mut from, mut removed) = (loaded.first.to_vec(), Lsn::ZERO);
        loop {
            let error = match tree.unload(context, entry, (&loaded, &from), &mut removed) {
                Ok(Some(next)) => {
                    from = next;
                    pause::point("btree: a part of a load is undone");
                    continue;
                }
                Ok(None) => break,
                Err(error @ Error::Corrupted { .. }) if entry.keep.is_none() => error,
                Err(error) => return Err(error),
            };
            let quarantines = context.may_quarantine();
            if tree.decide_unreachable(context.session(), &from, error, quarantines)? == UnreachableRow::Retry {
                continue;
            }
            let next = tree.next_after_skip(context.session(), &from, quarantines)?;
            match next.filter(|next| &**next <= loaded.last) {
                Some(next) => from = next,
                None => {
                    // WAIT: help - or park behind the leader. No latch is held. The skip must not survive without the
                    // removals before it.
                    self.pool().log().force(removed)?;
                    context.pass_for_good(entry)?;
                    // WAIT: as above. A restart that does not find it removes all rows between the two keys.
                    return self.pool().log().force(context.last_lsn());
                }
            }
        }
        if removed > Lsn::ZERO {
            // WAIT: help - or park behind the leader. No latch is held.
            self.pool().log().force(context.last_lsn())?;
        }
        Ok(())
    }

    /// Gives the rows of a load to the transaction that a restart takes over, and enters the load as undo. Rows for
    /// which `is_own` returns true are its own in another way.
    pub(crate) fn hold_load(
        &self,
        txn: &mut dyn TakeOver,
        (lsn, loaded): (Lsn, &Loaded<'_>),
        tree: &Tree,
        is_own: impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        txn.exclude_others(tree.table());
        let (mut from, mut is_whole) = (loaded.first.to_vec(), true);
        loop {
            let error = match tree.hold_loaded(txn, (loaded, &from), &is_own) {
                Ok(Some(next)) => {
                    from = next;
                    continue;
                }
                Ok(None) => break,
                Err(error @ Error::Corrupted { .. }) => error,
                Err(error) => return Err(error),
            };
            let mut decide = |error| match tree.decide_unreachable(txn.session(), &from, error, true) {
                Err(cause) => {
                    is_whole = false;
                    txn.leave_out(cause).map(|()| UnreachableRow::Lost)
                }
                decided => decided,
            };
            if decide(error)? == UnreachableRow::Retry {
                continue;
            }
            let next = match tree.next_after_skip(txn.session(), &from, true) {
                Err(cause @ Error::Corrupted { .. }) => {
                    is_whole = false;
                    txn.leave_out(cause)?;
                    None
                }
                next => next?,
            };
            match next.filter(|next| &**next <= loaded.last) {
                Some(next) => from = next,
                None => break,
            }
        }
        if !is_whole {
            // The next restart finds it in the log.
            return Ok(());
        }
        // There may be no row now: the undo of a later removal that waits, too, brings rows back.
        let mut body = Vec::new();
        loaded.encode(&mut body);
        txn.reserve(body.len())?;
        let (kind, structure) = (TreeKind::Unload as u8, UNDO_STRUCTURE);
        txn.enter(&Undoable { kind, table: tree.table(), body: &body, before: None, structure }, lsn);
        Ok(())
    }
}

impl Tree {
    /// Removes the rows of a load from the leaf of `from`. Returns where the next leaf begins, or `None` if this was
    /// the last one, and the load is compensated. `removed` is the LSN of the last removal.
    fn unload(
        &self,
        context: &mut UndoContext<'_>,
        entry: &UndoEntry<'_>,
        (loaded, from): (&Loaded<'_>, &[u8]),
        removed: &mut Lsn,
    ) -> Result<Option<Vec<u8>>> {
        let (xid, is_at_restart) = (context.xid(), context.is_at_restart());
        let mut most = ONE_RUN;
        loop {
            let bytes = UndoContext::clr_cost(1, most);
            let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_undo(context), from, 0, bytes)?;
            let pid = leaf.pid();
            // At a restart headers do not tell: locks in them are not logged.
            let is_it = |row: &node::Row<'_>| is_at_restart || row.header.xid == xid;
            let rows = rows_of(&self.parse(pid, &leaf)?, from, loaded, is_it);
            let (entries, next) = rows.map_err(|why| self.corrupted(pid, why))?;
            let mut body = Vec::with_capacity(most);
            encode_unload(&entries, &mut body);
            if body.len() > most {
                most = body.len();
                continue;
            }
            let flags = if next.is_none() { CLR } else { 0 };
            let record = record(TreeKind::Unload, flags, 0, self.table(), &[pid], &body);
            let pages = &mut [&mut leaf];
            if next.is_some() {
                Structure::of_undo(context).apply(self.trees(), &record, pages, Dep::none())?;
                *removed = leaf.lsn();
            } else {
                self.trees().apply(&record, pages)?;
                // The compensation must not survive without the removals before it.
                context.log_clr(entry, &to_log(&record, &[&body]), Dep::none().page(*removed), pages);
            }
            self.note_ghost(pid, from);
            return Ok(next);
        }
    }

    /// Gives the rows of a load in the leaf of `from` to the transaction. Returns where the next leaf begins.
    /// Those that it has deleted since are given to it with their removal.
    fn hold_loaded(
        &self,
        txn: &mut dyn TakeOver,
        (loaded, from): (&Loaded<'_>, &[u8]),
        is_own: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>> {
        let mut leaf = self.leaf_of(txn, from)?;
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &leaf)?;
        let (entries, next) = rows_of(&node, from, loaded, |row| !is_own(row.key)).map_err(damage)?;
        let flags: Vec<u16> =
            entries.iter().map(|&at| Ok(node.row(at)?.header.flags)).collect::<Result<_, Damage>>().map_err(damage)?;
        for (&at, flags) in entries.iter().zip(flags) {
            let header = RowHeader { xid: txn.xid(), flags, undo: UndoPtr::ABSENT.bits() };
            node::set_header(&mut leaf, at, header).map_err(damage)?;
        }
        leaf.mark_dirty();
        Ok(next)
    }
}
