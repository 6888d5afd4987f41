//! Table locks: compatibility, order of the queue, upgrades, tags, time-outs and deadlocks.

use foreshore_base::{Csn, Error, Lockable, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, IntentShared, Shared, SharedIntentExclusive};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(3);
const LONG: Duration = Duration::from_secs(60);

/// One of each kind: what is promised of a lock is the same wherever it is entered.
fn managers() -> impl Iterator<Item = Arc<LockManager>> {
    [false, true].into_iter().map(|fast_intents| {
        let options = LockOptions { max_owners: 8, share_slots: 16, fast_intents, ..LockOptions::default() };
        Arc::new(LockManager::new(options))
    })
}

fn lock(owner: &mut Owner, locks: &LockManager, mode: TableMode) -> Csn {
    locks.lock_table(owner, TABLE, mode, LONG).expect("granted in the end")
}

fn until_waits(locks: &LockManager, waits: u64) {
    while locks.stats().waits < waits {
        thread::yield_now();
    }
}

#[test]
fn a_conflicting_request_waits_for_the_holder_and_takes_its_tag() {
    for locks in managers() {
        let mut writer = locks.lease("writer").expect("a slot");
        lock(&mut writer, &locks, IntentExclusive);
        thread::scope(|scope| {
            let reader = scope.spawn(|| lock(&mut locks.lease("reader").expect("a slot"), &locks, Shared));
            until_waits(&locks, 1);
            locks.finish(&mut writer, Some(Csn(77)));
            assert_eq!(reader.join().expect("no panic"), Csn(77));
        });
        let mut later = locks.lease("later").expect("a slot");
        assert_eq!(lock(&mut later, &locks, IntentShared), Csn::ZERO, "an intent reads nothing of the table");
        assert_eq!(lock(&mut later, &locks, Shared), Csn(77), "the tag outlives its holders");
        assert_eq!(lock(&mut later, &locks, IntentShared), Csn::ZERO, "covered by what is held");
    }
}

#[test]
fn readers_and_aborted_writers_leave_no_tag_and_an_older_commit_does_not_lower_it() {
    for locks in managers() {
        for (mode, csn) in [
            (Shared, Some(Csn(9))),
            (IntentExclusive, None),
            (Exclusive, Some(Csn(8))),
            (IntentExclusive, Some(Csn(5))),
        ] {
            let mut owner = locks.lease("before").expect("a slot");
            lock(&mut owner, &locks, mode);
            locks.finish(&mut owner, csn);
        }
        assert_eq!(lock(&mut locks.lease("reader").expect("a slot"), &locks, Shared), Csn(8));
    }
}

#[test]
fn a_weak_request_does_not_pass_a_strong_one_that_waits() {
    for locks in managers() {
        let mut first = locks.lease("first").expect("a slot");
        lock(&mut first, &locks, IntentShared);
        let mut second = locks.lease("second").expect("a slot");
        thread::scope(|scope| {
            let strong = scope.spawn(|| {
                let mut owner = locks.lease("strong").expect("a slot");
                lock(&mut owner, &locks, Exclusive);
                locks.finish(&mut owner, Some(Csn(1)));
            });
            until_waits(&locks, 1);
            assert!(locks.try_lock_table(&mut second, TABLE, IntentShared).is_none(), "it would pass the waiter");
            let weak = scope.spawn(|| lock(&mut second, &locks, IntentShared));
            until_waits(&locks, 2);
            locks.finish(&mut first, None);
            strong.join().expect("no panic");
            weak.join().expect("no panic");
        });
    }
}

#[test]
fn an_upgrade_passes_waiters_that_wait_for_it() {
    for locks in managers() {
        let mut holder = locks.lease("holder").expect("a slot");
        lock(&mut holder, &locks, IntentExclusive);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock(&mut locks.lease("waiter").expect("a slot"), &locks, Shared));
            until_waits(&locks, 1);
            // IX and S make SIX. Behind the waiter it would be a deadlock.
            assert!(locks.try_lock_table(&mut holder, TABLE, Shared).is_some());
            let mut other = locks.lease("other").expect("a slot");
            assert!(locks.try_lock_table(&mut other, TABLE, IntentExclusive).is_none(), "SIX is held");
            locks.finish(&mut holder, Some(Csn(4)));
            assert_eq!(waiter.join().expect("no panic"), Csn(4));
        });
    }
}

