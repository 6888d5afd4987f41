//! Options of a log and their range checks.

use crate::buffer::Staging;
use crate::format;
use crate::policy::GroupPolicy;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, Result};
use foreshore_sync::{WaitMode, available_parallelism};
use std::fmt;
use std::str::FromStr;

/// Most groups in flight. Readers of a damaged log rely on it: what lies behind the last acknowledged group is no more.
pub(crate) const MAX_IN_FLIGHT: usize = 16;

/// How a log is built and run. A value, never a cargo feature; nothing here changes the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Size of a segment file in bytes, a multiple of 4 KiB, at least 64 KiB. Segments of other sizes stay readable.
    pub segment_bytes: u64,
    /// The buffer that sessions append to.
    pub buffer: BufferKind,
    /// Memory of the buffer in bytes, a power of two from 64 KiB to 1 GiB. Touched only as it is used. Of `lanes`, each
    /// session at work has a sixteenth of it, at least 64 KiB and at most 256 KiB, unless `lane_memory` says otherwise.
    pub ring_bytes: usize,
    /// Memory of `lanes` in bytes; 0 for a lane for each session. With less there are fewer lanes, of 64 to 256 KiB each, at
    /// least four, and late sessions take turns in some of them: each has one from a reservation to its
    /// [`crate::Session::release`], which it must not forget, as others wait for the lane.
    pub lane_memory: usize,
    /// How appends wait for each other in the buffers that make them wait.
    pub wait: WaitKind,
    /// Places where threads consolidate in `carray`, `hybrid` and `delegated`, 1 to 64.
    pub slots: usize,
    /// Consolidation slots of those buffers in all, more than `slots`, at most 65536. A group needs one until it is released.
    pub slot_pool: usize,
    /// Sessions at once, 1 to 65536.
    pub max_sessions: usize,
    /// When a group is cut.
    pub group: GroupPolicy,
    /// Commits that one session may have asked the flusher for and that are not durable yet, 1 to 2^20, before its next
    /// reservation waits.
    pub max_unacked: usize,
    /// Groups that may be on their way to disk at once, at most 16; 0 leaves it to the number of processors.
    pub in_flight: usize,
    /// Whether to measure what waits are spent on, see [`crate::LogStats::waits`]. Costs some looks at the clock a commit.
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
            buffer: BufferKind::default(),
            ring_bytes: 16 << 20,
            wait: WaitKind::default(),
            slots: 4,
            slot_pool: 256,
            max_sessions: 1024,
            group: GroupPolicy::default(),
            lane_memory: 0,
            max_unacked: 1024,
            in_flight: 0,
            measure_waits: false,
            ready_segments: 2,
            background: true,
        }
    }
}

/// Log space for the records of one restart that compensate nothing.
const RESTART_BYTES: u64 = 64 << 10;

/// Least log space for work that frees space: some transactions at once, each with a block granted for its rollback and with its
/// records.
const FREEING_BYTES: u64 = 256 << 10;

/// Fewest lanes of `lanes`, where there are as many sessions.
const MIN_LANES: usize = 4;

