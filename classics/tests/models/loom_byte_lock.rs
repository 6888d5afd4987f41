//! Models of the one-byte lock. A lost wake-up shows as a deadlock. The actors share std's `Arc`: dropping
//! loom's is a step of the model, and a deadlock found inside a destructor aborts.

use foreshore_classics::log_buffers::Mutex8;
use foreshore_sync::ParkTable;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

struct Place {
    lock: Mutex8,
    table: ParkTable,
    plain: UnsafeCell<u64>,
}

// SAFETY: `plain` is touched only under the lock; that this suffices is what the models check.
unsafe impl Sync for Place {}

fn run(actors: &[fn(&Arc<Place>)]) {
    let place = Arc::new(Place { lock: Mutex8::default(), table: ParkTable::new(), plain: UnsafeCell::new(0) });
    let spawn = |&actor: &fn(&Arc<Place>)| {
        let place = place.clone();
        thread::spawn(move || actor(&place))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

fn bump(place: &Place) {
    // SAFETY: the lock is held, which is what loom checks here.
    place.plain.with_mut(|plain| unsafe { *plain += 1 });
}

fn write(place: &Arc<Place>) {
    place.lock.lock(&place.table);
    bump(place);
    place.lock.unlock(&place.table);
}

fn leave_to_another(place: &Arc<Place>) {
    place.lock.lock(&place.table);
    bump(place);
    let other = place.clone();
    let unlocker = thread::spawn(move || {
        bump(&other);
        other.lock.unlock(&other.table);
    });
    unlocker.join().expect("the unlocker ends");
}

fn two() {
    run(&[write, write]);
}

fn three() {
    run(&[write, write, write]);
}

#[test]
fn parked_lockers_all_get_in() {
    check(two);
    check(three);
}

#[test]
fn another_thread_may_unlock() {
    check(|| run(&[leave_to_another, write]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_model_needs_the_release() {
    mutated("mutex8: relaxed release", two);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_look_before_the_park() {
    mutated("mutex8: park unseen", two);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_memory_of_the_queue() {
    mutated("mutex8: forget the queue", three);
}
