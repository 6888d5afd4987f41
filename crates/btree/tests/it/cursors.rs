//! Promise: a cursor returns the rows of its range from both ends, in order and each once. By a snapshot it returns
//! the same rows whatever others write meanwhile.

use crate::common::{Bed, Model, Rng, WAYS, Way, key, scan_by, value};
use foreshore_base::Error;
use foreshore_lock::RowLock;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;
use std::time::Duration;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable];
const KEYS: usize = 300;

fn begin(bed: &Bed, isolation: Isolation) -> Txn {
    let lock_timeout = Duration::from_millis(1);
    bed.txns.begin(TxnOptions { isolation, lock_timeout, ..TxnOptions::default() }).unwrap()
}

/// A bound, in whatever way.
fn bound(rng: &mut Rng) -> Bound<Vec<u8>> {
    match rng.below(8) {
        0 => Bound::Unbounded,
        1..5 => Bound::Included(key(rng.below(KEYS))),
        _ => Bound::Excluded(key(rng.below(KEYS))),
    }
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// What a cursor has not returned, as the model of a cursor.
struct Left {
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl Left {
    fn take(&mut self, rows: &Model, back: bool) -> Option<(Vec<u8>, Vec<u8>)> {
        // The map refuses inverted ranges.
        let mut inside = rows.iter().filter(|(key, _)| {
            let above = match &self.lower {
                Bound::Included(lower) => *key >= lower,
                Bound::Excluded(lower) => *key > lower,
                Bound::Unbounded => true,
            };
            above
                && match &self.upper {
                    Bound::Included(upper) => *key <= upper,
                    Bound::Excluded(upper) => *key < upper,
                    Bound::Unbounded => true,
                }
        });
        let (key, value) = if back { inside.next_back() } else { inside.next() }?;
        *if back { &mut self.upper } else { &mut self.lower } = Bound::Excluded(key.clone());
        Some((key.clone(), value.clone()))
    }
}

/// Takes rows from either end at random; now and then the transaction writes one.
fn walk(bed: &Bed, rng: &mut Rng, txn: &mut Txn, rows: &mut Model, lock: Option<RowLock>) {
    let mut left = Left { lower: bound(rng), upper: bound(rng) };
    let (lower, upper) = (as_slice(&left.lower), as_slice(&left.upper));
    let mut cursor = match lock {
        None => bed.tree.range(txn, lower, upper).unwrap(),
        Some(lock) => bed.tree.range_locked(txn, lower, upper, lock).unwrap(),
    };
    let (turns, writes) = (rng.below(3), rng.below(2) * 40);
    for _ in 0..2 * KEYS {
        if rng.below(100) < writes {
            let (key, value) = (key(rng.below(KEYS)), value(rng));
            if rng.below(3) == 0 {
                assert_eq!(bed.tree.remove(txn, &key).unwrap(), rows.remove(&key));
            } else {
                assert_eq!(bed.tree.put(txn, &key, &value).unwrap(), rows.insert(key, value));
            }
        }
        let back = match turns {
            0 => rng.below(2) == 0,
            // Rarely, so that whole leaves are passed.
            1 => rng.below(50) == 0,
            _ => rng.below(50) != 0,
        };
        let row = if back { cursor.next_back(txn) } else { cursor.next(txn) };
        let row = row.unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
        let is_over = row.is_none();
        assert_eq!(row, left.take(rows, back), "back: {back}, {lock:?} at {}", txn.isolation());
        if is_over {
            // What comes now is behind both ends.
            break;
        }
    }
}

#[test]
fn from_both_ends_at_random_as_a_sorted_map() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let bed = Bed::new(if seed % 3 == 0 { 24 } else { 512 });
        let mut rows = Model::new();
        for _ in 0..rng.below(KEYS) {
            let (key, value) = (key(rng.below(KEYS)), value(&mut rng));
            bed.run(|txn| bed.tree.put(txn, &key, &value));
            rows.insert(key, value);
        }
        for level in LEVELS {
            for lock in [None, Some(RowLock::share()), Some(RowLock::update()), Some(RowLock::update().skip_locked())] {
                let mut txn = begin(&bed, level);
                walk(&bed, &mut rng, &mut txn, &mut rows.clone(), lock);
                txn.rollback().unwrap();
            }
        }
        bed.verify();
        assert_eq!(bed.contents(), rows);
    }
}

