//! Values that are written or read in parts, so that no whole one is in memory.

use super::read::ChainReader;
use super::write::ChainWriter;
use crate::format::{GHOST, OVERFLOW};
use crate::intent::Intent;
use crate::row::Stored;
use crate::tree::Tree;
use foreshore_base::Result;
use foreshore_lock::LockWait;
use foreshore_txn::{SnapshotRef, Txn};
use std::ops::Range;

/// A value of a row that is read in parts, made by [`Tree::open_value`].
///
/// It stays as it is for as long as its transaction runs, also if the transaction itself replaces it.
#[derive(Debug)]
pub struct OpenValue {
    /// The snapshot that keeps its pages; `None` if a lock of the row does.
    snapshot: Option<SnapshotRef>,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// A value that lies in its row.
    Small(Vec<u8>),
    Large(ChainReader),
}

impl OpenValue {
    /// Returns its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Small(bytes) => bytes.len() as u64,
            Content::Large(chain) => chain.len(),
        }
    }

    /// Returns whether it has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Tree {
    /// Returns the value of `key` to read it in parts; `None` if there is no row. Reads and locks as
    /// [`get`](Self::get) does, but no page of a large value.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn open_value(&self, txn: &mut Txn, key: &[u8]) -> Result<Option<OpenValue>> {
        let (snapshot, mut found) = (txn.reads_at()?, Vec::new());
        let flags = match &snapshot {
            Some(snapshot) => self.find_by(txn, snapshot, key, &mut found)?,
            None => self.find_newest(txn, key, &mut found)?,
        };
        if flags & GHOST != 0 {
            return Ok(None);
        }
        let content = match flags & OVERFLOW {
            0 => Content::Small(found),
            _ => Content::Large(ChainReader::new(self.stub(&found)?)),
        };
        Ok(Some(OpenValue { snapshot, content }))
    }

    /// Calls `take` with the bytes `range` of a value of this table, piece by piece. If it returns an error, the bytes
    /// that were taken do not count.
    ///
    /// # Errors
    /// `SnapshotTooOld`, `Corrupted`, `Io`, `OutOfFrames`, `Poisoned`.
    ///
    /// # Panics
    /// If the value has fewer bytes.
    pub fn read_value(
        &self,
        txn: &mut Txn,
        value: &mut OpenValue,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let OpenValue { snapshot, content } = value;
        let chain = match content {
            Content::Small(bytes) => {
                assert!(range.end <= bytes.len() as u64, "bytes {range:?} of a value of {}", bytes.len());
                take(&bytes[range.start as usize..range.end as usize]);
                return Ok(());
            }
            Content::Large(chain) => chain,
        };
        let Some(snapshot) = snapshot else { return chain.read(self, range, &mut |_| Ok(()), take) };
        let _operation = self.begin_read(txn, snapshot)?;
        // Pages of a chain that a cancelled snapshot needs may have been used again.
        let read = chain.read(self, range, &mut |_| Ok(()), take).and_then(|()| txn.check_snapshot(snapshot));
        read.map_err(|error| self.judge(txn, snapshot, error))
    }

    /// Begins to write a value for `key` in parts, and locks the row if there is one. Until [`ValueWriter::finish`] the
    /// row is unchanged.
    ///
    /// # Errors
    /// Those of [`put`](Self::put).
    pub fn begin_value(&self, txn: &mut Txn, key: &[u8]) -> Result<ValueWriter<'_>> {
        // As for a large value that is put: a missing row gets no lock.
        self.write_by(txn, (key, Intent::Take), LockWait::Wait, &mut Vec::new())?;
        Ok(ValueWriter { tree: self, chain: ChainWriter::new(self, txn)? })
    }
}

/// A value that is written in parts, made by [`Tree::begin_value`].
///
/// If it is dropped without [`finish`](Self::finish), the row is unchanged, and the pages are freed after its
/// transaction.
pub struct ValueWriter<'t> {
    pub(super) tree: &'t Tree,
    pub(super) chain: ChainWriter<'t>,
}

impl ValueWriter<'_> {
    /// Appends bytes. After an error it has no pages, and is to be dropped.
    ///
    /// # Errors
    /// `ValueTooLarge`: nothing is changed. `DiskFull`, `LogSpace`, `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`.
    pub fn write(&mut self, txn: &mut Txn, bytes: &[u8]) -> Result<()> {
        let written = self.chain.write(txn, bytes);
        if written.is_err() {
            self.discard(txn);
        }
        written
    }

    /// Frees its pages. If that fails they are freed after the transaction.
    pub fn discard(&mut self, txn: &mut Txn) {
        self.chain.discard(txn);
    }

    /// Gives the row of `key`, which is that of [`Tree::begin_value`], the value. Returns whether there was one.
    /// `scratch` is overwritten.
    ///
    /// # Errors
    /// Those of [`Tree::put`]. The transaction then has to be rolled back.
    pub fn finish(mut self, txn: &mut Txn, key: &[u8], scratch: &mut Vec<u8>) -> Result<bool> {
        let tree = self.tree;
        if let Some(small) = self.chain.small() {
            let intent = Intent::Put(Stored::value(small));
            return Ok(tree.write_by(txn, (key, intent), LockWait::Wait, scratch)?.is_row());
        }
        let finished = self.chain.finish(txn);
        if finished.is_err() {
            self.discard(txn);
        }
        let (stub, dep) = finished?;
        let bytes = stub.encode();
        tree.adopt(txn, stub.chain)?;
        let intent = Intent::Put(Stored { bytes: &bytes, flags: OVERFLOW, dep });
        Ok(tree.write_by(txn, (key, intent), LockWait::Wait, scratch)?.is_row())
    }
}

impl std::fmt::Debug for ValueWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValueWriter").field("table", &self.tree.table()).finish_non_exhaustive()
    }
}
