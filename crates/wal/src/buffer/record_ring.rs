//! Circular memory for log buffers that draw a position before they copy.

use super::checksummed::Checksummed;
use super::circle::Circle;
use super::memory::{GRAIN, Memory};
use super::staging::Staging;
use crate::checksum::{Detected, Unsummed};
use foreshore_base::Lsn;
use std::io;

/// Memory for records, addressed by positions that only grow. It keeps no position itself: its owner draws them.
#[derive(Debug)]
pub struct RecordRing {
    memory: Memory,
    bytes: u64,
}

impl RecordRing {
    /// Reserves `bytes`, a power of two.
    ///
    /// # Errors
    /// The error of the system.
    pub fn new(bytes: usize) -> io::Result<Self> {
        Ok(Self { memory: Memory::new(bytes)?, bytes: bytes as u64 })
    }

    /// Returns the bytes of the ring.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes `record` with the stamp `lsn` at `start`, a multiple of [`GRAIN`].
    ///
    /// # Safety
    /// The caller alone accesses `[start, start + record.size())`, and the old bytes of the range have been drained.
    #[inline]
    pub unsafe fn put(&self, start: u64, record: &Checksummed<'_>, lsn: Lsn) {
        debug_assert!(start.is_multiple_of(GRAIN as u64), "a record begins at {start}, inside of a grain");
        let circle = self.circle();
        // SAFETY: as for this function.
        unsafe {
            circle.put_payload(Unsummed, start, record.size(), record.record.parts);
            circle.put_envelope(start, record.envelope(Detected, lsn));
        }
    }

    /// Copies whole records of `[from, upto)`, as many as fit, into one extent of `staging` and returns the position
    /// behind the last one.
    ///
    /// # Safety
    /// The records of the range are published to the caller and not overwritten during the call.
    pub unsafe fn drain(&self, from: u64, upto: u64, staging: &mut Staging) -> u64 {
        staging.expect_extents(1);
        // SAFETY: as for this function.
        unsafe { self.circle().drain(0, from, upto, staging) }
    }

    fn circle(&self) -> Circle<'_> {
        Circle::new(&self.memory, 0, self.bytes)
    }
}
