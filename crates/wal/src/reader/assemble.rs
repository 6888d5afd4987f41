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

    /// Adds a record of `group` and returns the record that was appended; `None` for all but the last fragment. The
    /// error says what is wrong.
    pub(super) fn add(
        &mut self,
        group: GroupNo,
        lane: u16,
        envelope: &Envelope,
        payload: &[u8],
    ) -> Result<Option<LoggedRecord>, &'static str> {
        let record = |payload, group| {
            let (lsn, tag, flags) = (envelope.lsn, envelope.tag, envelope.flags & flags::CALLER);
            Ok(Some(LoggedRecord { lsn, tag, flags, payload, group }))
        };
        let kind = envelope.flags & !flags::CALLER;
        if kind == 0 {
            return record(payload.to_vec(), group);
        }
        let mut decoder = Decoder::new(payload);
        let link = decoder.u64().map_err(|_| "a fragment without its link")?;
        let piece = decoder.rest();
        if kind == flags::FIRST {
            let total = usize::try_from(link).ok().filter(|&total| total <= MAX_LARGE && piece.len() < total);
            let total = total.ok_or("a fragmented record of impossible length")?;
            self.partial.insert((lane, envelope.lsn), Partial { group, total, payload: piece.to_vec() });
            return Ok(None);
        }
        let first = (lane, Lsn(link));
        // The first fragment is missing if the reader started behind it.
        let Some(partial) = self.partial.get_mut(&first) else { return Ok(None) };
        partial.payload.extend_from_slice(piece);
        let (whole, over) = (partial.payload.len() == partial.total, partial.payload.len() > partial.total);
        if over || whole != (kind == flags::LAST) {
            return Err("the fragments of a record do not add up");
        }
        match self.partial.remove(&first) {
            Some(partial) if whole => record(partial.payload, partial.group),
            Some(partial) => {
                self.partial.insert(first, partial);
                Ok(None)
            }
            None => Ok(None),
        }
    }
}
