//! The locks of the log buffers in larger numbers than loom can explore, under random schedules. A lost wake-up shows
//! as a deadlock.

use foreshore_classics::log_buffers::{McsLock, Mutex8};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{EventCount, ParkTable, Signal};
use std::sync::Arc;
use std::time::Duration;

fn run<S: Send + Sync + 'static>(shared: &Arc<S>, actors: Vec<Box<dyn FnOnce(&S) + Send>>) {
    let spawn = |actor: Box<dyn FnOnce(&S) + Send>| {
        let shared = shared.clone();
        thread::spawn(move || actor(&shared))
    };
    let threads: Vec<_> = actors.into_iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

/// A queue of places for jobs. Givers wait in the table for a place, takers at the event count for a job. A one-byte
/// lock guards the numbers.
#[derive(Default)]
struct Jobs {
    lock: Mutex8,
    table: ParkTable,
    events: EventCount,
    waiting: AtomicU64,
    taken: AtomicU64,
}

const PLACES: u64 = 1;
const ROOM: u64 = 1;

impl Jobs {
    /// Changes the number of jobs that wait, if `change` has an answer.
    fn edit(&self, change: impl Fn(u64) -> Option<u64>) -> bool {
        self.lock.lock(&self.table);
        let before = self.waiting.load(Ordering::Relaxed);
        let after = change(before);
        // In two steps on purpose: another holder in between would lose a job.
        self.waiting.store(after.unwrap_or(before), Ordering::Relaxed);
        self.lock.unlock(&self.table);
        after.is_some()
    }

    fn give(&self) {
        while !self.edit(|jobs| (jobs < PLACES).then_some(jobs + 1)) {
            let is_full = || self.waiting.load(Ordering::Acquire) >= PLACES;
            while is_full() {
                self.table.park(ROOM, None, is_full);
            }
        }
        self.events.notify_one();
    }

    fn take(&self, patience: Option<Duration>) {
        loop {
            let key = self.events.prepare();
            if self.edit(|jobs| jobs.checked_sub(1)) {
                self.events.cancel(key);
                break;
            }
            self.events.wait(key, patience);
        }
        self.taken.fetch_add(1, Ordering::Relaxed);
        self.table.unpark_all(ROOM, 0);
    }
}

fn jobs() {
    give_and_take(None);
}

fn give_and_take(patience: Option<Duration>) {
    let jobs = Arc::new(Jobs::default());
    let give = || -> Box<dyn FnOnce(&Jobs) + Send> { Box::new(|jobs| (0..3).for_each(|_| jobs.give())) };
    let take =
        |patience| -> Box<dyn FnOnce(&Jobs) + Send> { Box::new(move |jobs| (0..3).for_each(|_| jobs.take(patience))) };
    run(&jobs, vec![give(), take(None), give(), take(patience)]);
    assert_eq!(jobs.taken.load(Ordering::Relaxed), 6);
    assert_eq!(jobs.waiting.load(Ordering::Relaxed), 0, "a job was lost or done twice");
}

#[test]
fn every_job_is_given_and_taken_once() {
    shuttle(10_000, jobs);
    shuttle(5_000, || give_and_take(Some(Duration::from_millis(1))));
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_jobs_need_the_memory_of_the_queue() {
    shuttle_mutated("mutex8: forget the queue", 20_000, jobs);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_jobs_need_the_look_before_the_park() {
    shuttle_mutated("mutex8: park unseen", 20_000, jobs);
}

/// Five threads take a queue lock; one leaves the unlocking to a sixth.
fn queue_lock() {
    struct Place {
        lock: McsLock,
        sum: AtomicU64,
        left: AtomicBool,
        signal: Signal,
    }
    impl Place {
        fn add(&self) {
            self.sum.store(self.sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
    let lock = McsLock::new(5);
    let place = Arc::new(Place { lock, sum: AtomicU64::new(0), left: AtomicBool::new(false), signal: Signal::new() });
    let mut actors: Vec<Box<dyn FnOnce(&Place) + Send>> = Vec::new();
    for node in 0..4 {
        actors.push(Box::new(move |place| {
            for _ in 0..3 {
                place.lock.lock(node);
                place.add();
                place.lock.unlock(node);
            }
        }));
    }
    actors.push(Box::new(|place| {
        place.lock.lock(4);
        place.add();
        place.left.store(true, Ordering::Release);
        place.signal.notify();
    }));
    actors.push(Box::new(|place| {
        while !place.left.load(Ordering::Acquire) {
            place.signal.wait(None);
        }
        place.add();
        place.lock.unlock(4);
    }));
    run(&place, actors);
    assert_eq!(place.sum.load(Ordering::Relaxed), 4 * 3 + 2);
}

#[test]
fn the_queue_lock_excludes_and_passes_on() {
    shuttle(5_000, queue_lock);
}
