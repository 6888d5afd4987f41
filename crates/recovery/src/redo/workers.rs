//! Redo by several workers, each of which has the changes of its own pages.
//!
//! The thread that reads the log hands each change to the worker of its page, in log order. So the changes of a page
//! are applied in log order by one thread, as without workers. Redo of a page depends on the record and that page
//! alone ([`ResourceManager::redo`]), so pages may be at different positions of the log. Each of them holds a prefix of
//! its own history at any time, which is all that another restart needs.
//!
//! - *A record of several pages* goes to the worker of each, for that page.
//! - *A miss* keeps one worker waiting for its read, while the others go on. So there are more workers than processors.
//! - *Adjacent pages* belong to one worker, because one read brings them into memory together.
//! - *An error* has the number of its change. Changes behind the first one known are not applied, all before it are.
//!   So a restart returns the error that it would have returned without workers.
//! - *A panic* counts like an error, and goes on in the thread that reads the log.
//!
//! **Memory:** each worker has a queue of at most [`QUEUE_BYTES`], or of one larger record, and less in a small pool.
//! Besides, there are the batch that it applies, the one that is being filled for it, and two empty ones.

use super::page::{Redoer, Redone, without_clr};
use super::queue::{Batch, PageChange, Queue};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Place, Result};
use foreshore_buffer::{ChangeRecord, Pool};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{Joiner, LockRank, Mutex};
use foreshore_txn::ResourceManager;
use foreshore_wal::LoggedRecord;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes that wait for one worker.
const QUEUE_BYTES: usize = 1 << 20;
/// One byte in so many of the pool may wait for all workers.
const QUEUE_SHARE: usize = 64;
/// Frames for each worker, so that a small pool has few.
const FRAME_SHARE: usize = 64;
/// Most workers.
const MAX_WORKERS: usize = 64;
/// Adjacent pages of one worker.
const RUN: u64 = 8;

/// The workers, and the changes that are being collected for each.
pub(crate) struct RedoWorkers {
    shared: Arc<Shared>,
    filling: Vec<Batch>,
    joiners: Vec<Joiner>,
    /// Changes of pages handed over.
    changes: u64,
}

struct Shared {
    pool: Pool,
    manager: Arc<dyn ResourceManager>,
    log_dir: PathBuf,
    queues: Vec<Queue>,
    /// Number of the first change known to have failed. Later ones are not applied.
    failed_at: AtomicU64,
    ended: Mutex<Ended>,
}

/// What a worker runs.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// What the workers that have ended leave.
#[derive(Default)]
struct Ended {
    redone: Redone,
    /// Of the changes that could not be redone, the one of the lowest number.
    failure: Option<Failure>,
}

/// A change that could not be redone.
struct Failure {
    number: u64,
    cause: Cause,
}

enum Cause {
    Error(Error),
    Panic(Box<dyn Any + Send>),
}

impl Failure {
    /// What decides which of two counts. That the log has stopped is only the consequence of another one.
    fn rank(&self) -> (bool, u64) {
        (matches!(self.cause, Cause::Error(Error::Poisoned { .. })), self.number)
    }
}

impl RedoWorkers {
    /// Starts `count` workers, or fewer on a small pool or for want of threads. `None` if there are no threads at all.
    pub(super) fn start(
        count: usize,
        log_dir: &Path,
        pool: &Pool,
        manager: &Arc<dyn ResourceManager>,
        mut spawn: impl FnMut(Body) -> io::Result<Joiner>,
    ) -> Option<Self> {
        let count = count.min(pool.frames() / FRAME_SHARE).clamp(1, MAX_WORKERS);
        let limit = QUEUE_BYTES.min(pool.frames() * PAGE_SIZE / QUEUE_SHARE / count);
        let shared = Arc::new(Shared {
            pool: pool.clone(),
            manager: Arc::clone(manager),
            log_dir: log_dir.to_owned(),
            queues: (0..count).map(|_| Queue::new(limit)).collect(),
            failed_at: AtomicU64::new(u64::MAX),
            ended: Mutex::new(LockRank::Leaf, Ended::default()),
        });
        let start = |index| {
            let shared = Arc::clone(&shared);
            spawn(Box::new(move || shared.work(index))).ok()
        };
        // The queues behind the last thread stay empty.
        let joiners: Vec<Joiner> = (0..count).map_while(start).collect();
        let filling: Vec<Batch> = joiners.iter().map(|_| Batch::default()).collect();
        (!filling.is_empty()).then_some(Self { shared, filling, joiners, changes: 0 })
    }

