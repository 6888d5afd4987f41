//! Room in a leaf: its ghosts go, or it is split.

use crate::format::SLOT;
use crate::node::{Node, Row};
use crate::record::TreeKind;
use crate::tree::{Structure, Tree, record};
use foreshore_base::Result;
use foreshore_base::codec::Put;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_buffer::{ExclusiveGuard, change_cost};
use foreshore_txn::Txn;
use foreshore_wal::Dep;

/// Largest body of a purge: every slot of a page.
const MAX_PURGE_BODY: usize = PAGE_SIZE / SLOT * 2;

impl Tree {
    /// Makes room for `need` more bytes in the leaf of `key`: by taking out ghosts, else by a split.
    pub(crate) fn room_for_row(&self, txn: &mut Txn, key: &[u8], need: usize) -> Result<()> {
        if self.purge(txn, key, need)? {
            return Ok(());
        }
        txn.with_space(|txn| self.make_room(&mut Structure::of(txn), key, 0, need))
    }

    /// Takes the ghosts out of the leaf of `key` that nobody needs, and says whether it has `need` free bytes now.
    ///
    /// A ghost goes when its deletion is durable: who then finds nothing where it was relies on nothing that may be lost. One
    /// that ends a gap that somebody has scanned stays; a lock of the row itself goes by key and needs no ghost. Where nothing
    /// else is left one of them stays, as after a rollback. No snapshot sees what was there before it, so nobody looks for its
    /// undo; at restart, where that is not yet so, nothing is purged.
    fn purge(&self, txn: &mut Txn, key: &[u8], need: usize) -> Result<bool> {
        let bytes = change_cost(1, MAX_PURGE_BODY);
        let mut leaf: ExclusiveGuard<'_> = self.find(&mut Structure::of(txn), key, 0, bytes)?;
        let pid = leaf.pid();
        let damage = |why| self.corrupted(pid, why);
        let node = self.parse(pid, &leaf)?;
        if node.free() >= need {
            return Ok(true);
        }
        let mut body = Vec::new();
        for at in 0..node.len() {
            let Row { header, key, .. } = node.row(at).map_err(damage)?;
            if header.is_ghost() && txn.is_settled(header.xid) && !txn.is_gap_locked(self.table, key) {
                body.put_u16(at as u16);
            }
        }
        if body.len() == 2 * node.len() && pid != self.root {
            body.truncate(body.len() - 2);
        }
        if body.is_empty() {
            return Ok(false);
        }
        let record = record(TreeKind::Purge, 0, 0, self.table, &[pid], &body);
        // Whoever had a gap locked that ended here has given it up since, and must not have it again after a restart.
        let dep = Dep::none().observed(txn.ended());
        Structure::of(txn).apply(&self.trees, &record, &mut [&mut leaf], dep)?;
        self.trees.counters().purges.add(1);
        Ok(Node::parse(&leaf).map_err(damage)?.free() >= need)
    }
}
