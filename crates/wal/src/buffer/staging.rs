//! The memory in which one group is collected.

use crate::format::{EXTENT, Envelope, Extent, GROUP_HEADER};
use foreshore_base::Lsn;
use foreshore_io::AlignedBuf;

/// The memory in which a leader collects one group: the header, a table of extents, data.
///
/// The table's size is fixed before the first byte of data, so that data never moves.
#[derive(Debug)]
pub struct Staging {
    buf: AlignedBuf,
    /// Entries of the table. Unused entries are empty extents.
    table: usize,
    extents: Vec<Extent>,
    data: usize,
}

impl Staging {
    /// Creates memory for a group of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self { buf: AlignedBuf::new(bytes), table: 0, extents: Vec::new(), data: 0 }
    }

    /// Returns the most entries of the table of a group of `bytes`: a sixteenth of the group.
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

    /// Returns the bytes of data that still fit: none if the table is full.
    pub fn free(&self) -> usize {
        if self.extents.len() == self.table {
            return 0;
        }
        self.buf.len() - self.data_start() - self.data
    }

    /// Adds an extent of `len` bytes of `lane` from its offset `at` on and returns the place for its data.
    ///
    /// # Panics
    /// If fewer bytes are free.
    pub fn extent(&mut self, lane: u16, at: u64, len: usize) -> &mut [u8] {
        assert!(len <= self.free(), "an extent beyond the memory of the group");
        self.extents.push(Extent { lane, len: u32::try_from(len).expect("a group is at most 1 MiB"), at });
        let start = self.data_start() + self.data;
        self.data += len;
        &mut self.buf[start..start + len]
    }

    /// Returns the data collected.
    pub fn data(&self) -> &[u8] {
        &self.buf[self.data_start()..][..self.data]
    }

    /// Returns stamps and tags of the records collected, in their order.
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

    /// Asserts that no collected record is covered by the cut `prev`: the theorem of `lanes`, for each cut.
    #[cfg(any(debug_assertions, foreshore_shuttle))]
    pub(super) fn verify_above(&self, prev: Lsn) {
        for (lsn, _) in self.records() {
            assert!(lsn > prev, "record {lsn} was missed by the cut at {prev}");
        }
    }

    /// Returns the bytes of data collected.
    pub fn data_len(&self) -> usize {
        self.data
    }

    /// Returns the first `len` bytes: the group, once it is finished.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.buf[..len]
    }

    fn data_start(&self) -> usize {
        GROUP_HEADER + EXTENT * self.table
    }

    /// Writes table and padding. Returns the group's bytes, still without the header, and the number of its extents.
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
