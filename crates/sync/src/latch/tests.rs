use super::*;
use crate::primitive::thread;
use std::sync::atomic::AtomicBool;

fn word(latch: &HybridLatch) -> u64 {
    latch.word.load(Ordering::Relaxed)
}

#[test]
fn modes_exclude_as_they_must() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    assert!(latch.try_lock_shared() && latch.try_lock_shared());
    assert!(!latch.try_lock_exclusive());
    assert_eq!(latch.optimistic_version(), Some(0), "readers do not disturb optimistic readers");
    latch.unlock_shared(&table);
    latch.unlock_shared(&table);
    assert!(latch.try_lock_exclusive() && latch.is_exclusive());
    assert!(!latch.try_lock_exclusive() && !latch.try_lock_shared());
    assert_eq!(latch.optimistic_version(), None);
    latch.unlock_exclusive(&table);
    assert_eq!(word(&latch), VERSION);
}

#[test]
fn the_version_tells_a_write_from_a_look() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    let version = latch.optimistic_version().expect("free");
    latch.lock_exclusive(&table);
    assert!(!latch.validate(version), "a writer may be at work");
    latch.unlock_exclusive_unchanged(&table);
    assert!(latch.validate(version));
    latch.lock_exclusive(&table);
    latch.unlock_exclusive(&table);
    assert!(!latch.validate(version));
    let version = latch.optimistic_version().expect("free");
    latch.lock_exclusive(&table);
    latch.downgrade(&table);
    assert!(!latch.validate(version), "a downgrade publishes a write");
    assert!(latch.try_lock_shared() && !latch.try_lock_exclusive());
    latch.unlock_shared(&table);
    latch.unlock_shared(&table);
    assert_eq!(word(&latch), 2 * VERSION);
}

#[test]
fn an_upgrade_needs_the_version_and_a_free_latch() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    let old = latch.optimistic_version().expect("free");
    assert!(latch.try_upgrade(old) && latch.is_exclusive());
    assert!(!latch.try_upgrade(old));
    latch.unlock_exclusive(&table);
    assert!(!latch.try_upgrade(old));
    let version = latch.optimistic_version().expect("free");
    latch.lock_shared(&table);
    assert!(!latch.try_upgrade(version));
    latch.unlock_shared(&table);
    assert!(latch.try_upgrade(version));
    latch.unlock_exclusive_unchanged(&table);
    assert!(latch.validate(version));
}

#[test]
fn the_version_wraps_without_touching_the_rest() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    latch.word.store(VERSION.wrapping_neg(), Ordering::Relaxed);
    let last = latch.optimistic_version().expect("free");
    latch.lock_exclusive(&table);
    latch.unlock_exclusive(&table);
    assert!(!latch.validate(last));
    assert_eq!(word(&latch), 0);
    latch.word.store(VERSION.wrapping_neg(), Ordering::Relaxed);
    latch.lock_exclusive(&table);
    latch.downgrade(&table);
    assert_eq!(word(&latch), SHARED);
}

#[test]
fn admission_follows_the_contract() {
    use Mode::{Exclusive, Shared};
    let free = [(0, true), (WAITERS, true), (WAITERS | FAIR, false)];
    for (word, admitted) in free {
        for mode in [Shared, Exclusive] {
            assert_eq!(mode.admits(word, false).is_some(), admitted, "{mode:?} at {word:#x}");
            assert!(mode.admits(word, true).is_some(), "a woken {mode:?} obeys holders only, at {word:#x}");
        }
    }
    assert!(Shared.admits(SHARED, false).is_some());
    assert!(Shared.admits(SHARED | WAITERS, false).is_none(), "readers do not pass a waiting writer");
    assert!(Shared.admits(SHARED | WAITERS, true).is_some());
    assert!(Shared.admits(SHARED_MASK, true).is_none(), "the count must not run over");
    for word in [SHARED, EXCLUSIVE] {
        assert!(Exclusive.admits(word, true).is_none());
    }
    assert!(Shared.admits(EXCLUSIVE, true).is_none());
}

