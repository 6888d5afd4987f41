//! Everything that the log writes, byte by byte. Little-endian; format version 1.
//!
//! ```text
//! ctl                 two slots of 4096 bytes, written alternately
//!   0  magic 8 | 8  version 4 | 12 incarnation 4 | 16 uuid 16 | 32 seq 8 | 40 first group 8 | 48 its segment 8
//!   56 hdr_crc of the group before it 4 | 60 zero | 4092 crc32c of bytes 0..4092
//!
//! <number>.seg        block 0, then groups from offset 4096 on
//!   0  magic 8 | 8  version 4 | 12 zero 4 | 16 uuid 16 | 32 number 8 | 40 size 8 | 48 zero | 4092 crc32c of 0..4092
//!
//! group               a multiple of 4096 bytes, never rewritten, never across segments
//!   0  magic 8 | 8  version 2 | 10 n_ext 2 | 12 incarnation 4 | 16 uuid 16 | 32 group_no 8 | 40 cut lsn 8
//!   48 acked_upto 8 | 56 data_len 4 | 60 total_len 4 | 64 prev hdr_crc 4 | 68 data_crc 4 | 72 time 8 | 80 zero 12
//!   92 hdr_crc: crc32c of bytes 0..92
//!   96 extent table, n_ext x { 0 lane 2 | 2 zero 2 | 4 len 4 | 8 offset 8 }, then the data of the extents in order,
//!   then zeros. data_crc covers all from byte 96 to total_len.
//!
//! record              a multiple of 8 bytes, whole inside one extent
//!   0  len of payload 4 | 4  crc32c of payload, then of bytes 0..4 and 8..24 | 8  lsn 8
//!   16 tag 7 bytes | 23 flags 1 | 24 payload | zeros
//! ```
//!
//! `time` is the wall clock when the group was sealed, in nanoseconds since 1970, and never falls along the chain.
//! `acked_upto` is the newest group known to be durable, with all before it, when this one was sealed. If a group up to
//! there is missing, the medium has lost it; it is not a torn tail.

pub(crate) mod archive;

use crate::checksum::{Crc, Detected};
use foreshore_base::codec::{Filler, Put, u32_at, u64_at};
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Place, Result, Uuid, crc32c};
use foreshore_sync::Nanos;
use std::path::Path;

/// Format version of every structure here. No other is read.
pub(crate) const VERSION: u32 = 1;
/// Bytes in front of a record's payload.
pub(crate) const ENVELOPE: usize = 24;
/// Bytes in front of a group's extent table.
pub(crate) const GROUP_HEADER: usize = 96;
/// Bytes of one entry of the extent table.
pub(crate) const EXTENT: usize = 16;
/// Largest group in bytes.
pub(crate) const MAX_GROUP: usize = 1 << 20;
/// Every number and LSN is below this, so that a start can increment what it finds.
pub(crate) const STAMP_LIMIT: u64 = 1 << 62;
/// Every incarnation is below this, for the same reason.
const INCARNATION_LIMIT: Incarnation = Incarnation(u32::MAX);
/// Offset of a segment's first group.
pub(crate) const FIRST_GROUP: u64 = BLOCK as u64;

const CTL_MAGIC: [u8; 8] = *b"FSHORCTL";
const SEGMENT_MAGIC: [u8; 8] = *b"FSHORSEG";
const GROUP_MAGIC: [u8; 8] = *b"FSHORGRP";
const HDR_CRC: usize = 92;
const BLOCK_CRC: usize = BLOCK - 4;

const _: () = assert!(GROUP_HEADER == HDR_CRC + 4 && GROUP_HEADER.is_multiple_of(8) && EXTENT.is_multiple_of(8));
const _: () = assert!(ENVELOPE == 4 + 4 + 8 + 8);
const _: () = assert!(MAX_GROUP.is_multiple_of(BLOCK));

/// Bytes that a record of `payload` bytes takes.
pub(crate) const fn record_size(payload: usize) -> usize {
    (ENVELOPE + payload).next_multiple_of(8)
}

/// The header of a record; the payload follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) len: u32,
    pub(crate) lsn: Lsn,
    pub(crate) tag: u64,
    pub(crate) flags: u8,
}

impl Envelope {
    /// Returns the header as three words, to be stored little-endian. `payload_crc` is the payload's checksum, computed
    /// before the LSN is known.
    #[inline(always)]
    pub(crate) fn words<C: Crc>(&self, checksum: C, payload_crc: u32) -> [u64; 3] {
        let word = self.tag | u64::from(self.flags) << 56;
        let crc = checksum.words(payload_crc, self.len, self.lsn.0, word);
        [u64::from(self.len) | u64::from(crc) << 32, self.lsn.0, word]
    }

