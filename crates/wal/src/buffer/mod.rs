//! Log buffers: where sessions append, and from where a leader cuts groups.

mod aether;
mod circle;
mod faa;
mod lanes;
mod laser;
mod memory;
mod ring;

pub use aether::{CArray, Decoupled, Delegated, Hybrid, Locked, Shape};
pub use faa::Faa;
pub use lanes::Lanes;
pub use laser::Laser;
pub use ring::{Ring, RingBuffer};

use crate::checksum::{Crc, crc32c_pieces};
use crate::format::{EXTENT, Envelope, Extent, GROUP_HEADER, record_size};
use crate::options::{BufferKind, LogOptions};
use crate::record::Record;
use crate::slots::Slots;
use foreshore_base::{Lsn, Result};
use foreshore_io::AlignedBuf;
use std::io;
use std::sync::Arc;

/// A buffer between sessions and the one leader. It speaks of stamps and cuts, never of places in a file.
///
/// A session is known by its slot, or by the lane that it has for a time: see [`crate::lanes`]. Between [`LogBuffer::admit`] and
/// the append that uses what was admitted, that stays leased by the same session.
pub trait LogBuffer: Send + Sync {
    /// Admits `bytes` more for the session in `slot` and returns what was admitted, at least as much; `None` if there is
    /// no room now.
    fn admit(&self, slot: usize, bytes: u64) -> Option<u64>;

    /// Whether the session in `slot` does well to see to room before it has none left.
    fn is_short(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// Takes back what was admitted and not used; true if another session may use it.
    fn give_back(&self, slot: usize, bytes: u64) -> bool;

    /// Appends a record that the session was admitted for, and returns its LSN, greater than `dep`.
    fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn;

    /// Upper bound of the LSNs handed out.
    fn current(&self) -> Lsn;

    /// Whether LSNs up to `lsn` may have been handed out. Asked for every commit, where [`LogBuffer::current`] may have to
    /// look at every session.
    fn reaches(&self, lsn: Lsn) -> bool {
        lsn <= self.current()
    }

    /// The clock of commits: at or above the stamp of every commit record whose append happened before this call. Changed by
    /// read-modify-writes alone: who reads a value sees what came before the append of every commit with a stamp up to it.
    fn commit_clock(&self) -> Lsn;

    /// Raises the clock of commits to `to`, which a later cut then may reach without a record of that stamp. False, and nothing
    /// has changed, where a stamp is the position of a record: there a record has to be appended instead.
    fn raise_commit_clock(&self, to: Lsn) -> bool;

    /// Copies publishable records into `staging`, as many whole ones as fit, and makes their room free. `prev` is the last
    /// cut. One caller at a time.
    ///
    /// # Errors
    /// If it cannot be known any more what a cut may cover.
    fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained>;

    /// As [`LogBuffer::drain`] for a session that wants room: what frees room for `slot` is enough, and the cut need not
    /// rise.
    ///
    /// # Errors
    /// As [`LogBuffer::drain`].
    fn drain_for(&self, slot: usize, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let _ = slot;
        self.drain(prev, staging)
    }
}

/// What a call of [`LogBuffer::drain`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every record with an LSN up to here has been copied by this call or an earlier one. Never below the last cut.
    pub cut: Lsn,
    /// Not everything publishable fitted: the next call goes on. The cut may stand still meanwhile.
    pub more: bool,
}

/// A buffer of the options' kind whose first LSN is greater than `floor`.
pub(crate) fn new_buffer(options: &LogOptions, slots: &Arc<Slots>, floor: Lsn) -> io::Result<Arc<dyn LogBuffer>> {
    let ring = || Ring::new(options.ring_bytes, floor);
    let shape = Shape::new(options);
    Ok(match options.buffer {
        BufferKind::Mutex => Arc::new(Locked::new(ring()?, &shape)),
        BufferKind::CArray => Arc::new(CArray::new(ring()?, &shape)),
        BufferKind::Decoupled => Arc::new(Decoupled::new(ring()?, &shape)),
        BufferKind::Hybrid => Arc::new(Hybrid::new(ring()?, &shape)),
        BufferKind::Delegated => Arc::new(Delegated::new(ring()?, &shape)),
        BufferKind::Faa => Arc::new(Faa::new(ring()?, slots.clone())),
        BufferKind::Laser => Arc::new(Laser::new(ring()?, Laser::limit(options.ring_bytes), Laser::GROUPS)),
        BufferKind::Lanes => Arc::new(Lanes::with_shared(
            options.lane_bytes(),
            options.lanes(),
            options.shared_lanes(),
            slots.clone(),
            floor,
        )?),
    })
}

/// A record and what is known of its payload: all that its envelope says, but for the LSN.
#[derive(Debug)]
pub struct Sealed<'a> {
    record: Record<'a>,
    payload: u32,
    payload_crc: u32,
}

