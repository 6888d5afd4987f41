//! Bodies of the records of chains.

use crate::format::{CHAIN_ID, ChainId};
use crate::node::Damage;
use crate::record::{RowChange, SHORT, TreeKind, decode};
use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::{PageId, TableId, Xid};

/// A new page of a chain: head u64, birth u64, place u32, level u8, content (rest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainPageImage<'a> {
    pub(crate) chain: ChainId,
    /// Number of the data page in the value, or of the first one below an index page.
    pub(crate) place: u32,
    pub(crate) level: u8,
    /// Data; empty for a page of ids.
    pub(crate) data: &'a [u8],
}

impl<'a> ChainPageImage<'a> {
    /// Bytes before the content.
    pub(crate) const FRONT: usize = 8 + 8 + 4 + 1;

    /// Appends everything but the data, which the caller logs behind it.
    pub(crate) fn encode_front(&self, out: &mut Vec<u8>) {
        out.put_u64(self.chain.head.0);
        out.put_u64(self.chain.birth.0);
        out.put_u32(self.place);
        out.put_u8(self.level);
    }

    fn fields(from: &mut Decoder<'a>) -> Result<Self, Short> {
        let chain = ChainId { head: PageId(from.u64()?), birth: Xid(from.u64()?) };
        Ok(Self { chain, place: from.u32()?, level: from.u8()?, data: from.rest() })
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, Self::fields)
    }
}

/// Body of [`TreeKind::ChainBegin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainBegin<'a> {
    /// The table that the value belongs to.
    pub(crate) table: TableId,
    /// The change that inserts the row of the chain.
    pub(crate) row: RowChange<'a>,
    pub(crate) page: ChainPageImage<'a>,
}

impl<'a> ChainBegin<'a> {
    /// Appends everything but the data of the page.
    pub(crate) fn encode_front(&self, out: &mut Vec<u8>) {
        out.put_u32(self.table.0);
        out.put_u8(self.row.kind as u8);
        out.put_short_bytes(self.row.body);
        self.page.encode_front(out);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        let (table, kind, row, page) = decode(body, |from| {
            Ok((TableId(from.u32()?), from.u8()?, from.short_bytes()?, ChainPageImage::fields(from)?))
        })?;
        let kind = TreeKind::from_number(kind).ok_or("a record of unknown kind inside another")?;
        Ok(Self { table, row: RowChange { kind, body: row }, page })
    }
}

/// Decodes the pages of [`TreeKind::ChainCut`].
pub(crate) fn decode_cut(body: &[u8]) -> Result<Vec<PageId>, Damage> {
    let (ids, rest) = body.as_chunks::<CHAIN_ID>();
    if !rest.is_empty() {
        return Err(SHORT);
    }
    Ok(ids.iter().map(|id| PageId(u64::from(u32::from_le_bytes(*id)))).collect())
}
