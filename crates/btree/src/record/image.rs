//! Bodies of records with the image of a whole node.

use super::body::decode;
use crate::node::Damage;
use foreshore_base::PageId;
use foreshore_base::codec::Put;

/// Body of merge, collapse and shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Absorb<'a> {
    /// The freed page, with its content in `image`. For a shift: the right leaf, with the rows that it gives away.
    pub(crate) page: PageId,
    pub(crate) image: &'a [u8],
}

impl<'a> Absorb<'a> {
    /// Appends everything but the image, which the caller appends afterwards.
    pub(crate) fn encode_front(out: &mut Vec<u8>, page: PageId) {
        out.put_u64(page.0);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| Ok(Self { page: PageId(from.u64()?), image: from.rest() }))
    }
}

/// Body of move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move<'a> {
    /// The page that becomes free.
    pub(crate) old: PageId,
    /// Whether the record has the left sibling of the node.
    pub(crate) has_left: bool,
    pub(crate) image: &'a [u8],
}

impl<'a> Move<'a> {
    /// Appends everything but the image, which the caller appends afterwards.
    pub(crate) fn encode_front(out: &mut Vec<u8>, old: PageId, has_left: bool) {
        out.put_u64(old.0);
        out.put_u8(u8::from(has_left));
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        let (old, has_left, image) = decode(body, |from| Ok((PageId(from.u64()?), from.u8()?, from.rest())))?;
        match has_left {
            0 | 1 => Ok(Self { old, has_left: has_left == 1, image }),
            _ => Err("the body of a move is malformed"),
        }
    }
}
