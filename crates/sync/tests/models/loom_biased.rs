//! Models of the biased reference count: a value is freed once, by the last to use it, after all uses.

use foreshore_sync::BiasedOwner;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

/// A cell that is written when it is freed, which loom compares with the reads before.
struct Cell {
    cell: UnsafeCell<u64>,
    freed: Arc<AtomicU64>,
}

// SAFETY: read while it is shared, and written when it is freed; loom checks that the one comes before the other.
unsafe impl Send for Cell {}
// SAFETY: as above.
unsafe impl Sync for Cell {}

impl Drop for Cell {
    fn drop(&mut self) {
        // SAFETY: the model checks it.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
        self.freed.fetch_add(1, Ordering::Relaxed);
    }
}

/// An owner that ends beside two references, one of which is cloned.
fn references() {
    let freed = Arc::new(AtomicU64::new(0));
    let mut owner = BiasedOwner::new(Cell { cell: UnsafeCell::new(1), freed: freed.clone() });
    let (first, second) = (owner.hand_out(), owner.hand_out());
    // SAFETY: the model checks it.
    let read = |cell: &Cell| assert_eq!(cell.cell.with(|cell| unsafe { *cell }), 1);
    let threads = [
        thread::spawn(move || read(&first)),
        thread::spawn(move || {
            let clone = second.clone();
            drop(second);
            read(&clone);
        }),
    ];
    drop(owner);
    threads.into_iter().for_each(|thread| thread.join().expect("a reader ends"));
    assert_eq!(freed.load(Ordering::Relaxed), 1, "the value is freed once");
}

#[test]
fn the_last_reference_frees_the_value_after_all_uses() {
    check(references);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_value_that_is_freed_without_a_fence_is_noticed() {
    mutated("biased: no fence before the value is freed", references);
}

/// A cell that is read while it is shared, and written when it is not.
struct Shared(UnsafeCell<u64>);

// SAFETY: loom checks that no write meets a read.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// An owner that changes the value as soon as no reference is left, beside two threads that read it.
fn changes() {
    let mut owner = BiasedOwner::new(Shared(UnsafeCell::new(1)));
    let threads = [owner.hand_out(), owner.hand_out()].map(|reference| {
        // SAFETY: the model checks it.
        thread::spawn(move || reference.0.with(|cell| unsafe { *cell }))
    });
    let mut change = || {
        let value = owner.get_mut()?;
        // SAFETY: the model checks it.
        value.0.with_mut(|cell| unsafe { *cell = 2 });
        Some(())
    };
    let is_early = change().is_some();
    let read = threads.map(|thread| thread.join().expect("a reader ends"));
    assert!(is_early || change().is_some(), "no reference is left");
    assert_eq!(read, [1, 1], "the value does not change under a reference");
    let again = owner.hand_out();
    assert!(owner.get_mut().is_none(), "a reference is there again");
    drop(again);
}

#[test]
fn a_value_changes_after_all_uses() {
    check(changes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_value_that_changes_without_a_fence_is_noticed() {
    mutated("biased: no fence before the value is changed", changes);
}

/// An owner that asks for the value beside a thread that clones a reference, and one that drops its own.
fn clones_beside_changes() {
    let mut owner = BiasedOwner::new(Shared(UnsafeCell::new(1)));
    let (cloned, dropped) = (owner.hand_out(), owner.hand_out());
    let threads = [
        thread::spawn(move || {
            let clone = cloned.clone();
            drop(cloned);
            // SAFETY: the model checks it.
            clone.0.with(|cell| unsafe { *cell })
        }),
        thread::spawn(move || {
            // SAFETY: the model checks it.
            dropped.0.with(|cell| unsafe { *cell })
        }),
    ];
    let mut change = || {
        let value = owner.get_mut()?;
        // SAFETY: the model checks it.
        value.0.with_mut(|cell| unsafe { *cell = 2 });
        Some(())
    };
    // A call that fails changes nothing: the next one finds the same references.
    let is_early = change().is_some();
    let read = threads.map(|thread| thread.join().expect("a reader ends"));
    assert_eq!(read, [1, 1], "the value does not change under a reference");
    assert!(is_early || change().is_some(), "no reference is left");
}

#[test]
fn a_clone_keeps_the_value_from_changes() {
    check(clones_beside_changes);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_change_beside_a_clone_is_noticed() {
    mutated("biased: the value changes under the last reference", clones_beside_changes);
}

/// An owner that takes one of two references back from the thread that has read by it, beside a thread with the other.
fn taken_back() {
    let freed = Arc::new(AtomicU64::new(0));
    let mut owner = BiasedOwner::new(Cell { cell: UnsafeCell::new(1), freed: freed.clone() });
    // SAFETY: the model checks it.
    let read = |cell: &Cell| assert_eq!(cell.cell.with(|cell| unsafe { *cell }), 1);
    let (first, second) = (owner.hand_out(), owner.hand_out());
    let returns = thread::spawn(move || {
        read(&first);
        first
    });
    let clones = thread::spawn(move || read(&second.clone()));
    owner.take_back(returns.join().expect("a reader ends"));
    let other = Arc::new(AtomicU64::new(0));
    let mut another = BiasedOwner::new(Cell { cell: UnsafeCell::new(1), freed: other.clone() });
    let kept = another.hand_out();
    // The owner drops a reference to another value.
    owner.take_back(another.hand_out());
    assert!(another.get_mut().is_none(), "a reference is left");
    another.take_back(kept);
    assert!(another.get_mut().is_some(), "none is left");
    clones.join().expect("a reader ends");
    assert!(owner.get_mut().is_some(), "all references have ended");
    drop(owner);
    drop(another);
    assert_eq!((freed.load(Ordering::Relaxed), other.load(Ordering::Relaxed)), (1, 1), "each value is freed once");
}

#[test]
fn a_reference_that_is_taken_back_is_gone() {
    check(taken_back);
}

#[test]
#[should_panic(expected = "none is left")]
fn a_reference_to_another_value_is_not_taken_back() {
    mutated("biased: a reference to another value is taken back", taken_back);
}
