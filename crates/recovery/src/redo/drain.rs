//! Redo of the pages that no thread has needed: by the threads of a restart before the database opens, and by threads
//! beside its work afterwards.
//!
//! A thread takes one bucket of pages after the other. The pages of a bucket are adjacent for the most part, and one
//! read brings several into memory.

use super::changes::WaitingRecord;
use super::collected::Collected;
use super::pending::PendingRedo;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::{ChangeRecord, PageRedo, Pool};
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

    /// Redoes a page if it is in memory. A failure is noted.
    fn redo_resident(&self, pid: PageId) {
        if let Err(error) = self.pool.redo_resident(pid) {
            self.pending.note_unread(pid, error);
        }
    }

    /// Redoes the pages of the next bucket, and calls `progress` now and then. Returns false if there is none.
    ///
    /// # Errors
    /// Those of [`Pool::redo`].
    fn run_bucket(&self, mut progress: impl FnMut()) -> Result<bool> {
        let Some(pids) = self.next() else { return Ok(false) };
        for some in pids.chunks(PORTION) {
            some.iter().try_for_each(|&pid| self.redo(pid))?;
            progress();
        }
        Ok(true)
    }

    /// The same for a database that is not open: failures are noted.
    fn run_bucket_eagerly(&self) -> bool {
        self.run_bucket(|| ()).expect("before the database is open, failures are noted")
    }

    /// Redoes all that is left, and calls `progress` now and then.
    ///
    /// # Errors
    /// Those of [`Pool::redo`].
    fn run(&self, mut progress: impl FnMut()) -> Result<()> {
        while self.run_bucket(&mut progress)? {}
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

/// A pass that threads make beside the one that reads the log.
struct Running {
    drain: Arc<Drain>,
    joiners: Vec<Joiner>,
}

impl Running {
    fn join(&mut self) {
        // WAIT: park - each thread ends when no bucket is left.
        self.joiners.drain(..).for_each(|join| join());
    }
}

impl Drop for Running {
    /// After a panic of the thread that reads the log.
    fn drop(&mut self) {
        self.join();
    }
}

/// Redo before the database is open: collects changes. When they take too much memory, threads redo them, while the log
/// is read on as far as there is memory.
pub(crate) struct EagerRedo<'a> {
    pending: Arc<PendingRedo>,
    pool: &'a Pool,
    threads: usize,
    /// The most memory that changes may take.
    pub(super) limit: u64,
    /// What has been read since the last pass began.
    collected: Collected,
    running: Option<Running>,
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
            collected: Collected::new(),
            running: None,
            has_drained: false,
            spawn: Box::new(spawn),
        }
    }

    /// Adds the changes of a record, behind those of earlier ones. Returns false if the rest of the log need not be
    /// read, because a change has failed.
    pub(crate) fn add(&mut self, record: &WaitingRecord<'_>, change: &ChangeRecord<'_>) -> bool {
        self.collected.add(record, change);
        while self.exceeds() {
            if self.pending.has_failed() {
                return false;
            }
            if !self.help() && self.exceeds() {
                self.start();
            }
        }
        true
    }

    fn exceeds(&self) -> bool {
        self.collected.bytes() + self.pending.bytes() > self.limit
    }

    /// Redoes all that was added, unless it `may_wait` until its pages are read. Returns whether it waits. Failures are
    /// noted.
    pub(crate) fn finish(&mut self, may_wait: bool) -> bool {
        self.end_pass();
        let waits = may_wait && !self.pool.stamps().has_rebuilt();
        if waits {
            self.redo_resident()
        } else {
            self.drain()
        }
        waits
    }

    /// Ends the pass that runs, if one does.
    fn end_pass(&mut self) {
        while self.help() {}
    }

    fn drain(&mut self) {
        self.start();
        self.end_pass();
    }

    /// Makes the index of what was added, and redoes the pages in memory, so that the others may wait until they are
    /// read. If the index takes too much memory, it redoes all.
    fn redo_resident(&mut self) {
        if self.collected.bytes() == 0 || self.pending.has_failed() {
            return;
        }
        self.pending.fill(&mut self.collected);
        // Otherwise no page has come into memory.
        let has_drained = self.has_drained;
        let run = move |drain: &Drain| {
            while let Some(pids) = drain.next() {
                pids.into_iter().filter(|_| has_drained).for_each(|pid| drain.redo_resident(pid));
            }
        };
        let mut running = self.by_threads(run);
        run(&running.drain);
        running.join();
        // A thread that panics leaves pages. Here the panic goes on.
        run(&Drain::new(&self.pending, self.pool));
        if self.exceeds() {
            self.running = Some(self.drain_by_threads());
            self.end_pass();
        }
    }

    /// Begins to redo all that was added, when no pass runs.
    fn start(&mut self) {
        if self.collected.bytes() == 0 || self.pending.has_failed() {
            return;
        }
        self.has_drained = true;
        self.pending.fill(&mut self.collected);
        self.running = Some(self.drain_by_threads());
    }

    /// Begins a pass in which all other threads redo what waits.
    fn drain_by_threads(&mut self) -> Running {
        self.by_threads(|drain| while drain.run_bucket_eagerly() {})
    }

    /// Redoes some of the pages that threads are about. Returns false if no pass runs any more.
    fn help(&mut self) -> bool {
        let Some(running) = &self.running else { return false };
        if running.drain.run_bucket_eagerly() {
            return true;
        }
        // The drop joins its threads.
        self.running = None;
        // A thread that panics leaves pages. Here the panic goes on.
        let drain = Drain::new(&self.pending, self.pool);
        while self.pending.pages() > 0 && !self.pending.has_failed() && drain.run_bucket_eagerly() {}
        assert!(self.pending.pages() == 0 || self.pending.has_failed(), "all pages are drained");
        false
    }

    /// Begins a pass in which all other threads run `run`.
    fn by_threads(&mut self, run: impl Fn(&Drain) + Clone + Send + 'static) -> Running {
        let drain = Drain::new(&self.pending, self.pool);
        let start = |_| {
            let (drain, run) = (Arc::clone(&drain), run.clone());
            (self.spawn)(Box::new(move || run(&drain))).ok()
        };
        let joiners = (1..self.threads).map_while(start).collect();
        Running { drain, joiners }
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
