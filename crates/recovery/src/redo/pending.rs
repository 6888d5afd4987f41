//! Changes that wait for their pages, collected while the log is read.
//!
//! A page gets all of its changes at once, in log order, when it is read. A thread that needs it reads it, or one that
//! drains what is left (`drain.rs`). So the changes of a page find its bytes in the processor's cache. Redo of a page
//! depends on the record and that page alone ([`ResourceManager::redo`]). So pages need not keep step.
//!
//! The changes of a page are taken by the holder of its exclusive latch ([`PageRedo`]). Until they are on the page, an
//! empty entry stays. A thread that drains finds it, and waits for the latch, and so for the end of that redo.
//!
//! - *Before the database is open* a failure is noted with the number of its change, and the other pages are redone. So
//!   a restart returns the error of the first record in the log that cannot be redone, whatever thread meets it.
//! - *Afterwards* it stops the log: nothing may be committed beside a page that cannot be redone.
//! - In both cases the page leaves memory. So half a change is neither seen nor written.
//!
//! **Invariant:** once the database is open, no page in memory has changes waiting.
//!
//! **Invariant:** the count of pages falls when a page is redone and marked dirty. So a checkpoint that finds zero
//! finds all these pages among the dirty ones.

use super::bucket::{Bucket, ChangeNumber, Difference, IsTaken, Taken};
use super::changes::WaitingRecord;
use super::collected::{BUCKETS, Collected, bucket_of};
use super::page::{redo_on, without_clr};
use foreshore_base::{Error, GroupNo, Lsn, PageId, Place, Result};
use foreshore_buffer::format::Flaw;
use foreshore_buffer::{ChangeRecord, ExclusiveGuard, IfDamaged, PageRedo, Pool, Stamps};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex, MutexGuard};
use foreshore_txn::ResourceManager;
use foreshore_wal::Log;
use std::any::Any;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// What redo has done.
#[derive(Debug, Default)]
struct Redone {
    /// Changes that pages lacked.
    changes: u64,
    quarantined: BTreeSet<PageId>,
}

/// A change that could not be redone.
struct Failure {
    change: ChangeNumber,
    cause: Cause,
}

enum Cause {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    /// What decides which of two counts. That the log has stopped is only the consequence of another one.
    fn rank(&self) -> (bool, ChangeNumber) {
        (matches!(self.cause, Cause::Error(Error::Poisoned { .. })), self.change)
    }
}

/// The changes that wait for their pages.
pub(crate) struct PendingRedo {
    log: Log,
    log_dir: PathBuf,
    /// Weak, since the owner of the pages has the pool, and the pool has this.
    manager: Weak<dyn ResourceManager>,
    /// No change is in an earlier group.
    from: GroupNo,
    /// End of the log that was found. No page with waiting changes has a later one.
    until: Lsn,
    /// Path of the data file.
    data_path: PathBuf,
    buckets: Vec<Mutex<Bucket>>,
    /// Pages in the buckets. What is not indexed counts as one in each bucket.
    pages: AtomicU64,
    /// Memory that the changes take.
    bytes: AtomicU64,
    /// Whether the database is open, or about to be.
    is_live: AtomicBool,
    redone: Mutex<Redone>,
    failure: Mutex<Option<Failure>>,
}

impl PendingRedo {
    /// Returns a store for the changes of the log from group `from` to `until`.
    pub(crate) fn new(
        pool: &Pool,
        log_dir: &Path,
        manager: &Arc<dyn ResourceManager>,
        (from, until): (GroupNo, Lsn),
    ) -> Arc<Self> {
        let bucket = || Mutex::new(LockRank::Leaf, Bucket::default());
        Arc::new(Self {
            log: pool.log().clone(),
            log_dir: log_dir.to_owned(),
            manager: Arc::downgrade(manager),
            from,
            until,
            data_path: pool.path().to_owned(),
            buckets: (0..BUCKETS).map(|_| bucket()).collect(),
            pages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            is_live: AtomicBool::new(false),
            redone: Mutex::new(LockRank::Leaf, Redone::default()),
            failure: Mutex::new(LockRank::Leaf, None),
        })
    }

