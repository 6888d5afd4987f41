//! Bytes of transaction records.
//!
//! They are page-change records ([`ChangeRecord`]) that name no pages. The tag of a record is the xid of its transaction,
//! zero where none is concerned.
//!
//! | kind | number | tag | body |
//! |---|---|---|---|
//! | commit | 96 | xid | empty; the record has the log's flag `COMMIT` |
//! | end of a rollback | 97 | xid | empty |
//! | xid ceiling | 98 | 0 | first xid that may not be handed out, u64 |
//! | checkpoint | 99 | 0 | belongs to recovery |
//!
//! A compensation record has the kind, the table and the pages of the change that takes another one back, and the flag
//! [`CLR`](foreshore_buffer::format::CLR). Its body:
//!
//! ```text
//!  0                     8
//!  | LSN of the change   | body of the kind |
//!  | taken back, u64     |                  |
//! ```

use foreshore_base::codec::{Decoder, Short};
use foreshore_base::limits::MAX_XID;
use foreshore_base::{Lsn, TableId, Xid};
use foreshore_buffer::ChangeRecord;
use foreshore_buffer::format::{MAX_CHANGE_PAGES, TRANSACTION_KINDS, change_header_len};

/// The transaction has committed.
pub const COMMIT: u8 = 96;
/// The transaction has been rolled back.
pub const END: u8 = 97;
/// Xids below the one in the body may be handed out.
pub const XID_CEILING: u8 = 98;
/// A checkpoint.
pub const CHECKPOINT: u8 = 99;

const _: () = assert!(*TRANSACTION_KINDS.start() <= COMMIT && CHECKPOINT <= *TRANSACTION_KINDS.end());

/// Payload bytes of a commit or end record.
pub const MARK_LEN: usize = change_header_len(0);
/// Payload bytes of a ceiling record.
pub const CEILING_LEN: usize = MARK_LEN + 8;
/// Bytes in front of the body of a compensation.
pub const CLR_PREFIX: usize = 8;

/// The payload of a record of `kind` without a body.
#[must_use]
pub fn encode_mark(kind: u8) -> [u8; MARK_LEN] {
    let mut header = [0; change_header_len(MAX_CHANGE_PAGES)];
    let len = ChangeRecord::new(kind, 0, 0, TableId::ZERO, &[]).encode_header(&mut header);
    header[..len].try_into().expect("a record without pages has a header of this length")
}

/// The body of a ceiling record; `None` for one that no engine writes.
#[must_use]
pub fn decode_ceiling(body: &[u8]) -> Option<Xid> {
    let ceiling = u64::from_le_bytes(body.try_into().ok()?);
    (1..=MAX_XID).contains(&ceiling).then_some(Xid(ceiling))
}

/// Splits the body of a compensation into the LSN of the change taken back and the body of its kind; `None` if it is too
/// short.
#[must_use]
pub fn split_clr(body: &[u8]) -> Option<(Lsn, &[u8])> {
    let mut from = Decoder::new(body);
    let mut fields = || -> Result<_, Short> { Ok((Lsn(from.u64()?), from.rest())) };
    fields().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_decode_as_changes_without_pages() {
        for kind in [COMMIT, END, XID_CEILING, CHECKPOINT] {
            let bytes = encode_mark(kind);
            let record = ChangeRecord::decode(&bytes).expect("our own record");
            assert_eq!((record.kind, record.pages(), record.body), (kind, &[][..], &[][..]));
        }
        assert_eq!(encode_mark(COMMIT), [96, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn bodies_of_another_length_are_refused() {
        assert_eq!(decode_ceiling(&65_536_u64.to_le_bytes()), Some(Xid(65_536)));
        assert_eq!(decode_ceiling(&0_u64.to_le_bytes()), None);
        assert_eq!(decode_ceiling(&(MAX_XID + 1).to_le_bytes()), None);
        assert_eq!(decode_ceiling(&[1; 7]), None);
        assert_eq!(split_clr(&[1, 0, 0, 0, 0, 0, 0, 0, 7, 8]), Some((Lsn(1), &[7, 8][..])));
        assert_eq!(split_clr(&[1; 7]), None);
    }
}
