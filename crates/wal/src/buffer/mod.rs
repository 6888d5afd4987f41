//! Log buffers: where sessions append, and from where a leader cuts groups.

mod faa;
mod memory;
mod mutex;
mod ring;

pub use faa::Faa;
pub use mutex::Locked;
pub use ring::Ring;

use crate::credit::Credits;
use crate::format::{ENVELOPE, EXTENT, Extent, GROUP_HEADER};
use crate::options::BufferKind;
use crate::record::Record;
use crate::slots::{Slot, Slots};
use foreshore_base::{Lsn, crc32c_append};
use foreshore_io::AlignedBuf;
use std::io;
use std::sync::Arc;

/// A buffer between sessions and the one leader. It speaks of stamps and cuts, never of places in a file.
pub trait LogBuffer: Send + Sync {
    /// Appends a record and returns its LSN, greater than `dep`. Never waits: the session holds credit for it.
    fn append(&self, slot: &Slot, record: &Sealed<'_>, dep: Lsn) -> Lsn;

    /// Upper bound of the LSNs handed out.
    fn current(&self) -> Lsn;

    /// Copies publishable records into `staging`, as many whole ones as fit, gives their credit back, and returns the
    /// cut: every record with an LSN up to it has been copied by this call or an earlier one. Never below `prev`, the
    /// last cut. One caller at a time.
    fn drain(&self, slots: &Slots, credits: &Credits, prev: Lsn, staging: &mut Staging) -> Lsn;
}

/// A buffer of `kind` whose first LSN is greater than `floor`.
pub(crate) fn new_buffer(kind: BufferKind, ring_bytes: usize, floor: Lsn) -> io::Result<Arc<dyn LogBuffer>> {
    let ring = Ring::new(ring_bytes, floor)?;
    Ok(match kind {
        BufferKind::Mutex => Arc::new(Locked::new(ring)),
        BufferKind::Faa => Arc::new(Faa::new(ring)),
    })
}

/// A record ready to append: the checksum of its payload is done before a position is drawn.
#[derive(Debug)]
pub struct Sealed<'a> {
    pub(crate) record: Record<'a>,
    pub(crate) payload: u32,
    pub(crate) payload_crc: u32,
}

impl<'a> Sealed<'a> {
    /// Checksums the payload.
    pub fn new(record: Record<'a>) -> Self {
        let payload = u32::try_from(record.payload_len()).expect("a record's size is checked before it is sealed");
        let payload_crc = record.parts.iter().fold(0, |crc, part| crc32c_append(crc, part));
        Self { record, payload, payload_crc }
    }

    /// Bytes in the buffer, a multiple of eight.
    pub fn size(&self) -> usize {
        crate::format::record_size(self.payload as usize)
    }

    /// The record's envelope for `lsn`.
    pub(crate) fn envelope(&self, lsn: Lsn) -> [u8; ENVELOPE] {
        let Record { tag, flags, .. } = self.record;
        crate::format::Envelope { len: self.payload, lsn, tag, flags }.encode(self.payload_crc)
    }
}

/// Where a leader collects the data of one group: room for the header, one extent per lane, data.
#[derive(Debug)]
pub struct Staging {
    buf: AlignedBuf,
    lanes: usize,
    extents: Vec<Extent>,
    data: usize,
}

impl Staging {
    /// A group of at most `bytes` with at most `lanes` extents.
    pub fn new(bytes: usize, lanes: usize) -> Self {
        Self { buf: AlignedBuf::new(bytes), lanes, extents: Vec::with_capacity(lanes), data: 0 }
    }

    /// Empties the group.
    pub fn clear(&mut self) {
        self.extents.clear();
        self.data = 0;
    }

    /// Bytes of data that still fit.
    pub fn room(&self) -> usize {
        self.buf.len() - self.data_start() - self.data
    }

    /// Adds an extent of `len` bytes of `lane` from its offset `at` on and returns the place for its data.
    ///
    /// # Panics
    /// If there is no room, or more extents than lanes.
    pub fn extent(&mut self, lane: u16, at: u64, len: usize) -> &mut [u8] {
        assert!(len <= self.room() && self.extents.len() < self.lanes, "an extent beyond the group's room");
        self.extents.push(Extent { lane, len: u32::try_from(len).expect("a group is at most 1 MiB"), at });
        let start = self.data_start() + self.data;
        self.data += len;
        &mut self.buf[start..start + len]
    }

    /// The data collected, for models.
    #[cfg(foreshore_loom)]
    pub fn data(&self) -> &[u8] {
        &self.buf[self.data_start()..][..self.data]
    }

    /// Bytes of data collected.
    pub fn data_len(&self) -> usize {
        self.data
    }

    // The table has one entry per lane even where a lane has no data, so that data never moves: empty entries say so.
    fn data_start(&self) -> usize {
        GROUP_HEADER + EXTENT * self.lanes
    }

    /// Writes table and padding and returns the group's bytes and the number of its extents; the header is not in yet.
    pub(crate) fn finish(&mut self) -> (&mut [u8], u16) {
        let used = self.data_start() + self.data;
        let total = used.next_multiple_of(foreshore_base::limits::BLOCK);
        self.extents.resize(self.lanes, Extent { lane: 0, len: 0, at: 0 });
        for (i, extent) in self.extents.iter().enumerate() {
            let at = GROUP_HEADER + EXTENT * i;
            self.buf[at..at + EXTENT].copy_from_slice(&extent.encode());
        }
        self.buf[used..total].fill(0);
        (&mut self.buf[..total], u16::try_from(self.lanes).expect("lanes fit the extent table"))
    }
}