    /// Returns the bucket of a page.
    fn bucket(&self, pid: PageId) -> MutexGuard<'_, Bucket> {
        self.indexed(bucket_of(pid))
    }

    /// Returns a bucket with all of its pages.
    fn indexed(&self, number: usize) -> MutexGuard<'_, Bucket> {
        let mut bucket = self.buckets[number].lock();
        self.count(bucket.index(|pid| bucket_of(pid) == number));
        bucket
    }

    /// Counts what was added to a bucket, under its lock. So a thread that finds no page in any bucket finds none
    /// counted.
    fn count(&self, Difference { pages, bytes }: Difference) {
        if bytes != 0 {
            // ORDERING: Relaxed, a measure.
            self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if pages != 0 {
            // ORDERING: Release, pairs with `pages`: the page is dirty before it no longer waits.
            let before = self.pages.fetch_add(pages as u64, Ordering::Release);
            assert!(before.checked_add_signed(pages).is_some(), "{before} pages wait, and {pages} more");
        }
    }

    /// Has changes wait, when none does.
    pub(crate) fn fill(&self, collected: &mut Collected) {
        for (number, records) in collected.take() {
            let mut bucket = self.buckets[number].lock();
            self.count(bucket.fill(records));
        }
    }

    /// Returns how many pages wait; less if not all changes are indexed yet, but not zero.
    pub(crate) fn pages(&self) -> u64 {
        // ORDERING: Acquire, pairs with `count`: if none waits, the pages are seen as dirty.
        self.pages.load(Ordering::Acquire)
    }

    /// Returns the memory that the changes take.
    pub(crate) fn bytes(&self) -> u64 {
        // ORDERING: Relaxed, a measure.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns how many pages the maps have room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        (0..BUCKETS).map(|bucket| self.indexed(bucket).room()).sum()
    }

    /// Returns how many changes pages lacked, and how many pages are quarantined.
    pub(crate) fn redone(&self) -> (u64, u64) {
        let redone = self.redone.lock();
        (redone.changes, redone.quarantined.len() as u64)
    }

    /// Returns the first of the pages that are quarantined, at most `most`.
    pub(crate) fn quarantined(&self, most: usize) -> Vec<PageId> {
        self.redone.lock().quarantined.iter().take(most).copied().collect()
    }

    /// Returns the pages that wait in a bucket, in their order; `None` behind the last bucket.
    pub(super) fn waiting(&self, bucket: usize) -> Option<Vec<PageId>> {
        if bucket >= BUCKETS {
            return None;
        }
        let mut pids: Vec<_> = self.indexed(bucket).pids().collect();
        pids.sort_unstable();
        Some(pids)
    }

    /// From here on a failure stops the log.
    pub(crate) fn set_live(&self) {
        // ORDERING: Release, pairs with `is_live`; the threads that use the pages begin later.
        self.is_live.store(true, Ordering::Release);
    }

    pub(super) fn is_live(&self) -> bool {
        // ORDERING: Acquire, pairs with `set_live`.
        self.is_live.load(Ordering::Acquire)
    }

    /// Notes that a page could not be read, unless its redo has failed and that is noted.
    pub(super) fn note_unread(&self, pid: PageId, error: Error) {
        let change = self.bucket(pid).first(pid).unwrap_or((Lsn(u64::MAX), 0));
        self.fail(Failure { change, cause: Cause::Error(error) });
    }

    fn fail(&self, failure: Failure) {
        let mut first = self.failure.lock();
        if first.as_ref().is_none_or(|first| failure.rank() < first.rank()) {
            *first = Some(failure);
        }
    }

    /// Whether a change could not be redone.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Returns the failure of the first record in the log that could not be redone.
    ///
    /// # Errors
    /// That one.
    pub(crate) fn check(&self) -> Result<()> {
        match self.failure.lock().take().map(|failure| failure.cause) {
            None => Ok(()),
            Some(Cause::Error(error)) => Err(error),
            Some(Cause::Panic(panic)) => resume_unwind(panic),
        }
    }

    /// Takes the changes that wait for a page, whose entry stays. The caller holds the exclusive latch of the page.
    fn take(&self, pid: PageId) -> Result<Option<Taken>> {
        let taken = self.bucket(pid).take(pid);
        // The log is asked without the lock of the bucket.
        taken.map_err(|IsTaken| self.not_redone())
    }

    fn not_redone(&self) -> Error {
        let why = "a page of it could not be redone";
        let cause = self.log.poisoned().unwrap_or_else(|| Error::corrupted(&self.log_dir, Place::File, why));
        Error::poisoned(&cause)
    }

    /// Removes the entry of a page whose changes are on the page.
    fn end(&self, pid: PageId, taken: &Taken) {
        let mut bucket = self.bucket(pid);
        self.count(bucket.remove(pid, taken));
    }

    /// Applies changes to their page, and returns how many it lacked. `current` is the one that is applied.
    fn apply(
        &self,
        page: &mut ExclusiveGuard<'_>,
        stamps: &Stamps,
        taken: &Taken,
        current: &mut ChangeNumber,
    ) -> Result<u64> {
        let manager = self.manager.upgrade().ok_or(Error::Closed)?;
        let malformed = |why| Error::corrupted(&self.log_dir, Place::File, why);
        let (mut redone, mut initialised) = (0, None);
        // The read has compared with the durable log, which may have grown since the restart.
        if page.lsn() > self.until {
            let (place, why) = (Place::Page(page.pid()), Flaw::AheadOfLog.why());
            return Err(Error::corrupted(&self.data_path, place, why));
        }
        for (WaitingRecord { lsn, group, payload }, index) in taken.iter() {
            *current = (lsn, index);
            let decode = || {
                let record = ChangeRecord::decode(payload).and_then(|record| without_clr(&record));
                let record = record.map_err(malformed)?;
                if record.initialises(index) {
                    initialised = initialised.or(Some(lsn));
                }
                Ok((record, index))
            };
            let forgets = mutant("sabotage: a page that has waited counts as changed now") && self.is_live();
            let group = if forgets { self.log.next_group() } else { group };
            let lacked = redo_on(page, stamps, &*manager, (lsn, group), decode)?;
            redone += u64::from(lacked);
        }
        // More changes of it may follow, and the page may be written and read again before they do.
        if let Some(lsn) = initialised.filter(|_| !self.is_live()) {
            stamps.note_rebuilt(page.pid(), lsn);
        }
        Ok(redone)
    }

    fn add_redone(&self, page: &ExclusiveGuard<'_>, changes: u64) {
        let mut redone = self.redone.lock();
        redone.changes += changes;
        match page.is_quarantined() {
            true => redone.quarantined.insert(page.pid()),
            // From here on the log has the whole content.
            false => redone.quarantined.remove(&page.pid()),
        };
    }
}

