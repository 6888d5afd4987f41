//! Bodies of the records of loads, and of their undo entries.
//!
//! The record of a load has all its rows. Its undo entry has only the first and the last key, because the table has no
//! rows of others between them (see [`crate::load`]).
//!
//! ```text
//!  undo entry:  | root u64 | len u16, first key | len u16, last key |
//! ```

use crate::node::{Damage, image_ends};
use crate::record::{SHORT, TreeKind, decode};
use foreshore_base::PageId;
use foreshore_base::codec::{Decoder, Put, Short};

/// Body of [`TreeKind::Load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Load<'a> {
    pub(crate) root: PageId,
    pub(crate) image: &'a [u8],
}

impl<'a> Load<'a> {
    /// Appends everything but the image, which the caller appends afterwards.
    pub(crate) fn encode_front(out: &mut Vec<u8>, root: PageId) {
        out.put_u64(root.0);
    }

    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Damage> {
        decode(body, |from| Ok(Self { root: PageId(from.u64()?), image: from.rest() }))
    }
}

/// The rows of a load, as its undo finds them: those between two keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loaded<'a> {
    pub(crate) root: PageId,
    pub(crate) first: &'a [u8],
    pub(crate) last: &'a [u8],
}

impl<'a> Loaded<'a> {
    /// Decodes the record of a load, or its undo entry.
    pub(crate) fn of(kind: TreeKind, body: &'a [u8]) -> Result<Self, Damage> {
        let (root, first, last) = if kind == TreeKind::Load {
            let Load { root, image } = Load::decode(body)?;
            let (first, last) = image_ends(image)?;
            (root, first, last)
        } else {
            decode(body, |from| Ok((PageId(from.u64()?), from.short_bytes()?, from.short_bytes()?)))?
        };
        if first > last {
            return Err("the rows of a load are not in order");
        }
        Ok(Self { root, first, last })
    }

    /// Encodes the undo entry.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.root.0);
        out.put_short_bytes(self.first);
        out.put_short_bytes(self.last);
    }
}

/// Appends the body of [`TreeKind::Unload`] for these entries, in ascending order.
pub(crate) fn encode_unload(entries: &[usize], out: &mut Vec<u8>) {
    let short = |number: usize| u16::try_from(number).expect("a page has few entries");
    for run in entries.chunk_by(|a, b| a + 1 == *b) {
        out.put_u16(short(run[0]));
        out.put_u16(short(run.len()));
    }
}

/// Decodes the entries of [`TreeKind::Unload`]: first ones and numbers.
pub(crate) fn decode_unload(body: &[u8]) -> Result<Vec<(usize, usize)>, Damage> {
    let mut from = Decoder::new(body);
    let mut runs = Vec::with_capacity(body.len() / 4);
    let mut fields = || -> Result<(), Short> {
        while !from.is_empty() {
            runs.push((usize::from(from.u16()?), usize::from(from.u16()?)));
        }
        Ok(())
    };
    fields().map_err(|Short| SHORT)?;
    Ok(runs)
}
