//! A pool of worker threads that do the tasks of a batch together with the caller.
//!
//! A device is busy only if it has several requests at once, and a thread issues one at a time. So the tasks of a batch
//! lie in one queue. The workers and the caller take them from there, so a batch ends even if no thread could be
//! started.
//!
//! **Invariant:** a batch has ended when [`WorkerPool::run`] returns. Under one lock, a task counts as done only after
//! it was done, and the thread that counts the last one of a batch wakes the callers that wait.

use foreshore_sync::model::mutant;
use foreshore_sync::{Condvar, Joiner, LockRank, Mutex, MutexGuard, spawn};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// Worker threads. They start with the first batch of more than one task, and end with this value.
pub struct WorkerPool<T> {
    shared: Arc<Shared<T>>,
    /// The most workers.
    most: usize,
    workers: Mutex<Vec<Joiner>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Signalled when there are tasks, or will be none any more.
    work: Condvar,
    /// Signalled when a batch has ended.
    ended: Condvar,
    act: fn(T),
}

struct State<T> {
    /// Tasks, each with the number of its batch.
    tasks: VecDeque<(u64, T)>,
    /// Tasks that are not done, by the number of their batch, until its caller returns.
    left: BTreeMap<u64, usize>,
    /// Number of the next batch.
    next: u64,
    is_over: bool,
}

impl<T: Send + 'static> WorkerPool<T> {
    /// Creates a pool of up to `most` workers beside the callers. `act` does a task.
    pub fn new(most: usize, act: fn(T)) -> Self {
        let state = State { tasks: VecDeque::new(), left: BTreeMap::new(), next: 0, is_over: false };
        let state = Mutex::new(LockRank::Leaf, state);
        let shared = Shared { state, work: Condvar::new(), ended: Condvar::new(), act };
        Self { shared: Arc::new(shared), most, workers: Mutex::new(LockRank::Leaf, Vec::new()) }
    }

    /// Does all tasks, in any order and several at once. Returns when all are done.
    pub fn run(&self, tasks: impl ExactSizeIterator<Item = T>) {
        let count = tasks.len();
        if count > 1 {
            self.start();
        }
        let mut state = self.shared.state.lock();
        let number = state.next;
        state.next += 1;
        state.left.insert(number, count);
        state.tasks.extend(tasks.map(|task| (number, task)));
        while state.left[&number] > 0 {
            state = match state.tasks.pop_front() {
                // WAIT: help - does a task, of this batch or another.
                Some(task) => self.shared.do_one(state, task),
                // WAIT: park - until the workers have done theirs.
                None => self.shared.ended.wait(state),
            };
        }
        state.left.remove(&number);
    }

    /// Starts the workers, unless they run. If a thread cannot be started, there are fewer workers.
    fn start(&self) {
        let mut workers = self.workers.lock();
        while workers.len() < self.most {
            let shared = self.shared.clone();
            let Ok(joiner) = spawn("foreshore-io", move || shared.serve()) else { return };
            workers.push(joiner);
        }
    }
}

impl<T> Shared<T> {
    /// Does tasks until the pool ends.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            state = match state.tasks.pop_front() {
                Some(task) => self.do_one(state, task),
                None if state.is_over => return,
                // WAIT: park - a worker without a task.
                None => self.work.wait(state),
            };
        }
    }

    fn do_one<'a>(&'a self, mut state: MutexGuard<'a, State<T>>, (number, task): (u64, T)) -> MutexGuard<'a, State<T>> {
        let early = mutant("workers: a task counts as done when it is taken");
        if early {
            self.count(&mut state, number);
        }
        let more = !state.tasks.is_empty();
        drop(state);
        // A thread that took a task wakes one worker for the next task, after it has released the lock. So few workers
        // wake in vain.
        if more {
            self.work.notify_one();
        }
        (self.act)(task);
        state = self.state.lock();
        if !early {
            self.count(&mut state, number);
        }
        state
    }

    fn count(&self, state: &mut State<T>, number: u64) {
        let left = state.left.get_mut(&number).expect("a batch with a task left");
        *left -= 1;
        if *left == 0 && !mutant("workers: the end of a batch is kept quiet") {
            self.ended.notify_all();
        }
    }
}

impl<T> Drop for WorkerPool<T> {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.work.notify_all();
        // WAIT: park - until the workers, which have nothing to do, have ended.
        self.workers.lock().drain(..).for_each(|joiner| joiner());
    }
}

impl<T> fmt::Debug for WorkerPool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use foreshore_sync::primitive::atomic::{AtomicI32, Ordering};
    use std::sync::Barrier;

    #[test]
    fn tasks_are_done_at_once_and_all_of_them() {
        static TOGETHER: Barrier = Barrier::new(4);
        static SUM: AtomicI32 = AtomicI32::new(0);
        // Returns only if four tasks are under way at the same time.
        fn act(task: i32) {
            TOGETHER.wait();
            SUM.fetch_add(task, Ordering::Relaxed);
        }
        let pool = WorkerPool::new(3, act);
        pool.run(0..8);
        assert_eq!(SUM.load(Ordering::Relaxed), 28);
        pool.run(4..12);
        assert_eq!(SUM.load(Ordering::Relaxed), 88);
        pool.run(0..0);
        assert!(pool.shared.state.lock().left.is_empty());
    }

    #[test]
    fn without_workers_the_caller_does_everything() {
        static SUM: AtomicI32 = AtomicI32::new(0);
        fn act(task: i32) {
            SUM.fetch_add(task, Ordering::Relaxed);
        }
        WorkerPool::new(0, act).run(0..10);
        assert_eq!(SUM.load(Ordering::Relaxed), 45);
    }
}
