//! A crew: threads that do the tasks of a batch side by side, for whoever brings one.
//!
//! A device is busy only if enough is asked of it at once, and a thread asks for one thing at a time. So the tasks of a batch
//! lie in one queue, and the hands of the crew take them from there, together with the thread that has brought them: a
//! batch ends even where no thread could be started.
//!
//! Why a batch has ended when [`Crew::run`] returns, all under one lock: a task counts as done after it was done, by
//! whoever did it, and who counts the last one of a batch wakes those who wait for batches.

use foreshore_sync::model::mutant;
use foreshore_sync::{Condvar, Joiner, LockRank, Mutex, MutexGuard, spawn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::{fmt, io};

/// How a task is done.
type Act<T> = fn(T) -> io::Result<()>;

/// Threads that do tasks. They start with the first batch of more than one task, and end with this value.
pub struct Crew<T> {
    shared: Arc<Shared<T>>,
    /// Threads at most.
    most: usize,
    hands: Mutex<Vec<Joiner>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    /// There are tasks, or there will be none.
    work: Condvar,
    /// A batch has ended.
    ended: Condvar,
    act: Act<T>,
}

struct State<T> {
    tasks: VecDeque<(u64, T)>,
    /// Batches that have not ended, or whose owner has not seen it.
    batches: Vec<Batch>,
    /// Number of the next batch.
    next: u64,
    is_over: bool,
}

struct Batch {
    number: u64,
    /// Tasks that are not done.
    left: usize,
    /// Of a task that failed.
    error: Option<io::Error>,
}

impl<T: Send + 'static> Crew<T> {
    /// A crew of up to `most` threads beside those that bring batches.
    pub fn new(most: usize, act: Act<T>) -> Self {
        let state = State { tasks: VecDeque::new(), batches: Vec::new(), next: 0, is_over: false };
        let state = Mutex::new(LockRank::Leaf, state);
        let shared = Shared { state, work: Condvar::new(), ended: Condvar::new(), act };
        Self { shared: Arc::new(shared), most, hands: Mutex::new(LockRank::Leaf, Vec::new()) }
    }

    /// Does all tasks, in any order and several at once, and returns when nobody is at any of them any more.
    ///
    /// # Errors
    /// One of those that the tasks gave; the others were done all the same.
    pub fn run(&self, tasks: impl ExactSizeIterator<Item = T>) -> io::Result<()> {
        let count = tasks.len();
        if count > 1 {
            self.start();
        }
        let mut state = self.shared.state.lock();
        let number = state.next;
        state.next += 1;
        state.batches.push(Batch { number, left: count, error: None });
        state.tasks.extend(tasks.map(|task| (number, task)));
        loop {
            if let Some(error) = state.end(number) {
                return error.map_or(Ok(()), Err);
            }
            state = match state.tasks.pop_front() {
                // WAIT: help - does a task, of this batch or another.
                Some(task) => self.shared.do_one(state, task),
                // WAIT: park - until the hands have done theirs.
                None => self.shared.ended.wait(state),
            };
        }
    }

    /// Starts the threads, unless they run. Where one cannot be started there are fewer.
    fn start(&self) {
        let mut hands = self.hands.lock();
        while hands.len() < self.most {
            let shared = self.shared.clone();
            let Ok(joiner) = spawn("foreshore-io", move || shared.serve()) else { return };
            hands.push(joiner);
        }
    }
}

impl<T> Shared<T> {
    /// Does tasks until there will be none.
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            state = match state.tasks.pop_front() {
                Some(task) => self.do_one(state, task),
                None if state.is_over => return,
                // WAIT: park - a hand without a task.
                None => self.work.wait(state),
            };
        }
    }

    fn do_one<'a>(&'a self, mut state: MutexGuard<'a, State<T>>, (number, task): (u64, T)) -> MutexGuard<'a, State<T>> {
        let early = mutant("crew: a task counts as done when it is taken");
        if early {
            self.count(&mut state, number, Ok(()));
        }
        let more = !state.tasks.is_empty();
        drop(state);
        // Who has a task wakes one for the next. So nobody wakes for what is gone by then, nor to a lock that is held.
        if more {
            self.work.notify_one();
        }
        let done = (self.act)(task);
        state = self.state.lock();
        if !early {
            self.count(&mut state, number, done);
        }
        state
    }

    fn count(&self, state: &mut State<T>, number: u64, done: io::Result<()>) {
        let batch = state.batches.iter_mut().find(|batch| batch.number == number).expect("a batch with a task left");
        batch.left -= 1;
        if let Err(error) = done {
            batch.error.get_or_insert(error);
        }
        if batch.left == 0 && !mutant("crew: the end of a batch is kept quiet") {
            self.ended.notify_all();
        }
    }
}

impl<T> State<T> {
    /// Takes a batch away if it has ended, and says how.
    fn end(&mut self, number: u64) -> Option<Option<io::Error>> {
        let at = self.batches.iter().position(|batch| batch.number == number && batch.left == 0)?;
        Some(self.batches.swap_remove(at).error)
    }
}

impl<T> Drop for Crew<T> {
    fn drop(&mut self) {
        self.shared.state.lock().is_over = true;
        self.shared.work.notify_all();
        // WAIT: park - until the hands, which have nothing to do, have ended.
        self.hands.lock().drain(..).for_each(|joiner| joiner());
    }
}

impl<T> fmt::Debug for Crew<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn tasks_are_done_at_once_and_all_of_them_whatever_fails() {
        static TOGETHER: Barrier = Barrier::new(4);
        // Returns only if four tasks are under way at the same time.
        fn act(task: i32) -> io::Result<()> {
            TOGETHER.wait();
            if task == 3 { Err(io::Error::other("three")) } else { Ok(()) }
        }
        let crew = Crew::new(3, act);
        assert_eq!(crew.run(0..8).unwrap_err().to_string(), "three");
        crew.run(4..12).unwrap();
        crew.run(0..0).unwrap();
        assert!(crew.shared.state.lock().batches.is_empty());
    }

    #[test]
    fn without_hands_the_owner_does_everything() {
        static SUM: std::sync::Mutex<i32> = std::sync::Mutex::new(0);
        fn act(task: i32) -> io::Result<()> {
            *SUM.lock().unwrap() += task;
            Ok(())
        }
        Crew::new(0, act).run(0..10).unwrap();
        assert_eq!(*SUM.lock().unwrap(), 45);
    }
}
