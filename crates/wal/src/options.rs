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

/// The most groups in flight. Readers of a damaged log rely on it: there are no more groups behind the last
/// acknowledged one.
pub(crate) const MAX_IN_FLIGHT: usize = 16;

/// Options of a log. None of them changes the format.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Size of a segment file in bytes, a multiple of 4 KiB, at least 64 KiB. Segments of other sizes stay readable.
    pub segment_bytes: u64,
    /// Makes another buffer than lanes ([`crate::log_buffer`]). Lanes are one buffer for each session, in which no
    /// append waits.
    pub buffer: Option<Arc<dyn MakeLogBuffer>>,
    /// Memory of the buffer in bytes, a power of two from 64 KiB to 1 GiB. Untouched until it is used. A lane has a
    /// sixteenth of it, but 64 KiB at least and 256 KiB at most, unless `lane_memory` says otherwise.
    pub ring_bytes: usize,
    /// Memory of all lanes in bytes; 0 gives each session a lane. With a limit there are at least four lanes, of 64 to
    /// 256 KiB each, and late sessions share some of them. Such a session has a lane from a reservation until its
    /// [`crate::Session::release`]. It must not forget that call, because other sessions wait for the lane.
    pub lane_memory: usize,
    /// Sessions at once, 1 to 65536.
    pub max_sessions: usize,
    /// The policy of group commit. A window needs `background` threads; without them [`Group::Greedy`] is used.
    pub group: Group,
    /// Makes a policy that replaces `group`.
    pub group_from: Option<GroupSource>,
    /// The most commits, 1 to 2^20, that one session may have requested from the flusher and that are not durable yet.
    /// With more its next reservation waits.
    pub max_unacked: usize,
    /// The most groups in flight at once, up to 16; 0 derives it from the number of processors.
    pub in_flight: usize,
    /// Whether to measure the parts of waits ([`crate::LogStats::waits`]). Costs some reads of the clock a commit.
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

/// Limits of appends. All are in bytes except the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Largest payload of one record, and of one that may travel in fragments.
    pub(crate) max_record: usize,
    pub(crate) max_large: usize,
    /// Largest reservation of one session.
    pub(crate) max_reserve: usize,
    /// Credit that a session takes at once and may keep while idle.
    pub(crate) credit_quantum: u64,
    /// The most requested commits of a session that are not durable; with more its next reservation waits.
    pub(crate) max_unacked: usize,
}

/// Log space for the records of one restart that are no compensations.
const RESTART_BYTES: u64 = 64 << 10;

/// The least log space for work that frees space: some concurrent transactions, each with its records and a block
/// granted for its rollback.
const FREEING_BYTES: u64 = 256 << 10;

