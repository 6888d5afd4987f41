//! The format of a node.
//!
//! All integers are little-endian; offsets count from the start of the page.
//!
//! ```text
//!  0                    32                                          64                    heap            8192
//!  | common page header | node header                               | slots, 8 B each ... | free | heap ... |
//!
//!  node header:
//!  32       34     36        38         40              48               56        58        60         62
//!  | slots  | heap | garbage | run      | right sibling | leftmost child | low at  | low len | high at  | high len |
//!  | u16    | u16  | u16     | u16      | u64           | u64            | u16     | u16     | u16      | u16      |
//!  run:          0..10 run end | 10..16 shared
//!
//!  slot:         0 tuple at u16 | 2 key length u16 | 4 head u32: 4 bytes of the key behind the shared ones,
//!                big-endian, zero-padded
//!  leaf tuple:   0 xid48 << 16 | flags16   8 undo48 << 16 | value length 16   16 key ... value ...
//!  inner tuple:  0 child u64   8 key ...
//! ```
//!
//! Slots are in key order. The heap grows downwards and holds tuples and the two fences in any order. `garbage` counts
//! its unused bytes. `run end` is one more than the index of the entry that was inserted last, or 0 if unknown. It is a
//! hint: a key that belongs at that index continues an ascending run.
//!
//! A node holds keys `low <= key < high`. `shared` is the length of a common prefix of both fences, and so of each key
//! between them; it is 0 in a node without a high fence. Heads have the bytes after that prefix. Entry `i` of an inner
//! node leads to the keys from its own key on. Keys below the first entry lead to the leftmost child. The level in the
//! page header is 0 for a leaf.
//!
//! Page flags: [`INCOMPLETE`] and [`HAS_HIGH`]. Tuple flags: [`GHOST`] and [`OVERFLOW`].
//!
//! **Large values.** The value of a row with the flag [`OVERFLOW`] is a stub. It leads to a chain of pages:
//!
//! ```text
//!  stub:         0 head u64 | 8 birth u64 | 16 length u64 | 24 crc32c of the value u32 | 28 reserved u32 = 0
//!
//!  chain page:   32 head u64 | 40 birth u64 | 48 place u32 | 52 count u32 | 56 data, or page ids u32 each
//! ```
//!
//! `head` is the first page of the chain, and `birth` the xid of the transaction that built it. The level in the page
//! header is [`CHAIN_DATA`], [`CHAIN_INDEX`] or [`CHAIN_ROOT`]. `place` is the number of the data page in the value, or
//! of the first one below an index page. `count` is the number of bytes or of ids. All data pages but the last are
//! full. The head is the only data page, or the root. The first [`DIRECT`] ids of a root are those of data pages, the
//! others those of index pages.
//!
//! The table of chains is a tree. Its keys are heads, as 8 bytes, big-endian. Its values are births, as 8 bytes.

use foreshore_base::codec::{Decoder, Put, Short};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_KEY, MAX_PAGES, MAX_VALUE, MAX_XID, PAGE_SIZE};
use foreshore_base::{PageId, TableId, Xid};
use foreshore_buffer::format::PAGE_HEADER;

/// Page flag: the right sibling was split off and the parent does not know it yet.
pub const INCOMPLETE: u16 = 1;
/// Page flag: the node has a high fence. Without one it covers all keys from its low fence on.
pub const HAS_HIGH: u16 = 2;

/// Tuple flag: the row is deleted. The tuple is kept for rollback and for its header.
pub const GHOST: u16 = 1;
/// Tuple flag: the value lies in pages of its own, and the tuple has a stub that leads to them.
pub const OVERFLOW: u16 = 2;

/// Table id of the table of chains, which has a row for each chain that no committed row of a table refers to.
pub const CHAINS: TableId = TableId(2);

/// Level of a chain page with data.
pub const CHAIN_DATA: u8 = 0;
/// Level of a chain page with ids of data pages.
pub const CHAIN_INDEX: u8 = 1;
/// Level of the first page of a chain of several data pages.
pub const CHAIN_ROOT: u8 = 2;

pub(crate) const AT_HEAD: usize = PAGE_HEADER;
pub(crate) const AT_BIRTH: usize = PAGE_HEADER + 8;
pub(crate) const AT_PLACE: usize = PAGE_HEADER + 16;
pub(crate) const AT_COUNT: usize = PAGE_HEADER + 20;
/// First byte of the content of a chain page.
pub(crate) const CHAIN_BODY: usize = PAGE_HEADER + 24;
/// Bytes of a value in each data page but the last.
pub const CHAIN_BYTES: usize = PAGE_SIZE - CHAIN_BODY;
/// Bytes of a page id in an index page.
pub(crate) const CHAIN_ID: usize = 4;
/// Ids that an index page holds.
pub const CHAIN_IDS: usize = CHAIN_BYTES / CHAIN_ID;
/// Ids of data pages that a root holds. Others belong to index pages.
pub const DIRECT: usize = CHAIN_IDS - 128;

