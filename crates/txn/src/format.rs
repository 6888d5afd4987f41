//! The format of transaction records.
//!
//! A transaction record is a page-change record ([`ChangeRecord`]) that names no pages. Its tag is the xid of its
//! transaction, or zero if it concerns no transaction.
//!
//! | kind | number | tag | body |
//! |---|---|---|---|
//! | commit | 96 | xid | empty; the record has the log's flag `COMMIT` |
//! | end of a rollback | 97 | xid | empty |
//! | xid ceiling | 98 | 0 | first xid that may not be handed out, u64 |
//! | checkpoint | 99 | 0 | belongs to recovery |
//! | prepare | 100 | xid | below |
//! | decision to roll back | 101 | xid | empty |
//! | changes skipped | 102 | xid | LSNs of the changes, the newest first, n x u64 |
//! | changes copied forward | 103 | xid | below |
//!
//! A compensation record has the kind, the table and the pages of the change that undoes another one, and the flag
//! [`CLR`](foreshore_buffer::format::CLR). Its body:
//!
//! ```text
//!  0                     8
//!  | LSN of the change   | body of the kind |
//!  | undone, u64         |                  |
//! ```
//!
//! A record may have several changes ([`SEVERAL`](foreshore_buffer::format::SEVERAL)), each with an LSN of its own.
//!
//! A rollback goes from the newest change of its transaction to the oldest. So a compensation implies that all newer
//! changes are undone. A change that a restart could not undo is *skipped*. The record of the skip precedes the
//! compensation of any older change. The change remains to be undone until a compensation names it.
//!
//! The remaining changes of a rollback that stays parked are *copied* to the end of the log, so that older log can be
//! truncated. The copies form a set of records, of which the first and the last are flagged. Once the last one is in
//! the log, only the changes of the set count for the transaction, and its earlier records do not. A set without its
//! last record is ignored. A copied change keeps its LSN, by which compensations name it. The body:
//!
//! ```text
//!  0        1
//!  | flags  | n x { LSN u64, kind u8, table u32, body: len u16, bytes }, the oldest first |
//!  | u8     |
//! ```
//!
//! Flags: 1 the first record of the set, 2 the last. Kind and body are those of the undo entry in memory.
//!
//! A transaction with a prepare record ends by its commit or end record, however many restarts later. A decision record
//! after it says that the transaction is rolled back. The decision is durable before any change is undone and any lock
//! is released. The body of the prepare record, all integers little-endian:
//!
//! ```text
//!  name: len u16, bytes | label: len u16, bytes
//!  | tables: count u32, n x { table u32, mode u8 }
//!  | ranges: count u32, n x { table u32, has_high u8, low: len u16, bytes, high: len u16, bytes }
//!  | rows:   count u32, n x { kind u8, table u32, body: len u16, bytes }
//!  | note (rest)
//! ```
//!
//! Tables are locked in mode 0 IS, 1 IX, 2 S, 3 SIX, 4 X. Ranges are locked shared: the keys from `low` up to but
//! excluding `high`. If `has_high` is 0 there is no `high`, and the range goes to the end of the table. Rows are locked
//! in their headers and have no logged change: either they were only locked, or a rollback to a savepoint undid their
//! changes. Their entries here are undo entries. The note is the caller's.

use crate::logged::{LoggedChange, PrepareBody};
use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::limits::MAX_XID;
use foreshore_base::{Lsn, TableId, Xid};
use foreshore_buffer::ChangeRecord;
use foreshore_buffer::format::{MAX_CHANGE_PAGES, TRANSACTION_KINDS, change_header_len};
use foreshore_lock::{HeldRange, Interval, TableMode};

