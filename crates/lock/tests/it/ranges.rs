//! Range locks, and what becomes of point locks where memory is short.

use crate::toy::{PATIENCE, TABLE, Toy, key};
use foreshore_base::{Error, TableId};
use foreshore_lock::{Interval, LockManager, LockOptions, Owner, TableMode, Target};
use foreshore_sync::primitive::thread;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

fn until_waits(toy: &Toy, waits: u64) {
    while toy.locks.stats().waits < waits {
        thread::yield_now();
    }
}

/// Returns the interval of the keys of rows `from..=to`.
fn keys(from: usize, to: usize) -> Interval {
    Interval::between(Bound::Included(&key(from)), Bound::Included(&key(to)))
}

/// The reader locks two rows of one table and a thousand of another. Only the locks in the second are merged.
#[test]
fn a_reader_whose_share_is_spent_has_one_interval_in_place_of_its_locks() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 160, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut large, mut writer] = ["large", "writer"].map(|label| locks.lease(label).expect("two slots"));
    let beside = TableId(TABLE.0 + 1);
    let read = |owner: &mut Owner, table, row| locks.share(owner, Target::row(table, &key(row)), Duration::ZERO);
    let is_locked = |table, row| locks.shared_by_other(&writer, Target::row(table, &key(row)));
    read(&mut large, beside, 1).expect("free");
    read(&mut large, beside, 9).expect("free");
    // Each of the two owners has 40 of the 160 units for itself. An owner borrows 40 of the other 80 at a time, but
    // never more than a quarter of them. So the reader has 40 units, for two rows and these 38.
    for row in 0..38 {
        read(&mut large, TABLE, 2 * row).expect("free");
    }
    assert_eq!(locks.stats().units_borrowed, 0);
    assert!(is_locked(TABLE, 74) && !is_locked(TABLE, 73), "rows one by one");
    for row in 38..1000 {
        read(&mut large, TABLE, 2 * row).expect("its locks are merged");
        assert!(locks.stats().units_borrowed <= 20);
        assert!(is_locked(TABLE, 0) && is_locked(TABLE, 2 * row) && !is_locked(TABLE, 2 * row + 1), "{row}");
    }
    assert!(is_locked(TABLE, 73) && is_locked(TABLE, 601), "merged");
    assert!(
        is_locked(beside, 1) && !is_locked(beside, 2) && is_locked(beside, 9),
        "the table that takes most is merged"
    );
    assert_eq!(large.held_ranges().iter().filter(|held| held.table == beside).count(), 2);
    // What an interval covers takes no more locks.
    let held = large.held_ranges();
    (0..500).for_each(|row| read(&mut large, TABLE, row).expect("covered"));
    assert_eq!(large.held_ranges(), held);
    let refused = locks.wait_exclusive(&mut writer, Target::row(TABLE, &key(73)), Duration::ZERO);
    assert!(matches!(refused, Err(Error::LockTimeout { holder: "large", .. })), "{refused:?}");
    locks.finish(&mut large, None);
    assert_eq!(locks.stats().units_borrowed, 0);
    assert!((0..2000).all(|row| !locks.shared_by_other(&writer, Target::row(TABLE, &key(row)))));
}

/// However little memory there is, and however many tables: no lock is refused, and each table has one interval in the
/// end.
#[test]
fn locks_are_coarser_where_there_is_no_memory_for_them() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 1, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    for table in 0..20 {
        for row in [5, 1, 9] {
            locks.share(&mut reader, Target::row(TableId(table), &key(row)), Duration::ZERO).expect("free");
            let point = Interval::of_key(&key(100 + row));
            assert!(locks.try_cover(&mut reader, TableId(table), &point).is_some());
        }
    }
    for table in (0..20).map(TableId) {
        assert!(
            [1, 5, 9, 101, 109].into_iter().all(|row| locks.shared_by_other(&writer, Target::row(table, &key(row))))
        );
        assert!([0, 110].into_iter().all(|row| !locks.shared_by_other(&writer, Target::row(table, &key(row)))));
        assert!(reader.held_ranges().iter().filter(|held| held.table == table).count() <= 2, "{table}");
    }
    assert!(locks.stats().units_borrowed <= 1);
}