const _: () = assert!((DIRECT + (CHAIN_IDS - DIRECT) * CHAIN_IDS) * CHAIN_BYTES >= MAX_VALUE);
const _: () = assert!(MAX_PAGES <= 1 << (8 * CHAIN_ID) && MAX_VALUE / CHAIN_BYTES <= u32::MAX as usize);

pub(crate) const AT_SLOTS: usize = PAGE_HEADER;
pub(crate) const AT_HEAP: usize = PAGE_HEADER + 2;
pub(crate) const AT_GARBAGE: usize = PAGE_HEADER + 4;
pub(crate) const AT_RUN: usize = PAGE_HEADER + 6;
pub(crate) const AT_RIGHT: usize = PAGE_HEADER + 8;
pub(crate) const AT_LEFTMOST: usize = PAGE_HEADER + 16;
pub(crate) const AT_LOW: usize = PAGE_HEADER + 24;
pub(crate) const AT_HIGH: usize = PAGE_HEADER + 28;
/// First byte of the slots.
pub(crate) const SLOTS: usize = PAGE_HEADER + 32;

/// Bits of the run end.
pub(crate) const RUN_END_BITS: u32 = 10;
/// Largest value of `shared`.
pub(crate) const MAX_SHARED: usize = (1 << (u16::BITS - RUN_END_BITS)) - 1;

/// Bytes of a slot.
pub(crate) const SLOT: usize = 8;
/// Bytes of a leaf tuple before its key.
pub(crate) const LEAF_HEADER: usize = 16;
/// Bytes of an inner tuple before its key.
pub(crate) const INNER_HEADER: usize = 8;
/// Highest level of a node. A tree of this height has more leaves than a file has pages.
pub(crate) const MAX_LEVEL: u8 = 31;

/// Largest leaf entry, slot included.
pub(crate) const MAX_LEAF_ENTRY: usize = SLOT + LEAF_HEADER + MAX_KEY + MAX_INLINE_VALUE;
/// Largest inner entry, slot included.
pub(crate) const MAX_INNER_ENTRY: usize = SLOT + INNER_HEADER + MAX_KEY;

const _: () = assert!(SLOTS == 64 && PAGE_SIZE <= u16::MAX as usize);
// No node has more entries than the run end can count.
const _: () = assert!((PAGE_SIZE - SLOTS) / (SLOT + INNER_HEADER) < 1 << RUN_END_BITS);
// Fields that are read as one word.
const _: () =
    assert!(AT_HEAP == AT_SLOTS + 2 && AT_GARBAGE == AT_SLOTS + 4 && AT_RUN == AT_SLOTS + 6 && AT_HIGH == AT_LOW + 4);
// Any two entries fit in a leaf, even between the largest fences. An inner node that is too full for one more entry has
// at least four. So a split always makes space.
const _: () = assert!(SLOTS + 2 * MAX_KEY + 2 * MAX_LEAF_ENTRY <= PAGE_SIZE);
const _: () = assert!(SLOTS + 2 * MAX_KEY + 5 * MAX_INNER_ENTRY <= PAGE_SIZE);

/// Header of a leaf tuple: the transaction that wrote or locked the row last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowHeader {
    /// The transaction that holds the row if it is live, else the last that held it.
    pub xid: Xid,
    /// [`GHOST`], [`OVERFLOW`].
    pub flags: u16,
    /// Undo pointer, 48 bits: the place of the previous version, valid in the run that wrote it.
    pub undo: u64,
}

impl RowHeader {
    /// The header of an undone insert that stays as a ghost. It names no writer, so no reader sees a row.
    pub(crate) const GONE: Self = Self { xid: Xid::ZERO, flags: GHOST, undo: 0 };

    /// Returns whether the row is deleted.
    #[must_use]
    pub const fn is_ghost(self) -> bool {
        self.flags & GHOST != 0
    }

    /// Returns the first word on the page: xid and flags.
    pub(crate) const fn owner(self) -> u64 {
        debug_assert!(self.xid.0 < MAX_XID);
        self.xid.0 << 16 | self.flags as u64
    }

    /// Returns the header that begins with this word, with no undo pointer.
    pub(crate) const fn from_owner(owner: u64) -> Self {
        Self { xid: Xid(owner >> 16), flags: owner as u16, undo: 0 }
    }