impl PageRedo for PendingRedo {
    fn pending(&self, pid: PageId) -> Option<IfDamaged> {
        // ORDERING: Relaxed, as in `redo`.
        if self.pages.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.bucket(pid).if_damaged(pid)
    }

    fn redo(&self, page: &mut ExclusiveGuard<'_>, stamps: &Stamps) -> Result<bool> {
        // ORDERING: Relaxed. All buckets are counted before the threads begin that read pages, and each counts
        // until its pages are redone. So a thread that holds the latch of a page that waits does not find zero.
        if self.pages.load(Ordering::Relaxed) == 0 {
            return Ok(false);
        }
        let pid = page.pid();
        let Some(taken) = self.take(pid)? else { return Ok(false) };
        let mut change = taken.first();
        let applied = catch_unwind(AssertUnwindSafe(|| self.apply(page, stamps, &taken, &mut change)));
        let cause = match applied {
            Ok(Ok(redone)) => {
                self.add_redone(page, redone);
                self.end(pid, &taken);
                // Before the database is open, nothing is logged, and the restart writes such pages at its end.
                return Ok(self.is_live());
            }
            Err(panic) if self.is_live() => resume_unwind(panic),
            Ok(Err(error)) => Cause::Error(error),
            Err(panic) => Cause::Panic(panic),
        };
        let error = match &cause {
            Cause::Error(error) => error.clone(),
            Cause::Panic(_) => self.not_redone(),
        };
        self.fail(Failure { change, cause });
        Err(error)
    }

    fn failed(&self, error: &Error) {
        if self.is_live() {
            self.log.poison(error);
        }
    }

    fn oldest_group(&self) -> Option<GroupNo> {
        (self.pages() > 0).then_some(self.from)
    }

    fn last_page(&self) -> PageId {
        (0..BUCKETS).filter_map(|bucket| self.indexed(bucket).pids().max()).max().unwrap_or_default()
    }
}
