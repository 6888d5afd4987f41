//! Models of the queue lock, in both modes. A lost wake-up shows as a deadlock, hence a separate test binary. The
//! actors share std's `Arc`: dropping loom's is a step of the model, and a deadlock found inside a destructor aborts.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use foreshore_sync::{McsLock, WaitMode};
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
fn run(mode: WaitMode, actors: &[fn(&Arc<Place>, usize)]) {
    let place = Arc::new(Place { lock: McsLock::new(actors.len(), mode), plain: UnsafeCell::new(0) });
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

fn parked_two() {
    run(WaitMode::Park, &[write, write]);
}

fn spinning_two() {
    run(WaitMode::Spin, &[write, write]);
}

#[test]
fn parked_lockers_all_get_in() {
    check(parked_two);
    check(|| run(WaitMode::Park, &[write_twice, write]));
    check(|| run(WaitMode::Park, &[write, write, write]));
}

#[test]
fn spinning_lockers_all_get_in() {
    check(spinning_two);
    check(|| run(WaitMode::Spin, &[write_twice, write]));
}

#[test]
fn another_thread_may_unlock() {
    check(|| run(WaitMode::Park, &[leave_to_another, write]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_parking_model_needs_the_release() {
    mutated("mcs: relaxed hand-off", parked_two);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_spinning_model_needs_the_release() {
    mutated("mcs: relaxed hand-off", spinning_two);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_look_of_the_link() {
    mutated("mcs: link without a look", parked_two);
}