    /// Returns the second word on the page: undo pointer and length of the value.
    pub(crate) const fn undo_word(undo: u64, value_len: usize) -> u64 {
        debug_assert!(undo < 1 << 48 && value_len <= u16::MAX as usize);
        undo << 16 | value_len as u64
    }

    #[inline]
    pub(crate) fn encode(self, value_len: usize) -> [u8; LEAF_HEADER] {
        let mut bytes = [0; LEAF_HEADER];
        bytes[..8].copy_from_slice(&self.owner().to_le_bytes());
        bytes[8..].copy_from_slice(&Self::undo_word(self.undo, value_len).to_le_bytes());
        bytes
    }

    /// Decodes the two words before a key: the header and the length of the value.
    #[inline]
    pub(crate) const fn from_words(owner: u64, undo: u64) -> (Self, usize) {
        (Self { undo: undo >> 16, ..Self::from_owner(owner) }, (undo & 0xffff) as usize)
    }
}

/// Returns the four bytes of a key after the first `shared`, as a number that compares as the bytes do.
#[inline]
pub(crate) fn key_head(key: &[u8], shared: usize) -> u32 {
    let rest = key.get(shared..).unwrap_or_default();
    if let Some(head) = rest.first_chunk() {
        return u32::from_be_bytes(*head);
    }
    // The key ends within its head. Bytes in front of the rest are shifted out.
    let last = key.last_chunk().map_or_else(|| padded(key), |last| u32::from_be_bytes(*last));
    (u64::from(last) << (8 * (4 - rest.len()))) as u32
}

/// Returns up to three bytes as a number.
fn padded(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// Names a chain: no two that a row has ever referred to have the same head and birth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainId {
    /// First page.
    pub head: PageId,
    /// The transaction that has built it.
    pub birth: Xid,
}

impl ChainId {
    /// Returns the key of its row in the table of chains.
    pub(crate) const fn key(self) -> [u8; 8] {
        self.head.0.to_be_bytes()
    }

    /// Returns the value of that row.
    pub(crate) const fn value(self) -> [u8; 8] {
        self.birth.0.to_le_bytes()
    }

    /// Decodes a row of the table of chains.
    pub(crate) fn from_row(key: &[u8], value: &[u8]) -> Result<Self, &'static str> {
        let (Ok(head), Ok(birth)) = (key.try_into(), value.try_into()) else { return Err(MALFORMED_CHAIN) };
        Self { head: PageId(u64::from_be_bytes(head)), birth: Xid(u64::from_le_bytes(birth)) }.checked()
    }

    pub(crate) fn checked(self) -> Result<Self, &'static str> {
        let is_valid = (1..MAX_PAGES).contains(&self.head.0) && (1..MAX_XID).contains(&self.birth.0);
        if is_valid { Ok(self) } else { Err(MALFORMED_CHAIN) }
    }
}

const MALFORMED_CHAIN: &str = "what leads to a large value is malformed";

/// What the tuple of a row holds in place of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// The chain.
    pub chain: ChainId,
    /// Bytes of the value.
    pub len: u64,
    /// CRC-32C of the value.
    pub crc: u32,
}

impl Stub {
    /// Bytes of a stub.
    pub const LEN: usize = 32;

    /// Returns the number of its pages: of data, and those with their ids.
    pub(crate) const fn pages(&self) -> u64 {
        match self.len.div_ceil(CHAIN_BYTES as u64) {
            1 => 1,
            data => 1 + data + data.saturating_sub(DIRECT as u64).div_ceil(CHAIN_IDS as u64),
        }
    }

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        assert!(self.len > MAX_INLINE_VALUE as u64, "a value of {} bytes has pages of its own", self.len);
        let mut out = Vec::with_capacity(Self::LEN);
        out.put_u64(self.chain.head.0);
        out.put_u64(self.chain.birth.0);
        out.put_u64(self.len);
        out.put_u32(self.crc);
        out.put_u32(0);
        out.try_into().expect("the parts of a stub")
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, &'static str> {
        let mut from = Decoder::new(value);
        let mut fields = || -> Result<_, Short> {
            let (head, birth) = (PageId(from.u64()?), Xid(from.u64()?));
            let (len, crc) = (from.u64()?, from.u32()?);
            from.u32()?;
            Ok((Self { chain: ChainId { head, birth }, len, crc }, from.is_empty()))
        };
        let (stub, is_whole) = fields().map_err(|Short| MALFORMED_CHAIN)?;
        stub.chain.checked()?;
        // A smaller value lies in its leaf.
        if is_whole && (MAX_INLINE_VALUE as u64 + 1..=MAX_VALUE as u64).contains(&stub.len) {
            Ok(stub)
        } else {
            Err(MALFORMED_CHAIN)
        }
    }
}
