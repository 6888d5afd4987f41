//! What a scan has seen, and what it has not seen, stays so to the end of its transaction. Tests every way in which a
//! phantom could appear, and the writers that cause none and pass.

use crate::common::{Bed, WAYS, Way, scan_by};
use foreshore_base::{Error, Result};
use foreshore_lock::RowLock;
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;

/// Rows of this size: six of them fill a leaf.
const VALUE: [u8; 1200] = [7; 1200];

type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A table with these keys, all of it durable.
fn bed(keys: &[&str]) -> Bed {
    let bed = Bed::new(256);
    for key in keys {
        bed.run(|txn| bed.tree.insert_new(txn, key.as_bytes(), &VALUE));
    }
    settle(&bed);
    bed
}

fn settle(bed: &Bed) {
    bed.log.force(bed.log.current()).unwrap();
}

fn keys(bed: &Bed, txn: &mut Txn, range: Range<'_>) -> Vec<String> {
    keys_by(Way::Up, bed, txn, range)
}

fn keys_by(way: Way, bed: &Bed, txn: &mut Txn, (lower, upper): Range<'_>) -> Vec<String> {
    let rows = scan_by(way, &bed.tree, txn, lower, upper).unwrap();
    rows.into_keys().map(|key| String::from_utf8(key).unwrap()).collect()
}

/// A transaction that does not wait.
fn attempt<T>(bed: &Bed, work: impl FnOnce(&mut Txn) -> Result<T>) -> Result<T> {
    let mut txn = bed.begin_as("writer", Duration::from_millis(1));
    let result = work(&mut txn)?;
    drop(txn.commit().unwrap());
    Ok(result)
}