/// The transaction has committed.
pub const COMMIT: u8 = 96;
/// The transaction has been rolled back.
pub const END: u8 = 97;
/// Xids below the one in the body may be handed out.
pub const XID_CEILING: u8 = 98;
/// A checkpoint.
pub const CHECKPOINT: u8 = 99;
/// A transaction is prepared and waits for a decision.
pub const PREPARE: u8 = 100;
/// A prepared transaction is to be rolled back.
pub const ABORT: u8 = 101;
/// A rollback skips changes until a later run, and continues with older ones.
pub const PASS: u8 = 102;
/// The remaining changes of a rollback, copied to the end of the log.
pub const COPY: u8 = 103;

const _: () = assert!(*TRANSACTION_KINDS.start() <= COMMIT && COPY <= *TRANSACTION_KINDS.end());

/// Payload bytes of a commit or end record.
pub const MARK_LEN: usize = change_header_len(0);
/// Payload bytes of a ceiling record.
pub const CEILING_LEN: usize = MARK_LEN + 8;
/// Bytes before the body of a compensation.
pub const CLR_PREFIX: usize = 8;

/// Returns the payload of a record of `kind` without a body.
#[must_use]
pub fn encode_mark(kind: u8) -> [u8; MARK_LEN] {
    let mut header = [0; change_header_len(MAX_CHANGE_PAGES)];
    let len = ChangeRecord::new(kind, 0, 0, TableId::ZERO, &[]).encode_header(&mut header);
    header[..len].try_into().expect("a record without pages has a header of this length")
}

/// Decodes the body of a ceiling record; `None` for a body that no engine writes.
#[must_use]
pub fn decode_ceiling(body: &[u8]) -> Option<Xid> {
    let ceiling = u64::from_le_bytes(body.try_into().ok()?);
    (1..=MAX_XID).contains(&ceiling).then_some(Xid(ceiling))
}

/// Most changes that a record of kind [`PASS`] names.
pub(crate) const MAX_PASSED: usize = 512;

/// Decodes the body of a record of kind [`PASS`] into the changes that it names, the newest first; `None` for a body
/// that no engine writes.
#[must_use]
pub fn decode_pass(body: &[u8]) -> Option<impl Iterator<Item = Lsn>> {
    let (lsns, []) = body.as_chunks::<8>() else { return None };
    (!lsns.is_empty()).then(|| lsns.iter().map(|lsn| Lsn(u64::from_le_bytes(*lsn))))
}

/// Flag of the first record of a set of copies.
pub(crate) const COPY_FIRST: u8 = 1;
/// Flag of the last record of a set of copies.
pub(crate) const COPY_LAST: u8 = 2;
/// Bytes of a copied change before its body.
pub(crate) const COPY_HEADER: usize = 15;

/// Appends a change to the body of a record of kind [`COPY`].
pub(crate) fn encode_copied(change: &CopiedChange<'_>, out: &mut Vec<u8>) {
    out.put_u64(change.lsn.0);
    out.put_u8(change.kind);
    out.put_u32(change.table.0);
    out.put_short_bytes(change.body);
}

/// A change in a record of kind [`COPY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedChange<'a> {
    /// LSN of the change itself.
    pub lsn: Lsn,
    /// The kind of its undo entry.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its undo entry.
    pub body: &'a [u8],
}

/// The body of a record of kind [`COPY`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyBody<'a> {
    /// Whether the record begins a set.
    pub is_first: bool,
    /// Whether the record completes a set.
    pub is_last: bool,
    /// Its changes, the oldest first.
    pub changes: Vec<CopiedChange<'a>>,
}

impl<'a> CopyBody<'a> {
    /// Decodes the body of a record of kind [`COPY`]; `None` for one that no engine writes.
    #[must_use]
    pub fn decode(body: &'a [u8]) -> Option<Self> {
        let mut from = Decoder::new(body);
        let flags = from.u8().ok()?;
        let mut changes = Vec::new();
        while !from.rest().is_empty() {
            let mut change = || -> Result<_, Short> {
                let (lsn, kind, table) = (Lsn(from.u64()?), from.u8()?, TableId(from.u32()?));
                Ok(CopiedChange { lsn, kind, table, body: from.short_bytes()? })
            };
            changes.push(change().ok()?);
        }
        let is_known = flags & !(COPY_FIRST | COPY_LAST) == 0;
        let (is_first, is_last) = (flags & COPY_FIRST != 0, flags & COPY_LAST != 0);
        is_known.then_some(Self { is_first, is_last, changes })
    }
}

