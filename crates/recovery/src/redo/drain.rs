//! Redo of the pages that no thread has needed: by the threads of a restart before the database opens, and by threads
//! beside its work afterwards.
//!
//! A thread takes one bucket of pages after the other. The pages of a bucket are adjacent for the most part, and one
//! read brings several into memory.

use super::pending::PendingRedo;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{PageRedo, Pool};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{Daemon, Joiner, LockRank, Mutex, NextWake, Signal, Step};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Frames for each thread, so that a small pool has few.
const FRAME_SHARE: usize = 64;
/// Most threads.
const MAX_THREADS: usize = 64;
/// One byte in so many of the pool may be taken by changes that wait.
const SHARE: usize = 8;

/// Pages between two calls of `progress`.
const PORTION: usize = 64;
/// When a thread tries again what has failed for want of memory.
const RETRY: Duration = Duration::from_millis(100);

/// What a thread runs.
pub(super) type Body = Box<dyn FnOnce() + Send>;

/// One pass over the pages that wait, by any number of threads.
pub(super) struct Drain {
    pending: Arc<PendingRedo>,
    pool: Pool,
    /// The next bucket.
    next: AtomicUsize,
}

impl Drain {
    pub(super) fn new(pending: &Arc<PendingRedo>, pool: &Pool) -> Arc<Self> {
        Arc::new(Self { pending: Arc::clone(pending), pool: pool.clone(), next: AtomicUsize::new(0) })
    }

    /// Returns the pages of the next bucket; `None` if there is none.
    fn next(&self) -> Option<Vec<PageId>> {
        // ORDERING: Relaxed, it only hands out numbers.
        self.pending.waiting(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Redoes a page, unless another thread has. Before the database is open, failures are noted.
    ///
    /// # Errors
    /// Those of [`Pool::redo`].
    fn redo(&self, pid: PageId) -> Result<()> {
        let waits = || self.pending.pending(pid).is_some();
        if !waits() {
            return Ok(());
        }
        let Err(error) = self.pool.redo(pid) else { return Ok(()) };
        if !self.pending.is_live() {
            self.pending.note_unread(pid, error);
            return Ok(());
        }
        // If it no longer waits, another thread has redone it, and may have freed it and cut the file since.
        if waits() { Err(error) } else { Ok(()) }
    }

    /// Redoes all that is left, and calls `progress` now and then.
    ///
    /// # Errors
    /// Those of [`Pool::redo`].
    fn run(&self, mut progress: impl FnMut()) -> Result<()> {
        while let Some(pids) = self.next() {
            for some in pids.chunks(PORTION) {
                some.iter().try_for_each(|&pid| self.redo(pid))?;
                progress();
            }
        }
        Ok(())
    }
}

/// What one of the threads runs beside the work of the database: a page at a time, so that it ends soon.
struct Worker {
    drain: Arc<Drain>,
    /// What is left of its bucket, the first page last.
    left: Mutex<Vec<PageId>>,
}

impl Worker {
    fn new(drain: &Arc<Drain>) -> Self {
        Self { drain: Arc::clone(drain), left: Mutex::new(LockRank::Leaf, Vec::new()) }
    }
}

impl Step for Worker {
    fn step(&self) -> NextWake {
        let page = self.left.lock().pop();
        let Some(pid) = page else {
            let Some(mut pids) = self.drain.next() else { return NextWake::OnSignal };
            pids.reverse();
            *self.left.lock() = pids;
            return NextWake::Now;
        };
        match self.drain.redo(pid) {
            Ok(()) => NextWake::Now,
            Err(_) if self.drain.pool.log().poisoned().is_some() => NextWake::OnSignal,
            // No frame was free, or no memory.
            Err(_) => {
                self.left.lock().push(pid);
                NextWake::After(RETRY)
            }
        }
    }
}

/// Redo before the database is open: collects changes, and drains them when they take too much memory.
pub(crate) struct EagerRedo<'a> {
    pending: Arc<PendingRedo>,
    pool: &'a Pool,
    threads: usize,
    /// The most memory that changes may take.
    pub(super) limit: u64,
    has_drained: bool,
    spawn: Box<dyn FnMut(Body) -> io::Result<Joiner> + 'a>,
}

impl<'a> EagerRedo<'a> {
    /// Redo by `threads` threads, this one among them, or by fewer on a small pool or for want of threads.
    pub(crate) fn new(
        pending: &Arc<PendingRedo>,
        pool: &'a Pool,
        threads: usize,
        spawn: impl FnMut(Body) -> io::Result<Joiner> + 'a,
    ) -> Self {
        Self {
            pending: Arc::clone(pending),
            pool,
            threads: threads.min(pool.frames() / FRAME_SHARE).clamp(1, MAX_THREADS),
            limit: (pool.frames() * PAGE_SIZE / SHARE) as u64,
            has_drained: false,
            spawn: Box::new(spawn),
        }
    }

