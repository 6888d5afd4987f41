//! Row locks: readers against writers, turns, upgrades, hand-off of the header lock, deadlocks.
#![cfg(not(foreshore_loom))]

mod toy;

use foreshore_base::{Error, TableId};
use foreshore_lock::{LockManager, LockOptions, TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::sync::Arc;
use std::time::Duration;
use toy::{PATIENCE, TABLE, Toy, key};

fn until_waits(toy: &Toy, waits: u64) {
    while toy.locks.stats().waits < waits {
        thread::yield_now();
    }
}

#[test]
fn a_reader_keeps_a_writer_out_until_it_ends() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let mut reader = toy.begin("reader");
    assert_eq!(reader.read(0).expect("free"), 5);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = toy.begin("writer");
            writer.add(0, 1).expect("granted");
            assert!(done.load(Ordering::Acquire), "the reader still runs");
            writer.commit();
        });
        until_waits(&toy, 1);
        assert_eq!(reader.read(0).expect("held"), 5, "reads repeat");
        done.store(true, Ordering::Release);
        reader.commit();
        writer.join().expect("no panic");
    });
    assert_eq!(toy.sum(), 6);
}

#[test]
fn a_reader_that_comes_after_a_waiting_writer_waits_for_it() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let mut early = toy.begin("early");
    early.read(0).expect("free");
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut writer = toy.begin("writer");
            writer.add(0, 1).expect("granted");
            writer.commit();
        });
        until_waits(&toy, 1);
        let late = scope.spawn(|| {
            let mut late = toy.begin("late");
            let passed = toy.locks.try_share(&mut late.owner, Target::row(TABLE, &key(0))).expect("room");
            assert!(!passed, "it would pass the writer");
            late.read(0).expect("granted")
        });
        until_waits(&toy, 2);
        early.commit();
        assert_eq!(late.join().expect("no panic"), 6);
        writer.join().expect("no panic");
    });
}

/// E3, of rows.
#[test]
fn a_reader_of_a_locked_row_sees_what_its_writer_committed() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let mut writer = toy.begin("writer");
    writer.add(0, 2).expect("free");
    thread::scope(|scope| {
        let readers = [(); 3].map(|()| scope.spawn(|| toy.begin("reader").read(0).expect("granted")));
        until_waits(&toy, 3);
        assert_eq!(writer.read(0).expect("its own"), 7);
        writer.commit();
        assert_eq!(readers.map(|reader| reader.join().expect("no panic")), [7; 3]);
    });
}

#[test]
fn the_only_reader_of_a_row_becomes_its_writer_without_a_wait() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let mut both = toy.begin("both");
    assert_eq!(both.read(0).expect("free"), 5);
    both.add(0, 1).expect("its own lock is no obstacle");
    both.commit();
    assert_eq!(toy.locks.stats().waits, 0);
}

#[test]
fn two_readers_of_a_row_that_both_write_it_are_a_deadlock_with_one_victim() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let barrier = std::sync::Barrier::new(2);
    let outcomes = thread::scope(|scope| {
        let upgrade = |label| {
            let mut txn = toy.begin(label);
            txn.read(0).expect("free");
            barrier.wait();
            let outcome = txn.add(0, 1);
            if outcome.is_ok() {
                txn.commit();
            }
            outcome
        };
        let threads = ["one", "two"].map(|label| scope.spawn(move || upgrade(label)));
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let victims: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert!(matches!(&victims[..], [Error::Deadlock { .. }]), "{outcomes:?}");
    assert_eq!(toy.sum(), 6);
}

#[test]
fn an_upgrade_passes_a_writer_that_waits_for_it() {
    let toy = Toy::new(&[5], 16, PATIENCE);
    let mut both = toy.begin("both");
    both.read(0).expect("free");
    let mut other = toy.begin("other");
    other.read(0).expect("free");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut writer = toy.begin("writer");
            writer.add(0, 1).expect("after the upgrade");
            writer.commit();
        });
        until_waits(&toy, 1);
        // Behind the writer it would be a deadlock.
        let upgrade = scope.spawn(|| {
            both.add(0, 1).expect("after the other reader");
            both.commit();
        });
        until_waits(&toy, 2);
        other.commit();
        upgrade.join().expect("no panic");
    });
    assert_eq!((toy.sum(), toy.locks.stats().deadlocks), (7, 0));
}

/// One waits for a reader, the reader for a table, its holder for one. Whoever comes last, exactly one is refused.
#[test]
fn a_cycle_over_rows_readers_and_a_table_has_one_victim() {
    let toy = Toy::new(&[0, 0], 16, PATIENCE);
    let (mut one, mut two, mut three) = (toy.begin("one"), toy.begin("two"), toy.begin("three"));
    one.lock(0).expect("free");
    two.read(1).expect("free");
    three.table(TableMode::IntentExclusive).expect("free");
    let outcomes = thread::scope(|scope| {
        let threads = [
            scope.spawn(move || one.lock(1).map(drop).inspect(|()| one.commit())),
            scope.spawn(move || two.table(TableMode::Exclusive).map(drop).inspect(|()| two.commit())),
            scope.spawn(move || three.lock(0).map(drop).inspect(|()| three.commit())),
        ];
        threads.map(|thread| thread.join().expect("no panic"))
    });
    let victims: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    let [Error::Deadlock { cycle }] = &victims[..] else { panic!("{outcomes:?}") };
    let mut labels: Vec<_> = cycle.iter().map(|waiter| waiter.label).collect();
    labels.sort_unstable();
    assert_eq!(labels, ["one", "three", "two"]);
    assert_eq!(toy.locks.stats().deadlocks, 1);
}