/// A request that does not wait can remove what it has added, unless its locks were merged meanwhile.
#[test]
fn uncovering_an_interval_leaves_the_earlier_ones() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 40, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    let is_locked = |row| locks.shared_by_other(&writer, Target::row(TABLE, &key(row)));
    let first = locks.try_cover(&mut reader, TABLE, &keys(1, 3)).expect("free");
    let second = locks.try_cover(&mut reader, TABLE, &keys(2, 7)).expect("free");
    let third = locks.try_cover(&mut reader, TABLE, &keys(3, 5)).expect("free");
    locks.uncover(&mut reader, third);
    assert!((1..8).all(is_locked), "nothing was new");
    locks.uncover(&mut reader, second);
    assert!(is_locked(3) && !is_locked(4));
    locks.uncover(&mut reader, first);
    assert!((0..9).all(|row| !is_locked(row)));
    assert!(reader.held_ranges().is_empty());
    let kept = locks.try_cover(&mut reader, TABLE, &keys(1, 1)).expect("free");
    (0..100).for_each(|row| assert!(locks.try_share(&mut reader, Target::row(TABLE, &key(10 + 2 * row))).is_some()));
    locks.uncover(&mut reader, kept);
    assert!(is_locked(1) && is_locked(11), "merged");
    locks.finish(&mut reader, None);
    assert!((0..300).all(|row| !is_locked(row)));
}

/// The wait adds no lock, because the rows may change before it ends. A lock on keys that are then not read might be
/// merged with others, and would stay.
#[test]
fn a_wait_for_the_writers_in_an_interval_leaves_the_locks_as_they_are() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 40, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    (0..10).for_each(|row| assert!(locks.try_share(&mut reader, Target::row(TABLE, &key(10 + 2 * row))).is_some()));
    let held = reader.held_ranges();
    assert_eq!(held.len(), 10, "as many as fit");
    locks.wait_to_cover(&mut reader, TABLE, &keys(0, 3), Duration::ZERO).expect("no writer is queued");
    assert_eq!(reader.held_ranges(), held);
    assert!([1, 11].into_iter().all(|row| !locks.shared_by_other(&writer, Target::row(TABLE, &key(row)))));
}

/// Three transactions make a thousand small scans each. The intervals are not merged, so no writer of a key between
/// them waits.
#[test]
fn many_small_scans_lock_no_keys_between_them() {
    const SCANS: usize = 1000;
    let options = LockOptions { max_owners: 4, share_slots: 64, memory_units: 1 << 16, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let mut readers = ["one", "two", "three"].map(|label| locks.lease(label).expect("a slot"));
    let writer = locks.lease("writer").expect("a slot");
    let is_locked = |row| locks.shared_by_other(&writer, Target::row(TABLE, &key(row)));
    let low = |reader: usize, scan: usize| 20 * ((scan * 7919) % SCANS) + 6 * reader;
    for scan in 0..SCANS {
        for (at, reader) in readers.iter_mut().enumerate() {
            assert!(locks.try_cover(reader, TABLE, &keys(low(at, scan), low(at, scan) + 2)).is_some());
        }
    }
    let check = |first: usize| {
        for row in 0..20 * SCANS {
            let (reader, within) = (row % 20 / 6, row % 20 % 6);
            assert_eq!(is_locked(row), (first..3).contains(&reader) && within <= 2, "row {row}");
        }
    };
    for (first, reader) in readers.iter_mut().enumerate() {
        check(first);
        assert_eq!(reader.held_ranges().len(), SCANS);
        locks.finish(reader, None);
    }
    check(3);
    assert_eq!(locks.stats().units_borrowed, 0);
}

/// Above 1,024 intervals of a transaction in a table, the nearest neighbours are merged. After that, `uncover` keeps
/// what a request has added.
#[test]
fn very_many_small_scans_are_merged_with_their_neighbours() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 1 << 16, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    let is_locked = |row| locks.shared_by_other(&writer, Target::row(TABLE, &key(row)));
    let mut most = 0;
    // Pairs of keys near each other, and far from the next pair.
    for pair in 0..3000 {
        for row in [100 * pair, 100 * pair + 2] {
            let before = reader.held_ranges().len();
            let new = locks.try_cover(&mut reader, TABLE, &keys(row, row)).expect("free");
            let held = reader.held_ranges().len();
            assert!((2..=1024).contains(&held) || held == before + 1, "{held} intervals after {before}");
            if held < before {
                locks.uncover(&mut reader, new);
                assert!(is_locked(row), "merged, and so it stays");
            }
            most = most.max(held);
        }
    }
    assert!(most > 1000);
    assert!((0..3000).all(|pair| is_locked(100 * pair) && is_locked(100 * pair + 2)));
    let between = (0..500).filter(|&pair| is_locked(100 * pair + 1)).count();
    assert!(between > 400, "{between} of 500 pairs are merged");
    assert!(!is_locked(300_000));
    locks.finish(&mut reader, None);
    assert!((0..300_000).step_by(7).all(|row| !is_locked(row)));
    assert_eq!(locks.stats().units_borrowed, 0);
}

