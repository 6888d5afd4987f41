//! Reads of one row.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::{GHOST, OVERFLOW, RowHeader};
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

    /// Returns whether there is a row of `key`. Reads and locks as [`get`](Self::get) does, but no large value.
    /// `scratch` is overwritten.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn contains(&self, txn: &mut Txn, key: &[u8], scratch: &mut Vec<u8>) -> Result<bool> {
        let Some(snapshot) = txn.reads_at()? else { return Ok(self.find_newest(txn, key, scratch)? & GHOST == 0) };
        Ok(self.find_by(txn, &snapshot, key, scratch)? & GHOST == 0)
    }

    /// Copies what the row of `key` holds as `snapshot` sees it, a value or a stub, in an operation of its own. Returns
    /// the flags of the row: [`GHOST`] if there is none.
    pub(crate) fn find_by(&self, txn: &mut Txn, snapshot: &Snapshot, key: &[u8], out: &mut Vec<u8>) -> Result<u16> {
        self.check_key(key)?;
        let _operation = self.begin_read(txn, snapshot)?;
        self.find_at(txn, snapshot, key, out).map_err(|error| self.judge(txn, snapshot, error))
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
        let flags = self.find_at(txn, snapshot, key, out)?;
        if flags & GHOST != 0 {
            out.clear();
        } else if flags & OVERFLOW != 0 {
            self.load_checked(txn, snapshot, out)?;
        }
        Ok(flags & GHOST == 0)
    }

    /// Copies what the row of `key` holds, a value or a stub, and returns its flags: [`GHOST`] if there is none.
    fn find_at(&self, txn: &mut Txn, snapshot: &Snapshot, key: &[u8], out: &mut Vec<u8>) -> Result<u16> {
        let mut restarts = Restarts::default();
        txn.forget_fetched();
        loop {
            let structure = &mut Structure::of_reader(txn);
            let leaf: ReadGuard<'_> = self.find_again(structure, Goal::At(key), 0, 0, &mut restarts)?;
            let row = copy_row(&leaf, key, out).map(|row| {
                row.map(|(header, _)| {
                    let seen = txn.see(snapshot, header.xid, UndoPtr::from_bits(header.undo), out, || leaf.holds());
                    (seen, header.flags)
                })
            });
            if !leaf.holds() && !mutant("btree: versions are not validated") {
                txn.forget_fetched();
                self.restart(&mut restarts);
                continue;
            }
            txn.check_snapshot(snapshot)?;
            let damage = |why| self.corrupted(leaf.pid(), why);
            return match row.map_err(damage)? {
                Some((Seen::Newest, flags) | (Seen::Older(flags), _)) => Ok(flags),
                Some((Seen::Nothing, _)) | None => Ok(GHOST),
                Some((Seen::Spilled, _)) => {
                    drop(leaf);
                    txn.fetch(snapshot, 1)?;
                    continue;
                }
                Some((Seen::Earlier(holder), _)) => {
                    drop(leaf);
                    txn.wait_earlier(snapshot, self.table(), key, holder)?;
                    continue;
                }
                Some((Seen::Unfinished, _)) => {
                    txn.forget_fetched();
                    self.restart(&mut restarts);
                    continue;
                }
                Some((Seen::Lost, _)) => Err(damage(NO_VERSION)),
            };
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