/// Waits until `ready`; the condition is another thread's park, which is not announced.
fn until(ready: impl Fn() -> bool) {
    while !ready() {
        thread::yield_now();
    }
}

#[test]
fn a_waiting_writer_holds_back_newcomers_and_comes_in() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    latch.lock_shared(&table);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            latch.lock_exclusive(&table);
            latch.unlock_exclusive(&table);
        });
        until(|| table.has_waiters(latch.key()));
        assert!(!latch.try_lock_shared());
        latch.unlock_shared(&table);
        writer.join().expect("the writer ends");
    });
    assert_eq!(word(&latch), VERSION, "WAITERS goes with the last waiter");
}

#[test]
fn a_release_wakes_the_readers_at_the_head_together() {
    let (latch, table, go) = (HybridLatch::new(), ParkTable::new(), AtomicBool::new(false));
    latch.lock_exclusive(&table);
    thread::scope(|scope| {
        for readers in 1..=2 {
            scope.spawn(|| {
                latch.lock_shared(&table);
                until(|| go.load(Ordering::Acquire));
                latch.unlock_shared(&table);
            });
            until(|| table.waiting() == readers);
        }
        latch.downgrade(&table);
        until(|| word(&latch) & SHARED_MASK == 3);
        go.store(true, Ordering::Release);
        latch.unlock_shared(&table);
    });
    assert_eq!(word(&latch), VERSION);
}

#[test]
fn a_starved_waiter_closes_the_latch_and_opens_it_again() {
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    latch.lock_exclusive(&table);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            latch.lock_exclusive(&table);
            latch.unlock_exclusive(&table);
        });
        // Wake it in vain, like a release that a newcomer's entry follows.
        for _ in 0..STARVED {
            until(|| table.has_waiters(latch.key()));
            assert_eq!(word(&latch) & FAIR, 0);
            latch.wake(&table, None);
        }
        until(|| table.has_waiters(latch.key()));
        assert_ne!(word(&latch) & FAIR, 0);
        latch.unlock_exclusive(&table);
        waiter.join().expect("the waiter ends");
    });
    assert_eq!(word(&latch), 2 * VERSION);
}

#[test]
fn many_threads_in_all_modes_keep_the_data_whole() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 2000;
    let (latch, table) = (HybridLatch::new(), ParkTable::new());
    let words = [const { std::sync::atomic::AtomicU64::new(0) }; 4];
    let add = || words.iter().for_each(|word| word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
    let seen = || words.each_ref().map(|word| word.load(Ordering::Relaxed));
    let whole = |seen: [u64; 4]| assert!(seen.iter().all(|&word| word == seen[0]), "{seen:?}");
    let writes = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (latch, table, writes) = (&latch, &table, &writes);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    match (thread + round) % 4 {
                        0 => {
                            latch.lock_exclusive(table);
                            add();
                            writes.fetch_add(1, Ordering::Relaxed);
                            latch.unlock_exclusive(table);
                        }
                        1 => {
                            latch.lock_shared(table);
                            whole(seen());
                            latch.unlock_shared(table);
                        }
                        2 => {
                            if let Some(version) = latch.optimistic_version() {
                                let seen = seen();
                                if latch.validate(version) {
                                    whole(seen);
                                }
                            }
                        }
                        _ => {
                            if latch.optimistic_version().is_some_and(|version| latch.try_upgrade(version)) {
                                add();
                                writes.fetch_add(1, Ordering::Relaxed);
                                latch.downgrade(table);
                                whole(seen());
                                latch.unlock_shared(table);
                            }
                        }
                    }
                }
            });
        }
    });
    assert_eq!(seen(), [writes.load(Ordering::Relaxed); 4]);
    assert_eq!(word(&latch), writes.load(Ordering::Relaxed) * VERSION, "nothing but the version is left");
}
