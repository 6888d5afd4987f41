//! Sealing buffered records into a group with a place behind the last one, and writing it.

use crate::buffer::{Drained, LogBuffer, Staging};
use crate::format::{Decoded, FIRST_GROUP, GROUP_HEADER, GroupHeader};
use crate::pipeline::{Cut, Group, Leader, Order};
use crate::segment::Segments;
use crate::watch::GrowthWatch;
use foreshore_base::limits::BLOCK;
use foreshore_base::{GroupNo, Incarnation, Lsn, Result, crc32c};
use foreshore_io::File;
use foreshore_sync::model::mutant;
use foreshore_sync::{Nanos, pause};
use std::sync::Arc;

/// The place of the next group.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) incarnation: Incarnation,
    pub(crate) prev_crc: u32,
    /// Time of the last group.
    pub(crate) time: Nanos,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Tail {
    /// Assigns the data of `group` a header and a place.
    fn append(&mut self, segments: &Segments, group: &mut GroupMemory, cut: Lsn, order: Order) -> Result<()> {
        let data_len = group.staging.data_len();
        let (bytes, n_ext) = group.staging.finish();
        self.time = self.time.max(segments.wall_clock());
        let header = GroupHeader {
            n_ext,
            incarnation: self.incarnation,
            uuid: segments.home().uuid,
            group: order.number,
            cut,
            acked_upto: order.acked,
            data_len: data_len as u32,
            total_len: bytes.len() as u32,
            prev_crc: self.prev_crc,
            data_crc: crc32c(&bytes[GROUP_HEADER..]),
            time: self.time,
        };
        assert!(header.acked_upto < order.number, "group {} acknowledges {}", order.number, header.acked_upto);
        let (head, crc) = header.encode();
        debug_assert!(
            matches!(GroupHeader::decode(&head), Decoded::Header(read, _) if read == header),
            "the header of a group is read otherwise: {header:?}"
        );
        bytes[..GROUP_HEADER].copy_from_slice(&head);
        group.len = bytes.len();
        group.place = Some(self.place(segments, order.number, self.prev_crc, group.len as u64)?);
        self.prev_crc = crc;
        Ok(())
    }

    /// Assigns `group` the place behind the last one. It has `total` bytes, and its predecessor has checksum
    /// `prev_crc`. A group that does not fit the rest of the segment goes to the next one.
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

/// The memory of a group, and its place while it is in flight.
pub(crate) struct GroupMemory {
    staging: Staging,
    place: Option<(Arc<dyn File>, u64)>,
    len: usize,
    growth: Arc<GrowthWatch>,
}

impl GroupMemory {
    /// Allocates memory for groups of at most `bytes`, which `growth` counts.
    pub(crate) fn new(bytes: usize, growth: &Arc<GrowthWatch>) -> Self {
        Self { staging: Staging::new(bytes), place: None, len: 0, growth: growth.clone() }
    }
}

impl Group for GroupMemory {
    fn write(&mut self) -> Result<()> {
        if let Some((file, offset)) = self.place.take() {
            assert!(self.len >= GROUP_HEADER, "a group of {} bytes is written at {offset}", self.len);
            pause::point("wal: a group is sealed");
            match mutant("sabotage: a log group is written without a sync") {
                true => file.write_at(self.staging.bytes(self.len), offset)?,
                false => file.write_durable(self.staging.bytes(self.len), offset)?,
            }
            pause::point("wal: a group is durable");
        }
        self.growth.add(self.len as u64);
        Ok(())
    }
}

/// Seals groups, one after the other.
pub(crate) struct Sealer {
    pub(crate) buffer: Arc<dyn LogBuffer>,
    pub(crate) segments: Arc<Segments>,
    /// `None` in a log without files, which drops its groups to measure how fast sessions append.
    pub(crate) tail: Option<Tail>,
}

impl Leader for Sealer {
    type Group = GroupMemory;

    fn seal(&mut self, group: &mut GroupMemory, order: Order) -> Result<Option<Cut>> {
        group.staging.clear();
        let Drained { cut: upto, more } = match order.space_in {
            None => self.buffer.drain(order.sealed, &mut group.staging),
            Some(slot) => self.buffer.drain_for(slot, order.sealed, &mut group.staging),
        }?;
        let data_len = group.staging.data_len();
        assert!(upto >= order.sealed, "group {} is cut at {upto}, below {}", order.number, order.sealed);
        // A cut that only raises the stamp is worth a group if a commit waits for it, since a header records the
        // acknowledged stamp.
        if data_len == 0 && (upto == order.sealed || order.space_in.is_some()) {
            return Ok(None);
        }
        match &mut self.tail {
            None => group.len = data_len,
            Some(tail) => tail.append(&self.segments, group, upto, order)?,
        }
        Ok(Some(Cut { upto, more, bytes: data_len }))
    }
}
