//! Rows that are removed from the end of a range in one step: in which cases that is done, and what is locked then.

use crate::common::Bed;
use foreshore_base::{Error, Result};
use foreshore_btree::End;
use foreshore_lock::RowLock;
use foreshore_txn::{Isolation, RowPosition, Txn, TxnOptions};
use std::ops::Bound;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;

const VALUE: [u8; 100] = [7; 100];

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

const ALL: Bounds = (Unbounded, Unbounded);

fn bed(keys: impl IntoIterator<Item = u32>) -> Bed {
    let bed = Bed::new(256);
    for number in keys {
        bed.run(|txn| bed.tree.insert_new(txn, &key(number), &VALUE));
    }
    bed.log.force(bed.log.current()).unwrap();
    bed
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn begin(bed: &Bed, isolation: Isolation) -> Txn {
    bed.txns.begin(TxnOptions { isolation, lock_timeout: Duration::from_millis(1), ..TxnOptions::default() }).unwrap()
}

/// Removes a row at once, and returns its number and where it was.
fn pop(
    bed: &Bed,
    txn: &mut Txn,
    bounds: Bounds,
    end: End,
    last: Option<RowPosition>,
) -> Result<Option<(u32, RowPosition)>> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let at = bed
        .tree
        .pop_at_once(txn, bounds, end, last, (&mut key, &mut value), |key, value| key.len() == 4 && value == VALUE)?;
    Ok(at.map(|at| (u32::from_be_bytes(key.try_into().unwrap()), at)))
}

fn insert(bed: &Bed, number: u32) -> Result<()> {
    let mut txn = begin(bed, Isolation::ReadCommitted);
    bed.tree.insert_new(&mut txn, &key(number), &VALUE)?;
    txn.rollback().map(drop)
}

#[test]
fn rows_in_the_first_and_the_last_leaf_are_taken_at_once_and_lock_the_keys_around_them() {
    let bed = bed((0..2030).map(|number| 2 * number));
    let mut txn = begin(&bed, Isolation::Serializable);
    let (mut first, mut last) = (None, None);
    for number in 0..20 {
        let lower = if number == 0 { Unbounded } else { Excluded(key(2 * number - 2).to_vec()) };
        let upper = if number == 0 { Unbounded } else { Excluded(key(4060 - 2 * number).to_vec()) };
        let (taken, at) = pop(&bed, &mut txn, (lower.clone(), upper.clone()), End::Front, first).unwrap().unwrap();
        assert_eq!((taken, at.at), (2 * number, number as usize));
        first = Some(at);
        let (taken, at) = pop(&bed, &mut txn, (lower, upper), End::Back, last).unwrap().unwrap();
        assert_eq!(taken, 4058 - 2 * number);
        last = Some(at);
    }
    for number in [1, 37, 4021, 4059, u32::MAX] {
        assert!(matches!(insert(&bed, number), Err(Error::LockTimeout { .. })), "a phantom at {number}");
    }
    for number in [39, 2001, 4019] {
        insert(&bed, number).unwrap();
    }
    drop(txn.commit().unwrap());
    bed.verify();
}

#[test]
fn a_row_that_needs_a_wait_or_is_not_wanted_is_left_and_nothing_is_locked() {
    type Hinder = fn(&Bed) -> Option<Txn>;
    let hindrances: [(&str, Hinder); 6] = [
        ("another transaction has changed it", |bed| {
            let mut other = begin(bed, Isolation::Serializable);
            bed.tree.put(&mut other, &key(5), &[8; 100]).unwrap();
            Some(other)
        }),
        ("another transaction has removed it", |bed| {
            let mut other = begin(bed, Isolation::Serializable);
            bed.tree.remove(&mut other, &key(5)).unwrap();
            Some(other)
        }),
        ("another transaction has read it", |bed| {
            let mut other = begin(bed, Isolation::Serializable);
            assert!(bed.tree.get(&mut other, &key(5), &mut Vec::new()).unwrap());
            Some(other)
        }),
        ("another transaction has read a range with it", |bed| {
            let mut other = begin(bed, Isolation::Serializable);
            let mut rows = bed.tree.range(&mut other, Unbounded, Included(&key(5))).unwrap();
            assert!(rows.next(&mut other).unwrap().is_some());
            Some(other)
        }),
        ("its value is large", |bed| {
            bed.run(|txn| bed.tree.put(txn, &key(5), &[9; 10_000]).map(drop));
            None
        }),
        ("its value does not decode", |bed| {
            bed.run(|txn| bed.tree.put(txn, &key(5), b"unknown").map(drop));
            None
        }),
    ];
    for (what, hinder) in hindrances {
        let bed = bed(5..8);
        let other = hinder(&bed);
        let mut txn = begin(&bed, Isolation::Serializable);
        assert!(pop(&bed, &mut txn, ALL, End::Front, None).unwrap().is_none(), "{what}");
        // It does not keep others out, unless they are kept out by the one that has read the range.
        if what != "another transaction has read a range with it" {
            insert(&bed, 1).unwrap_or_else(|error| panic!("{what}: a key is locked: {error:?}"));
        }
        drop(other);
        insert(&bed, 2).unwrap_or_else(|error| panic!("{what}: a key is locked: {error:?}"));
        let mut third = begin(&bed, Isolation::Serializable);
        bed.tree.remove(&mut third, &key(5)).unwrap_or_else(|error| panic!("{what}: the row is locked: {error:?}"));
        drop(third);
        drop(txn.commit().unwrap());
        bed.verify();
    }
}

