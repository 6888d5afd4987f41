//! Row locks: readers against writers, turns, upgrades, hand-off of the header lock, deadlocks.

use crate::toy::{PATIENCE, TABLE, Toy, key};
use foreshore_base::Error;
use foreshore_lock::{TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::time::Duration;

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
            let passed = toy.locks.try_share(&mut late.owner, Target::row(TABLE, &key(0))).is_some();
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

/// One waits for a reader, the reader for a table, its holder for one. Whichever comes last, exactly one is refused.
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

/// The first waiter takes the row from the holder and then waits for the second, whose edge still names the holder.
/// Only a walk that makes the second look again finds the cycle.
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
    // A transaction that tries again has the whole time again.
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

/// 32 threads on 3 rows: transfers in random order, sums by readers. No waiter is forgotten (that would be a time-out),
/// every cycle is broken, and what readers see is consistent.
#[test]
fn transfers_on_hot_rows_keep_their_sum_and_none_times_out() {
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
                        Err(error) => panic!("{error:?}"),
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