    /// The envelope's bytes.
    #[cfg(test)]
    pub(crate) fn encode(&self, payload_crc: u32) -> [u8; ENVELOPE] {
        let mut bytes = [0; ENVELOPE];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.words(Detected, payload_crc)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the record at the front of `bytes`. Returns its header, its payload and the bytes after it; `None` if it
    /// is cut short or its checksum is wrong.
    pub(crate) fn split(bytes: &[u8]) -> Option<(Self, &[u8], &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<ENVELOPE>()?;
        let len = u32_at(head, 0);
        let payload = rest.get(..len as usize)?;
        let next = bytes.get(record_size(payload.len())..)?;
        let (lsn, word) = (Lsn(u64_at(head, 8)), u64_at(head, 16));
        if Detected.words(crc32c(payload), len, lsn.0, word) != u32_at(head, 4) {
            return None;
        }
        let envelope = Self { len, lsn, tag: word & crate::MAX_TAG, flags: (word >> 56) as u8 };
        Some((envelope, payload, next))
    }
}

/// The header of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupHeader {
    pub(crate) n_ext: u16,
    pub(crate) incarnation: Incarnation,
    pub(crate) uuid: Uuid,
    pub(crate) group: GroupNo,
    /// Every record of this incarnation with an LSN up to here is in this group or an earlier one.
    pub(crate) cut: Lsn,
    pub(crate) acked_upto: GroupNo,
    pub(crate) data_len: u32,
    pub(crate) total_len: u32,
    pub(crate) prev_crc: u32,
    pub(crate) data_crc: u32,
    /// Time since 1970 when the group was sealed, not less than that of the group before; 0 if not known.
    pub(crate) time: Nanos,
}

/// The result of decoding a group header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A header and its checksum, the `prev_crc` of the next group.
    Header(GroupHeader, u32),
    /// Magic and checksum are right, and the version, given here, is not [`VERSION`].
    Newer(u32),
    /// No header, a wrong checksum, or impossible lengths or numbers.
    Nothing,
}

impl GroupHeader {
    /// Returns the header's bytes, and their checksum: the `prev_crc` of the next group.
    pub(crate) fn encode(&self) -> ([u8; GROUP_HEADER], u32) {
        let mut out = Filler::<GROUP_HEADER>::new();
        out.put(&GROUP_MAGIC);
        out.put_u16(VERSION as u16);
        out.put_u16(self.n_ext);
        out.put_u32(self.incarnation.0);
        out.put(&self.uuid.0);
        out.put_u64(self.group.0);
        out.put_u64(self.cut.0);
        out.put_u64(self.acked_upto.0);
        out.put_u32(self.data_len);
        out.put_u32(self.total_len);
        out.put_u32(self.prev_crc);
        out.put_u32(self.data_crc);
        out.put_u64(self.time.0);
        out.skip_to(HDR_CRC);
        let crc = crc32c(out.filled());
        out.put_u32(crc);
        (out.full(), crc)
    }

    /// Decodes a header, and checks its lengths and numbers. Fewer than [`GROUP_HEADER`] bytes are no header.
    pub(crate) fn decode(bytes: &[u8]) -> Decoded {
        let Some(head) = bytes.first_chunk::<GROUP_HEADER>() else { return Decoded::Nothing };
        let crc = u32_at(head, HDR_CRC);
        if head[0..8] != GROUP_MAGIC || crc32c(&head[..HDR_CRC]) != crc {
            return Decoded::Nothing;
        }
        let version = u32::from(u16::from_le_bytes([head[8], head[9]]));
        if version != VERSION {
            return Decoded::Newer(version);
        }
        let header = Self {
            n_ext: u16::from_le_bytes([head[10], head[11]]),
            incarnation: Incarnation(u32_at(head, 12)),
            uuid: uuid_at(head, 16),
            group: GroupNo(u64_at(head, 32)),
            cut: Lsn(u64_at(head, 40)),
            acked_upto: GroupNo(u64_at(head, 48)),
            data_len: u32_at(head, 56),
            total_len: u32_at(head, 60),
            prev_crc: u32_at(head, 64),
            data_crc: u32_at(head, 68),
            time: Nanos(u64_at(head, 72)),
        };
        let total = header.total_len as usize;
        let used = header.data_start() + header.data_len as usize;
        let lengths_fit = total <= MAX_GROUP && total.is_multiple_of(BLOCK) && used <= total;
        let is_below_limits = header.group.0.max(header.cut.0) < STAMP_LIMIT && header.incarnation < INCARNATION_LIMIT;
        match lengths_fit && is_below_limits && header.group > GroupNo::ZERO {
            true => Decoded::Header(header, crc),
            false => Decoded::Nothing,
        }
    }

    /// Offset in the group of the first byte behind the extent table.
    pub(crate) fn data_start(&self) -> usize {
        GROUP_HEADER + EXTENT * usize::from(self.n_ext)
    }
}

/// One entry of the extent table: `len` bytes of a lane, from its offset `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) lane: u16,
    pub(crate) len: u32,
    pub(crate) at: u64,
}

