//! The leader's work: sealing what the buffer yields into a group, with a place behind the last one.

use crate::buffer::{Drained, LogBuffer, Staging};
use crate::format::{Decoded, FIRST_GROUP, GROUP_HEADER, GroupHeader};
use crate::pipeline::{Cut, Group, Leader, Order};
use crate::segment::Segments;
use crate::watch::GrowthWatch;
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Incarnation, Result, crc32c};
use foreshore_io::File;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;

/// What was written so far.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    groups: AtomicU64,
    bytes: GrowthWatch,
    writes: AtomicU64,
}

impl Totals {
    fn add(&self, bytes: usize, writes: u64) {
        // ORDERING: Relaxed, counters.
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.bytes.add(bytes as u64);
    }

    /// Bytes of the groups written, padding included.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.written()
    }

    /// The watch over the bytes written.
    pub(crate) const fn growth(&self) -> &GrowthWatch {
        &self.bytes
    }

    /// Groups, their bytes, padding included, and how many were written.
    pub(crate) fn get(&self) -> (u64, u64, u64) {
        // ORDERING: Relaxed, counters.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.groups), self.bytes(), count(&self.writes))
    }
}

/// Where the next group goes.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) incarnation: Incarnation,
    pub(crate) prev_crc: u32,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Tail {
    /// Gives `group`, of `total` bytes and with a predecessor of checksum `prev_crc`, its place behind the last one. A group
    /// that does not fit the rest of the segment goes to the next one.
    pub(crate) fn place(
        &mut self,
        segments: &Segments,
        group: GroupNo,
        prev_crc: u32,
        total: u64,
    ) -> Result<(Arc<dyn File>, u64)> {
        if self.offset + total > self.size {
            let ready = segments.roll(group, prev_crc)?;
            (self.file, self.offset, self.size) = (ready.file, FIRST_GROUP, ready.size);
        }
        let offset = self.offset;
        self.offset += total;
        assert!(offset.is_multiple_of(BLOCK as u64), "group {group} is written at {offset}, inside of a block");
        assert!(offset >= FIRST_GROUP, "group {group} is written at {offset}, over the head of its segment");
        assert!(self.offset <= self.size, "group {group} reaches to {} in a segment of {}", self.offset, self.size);
        segments.placed(group, offset, self.offset);
        Ok((self.file.clone(), offset))
    }
}

/// Where groups go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Into segments, behind the tail of the chain.
    Files { segments: Arc<Segments>, tail: Tail },
    /// Nowhere: what was cut is dropped. Measures how fast sessions append.
    Nowhere,
}

/// The memory of a group, and its place while it is in flight.
pub(crate) struct Flight {
    staging: Staging,
    place: Option<(Arc<dyn File>, u64)>,
    len: usize,
    totals: Arc<Totals>,
}

impl Flight {
    /// For groups of at most `bytes`.
    pub(crate) fn new(bytes: usize, totals: &Arc<Totals>) -> Self {
        Self { staging: Staging::new(bytes), place: None, len: 0, totals: totals.clone() }
    }
}

impl fmt::Debug for Flight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flight").field("place", &self.place).field("len", &self.len).finish_non_exhaustive()
    }
}

impl Group for Flight {
    fn write(&mut self) -> Result<()> {
        let Some((file, offset)) = self.place.take() else {
            self.totals.add(self.len, 0);
            return Ok(());
        };
        assert!(self.len >= GROUP_HEADER, "a group of {} bytes is written at {offset}", self.len);
        pause::point("wal: a group is sealed");
        match mutant("sabotage: a log group is written without a sync") {
            true => file.write_at(self.staging.bytes(self.len), offset)?,
            false => file.write_durable(self.staging.bytes(self.len), offset)?,
        }
        pause::point("wal: a group is durable");
        self.totals.add(self.len, 1);
        Ok(())
    }
}

/// Seals groups, one after the other.
pub(crate) struct Sealer {
    pub(crate) buffer: Arc<dyn LogBuffer>,
    pub(crate) sink: Sink,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("sink", &self.sink).finish_non_exhaustive()
    }
}

impl Leader for Sealer {
    type Group = Flight;

    fn seal(&mut self, group: &mut Flight, order: Order) -> Result<Option<Cut>> {
        group.staging.clear();
        let Drained { cut: upto, more } = match order.room {
            None => self.buffer.drain(order.sealed, &mut group.staging),
            Some(slot) => self.buffer.drain_for(slot, order.sealed, &mut group.staging),
        }?;
        let data_len = group.staging.data_len();
        assert!(upto >= order.sealed, "group {} is cut at {upto}, below {}", order.number, order.sealed);
        // A cut that only raises the stamp is worth a group if somebody waits for it: what is acknowledged stands in a header.
        if data_len == 0 && (upto == order.sealed || order.room.is_some()) {
            return Ok(None);
        }
        let Sink::Files { segments, tail } = &mut self.sink else {
            group.len = data_len;
            return Ok(Some(Cut { upto, more, bytes: data_len }));
        };
        let (bytes, n_ext) = group.staging.finish();
        let header = GroupHeader {
            n_ext,
            incarnation: tail.incarnation,
            uuid: segments.home.uuid,
            group: order.number,
            cut: upto,
            acked_upto: order.acked,
            data_len: data_len as u32,
            total_len: bytes.len() as u32,
            prev_crc: tail.prev_crc,
            data_crc: crc32c(&bytes[GROUP_HEADER..]),
        };
        assert!(header.acked_upto < order.number, "group {} acknowledges {}", order.number, header.acked_upto);
        let (head, crc) = header.encode();
        debug_assert!(
            matches!(GroupHeader::decode(&head), Decoded::Header(read, _) if read == header),
            "the header of a group is read otherwise: {header:?}"
        );
        bytes[..GROUP_HEADER].copy_from_slice(&head);
        group.len = bytes.len();
        group.place = Some(tail.place(segments, order.number, tail.prev_crc, group.len as u64)?);
        tail.prev_crc = crc;
        Ok(Some(Cut { upto, more, bytes: data_len }))
    }
}
