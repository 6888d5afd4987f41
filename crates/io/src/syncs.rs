//! Syncs of one open file, and the writers that a failed sync fails.
//!
//! The kernel reports a lost page to an open file once; the next sync succeeds. So a failed sync, whatever its error,
//! has to fail every writer whose pages it may have lost.
//!
//! 1. A writer notes the generation, the number of failed syncs, **before** its first write.
//! 2. Syncs take turns. One that fails raises the generation before the next turn begins.
//! 3. A writer syncs only if the generation is still the one that it noted. Otherwise it gets the error of the newest
//!    sync that failed.
//!
//! **Invariant:** no sync succeeds for a writer if another one has failed since the writer's first write began. A
//! failure before that first write does not count, since it lost nothing of the writer's.

use foreshore_sync::{
    LockRank, Mutex,
    model::mutant,
    primitive::atomic::{AtomicU64, Ordering},
};
use rustix::io::Errno;
use std::io;

/// The syncs of one open file.
#[derive(Debug)]
pub struct Syncs {
    /// The generation: syncs that have failed.
    failed: AtomicU64,
    /// The error of the newest failed sync. The lock is held during a sync.
    newest: Mutex<Option<Errno>>,
}

impl Syncs {
    /// Creates the state of a file that was just opened.
    pub fn new() -> Self {
        Self { failed: AtomicU64::new(0), newest: Mutex::new(LockRank::FileSync, None) }
    }

    /// Makes the effects of `write` durable, by `sync`. A failed sync before the call does not count.
    pub fn write_durable(
        &self,
        write: impl FnOnce() -> io::Result<()>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if mutant("syncs: the generation is noted behind the write") {
            write()?;
            return self.sync_since(self.generation(), sync);
        }
        let since = self.generation();
        write()?;
        self.sync_since(since, sync)
    }

    /// Makes every write to the open file durable, by `sync`. Once any sync has failed, every call fails, since it
    /// answers for all writers.
    pub fn sync_all(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.sync_since(0, sync)
    }

    /// Counts a failure that was reported by another call than a sync.
    pub fn note_failure(&self, error: &io::Error) {
        self.fail(&mut self.newest.lock(), error);
    }

    fn generation(&self) -> u64 {
        // ORDERING: acquire, pairs with `fail`: the write that follows comes after the failed syncs that are counted
        // here, and does not begin before this load.
        self.failed.load(Ordering::Acquire)
    }

    fn sync_since(&self, since: u64, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        // WAIT: park - until the sync in progress has ended.
        let mut newest = self.newest.lock();
        // ORDERING: Relaxed, the lock orders it behind every failure.
        let is_failed = self.failed.load(Ordering::Relaxed) != since;
        if let Some(errno) = *newest
            && is_failed
            && !mutant("syncs: a failure fails its caller alone")
        {
            return Err(errno.into());
        }
        // Not repeated, not even after EINTR: a second call may report success for pages that the first one dropped.
        sync().inspect_err(|error| self.fail(&mut newest, error))
    }

    fn fail(&self, newest: &mut Option<Errno>, error: &io::Error) {
        *newest = Some(Errno::from_io_error(error).unwrap_or(Errno::IO));
        // ORDERING: release, pairs with `generation`.
        self.failed.fetch_add(1, Ordering::Release);
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    fn kind(result: io::Result<()>) -> Option<Errno> {
        result.err().as_ref().and_then(Errno::from_io_error)
    }

    #[test]
    fn a_failed_sync_fails_earlier_writers_whatever_the_error_and_no_later_one() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::DQUOT, Errno::INTR] {
            let syncs = Syncs::new();
            let fail = || Err(errno.into());
            // Another writer's sync fails while this one has written and not yet synced.
            let write = || {
                assert_eq!(kind(syncs.write_durable(|| Ok(()), fail)), Some(errno));
                Ok(())
            };
            assert_eq!(kind(syncs.write_durable(write, || panic!("no sync can save this"))), Some(errno));
            assert_eq!(kind(syncs.write_durable(|| Ok(()), || Ok(()))), None, "a later writer is forgiven");
            assert_eq!(kind(syncs.sync_all(|| panic!("it stands for the earlier ones"))), Some(errno));
        }
    }

    #[test]
    fn a_failed_write_is_not_synced() {
        let syncs = Syncs::new();
        let write = || Err(Errno::NOSPC.into());
        assert_eq!(kind(syncs.write_durable(write, || panic!("synced"))), Some(Errno::NOSPC));
        assert_eq!(kind(syncs.sync_all(|| Ok(()))), None, "what was not written was not lost");
    }
}
