//! Models of a mutex with a favourite: one thread at a time has the value, whichever of them is the favourite.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::thread;
use foreshore_sync::{BiasedMutex, LockRank};
use std::sync::Arc;

/// The favourite locks the mutex twice, beside visitors that do so once. The second visit may end the favour. loom
/// compares their accesses to the value.
fn favourite_and_visitors(visitors: usize) {
    let mutex = Arc::new(BiasedMutex::new(LockRank::Leaf, 0));
    *mutex.lock_in_model(Some(0)) += 1;
    let add = |thread: Option<usize>, times: usize| {
        let mutex = mutex.clone();
        thread::spawn(move || (0..times).for_each(|_| *mutex.lock_in_model(thread) += 1))
    };
    let threads: Vec<_> = std::iter::once(add(Some(0), 2)).chain((1..=visitors).map(|n| add(Some(n), 1))).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    assert_eq!(*mutex.lock_in_model(Some(0)), 3 + visitors);
}

/// Two threads that both lock the mutex first.
fn first_locks() {
    let mutex = Arc::new(BiasedMutex::new(LockRank::Leaf, 0));
    let threads = [0, 1].map(|number| {
        let mutex = mutex.clone();
        thread::spawn(move || (0..2).for_each(|_| *mutex.lock_in_model(Some(number)) += 1))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    assert_eq!(*mutex.lock_in_model(None), 4);
}

#[test]
fn a_visitor_and_the_favourite_exclude_each_other() {
    check(|| favourite_and_visitors(1));
}

#[test]
fn two_visitors_and_the_favourite_exclude_each_other() {
    check(|| favourite_and_visitors(2));
}

#[test]
fn two_first_locks_exclude_each_other() {
    check(first_locks);
}

#[test]
#[should_panic]
fn a_favourite_without_a_fence_is_noticed() {
    mutated("biased mutex: no fence behind the turn", || favourite_and_visitors(1));
}

#[test]
#[should_panic]
fn a_visitor_without_a_fence_is_noticed() {
    mutated("biased mutex: no fence behind the visit", || favourite_and_visitors(1));
}

#[test]
#[should_panic]
fn a_favourite_that_does_not_look_again_is_noticed() {
    mutated("biased mutex: a favourite does not look again", || favourite_and_visitors(1));
}

#[test]
#[should_panic]
fn a_visitor_that_does_not_wait_is_noticed() {
    mutated("biased mutex: a visitor does not wait", || favourite_and_visitors(1));
}

#[test]
#[should_panic]
fn a_favourite_that_leaves_without_a_release_is_noticed() {
    mutated("biased mutex: a favourite leaves without a release", || favourite_and_visitors(1));
}

#[test]
#[should_panic]
fn a_visitor_that_leaves_without_a_release_is_noticed() {
    mutated("biased mutex: a visitor leaves without a release", || favourite_and_visitors(1));
}
