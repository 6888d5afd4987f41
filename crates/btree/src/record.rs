//! The kinds of log record of trees, and their bodies.
//!
//! ```text
//!  kind          pages                        body
//!  row-insert    leaf                         root u64 | owner u64 | key len u16, key | value
//!  row-write     leaf                         root u64 | old owner u64 | new owner u64 | key len u16, key
//!                                             | prefix u16 | old middle len u16, bytes | new middle (rest)
//!  row-erase     leaf                         key len u16, key
//!  row-restore   leaf                         owner u64 | key len u16, key | prefix u16 | cut u16 | middle (rest)
//!  row-lock      none: undo entry only        root u64 | old owner u64 | key
//!  rows-delete   leaf                         n u16 | root u64 | owner u64 | n x { old owner u64 | key len u16, key }
//!  purge         leaf                         entry index u16, each
//!  split         left, right*, map            from u16 | separator len u16, separator | image of right
//!  link          parent, left                 right u64 | separator
//!  grow          root, child*, map            image of child
//!  create-root   root*, map                   -
//!  create-table  catalogue leaf, root*, map   root u64 | table u32 | kind u8 of the row change | its body
//!  drop-table    catalogue leaf, map          root u64 | kind u8 of the row change | its body
//!  free-last     parent, map                  child u64
//!  unlink        parent, left                 right u64 | separator
//!  merge         left, map                    right u64 | image of right
//!  collapse      root, map                    child u64 | image of child
//!  shift         left, right                  right u64 | image of what moves, between its fences
//!  move          parent, new*, map, then left and the map of the old page, as far as there are such
//!                                             old u64 | has left u8 | image
//!  chain-begin   leaf of chains, head*, map   table u32 | kind u8 of the row change | len u16, its body | chain page
//!  chain-extend  index page, page*, map       chain page
//!  chain-cut     index page, map              freed pages u32, each, in their order
//!  chain-end     leaf, map                    head u64 | kind u8 of the row change | its body
//!  load          left, right*, map            root u64 | image of right
//!  unload        leaf                         first entry u16, number of entries u16, each
//! ```
//!
//! `*`: the record initialises the page. `owner` is the first word of a row header: xid and flags. A row change carries
//! the root page, so that undo needs no catalogue. It is found by key, because other transactions may have moved the
//! row. A write carries only the bytes that differ between the two values, between their common prefix and their common
//! suffix.

mod body;
mod delta;
mod image;

pub(crate) use body::{SHORT, decode};
pub(crate) use delta::Delta;
pub(crate) use image::{Absorb, Move};

use crate::format::RowHeader;
use crate::node::Damage;
use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::{PageId, TableId};
use foreshore_buffer::format::TREE_KINDS;

foreshore_space::record_kinds! {
    /// Kinds of record of trees. Numbers are on disk.
    pub enum TreeKind {
        /// A new row. Undone by [`TreeKind::RowErase`].
        RowInsert = 32 => "row-insert",
        /// A change of header and value: update, delete (ghost flag), or a ghost made alive again. Undone by
        /// [`TreeKind::RowRestore`].
        RowWrite = 33 => "row-write",
        /// Compensation of an insert: the row is removed.
        RowErase = 34 => "row-erase",
        /// Compensation of a write: header and value as before.
        RowRestore = 35 => "row-restore",
        /// The lock of a row that was not changed. It is never logged, but it needs an undo entry. When the lock ends,
        /// the header must show its former owner again, whose commit may not be durable yet.
        RowLock = 36 => "row-lock",
        /// Unneeded ghosts are removed.
        Purge = 40 => "purge",
        /// First step of a split: the right half moves to a new node.
        Split = 41 => "split",
        /// Second step of a split: the parent gets the separator of the right half.
        Link = 42 => "link",
        /// The root moves its contents to a new child and rises one level.
        Grow = 43 => "grow",
        /// The root of the first tree of a database.
        CreateRoot = 44 => "create-root",
        /// A catalogue row and the root of its table. Undone by [`TreeKind::DropTable`].
        CreateTable = 45 => "create-table",
        /// The end of a table, or compensation of a creation: the catalogue row is removed, and the root is free.
        DropTable = 46 => "drop-table",
        /// The last child of a node of a dropped table is freed.
        FreeLast = 47 => "free-last",
        /// First step of a merge, and the reverse of [`TreeKind::Link`]: the parent loses the entry of the right node.
        Unlink = 48 => "unlink",
        /// Second step of a merge: the left node takes the content of the right one, which is freed.
        Merge = 49 => "merge",
        /// The root takes the content of its only child, which is freed, and sinks one level.
        Collapse = 50 => "collapse",
        /// In place of the second step of a merge: the first rows of the right leaf move to the left one.
        Shift = 51 => "shift",
        /// The first page of a chain, and the row of the chain.
        ChainBegin = 52 => "chain-begin",
        /// Another page of a chain.
        ChainExtend = 53 => "chain-extend",
        /// The last pages below an index page of a chain are freed.
        ChainCut = 54 => "chain-cut",
        /// The end of a chain: its row is removed, and its first page is free.
        ChainEnd = 55 => "chain-end",
        /// A new leaf at the end of a table, full of new rows. Undone by [`TreeKind::Unload`].
        Load = 56 => "load",
        /// Compensation of a load: the rows are removed.
        Unload = 57 => "unload",
        /// A node moves to another page, and its old page is free.
        Move = 58 => "move",
        /// Rows of a leaf become ghosts. Each is undone by [`TreeKind::RowRestore`].
        RowsDelete = 59 => "rows-delete",
    }
}

