//! Records to append, and records read back.

use foreshore_base::{GroupNo, Lsn};

/// Largest payload of one record in bytes. It is smaller if [`crate::LogOptions`] request a small ring or small
/// segments. Larger payloads are split into fragments.
pub const MAX_RECORD: usize = 32 << 10;
/// Largest payload of a fragmented record in bytes.
pub const MAX_LARGE: usize = 1 << 30;
/// Largest tag.
pub const MAX_TAG: u64 = (1 << 56) - 1;

/// Bits of a record's flags. The caller's own bits are those of [`flags::CALLER`].
pub mod flags {
    /// The record ends a transaction. The log passes it on and attaches no meaning to it.
    pub const COMMIT: u8 = 1;
    /// Bits free for the caller.
    pub const CALLER: u8 = 0x1f;
    /// First fragment: payload starts with the total length (8 bytes).
    pub(crate) const FIRST: u8 = 1 << 5;
    /// Inner fragment: payload starts with the LSN of the first fragment (8 bytes).
    pub(crate) const MIDDLE: u8 = 1 << 6;
    /// Last fragment: as inner; its LSN is the record's.
    pub(crate) const LAST: u8 = 1 << 7;
}

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The caller's 56 bits, such as a transaction id.
    pub tag: u64,
    /// Bits of [`flags::CALLER`].
    pub flags: u8,
    /// The payload, in pieces that are written one after the other.
    pub parts: &'a [&'a [u8]],
}

impl Record<'_> {
    /// Returns the bytes of payload.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

/// A record read back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoggedRecord {
    /// Its LSN. A fragmented record has that of its last fragment.
    pub lsn: Lsn,
    /// The tag it was appended with.
    pub tag: u64,
    /// The caller's flags.
    pub flags: u8,
    /// The payload.
    pub payload: Vec<u8>,
    /// The group that contains it. A fragmented record has that of its first fragment, so a reader that starts there
    /// finds all of it.
    pub group: GroupNo,
}