/// The fewest lanes, unless there are fewer sessions.
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

    /// Returns the assignment of lanes to sessions. In another buffer the slot of a session stands for its lane.
    pub(crate) fn session_lanes(&self) -> SessionLanes {
        let shared = self.shared_lanes();
        let own = if self.has_lanes() { self.lanes() - shared } else { self.max_sessions };
        SessionLanes::new(own, shared)
    }

    /// Returns the limits of appends.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            max_record: self.max_record(),
            max_large: if self.fragments() { crate::MAX_LARGE } else { self.max_record() },
            // Four reservations fit the ring, or one fits the lane.
            max_reserve: if self.has_lanes() { self.lane_bytes() } else { self.ring_bytes / 4 },
            // All idle credit together is at most a quarter of the ring.
            credit_quantum: ((self.ring_bytes / (4 * self.max_sessions)).min(16 << 10) / 8 * 8) as u64,
            max_unacked: self.max_unacked,
        }
    }

    /// Returns the engine's policy of group commit, and the one that replaces it.
    pub(crate) fn group(&self) -> (Group, Option<&GroupSource>) {
        // A window needs a flusher that sleeps.
        (if self.background { self.group } else { Group::Greedy }, self.group_from.as_ref())
    }

    /// Returns the most groups in flight. It is 1 on up to two processors, where the next group better grows meanwhile.
    /// On more processors it is 2 to 8.
    pub(crate) fn width(&self) -> usize {
        match (self.in_flight, available_parallelism()) {
            (0, processors) => (processors / 2).clamp(1, 8),
            (width, _) => width,
        }
    }

    /// Returns the largest group in bytes. At least two fit a segment.
    pub(crate) fn max_group(&self) -> usize {
        let half = usize::try_from((self.segment_bytes - format::FIRST_GROUP) / 2).unwrap_or(format::MAX_GROUP);
        (half / BLOCK * BLOCK).min(format::MAX_GROUP)
    }

    /// Returns the bytes of a lane: a sixteenth of the ring, or a part of the memory of lanes. A lane holds a large
    /// reservation, and fits a processor's cache.
    fn lane_bytes(&self) -> usize {
        let share = match self.lane_memory {
            0 => self.ring_bytes / 16,
            memory => 1 << (memory / 64).max(1).ilog2(),
        };
        share.clamp(64 << 10, 256 << 10)
    }

    /// Returns the number of lanes: at most one for each session.
    fn lanes(&self) -> usize {
        match self.lane_memory {
            0 => self.max_sessions,
            memory => (memory / self.lane_bytes()).max(MIN_LANES).min(self.max_sessions),
        }
    }

    /// Returns the number of lanes that sessions share: none if each session has its own. Otherwise a quarter of all,
    /// so that late sessions do not all wait for one.
    fn shared_lanes(&self) -> usize {
        if self.has_lanes() && self.lanes() < self.max_sessions { self.lanes() / 4 } else { 0 }
    }

    /// Returns the bytes of the buffer that may have been touched by `sessions` sessions.
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

    /// Returns the number of lanes that so many sessions may have used.
    fn lanes_of(&self, sessions: usize) -> usize {
        if sessions > self.lanes() - self.shared_lanes() { self.lanes() } else { sessions }
    }

    /// Returns the largest payload of one record. It fits a group behind the largest table of extents. Eight fit the
    /// ring, or four in a buffer that takes whole records only.
    fn max_record(&self) -> usize {
        let table = format::EXTENT * Staging::max_extents(self.max_group());
        let group = self.max_group() - format::GROUP_HEADER - table - format::ENVELOPE;
        let ring = match self.fragments() {
            true => crate::MAX_RECORD.min(self.ring_bytes / 8 - format::ENVELOPE),
            false => self.ring_bytes / 4 - format::ENVELOPE,
        };
        ring.min(group) / 8 * 8
    }

    /// Returns the bytes of prepared log space that ordinary work must leave. Below it more is prepared, and on a full
    /// disk ordinary reservations are refused. It is the sum of the bytes in flight, the need of a restart, the end of
    /// the segment in use, and the margin.
    pub(crate) fn kept_back(&self, sessions: usize) -> u64 {
        self.margin() + self.for_restart() + self.in_flight_bytes(sessions) + self.tail()
    }

    /// Returns the margin: the part that checkpoints and work that frees space may use on a full disk. All groups find
    /// their place without it, since the other parts include the empty ends of segments. On a disk that is not full,
    /// writers may use it while a segment is being prepared. They rarely do, because one more segment is ready by then.
    pub(crate) fn margin(&self) -> u64 {
        match self.has_lanes() {
            true => (self.segment_bytes / 2).max(FREEING_BYTES),
            // A full ring with its padding comes on top, since the number of groups of a full ring has no limit.
            false => self.segment_bytes.max(2 * self.ring_bytes as u64),
        }
    }

    /// Returns the prepared space for the records of one restart that are no compensations. A restart repeats the
    /// groups that were in flight, raises the ceiling of xids, ends transactions and takes a checkpoint.
    pub(crate) fn for_restart(&self) -> u64 {
        self.prepared_for(RESTART_BYTES + (self.width() * self.max_group()) as u64)
    }

    /// Returns the prepared space for admitted records of `sessions` that are not sealed. It covers the buffer, and for
    /// each session one group of its current work and one of the record that ends its transaction.
    pub(crate) fn in_flight_bytes(&self, sessions: usize) -> u64 {
        self.prepared_for((self.touched(sessions) + sessions * 2 * BLOCK) as u64)
    }

    /// Returns the most bytes that stay empty at the end of a segment: a block less than the largest group.
    fn tail(&self) -> u64 {
        (self.max_group() - BLOCK) as u64
    }

    /// Returns the bytes of prepared segments, without headers, that hold `bytes` of groups of any order and sizes.
    /// Each full segment leaves at most a [`tail`](Self::tail) empty. The tail of the segment in use is counted
    /// elsewhere.
    pub(crate) fn prepared_for(&self, bytes: u64) -> u64 {
        let tail = self.tail();
        bytes + (bytes * tail).div_ceil(self.segment_bytes - format::FIRST_GROUP - tail)
    }

    /// Returns the number of segments to keep ready: enough for `kept_back` bytes, grants included, and one to fill.
    pub(crate) fn ready_target(&self, kept_back: u64) -> usize {
        let for_kept_back = kept_back.div_ceil(self.segment_bytes - format::FIRST_GROUP);
        let for_kept_back = usize::try_from(for_kept_back).unwrap_or(usize::MAX - 1) + 1;
        self.ready_segments.max(for_kept_back)
    }
}

#[cfg(test)]
mod tests;