/// Splits the body of a compensation into the LSN of the change undone and the body of its kind; `None` if it is
/// too short.
#[must_use]
pub fn split_clr(body: &[u8]) -> Option<(Lsn, &[u8])> {
    let mut from = Decoder::new(body);
    let mut fields = || -> Result<_, Short> { Ok((Lsn(from.u64()?), from.rest())) };
    fields().ok()
}

/// Modes of table locks, by their numbers on disk.
const MODES: [TableMode; 5] = [
    TableMode::IntentShared,
    TableMode::IntentExclusive,
    TableMode::Shared,
    TableMode::SharedIntentExclusive,
    TableMode::Exclusive,
];

/// Encodes the body of a prepare record.
pub(crate) fn encode_prepare(body: &PrepareBody) -> Vec<u8> {
    let count = |len: usize| u32::try_from(len).expect("locks are fewer than 2^32");
    let mut out = Vec::new();
    out.put_short_bytes(body.name.as_bytes());
    out.put_short_bytes(body.label.as_bytes());
    out.put_u32(count(body.tables.len()));
    for (table, mode) in &body.tables {
        out.put_u32(table.0);
        out.put_u8(MODES.iter().position(|known| known == mode).expect("every mode has a number") as u8);
    }
    out.put_u32(count(body.ranges.len()));
    for HeldRange { table, keys } in &body.ranges {
        out.put_u32(table.0);
        out.put_u8(u8::from(keys.high().is_some()));
        out.put_short_bytes(keys.low());
        if let Some(high) = keys.high() {
            out.put_short_bytes(high);
        }
    }
    out.put_u32(count(body.rows.len()));
    for row in &body.rows {
        out.put_u8(row.kind);
        out.put_u32(row.table.0);
        out.put_short_bytes(&row.body);
    }
    out.put(&body.note);
    out
}

/// Decodes the body of a prepare record. The error says which part is invalid.
pub fn decode_prepare(body: &[u8]) -> Result<PrepareBody, &'static str> {
    prepare_fields(body).unwrap_or(Err("a prepare record is too short"))
}

