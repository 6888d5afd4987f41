//! Options of a log and their range checks.

use crate::buffer::{Lanes, LogBuffer, MakeLogBuffer, NewLogBuffer, Staging};
use crate::format;
use crate::group_commit::{Group, GroupSource};
use crate::session_lanes::SessionLanes;
use crate::slots::Slots;
use foreshore_base::limits::BLOCK;
use foreshore_base::{InvalidOption, Lsn, Result};
use foreshore_sync::available_parallelism;
use std::sync::Arc;
use std::{fmt, io};

/// Most groups in flight. Readers of a damaged log rely on it: what lies behind the last acknowledged group is no more.
pub(crate) const MAX_IN_FLIGHT: usize = 16;

/// How a log is built and run. A value, never a cargo feature; nothing here changes the format.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a segment file in bytes, a multiple of 4 KiB, at least 64 KiB. Segments of other sizes stay readable.
    pub segment_bytes: u64,
    /// Makes the buffer that sessions append to, if that is not to be lanes: one for each session, in which no append
    /// waits. See [`crate::log_buffer`].
    pub buffer: Option<Arc<dyn MakeLogBuffer>>,
    /// Memory of the buffer in bytes, a power of two from 64 KiB to 1 GiB. Touched only as it is used. Of lanes, each
    /// session at work has a sixteenth of it, at least 64 KiB and at most 256 KiB, unless `lane_memory` says otherwise.
    pub ring_bytes: usize,
    /// Memory of all lanes in bytes; 0 for a lane for each session. With less there are fewer lanes, of 64 to 256 KiB
    /// each, at least four, and late sessions share some of them. Such a session has a lane from a reservation to its
    /// [`crate::Session::release`], which it must not forget: others wait for the lane.
    pub lane_memory: usize,
    /// Sessions at once, 1 to 65536.
    pub max_sessions: usize,
    /// When a group of commits is written. A window is for logs with `background` threads; without them it is
    /// [`Group::Greedy`].
    pub group: Group,
    /// Makes a policy that takes the place of `group`.
    pub group_from: Option<GroupSource>,
    /// Commits that one session may have asked the flusher for and that are not durable yet, 1 to 2^20, before its next
    /// reservation waits.
    pub max_unacked: usize,
    /// Groups that may be in flight at once, at most 16; 0 leaves it to the number of processors.
    pub in_flight: usize,
    /// Whether to measure what waits are spent on, see [`crate::LogStats::waits`]. Costs some reads of the clock a
    /// commit.
    pub measure_waits: bool,
    /// Segments kept ready ahead of the one in use.
    pub ready_segments: usize,
    /// Whether flusher and preparer run as threads. If not, the owner calls [`crate::Log::flush_step`] and
    /// [`crate::Log::prepare_step`].
    pub background: bool,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            buffer: None,
            ring_bytes: 16 << 20,
            max_sessions: 1024,
            group: Group::default(),
            group_from: None,
            lane_memory: 0,
            max_unacked: 1024,
            in_flight: 0,
            measure_waits: false,
            ready_segments: 2,
            background: true,
        }
    }
}

/// The bounds of what sessions append, in bytes but for the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest payload of one record, and of one that may travel in fragments.
    pub(crate) max_record: usize,
    pub(crate) max_large: usize,
    /// Largest reservation of one session.
    pub(crate) max_reserve: usize,
    /// Credit that a session takes at once and may keep while idle.
    pub(crate) credit_quantum: u64,
    /// Commits of a session that may be asked for and not durable before its next reservation waits.
    pub(crate) max_unacked: usize,
}

/// Log space for the records of one restart that compensate nothing.
const RESTART_BYTES: u64 = 64 << 10;

/// Least log space for work that frees space: some transactions at once, each with a block granted for its rollback and
/// with its records.
const FREEING_BYTES: u64 = 256 << 10;

/// Fewest lanes, where there are as many sessions.
const MIN_LANES: usize = 4;

