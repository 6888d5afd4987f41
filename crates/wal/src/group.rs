//! The leader's work: sealing what the buffer yields into a group and writing it behind the last one.

use crate::buffer::{LogBuffer, Staging};
use crate::format::{FIRST_GROUP, GROUP_HEADER, GroupHeader};
use crate::pipeline::Leader;
use crate::segment::Segments;
use foreshore_base::{GroupNo, Incarnation, Lsn, Result, crc32c};
use foreshore_io::File;
use foreshore_sync::CachePadded;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use std::fmt;
use std::sync::Arc;

/// What leaders tell everybody else.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Number of the next group to be sealed.
    next_group: CachePadded<AtomicU64>,
    groups: AtomicU64,
    bytes: AtomicU64,
}

impl Progress {
    pub(crate) fn new(next: GroupNo) -> Self {
        let next_group = CachePadded::new(AtomicU64::new(next.0));
        Self { next_group, groups: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// A record appended from now on is in this group or a later one.
    pub(crate) fn next_group(&self) -> GroupNo {
        // ORDERING: Acquire, pairs with `sealed`: who sees the new number appends behind what the group was cut from.
        GroupNo(self.next_group.load(Ordering::Acquire))
    }

    fn sealed(&self, group: GroupNo) {
        // ORDERING: Release, after the leader has read the buffer's tails; pairs with `next_group`.
        self.next_group.store(group.next().0, Ordering::Release);
    }

    fn written(&self, bytes: usize) {
        // ORDERING: Relaxed, counters with one writer at a time.
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Groups written and their bytes, padding included.
    pub(crate) fn totals(&self) -> (u64, u64) {
        // ORDERING: Relaxed, counters.
        (self.groups.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// Where the chain of groups ends, and where in the files.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) incarnation: Incarnation,
    pub(crate) next: GroupNo,
    pub(crate) prev_crc: u32,
    pub(crate) file: Arc<dyn File>,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

impl Tail {
    /// Writes `group`, whose predecessor has the checksum `prev_crc`, behind what was written last; durable when it
    /// returns. A group that does not fit the rest of the segment goes to the next one.
    pub(crate) fn append(&mut self, segments: &Segments, group: GroupNo, prev_crc: u32, bytes: &[u8]) -> Result<()> {
        let total = bytes.len() as u64;
        if self.offset + total > self.size {
            let ready = segments.roll(group, prev_crc)?;
            (self.file, self.offset, self.size) = (ready.file, FIRST_GROUP, ready.size);
        }
        self.file.write_durable(bytes, self.offset)?;
        segments.wrote(group, self.offset, self.offset + total);
        self.offset += total;
        Ok(())
    }
}

/// Seals and writes groups, one after the other.
pub(crate) struct GroupWriter {
    pub(crate) buffer: Arc<dyn LogBuffer>,
    pub(crate) segments: Arc<Segments>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) staging: Staging,
    pub(crate) tail: Tail,
    /// Cut of the group that is sealed and not yet written.
    pub(crate) cut: Lsn,
}

impl fmt::Debug for GroupWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWriter").field("tail", &self.tail).finish_non_exhaustive()
    }
}

impl Leader for GroupWriter {
    fn seal(&mut self, sealed: Lsn) -> Result<Option<Lsn>> {
        self.staging.clear();
        self.cut = self.buffer.drain(sealed, &mut self.staging).cut;
        if self.cut == sealed && self.staging.data_len() == 0 {
            return Ok(None);
        }
        self.progress.sealed(self.tail.next);
        Ok(Some(self.cut))
    }

    fn write(&mut self) -> Result<()> {
        let data_len = self.staging.data_len();
        let (bytes, n_ext) = self.staging.finish();
        let total = bytes.len();
        let header = GroupHeader {
            n_ext,
            incarnation: self.tail.incarnation,
            uuid: self.segments.home.uuid,
            group: self.tail.next,
            cut: self.cut,
            // One group is in flight: when this one is sealed, all before it are durable.
            acked_upto: GroupNo(self.tail.next.0 - 1),
            data_len: data_len as u32,
            total_len: total as u32,
            prev_crc: self.tail.prev_crc,
            data_crc: crc32c(&bytes[GROUP_HEADER..]),
        };
        let (head, crc) = header.encode();
        bytes[..GROUP_HEADER].copy_from_slice(&head);
        self.tail.append(&self.segments, self.tail.next, self.tail.prev_crc, bytes)?;
        self.progress.written(total);
        self.tail.next = self.tail.next.next();
        self.tail.prev_crc = crc;
        Ok(())
    }
}
