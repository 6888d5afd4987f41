//! Models of intents on the fast path against a strong locker. A wake-up that is lost shows as a deadlock of the model.

use foreshore_base::{Csn, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, IntentShared, Shared};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(1);
const EVER: Duration = Duration::MAX;
const COMMIT: Csn = Csn(7);

/// A lock manager with a writer and a strong locker.
fn two() -> (Arc<LockManager>, Owner, Owner) {
    let options = LockOptions { max_owners: 2, share_slots: 1, memory_units: 4, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let (writer, strong) = (locks.lease("writer").expect("a slot"), locks.lease("strong").expect("a slot"));
    (locks, writer, strong)
}

/// Lets an earlier transaction of the owner end, with intents on `tables`.
fn keeps(locks: &LockManager, owner: &mut Owner, tables: &[TableId], csn: Csn) {
    for &table in tables {
        locks.try_lock_table(owner, table, IntentExclusive).expect("free");
    }
    locks.finish(owner, Some(csn));
}

fn not_both(asked: [(bool, Owner); 2]) {
    if asked.iter().all(|(granted, _)| *granted) {
        // What they hold does not fit together, and to release it would panic as well.
        std::mem::forget(asked);
        panic!("both have the table");
    }
}

/// Both ask once, and end when both have asked.
fn one_of_two(is_kept: bool) {
    let (locks, mut writer, mut strong) = two();
    if is_kept {
        keeps(&locks, &mut writer, &[TABLE], COMMIT);
    }
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        let granted = writes.try_lock_table(&mut writer, TABLE, IntentExclusive).is_some();
        (granted, writer)
    });
    let strong = thread::spawn(move || {
        let granted = locks.try_lock_table(&mut strong, TABLE, Exclusive).is_some();
        (granted, strong)
    });
    not_both([weak.join().expect("the writer ends"), strong.join().expect("the strong locker ends")]);
}

/// Reads and strengthens its intent while a reader of the whole table comes.
fn strengthened() {
    let (locks, mut writer, mut strong) = two();
    locks.try_lock_table(&mut writer, TABLE, IntentShared).expect("free");
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        let granted = writes.try_lock_table(&mut writer, TABLE, IntentExclusive).is_some();
        (granted, writer)
    });
    let strong = thread::spawn(move || {
        let granted = locks.try_lock_table(&mut strong, TABLE, Shared).is_some();
        (granted, strong)
    });
    not_both([weak.join().expect("the writer ends"), strong.join().expect("the strong locker ends")]);
}

/// Strengthens the intent that it holds in a word to a lock of the whole table, while another writer comes.
fn strengthened_to(mode: TableMode) {
    let (locks, mut strong, mut writer) = two();
    locks.try_lock_table(&mut strong, TABLE, IntentExclusive).expect("free");
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        let granted = writes.try_lock_table(&mut writer, TABLE, IntentExclusive).is_some();
        (granted, writer)
    });
    let ends = locks.clone();
    let strong = thread::spawn(move || {
        let granted = locks.try_lock_table(&mut strong, TABLE, mode).is_some();
        (granted, strong)
    });
    let mut asked = [weak.join().expect("the writer ends"), strong.join().expect("the strong locker ends")];
    if asked.iter().all(|(granted, _)| *granted) {
        not_both(asked);
        return;
    }
    // What it held before it has still, or as part of the new lock: either way it ends once, and leaves its tag.
    ends.finish(&mut asked[1].1, Some(COMMIT));
    ends.finish(&mut asked[0].1, None);
    let tag = ends.try_lock_table(&mut asked[0].1, TABLE, Shared).expect("all have ended");
    assert_eq!(tag, COMMIT, "rows without their tag");
}

/// A strong locker waits for an intent that it has found and its owner takes back. No other thread wakes it.
fn taken_back_before_a_waiter() {
    let (locks, mut writer, mut strong) = two();
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        if writes.try_lock_table(&mut writer, TABLE, IntentExclusive).is_some() {
            writes.finish(&mut writer, None);
        }
        writer
    });
    let strong = thread::spawn(move || {
        locks.lock_table(&mut strong, TABLE, Exclusive, EVER).expect("granted in the end");
        locks.finish(&mut strong, None);
        strong
    });
    weak.join().expect("the writer ends");
    strong.join().expect("the strong locker ends");
}

