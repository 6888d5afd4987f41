//! Models of the queue lock. The actors share std's `Arc`: dropping loom's is a step of the model.

use foreshore_classics::log_buffers::McsLock;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

struct Place {
    lock: McsLock,
    plain: UnsafeCell<u64>,
}

// SAFETY: `plain` is touched only under the lock; that this suffices is what the models check.
unsafe impl Sync for Place {}

impl Place {
    fn write(&self, node: usize) {
        self.lock.lock(node);
        self.bump();
        self.lock.unlock(node);
    }

    fn bump(&self) {
        // SAFETY: the lock is held, which is what loom checks here.
        self.plain.with_mut(|plain| unsafe { *plain += 1 });
    }
}

/// Runs one thread per actor, each with the number of its own node.
fn run(actors: &[fn(&Arc<Place>, usize)]) {
    let place = Arc::new(Place { lock: McsLock::new(actors.len()), plain: UnsafeCell::new(0) });
    let spawn = |(node, &actor): (usize, &fn(&Arc<Place>, usize))| {
        let place = place.clone();
        thread::spawn(move || actor(&place, node))
    };
    let threads: Vec<_> = actors.iter().enumerate().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

fn write(place: &Arc<Place>, node: usize) {
    place.write(node);
}

fn write_twice(place: &Arc<Place>, node: usize) {
    place.write(node);
    place.write(node);
}

fn leave_to_another(place: &Arc<Place>, node: usize) {
    place.lock.lock(node);
    place.bump();
    let other = place.clone();
    let unlocker = thread::spawn(move || {
        other.bump();
        other.lock.unlock(node);
    });
    unlocker.join().expect("the unlocker ends");
}

fn two() {
    run(&[write, write]);
}

#[test]
fn all_lockers_get_in() {
    check(two);
    check(|| run(&[write_twice, write]));
}

#[test]
fn another_thread_may_unlock() {
    check(|| run(&[leave_to_another, write]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_needs_the_release() {
    mutated("mcs: relaxed hand-off", two);
}
