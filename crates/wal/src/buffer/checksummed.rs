//! A record with the checksum of its payload.

use crate::checksum::{Crc, crc32c_pieces};
use crate::format::{Envelope, record_size};
use crate::record::Record;
use foreshore_base::Lsn;

/// A record and the checksum of its payload: the content of its envelope, except the LSN.
#[derive(Debug)]
pub struct Checksummed<'a> {
    pub(super) record: Record<'a>,
    pub(super) payload: u32,
    pub(super) payload_crc: u32,
}

impl<'a> Checksummed<'a> {
    /// Checksums the payload, for buffers that draw a position before they copy.
    pub fn new(record: &Record<'a>) -> Self {
        Self { record: *record, payload: payload_len(record), payload_crc: crc32c_pieces(record.parts) }
    }

    /// Returns the bytes of the record in the buffer, a multiple of eight.
    #[inline]
    pub fn size(&self) -> usize {
        record_size(self.payload as usize)
    }

    /// Returns the words of the record's envelope for `lsn`.
    #[inline(always)]
    pub(super) fn envelope<C: Crc>(&self, how: C, lsn: Lsn) -> [u64; 3] {
        let Record { tag, flags, .. } = self.record;
        Envelope { len: self.payload, lsn, tag, flags }.words(how, self.payload_crc)
    }
}

#[inline]
pub(super) fn payload_len(record: &Record<'_>) -> u32 {
    u32::try_from(record.payload_len()).expect("a record's size is checked before it is appended")
}