impl<'a> Sealed<'a> {
    /// Checksums the payload, for buffers that draw a position before they copy.
    pub fn new(record: &Record<'a>) -> Self {
        Self { record: *record, payload: payload_len(record), payload_crc: crc32c_pieces(record.parts) }
    }

    /// Bytes in the buffer, a multiple of eight.
    #[inline]
    pub fn size(&self) -> usize {
        record_size(self.payload as usize)
    }

    /// The words of the record's envelope for `lsn`.
    #[inline(always)]
    fn envelope<C: Crc>(&self, how: C, lsn: Lsn) -> [u64; 3] {
        let Record { tag, flags, .. } = self.record;
        Envelope { len: self.payload, lsn, tag, flags }.words(how, self.payload_crc)
    }
}

#[inline]
fn payload_len(record: &Record<'_>) -> u32 {
    u32::try_from(record.payload_len()).expect("a record's size is checked before it is appended")
}

/// Where a leader collects the data of one group: room for the header, a table of extents, data.
///
/// The table's size is fixed before the first byte of data, so that data never moves.
#[derive(Debug)]
pub struct Staging {
    buf: AlignedBuf,
    /// Entries of the table; those that find no extent say so by an empty one.
    table: usize,
    extents: Vec<Extent>,
    data: usize,
}

impl Staging {
    /// A group of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { buf: AlignedBuf::new(bytes), table: 0, extents: Vec::new(), data: 0 }
    }

    /// Entries that the table of a group of `bytes` has at most: a sixteenth of the group.
    pub(crate) const fn max_extents(bytes: usize) -> usize {
        bytes / (16 * EXTENT)
    }

    /// Empties the group.
    pub fn clear(&mut self) {
        self.extents.clear();
        (self.table, self.data) = (0, 0);
    }

    /// Makes a table for `count` extents, or as many as a group may have. The group is empty.
    pub fn expect_extents(&mut self, count: usize) {
        assert!(self.data == 0 && self.extents.is_empty(), "the table is made before the data");
        self.table = count.min(Self::max_extents(self.buf.len()));
    }

    /// Bytes of data that still fit: none if the table is full.
    pub fn room(&self) -> usize {
        if self.extents.len() == self.table {
            return 0;
        }
        self.buf.len() - self.data_start() - self.data
    }

    /// Adds an extent of `len` bytes of `lane` from its offset `at` on and returns the place for its data.
    ///
    /// # Panics
    /// If there is no room.
    pub fn extent(&mut self, lane: u16, at: u64, len: usize) -> &mut [u8] {
        assert!(len <= self.room(), "an extent beyond the group's room");
        self.extents.push(Extent { lane, len: u32::try_from(len).expect("a group is at most 1 MiB"), at });
        let start = self.data_start() + self.data;
        self.data += len;
        &mut self.buf[start..start + len]
    }

    /// The data collected, for models and checks.
    #[cfg(any(foreshore_loom, foreshore_shuttle, debug_assertions))]
    pub fn data(&self) -> &[u8] {
        &self.buf[self.data_start()..][..self.data]
    }

    /// Checks that no record collected should have been copied by the cut `prev`: the theorem of `lanes`, cut by cut.
    #[cfg(any(debug_assertions, foreshore_shuttle))]
    fn verify_above(&self, prev: Lsn) {
        let mut data = self.data();
        while !data.is_empty() {
            let (record, _, rest) = Envelope::split(data).expect("whole records are copied");
            assert!(record.lsn > prev, "record {} was missed by the cut at {prev}", record.lsn);
            data = rest;
        }
    }

    /// Bytes of data collected.
    pub fn data_len(&self) -> usize {
        self.data
    }

    /// The first `len` bytes: the group, once it is finished.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.buf[..len]
    }

    fn data_start(&self) -> usize {
        GROUP_HEADER + EXTENT * self.table
    }

    /// Writes table and padding and returns the group's bytes and the number of its extents; the header is not in yet.
    pub(crate) fn finish(&mut self) -> (&mut [u8], u16) {
        let used = self.data_start() + self.data;
        let total = used.next_multiple_of(foreshore_base::limits::BLOCK);
        let (extents, len) = (self.extents.len(), self.buf.len());
        assert!(extents <= self.table && total <= len, "{extents} extents of {}, {total} bytes of {len}", self.table);
        let parts: u64 = self.extents.iter().map(|extent| u64::from(extent.len)).sum();
        assert_eq!(parts, self.data as u64, "bytes of the extents of a group, and of its data");
        self.extents.resize(self.table, Extent { lane: 0, len: 0, at: 0 });
        for (i, extent) in self.extents.iter().enumerate() {
            let at = GROUP_HEADER + EXTENT * i;
            self.buf[at..at + EXTENT].copy_from_slice(&extent.encode());
        }
        self.buf[used..total].fill(0);
        (&mut self.buf[..total], u16::try_from(self.table).expect("a table has at most 4096 entries"))
    }
}
