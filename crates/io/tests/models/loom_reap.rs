//! Models of the completions of a ring: every thread gets its own result, and none waits for ever. A lost wake-up shows
//! as a deadlock.

use foreshore_io::model::{Completions, Places};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Condvar, LockRank, Mutex, Parker};
use std::sync::Arc;

/// A kernel that completes an operation when it is issued, or when a thread that plays the device says so.
struct Kernel {
    queue: Mutex<Queue>,
    moved: Condvar,
    is_instant: bool,
}

#[derive(Default)]
struct Queue {
    issued: Vec<usize>,
    completed: Vec<(usize, i32)>,
}

impl Queue {
    /// Completes one operation, the last one first.
    fn complete(&mut self) -> bool {
        let Some(place) = self.issued.pop() else { return false };
        self.completed.push((place, place as i32 + 10));
        true
    }
}

impl Kernel {
    fn new(is_instant: bool) -> Self {
        Self { queue: Mutex::new(LockRank::Parker, Queue::default()), moved: Condvar::new(), is_instant }
    }

    fn issue(&self, place: usize) {
        let mut queue = self.queue.lock();
        queue.issued.push(place);
        if self.is_instant {
            queue.complete();
        }
        drop(queue);
        self.moved.notify_all();
    }

    /// The device: completes `count` operations, one at a time.
    fn complete(&self, count: usize) {
        for _ in 0..count {
            let mut queue = self.queue.lock();
            while !queue.complete() {
                queue = self.moved.wait(queue);
            }
            drop(queue);
            self.moved.notify_all();
        }
    }
}

impl Completions for Kernel {
    fn wait(&self) {
        let mut queue = self.queue.lock();
        while queue.completed.is_empty() {
            queue = self.moved.wait(queue);
        }
    }

    fn take(&self, each: &mut dyn FnMut(usize, i32)) {
        for (place, result) in self.queue.lock().completed.drain(..) {
            each(place, result);
        }
    }
}

struct Ring {
    places: Places,
    kernel: Kernel,
}

impl Ring {
    fn new(places: usize, is_instant: bool) -> Arc<Self> {
        Arc::new(Self { places: Places::new(places), kernel: Kernel::new(is_instant) })
    }

    fn operate(&self) {
        let parker = Parker::new();
        let place = self.places.enter(&parker);
        self.kernel.issue(place);
        let result = self.places.wait(place, &parker, &self.kernel);
        assert_eq!(result, place as i32 + 10, "the result of another operation");
    }

    /// An operation that the kernel refuses.
    fn refused(&self) {
        let parker = Parker::new();
        let place = self.places.enter(&parker);
        self.places.cancel(place);
    }
}

fn run(actors: Vec<Actor>) {
    let threads: Vec<_> = actors.into_iter().map(thread::spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

type Actor = Box<dyn FnOnce() + Send>;

fn operation(ring: &Arc<Ring>) -> Actor {
    let ring = ring.clone();
    Box::new(move || ring.operate())
}

/// Threads with one operation each that completes when it is issued.
fn instant(threads: usize, places: usize) {
    let ring = Ring::new(places, true);
    run((0..threads).map(|_| operation(&ring)).collect());
}

/// Two threads, and a device that completes their operations at any time.
fn with_a_device() {
    let ring = Ring::new(2, false);
    let device = ring.clone();
    run(vec![operation(&ring), operation(&ring), Box::new(move || device.kernel.complete(2))]);
}

#[test]
fn operations_complete_at_once() {
    check(|| instant(3, 3));
}

#[test]
fn operations_complete_one_by_one() {
    check(with_a_device);
}

#[test]
fn two_threads_and_one_place() {
    check(|| instant(2, 1));
}

#[test]
fn a_refused_operation_takes_no_wake_up_along() {
    check(|| {
        let ring = Ring::new(2, true);
        let refused = ring.clone();
        run(vec![operation(&ring), operation(&ring), Box::new(move || refused.refused())]);
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn owners_must_be_woken() {
    mutated("reap: owners are not woken", with_a_device);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_role_must_be_handed_on() {
    mutated("reap: no hand-off", with_a_device);
}
