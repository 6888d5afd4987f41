//! What workloads with simple rows share, and those whose threads share no table.

use super::mark;
use foreshore::{Db, Durability, Result, TxnOptions};

/// Bytes of a row.
pub(super) const ROW_BYTES: usize = 100;

/// Values are raw bytes.
pub(super) type Bytes = &'static [u8];

/// Rows of a loading transaction.
pub(super) const BATCH: u64 = 500;

/// A loading transaction. A crash of a load loses nothing worth keeping, so batches need not be durable one by one.
pub(super) const LOADING: TxnOptions = TxnOptions::new().label("load").durability(Durability::Relaxed);

/// The tables of a workload, one a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnTables {
    pub(super) workload: &'static str,
    /// The note of how many there are.
    pub(super) mark: &'static str,
}

impl OwnTables {
    /// The table of `thread`.
    pub(super) fn name(self, thread: usize) -> String {
        format!("{}-{thread}", self.workload)
    }

    /// How many there are.
    pub(super) fn count(self, db: &Db) -> Result<usize> {
        Ok(mark::get(db, self.mark)?.unwrap_or(0) as usize)
    }

    /// Makes those that `threads` workers lack, each by `make`, which gets its name. Durable when it returns.
    pub(super) fn add(self, db: &Db, threads: usize, mut make: impl FnMut(&str) -> Result<()>) -> Result<()> {
        let count = self.count(db)?;
        for thread in count..threads {
            make(&self.name(thread))?;
        }
        if threads > count { mark::set(db, self.mark, threads as u64) } else { Ok(()) }
    }
}

/// A row that begins with a number.
pub(super) fn row(number: u64) -> [u8; ROW_BYTES] {
    let mut row = [b'.'; ROW_BYTES];
    row[..8].copy_from_slice(&number.to_le_bytes());
    row
}

/// The number that a row begins with; `None` if it is no row of these workloads.
pub(super) fn number(row: &[u8]) -> Option<u64> {
    number_of(row, ROW_BYTES)
}

/// [`number`] of a row of `bytes`.
pub(super) fn number_of(row: &[u8], bytes: usize) -> Option<u64> {
    let first = row.first_chunk().filter(|_| row.len() == bytes)?;
    Some(u64::from_le_bytes(*first))
}