fn prepare_fields(body: &[u8]) -> Result<Result<PrepareBody, &'static str>, Short> {
    let mut from = Decoder::new(body);
    let (name, label) = (from.short_bytes()?, from.short_bytes()?);
    let (Ok(name), Ok(label)) = (std::str::from_utf8(name), std::str::from_utf8(label)) else {
        return Ok(Err("a prepare record has a name that is not UTF-8"));
    };
    let (mut tables, mut ranges, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..from.u32()? {
        let (table, mode) = (TableId(from.u32()?), from.u8()?);
        let Some(&mode) = MODES.get(usize::from(mode)) else { return Ok(Err("a prepare record has an unknown mode")) };
        tables.push((table, mode));
    }
    for _ in 0..from.u32()? {
        let (table, has_high, low) = (TableId(from.u32()?), from.u8()?, from.short_bytes()?);
        let high = match has_high {
            0 => None,
            1 => Some(from.short_bytes()?),
            _ => return Ok(Err("a prepare record has an unknown kind of bound")),
        };
        let Some(keys) = Interval::from_parts(low, high) else { return Ok(Err("a prepare record locks no key")) };
        ranges.push(HeldRange { table, keys });
    }
    for _ in 0..from.u32()? {
        let (kind, table) = (from.u8()?, TableId(from.u32()?));
        rows.push(LoggedChange { lsn: Lsn::ZERO, kind, table, body: from.short_bytes()?.into() });
    }
    Ok(Ok(PrepareBody { name: name.into(), label: label.into(), tables, ranges, rows, note: from.rest().into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_decode_as_changes_without_pages() {
        for kind in [COMMIT, END, XID_CEILING, CHECKPOINT, PREPARE, ABORT, PASS, COPY] {
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
        let passed = decode_pass(&[2, 1, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).map(Iterator::collect::<Vec<_>>);
        assert_eq!(passed, Some(vec![Lsn(258), Lsn(1)]));
        assert!([0, 7, 9].iter().all(|&len| decode_pass(&[1; 9][..len]).is_none()));
        assert_eq!(split_clr(&[1, 0, 0, 0, 0, 0, 0, 0, 7, 8]), Some((Lsn(1), &[7, 8][..])));
        assert_eq!(split_clr(&[1; 7]), None);
    }

    #[test]
    fn a_copy_record_has_these_bytes_and_others_are_refused() {
        let mut bytes = vec![COPY_FIRST | COPY_LAST];
        let change = CopiedChange { lsn: Lsn(258), kind: 35, table: TableId(9), body: &[5, 6] };
        encode_copied(&change, &mut bytes);
        assert_eq!(bytes, [3, 2, 1, 0, 0, 0, 0, 0, 0, 35, 9, 0, 0, 0, 2, 0, 5, 6]);
        assert_eq!(bytes.len(), 1 + COPY_HEADER + change.body.len());
        encode_copied(&CopiedChange { lsn: Lsn(259), body: &[], ..change }, &mut bytes);
        let decoded = CopyBody::decode(&bytes).expect("our own body");
        assert!(decoded.is_first && decoded.is_last);
        assert_eq!(decoded.changes.iter().map(|change| change.lsn.0).collect::<Vec<_>>(), [258, 259]);
        for len in 0..bytes.len() {
            assert_eq!(CopyBody::decode(&bytes[..len]).is_some(), [1, 18].contains(&len), "{len} bytes");
        }
        bytes[0] = 4;
        assert_eq!(CopyBody::decode(&bytes), None);
    }

    fn prepared() -> PrepareBody {
        let rows = vec![LoggedChange { lsn: Lsn::ZERO, kind: 36, table: TableId(9), body: Box::new([5, 6]) }];
        PrepareBody {
            name: "n".into(),
            label: "lb".into(),
            tables: vec![(TableId(7), TableMode::IntentExclusive), (TableId(8), TableMode::Exclusive)],
            ranges: vec![
                HeldRange { table: TableId(7), keys: Interval::from_parts(&[1], Some(&[1, 2])).expect("not empty") },
                HeldRange { table: TableId(8), keys: Interval::from_parts(&[], None).expect("not empty") },
            ],
            rows,
            note: Box::new([0xAA]),
        }
    }

    #[test]
    fn a_prepare_record_has_these_bytes() {
        let bytes = encode_prepare(&prepared());
        let expected: Vec<u8> = [
            &[1, 0, b'n', 2, 0, b'l', b'b'][..],
            &[2, 0, 0, 0, 7, 0, 0, 0, 1, 8, 0, 0, 0, 4],
            &[2, 0, 0, 0, 7, 0, 0, 0, 1, 1, 0, 1, 2, 0, 1, 2, 8, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 36, 9, 0, 0, 0, 2, 0, 5, 6],
            &[0xAA],
        ]
        .concat();
        assert_eq!(bytes, expected);
        assert_eq!(decode_prepare(&bytes), Ok(prepared()));
    }

    #[test]
    fn prepare_records_that_no_engine_writes_are_refused() {
        let bytes = encode_prepare(&prepared());
        // The note is the rest of the body, so a body may be cut only after the lists.
        for len in 0..bytes.len() - 1 {
            assert!(decode_prepare(&bytes[..len]).is_err(), "{len} bytes");
        }
        for (at, byte) in [(2, 0xFF), (5, 0xFF), (15, 5), (29, 2), (33, 0), (7, 0xFF), (21, 0xFF)] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            assert!(decode_prepare(&bytes).is_err(), "byte {at}");
        }
    }
}
