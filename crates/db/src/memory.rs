//! Shares of the memory limit.

use foreshore_base::InvalidOption;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_lock::UNIT_BYTES;

/// Smallest memory limit, in bytes.
pub(crate) const MIN_MEMORY: u64 = 4 << 20;

/// Smallest share of undo, in bytes: a few chunks.
const MIN_UNDO: u64 = 64 << 10;
const MIN_RING: u64 = 256 << 10;
const MAX_RING: u64 = 16 << 20;
/// The largest share of log buffers: a lane of 256 KiB for each of 256 sessions.
const MAX_LOG: u64 = 64 << 20;
const MAX_FRAMES: u64 = 1 << 31;

/// Shares of a memory limit, in bytes unless a field says otherwise.
///
/// Memory is committed lazily: a database that was just opened uses little of its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryShares {
    /// The memory limit.
    pub limit: u64,
    /// Log buffer: a sixteenth of the limit, as a power of two, from 256 KiB to 64 MiB. It holds the lanes; sessions
    /// beyond their number share some of them. A ring takes at most 16 MiB.
    pub log_buffer: u64,
    /// Batches that are being written: log groups and doublewrite.
    pub staging: u64,
    /// Undo of running transactions, and old versions of rows: an eighth of the limit, unless another share is
    /// requested.
    pub undo: u64,
    /// Transaction status words.
    pub status: u64,
    /// Shared locks of keys and intervals. When the share of a transaction is full, its locks are merged into wider
    /// intervals. Other locks are in the rows, or are few.
    pub locks: u64,
    /// Frames of the buffer pool with their page table: the rest of the limit.
    pub pool: u64,
    /// Frames of the buffer pool, in pages.
    pub frames: usize,
}

/// Bytes of memory for each frame besides its page:
///
/// - the descriptor: 64
/// - an entry of the page table: 4
/// - its part of the stamps in memory: 132, and of the notes that become stamps: 210
/// - the queue of scans with the ids that it remembers: at most 64
/// - the state of the replacement policy, which is largest for `s3c` with its list and ghosts.
const FRAME_OVERHEAD: u64 = 534;

/// Bytes of each share that are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Log buffers that were used at least once.
    pub log: u64,
    /// Chunks of undo.
    pub undo: u64,
    /// Words of the transaction status window.
    pub status: u64,
    /// Shared locks of keys and intervals of large transactions.
    pub locks: u64,
    /// Frames that hold pages.
    pub pool: u64,
}

impl MemoryShares {
    /// Divides `limit` bytes, of which `undo` bytes are for undo if given. Refuses less than 4 MiB.
    pub(crate) fn of(limit: u64, undo: Option<u64>) -> Result<Self, InvalidOption> {
        if limit < MIN_MEMORY {
            return Err(InvalidOption {
                name: "memory_limit",
                value: limit.to_string(),
                expected: format!("at least {MIN_MEMORY} bytes"),
            });
        }
        let sixteenth = limit / 16;
        let log_buffer = (1_u64 << sixteenth.ilog2()).clamp(MIN_RING, MAX_LOG);
        // Two doublewrite batches of 64 pages and their header, and two groups of at most 1 MiB.
        let staging = (limit / 8).min(4 << 20);
        let undo = undo.unwrap_or(limit / 8);
        if !(MIN_UNDO..=limit / 4).contains(&undo) {
            return Err(InvalidOption {
                name: "undo_limit",
                value: undo.to_string(),
                expected: format!("{MIN_UNDO} to {} bytes", limit / 4),
            });
        }
        let status = (limit / 32).min(128 << 20);
        let locks = limit / 32;
        let pool = limit - log_buffer - staging - undo - status - locks;
        let frames = (pool / (PAGE_SIZE as u64 + FRAME_OVERHEAD)).min(MAX_FRAMES - 1);
        let frames = usize::try_from(frames).expect("below 2^31");
        Ok(Self { limit, log_buffer, staging, undo, status, locks, pool, frames })
    }

    /// Returns the units of lock memory that the share holds.
    pub(crate) fn memory_units(&self) -> usize {
        usize::try_from(self.locks).unwrap_or(usize::MAX) / UNIT_BYTES
    }

    /// Returns the bytes of the ring of a log buffer that has one.
    pub(crate) fn ring_bytes(&self) -> usize {
        usize::try_from(self.log_buffer.min(MAX_RING)).expect("at most 16 MiB")
    }

    /// Returns the entries of the status window: a power of two of 8-byte words.
    pub(crate) fn status_words(&self) -> u64 {
        1 << (self.status / 8).ilog2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_limit() {
        for limit in [MIN_MEMORY, 5_000_001, 64 << 20, 1 << 30, 1 << 40] {
            let shares = MemoryShares::of(limit, None).unwrap();
            assert!(shares.ring_bytes().is_power_of_two(), "{limit}");
            let sum = shares.log_buffer + shares.staging + shares.undo + shares.status + shares.locks + shares.pool;
            assert!(shares.memory_units() >= 350, "{limit}: {}", shares.memory_units());
            assert_eq!(sum, limit);
            assert!(shares.frames as u64 * (PAGE_SIZE as u64 + FRAME_OVERHEAD) <= shares.pool);
            assert!(shares.frames >= 256, "{limit}: {}", shares.frames);
            assert!(shares.status_words() * 8 <= shares.status);
        }
    }

    #[test]
    fn a_tiny_limit_names_the_minimum() {
        let Err(InvalidOption { name, expected, .. }) = MemoryShares::of(MIN_MEMORY - 1, None) else { panic!() };
        assert_eq!(name, "memory_limit");
        assert!(expected.contains("4194304"));
    }
}
