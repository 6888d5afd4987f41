//! Model of the queue of leaves: the purge does not sleep over a leaf that is queued.
#![allow(dead_code, unreachable_pub, reason = "the part is taken as a whole")]

#[path = "../../src/queue.rs"]
mod queue;

use foreshore_base::{PageId, TableId};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread;
use queue::LeafQueue;
use std::sync::Arc;

/// A leaf is queued while the purge goes to sleep.
fn a_leaf_beside_the_last_look() {
    let queue = Arc::new(LeafQueue::new());
    queue.wake();
    let adder = thread::spawn({
        let queue = queue.clone();
        move || queue.add(TableId(1), PageId(1), Vec::new)
    });
    let purge = thread::spawn({
        let queue = queue.clone();
        move || {
            let mut taken = 0;
            while taken == 0 {
                queue.wake();
                queue.take(usize::MAX, |_| taken += 1);
                if taken == 0 && queue.sleep() {
                    // Without an end if the signal is missing: loom calls that a deadlock.
                    queue.signal().wait(None);
                }
            }
        }
    });
    adder.join().expect("no panic");
    purge.join().expect("no panic");
}

#[test]
fn the_purge_does_not_sleep_over_a_leaf() {
    check(a_leaf_beside_the_last_look);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_of_the_adder_it_does() {
    mutated("queue: no fence before the look at the purge", a_leaf_beside_the_last_look);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_of_the_purge_it_does() {
    mutated("queue: no fence before the last look", a_leaf_beside_the_last_look);
}
