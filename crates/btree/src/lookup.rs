//! Reads of one row.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::{GHOST, RowHeader};
use crate::node::{Damage, Goal, NO_VERSION, NodeView};
use crate::tree::{Structure, Tree};
use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_txn::{Seen, Snapshot, Txn, UndoPtr};

impl Tree {
    /// Copies the value of `key` to `out` and returns whether there is one. If there is none, `out` is empty. The
    /// isolation level of the transaction decides which version it sees.
    ///
    /// # Errors
    /// `KeyTooLarge`, `Deadlock`, `LockTimeout`, `TableDropped`, `SnapshotTooOld`, `Corrupted`, `Io`, `OutOfFrames`,
    /// `Poisoned`.
    pub fn get(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match txn.reads_at()? {
            Some(snapshot) => {
                let found = self.get_at(txn, &snapshot, key, out);
                txn.end_reads_at(snapshot);
                found
            }
            None => self.get_newest(txn, key, out),
        }
    }

    /// Copies the value of `key` as `snapshot` sees it, and returns whether there is one. Takes no lock.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn get_at(&self, txn: &mut Txn, snapshot: &Snapshot, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        self.check_key(key)?;
        let _operation = self.begin_read(txn, snapshot)?;
        self.read_at(txn, snapshot, key, out).map_err(|error| self.judge(txn, snapshot, error))
    }

    pub(crate) fn read_at(&self, txn: &mut Txn, snapshot: &Snapshot, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let mut restarts = Restarts::default();
        txn.forget_fetched();
        loop {
            let structure = &mut Structure::of_reader(txn);
            let leaf: ReadGuard<'_> = self.find_again(structure, Goal::At(key), 0, 0, &mut restarts)?;
            let row = copy_row(&leaf, key, out).map(|row| {
                row.map(|(header, ghost)| {
                    let seen = txn.see(snapshot, header.xid, UndoPtr::from_bits(header.undo), out, || leaf.holds());
                    (seen, ghost)
                })
            });
            if !leaf.holds() && !mutant("btree: versions are not validated") {
                txn.forget_fetched();
                self.restart(&mut restarts);
                continue;
            }
            txn.check_snapshot(snapshot)?;
            let damage = |why| self.corrupted(leaf.pid(), why);
            let is_there = match row.map_err(damage)? {
                Some((Seen::Newest, ghost)) => !ghost,
                Some((Seen::Older(flags), _)) => flags & GHOST == 0,
                Some((Seen::Nothing, _)) | None => false,
                Some((Seen::Spilled, _)) => {
                    drop(leaf);
                    txn.fetch(snapshot, 1)?;
                    continue;
                }
                Some((Seen::Unfinished, _)) => {
                    txn.forget_fetched();
                    self.restart(&mut restarts);
                    continue;
                }
                Some((Seen::Lost, _)) => return Err(damage(NO_VERSION)),
            };
            if !is_there {
                out.clear();
            }
            return Ok(is_there);
        }
    }
}

/// Copies the value of `key` from the leaf that covers it to `out`. Returns the header and whether the row is deleted.
pub(crate) fn copy_row(
    leaf: &ReadGuard<'_>,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<Option<(RowHeader, bool)>, Damage> {
    let node = NodeView::view(leaf.page())?;
    let Ok(at) = node.search_covered(key)? else { return Ok(None) };
    let row = node.place(at)?;
    out.clear();
    node.append_to(row.value, out);
    Ok(Some((row.header, row.header.is_ghost())))
}
