//! The log buffer: where sessions append, and from where a leader cuts groups.
//!
//! A log has [`Lanes`] unless [`LogOptions::buffer`] names the maker of another one. [`LogBuffer`] is what the rest of
//! the log knows of either.

mod circle;
mod lanes;
mod memory;
mod record_ring;

pub use lanes::Lanes;
pub use memory::GRAIN;
pub use record_ring::RecordRing;

use crate::checksum::{Crc, crc32c_pieces};
use crate::format::{EXTENT, Envelope, Extent, GROUP_HEADER, record_size};
use crate::options::LogOptions;
use crate::record::Record;
use crate::slots::Slots;
use foreshore_base::{Lsn, Result};
use foreshore_io::AlignedBuf;
use std::sync::Arc;
use std::{fmt, io};

/// Most bytes of a group on disk.
pub const MAX_GROUP: usize = crate::format::MAX_GROUP;

/// A buffer between the sessions and the one leader. It speaks of stamps and cuts, never of places in a file.
///
/// A session is known by its slot, a number below the count of slots. In lanes the number is that of the lane that the
/// session has for a time. One thread at a time calls on behalf of a slot. Between [`LogBuffer::admit`] and the append
/// that uses what was admitted, the slot stays leased by the same session.
///
/// The contract:
///
/// 1. **Stamps.** The LSN of a record is greater than its dependency, than every LSN that its slot was given before,
///    and than the floor that the buffer was made with.
/// 2. **Cuts.** When a drain returns the cut `S`, every record with an LSN up to `S` has been copied by it or by an
///    earlier drain. Cuts never fall. Records above the cut may have been copied, too: they are provisional until a
///    later cut.
/// 3. **Copies.** Each record is copied once, whole, and behind the records that its slot appended before.
/// 4. **No waits for the disk.** `append` neither fails nor waits for a drain: `admit` has set the memory aside. A
///    panic in `append` must not keep other sessions from appending.
pub trait LogBuffer: Send + Sync {
    /// Admits `bytes` more for the session in `slot` and returns what was admitted, at least as much. Returns `None`
    /// without waiting if there is no room now; a drain makes room.
    fn admit(&self, slot: usize, bytes: u64) -> Option<u64>;

    /// Returns whether the session in `slot` should have room made before it runs out. A hint; false by default.
    fn is_short(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// Takes back `bytes` that were admitted for `slot` and not used. Returns whether another session may use them,
    /// which then is told.
    fn give_back(&self, slot: usize, bytes: u64) -> bool;

    /// Appends a record that the session was admitted for, and returns its LSN. See the contract of the trait.
    fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn;

    /// Returns an upper bound of the LSNs handed out so far.
    fn current(&self) -> Lsn;

    /// Returns whether LSNs up to `lsn` may have been handed out. Called for every commit, where [`LogBuffer::current`]
    /// may have to look at every slot.
    fn reaches(&self, lsn: Lsn) -> bool {
        lsn <= self.current()
    }

    /// Returns the clock of commits: a stamp at or above that of every record with
    /// [`flags::COMMIT`](crate::flags::COMMIT) whose append happened before this call. The clock is changed by
    /// read-modify-writes alone, so a reader of a value sees what came before the append of every commit up to it.
    fn commit_clock(&self) -> Lsn;

    /// Raises the clock of commits to `to`, so that a later cut may reach it without a record of that stamp. Returns
    /// false, and changes nothing, where a stamp is the position of a record: there a record has to be appended
    /// instead.
    fn raise_commit_clock(&self, to: Lsn) -> bool;

    /// Copies publishable records into `staging`, as many whole ones as fit, and makes their room free. `prev` is the last
    /// cut. One caller at a time; `staging` is empty.
    ///
    /// # Errors
    /// If it cannot be known any more what a cut may cover. The log then stops.
    fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained>;

    /// Drains for a session that needs room: what frees room for `slot` is enough, and the cut need not rise. By
    /// default [`LogBuffer::drain`].
    ///
    /// # Errors
    /// Those of [`LogBuffer::drain`].
    fn drain_for(&self, slot: usize, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let _ = slot;
        self.drain(prev, staging)
    }
}

/// Makes the log buffer of a log that shall not have lanes. See [`LogOptions::buffer`].
///
/// All buffers write the same format, so a log may have another one each time it is opened.
pub trait MakeLogBuffer: fmt::Debug + Send + Sync {
    /// Returns whether large records reach the buffer as fragments. Then a record takes at most an eighth of the
    /// buffer, and a larger one is appended in several. Otherwise a record takes at most a quarter, and a larger one is
    /// refused.
    fn fragments(&self) -> bool;

    /// Makes the buffer of one log.
    ///
    /// # Errors
    /// What the system answered to the request for memory.
    fn make(&self, new: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>>;
}

/// What a log buffer is made for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewLogBuffer<'a> {
    /// Memory in bytes: [`LogOptions::ring_bytes`]. A session reserves at most a quarter of it.
    pub bytes: usize,
    /// The first LSN is greater.
    pub floor: Lsn,
    /// The slots of all sessions: how many there are, and how many have been used.
    pub slots: &'a Arc<Slots>,
}

/// What a call of [`LogBuffer::drain`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every record with an LSN up to here has been copied by this call or an earlier one. Never below the last cut.
    pub cut: Lsn,
    /// Not everything publishable fitted: the next call goes on. The cut may stand still meanwhile.
    pub more: bool,
}

/// Makes the buffer that the options ask for, whose first LSN is greater than `floor`.
pub(crate) fn new_buffer(options: &LogOptions, slots: &Arc<Slots>, floor: Lsn) -> io::Result<Arc<dyn LogBuffer>> {
    let Some(maker) = &options.buffer else {
        let (bytes, count, shared) = (options.lane_bytes(), options.lanes(), options.shared_lanes());
        return Ok(Arc::new(Lanes::with_shared(bytes, count, shared, slots.clone(), floor)?));
    };
    let buffer = maker.make(&NewLogBuffer { bytes: options.ring_bytes, floor, slots })?;
    assert!(buffer.current() >= floor, "{maker:?} made a log that begins at {}, below {floor}", buffer.current());
    Ok(buffer)
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

    /// The data collected.
    pub fn data(&self) -> &[u8] {
        &self.buf[self.data_start()..][..self.data]
    }

    /// Stamps and tags of the records collected, in their order.
    ///
    /// # Panics
    /// If the data is not whole records.
    pub fn records(&self) -> impl Iterator<Item = (Lsn, u64)> {
        let mut data = self.data();
        std::iter::from_fn(move || {
            let (record, _, rest) =
                (!data.is_empty()).then(|| Envelope::split(data).expect("whole records are copied"))?;
            data = rest;
            Some((record.lsn, record.tag))
        })
    }

    /// Checks that no record collected should have been copied by the cut `prev`: the theorem of `lanes`, cut by cut.
    #[cfg(any(debug_assertions, foreshore_shuttle))]
    fn verify_above(&self, prev: Lsn) {
        for (lsn, _) in self.records() {
            assert!(lsn > prev, "record {lsn} was missed by the cut at {prev}");
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
