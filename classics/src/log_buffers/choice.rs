//! The log buffers by name, and their options.

use super::names::{WaitKind, named};
use super::{CArray, Decoupled, Delegated, Faa, Hybrid, Laser, Locked, Ring, Shape};
use foreshore_base::{InvalidOption, Result};
use foreshore_wal::log_buffer::{LogBuffer, MakeLogBuffer, NewLogBuffer};
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

named! {
    /// A log buffer. All write the same format.
    ///
    /// | name | position is drawn | copy | from |
    /// |---|---|---|---|
    /// | `mutex` | under a lock | under the lock | Aether, Algorithm 1 |
    /// | `carray` | under a lock, for a group | in parallel in the group, under the lock | Aether, C: Algorithms 2 and 5 |
    /// | `decoupled` | under a lock | outside it; released in turn | Aether, D: Algorithm 3 |
    /// | `hybrid` | under a lock, for a group | outside it; groups released in turn | Aether, CD: section 5.3 |
    /// | `delegated` | under a lock, for a group | outside it; released through a queue | Aether, CDME: Algorithm 4 |
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
        /// Groups that draw under a lock and are released by the thread at the head of a queue.
        Delegated = "delegated",
        /// One fetch-and-add; sessions copy in parallel.
        Faa = "faa",
        /// Groups in a table; sessions join the current one by an exchange and copy in parallel.
        Laser = "laser",
        /// The engine's own: a lane per session, and cuts closed under dependency.
        #[default]
        Lanes = "lanes",
    }
}

impl BufferKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Mutex,
        Self::CArray,
        Self::Decoupled,
        Self::Hybrid,
        Self::Delegated,
        Self::Faa,
        Self::Laser,
        Self::Lanes,
    ];

    /// Returns the factory of this kind with the default options; `None` for the engine's own.
    #[must_use]
    pub fn maker(self) -> Option<Arc<dyn MakeLogBuffer>> {
        BufferOptions::new(self).into_maker()
    }

    /// Returns whether large records pass through the buffer as fragments. The published buffers take whole records,
    /// up to a larger size than the engine's own, and refuse larger ones.
    fn fragments(self) -> bool {
        matches!(self, Self::Faa | Self::Lanes)
    }
}

/// A kind of log buffer and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferOptions {
    /// The kind.
    pub kind: BufferKind,
    /// How appends wait for each other, in the buffers where they do.
    pub wait: WaitKind,
    /// Places of the consolidation array in `carray`, `hybrid` and `delegated`, 1 to 64.
    pub slots: usize,
    /// Consolidation slots of those buffers in all, more than `slots`, at most 65536. A group needs one until it is
    /// released.
    pub slot_pool: usize,
}

impl BufferOptions {
    /// The default options of a kind.
    #[must_use]
    pub fn new(kind: BufferKind) -> Self {
        Self { kind, wait: WaitKind::default(), slots: 4, slot_pool: 256 }
    }

    /// Returns the factory, for [`LogOptions::buffer`](foreshore_wal::LogOptions::buffer); `None` for the engine's
    /// own.
    ///
    /// # Errors
    /// `InvalidOption` if a number is out of range, whatever the kind.
    pub fn maker(self) -> Result<Option<Arc<dyn MakeLogBuffer>>> {
        let refuse = |name, value: usize, expected: &str| {
            Err(InvalidOption { name, value: value.to_string(), expected: expected.to_owned() }.into())
        };
        if !(1..=64).contains(&self.slots) {
            return refuse("slots", self.slots, "1 to 64");
        }
        if self.slot_pool <= self.slots || self.slot_pool > 1 << 16 {
            return refuse("slot_pool", self.slot_pool, "more than slots, at most 65536");
        }
        Ok(self.into_maker())
    }

    fn into_maker(self) -> Option<Arc<dyn MakeLogBuffer>> {
        (self.kind != BufferKind::Lanes).then(|| Arc::new(Maker(self)) as Arc<dyn MakeLogBuffer>)
    }
}

/// Makes a buffer over a ring, whose options are in range.
#[derive(Debug)]
struct Maker(BufferOptions);

impl Maker {
    /// Returns the most bytes of records that consolidate into one group; larger records do not consolidate. A copy of
    /// that size, for which every member's release may have to wait, takes only some microseconds.
    fn slot_bytes(ring_bytes: usize) -> u64 {
        (ring_bytes / 16).min(32 << 10) as u64
    }
}

impl MakeLogBuffer for Maker {
    fn fragments(&self) -> bool {
        self.0.kind.fragments()
    }

    fn make(&self, new: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>> {
        let BufferOptions { kind, wait, slots, slot_pool: pool } = self.0;
        let (sessions, group) = (new.slots.len(), Self::slot_bytes(new.bytes));
        let shape = Shape { wait, sessions, slots, pool, group };
        let ring = Ring::new(new.bytes, new.floor)?;
        Ok(match kind {
            BufferKind::Mutex => Arc::new(Locked::new(ring, &shape)),
            BufferKind::CArray => Arc::new(CArray::new(ring, &shape)),
            BufferKind::Decoupled => Arc::new(Decoupled::new(ring, &shape)),
            BufferKind::Hybrid => Arc::new(Hybrid::new(ring, &shape)),
            BufferKind::Delegated => Arc::new(Delegated::new(ring, &shape)),
            BufferKind::Faa => Arc::new(Faa::new(ring, new.slots.clone())),
            BufferKind::Laser => Arc::new(Laser::new(ring, Laser::limit(new.bytes), Laser::GROUPS)),
            BufferKind::Lanes => unreachable!("lanes have no maker"),
        })
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_that_says_it() {
        for kind in BufferKind::ALL {
            assert_eq!(kind.to_string().parse::<BufferKind>().unwrap(), kind);
            assert_eq!(kind.maker().is_some(), kind != BufferKind::Lanes);
        }
        let error = "ring".parse::<BufferKind>().unwrap_err().to_string();
        assert!(BufferKind::ALL.iter().all(|kind| error.contains(&kind.to_string())), "{error}");
        assert_eq!("spin".parse::<WaitKind>().unwrap(), WaitKind::Spin);
        assert!("sleep".parse::<WaitKind>().is_err());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let options = BufferOptions::new(BufferKind::CArray);
        for broken in [
            BufferOptions { slots: 0, ..options },
            BufferOptions { slots: 65, ..options },
            BufferOptions { slots: 4, slot_pool: 4, ..options },
            BufferOptions { slot_pool: 65537, ..options },
            BufferOptions { kind: BufferKind::Lanes, slots: 0, ..options },
        ] {
            assert!(matches!(broken.maker(), Err(foreshore_base::Error::InvalidOption { .. })), "{broken:?}");
        }
        assert!(BufferOptions { slots: 64, slot_pool: 65, ..options }.maker().is_ok());
    }
}
