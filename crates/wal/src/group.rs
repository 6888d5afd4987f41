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
    writes: AtomicU64,
}

impl Progress {
    pub(crate) fn new(next: GroupNo) -> Self {
        let next_group = CachePadded::new(AtomicU64::new(next.0));
        Self { next_group, groups: AtomicU64::new(0), bytes: AtomicU64::new(0), writes: AtomicU64::new(0) }
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
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    fn dropped(&self, bytes: usize) {
        // ORDERING: Relaxed, as in `written`.
        self.groups.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Groups, their bytes, padding included, and how many were written.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        // ORDERING: Relaxed, counters.
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.groups), count(&self.bytes), count(&self.writes))
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

/// Where groups go.
#[derive(Debug)]
pub(crate) enum Sink {
    /// Into segments, behind the tail of the chain.
    Files { segments: Arc<Segments>, tail: Tail },
    /// Nowhere: what was cut is dropped. Measures how fast sessions append.
    Nowhere { next: GroupNo },
}

/// Seals and writes groups, one after the other.
pub(crate) struct GroupWriter {
    pub(crate) buffer: Arc<dyn LogBuffer>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) staging: Staging,
    pub(crate) sink: Sink,
    /// Cut of the group that is sealed and not yet written.
    pub(crate) cut: Lsn,
}

impl fmt::Debug for GroupWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupWriter").field("sink", &self.sink).finish_non_exhaustive()
    }
}

impl Leader for GroupWriter {
    fn seal(&mut self, sealed: Lsn) -> Result<Option<Lsn>> {
        self.staging.clear();
        self.cut = self.buffer.drain(sealed, &mut self.staging).cut;
        if self.cut == sealed && self.staging.data_len() == 0 {
            return Ok(None);
        }
        let next = match &mut self.sink {
            Sink::Files { tail, .. } => tail.next,
            Sink::Nowhere { next } => std::mem::replace(next, next.next()),
        };
        self.progress.sealed(next);
        Ok(Some(self.cut))
    }

    fn write(&mut self) -> Result<()> {
        let data_len = self.staging.data_len();
        let Sink::Files { segments, tail } = &mut self.sink else {
            self.progress.dropped(data_len);
            return Ok(());
        };
        let (bytes, n_ext) = self.staging.finish();
        let total = bytes.len();
        let header = GroupHeader {
            n_ext,
            incarnation: tail.incarnation,
            uuid: segments.home.uuid,
            group: tail.next,
            cut: self.cut,
            // One group is in flight: when this one is sealed, all before it are durable.
            acked_upto: GroupNo(tail.next.0 - 1),
            data_len: data_len as u32,
            total_len: total as u32,
            prev_crc: tail.prev_crc,
            data_crc: crc32c(&bytes[GROUP_HEADER..]),
        };
        let (head, crc) = header.encode();
        bytes[..GROUP_HEADER].copy_from_slice(&head);
        tail.append(segments, tail.next, tail.prev_crc, bytes)?;
        self.progress.written(total);
        tail.next = tail.next.next();
        tail.prev_crc = crc;
        Ok(())
    }
}
