//! Body of the record that deletes several rows of a leaf, and the single changes that it stands for.
//!
//! ```text
//!  | number of rows u16 | root u64 | owner u64 | n x { old owner u64 | key len u16, key }, in key order |
//! ```
//!
//! At run time each row has its own undo entry, the body of a [`RowRestore`]. A restart makes the same bodies of the
//! record. So only redo knows such records, and all else single changes of rows.

use crate::format::RowHeader;
use crate::node::Damage;
use crate::record::{RowRestore, decode};
use foreshore_base::PageId;
use foreshore_base::codec::{Decoder, Put};

/// Bytes before the first row.
pub(crate) const ROWS_FRONT: usize = 2 + 8 + 8;
/// Bytes of a row besides its key.
pub(crate) const ROW_IN_ROWS: usize = 8 + 2;
/// Bytes of the undo entry of a row besides its key.
pub(crate) const RESTORE_BODY: usize = 8 + 8 + 2 + 2 + 2;

/// A row that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeletedRow<'a> {
    pub(crate) old_owner: u64,
    pub(crate) key: &'a [u8],
}

impl DeletedRow<'_> {
    /// Appends the body of the undo entry: the root, then the compensation. A deleted row keeps its value.
    pub(crate) fn encode_undo(&self, root: PageId, out: &mut Vec<u8>) {
        out.put_u64(root.0);
        RowRestore { owner: self.old_owner, key: self.key, prefix: 0, cut: 0, middle: &[] }.encode(out);
    }
}

/// The body while rows are added to it.
#[derive(Debug)]
pub(crate) struct RowsBody {
    bytes: Vec<u8>,
    rows: u16,
}

impl RowsBody {
    /// Begins a body without rows, which gets `len` bytes.
    pub(crate) fn begin(len: usize, root: PageId, owner: u64) -> Self {
        let mut bytes = Vec::with_capacity(len);
        bytes.put_u16(0);
        bytes.put_u64(root.0);
        bytes.put_u64(owner);
        Self { bytes, rows: 0 }
    }

    /// Adds a row, whose key is above those of the rows before.
    pub(crate) fn push(&mut self, row: &DeletedRow<'_>) {
        self.bytes.put_u64(row.old_owner);
        self.bytes.put_short_bytes(row.key);
        self.rows += 1;
    }

    /// Returns the number of rows, and the whole body.
    pub(crate) fn end(mut self) -> (u16, Vec<u8>) {
        assert!(self.rows > 0 && self.bytes.len() > ROWS_FRONT, "{} rows in {} bytes", self.rows, self.bytes.len());
        self.bytes[..2].copy_from_slice(&self.rows.to_le_bytes());
        (self.rows, self.bytes)
    }
}

/// Body of [`TreeKind::RowsDelete`](crate::record::TreeKind::RowsDelete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowsDelete<'a> {
    pub(crate) root: PageId,
    pub(crate) owner: u64,
    pub(crate) rows: Vec<DeletedRow<'a>>,
}

impl<'a> RowsDelete<'a> {
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        let (count, rows, rest) = decode(body, |from: &mut Decoder<'a>| {
            let (count, root, owner) = (usize::from(from.u16()?), PageId(from.u64()?), from.u64()?);
            let mut rows = Vec::with_capacity(count.min(body.len() / ROW_IN_ROWS));
            for _ in 0..count {
                rows.push(DeletedRow { old_owner: from.u64()?, key: from.short_bytes()? });
            }
            Ok((count, Self { root, owner, rows }, from.rest()))
        })?;
        if count == 0 || !rest.is_empty() || !rows.rows.is_sorted_by(|a, b| a.key < b.key) {
            return Err("a record of deleted rows does not add up");
        }
        if !RowHeader::from_owner(rows.owner).is_ghost() {
            return Err("a record deletes rows that stay");
        }
        Ok(rows)
    }
}