fn is_kept_out<T: std::fmt::Debug>(result: Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockTimeout { holder: "reader", .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

fn insert(bed: &Bed, key: &str) -> Result<()> {
    attempt(bed, |txn| bed.tree.insert_new(txn, key.as_bytes(), &VALUE))
}

/// After a scan of `range`, inserts of `out` wait and those of `free` pass. The scan finds the same again, and once it
/// has ended all pass. That holds for every direction of the scan.
fn excludes(bed: impl Fn() -> Bed, range: Range<'_>, out: &[&str], free: &[&str]) {
    for (way, again) in [(Way::Up, Way::Down), (Way::Down, Way::Up), (Way::Inwards, Way::Inwards)] {
        let bed = bed();
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        let seen = keys_by(way, &bed, &mut reader, range);
        for key in out {
            assert!(is_kept_out(insert(&bed, key)), "a phantom at {key}, {way:?}");
        }
        for key in free {
            insert(&bed, key).unwrap_or_else(|error| panic!("{key} is none of the scan's: {error:?}, {way:?}"));
        }
        assert_eq!(keys_by(again, &bed, &mut reader, range), seen);
        drop(reader.commit().unwrap());
        for key in out {
            insert(&bed, key).unwrap();
        }
        bed.verify();
    }
}

#[test]
fn between_the_rows_of_a_range_and_at_its_ends() {
    let bed = || bed(&["b", "d", "f", "h"]);
    excludes(bed, (Included(b"b"), Included(b"f")), &["c", "e"], &["a", "g", "i"]);
    excludes(bed, (Excluded(b"b"), Excluded(b"f")), &["c", "e"], &["a", "g"]);
}

#[test]
fn in_a_range_without_rows() {
    let bed = || bed(&["b", "h"]);
    excludes(bed, (Included(b"d"), Included(b"f")), &["d", "e", "f"], &["a", "c", "g", "i"]);
}

#[test]
fn in_an_empty_table() {
    let bed = || bed(&[]);
    excludes(bed, (Unbounded, Unbounded), &["", "m", "z"], &[]);
}

#[test]
fn beyond_the_last_key() {
    let bed = || bed(&["b"]);
    excludes(bed, (Included(b"c"), Unbounded), &["c", "z"], &["a", "bb"]);
    excludes(bed, (Unbounded, Included(b"c")), &["a", "c"], &["cc", "z"]);
}

/// Keys `k000`, `k010` and so on: a few leaves.
fn leaves() -> (Bed, Vec<String>) {
    let names: Vec<String> = (0..24).map(|n| format!("k{n:02}0")).collect();
    let bed = bed(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(bed.verify().pages.len() > 4, "several leaves");
    (bed, names)
}

#[test]
fn between_all_rows_of_many_leaves() {
    let (_, names) = leaves();
    let new: Vec<String> = names.iter().map(|name| format!("{}5", &name[..3])).collect();
    let new: Vec<&str> = new.iter().map(String::as_str).collect();
    excludes(|| leaves().0, (Unbounded, Unbounded), &new, &[]);
}

/// For every pair of neighbours one scan of what is between them, of which one is the end of a leaf. The rest is free.
#[test]
fn between_the_last_row_of_a_leaf_and_the_first_of_the_next() {
    let (bed, names) = leaves();
    for (at, pair) in names.windows(2).enumerate() {
        let middle = format!("{}5", &pair[0][..3]);
        let range = (Excluded(pair[0].as_bytes()), Excluded(pair[1].as_bytes()));
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        assert!(keys_by(WAYS[at % 3], &bed, &mut reader, range).is_empty());
        assert!(is_kept_out(insert(&bed, &middle)), "a phantom at {middle}");
        let other = format!("{}7", &names[(at + 7) % 24][..3]);
        insert(&bed, &other).unwrap();
        attempt(&bed, |txn| bed.tree.remove(txn, other.as_bytes())).unwrap();
        reader.rollback().unwrap();
    }
}

#[test]
fn after_splits_of_the_leaves_that_were_scanned() {
    let bed = bed(&["b", "d", "f", "h"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let range = (Included(&b"b"[..]), Included(&b"f"[..]));
    assert_eq!(keys(&bed, &mut reader, range), ["b", "d", "f"]);
    let before = bed.trees.stats().leaf_splits + bed.trees.stats().root_splits;
    for n in 0..20 {
        insert(&bed, &format!("i{n:02}")).unwrap();
    }
    assert!(bed.trees.stats().leaf_splits + bed.trees.stats().root_splits > before + 2);
    for key in ["c", "e"] {
        assert!(is_kept_out(insert(&bed, key)), "a phantom at {key}");
    }
    // A row of the range grows until its own leaf splits as well.
    bed.tree.put(&mut reader, b"d", &[1; 2000]).unwrap();
    bed.tree.put(&mut reader, b"b", &[1; 2000]).unwrap();
    bed.tree.put(&mut reader, b"f", &[1; 2000]).unwrap();
    for key in ["c", "e"] {
        assert!(is_kept_out(insert(&bed, key)), "a phantom at {key}");
    }
    assert_eq!(keys(&bed, &mut reader, range), ["b", "d", "f"]);
    drop(reader.commit().unwrap());
    bed.verify();
}

#[test]
fn where_the_rows_beside_the_range_are_deleted_and_their_leaf_is_purged() {
    let bed = bed(&["b", "h", "m", "p"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let range = (Included(&b"d"[..]), Included(&b"f"[..]));
    assert!(keys(&bed, &mut reader, range).is_empty());
    // The range is locked, the rows beside it are not.
    for key in [&b"h"[..], b"m"] {
        attempt(&bed, |txn| bed.tree.remove(txn, key)).unwrap();
    }
    settle(&bed);
    for n in 0..8 {
        insert(&bed, &format!("z{n}")).unwrap();
    }
    assert!(bed.trees.stats().purges > 0, "the ghosts are gone");
    assert!(is_kept_out(insert(&bed, "e")), "a phantom");
    assert!(keys(&bed, &mut reader, range).is_empty());
    drop(reader.commit().unwrap());
    insert(&bed, "e").unwrap();
    bed.verify();
}

/// No ghost stays for a lock.
#[test]
fn where_the_ghosts_of_the_range_are_purged_and_its_leaf_is_split() {
    for way in WAYS {
        let bed = bed(&["b", "d", "f", "h"]);
        for key in [&b"d"[..], b"f"] {
            attempt(&bed, |txn| bed.tree.remove(txn, key)).unwrap();
        }
        settle(&bed);
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        let range = (Included(&b"c"[..]), Excluded(&b"h"[..]));
        assert!(keys_by(way, &bed, &mut reader, range).is_empty());
        let ghosts = bed.verify().ghosts;
        for n in 0..20 {
            insert(&bed, &format!("a{n:02}")).unwrap();
        }
        assert!(bed.trees.stats().purges > 0 && bed.trees.stats().leaf_splits + bed.trees.stats().root_splits > 2);
        assert!(ghosts == 2 && bed.verify().ghosts == 0, "{way:?}");
        for key in ["c", "d", "e", "f", "g"] {
            assert!(is_kept_out(insert(&bed, key)), "a phantom at {key}, {way:?}");
        }
        insert(&bed, "bb").unwrap();
        assert!(keys_by(way, &bed, &mut reader, range).is_empty());
        drop(reader.commit().unwrap());
        insert(&bed, "e").unwrap();
        bed.verify();
    }
}

#[test]
fn where_the_insert_of_a_key_beside_the_range_is_taken_back() {
    let bed = bed(&["b", "p"]);
    let mut writer = bed.begin();
    bed.tree.insert_new(&mut writer, b"h", &VALUE).unwrap();
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let range = (Included(&b"d"[..]), Included(&b"f"[..]));
    assert!(keys(&bed, &mut reader, range).is_empty());
    writer.rollback().unwrap();
    assert!(is_kept_out(insert(&bed, "e")), "a phantom");
    // The key of an insert that was rolled back has no row for any transaction.
    assert!(!attempt(&bed, |txn| bed.tree.get(txn, b"h", &mut Vec::new())).unwrap());
    insert(&bed, "h").unwrap();
    assert!(is_kept_out(insert(&bed, "e")), "a phantom");
    drop(reader.commit().unwrap());
    insert(&bed, "e").unwrap();
    bed.verify();
    assert_eq!(bed.contents().len(), 4);
    let (bed, _) = bed.crash();
    assert_eq!(bed.contents().len(), 4);
}

#[test]
fn where_a_row_of_the_range_was_deleted() {
    let bed = || {
        let bed = bed(&["b", "d", "f"]);
        attempt(&bed, |txn| bed.tree.remove(txn, b"d")).unwrap();
        bed
    };
    excludes(bed, (Included(b"b"), Included(b"f")), &["c", "d", "e"], &["a", "g"]);
}

#[test]
fn by_a_deletion_or_a_change_in_the_range() {
    let bed = bed(&["b", "d", "f"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    assert_eq!(keys(&bed, &mut reader, (Included(b"b"), Included(b"e"))), ["b", "d"]);
    for key in [&b"b"[..], b"d"] {
        assert!(is_kept_out(attempt(&bed, |txn| bed.tree.remove(txn, key))));
        assert!(is_kept_out(attempt(&bed, |txn| bed.tree.update(txn, key, b"new"))));
    }
    // The row f is not of the range, nor are keys between its end and f.
    attempt(&bed, |txn| bed.tree.update(txn, b"f", b"new")).unwrap();
    attempt(&bed, |txn| bed.tree.remove(txn, b"f")).unwrap();
    assert!(is_kept_out(insert(&bed, "e")));
    insert(&bed, "ee").unwrap();
}

/// However many rows a step takes, and whatever the transaction writes in between.
#[test]
fn behind_an_upper_bound_that_is_there_nothing_is_locked() {
    for (upper, free) in [("b", "c"), ("d", "e"), ("f", "g"), ("h", "i")] {
        let rows = || bed(&["b", "d", "f", "h", "j"]);
        let range = (Unbounded, Included(upper.as_bytes()));
        excludes(rows, range, &["a"], &[free]);
        let bed = rows();
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        let mut cursor = bed.tree.range(&mut reader, range.0, range.1).unwrap();
        while cursor.next(&mut reader).unwrap().is_some_and(|(key, _)| key < upper.as_bytes()) {}
        bed.tree.put(&mut reader, upper.as_bytes(), b"new").unwrap();
        assert!(cursor.next(&mut reader).unwrap().is_none());
        insert(&bed, &format!("{free}{free}")).unwrap();
    }
}

#[test]
fn a_range_in_which_nothing_can_lie_locks_nothing() {
    let bed = bed(&["b", "h"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    for range in [
        (Included(&b"f"[..]), Included(&b"d"[..])),
        (Included(b"d"), Excluded(b"d")),
        (Excluded(b"d"), Included(b"d")),
        (Excluded(b"d"), Excluded(b"d")),
    ] {
        assert!(keys(&bed, &mut reader, range).is_empty());
    }
    for key in ["c", "d", "e"] {
        insert(&bed, key).unwrap();
    }
}

/// The holder of a row inserts in front of it and behind it while a scan waits for the row: the scan has not covered
/// those keys yet.
#[test]
fn a_scan_that_waits_for_a_row_keeps_its_holder_from_no_key_beside_it() {
    for (way, lock) in WAYS.into_iter().flat_map(|way| [(way, RowLock::share()), (way, RowLock::update())]) {
        let bed = bed(&["b", "f"]);
        let mut writer = bed.begin();
        bed.tree.update(&mut writer, b"f", b"new").unwrap();
        thread::scope(|scope| {
            let scan = scope.spawn(|| {
                bed.run(|txn| {
                    let mut cursor = bed.tree.range_locked(txn, Unbounded, Unbounded, lock)?;
                    way.collect(&mut cursor, txn)
                })
            });
            while bed.txns.stats().locks.waits < 1 {
                thread::yield_now();
            }
            bed.tree.insert_new(&mut writer, b"d", b"").unwrap();
            bed.tree.insert_new(&mut writer, b"h", b"").unwrap();
            drop(writer.commit().unwrap());
            let seen: Vec<_> = scan.join().unwrap().into_iter().map(|(key, _)| key).collect();
            assert_eq!(seen, [b"b", b"d", b"f", b"h"], "{way:?}");
        });
        assert_eq!(bed.txns.stats().locks.deadlocks, 0, "{way:?}");
    }
}

/// Each takes the last row and adds one behind it.
#[test]
fn a_waiter_for_the_last_row_keeps_no_writer_from_adding_one() {
    const ROUNDS: u16 = 200;
    let bed = bed(&[]);
    bed.run(|txn| bed.tree.insert_new(txn, &0_u16.to_be_bytes(), b""));
    let append = || {
        for _ in 0..ROUNDS {
            bed.run(|txn| {
                let mut cursor = bed.tree.range_locked(txn, Unbounded, Unbounded, RowLock::update())?;
                let (last, _) = cursor.next_back(txn)?.expect("a row");
                let last = u16::from_be_bytes(last.try_into().expect("two bytes"));
                // The other comes here, too.
                thread::yield_now();
                bed.tree.insert_new(txn, &(last + 1).to_be_bytes(), b"")
            });
        }
    };
    thread::scope(|scope| {
        scope.spawn(append);
        scope.spawn(append);
    });
    assert_eq!(bed.contents().len(), 1 + 2 * usize::from(ROUNDS));
    assert_eq!(bed.txns.stats().locks.deadlocks, 0);
}

/// A writer is queued on a key to insert it, so a scan that does not wait is refused that key. By then it has handed
/// out the row before the key, wherever leaves end, and has locked nothing behind it; from the back it has no row of
/// it.
#[test]
fn a_scan_that_is_refused_a_key_has_handed_out_what_it_has_locked() {
    for lock in [RowLock::share().no_wait(), RowLock::update().no_wait()] {
        let (bed, names) = leaves();
        for pair in names.windows(2) {
            let (below, above) = (pair[0].as_bytes(), pair[1].as_bytes());
            let mut reader = bed.begin_as("reader", Duration::from_secs(10));
            assert!(keys(&bed, &mut reader, (Excluded(below), Excluded(above))).is_empty());
            let middle = [&below[..3], b"5"].concat();
            let before = bed.txns.stats().locks.waits;
            thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut txn = bed.begin();
                    bed.tree.insert_new(&mut txn, &middle, b"").unwrap();
                    txn.rollback().unwrap();
                });
                while bed.txns.stats().locks.waits == before {
                    thread::yield_now();
                }
                let mut up = bed.begin_as("up", Duration::ZERO);
                let mut cursor = bed.tree.range_locked(&mut up, Included(below), Unbounded, lock).unwrap();
                assert_eq!(cursor.next(&mut up).unwrap().unwrap().0, below, "{lock:?}");
                assert!(matches!(cursor.next(&mut up), Err(Error::RowLocked { .. })));
                let mut late = begin_late(&bed);
                assert!(bed.tree.put(&mut late, below, b"new").is_err(), "what was handed out is locked");
                bed.tree.put(&mut late, above, &VALUE).unwrap();
                late.rollback().unwrap();
                up.rollback().unwrap();
                let mut down = bed.begin_as("down", Duration::ZERO);
                let mut cursor = bed.tree.range_locked(&mut down, Unbounded, Included(&middle), lock).unwrap();
                assert!(matches!(cursor.next_back(&mut down), Err(Error::RowLocked { .. })));
                bed.tree.put(&mut begin_late(&bed), below, &VALUE).unwrap();
                down.rollback().unwrap();
                reader.rollback().unwrap();
                writer.join().unwrap();
            });
        }
    }
}

/// Its locks of rows are like those of all, and it scans no range.
fn begin_late(bed: &Bed) -> Txn {
    let (isolation, lock_timeout) = (Isolation::ReadCommitted, Duration::ZERO);
    bed.txns.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

/// A scan goes on after a refusal where it was, with the rows that its transaction has written there meanwhile.
#[test]
fn of_its_own_behind_a_row_that_was_refused() {
    let (bed, names) = leaves();
    for at in 4..names.len() - 4 {
        for end in [-1, 1] {
            let mut writer = bed.begin();
            bed.tree.put(&mut writer, names[at].as_bytes(), &VALUE).unwrap();
            let mut reader = bed.begin_as("reader", Duration::ZERO);
            let range = (Included(names[at - 4].as_bytes()), Included(names[at + 4].as_bytes()));
            let mut cursor = bed.tree.range_locked(&mut reader, range.0, range.1, RowLock::share().no_wait()).unwrap();
            let mut next = |reader: &mut Txn| {
                let row = if end < 0 { cursor.next(reader) } else { cursor.next_back(reader) };
                row.map(|row| row.map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()))
            };
            let mut last = None;
            let refused = loop {
                match next(&mut reader) {
                    Ok(row) => last = row,
                    Err(error) => break error,
                }
            };
            let (below, beside) = if end < 0 { (at - 1, at - 1) } else { (at, at + 1) };
            assert!(matches!(refused, Error::RowLocked { .. }), "{refused:?}");
            assert_eq!(last.as_ref(), Some(&names[beside]));
            let own = format!("{}5", &names[below][..3]);
            bed.tree.insert_new(&mut reader, own.as_bytes(), &VALUE).unwrap();
            writer.rollback().unwrap();
            assert_eq!(next(&mut reader).unwrap(), Some(own), "at {at}, {end}");
            assert_eq!(next(&mut reader).unwrap().as_ref(), Some(&names[at]));
            reader.rollback().unwrap();
        }
    }
}

/// A transaction that writes between two rows of a scan locks no row ahead of it.
#[test]
fn a_writer_between_rows_does_not_lock_beyond_the_next_row() {
    for way in [Way::Up, Way::Down] {
        let names: Vec<String> = (b'a'..=b'p').map(|letter| char::from(letter).to_string()).collect();
        let bed = bed(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        let mut cursor = bed.tree.range(&mut reader, Unbounded, Excluded(b"q")).unwrap();
        for n in 0..8_u8 {
            let row = if way == Way::Up { cursor.next(&mut reader) } else { cursor.next_back(&mut reader) };
            let at = usize::from(if way == Way::Up { n } else { 15 - n });
            assert_eq!(row.unwrap().unwrap().0, names[at].as_bytes());
            bed.tree.put(&mut reader, &[b'z', n], b"").unwrap();
        }
        for name in if way == Way::Up { &names[8..] } else { &names[..8] } {
            attempt(&bed, |txn| bed.tree.update(txn, name.as_bytes(), b"new")).unwrap();
        }
    }
}

/// What a transaction has written it has locked, and a scan over it takes no room for further locks.
#[test]
fn a_scan_over_rows_of_ones_own_locks_no_row() {
    let bed = bed(&[]);
    let isolation = Isolation::ReadCommitted;
    let mut txn = bed.txns.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
    for n in 0..200_u16 {
        bed.tree.insert_new(&mut txn, &n.to_be_bytes(), b"").unwrap();
    }
    let mut cursor = bed.tree.range_locked(&mut txn, Unbounded, Unbounded, RowLock::share()).unwrap();
    assert_eq!(Way::Up.collect(&mut cursor, &mut txn).unwrap().len(), 200);
    assert_eq!(bed.txns.stats().locks.units_borrowed, 0);
    let mut other = begin_late(&bed);
    assert!(bed.tree.put(&mut other, &7_u16.to_be_bytes(), b"new").is_err(), "the row is locked");
}

/// A key in one's own range changes nothing about the range.
#[test]
fn before_a_key_that_the_scanner_itself_has_inserted() {
    let (bed, names) = leaves();
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    for (at, pair) in names.windows(2).enumerate() {
        assert!(
            keys_by(WAYS[at % 3], &bed, &mut reader, (Excluded(pair[0].as_bytes()), Excluded(pair[1].as_bytes())))
                .is_empty()
        );
    }
    for name in &names[..23] {
        bed.tree.insert_new(&mut reader, format!("{}5", &name[..3]).as_bytes(), &VALUE).unwrap();
    }
    for name in &names[..23] {
        for digit in [3, 7] {
            let key = format!("{}{digit}", &name[..3]);
            assert!(is_kept_out(insert(&bed, &key)), "a phantom at {key}");
        }
    }
    drop(reader.commit().unwrap());
    bed.verify();
}

/// Two have scanned the range: neither inserts into it while the other is there.
#[test]
fn in_a_range_that_two_have_scanned() {
    let bed = bed(&["b", "h"]);
    let range = (Included(&b"d"[..]), Included(&b"f"[..]));
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let mut other = bed.begin_as("other", Duration::from_millis(1));
    assert!(keys(&bed, &mut reader, range).is_empty() && keys(&bed, &mut other, range).is_empty());
    assert!(is_kept_out(bed.tree.put(&mut other, b"e", b"")));
    drop(other);
    bed.tree.put(&mut reader, b"e", b"").unwrap();
    drop(reader.commit().unwrap());
}

#[test]
fn writers_between_two_rows_without_scans_do_not_wait() {
    let bed = bed(&["b", "h"]);
    let mut writers: Vec<Txn> = (0..4).map(|_| bed.begin_as("writer", Duration::from_millis(1))).collect();
    for (at, writer) in writers.iter_mut().enumerate() {
        bed.tree.insert_new(writer, format!("d{at}").as_bytes(), b"").unwrap();
        assert!(!bed.tree.get(writer, format!("f{at}").as_bytes(), &mut Vec::new()).unwrap());
        bed.tree.insert_new(writer, format!("e{at}").as_bytes(), b"").unwrap();
    }
    for writer in writers {
        drop(writer.commit().unwrap());
    }
    bed.verify();
}

/// The first row of a table locks no other.
#[test]
fn a_claim_of_one_row_locks_one_row() {
    let bed = bed(&["b", "d", "f", "h"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let mut cursor = bed.tree.range(&mut reader, Unbounded, Unbounded).unwrap();
    assert_eq!(cursor.next(&mut reader).unwrap().unwrap().0, b"b");
    for key in [&b"d"[..], b"f", b"h"] {
        attempt(&bed, |txn| bed.tree.update(txn, key, b"new")).unwrap();
    }
    insert(&bed, "e").unwrap();
    assert!(is_kept_out(insert(&bed, "a")));
    let mut rest = Vec::new();
    while let Some((key, _)) = cursor.next(&mut reader).unwrap() {
        rest.push(String::from_utf8(key.to_vec()).unwrap());
    }
    assert_eq!(rest, ["d", "e", "f", "h"]);
}

/// The same for the last row, and the end of the table.
#[test]
fn a_claim_of_the_last_row_locks_it_and_the_end() {
    let bed = bed(&["b", "d", "f", "h"]);
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let mut cursor = bed.tree.range(&mut reader, Unbounded, Unbounded).unwrap();
    assert_eq!(cursor.next_back(&mut reader).unwrap().unwrap().0, b"h");
    for key in [&b"b"[..], b"d", b"f"] {
        attempt(&bed, |txn| bed.tree.update(txn, key, b"new")).unwrap();
    }
    insert(&bed, "e").unwrap();
    insert(&bed, "g").unwrap();
    assert!(is_kept_out(insert(&bed, "hh")) && is_kept_out(insert(&bed, "i")));
    let mut rest = Vec::new();
    while let Some((key, _)) = cursor.next_back(&mut reader).unwrap() {
        rest.push(String::from_utf8(key.to_vec()).unwrap());
    }
    assert_eq!(rest, ["g", "f", "e", "d", "b"]);
    assert!(is_kept_out(insert(&bed, "a")));
}

/// Between steps of a backward scan, keys are inserted into leaves that it has not reached, and into none that it has.
#[test]
fn to_the_right_of_a_scan_from_the_back() {
    let (bed, names) = leaves();
    let mut reader = bed.begin_as("reader", Duration::from_secs(10));
    let mut cursor = bed.tree.range(&mut reader, Unbounded, Unbounded).unwrap();
    let mut seen = Vec::new();
    while let Some((key, _)) = cursor.next_back(&mut reader).unwrap() {
        let key = String::from_utf8(key.to_vec()).unwrap();
        let before = format!("{}5", &key[..3]);
        assert!(key.ends_with('5') || is_kept_out(insert(&bed, &before)), "a phantom at {before}");
        seen.push(key);
        // Two leaves further left.
        if let Some(far) = names.len().checked_sub(seen.len() + 12) {
            insert(&bed, &format!("{}3", &names[far][..3])).unwrap();
        }
    }
    let all = keys(&bed, &mut reader, (Unbounded, Unbounded));
    assert_eq!(seen.into_iter().rev().collect::<Vec<_>>(), all);
    assert!(all.len() > names.len(), "some have come");
}

/// Each leaf's low fence is its first key here, and the steps of a scan from the back double. So steps of some scans
/// end exactly at a low fence, and the next step has to find the previous leaf.
#[test]
fn behind_a_step_from_the_back_that_ends_at_the_low_fence_of_its_leaf() {
    let names: Vec<String> = (0..24).map(|n| format!("{n:02}")).collect();
    let bed = bed(&names.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(bed.verify().pages.len() > 4, "several leaves");
    for last in 0..names.len() {
        let mut reader = bed.begin_as("reader", Duration::from_secs(10));
        let range = (Unbounded, Included(names[last].as_bytes()));
        assert_eq!(keys_by(Way::Down, &bed, &mut reader, range), names[..=last]);
        for name in &names[..last] {
            assert!(is_kept_out(insert(&bed, &format!("{name}5"))), "a phantom behind {name}");
        }
        reader.rollback().unwrap();
    }
}
