//! Worker pool: threads of the database that run closures of users.
//!
//! **Jobs** wait in a queue and start in its order. A job that is still in the queue can be cancelled. A job runs on
//! one worker from begin to end, so each transaction that has locks has a thread. No worker waits for a lock whose
//! holder is in the queue.
//!
//! **Workers** start when a job finds none idle, up to a limit, and end after [`IDLE`] without a job. A worker that
//! waits for a lock or a page has no use for its processor, so there are twice as many as processors. With more of
//! them, more transactions would meet at busy rows.
//!
//! **Close** refuses the jobs in the queue and all later ones. It does not wait for the workers: a job that runs may
//! take its time, and may be the caller. The transactions of such jobs are counted by `admission`.
//!
//! **Invariant:** while a job is in the queue, a worker is about to look into it: one that runs a job, that starts, or
//! that was notified. A pool without threads is driven by [`WorkerPool::step`].

use crate::Error;
use foreshore_sync::{Condvar, LockRank, Mutex, available_parallelism, spawn};
use std::collections::BTreeMap;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Name of the threads.
const NAME: &str = "foreshore-worker";
/// Least limit of workers. With one, a job that waits for a lock would keep all others from starting.
const MIN_LIMIT: usize = 4;
/// Time without a job after which a worker ends.
const IDLE: Duration = Duration::from_secs(10);

/// Work of a user.
pub(crate) trait Job: Send {
    /// Does the work.
    fn run(self: Box<Self>);

    /// Reports that the work was not begun, and why.
    fn refuse(self: Box<Self>, error: Error);
}

/// Threads that run jobs.
pub(crate) struct WorkerPool {
    state: Mutex<State>,
    /// Notified once for each job, and when the pool is closed.
    ready: Condvar,
    /// Most workers at a time. Zero if the owner drives the pool.
    limit: usize,
    idle: Duration,
}

#[derive(Default)]
struct State {
    /// Jobs that were not begun, by number.
    queue: BTreeMap<u64, Box<dyn Job>>,
    last: u64,
    /// Workers that run or start.
    workers: usize,
    /// Workers that wait for a job, or were notified and have not woken yet.
    waiting: usize,
    is_closed: bool,
}

impl WorkerPool {
    pub(crate) fn new(has_threads: bool) -> Arc<Self> {
        let limit = if has_threads { (2 * available_parallelism()).max(MIN_LIMIT) } else { 0 };
        Self::with(limit, IDLE)
    }

    fn with(limit: usize, idle: Duration) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LockRank::Leaf, State::default()), ready: Condvar::new(), limit, idle })
    }

    /// Adds a job to the queue, and returns its number. A closed pool refuses it.
    pub(crate) fn add(self: &Arc<Self>, job: Box<dyn Job>) -> Option<u64> {
        let (number, is_awaited, grows) = {
            let mut state = self.state.lock();
            if state.is_closed {
                drop(state);
                refuse(job, Error::Closed);
                return None;
            }
            state.last += 1;
            let number = state.last;
            state.queue.insert(number, job);
            // A notified worker counts as waiting until it runs, and there is a job for it in the queue.
            let grows = state.workers < self.limit && state.queue.len() > state.waiting;
            state.workers += usize::from(grows);
            (number, state.waiting > 0, grows)
        };
        if is_awaited {
            self.ready.notify_one();
        }
        if grows {
            self.start_worker();
        }
        Some(number)
    }

    /// Takes a job out of the queue, if it was not begun. Dropping it is up to the caller.
    pub(crate) fn cancel(&self, number: u64) -> Option<Box<dyn Job>> {
        self.state.lock().queue.remove(&number)
    }

    /// Refuses all jobs that were not begun, and later ones. The workers end after the jobs that they run.
    pub(crate) fn close(&self) {
        let refused = {
            let mut state = self.state.lock();
            state.is_closed = true;
            mem::take(&mut state.queue)
        };
        self.ready.notify_all();
        refused.into_values().for_each(|job| refuse(job, Error::Closed));
    }

    /// Runs one job on the calling thread if the pool has no threads.
    pub(crate) fn step(&self) {
        let job = if self.limit == 0 { self.state.lock().queue.pop_first() } else { None };
        if let Some((_, job)) = job {
            run(job);
        }
    }

    /// Starts a worker, which is counted already.
    fn start_worker(self: &Arc<Self>) {
        let pool = Arc::clone(self);
        // The joiner is dropped: the thread ends by itself.
        let Err(error) = spawn(NAME, move || pool.work()) else { return };
        let refused = {
            let mut state = self.state.lock();
            state.workers -= 1;
            // Without a worker no job would ever begin. Other workers take the job otherwise.
            if state.workers == 0 { mem::take(&mut state.queue) } else { BTreeMap::new() }
        };
        let error = Error::io("start a thread for", NAME, error);
        refused.into_values().for_each(|job| refuse(job, error.clone()));
    }

    /// Runs jobs until there are none for some time.
    fn work(&self) {
        while let Some(job) = self.next() {
            run(job);
        }
    }

    /// Returns the next job, or `None` if the worker has to end. It is then no longer counted.
    fn next(&self) -> Option<Box<dyn Job>> {
        let mut state = self.state.lock();
        let mut is_late = false;
        loop {
            if let Some((_, job)) = state.queue.pop_first() {
                return Some(job);
            }
            if state.is_closed || is_late {
                state.workers -= 1;
                return None;
            }
            state.waiting += 1;
            // WAIT: park - for a job, the close of the pool, or the end of the idle time.
            (state, is_late) = self.ready.wait_timeout(state, self.idle);
            state.waiting -= 1;
        }
    }
}

/// Runs a job. A panic gets no further: that of the user's closure is caught by the job itself.
fn run(job: Box<dyn Job>) {
    contained(|| job.run());
}

fn refuse(job: Box<dyn Job>, error: Error) {
    contained(|| job.refuse(error));
}

/// Calls code of users. A panic in it, for instance of a waker, ends neither a worker nor the close of the database.
fn contained(call: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
        // Its drop may panic, too.
        mem::forget(panic);
    }
}