const _: () =
    assert!(TreeKind::RowInsert as u8 == *TREE_KINDS.start() && TreeKind::RowsDelete as u8 <= *TREE_KINDS.end());

/// Body of [`TreeKind::RowInsert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowInsert<'a> {
    pub(crate) root: PageId,
    pub(crate) owner: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> RowInsert<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u64(self.owner);
        out.put_short_bytes(self.key);
        out.put(self.value);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| {
            let (root, owner) = (PageId(from.u64()?), from.u64()?);
            Ok(Self { root, owner, key: from.short_bytes()?, value: from.rest() })
        })
    }

    /// Encodes record and undo into `bytes`, which is empty.
    pub(crate) fn logged<'b>(&self, bytes: &'b mut Vec<u8>) -> Logged<'b> {
        self.encode(bytes);
        let undo_at = bytes.len();
        bytes.put_u64(self.root.0);
        bytes.put_short_bytes(self.key);
        let (body, undo) = bytes.split_at(undo_at);
        Logged { kind: TreeKind::RowInsert, undo_kind: TreeKind::RowErase, body, undo, grows: 0 }
    }
}

/// Body of [`TreeKind::RowWrite`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowWrite<'a> {
    pub(crate) root: PageId,
    pub(crate) old_owner: u64,
    pub(crate) owner: u64,
    pub(crate) key: &'a [u8],
    pub(crate) delta: Delta<'a>,
}

impl<'a> RowWrite<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u64(self.old_owner);
        out.put_u64(self.owner);
        out.put_short_bytes(self.key);
        out.put_u16(u16::try_from(self.delta.prefix).expect("values have 16-bit lengths"));
        out.put_short_bytes(self.delta.old);
        out.put(self.delta.new);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| {
            let (root, old_owner, owner) = (PageId(from.u64()?), from.u64()?, from.u64()?);
            let (key, prefix, old) = (from.short_bytes()?, usize::from(from.u16()?), from.short_bytes()?);
            Ok(Self { root, old_owner, owner, key, delta: Delta { prefix, old, new: from.rest() } })
        })
    }

    /// Encodes record and undo into `bytes`, which is empty.
    pub(crate) fn logged<'b>(&self, bytes: &'b mut Vec<u8>) -> Logged<'b> {
        self.encode(bytes);
        let undo_at = bytes.len();
        bytes.put_u64(self.root.0);
        self.restore().encode(bytes);
        let grows = self.delta.old.len().saturating_sub(self.delta.new.len());
        let (body, undo) = bytes.split_at(undo_at);
        Logged { kind: TreeKind::RowWrite, undo_kind: TreeKind::RowRestore, body, undo, grows }
    }

    /// Returns the offset of the old middle in the undo.
    pub(crate) const fn old_middle(key: &[u8]) -> usize {
        8 + 8 + 2 + key.len() + 2 + 2
    }

    /// Returns the compensation of this change.
    pub(crate) const fn restore(&self) -> RowRestore<'a> {
        let Delta { prefix, old, new } = self.delta;
        RowRestore { owner: self.old_owner, key: self.key, prefix, cut: new.len(), middle: old }
    }
}

/// A change of a row, encoded for the log and for undo.
pub(crate) struct Logged<'b> {
    pub(crate) kind: TreeKind,
    /// Kind of the compensation.
    pub(crate) undo_kind: TreeKind,
    /// Body of the record.
    pub(crate) body: &'b [u8],
    /// Body of the undo entry: the root, then the body of the compensation.
    pub(crate) undo: &'b [u8],
    /// Bytes that the row grows by when the change is rolled back.
    pub(crate) grows: usize,
}

/// Body of [`TreeKind::RowRestore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowRestore<'a> {
    pub(crate) owner: u64,
    pub(crate) key: &'a [u8],
    pub(crate) prefix: usize,
    pub(crate) cut: usize,
    pub(crate) middle: &'a [u8],
}