/// The first waiter takes the row from the holder and then waits for the second, whose edge still names the holder. Only a
/// walk that makes the second look again finds the cycle.
#[test]
fn a_cycle_behind_a_stale_edge_is_found() {
    let toy = Toy::new(&[0, 0], 16, PATIENCE);
    let (mut holder, mut first, mut second) = (toy.begin("holder"), toy.begin("first"), toy.begin("second"));
    holder.lock(0).expect("free");
    second.lock(1).expect("free");
    let outcomes = thread::scope(|scope| {
        let first = scope.spawn(move || {
            first.lock(0).expect("after the holder");
            first.lock(1).map(drop).inspect(|()| first.commit())
        });
        until_waits(&toy, 1);
        let second = scope.spawn(move || second.lock(0).map(drop).inspect(|()| second.commit()));
        until_waits(&toy, 2);
        holder.commit();
        [first, second].map(|thread| thread.join().expect("no panic"))
    });
    let is_fair = |outcome: &Result<(), Error>| matches!(outcome, Ok(()) | Err(Error::Deadlock { .. }));
    assert!(outcomes.iter().all(is_fair) && outcomes.iter().any(Result::is_ok), "{outcomes:?}");
}

#[test]
fn a_wait_for_a_row_runs_out_of_time_and_names_the_holder() {
    let toy = Toy::new(&[0], 16, Duration::from_millis(5));
    let mut holder = toy.begin("holder");
    holder.lock(0).expect("free");
    for outcome in [toy.begin("writer").lock(0), toy.begin("reader").read(0)] {
        let Err(Error::LockTimeout { holder: "holder", waited, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(waited >= Duration::from_millis(5));
    }
    // Whoever tries again has the whole time again.
    let (mut patient, clock) = (toy.begin("patient"), SystemClock::new());
    for _ in 0..2 {
        let began = clock.now();
        patient.lock(0).expect_err("it is held");
        assert!(clock.now().since(began) >= Duration::from_millis(5));
    }
    drop(patient);
    holder.commit();
    toy.begin("next").lock(0).expect("free again");
}

/// The waiter that is woken may time out or be rolled back without ever taking the row; the next must still be woken.
#[test]
fn a_woken_waiter_that_goes_away_passes_the_row_on() {
    let toy = Toy::new(&[0, 0], 64, PATIENCE);
    for round in 0..8 {
        let mut holder = toy.begin("holder");
        holder.lock(0).expect("free");
        let before = toy.locks.stats().waits;
        thread::scope(|scope| {
            for waiter in 0..3 {
                let toy = &toy;
                scope.spawn(move || {
                    let mut txn = toy.begin("waiter");
                    txn.lock(0).expect("granted");
                    if (waiter + round) % 2 == 0 {
                        txn.commit();
                    }
                });
            }
            until_waits(&toy, before + 3);
            holder.commit();
        });
    }
    assert_eq!(toy.locks.stats().timeouts, 0);
}

/// 32 threads on 3 rows: transfers in random order, sums by readers. Nobody is forgotten (that would be a time-out),
/// every cycle is broken, and what readers see is consistent.
#[test]
fn transfers_on_hot_rows_keep_their_sum_and_nobody_times_out() {
    const THREADS: u64 = 32;
    const COMMITS: u64 = 40;
    let toy = Toy::new(&[100, 100, 100], 1 << 16, PATIENCE);
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let toy = &toy;
            scope.spawn(move || {
                let mut random = seed;
                let mut commits = 0;
                while commits < COMMITS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match work(toy, random >> 33) {
                        Ok(()) => commits += 1,
                        Err(Error::Deadlock { .. }) => (),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(toy.sum(), 300);
    assert_eq!(toy.locks.stats().timeouts, 0);
}

fn work(toy: &Toy, choice: u64) -> Result<(), Error> {
    let (from, to) = ((choice % 3) as usize, (choice / 3 % 3) as usize);
    let mut txn = toy.begin("work");
    match choice / 9 % 4 {
        0 => {
            let sum = (0..3).map(|row| txn.read((row + from) % 3)).sum::<Result<i64, _>>()?;
            assert_eq!(sum, 300, "a reader saw half a transfer");
        }
        1 => {
            // Reads first, then writes the same row: an upgrade.
            let seen = txn.read(from)?;
            thread::yield_now();
            assert_eq!(txn.lock(from)?, seen, "a read did not repeat");
            txn.add(from, -1)?;
            txn.add(to, 1)?;
        }
        _ => {
            txn.add(from, -1)?;
            thread::yield_now();
            txn.add(to, 1)?;
        }
    }
    txn.commit();
    Ok(())
}

#[test]
fn a_large_reader_meets_the_limit_and_leaves_small_ones_their_room() {
    let options = LockOptions { max_owners: 2, share_slots: 64, max_shares: 40, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut large, mut small] = ["large", "small"].map(|label| locks.lease(label).expect("two slots"));
    let mut held = 0;
    let error = loop {
        match locks.share(&mut large, Target::row(TABLE, &key(held)), Duration::ZERO) {
            Ok(()) => held += 1,
            Err(error) => break error,
        }
    };
    // Its own ten and the twenty that nobody owns.
    assert!(matches!(&error, Error::LockLimit { table, max: 40 } if table.id == TABLE), "{error:?}");
    assert_eq!((held, locks.stats().room_taken), (30, 20));
    assert!(locks.try_share(&mut large, Target::row(TABLE, &key(held))).is_err());
    for row in 0..held {
        locks
            .share(&mut large, Target::row(TABLE, &key(row)), Duration::ZERO)
            .expect("what is held needs no more room");
    }
    for row in 0..10 {
        assert!(locks.try_share(&mut small, Target::row(TABLE, &key(row))).expect("room"), "row {row} of ten");
    }
    assert!(matches!(
        locks.share(&mut small, Target::row(TABLE, &key(10)), Duration::ZERO),
        Err(Error::LockLimit { .. })
    ));
    locks.finish(&mut large, None);
    assert_eq!(locks.stats().room_taken, 0);
    locks.share(&mut small, Target::row(TABLE, &key(10)), Duration::ZERO).expect("room again");
}

#[test]
fn who_may_read_the_whole_table_enters_no_rows() {
    let options = LockOptions { max_owners: 2, share_slots: 64, max_shares: 1, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    locks.lock_table(&mut reader, TABLE, TableMode::IntentShared, Duration::ZERO).expect("free");
    locks.share(&mut reader, Target::row(TABLE, &key(0)), Duration::ZERO).expect("room");
    assert!(locks.shared_by_other(&writer, Target::row(TABLE, &key(0))), "an intent reads rows one by one");
    for mode in [TableMode::Shared, TableMode::SharedIntentExclusive, TableMode::Exclusive] {
        locks.lock_table(&mut reader, TABLE, mode, Duration::ZERO).expect("free");
        for row in 1..10 {
            locks.share(&mut reader, Target::row(TABLE, &key(row)), Duration::ZERO).expect("no room is needed");
            assert!(locks.try_share(&mut reader, Target::row(TABLE, &key(row))).expect("no room is needed"));
            assert!(!locks.shared_by_other(&writer, Target::row(TABLE, &key(row))), "{mode:?} {row}");
        }
    }
    let other = TableId(TABLE.0 + 1);
    locks.share(&mut reader, Target::row(other, &key(0)), Duration::ZERO).expect_err("another table");
}

#[test]
fn few_locks_among_many_transactions_go_to_who_comes_first() {
    let options = LockOptions { max_owners: 3, share_slots: 64, max_shares: 5, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut first, mut second] = ["first", "second"].map(|label| locks.lease(label).expect("a slot"));
    for row in 0..5 {
        locks.share(&mut first, Target::row(TABLE, &key(row)), Duration::ZERO).expect("room");
    }
    assert!(matches!(
        locks.share(&mut second, Target::row(TABLE, &key(0)), Duration::ZERO),
        Err(Error::LockLimit { table, max: 5 }) if table.id == TABLE
    ));
    locks.finish(&mut first, None);
    locks.share(&mut second, Target::row(TABLE, &key(0)), Duration::ZERO).expect("room again");
}

/// Who has the gap of a key takes its row although a writer waits for the gap: that writer waits for it.
#[test]
fn a_writer_that_waits_for_one_part_keeps_its_holder_from_no_other() {
    let toy = Toy::new(&[0], 16, PATIENCE);
    let (mut reader, mut writer) = (toy.begin("reader"), toy.begin("writer"));
    let key = key(0);
    assert!(toy.locks.try_share(&mut reader.owner, Target::gap(TABLE, Some(&key))).expect("room"));
    thread::scope(|scope| {
        let insert =
            scope.spawn(|| toy.locks.wait_exclusive(&mut writer.owner, Target::gap(TABLE, Some(&key)), PATIENCE));
        until_waits(&toy, 1);
        assert!(toy.locks.try_share(&mut reader.owner, Target::row_and_gap(TABLE, &key)).expect("room"));
        let mut late = toy.begin("late");
        assert!(toy.locks.try_share(&mut late.owner, Target::row(TABLE, &key)).expect("room"), "the row is free");
        assert!(
            !toy.locks.try_share(&mut late.owner, Target::gap(TABLE, Some(&key))).expect("room"),
            "behind the writer"
        );
        reader.commit();
        insert.join().expect("no panic").expect("granted");
    });
    writer.commit();
}
