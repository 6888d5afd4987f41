//! A walk that passes waiters at different times may see a cycle that never stood: no request is refused for it. Nor
//! is a request that a victim of a cycle makes after its wait has ended by itself.

use foreshore_base::{Error, TableId};
use foreshore_lock::{LockManager, LockOptions, TableMode};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::pause;
use foreshore_sync::primitive::thread;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 200;
/// What two transactions have shared, and a third one wants for itself.
const WANTED: TableId = TableId(1);
/// What the third one has.
const HELD: TableId = TableId(2);

/// Each time that a walk of the third transaction goes on to one of the two, that one ends, and its slot's next
/// transaction waits for the third. So the walk comes back to where it began, though nothing of the cycle's first edge
/// is left. This happens in the first walk, and in the one that confirms.
fn holders_that_end_when_they_are_passed() {
    let locks = Arc::new(LockManager::new(LockOptions { max_owners: 4, share_slots: 64, ..LockOptions::default() }));
    let lock = |owner: &mut _, table, mode| locks.lock_table(owner, table, mode, Duration::MAX).map(drop);
    let mut third = locks.lease("third").expect("a slot");
    lock(&mut third, HELD, TableMode::Exclusive).expect("free");
    let mut holders: Vec<_> = ["first", "second"].map(|label| locks.lease(label).expect("a slot")).into();
    holders.iter_mut().for_each(|holder| lock(holder, WANTED, TableMode::Shared).expect("free"));

    let (walker, turned) = (thread::current().id(), Rc::new(Cell::new(0)));
    let (theirs, count) = (locks.clone(), turned.clone());
    pause::set("lock: a walk goes on", move || {
        if thread::current().id() != walker {
            return;
        }
        // The one that the walk has met last, to which it goes first.
        let Some(mut owner) = holders.pop() else { return };
        let (locks, before) = (theirs.clone(), theirs.stats().waits);
        thread::spawn(move || {
            locks.finish(&mut owner, None);
            owner.begin("next");
            let granted = locks.lock_table(&mut owner, HELD, TableMode::Shared, Duration::MAX);
            granted.expect("the third one ends");
            locks.finish(&mut owner, None);
        });
        while theirs.stats().waits == before {
            thread::yield_now();
        }
        count.set(count.get() + 1);
    });
    lock(&mut third, WANTED, TableMode::Exclusive).expect("no cycle has stood");
    assert_eq!(turned.get(), 2, "both were met by a walk");
    locks.finish(&mut third, None);
}

#[test]
fn a_cycle_that_never_existed_refuses_no_waiter() {
    shuttle(ITERATIONS, holders_that_end_when_they_are_passed);
}

#[test]
#[should_panic(expected = "no cycle has stood")]
fn a_cycle_is_read_twice_in_the_same_terms() {
    shuttle_mutated("deadlock: a cycle is read once", ITERATIONS, holders_that_end_when_they_are_passed);
}

/// The victim of a cycle runs out of time between its choice and its verdict, rolls back, and its slot's next
/// transaction waits for a third one, which ends.
fn a_victim_that_has_given_up() {
    let locks = Arc::new(LockManager::new(LockOptions { max_owners: 4, share_slots: 64, ..LockOptions::default() }));
    const OF_THIRD: TableId = TableId(3);
    let lock = |owner: &mut _, table, timeout| locks.lock_table(owner, table, TableMode::Exclusive, timeout);
    let [mut closer, mut victim, mut third] =
        ["closer", "victim", "third"].map(|label| locks.lease(label).expect("a slot"));
    lock(&mut closer, HELD, Duration::MAX).expect("free");
    lock(&mut victim, WANTED, Duration::MAX).expect("free");
    lock(&mut third, OF_THIRD, Duration::MAX).expect("free");
    closer.set_undo_bytes(5);

    let theirs = locks.clone();
    let member = thread::spawn(move || {
        let first = theirs.lock_table(&mut victim, HELD, TableMode::Exclusive, Duration::from_micros(300));
        theirs.finish(&mut victim, None);
        if !matches!(first, Err(Error::LockTimeout { .. })) {
            return;
        }
        victim.begin("next");
        let second = theirs.lock_table(&mut victim, OF_THIRD, TableMode::Exclusive, Duration::MAX);
        second.expect("this wait closes no cycle");
        theirs.finish(&mut victim, None);
    });
    while locks.stats().waits == 0 {
        thread::yield_now();
    }
    pause::set("lock: a victim is chosen", || (0..20).for_each(|_| thread::yield_now()));
    // Unless the victim was faster.
    let granted = lock(&mut closer, WANTED, Duration::MAX);
    pause::set("nowhere", || ());
    granted.expect("the victim ends");
    locks.finish(&mut closer, None);
    locks.finish(&mut third, None);
    member.join().expect("no panic");
}

#[test]
fn a_verdict_meets_the_wait_that_it_was_made_for() {
    shuttle(ITERATIONS, a_victim_that_has_given_up);
}

#[test]
#[should_panic(expected = "this wait closes no cycle")]
fn a_verdict_names_a_wait() {
    shuttle_mutated("deadlock: a verdict meets a later wait", ITERATIONS, a_victim_that_has_given_up);
}