    /// Hands over the changes of a record. Waits while too many wait for a worker.
    pub(crate) fn redo(&mut self, record: &LoggedRecord, pages: &[PageId]) {
        for (index, &pid) in pages.iter().enumerate() {
            let number = self.changes;
            self.changes += 1;
            let is_shuffled = mutant("sabotage: any worker redoes a change of a page");
            let of = if is_shuffled { number as usize % self.filling.len() } else { self.worker_of(pid) };
            let filling = &mut self.filling[of];
            let &LoggedRecord { lsn, group, ref payload, .. } = record;
            if filling.add(&PageChange { lsn, group, payload, index, number }) {
                *filling = self.shared.queues[of].push(std::mem::take(filling));
            }
        }
    }

    /// Whether a change could not be applied, so that the rest of the log need not be read.
    pub(crate) fn has_failed(&self) -> bool {
        // ORDERING: Relaxed, a hint; the failure is read when the worker has ended.
        self.shared.failed_at.load(Ordering::Relaxed) != u64::MAX
    }

    /// Fibonacci hashing (Knuth, vol. 3, section 6.4).
    fn worker_of(&self, pid: PageId) -> usize {
        let hash = (pid.0 / RUN).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        (hash as usize * self.filling.len()) >> 32
    }

    /// Waits until all changes are applied, and returns what was done.
    ///
    /// # Errors
    /// That of the first record in the log that could not be redone.
    pub(crate) fn finish(mut self) -> Result<Redone> {
        for (queue, batch) in self.shared.queues.iter().zip(std::mem::take(&mut self.filling)) {
            drop(queue.push(batch));
        }
        self.join();
        assert!(self.shared.queues.iter().all(Queue::is_empty), "a worker ends when its queue is empty");
        let Ended { redone, failure } = std::mem::take(&mut *self.shared.ended.lock());
        match failure.map(|failure| failure.cause) {
            None => Ok(redone),
            Some(Cause::Error(error)) => Err(error),
            Some(Cause::Panic(panic)) => resume_unwind(panic),
        }
    }

    fn join(&mut self) {
        self.shared.queues.iter().for_each(Queue::close);
        // WAIT: park - each worker ends when its queue is empty.
        self.joiners.drain(..).for_each(|join| join());
    }
}

impl Drop for RedoWorkers {
    /// Lets no worker outlive the restart, whatever ends that.
    fn drop(&mut self) {
        self.join();
    }
}

impl Shared {
    /// Applies what comes through a queue until that is closed.
    fn work(&self, index: usize) {
        let queue = &self.queues[index];
        let mut redoer = Redoer::new(&self.pool, &*self.manager);
        let (mut number, mut batch) = (0, Batch::default());
        let worked = catch_unwind(AssertUnwindSafe(|| {
            while queue.pop(&mut batch) {
                for change in batch.changes() {
                    number = change.number;
                    self.redo(&mut redoer, &change);
                }
            }
        }));
        self.ended.lock().redone.add(redoer.into_redone());
        if let Err(panic) = worked {
            self.fail(Failure { number, cause: Cause::Panic(panic) });
            // The reader of the log may wait for space.
            while queue.pop(&mut batch) {}
        }
    }

    fn redo(&self, redoer: &mut Redoer<'_>, change: &PageChange<'_>) {
        // ORDERING: Relaxed, a number that only falls; an old value lets a change be applied that need not be.
        if change.number > self.failed_at.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.try_redo(redoer, change) {
            self.fail(Failure { number: change.number, cause: Cause::Error(error) });
        }
    }

    fn try_redo(&self, redoer: &mut Redoer<'_>, change: &PageChange<'_>) -> Result<()> {
        let &PageChange { lsn, group, payload, index, .. } = change;
        let change = ChangeRecord::decode(payload).and_then(|change| without_clr(&change));
        let change = change.map_err(|why| Error::corrupted(&self.log_dir, Place::File, why))?;
        redoer.redo_page((lsn, group), &change, index)
    }

    fn fail(&self, failure: Failure) {
        // What follows from the failure of a later change must not hide that of an earlier one.
        if !matches!(failure.cause, Cause::Error(Error::Poisoned { .. })) {
            // ORDERING: Relaxed, as in `redo`; the failure itself is under the mutex.
            self.failed_at.fetch_min(failure.number, Ordering::Relaxed);
        }
        let mut ended = self.ended.lock();
        if ended.failure.as_ref().is_none_or(|first| failure.rank() < first.rank()) {
            ended.failure = Some(failure);
        }
    }
}
