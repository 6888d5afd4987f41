//! Intents on the fast path: what is kept from one transaction to the next, and what a strong lock makes of it.

use foreshore_base::{Csn, Error, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, IntentShared, Shared};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::rmw;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(3);
const LONG: Duration = Duration::from_secs(60);

fn manager(fast_intents: bool) -> Arc<LockManager> {
    Arc::new(LockManager::new(LockOptions { max_owners: 16, share_slots: 16, fast_intents, ..LockOptions::default() }))
}

fn lock(locks: &LockManager, owner: &mut Owner, table: TableId, mode: TableMode) -> Csn {
    locks.lock_table(owner, table, mode, LONG).expect("granted in the end")
}

/// Contended read-modify-writes of a transaction that writes in some tables.
fn cost_of(locks: &LockManager, owner: &mut Owner, tables: u32, csn: u64) -> u64 {
    let before = rmw::counted();
    for table in 1..=tables {
        lock(locks, owner, TableId(table), IntentShared);
        lock(locks, owner, TableId(table), IntentExclusive);
    }
    locks.finish(owner, Some(Csn(csn)));
    rmw::counted() - before
}

#[test]
fn an_intent_meets_no_other_until_a_strong_lock_comes_and_soon_after_it_has_gone() {
    let locks = manager(true);
    let mut owner = locks.lease("writer").expect("a slot");
    assert_eq!(cost_of(&locks, &mut owner, 4, 1), 0, "new ones");
    assert_eq!(cost_of(&locks, &mut owner, 4, 2), 0, "kept ones");
    let mut strong = locks.lease("strong").expect("a slot");
    assert_eq!(lock(&locks, &mut strong, TableId(2), Shared), Csn(2));
    assert!(locks.try_lock_table(&mut owner, TableId(2), IntentExclusive).is_none(), "the strong lock is there");
    locks.finish(&mut owner, None);
    locks.finish(&mut strong, None);
    assert_eq!(cost_of(&locks, &mut owner, 4, 3), 2, "to take up the word that was revoked");
    assert_eq!(cost_of(&locks, &mut owner, 4, 4), 0, "as before");

    let plain = manager(false);
    let mut owner = plain.lease("writer").expect("a slot");
    assert_eq!(cost_of(&plain, &mut owner, 4, 1), 4 * 6, "each lock and each release locks and unlocks");
}

#[test]
fn an_intent_is_kept_for_the_next_lease_of_the_slot() {
    let locks = manager(true);
    let mut owner = locks.lease("first").expect("a slot");
    cost_of(&locks, &mut owner, 1, 5);
    let index = owner.index();
    drop(owner);
    let mut strong = locks.lease("next").expect("a slot");
    assert_eq!(strong.index(), index);
    // Its own kept intents are revoked like any, and their tag counts.
    assert_eq!(lock(&locks, &mut strong, TableId(1), Exclusive), Csn(5));
}

#[test]
fn more_tables_than_words_lose_no_lock_and_no_tag() {
    const TABLES: u32 = 100;
    for fast_intents in [false, true] {
        let locks = manager(fast_intents);
        let (mut writer, mut reader) = (locks.lease("writer").expect("a slot"), locks.lease("reader").expect("a slot"));
        for round in 1..=3 {
            for table in 1..=TABLES {
                lock(&locks, &mut writer, TableId(table), IntentExclusive);
            }
            for table in 1..=TABLES {
                assert!(
                    locks.try_lock_table(&mut reader, TableId(table), Shared).is_none(),
                    "fast {fast_intents} {table}"
                );
            }
            locks.finish(&mut writer, Some(Csn(round)));
            // One at a time, in turns with the rest of the tables.
            for table in 1..=TABLES {
                lock(&locks, &mut writer, TableId(table), IntentExclusive);
                locks.finish(&mut writer, Some(Csn(1000 * round + u64::from(table))));
            }
            for table in 1..=TABLES {
                let tag = lock(&locks, &mut reader, TableId(table), Shared);
                assert_eq!(tag, Csn(1000 * round + u64::from(table)), "fast {fast_intents} {table}");
            }
            locks.finish(&mut reader, None);
        }
    }
}