impl LogOptions {
    /// Checks every range.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |name, value: &dyn fmt::Display, expected: &str| {
            Err(Error::InvalidOption { name, value: value.to_string(), expected: expected.to_owned() })
        };
        if !(64 << 10..=1 << 40).contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(BLOCK as u64) {
            return refuse("segment_bytes", &self.segment_bytes, "a multiple of 4096 from 64 KiB to 1 TiB");
        }
        if !(64 << 10..=1 << 30).contains(&self.ring_bytes) || !self.ring_bytes.is_power_of_two() {
            return refuse("ring_bytes", &self.ring_bytes, "a power of two from 64 KiB to 1 GiB");
        }
        if !(1..=64).contains(&self.slots) {
            return refuse("slots", &self.slots, "1 to 64");
        }
        if self.slot_pool <= self.slots || self.slot_pool > 1 << 16 {
            return refuse("slot_pool", &self.slot_pool, "more than slots, at most 65536");
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

    /// Groups that may be in flight: 1 on up to two processors, where the next group is best left to grow meanwhile, then 2,
    /// and up to 8 where there are many to append.
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

    /// Bytes of a lane: a sixteenth of the ring or a part of the lanes' memory, but not less than what a large reservation takes and not more than what
    /// stays in a cache.
    pub(crate) fn lane_bytes(&self) -> usize {
        let share = match self.lane_memory {
            0 => self.ring_bytes / 16,
            memory => 1 << (memory / 64).max(1).ilog2(),
        };
        share.clamp(64 << 10, 256 << 10)
    }

    /// Lanes that `lanes` has: at most one for each session.
    pub(crate) fn lanes(&self) -> usize {
        match self.lane_memory {
            0 => self.max_sessions,
            memory => (memory / self.lane_bytes()).max(MIN_LANES).min(self.max_sessions),
        }
    }

    /// Lanes that sessions take turns in: none if each has its own. A quarter, so that those who come late do not all wait for
    /// one.
    pub(crate) fn shared_lanes(&self) -> usize {
        if self.buffer == BufferKind::Lanes && self.lanes() < self.max_sessions { self.lanes() / 4 } else { 0 }
    }

    /// Bytes of the buffer that may have been touched when `sessions` have been at work.
    pub(crate) fn memory(&self, sessions: usize) -> u64 {
        match self.buffer {
            BufferKind::Lanes => (self.lanes_of(sessions) * self.lane_bytes()) as u64,
            _ => self.ring_bytes as u64,
        }
    }

    /// Lanes that so many sessions may have used.
    fn lanes_of(&self, sessions: usize) -> usize {
        if sessions > self.lanes() - self.shared_lanes() { self.lanes() } else { sessions }
    }

    /// Largest payload of one record: fits a group behind the largest table of extents. Eight fit the ring; in a buffer that
    /// takes whole records only, four.
    pub(crate) fn max_record(&self) -> usize {
        let table = format::EXTENT * Staging::max_extents(self.max_group());
        let group = self.max_group() - format::GROUP_HEADER - table - format::ENVELOPE;
        let ring = match self.buffer.fragments() {
            true => crate::MAX_RECORD.min(self.ring_bytes / 8 - format::ENVELOPE),
            false => self.ring_bytes / 4 - format::ENVELOPE,
        };
        ring.min(group) / 8 * 8
    }

    /// Largest payload of one record whether it travels whole or in fragments.
    pub(crate) fn max_large(&self) -> usize {
        if self.buffer.fragments() { crate::MAX_LARGE } else { self.max_record() }
    }

    /// Most bytes of records that consolidate into one group; larger records do not consolidate. Small enough that a copy of
    /// that size, which every member's release may have to wait for, takes some microseconds.
    pub(crate) fn slot_bytes(&self) -> usize {
        (self.ring_bytes / 16).min(32 << 10)
    }

    /// Largest reservation of one session: four fit the ring, or one the lane.
    pub(crate) fn max_reserve(&self) -> usize {
        match self.buffer {
            BufferKind::Lanes => self.lane_bytes(),
            _ => self.ring_bytes / 4,
        }
    }

    /// Credit that a session takes at once and may keep while idle, so that all idle credit is a quarter of the ring.
    pub(crate) fn credit_quantum(&self) -> usize {
        (self.ring_bytes / (4 * self.max_sessions)).min(16 << 10) / 8 * 8
    }

    /// Prepared log space, in bytes, below which more is prepared, and ordinary reservations are refused on a full
    /// disk: what is in flight, what a restart needs, the end of the segment in use, and the margin.
    pub(crate) fn kept_back(&self, sessions: usize) -> u64 {
        self.margin() + self.for_restart() + self.in_flight_bytes(sessions) + self.tail()
    }

    /// What work that frees space may use on a full disk, and checkpoints. Without it all groups still find their place: what they
    /// leave empty of segments is in the other parts. On a disk that is not full writers may use it, too, while a segment is being
    /// prepared; a segment more than is kept back is ready by then, so that they rarely do.
    pub(crate) fn margin(&self) -> u64 {
        match self.buffer {
            BufferKind::Lanes => (self.segment_bytes / 2).max(FREEING_BYTES),
            // A full ring with its padding comes on top: nothing bounds the groups that a ring is drained in.
            _ => self.segment_bytes.max(2 * self.ring_bytes as u64),
        }
    }

    /// Prepared space for what one restart logs beside compensations: it repeats the groups that were in flight, and raises the
    /// ceiling of xids, ends transactions and takes a checkpoint.
    pub(crate) fn for_restart(&self) -> u64 {
        self.prepared_for(RESTART_BYTES + (self.width() * self.max_group()) as u64)
    }

    /// Prepared space for what `sessions` may have been admitted for and not sealed yet: the buffer, and for each session a group of
    /// what it does just now, and one of the record that ends its transaction.
    pub(crate) fn in_flight_bytes(&self, sessions: usize) -> u64 {
        let buffer = match self.buffer {
            BufferKind::Lanes => self.lanes_of(sessions) * self.lane_bytes(),
            _ => self.ring_bytes,
        };
        self.prepared_for((buffer + sessions * 2 * BLOCK) as u64)
    }

    /// Most bytes that stay empty at the end of a segment: less than the next group takes, and groups are whole blocks.
    fn tail(&self) -> u64 {
        (self.max_group() - BLOCK) as u64
    }

    /// Bytes of prepared segments, their headers not counted, that hold `bytes` of groups for certain, in any order and of any sizes:
    /// each segment that is left holds all but a [`tail`](Self::tail). That of the segment in use comes on top, once for all.
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

macro_rules! named {
    ($(#[$doc:meta])* $kind:ident, $option:literal { $($(#[$vdoc:meta])* $variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $kind { $($(#[$vdoc])* $variant),+ }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }

        impl FromStr for $kind {
            type Err = Error;

            fn from_str(name: &str) -> Result<Self> {
                match name {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(Error::InvalidOption {
                        name: $option,
                        value: name.to_owned(),
                        expected: [$($name),+].join(" or "),
                    }),
                }
            }
        }
    };
}

named! {
    /// The buffer that sessions append to. All variants write the same format.
    ///
    /// | name | position is drawn | copy | from |
    /// |---|---|---|---|
    /// | `mutex` | under a lock | under the lock | Aether, Algorithm 1 |
    /// | `carray` | under a lock, for a group | side by side in the group, under the lock | Aether, C: Algorithms 2 and 5 |
    /// | `decoupled` | under a lock | outside of it; released in turn | Aether, D: Algorithm 3 |
    /// | `hybrid` | under a lock, for a group | outside of it; groups released in turn | Aether, CD: section 5.3 |
    /// | `delegated` | under a lock, for a group | outside of it; released through a queue | Aether, CDME: Algorithm 4 |
    /// | `faa` | by one fetch-and-add | beside other copies; a slot per session bounds the cut | ERMIA, InnoDB 8.0 |
    /// | `laser` | by one exchange in the current group | beside other copies; groups are published as a whole | Laser |
    /// | `lanes` | as a Lamport stamp in the session's own lane | before the draw, in the session's own lane | Foreshore |
    BufferKind, "log_buffer" {
        /// One lock around position and copy.
        Mutex = "mutex",
        /// Groups that draw and copy under one lock.
        CArray = "carray",
        /// A lock for the draw; copies are released in turn.
        Decoupled = "decoupled",
        /// Groups that draw under a lock and are released in turn.
        Hybrid = "hybrid",
        /// Groups that draw under a lock and are released by whoever is first in a queue.
        Delegated = "delegated",
        /// One fetch-and-add; sessions copy side by side.
        Faa = "faa",
        /// Groups in a table; sessions join the current one by an exchange and copy side by side.
        Laser = "laser",
        /// A lane per session, and cuts closed under dependency.
        #[default]
        Lanes = "lanes",
    }
}

impl BufferKind {
    /// Whether large records travel through the buffer as fragments. The published buffers take whole records, larger ones
    /// than ours, and refuse what is larger still.
    pub(crate) fn fragments(self) -> bool {
        matches!(self, Self::Faa | Self::Lanes)
    }
}

named! {
    /// How appends wait for each other. `faa`, `laser` and `lanes` never do.
    WaitKind, "wait" {
        /// Without an end, yielding the processor: the published buffers' way, for curves on machines with a processor for
        /// each thread.
        Spin = "spin",
        /// Asleep, after a few pauses.
        #[default]
        Park = "park",
    }
}

impl From<WaitKind> for WaitMode {
    fn from(kind: WaitKind) -> Self {
        match kind {
            WaitKind::Spin => Self::Spin,
            WaitKind::Park => Self::Park,
        }
    }
}

#[cfg(test)]
mod tests;
