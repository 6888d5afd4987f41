//! The assembly of records as they were appended: joins fragments and removes the log's own flags.

use crate::format::Envelope;
use crate::record::{LoggedRecord, MAX_LARGE, flags};
use foreshore_base::codec::Decoder;
use foreshore_base::{GroupNo, Lsn};
use std::collections::HashMap;

/// A record whose last fragment has not been read yet.
#[derive(Debug)]
struct Partial {
    group: GroupNo,
    total: usize,
    payload: Vec<u8>,
}

/// Joins fragments. They come in the order of their stamps, so those of one record come in their own order.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    /// Incomplete records by lane and LSN of the first fragment. A record stays in the lane of its session; records of
    /// two lanes may have the same stamp.
    partial: HashMap<(u16, Lsn), Partial>,
}

impl Assembler {
    /// Drops the incomplete records, because the incarnation that wrote them has ended.
    pub(super) fn clear(&mut self) {
        self.partial.clear();
    }

    /// Returns the oldest group in which an incomplete record began.
    pub(super) fn oldest(&self) -> Option<GroupNo> {
        self.partial.values().map(|partial| partial.group).min()
    }

    /// Adds a record of `group` and stores the record that was appended, in the memory of `record`. Returns false for
    /// all but the last fragment. The error says what is wrong.
    pub(super) fn add(
        &mut self,
        group: GroupNo,
        lane: u16,
        (envelope, payload): (&Envelope, &[u8]),
        record: &mut LoggedRecord,
    ) -> Result<bool, &'static str> {
        (record.lsn, record.tag, record.flags) = (envelope.lsn, envelope.tag, envelope.flags & flags::CALLER);
        let kind = envelope.flags & !flags::CALLER;
        if kind == 0 {
            record.group = group;
            record.payload.clear();
            record.payload.extend_from_slice(payload);
            return Ok(true);
        }
        let mut decoder = Decoder::new(payload);
        let link = decoder.u64().map_err(|_| "a fragment without its link")?;
        let piece = decoder.rest();
        if kind == flags::FIRST {
            let total = usize::try_from(link).ok().filter(|&total| total <= MAX_LARGE && piece.len() < total);
            let total = total.ok_or("a fragmented record of impossible length")?;
            self.partial.insert((lane, envelope.lsn), Partial { group, total, payload: piece.to_vec() });
            return Ok(false);
        }
        let first = (lane, Lsn(link));
        // The first fragment is missing if the reader started behind it.
        let Some(partial) = self.partial.get_mut(&first) else { return Ok(false) };
        partial.payload.extend_from_slice(piece);
        let (whole, over) = (partial.payload.len() == partial.total, partial.payload.len() > partial.total);
        if over || whole != (kind == flags::LAST) {
            return Err("the fragments of a record do not add up");
        }
        if whole && let Some(Partial { group, payload, .. }) = self.partial.remove(&first) {
            (record.group, record.payload) = (group, payload);
        }
        Ok(whole)
    }
}