impl Extent {
    /// The entry's bytes.
    pub(crate) fn encode(&self) -> [u8; EXTENT] {
        let mut bytes = [0; EXTENT];
        bytes[0..2].copy_from_slice(&self.lane.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    /// Decodes an entry.
    pub(crate) fn decode(bytes: &[u8; EXTENT]) -> Self {
        Self { lane: u16::from_le_bytes([bytes[0], bytes[1]]), len: u32_at(bytes, 4), at: u64_at(bytes, 8) }
    }
}

/// Block 0 of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) uuid: Uuid,
    pub(crate) number: u64,
    pub(crate) size: u64,
}

impl SegmentHeader {
    /// The block's bytes.
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut out = block_start(SEGMENT_MAGIC, 0, self.uuid);
        out.put_u64(self.number);
        out.put_u64(self.size);
        finish_block(out)
    }

    /// Decodes block 0 of the file at `path`, and refuses it as `Foreign` if its uuid is not `uuid`.
    pub(crate) fn decode(block: &[u8], path: &Path, uuid: Uuid) -> Result<Self> {
        check_block(block, SEGMENT_MAGIC, uuid, path, 0)?;
        let header = Self { uuid, number: u64_at(block, 32), size: u64_at(block, 40) };
        let is_possible = header.size >= 2 * FIRST_GROUP && header.size.is_multiple_of(BLOCK as u64);
        check_fields(is_possible, path, 40, "the size of the segment is impossible").map(|()| header)
    }
}

/// One of the two slots of `ctl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CtlSlot {
    pub(crate) uuid: Uuid,
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    /// The first group still needed, always the first of its segment.
    pub(crate) first: GroupNo,
    pub(crate) segment: u64,
    pub(crate) prev_crc: u32,
}

impl CtlSlot {
    /// The slot's bytes.
    pub(crate) fn encode(&self) -> [u8; BLOCK] {
        let mut out = block_start(CTL_MAGIC, self.incarnation.0, self.uuid);
        out.put_u64(self.seq);
        out.put_u64(self.first.0);
        out.put_u64(self.segment);
        out.put_u32(self.prev_crc);
        finish_block(out)
    }

    /// Decodes the slot at `offset` of the file at `path`, and refuses it as `Foreign` if its uuid is not `uuid`.
    pub(crate) fn decode(block: &[u8], path: &Path, offset: u64, uuid: Uuid) -> Result<Self> {
        check_block(block, CTL_MAGIC, uuid, path, offset)?;
        let slot = Self {
            uuid,
            incarnation: Incarnation(u32_at(block, 12)),
            seq: u64_at(block, 32),
            first: GroupNo(u64_at(block, 40)),
            segment: u64_at(block, 48),
            prev_crc: u32_at(block, 56),
        };
        let largest = slot.seq.max(slot.first.0).max(slot.segment);
        let are_possible = largest < STAMP_LIMIT && slot.first > GroupNo::ZERO && slot.incarnation < INCARNATION_LIMIT;
        check_fields(are_possible, path, offset, "the numbers of a control slot are impossible").map(|()| slot)
    }
}

fn block_start(magic: [u8; 8], incarnation: u32, uuid: Uuid) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    out.put(&magic);
    out.put_u32(VERSION);
    out.put_u32(incarnation);
    out.put(&uuid.0);
    out
}

fn finish_block(mut out: Vec<u8>) -> [u8; BLOCK] {
    out.resize(BLOCK_CRC, 0);
    let crc = crc32c(&out);
    out.put_u32(crc);
    out.try_into().expect("the fields fill a block")
}

/// Checks magic, checksum, version and uuid, in an order that distinguishes foreign, damaged and newer files.
fn check_block(block: &[u8], magic: [u8; 8], uuid: Uuid, path: &Path, offset: u64) -> Result<()> {
    if block.len() < BLOCK {
        return Err(Error::Truncated {
            file: path.into(),
            len: offset + block.len() as u64,
            expected: offset + BLOCK as u64,
        });
    }
    let sound = crc32c(&block[..BLOCK_CRC]) == u32_at(block, BLOCK_CRC);
    if block[0..8] != magic {
        return Err(match sound {
            true => Error::Foreign { path: path.into(), why: "it is another kind of file" },
            false => Error::corrupted(path, Place::Offset(offset), "no header is found"),
        });
    }
    if !sound {
        return Err(Error::corrupted(path, Place::Offset(offset), "the checksum of the header does not fit"));
    }
    match u32_at(block, 8) {
        VERSION if uuid_at(block, 16) == uuid => Ok(()),
        VERSION => Err(Error::Foreign { path: path.into(), why: "it carries the uuid of another database" }),
        found => Err(Error::Newer { path: path.into(), found, supported: VERSION }),
    }
}

/// Refuses a block whose fields say what is never written, although its checksum fits.
fn check_fields(are_possible: bool, path: &Path, at: u64, why: &'static str) -> Result<()> {
    if are_possible { Ok(()) } else { Err(Error::corrupted(path, Place::Offset(at), why)) }
}

fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}

/// File name of segment `number`.
pub(crate) fn segment_name(number: u64) -> String {
    format!("{number:020}.seg")
}

/// File name of segment `number` while it is being created.
pub(crate) fn temporary_name(number: u64) -> String {
    format!("{number:020}.tmp")
}

/// The number in a name that ends in `suffix`.
pub(crate) fn number_of(name: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_suffix(suffix)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