/// E3, of tables.
#[test]
fn a_tag_is_of_the_tables_that_were_written() {
    let locks = manager(true);
    let mut owner = locks.lease("writer").expect("a slot");
    // Words are taken for other tables again and again.
    for table in 1..=200 {
        let mode = if table % 2 == 0 { IntentExclusive } else { IntentShared };
        lock(&locks, &mut owner, TableId(table), mode);
        locks.finish(&mut owner, Some(Csn(u64::from(table))));
    }
    lock(&locks, &mut owner, TableId(2), IntentExclusive);
    locks.finish(&mut owner, None);
    let mut reader = locks.lease("reader").expect("a slot");
    for table in 1..=200 {
        let tag = if table % 2 == 0 { Csn(u64::from(table)) } else { Csn::ZERO };
        assert_eq!(lock(&locks, &mut reader, TableId(table), Shared), tag, "{table}");
    }
}

#[test]
fn a_cycle_through_intents_is_found() {
    for fast_intents in [false, true] {
        let locks = manager(fast_intents);
        let barrier = std::sync::Barrier::new(2);
        let outcomes = thread::scope(|scope| {
            let run = |label, mine, other| {
                let mut owner = locks.lease(label).expect("a slot");
                // Taken and kept, and taken again.
                for _ in 0..2 {
                    locks.finish(&mut owner, None);
                    lock(&locks, &mut owner, TableId(mine), IntentExclusive);
                }
                barrier.wait();
                let outcome = locks.lock_table(&mut owner, TableId(other), Exclusive, LONG);
                locks.finish(&mut owner, None);
                outcome
            };
            let threads =
                [("one", 1, 2), ("two", 2, 1)].map(|(label, mine, other)| scope.spawn(move || run(label, mine, other)));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let victims: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        let [Error::Deadlock { cycle }] = &victims[..] else { panic!("fast {fast_intents}: {outcomes:?}") };
        let mut labels: Vec<_> = cycle.iter().map(|waiter| waiter.label).collect();
        labels.sort_unstable();
        assert_eq!(labels, ["one", "two"], "fast {fast_intents}");
    }
}

/// Ends the others' work, in a panic too.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers count in plain words that only the locks keep apart from a holder of the whole table.
#[test]
fn strong_locks_come_and_go_among_many_writers() {
    const WRITERS: u64 = 6;
    const STRONG: u64 = 100;
    let locks = manager(true);
    let (inside, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let commits = AtomicU64::new(0);
    thread::scope(|scope| {
        let writer = |seed: u64| {
            let mut owner = locks.lease("writer").expect("a slot");
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let mode = if (round + seed).is_multiple_of(3) { IntentShared } else { IntentExclusive };
                lock(&locks, &mut owner, TABLE, mode);
                if (round + seed).is_multiple_of(5) {
                    lock(&locks, &mut owner, TABLE, IntentExclusive);
                }
                lock(&locks, &mut owner, TableId(TABLE.0 + 64), IntentShared);
                assert!(inside.fetch_add(1, Ordering::Relaxed) < WRITERS, "a strong lock is held");
                inside.fetch_sub(1, Ordering::Relaxed);
                let csn = Csn(1 + commits.fetch_add(1, Ordering::Relaxed));
                locks.finish(&mut owner, Some(csn));
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|seed| scope.spawn(move || writer(seed))).collect();
        let strong = scope.spawn(|| {
            let mut owner = locks.lease("strong").expect("a slot");
            let (mut last, _ends) = (Csn::ZERO, Ends(&done));
            for _ in 0..STRONG {
                let tag = lock(&locks, &mut owner, TABLE, Exclusive);
                assert_eq!(inside.swap(1 << 32, Ordering::Relaxed), 0, "an intent is held");
                assert!(tag >= last, "{tag:?} after {last:?}");
                last = tag;
                assert_eq!(inside.swap(0, Ordering::Relaxed), 1 << 32, "an intent is held");
                locks.finish(&mut owner, None);
                // A strong locker gets in between.
                let before = commits.load(Ordering::Relaxed);
                while commits.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
        });
        for thread in writers.into_iter().chain([strong]) {
            thread.join().expect("a thread ends");
        }
    });
    let mut reader = locks.lease("reader").expect("a slot");
    assert!(lock(&locks, &mut reader, TABLE, Shared).0 <= commits.into_inner());
}