#[test]
fn a_row_outside_the_bounds_is_not_taken_also_where_the_last_one_was() {
    let bed = bed(5..9);
    let mut txn = begin(&bed, Isolation::Serializable);
    let (first, at) = pop(&bed, &mut txn, ALL, End::Front, None).unwrap().unwrap();
    assert_eq!(first, 5);
    let bounds = (Excluded(key(5).to_vec()), Excluded(key(6).to_vec()));
    assert!(pop(&bed, &mut txn, bounds, End::Front, Some(at)).unwrap().is_none());
    let bounds = || (Excluded(key(5).to_vec()), Included(key(6).to_vec()));
    let (second, at) = pop(&bed, &mut txn, bounds(), End::Front, Some(at)).unwrap().unwrap();
    assert_eq!((second, at.at), (6, 1));
    assert!(pop(&bed, &mut txn, bounds(), End::Back, None).unwrap().is_none());
    // Its own row is taken too, and its position is that of the new row.
    bed.tree.insert_new(&mut txn, &key(2), &VALUE).unwrap();
    assert_eq!(pop(&bed, &mut txn, ALL, End::Front, None).unwrap().map(|(number, _)| number), Some(2));
    drop(txn.commit().unwrap());
    assert_eq!(bed.verify().rows, 2);
}

#[test]
fn what_has_changed_since_is_a_conflict_for_a_snapshot_and_is_left_to_the_scan() {
    for is_removed in [false, true] {
        let bed = bed(5..9);
        let mut txn = begin(&bed, Isolation::Snapshot);
        bed.run(|other| {
            if is_removed {
                bed.tree.remove(other, &key(5)).map(drop)
            } else {
                bed.tree.put(other, &key(5), &VALUE).map(drop)
            }
        });
        assert!(pop(&bed, &mut txn, ALL, End::Front, None).unwrap().is_none());
        let mut cursor = bed.tree.range_locked(&mut txn, Unbounded, Unbounded, RowLock::update()).unwrap();
        assert!(matches!(cursor.next(&mut txn), Err(Error::Conflict { .. })));
        assert_eq!(pop(&bed, &mut txn, ALL, End::Back, None).unwrap().map(|(number, _)| number), Some(8));
    }
}

/// Others have read a row in the middle of a leaf. The rows before it are removed, counted and committed.
#[test]
fn a_removal_of_several_rows_ends_before_one_that_others_have_locked() {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let bed = Bed::new(64);
        bed.run(|txn| (0..100_u8).try_for_each(|n| bed.tree.put(txn, &[n], b"value").map(drop)));
        let mut shares = bed.begin();
        assert!(bed.tree.get(&mut shares, &[60], &mut Vec::new()).unwrap());
        let mut txn = bed.txns.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
        let step =
            |txn: &mut Txn, from: Bound<Vec<u8>>| bed.tree.remove_first(txn, (from, Excluded(vec![65]))).unwrap();
        let first = step(&mut txn, Included(vec![55]));
        assert_eq!(first, Some((5, Some(Excluded(vec![59])))), "{isolation:?}");
        assert_eq!(step(&mut txn, Excluded(vec![59])), None, "{isolation:?}");
        shares.rollback().unwrap();
        assert_eq!(step(&mut txn, Excluded(vec![59])), Some((5, None)), "{isolation:?}");
        drop(txn.commit().unwrap());
        let left: Vec<_> = bed.contents().into_keys().collect();
        assert!(left.into_iter().eq((0..55).chain(65..100).map(|n| vec![n])), "{isolation:?}");
        bed.log.force(bed.log.current()).unwrap();
        let (bed, _) = bed.crash();
        bed.verify();
        assert_eq!(bed.contents().len(), 90, "{isolation:?}");
    }
}