/// A transaction writes, and a reader of the whole table waits for it if it must: it finds the writer's work and its
/// tag, or neither.
fn a_writer_and_a_reader_of_all(is_kept: bool) {
    let (locks, mut writer, mut strong) = two();
    if is_kept {
        keeps(&locks, &mut writer, &[TABLE], Csn(3));
    }
    let rows = Arc::new(AtomicU64::new(0));
    let (writes, written) = (locks.clone(), rows.clone());
    let weak = thread::spawn(move || {
        writes.lock_table(&mut writer, TABLE, IntentExclusive, EVER).expect("granted in the end");
        written.store(1, Ordering::Relaxed);
        writes.finish(&mut writer, Some(COMMIT));
        writer
    });
    let strong = thread::spawn(move || {
        let tag = locks.lock_table(&mut strong, TABLE, Shared, EVER).expect("granted in the end");
        let before = if is_kept { Csn(3) } else { Csn::ZERO };
        match rows.load(Ordering::Relaxed) {
            0 => assert_eq!(tag, before, "a tag without its rows"),
            _ => assert_eq!(tag, COMMIT, "rows without their tag"),
        }
        locks.finish(&mut strong, None);
        strong
    });
    weak.join().expect("the writer ends");
    strong.join().expect("the reader ends");
}

/// The writer's words are used up: it takes that of a table that a reader comes for.
fn a_word_changes_its_table() {
    let (locks, mut writer, mut strong) = two();
    keeps(&locks, &mut writer, &[TABLE, TableId(2)], COMMIT);
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        assert!(writes.try_lock_table(&mut writer, TableId(3), IntentExclusive).is_some(), "nobody else is there");
        writer
    });
    let strong = thread::spawn(move || {
        for table in [TABLE, TableId(2)] {
            let tag = locks.try_lock_table(&mut strong, table, Shared).expect("no intent is held");
            assert_eq!(tag, COMMIT, "rows without their tag");
        }
        strong
    });
    weak.join().expect("the writer ends");
    strong.join().expect("the reader ends");
}

/// A strong lock ends and another is asked for while an intent is entered beside them.
fn a_strong_locker_comes_again() {
    let (locks, mut writer, mut strong) = two();
    locks.try_lock_table(&mut strong, TABLE, Exclusive).expect("free");
    let writes = locks.clone();
    let weak = thread::spawn(move || {
        let granted = writes.try_lock_table(&mut writer, TABLE, IntentExclusive).is_some();
        (granted, writer)
    });
    let strong = thread::spawn(move || {
        locks.finish(&mut strong, Some(COMMIT));
        let granted = locks.try_lock_table(&mut strong, TABLE, Shared).is_some();
        (granted, strong)
    });
    not_both([weak.join().expect("the writer ends"), strong.join().expect("the strong locker ends")]);
}

#[test]
fn an_intent_and_a_strong_lock_are_not_held_together() {
    check(|| one_of_two(false));
}

#[test]
fn a_kept_intent_and_a_strong_lock_are_not_held_together() {
    check(|| one_of_two(true));
}

#[test]
fn an_intent_is_not_strengthened_past_a_strong_lock() {
    check(strengthened);
}

#[test]
fn a_strengthener_of_its_own_intent_and_another_writer_are_not_let_by_together() {
    check(|| strengthened_to(Exclusive));
    check(|| strengthened_to(Shared));
}

#[test]
fn a_strong_locker_hears_of_an_intent_that_is_taken_back() {
    check(taken_back_before_a_waiter);
}

#[test]
fn a_strong_locker_waits_for_an_intent_and_sees_its_work() {
    check(|| a_writer_and_a_reader_of_all(false));
}

#[test]
fn a_strong_locker_waits_for_a_kept_intent_and_sees_its_work() {
    check(|| a_writer_and_a_reader_of_all(true));
}

#[test]
fn a_word_keeps_its_tag_when_it_changes_its_table() {
    check(a_word_changes_its_table);
}

#[test]
fn an_intent_entered_beside_a_strong_lock_is_taken_back() {
    check(a_strong_locker_comes_again);
}

#[test]
#[should_panic(expected = "both have the table")]
fn an_intent_needs_its_fence() {
    mutated("intent: no fence behind the word", || one_of_two(false));
}

#[test]
#[should_panic(expected = "both have the table")]
fn a_strong_locker_needs_its_fence() {
    mutated("intent: no fence behind the count", || one_of_two(false));
}

#[test]
#[should_panic(expected = "both have the table")]
fn a_strengthener_of_its_own_intent_needs_its_fence() {
    mutated("intent: no fence behind the count", || strengthened_to(Exclusive));
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_release_of_an_intent_wakes_its_waiter() {
    mutated("intent: taken back without a wake", taken_back_before_a_waiter);
}

#[test]
#[should_panic(expected = "both have the table")]
fn a_strong_locker_counts_before_it_looks() {
    mutated("intent: words before the count", || one_of_two(false));
}

#[test]
#[should_panic(expected = "both have the table")]
fn a_kept_intent_is_taken_by_an_exchange() {
    mutated("intent: taken again by a store", || one_of_two(true));
}

#[test]
#[should_panic(expected = "rows without their tag")]
fn a_word_is_tagged_before_it_is_kept() {
    mutated("intent: kept before its tag", || a_writer_and_a_reader_of_all(false));
}

#[test]
#[should_panic(expected = "rows without their tag")]
fn a_word_is_kept_with_what_was_done_under_it() {
    mutated("intent: relaxed release", || a_writer_and_a_reader_of_all(false));
}