/// Otherwise transactions that read a row before they write one would keep off a reader of the whole table for ever.
#[test]
fn an_upgrade_does_not_pass_waiters_that_do_not_wait_for_it() {
    for locks in managers() {
        let mut writer = locks.lease("writer").expect("a slot");
        lock(&mut writer, &locks, IntentExclusive);
        let mut later = locks.lease("later").expect("a slot");
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut owner = locks.lease("reader").expect("a slot");
                lock(&mut owner, &locks, Shared);
                owner
            });
            until_waits(&locks, 1);
            lock(&mut later, &locks, IntentShared);
            assert!(locks.try_lock_table(&mut later, TABLE, IntentExclusive).is_none(), "it would pass the reader");
            let upgrade = scope.spawn(|| lock(&mut later, &locks, IntentExclusive));
            until_waits(&locks, 2);
            locks.finish(&mut writer, None);
            let mut owner = reader.join().expect("no panic");
            assert!(!upgrade.is_finished(), "the reader has the table");
            locks.finish(&mut owner, None);
            upgrade.join().expect("no panic");
        });
    }
}

/// Two wait: one for the lock of the owner that upgrades, and behind it one that does not.
#[test]
fn an_upgrade_passes_all_behind_a_waiter_that_waits_for_it() {
    for locks in managers() {
        let mut holder = locks.lease("holder").expect("a slot");
        lock(&mut holder, &locks, IntentShared);
        thread::scope(|scope| {
            let waiters = [Exclusive, Shared].map(|mode| {
                let waits = locks.stats().waits;
                let locks = &locks;
                let waiter = scope.spawn(move || {
                    let mut owner = locks.lease("waiter").expect("a slot");
                    lock(&mut owner, locks, mode);
                    locks.finish(&mut owner, None);
                });
                until_waits(locks, waits + 1);
                waiter
            });
            assert!(locks.try_lock_table(&mut holder, TABLE, IntentExclusive).is_some(), "both wait for the holder");
            locks.finish(&mut holder, None);
            waiters.into_iter().for_each(|waiter| waiter.join().expect("no panic"));
        });
    }
}

#[test]
fn two_upgrades_are_a_deadlock_with_one_victim() {
    for locks in managers() {
        let barrier = std::sync::Barrier::new(2);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let upgrade = |label| {
                let mut owner = locks.lease(label).expect("a slot");
                lock(&mut owner, &locks, Shared);
                barrier.wait();
                let outcome = locks.lock_table(&mut owner, TABLE, SharedIntentExclusive, LONG);
                locks.finish(&mut owner, None);
                outcome
            };
            let threads = ["one", "two"].map(|label| scope.spawn(move || upgrade(label)));
            threads.map(|thread| thread.join().expect("no panic")).into_iter().collect()
        });
        let victims: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        let [Error::Deadlock { cycle }] = &victims[..] else { panic!("{outcomes:?}") };
        let mut labels: Vec<_> = cycle.iter().map(|waiter| waiter.label).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["one", "two"]);
        assert!(cycle.iter().all(|waiter| waiter.waits_for == Lockable::Table(TABLE.into())), "{cycle:?}");
        assert_eq!(locks.stats().deadlocks, 1);
    }
}

#[test]
fn a_request_that_runs_out_of_time_names_the_holder_and_lets_others_pass() {
    for locks in managers() {
        let mut holder = locks.lease("holder").expect("a slot");
        lock(&mut holder, &locks, IntentShared);
        let mut strong = locks.lease("strong").expect("a slot");
        let outcome = locks.lock_table(&mut strong, TABLE, Exclusive, Duration::from_millis(5));
        let Err(Error::LockTimeout { holder: "holder", what, waited }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(what.to_string(), "table 3");
        assert!(waited >= Duration::from_millis(5));
        let mut weak = locks.lease("weak").expect("a slot");
        assert!(locks.try_lock_table(&mut weak, TABLE, IntentShared).is_some(), "the queue is empty again");
        assert_eq!(locks.stats().timeouts, 1);
    }
}

#[test]
fn a_dropped_owner_releases_and_slots_are_counted() {
    for locks in managers() {
        let mut dropped = locks.lease("dropped").expect("a slot");
        lock(&mut dropped, &locks, Exclusive);
        drop(dropped);
        let mut owners: Vec<_> = (0..8).map(|_| locks.lease("many").expect("a slot")).collect();
        lock(&mut owners[0], &locks, Exclusive);
        let refused = locks.lease("one too many");
        assert!(matches!(refused, Err(Error::TooManyTransactions { max: 8, oldest: "many" })), "{refused:?}");
    }
}
