//! Room in a leaf: its ghosts go, or it is split.

use crate::format::SLOT;
use crate::node::{Node, Row};
use crate::record::TreeKind;
use crate::tree::{Structure, Tree, record};
use foreshore_base::codec::Put;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Result, Xid};
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_txn::{Txn, UndoContext};
use foreshore_wal::Dep;

/// Largest body of a purge: every slot of a page.
const MAX_PURGE_BODY: usize = PAGE_SIZE / SLOT * 2;
/// Log that a purge takes.
const PURGE_COST: usize = change_cost(1, MAX_PURGE_BODY);

impl Tree {
    /// Makes room for `need` more bytes in the leaf of `key`: by taking out ghosts, else by a split.
    pub(crate) fn room_for_row(&self, txn: &mut Txn, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, PURGE_COST)?;
        let purge = self.to_purge(&leaf, need, |xid| txn.is_settled(xid))?;
        if self.purge(&mut Structure::of(txn), leaf, need, &purge)? {
            return Ok(());
        }
        txn.with_space(|txn| self.make_room(&mut Structure::of(txn), key, 0, need))
    }

    /// As [`room_for_row`](Self::room_for_row), for a row that comes back. A purge needs no page, which a full disk may not have. What it
    /// logs is less than what is charged for the bytes that it frees (see [`structure_cost`](crate::split::structure_cost)).
    pub(crate) fn room_for_undo(&self, context: &mut UndoContext<'_>, key: &[u8], need: usize) -> Result<()> {
        let leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of_undo(context), key, 0, PURGE_COST)?;
        let purge = self.to_purge(&leaf, need, |xid| context.is_settled(xid))?;
        if self.purge(&mut Structure::of_undo(context), leaf, need, &purge)? {
            return Ok(());
        }
        self.make_room(&mut Structure::of_undo(context), key, 0, need)
    }

    /// The body of a purge of the ghosts in a leaf that are not needed; empty if there are none, or `need` bytes are free.
    ///
    /// A ghost goes when its deletion is durable: a reader that then finds nothing where it was relies on nothing that
    /// may be lost. Locks go by keys and need no ghost. Where nothing else is left one of them stays, as after a
    /// rollback. No snapshot sees what was there before it, so no reader looks for its undo; at restart, where that is not
    /// yet so, nothing is purged.
    fn to_purge(&self, leaf: &ExclusiveGuard<'_>, need: usize, is_settled: impl Fn(Xid) -> bool) -> Result<Vec<u8>> {
        let damage = |why| self.corrupted(leaf.pid(), why);
        let node = self.parse(leaf.pid(), leaf)?;
        let mut body = Vec::new();
        if node.free() >= need {
            return Ok(body);
        }
        for at in 0..node.len() {
            let Row { header, .. } = node.row(at).map_err(damage)?;
            if header.is_ghost() && is_settled(header.xid) {
                body.put_u16(at as u16);
            }
        }
        if body.len() == 2 * node.len() && leaf.pid() != self.root {
            body.truncate(body.len() - 2);
        }
        Ok(body)
    }

    /// Logs a purge with that body, if it has one, and says whether the leaf has `need` free bytes now.
    fn purge(
        &self,
        structure: &mut Structure<'_>,
        mut leaf: ExclusiveGuard<'_>,
        need: usize,
        body: &[u8],
    ) -> Result<bool> {
        let pid = leaf.pid();
        if !body.is_empty() {
            let record = record(TreeKind::Purge, 0, 0, self.table, &[pid], body);
            structure.apply(&self.trees, &record, &mut [&mut leaf], Dep::none())?;
            self.trees.counters().purges.add(1);
        }
        Ok(Node::parse(&leaf).map_err(|why| self.corrupted(pid, why))?.free() >= need)
    }
}
