//! Models of a value that its owner uses while another thread revokes it, again and again.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::primitive::{UnsafeCell, thread};
use foreshore_sync::{Custody, LockRank, Revocable, Revoked};
use std::sync::Arc;

/// Stands for a transaction: loom notices if two threads use it at once.
struct Work(UnsafeCell<u32>);

// SAFETY: one thread at a time uses the value, which is what the models check.
unsafe impl Send for Work {}
// SAFETY: as above.
unsafe impl Sync for Work {}

struct Value {
    work: Arc<Work>,
    ends: Arc<AtomicUsize>,
}

impl Value {
    fn work(&self) {
        // SAFETY: only this thread uses the value, which is what the models check.
        self.work.0.with_mut(|work| unsafe { *work += 1 });
        thread::yield_now();
    }

    fn end(self) {
        self.work();
        // ORDERING: Relaxed, read after all threads have ended.
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

type Shared = Arc<Revocable<Value, &'static str>>;

/// Two uses and the end. `fails`: the second use ends the value. Returns whether the owner was told that it is gone.
fn owner(shared: &Shared, fails: bool) -> bool {
    for piece in 0..2 {
        let mut state = shared.take();
        match std::mem::replace(&mut *state, Custody::Over) {
            Custody::Live(value) if fails && piece == 1 => {
                value.end();
                *state = Custody::Failed("by its work");
            }
            Custody::Live(value) => {
                value.work();
                *state = Custody::Live(value);
            }
            failed @ Custody::Failed(_) => *state = failed,
            Custody::Busy | Custody::Over => panic!("the owner does one thing at a time"),
        }
    }
    match shared.replace(Custody::Over) {
        Custody::Live(value) => {
            value.end();
            false
        }
        Custody::Failed(why) => why == "too old",
        Custody::Busy | Custody::Over => panic!("the owner ends it once"),
    }
}

/// Revokes the value. Returns whether it succeeded.
fn revoker(shared: &Shared) -> bool {
    for _ in 0..2 {
        match shared.revoke(|_| "too old") {
            Revoked::Idle(value) => {
                value.end();
                return true;
            }
            Revoked::Busy => thread::yield_now(),
            Revoked::Ended => return false,
        }
    }
    false
}

fn both(fails: bool) {
    let (work, ends) = (Arc::new(Work(UnsafeCell::new(0))), Arc::new(AtomicUsize::new(0)));
    let value = Value { work: work.clone(), ends: ends.clone() };
    let shared: Shared = Arc::new(Revocable::new(LockRank::Leaf, Custody::Live(value)));
    let (theirs, ours) = (shared.clone(), shared);
    let revoker = thread::spawn(move || revoker(&theirs));
    let owner = thread::spawn(move || owner(&ours, fails));
    let (was_revoked, was_told) = (revoker.join().expect("it ends"), owner.join().expect("it ends"));
    // ORDERING: Relaxed, after all threads have ended.
    assert_eq!(ends.load(Ordering::Relaxed), 1, "a value is ended once");
    assert_eq!(was_revoked, was_told, "the owner is told exactly if the value was revoked");
}

#[test]
fn a_value_is_ended_once_and_its_owner_is_told() {
    check(|| both(false));
    check(|| both(true));
}

#[test]
#[should_panic(expected = "it was live")]
fn a_value_is_looked_at_and_taken_in_one_step() {
    mutated("revocable: looks and takes in two steps", || both(false));
}

#[test]
#[should_panic(expected = "the owner")]
fn what_has_become_of_a_value_is_put_back() {
    mutated("revocable: work that ended the value puts nothing back", || both(true));
}