impl LogOptions {
    /// Checks every range.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |name, value: &dyn fmt::Display, expected: &str| {
            Err(InvalidOption { name, value: value.to_string(), expected: expected.to_owned() }.into())
        };
        if !(64 << 10..=1 << 40).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(BLOCK as u64) {
            return refuse("segment_bytes", &self.segment_bytes, "a multiple of 4096 from 64 KiB to 1 TiB");
        }
        if !(64 << 10..=1 << 30).contains(&self.ring_bytes) || !self.ring_bytes.is_power_of_two() {
            return refuse("ring_bytes", &self.ring_bytes, "a power of two from 64 KiB to 1 GiB");
        }
        if !(1..=1 << 16).contains(&self.max_sessions) {
            return refuse("max_sessions", &self.max_sessions, "1 to 65536");
        }
        self.group.check()?;
        if !(1..=1 << 20).contains(&self.max_unacked) {
            return refuse("max_unacked", &self.max_unacked, "1 to 1048576");
        }
        if self.in_flight > MAX_IN_FLIGHT {
            return refuse("in_flight", &self.in_flight, "0 to 16");
        }
        if !(1..=1024).contains(&self.ready_segments) {
            return refuse("ready_segments", &self.ready_segments, "1 to 1024");
        }
        Ok(())
    }

    /// Makes the buffer, whose first LSN is greater than `floor`.
    pub(crate) fn make_buffer(&self, slots: &Arc<Slots>, floor: Lsn) -> io::Result<Arc<dyn LogBuffer>> {
        let Some(maker) = &self.buffer else {
            let shared = self.lanes() - self.shared_lanes()..self.lanes();
            return Ok(Arc::new(Lanes::new(self.lane_bytes(), shared, slots.clone(), floor)?));
        };
        let buffer = maker.make(&NewLogBuffer { bytes: self.ring_bytes, floor, slots })?;
        assert!(buffer.current() >= floor, "{maker:?} made a log that begins at {}, below {floor}", buffer.current());
        Ok(buffer)
    }

    /// The lanes of sessions. In a buffer that is not lanes each session is known by its slot.
    pub(crate) fn session_lanes(&self) -> SessionLanes {
        let shared = self.shared_lanes();
        let own = if self.has_lanes() { self.lanes() - shared } else { self.max_sessions };
        SessionLanes::new(own, shared)
    }

    /// The bounds of what sessions append.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_record: self.max_record(),
            max_large: if self.fragments() { crate::MAX_LARGE } else { self.max_record() },
            // Four fit the ring, or one the lane.
            max_reserve: if self.has_lanes() { self.lane_bytes() } else { self.ring_bytes / 4 },
            // So that all idle credit is a quarter of the ring.
            credit_quantum: ((self.ring_bytes / (4 * self.max_sessions)).min(16 << 10) / 8 * 8) as u64,
            max_unacked: self.max_unacked,
        }
    }

    /// The policies of group commit: the engine's own, and the one that takes its place.
    pub(crate) fn group(&self) -> (Group, Option<&GroupSource>) {
        // A window needs a flusher that sleeps.
        (if self.background { self.group } else { Group::Greedy }, self.group_from.as_ref())
    }

    /// Groups that may be in flight. On up to two processors it is 1: the next group is best left to grow meanwhile.
    /// Then it is 2, and up to 8 where many processors append.
    pub(crate) fn width(&self) -> usize {
        match (self.in_flight, available_parallelism()) {
            (0, processors) => (processors / 2).clamp(1, 8),
            (width, _) => width,
        }
    }

    /// Largest group in bytes: at least two fit a segment.
    pub(crate) fn max_group(&self) -> usize {
        let half = usize::try_from((self.segment_bytes - format::FIRST_GROUP) / 2).unwrap_or(format::MAX_GROUP);
        (half / BLOCK * BLOCK).min(format::MAX_GROUP)
    }

    /// Bytes of a lane: a sixteenth of the ring or a part of the memory of lanes. It is not less than a large
    /// reservation takes, and not more than stays in a cache.
    fn lane_bytes(&self) -> usize {
        let share = match self.lane_memory {
            0 => self.ring_bytes / 16,
            memory => 1 << (memory / 64).max(1).ilog2(),
        };
        share.clamp(64 << 10, 256 << 10)
    }

    /// Lanes of the buffer: at most one for each session.
    fn lanes(&self) -> usize {
        match self.lane_memory {
            0 => self.max_sessions,
            memory => (memory / self.lane_bytes()).max(MIN_LANES).min(self.max_sessions),
        }
    }

    /// Lanes that sessions share: none if each has its own. A quarter, so that late sessions do not all wait for one.
    fn shared_lanes(&self) -> usize {
        if self.has_lanes() && self.lanes() < self.max_sessions { self.lanes() / 4 } else { 0 }
    }

    /// Bytes of the buffer that may have been touched when `sessions` have been at work.
    pub(crate) fn touched(&self, sessions: usize) -> usize {
        if self.has_lanes() { self.lanes_of(sessions) * self.lane_bytes() } else { self.ring_bytes }
    }

    fn has_lanes(&self) -> bool {
        self.buffer.is_none()
    }

    /// Whether large records travel through the buffer as fragments.
    fn fragments(&self) -> bool {
        self.buffer.as_ref().is_none_or(|maker| maker.fragments())
    }

    /// Lanes that so many sessions may have used.
    fn lanes_of(&self, sessions: usize) -> usize {
        if sessions > self.lanes() - self.shared_lanes() { self.lanes() } else { sessions }
    }

    /// Largest payload of one record: fits a group behind the largest table of extents. Eight fit the ring; in a buffer
    /// that takes whole records only, four.
    fn max_record(&self) -> usize {
        let table = format::EXTENT * Staging::max_extents(self.max_group());
        let group = self.max_group() - format::GROUP_HEADER - table - format::ENVELOPE;
        let ring = match self.fragments() {
            true => crate::MAX_RECORD.min(self.ring_bytes / 8 - format::ENVELOPE),
            false => self.ring_bytes / 4 - format::ENVELOPE,
        };
        ring.min(group) / 8 * 8
    }

    /// Prepared log space, in bytes, below which more is prepared, and ordinary reservations are refused on a full
    /// disk. It is the sum of what is in flight, what a restart needs, the end of the segment in use, and the margin.
    pub(crate) fn kept_back(&self, sessions: usize) -> u64 {
        self.margin() + self.for_restart() + self.in_flight_bytes(sessions) + self.tail()
    }

    /// The part that work which frees space may use on a full disk, and checkpoints. Without it all groups still find
    /// their place: what they leave empty of segments is in the other parts. On a disk that is not full writers may use
    /// it, too, while a segment is being prepared. A segment more than is kept back is ready by then, so they rarely
    /// do.
    pub(crate) fn margin(&self) -> u64 {
        match self.has_lanes() {
            true => (self.segment_bytes / 2).max(FREEING_BYTES),
            // A full ring with its padding comes on top: nothing bounds the groups that a ring is drained in.
            false => self.segment_bytes.max(2 * self.ring_bytes as u64),
        }
    }

    /// Prepared space for what one restart logs beside compensations: it repeats the groups that were in flight, and
    /// raises the ceiling of xids, ends transactions and takes a checkpoint.
    pub(crate) fn for_restart(&self) -> u64 {
        self.prepared_for(RESTART_BYTES + (self.width() * self.max_group()) as u64)
    }

    /// Prepared space for what `sessions` may have been admitted for and not sealed yet. It covers the buffer, and for
    /// each session a group of what it does just now, and one of the record that ends its transaction.
    pub(crate) fn in_flight_bytes(&self, sessions: usize) -> u64 {
        self.prepared_for((self.touched(sessions) + sessions * 2 * BLOCK) as u64)
    }

    /// Most bytes that stay empty at the end of a segment: less than the next group takes, and groups are whole blocks.
    fn tail(&self) -> u64 {
        (self.max_group() - BLOCK) as u64
    }

    /// Bytes of prepared segments, their headers not counted, that hold `bytes` of groups for certain, in any order and
    /// of any sizes. Each segment that is left holds all but a [`tail`](Self::tail). The tail of the segment in use
    /// comes on top, once for all.
    pub(crate) fn prepared_for(&self, bytes: u64) -> u64 {
        let tail = self.tail();
        bytes + (bytes * tail).div_ceil(self.segment_bytes - format::FIRST_GROUP - tail)
    }

    /// Segments to keep ready: enough for `kept_back` bytes, grants included, and one to fill.
    pub(crate) fn ready_target(&self, kept_back: u64) -> usize {
        let for_kept_back = kept_back.div_ceil(self.segment_bytes - format::FIRST_GROUP);
        let for_kept_back = usize::try_from(for_kept_back).unwrap_or(usize::MAX - 1) + 1;
        self.ready_segments.max(for_kept_back)
    }
}

#[cfg(test)]
mod tests;
