//! Reading one row.

use crate::descend::{Access, ReadGuard, Restarts};
use crate::format::{GHOST, RowHeader};
use crate::node::{Damage, NO_VERSION, NO_WRITER, NodeView};
use crate::tree::{Structure, Tree};
use foreshore_base::Result;
use foreshore_lock::{TableMode, Target};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread;
use foreshore_txn::{RowHolder, Seen, Snapshot, Txn, UndoPtr};

impl Tree {
    /// Copies the value of `key` to `out` and returns whether there is one; if not, `out` is empty. What it sees is up to the
    /// isolation of the transaction.
    ///
    /// # Errors
    /// `KeyTooLarge`, `Deadlock`, `LockTimeout`, `SnapshotTooOld`, `TooManyTransactions`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn get(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        match txn.reads_at()? {
            Some(snapshot) => self.get_at(txn, &snapshot, key, out),
            None => self.get_newest(txn, key, out),
        }
    }

    /// As [`get`](Self::get), by a snapshot.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_at(&self, txn: &mut Txn, snapshot: &Snapshot, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Self::check_key(key)?;
        // Against its end. Rows are not locked.
        self.lock(txn, TableMode::IntentShared)?;
        let mut restarts = Restarts::default();
        loop {
            let leaf: ReadGuard<'_> = self.find_again(&mut Structure::of(txn), key, 0, 0, &mut restarts)?;
            let row = copy_row(&leaf, key, out).map(|row| {
                row.map(|(header, ghost)| {
                    let seen = txn.see(snapshot, header.xid, UndoPtr::from_bits(header.undo), out, || leaf.holds());
                    (seen, ghost)
                })
            });
            if !leaf.holds() && !mutant("btree: versions are not validated") {
                self.restart(&mut restarts);
                continue;
            }
            txn.check_snapshot(snapshot)?;
            let damage = |why| self.corrupted(leaf.pid(), why);
            let is_there = match row.map_err(damage)? {
                Some((Seen::Newest, ghost)) => !ghost,
                Some((Seen::Older(flags), _)) => flags & GHOST == 0,
                Some((Seen::Nothing, _)) | None => false,
                Some((Seen::Lost, _)) => return Err(damage(NO_VERSION)),
            };
            if !is_there {
                out.clear();
            }
            return Ok(is_there);
        }
    }

    /// Copies the value of `key` to `out` and returns whether there is one, whatever the isolation. The answer holds to the
    /// end of the transaction: the key is locked shared, whether it exists or not. Once the transaction has read more rows
    /// than there is memory for locks, the table is.
    ///
    /// # Errors
    /// `KeyTooLarge`, `Deadlock`, `LockTimeout`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    pub fn get_newest(&self, txn: &mut Txn, key: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        Self::check_key(key)?;
        self.lock(txn, TableMode::IntentShared)?;
        self.share(txn, Target::row(self.table, key))?;
        let mut restarts = Restarts::default();
        loop {
            // From here on a writer finds this reader's lock, or this reader finds the writer in the header.
            let leaf: ReadGuard<'_> = self.find_again(&mut Structure::of(txn), key, 0, 0, &mut restarts)?;
            let row = copy_row(&leaf, key, out);
            // Before the validation: a version that still holds then says that nobody has rolled this row back meanwhile, so a
            // writer that has ended has committed.
            let early = mutant("btree: validate before the holder is asked for") && leaf.holds() && {
                // The writer needs the time of a whole rollback.
                thread::yield_now();
                true
            };
            let row = row.map(|row| row.map(|(header, ghost)| (txn.row_holder(header.xid), ghost)));
            if !early && !leaf.holds() {
                self.restart(&mut restarts);
                continue;
            }
            let damage = |why| self.corrupted(leaf.pid(), why);
            match row.map_err(damage)? {
                Some((RowHolder::Unknown, _)) => return Err(damage(NO_WRITER)),
                Some((RowHolder::Other(holder), _)) => {
                    drop(leaf);
                    txn.wait_row(self.table, key, holder)?;
                }
                Some((RowHolder::Nobody | RowHolder::Me, false)) => return Ok(true),
                Some((RowHolder::Nobody | RowHolder::Me, true)) | None => {
                    out.clear();
                    return Ok(false);
                }
            }
        }
    }
}

/// Copies the value of `key` in a leaf to `out`, and returns the header and whether the row is deleted.
fn copy_row(leaf: &ReadGuard<'_>, key: &[u8], out: &mut Vec<u8>) -> Result<Option<(RowHeader, bool)>, Damage> {
    let node = NodeView::view(leaf.page())?;
    let Ok(at) = node.search(key)? else { return Ok(None) };
    let row = node.place(at)?;
    out.clear();
    node.append_to(row.value, out);
    Ok(Some((row.header, row.header.is_ghost())))
}