impl<'a> RowRestore<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.owner);
        out.put_short_bytes(self.key);
        out.put_u16(u16::try_from(self.prefix).expect("values have 16-bit lengths"));
        out.put_u16(u16::try_from(self.cut).expect("values have 16-bit lengths"));
        out.put(self.middle);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| {
            let (owner, key) = (from.u64()?, from.short_bytes()?);
            let (prefix, cut) = (usize::from(from.u16()?), usize::from(from.u16()?));
            Ok(Self { owner, key, prefix, cut, middle: from.rest() })
        })
    }
}

/// Body of [`TreeKind::RowLock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLock<'a> {
    pub(crate) root: PageId,
    pub(crate) old_owner: u64,
    pub(crate) key: &'a [u8],
}

impl<'a> RowLock<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u64(self.old_owner);
        out.put(self.key);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| Ok(Self { root: PageId(from.u64()?), old_owner: from.u64()?, key: from.rest() }))
    }

    /// Returns the row lock of an undo entry: the lock that remains of an undone change, or a plain lock.
    pub(crate) fn of(change: RowChange<'a>) -> Result<Self, Damage> {
        if change.kind == TreeKind::RowLock {
            return Self::decode(change.body);
        }
        let (root, compensation) = change.body.split_first_chunk().ok_or("an undo entry that is cut off")?;
        let root = PageId(u64::from_le_bytes(*root));
        match change.kind {
            TreeKind::RowErase => {
                Ok(Self { root, old_owner: RowHeader::GONE.owner(), key: decode_erase(compensation)? })
            }
            TreeKind::RowRestore => {
                let RowRestore { owner, key, .. } = RowRestore::decode(compensation)?;
                Ok(Self { root, old_owner: owner, key })
            }
            _ => Err("an undo entry of unknown kind"),
        }
    }
}

/// Body of [`TreeKind::Split`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split<'a> {
    /// Entries from this index on leave the left node.
    pub(crate) from: usize,
    pub(crate) separator: &'a [u8],
    pub(crate) image: &'a [u8],
}

impl<'a> Split<'a> {
    /// Appends everything but the image, which the caller appends afterwards.
    pub(crate) fn encode_front(out: &mut Vec<u8>, from: usize, separator: &[u8]) {
        out.put_u16(u16::try_from(from).expect("a page has few entries"));
        out.put_short_bytes(separator);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| {
            Ok(Self { from: usize::from(from.u16()?), separator: from.short_bytes()?, image: from.rest() })
        })
    }
}

/// Body of [`TreeKind::Link`] and [`TreeKind::Unlink`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link<'a> {
    pub(crate) right: PageId,
    pub(crate) separator: &'a [u8],
}

impl<'a> Link<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.right.0);
        out.put(self.separator);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| Ok(Self { right: PageId(from.u64()?), separator: from.rest() }))
    }
}

/// A row change inside another record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowChange<'a> {
    pub(crate) kind: TreeKind,
    pub(crate) body: &'a [u8],
}

fn row_change<'a>(from: &mut Decoder<'a>) -> Result<Option<RowChange<'a>>, Short> {
    let kind = TreeKind::from_number(from.u8()?);
    Ok(kind.map(|kind| RowChange { kind, body: from.rest() }))
}

/// Body of [`TreeKind::CreateTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreateTable<'a> {
    pub(crate) root: PageId,
    pub(crate) table: TableId,
    pub(crate) row: RowChange<'a>,
}

impl<'a> CreateTable<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u32(self.table.0);
        out.put_u8(self.row.kind as u8);
        out.put(self.row.body);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        let (root, table, row) =
            decode(body, |from| Ok((PageId(from.u64()?), TableId(from.u32()?), row_change(from)?)))?;
        Ok(Self { root, table, row: row.ok_or("a record of unknown kind inside another")? })
    }
}

/// Body of [`TreeKind::DropTable`] and [`TreeKind::ChainEnd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DropTable<'a> {
    pub(crate) root: PageId,
    pub(crate) row: RowChange<'a>,
}

impl<'a> DropTable<'a> {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_u8(self.row.kind as u8);
        out.put(self.row.body);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        let (root, row) = decode(body, |from| Ok((PageId(from.u64()?), row_change(from)?)))?;
        Ok(Self { root, row: row.ok_or("a record of unknown kind inside another")? })
    }
}

/// Decodes the key of [`TreeKind::RowErase`].
pub(crate) fn decode_erase(body: &[u8]) -> Result<&[u8], Damage> {
    decode(body, Decoder::short_bytes)
}

/// Decodes the page of [`TreeKind::FreeLast`].
pub(crate) fn decode_page(body: &[u8]) -> Result<PageId, Damage> {
    decode(body, |from| from.u64().map(PageId))
}

/// Decodes the entries of [`TreeKind::Purge`], in ascending order.
pub(crate) fn decode_purge(body: &[u8]) -> Result<Vec<usize>, Damage> {
    let (pairs, rest) = body.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(SHORT);
    }
    Ok(pairs.iter().map(|pair| usize::from(u16::from_le_bytes(*pair))).collect())
}

#[cfg(test)]
mod tests;