    /// Drains if the changes take too much memory. Returns false if the rest of the log need not be read, because a
    /// change has failed.
    pub(crate) fn bound(&mut self) -> bool {
        if self.pending.bytes() <= self.limit {
            return true;
        }
        self.drain();
        !self.pending.has_failed()
    }

    /// Redoes all pages that wait. Failures are noted.
    pub(crate) fn drain(&mut self) {
        if self.pending.pages() == 0 {
            return;
        }
        self.has_drained = true;
        let drain = Drain::new(&self.pending, self.pool);
        let start = |_| {
            let drain = Arc::clone(&drain);
            // A thread that panics leaves pages to the pass below, whose panics go on.
            (self.spawn)(Box::new(move || drop(drain.run(|| ())))).ok()
        };
        let joiners: Vec<Joiner> = (1..self.threads).map_while(start).collect();
        let ran = drain.run(|| ());
        // WAIT: park - each thread ends when no bucket is left.
        joiners.into_iter().for_each(|join| join());
        assert!(ran.is_ok(), "before the database is open, failures are noted");
        if self.pending.pages() > 0 && !self.pending.has_failed() {
            let ran = Drain::new(&self.pending, self.pool).run(|| ());
            assert!(ran.is_ok() && (self.pending.pages() == 0 || self.pending.has_failed()), "all pages are drained");
        }
    }

    /// Redoes the pages in memory, so that the others may wait until they are read. Failures are noted.
    pub(crate) fn redo_resident(&self) {
        if !self.has_drained {
            // Then no page has come into memory.
            return;
        }
        let waiting = (0..).map_while(|bucket| self.pending.waiting(bucket));
        for pid in waiting.flatten() {
            if let Err(error) = self.pool.redo_resident(pid) {
                self.pending.note_unread(pid, error);
            }
        }
    }
}

/// Redo that goes on when the database is open. Dropping it ends its threads.
pub struct OpenRedo {
    pending: Arc<PendingRedo>,
    pool: Pool,
    drain: Arc<Drain>,
    /// Threads to start.
    count: usize,
    threads: Mutex<Vec<Daemon>>,
}

impl OpenRedo {
    /// Redo by `count` threads, once they are started.
    pub(crate) fn new(pending: &Arc<PendingRedo>, pool: &Pool, count: usize) -> Self {
        let (drain, threads) = (Drain::new(pending, pool), Mutex::new(LockRank::Leaf, Vec::new()));
        Self { pending: Arc::clone(pending), pool: pool.clone(), drain, count, threads }
    }

    /// Starts its threads, or fewer on a small pool or for want of threads. What they leave is redone by a checkpoint.
    ///
    /// Called when the space of the file is known: until then its length and its maps must not change.
    pub fn start(&self) {
        let count = self.count.min(self.pool.frames() / FRAME_SHARE).min(MAX_THREADS);
        let start = |_| {
            let pending = Arc::clone(&self.pending);
            let on_panic = move |_: &str, message: &str| {
                pending.failed(&Error::io("redo pages of", "data", io::Error::other(message.to_owned())));
            };
            let step = Arc::new(Worker::new(&self.drain));
            Daemon::spawn("foreshore-redo", Signal::new(), step, Box::new(on_panic)).ok()
        };
        self.threads.lock().extend((0..count).map_while(start));
    }

    /// Redoes all pages that are left, beside the threads, and calls `progress` now and then.
    ///
    /// # Errors
    /// Those of [`Pool::redo`], which stop the log.
    pub(crate) fn finish(&self, mut progress: impl FnMut()) -> Result<()> {
        if self.pending.pages() > 0 {
            progress();
            self.drain.run(&mut progress)?;
            // The pages that the threads are still about: for each it waits for the latch.
            Drain::new(&self.pending, &self.pool).run(progress)?;
            assert_eq!(self.pending.pages(), 0, "pages wait for their redo, and no change has failed");
        }
        self.end_threads();
        Ok(())
    }

    /// Ends the threads. What is left waits.
    pub(crate) fn end_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        drop(threads);
    }

    /// Returns how many pages wait for their redo, and how much memory their changes take.
    pub(crate) fn left(&self) -> (u64, u64) {
        (self.pending.pages(), self.pending.bytes())
    }

    /// Returns how many changes were applied so far, and how many pages redo has quarantined.
    pub(crate) fn redone(&self) -> (u64, u64) {
        self.pending.redone()
    }

    /// Returns the first of these pages, at most `most`.
    pub(crate) fn quarantined(&self, most: usize) -> Vec<PageId> {
        self.pending.quarantined(most)
    }
}