/// Writers split leaves and change, remove and roll back rows, while readers read the same snapshot in every way.
fn by_a_snapshot(frames: usize) {
    const ROUNDS: usize = 60;
    let bed = Bed::new(frames);
    let mut rng = Rng(1);
    for n in 0..KEYS / 2 {
        bed.run(|txn| bed.tree.put(txn, &key(n), &value(&mut rng)));
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (bed, ended) = (&bed, &ended);
            scope.spawn(move || {
                let mut rng = Rng(100 + writer);
                // ORDERING: hint, it ends a little later.
                while !ended.load(Ordering::Relaxed) {
                    let mut txn = begin(bed, Isolation::ReadCommitted);
                    let changed = (0..1 + rng.below(4)).try_for_each(|_| {
                        let key = key(rng.below(KEYS));
                        if rng.below(3) == 0 {
                            bed.tree.remove(&mut txn, &key).map(drop)
                        } else {
                            bed.tree.put(&mut txn, &key, &value(&mut rng)).map(drop)
                        }
                    });
                    match changed {
                        Ok(()) if rng.below(4) > 0 => drop(txn.commit().unwrap()),
                        Ok(()) | Err(Error::LockTimeout { .. } | Error::Deadlock { .. }) => {
                            txn.rollback().unwrap();
                        }
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
        let mut rng = Rng(2);
        let mut rounds = 0;
        while rounds < ROUNDS || bed.trees.stats().leaf_splits <= 20 {
            rounds += 1;
            let mut txn = begin(&bed, Isolation::Snapshot);
            let (lower, upper) = (bound(&mut rng), bound(&mut rng));
            let seen = WAYS.map(|way| scan_by(way, &bed.tree, &mut txn, as_slice(&lower), as_slice(&upper)).unwrap());
            assert!(seen[0] == seen[1] && seen[0] == seen[2], "{lower:?} {upper:?}");
            for key in seen[0].keys() {
                assert!(bed.tree.get(&mut txn, key, &mut Vec::new()).unwrap());
            }
            drop(txn.commit().unwrap());
        }
        ended.store(true, Ordering::Relaxed);
    });
    bed.verify();
    assert!(bed.trees.stats().leaf_splits > 20);
}

#[test]
fn by_a_snapshot_all_ways_are_the_same_beside_writers() {
    by_a_snapshot(1024);
}

#[test]
fn by_a_snapshot_all_ways_are_the_same_beside_writers_in_few_frames() {
    by_a_snapshot(24);
}

/// A scan that takes the last free row, and is refused one.
#[test]
fn rows_that_others_have_are_passed_over_from_the_back() {
    for level in LEVELS {
        let bed = Bed::new(64);
        for key in [b"a", b"b", b"c", b"d"] {
            bed.run(|txn| bed.tree.insert_new(txn, key, b"one"));
        }
        let mut other = begin(&bed, level);
        for key in [b"b", b"d"] {
            bed.tree.put(&mut other, key, b"two").unwrap();
        }
        for lock in [RowLock::share(), RowLock::update()] {
            let mut txn = begin(&bed, level);
            let free = lock.skip_locked();
            let mut cursor = bed.tree.range_locked(&mut txn, Bound::Unbounded, Bound::Unbounded, free).unwrap();
            let rows = Way::Down.collect(&mut cursor, &mut txn).unwrap();
            assert_eq!(rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [b"a", b"c"]);
            txn.rollback().unwrap();
            let mut txn = begin(&bed, level);
            let upper = Bound::Included(&b"c"[..]);
            let mut cursor = bed.tree.range_locked(&mut txn, Bound::Unbounded, upper, lock.no_wait()).unwrap();
            assert_eq!(cursor.next_back(&mut txn).unwrap().unwrap().0, b"c");
            assert!(matches!(cursor.next_back(&mut txn), Err(Error::RowLocked { .. })));
            let mut late = begin(&bed, Isolation::ReadCommitted);
            bed.tree.put(&mut late, b"a", b"two").unwrap();
            assert!(bed.tree.put(&mut late, b"c", b"two").is_err(), "what was handed out is locked");
        }
        drop(other);
        bed.verify();
    }
}