/// However long a scan is, it has one interval.
#[test]
fn a_long_scan_has_one_interval_that_grows() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 128, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut scan, writer] = ["scan", "writer"].map(|label| locks.lease(label).expect("two slots"));
    for leaf in 0..50_000 {
        let new = locks.try_cover(&mut scan, TABLE, &keys(60 * leaf, 60 * leaf + 60)).expect("free");
        if leaf % 1000 == 7 {
            locks.uncover(&mut scan, new);
            assert!(!locks.shared_by_other(&writer, Target::row(TABLE, &key(60 * leaf + 1))));
            assert!(locks.try_cover(&mut scan, TABLE, &keys(60 * leaf, 60 * leaf + 60)).is_some());
        }
        assert!(locks.shared_by_other(&writer, Target::row(TABLE, &key(60 * leaf + 1))));
    }
    assert_eq!((scan.held_ranges().len(), locks.stats().units_borrowed), (1, 0));
}

#[test]
fn a_transaction_that_may_read_the_whole_table_enters_no_keys() {
    let options = LockOptions { max_owners: 2, share_slots: 64, memory_units: 1, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let [mut reader, writer] = ["reader", "writer"].map(|label| locks.lease(label).expect("two slots"));
    locks.lock_table(&mut reader, TABLE, TableMode::IntentShared, Duration::ZERO).expect("free");
    locks.share(&mut reader, Target::row(TABLE, &key(0)), Duration::ZERO).expect("free");
    assert!(locks.shared_by_other(&writer, Target::row(TABLE, &key(0))), "an intent reads rows one by one");
    for mode in [TableMode::Shared, TableMode::SharedIntentExclusive, TableMode::Exclusive] {
        locks.lock_table(&mut reader, TABLE, mode, Duration::ZERO).expect("free");
        for row in 1..10 {
            locks.share(&mut reader, Target::row(TABLE, &key(row)), Duration::ZERO).expect("covered");
            assert!(locks.try_share(&mut reader, Target::row(TABLE, &key(row))).is_some());
            assert!(locks.try_cover(&mut reader, TABLE, &Interval::of_key(&key(row))).is_some());
            assert!(!locks.shared_by_other(&writer, Target::row(TABLE, &key(row))), "{mode:?} {row}");
        }
    }
}

/// A writer waits for a key that a scan and a reader have. New intervals and point locks of the key come behind it,
/// unless their owner is one of those that it waits for; other keys are free.
#[test]
fn a_new_interval_waits_behind_a_writer_that_its_owner_does_not_block() {
    let toy = Toy::new(&[0; 4], 16, PATIENCE);
    let (mut scan, mut reader, mut writer) = (toy.begin("scan"), toy.begin("reader"), toy.begin("writer"));
    assert!(toy.locks.try_cover(&mut scan.owner, TABLE, &keys(0, 1)).is_some());
    reader.read(1).expect("free");
    thread::scope(|scope| {
        let locks = &toy.locks;
        let write = scope.spawn(move || {
            locks.wait_exclusive(&mut writer.owner, Target::row(TABLE, &key(1)), PATIENCE).expect("granted");
            writer
        });
        until_waits(&toy, 1);
        assert!(toy.locks.try_cover(&mut scan.owner, TABLE, &keys(0, 3)).is_some(), "the writer waits for the scan");
        assert!(toy.locks.try_share(&mut scan.owner, Target::row(TABLE, &key(1))).is_some(), "it has the key");
        assert!(
            toy.locks.try_cover(&mut reader.owner, TABLE, &keys(0, 2)).is_some(),
            "the writer waits for the reader"
        );
        let mut late = toy.begin("late");
        assert!(toy.locks.try_cover(&mut late.owner, TABLE, &keys(0, 1)).is_none(), "behind the writer");
        assert!(toy.locks.try_share(&mut late.owner, Target::row(TABLE, &key(1))).is_none(), "behind the writer");
        assert!(toy.locks.try_cover(&mut late.owner, TABLE, &keys(2, 3)).is_some(), "other keys");
        let refused = toy.locks.range_refusal(&late.owner, TABLE, &keys(0, 1));
        assert!(matches!(refused, Error::RowLocked { holder: "writer", .. }), "{refused:?}");
        let waits = scope.spawn(move || {
            locks.wait_to_cover(&mut late.owner, TABLE, &keys(0, 1), PATIENCE).expect("granted behind the writer");
            assert!(locks.try_cover(&mut late.owner, TABLE, &keys(0, 1)).is_some(), "no writer is queued");
            late.commit();
        });
        until_waits(&toy, 2);
        scan.commit();
        reader.commit();
        let mut writer = write.join().expect("granted");
        assert!(!waits.is_finished(), "the turn of the writer keeps the interval out");
        toy.locks.end_exclusive(&mut writer.owner);
        waits.join().expect("granted");
        writer.commit();
    });
}

/// Three readers wait for the writer of a row, and the first has an interval that covers the row. When the first is
/// woken, it wakes the next one at once, and not when it ends.
#[test]
fn a_reader_under_an_interval_keeps_no_other_reader_waiting() {
    let toy = Toy::new(&[0], 16, Duration::from_secs(10));
    let mut writer = toy.begin("writer");
    writer.add(0, 1).expect("free");
    thread::scope(|scope| {
        let toy = &toy;
        let mut readers = Vec::new();
        for waits in 1..4 {
            let mut reader = toy.begin("reader");
            if waits == 1 {
                // As after a merge.
                assert!(toy.locks.try_cover(&mut reader.owner, TABLE, &keys(0, 9)).is_some());
            }
            readers.push(scope.spawn(move || (reader.read(0), reader)));
            until_waits(toy, waits);
        }
        writer.commit();
        let ended: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
        assert!(ended.iter().all(|(read, _)| matches!(read, Ok(1))), "woken while the first goes on");
    });
}

/// A scan's locks are merged over the key of a writer that has its turn. The writer waits again, and keeps its place
/// before a writer that came later.
#[test]
fn a_writer_that_finds_its_key_shared_again_keeps_its_place() {
    let options = LockOptions { max_owners: 3, share_slots: 64, memory_units: 160, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let owners = ["scan", "first", "second"].map(|label| locks.lease(label).expect("three slots"));
    let [mut scan, mut first, mut second] = owners;
    let middle = key(1);
    let wait = &|owner: &mut Owner| locks.wait_exclusive(owner, Target::row(TABLE, &middle), PATIENCE);
    let until_waits = |waits| {
        while locks.stats().waits < waits {
            thread::yield_now();
        }
    };
    wait(&mut first).expect("free");
    for row in (0..1000).filter(|&row| row != 1) {
        locks.share(&mut scan, Target::row(TABLE, &key(row)), Duration::ZERO).expect("free");
    }
    assert!(locks.shared_by_other(&first, Target::row(TABLE, &middle)), "merged over the key");
    thread::scope(|scope| {
        let late = scope.spawn(|| wait(&mut second));
        until_waits(1);
        let again = scope.spawn(move || wait(&mut first).map(|()| first));
        until_waits(2);
        locks.finish(&mut scan, None);
        let mut first = again.join().expect("no panic").expect("the scan has ended");
        assert!(!late.is_finished(), "the turn of the first writer");
        locks.end_exclusive(&mut first);
        late.join().expect("no panic").expect("the first writer has ended its turn");
    });
}
