//! Bytes of the checkpoint record.
//!
//! The record is of kind `CHECKPOINT`, names no pages, and belongs to no transaction (its tag is zero). Its body, all
//! integers little-endian:
//!
//! ```text
//!  0          8         16      24           28        28 + 16 n
//!  | next xid | ceiling | clock | count n    | n x { xid u64 | first group u64 }
//!  | u64      | u64     | u64   | u32        |
//! ```
//!
//! `next xid`: every xid drawn before the checkpoint read it is below it. `ceiling`: no xid at or above it was drawn.
//! `clock`: at or above the stamp of every transaction that had ended. The list: each transaction that was running and
//! had an xid, with the first log group that may hold a record of it.

use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::limits::MAX_XID;
use foreshore_base::{Csn, GroupNo, Xid};

/// Bytes before the list.
pub(crate) const BODY_HEADER: usize = 28;
/// Bytes of one transaction in the list.
pub(crate) const BODY_ENTRY: usize = 16;

/// What a checkpoint saw of the transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckpointBody {
    pub(crate) next_xid: Xid,
    pub(crate) ceiling: Xid,
    pub(crate) clock: Csn,
    pub(crate) active: Vec<(Xid, GroupNo)>,
}

impl CheckpointBody {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BODY_HEADER + BODY_ENTRY * self.active.len());
        out.put_u64(self.next_xid.0);
        out.put_u64(self.ceiling.0);
        out.put_u64(self.clock.0);
        out.put_u32(u32::try_from(self.active.len()).expect("far fewer sessions than 2^32"));
        for (xid, first_group) in &self.active {
            out.put_u64(xid.0);
            out.put_u64(first_group.0);
        }
        out
    }

    /// Decodes a body. The error says what is wrong.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, &'static str> {
        Self::decode_fields(body).unwrap_or(Err("a checkpoint record is too short"))
    }

    fn decode_fields(body: &[u8]) -> Result<Result<Self, &'static str>, Short> {
        let mut from = Decoder::new(body);
        let (next_xid, ceiling, clock) = (Xid(from.u64()?), Xid(from.u64()?), Csn(from.u64()?));
        let count = from.u32()? as usize;
        if from.rest().len() != count.saturating_mul(BODY_ENTRY) {
            return Ok(Err("a checkpoint record has a list of another length than it says"));
        }
        if next_xid > ceiling || ceiling.0 > MAX_XID {
            return Ok(Err("a checkpoint record has an xid out of range"));
        }
        let mut active = Vec::with_capacity(count);
        for _ in 0..count {
            let (xid, first_group) = (Xid(from.u64()?), GroupNo(from.u64()?));
            if xid == Xid::ZERO || xid >= ceiling {
                return Ok(Err("a checkpoint record lists an xid out of range"));
            }
            active.push((xid, first_group));
        }
        Ok(Ok(Self { next_xid, ceiling, clock, active }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> CheckpointBody {
        let active = vec![(Xid(5), GroupNo(70)), (Xid(7), GroupNo(71))];
        CheckpointBody { next_xid: Xid(9), ceiling: Xid(65_536), clock: Csn(123_456), active }
    }

    #[test]
    fn a_body_has_these_bytes() {
        let bytes = body().encode();
        assert_eq!(bytes.len(), BODY_HEADER + 2 * BODY_ENTRY);
        assert_eq!(&bytes[..8], &9_u64.to_le_bytes());
        assert_eq!(&bytes[8..16], &65_536_u64.to_le_bytes());
        assert_eq!(&bytes[16..24], &123_456_u64.to_le_bytes());
        assert_eq!(&bytes[24..28], &2_u32.to_le_bytes());
        assert_eq!(&bytes[28..36], &5_u64.to_le_bytes());
        assert_eq!(CheckpointBody::decode(&bytes), Ok(body()));
    }

    #[test]
    fn bodies_that_no_checkpoint_writes_are_refused() {
        let bytes = body().encode();
        for len in 0..bytes.len() {
            assert!(CheckpointBody::decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(CheckpointBody { next_xid: Xid(65_537), ..body() }.encode_is_refused());
        assert!(CheckpointBody { ceiling: Xid(MAX_XID + 1), ..body() }.encode_is_refused());
        assert!(CheckpointBody { active: vec![(Xid(0), GroupNo(1))], ..body() }.encode_is_refused());
        assert!(CheckpointBody { active: vec![(Xid(65_536), GroupNo(1))], ..body() }.encode_is_refused());
        let mut huge = bytes;
        huge[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CheckpointBody::decode(&huge).is_err());
    }

    impl CheckpointBody {
        fn encode_is_refused(&self) -> bool {
            Self::decode(&self.encode()).is_err()
        }
    }
}
