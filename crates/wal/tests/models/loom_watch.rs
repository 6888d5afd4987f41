//! Model of the growth watch: an owner that sleeps until its mark is woken. A lost wake-up shows as a deadlock.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread;
use foreshore_wal::model::GrowthWatch;
use std::sync::Arc;

/// Two writers of one byte each, and an owner that sets a mark for each byte.
fn grow() {
    let watch = Arc::new(GrowthWatch::default());
    let write = || {
        let watch = Arc::clone(&watch);
        thread::spawn(move || watch.add(1))
    };
    let writers = [write(), write()];
    let mut seen = 0;
    while seen < 2 {
        if watch.set_mark(seen + 1) {
            watch.signal().wait(None);
        }
        seen = watch.written();
    }
    writers.into_iter().for_each(|writer| writer.join().expect("a writer ends"));
}

#[test]
fn the_owner_is_woken_at_its_mark() {
    check(grow);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_owner_that_does_not_check_behind_its_mark_is_forgotten() {
    mutated("watch: the mark is set without a check", grow);
}
