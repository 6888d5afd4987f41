//! Serializable transactions under many schedules: the real tree over the real pool. Whatever rows, ranges and tables
//! they lock, those that committed have seen the same as in some serial order. Every deadlock is found by the walk, as
//! no wait has a timeout.

use crate::common::{self, Bed, Modes, Rng, WAYS, Way};
use crate::four_keys::{FIXED, KEYS, fill, tag, value};
use foreshore_base::{Error, Result};
use foreshore_btree::End;
use foreshore_lock::RowLock;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::Txn;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 150;

fn bed() -> Arc<Bed> {
    Arc::new(fill(Bed::new(32)))
}

fn begin(bed: &Bed) -> Txn {
    bed.begin_as("test", Duration::MAX)
}

/// The keys of transactions between two bounds, and their tags.
fn scan(bed: &Bed, txn: &mut Txn, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Vec<(Vec<u8>, u16)>> {
    scan_by(Way::Up, bed, txn, (lower, upper))
}

fn scan_by(
    way: Way,
    bed: &Bed,
    txn: &mut Txn,
    (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
) -> Result<Vec<(Vec<u8>, u16)>> {
    let rows = common::scan_by(way, &bed.tree, txn, lower, upper)?;
    Ok(rows.into_iter().filter(|(key, _)| !FIXED.contains(&&key[..])).map(|(key, value)| (key, tag(&value))).collect())
}

/// One operation, by the number of its key.
#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Lock(usize),
    Scan(Way, usize, usize),
    /// The same with locks for update.
    Take(Way, usize, usize),
    /// Removes the row at one end of a range.
    Pop(End, usize, usize),
    /// Removes all rows of a range, and returns their number.
    Clear(usize, usize),
    Put(usize, u16),
    Insert(usize, u16),
    Update(usize, u16),
    Remove(usize),
    /// Makes everything durable, so that ghosts may be purged.
    Settle,
    /// Takes a savepoint.
    Save,
    /// Rolls back to the savepoint. Results seen since stay seen.
    Back,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Row(Option<u16>),
    Rows(Vec<(Vec<u8>, u16)>),
}

fn run(bed: &Bed, txn: &mut Txn, op: Op) -> Result<Seen> {
    let (tree, mut out) = (&bed.tree, Vec::new());
    let old = |value: Option<Vec<u8>>| Seen::Row(value.as_deref().map(tag));
    Ok(match op {
        Op::Get(key) => Seen::Row(tree.get(txn, KEYS[key], &mut out)?.then(|| tag(&out))),
        Op::Lock(key) => Seen::Row(tree.get_for_update(txn, KEYS[key], &mut out)?.then(|| tag(&out))),
        Op::Scan(way, from, to) => {
            Seen::Rows(scan_by(way, bed, txn, (Bound::Included(KEYS[from]), Bound::Included(KEYS[to])))?)
        }
        Op::Take(way, from, to) => {
            let (lower, upper) = (Bound::Included(KEYS[from]), Bound::Included(KEYS[to]));
            let mut cursor = tree.range_locked(txn, lower, upper, RowLock::update())?;
            let rows = way.collect(&mut cursor, txn)?.into_iter().map(|(key, value)| (key, tag(&value)));
            Seen::Rows(rows.filter(|(key, _)| !FIXED.contains(&&key[..])).collect())
        }
        Op::Pop(end, from, to) => {
            let popped = pop(bed, txn, end, (KEYS[from], KEYS[to]))?;
            Seen::Rows(popped.into_iter().map(|(key, value)| (key, tag(&value))).collect())
        }
        Op::Clear(from, to) => Seen::Row(Some(clear(bed, txn, (KEYS[from], KEYS[to]))?)),
        Op::Put(key, new) => old(tree.put(txn, KEYS[key], &value(new))?),
        Op::Insert(key, new) => match tree.insert_new(txn, KEYS[key], &value(new)) {
            Ok(()) => Seen::Row(None),
            Err(Error::KeyExists { .. }) => Seen::Row(Some(0)),
            Err(error) => return Err(error),
        },
        Op::Update(key, new) => old(tree.update(txn, KEYS[key], &value(new))?),
        Op::Remove(key) => old(tree.remove(txn, KEYS[key])?),
        Op::Settle => {
            bed.log.force(bed.log.current())?;
            Seen::Row(None)
        }
        Op::Save | Op::Back => unreachable!("of the transaction"),
    })
}

/// Removes the first or the last row of a range in which no row is fixed. As tables do it: at once, or by a scan.
fn pop(bed: &Bed, txn: &mut Txn, end: End, (from, to): (&[u8], &[u8])) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let bounds = (Bound::Included(from.to_vec()), Bound::Included(to.to_vec()));
    if bed.tree.pop_at_once(txn, bounds, end, None, (&mut key, &mut value), |_, _| true)?.is_some() {
        return Ok(Some((key, value)));
    }
    let mut cursor = bed.tree.range_locked(txn, Bound::Included(from), Bound::Included(to), RowLock::update())?;
    let row = if end == End::Front { cursor.next(txn)? } else { cursor.next_back(txn)? };
    let Some((key, value)) = row.map(|(key, value)| (key.to_vec(), value.to_vec())) else { return Ok(None) };
    assert_eq!(bed.tree.remove(txn, &key)?.as_ref(), Some(&value), "a row that is locked");
    Ok(Some((key, value)))
}

/// Removes all rows of a range in which no row is fixed. As tables do it: several at once, or each after a scan.
fn clear(bed: &Bed, txn: &mut Txn, (from, to): (&[u8], &[u8])) -> Result<u16> {
    let (mut lower, upper) = (Bound::Included(from.to_vec()), Bound::Included(to.to_vec()));
    let mut count = 0;
    loop {
        if let Some((removed, rest)) = bed.tree.remove_first(txn, (lower.clone(), upper.clone()))? {
            count += removed as u16;
            let Some(rest) = rest else { return Ok(count) };
            lower = rest;
            continue;
        }
        let mut cursor = bed.tree.range(txn, lower.as_ref().map(Vec::as_slice), Bound::Included(to))?;
        let Some(key) = cursor.next_key(txn)?.map(<[u8]>::to_vec) else { return Ok(count) };
        if bed.tree.remove_several(txn, std::slice::from_ref(&key))? == 0 {
            assert!(bed.tree.remove(txn, &key)?.is_some(), "a row that is locked");
        }
        count += 1;
        lower = Bound::Excluded(key);
    }
}

/// Returns the result of the operation alone, on rows in memory.
fn replay(rows: &mut BTreeMap<Vec<u8>, u16>, op: Op) -> Seen {
    let at = |key: usize| KEYS[key].to_vec();
    Seen::Row(match op {
        Op::Get(key) | Op::Lock(key) => rows.get(KEYS[key]).copied(),
        Op::Put(key, new) => rows.insert(at(key), new),
        Op::Insert(key, _) if rows.contains_key(KEYS[key]) => Some(0),
        Op::Insert(key, new) => rows.insert(at(key), new),
        Op::Update(key, new) => rows.get_mut(KEYS[key]).map(|old| std::mem::replace(old, new)),
        Op::Remove(key) => rows.remove(KEYS[key]),
        Op::Settle => None,
        Op::Save | Op::Back => unreachable!("of the transaction"),
        Op::Clear(from, to) => {
            let before = rows.len();
            rows.retain(|key, _| !(at(from)..=at(to)).contains(key));
            Some((before - rows.len()) as u16)
        }
        Op::Pop(end, from, to) => {
            let mut range = rows.range(at(from)..=at(to)).map(|(key, tag)| (key.clone(), *tag));
            let row = if end == End::Front { range.next() } else { range.next_back() };
            row.iter().for_each(|(key, _)| _ = rows.remove(key));
            return Seen::Rows(row.into_iter().collect());
        }
        Op::Scan(_, from, to) | Op::Take(_, from, to) => {
            return Seen::Rows(rows.range(at(from)..=at(to)).map(|(key, tag)| (key.clone(), *tag)).collect());
        }
    })
}

type History = Vec<(Op, Seen)>;

/// Whether the transactions, one after the other in some order, see what they saw and end with `last`.
fn is_serial(rows: &BTreeMap<Vec<u8>, u16>, left: &[&History], last: &BTreeMap<Vec<u8>, u16>) -> bool {
    if left.is_empty() {
        return rows == last;
    }
    (0..left.len()).any(|next| {
        let mut after = rows.clone();
        let mut saved = after.clone();
        let fits = left[next].iter().all(|(op, seen)| match op {
            Op::Save => {
                saved.clone_from(&after);
                true
            }
            Op::Back => {
                after.clone_from(&saved);
                true
            }
            op => replay(&mut after, *op) == *seen,
        });
        let rest: Vec<_> = left.iter().enumerate().filter(|&(at, _)| at != next).map(|(_, txn)| *txn).collect();
        fits && is_serial(&after, &rest, last)
    })
}

/// The operations of one transaction and whether it commits.
fn script(rng: &mut Rng, number: u16) -> (Vec<Op>, bool) {
    let ops = (0..2 + rng.below(2)).map(|step| {
        let (key, new) = (rng.below(4), 1 + number * 4 + step as u16);
        match rng.below(12) {
            0 | 1 => Op::Get(key),
            2 => Op::Lock(key),
            3..6 => {
                let other = rng.below(4);
                let (from, to) = (key.min(other), key.max(other));
                let way = WAYS[rng.below(3)];
                if rng.below(2) == 0 { Op::Scan(way, from, to) } else { Op::Take(way, from, to) }
            }
            6 => Op::Put(key, new),
            7 | 8 => Op::Insert(key, new),
            9 => Op::Update(key, new),
            10 => Op::Remove(key),
            _ => Op::Settle,
        }
    });
    (ops.collect(), rng.below(4) > 0)
}

/// A script that takes rows from the ends of two ranges without fixed rows, or all rows, and inserts and reads there.
fn popping(rng: &mut Rng, number: u16) -> (Vec<Op>, bool) {
    let (mut ops, commits) = script(rng, number);
    for op in &mut ops {
        if rng.below(3) > 0 {
            let (from, to) = [(0, 1), (2, 3)][rng.below(2)];
            *op = match rng.below(3) {
                0 => Op::Clear(from, to),
                1 => Op::Pop(End::Front, from, to),
                _ => Op::Pop(End::Back, from, to),
            };
        }
    }
    (ops, commits)
}

/// A script that takes rows, in which the transaction goes back.
fn winding(rng: &mut Rng, number: u16) -> (Vec<Op>, bool) {
    let (mut ops, commits) = if rng.below(2) == 0 { script(rng, number) } else { popping(rng, number) };
    let save = rng.below(2);
    ops.insert(save, Op::Save);
    ops.insert(save + 2 + rng.below(ops.len() - save - 1), Op::Back);
    (ops, commits)
}

/// Six transactions of three threads over four keys.
fn histories(seed: u64, script: fn(&mut Rng, u16) -> (Vec<Op>, bool)) {
    histories_in(bed(), seed, script);
}

fn histories_in(bed: Arc<Bed>, seed: u64, script: fn(&mut Rng, u16) -> (Vec<Op>, bool)) {
    let mut rng = Rng(seed);
    let threads: Vec<_> = (0..3)
        .map(|thread| {
            let bed = bed.clone();
            let scripts = [script(&mut rng, 2 * thread), script(&mut rng, 2 * thread + 1)];
            thread::spawn(move || {
                scripts.into_iter().filter_map(|(ops, ends)| play(&bed, &ops, ends)).collect::<Vec<_>>()
            })
        })
        .collect();
    let committed: Vec<History> = threads.into_iter().flat_map(|thread| thread.join().expect("a thread")).collect();
    let mut txn = begin(&bed);
    let last = scan(&bed, &mut txn, Bound::Unbounded, Bound::Unbounded).expect("a scan").into_iter().collect();
    drop(txn);
    let first = [(KEYS[1].to_vec(), 0), (KEYS[2].to_vec(), 0)].into();
    assert!(is_serial(&first, &committed.iter().collect::<Vec<_>>(), &last), "not serial: {committed:?} then {last:?}");
    bed.verify();
}

fn play(bed: &Bed, ops: &[Op], commits: bool) -> Option<History> {
    let mut txn = begin(bed);
    let mut history = History::new();
    let mut savepoint = None;
    for op in ops {
        let seen = match op {
            Op::Save => {
                savepoint = Some(txn.savepoint());
                Ok(Seen::Row(None))
            }
            Op::Back => {
                let savepoint = savepoint.as_ref().expect("saved before");
                txn.rollback_to(savepoint, |_| false).map(|()| Seen::Row(None))
            }
            op => run(bed, &mut txn, *op),
        };
        match seen {
            Ok(seen) => history.push((*op, seen)),
            Err(Error::Deadlock { .. }) => return None,
            Err(error) => panic!("{op:?}: {error:?}"),
        }
    }
    if !commits {
        txn.rollback().expect("a rollback");
        return None;
    }
    drop(txn.commit().expect("a commit"));
    Some(history)
}

/// Each counts the rows from `lower` on and adds one; so no two count the same.
fn counters(way: Way, lower: &'static [u8]) {
    counters_in(way, (Bound::Included(lower), Bound::Unbounded));
}

/// It ends before a key that is not of it.
const BEFORE_A_KEY: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(b"82"), Bound::Excluded(b"89"));

fn counters_in(way: Way, range: (Bound<&'static [u8]>, Bound<&'static [u8]>)) {
    let bed = bed();
    let count = move |bed: &Bed, txn: &mut Txn| scan_by(way, bed, txn, range).map(|rows| rows.len());
    let threads: Vec<_> = [b"87", b"85", b"83"]
        .into_iter()
        .map(|key| {
            let bed = bed.clone();
            thread::spawn(move || {
                loop {
                    let mut txn = begin(&bed);
                    let counted = count(&bed, &mut txn).and_then(|before| {
                        bed.tree.insert_new(&mut txn, key, &value(before as u16))?;
                        assert_eq!(count(&bed, &mut txn)?, before + 1, "a phantom in what was counted");
                        Ok(before)
                    });
                    match counted {
                        Ok(before) => {
                            drop(txn.commit().expect("a commit"));
                            return before;
                        }
                        Err(Error::Deadlock { .. }) => drop(txn),
                        Err(error) => panic!("{error:?}"),
                    }
                }
            })
        })
        .collect();
    let mut counts: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a thread")).collect();
    counts.sort_unstable();
    assert!(counts.windows(2).all(|pair| pair[0] < pair[1]), "two have counted the same: {counts:?}");
}

/// A scan finds the same twice, although the key that ends it goes and others come.
fn repeated(goes: fn(&Bed)) {
    for way in WAYS {
        repeated_by(way, goes);
    }
}

fn repeated_by(way: Way, goes: fn(&Bed)) {
    let bed = bed();
    let writers = [
        thread::spawn({
            let bed = bed.clone();
            move || goes(&bed)
        }),
        thread::spawn({
            let bed = bed.clone();
            move || {
                let mut txn = begin(&bed);
                match bed.tree.insert_new(&mut txn, b"31", &value(1)) {
                    Ok(()) => drop(txn.commit().expect("a commit")),
                    Err(Error::Deadlock { .. }) => drop(txn),
                    Err(error) => panic!("{error:?}"),
                }
            }
        }),
    ];
    let mut txn = begin(&bed);
    let twice = (0..2).map(|_| scan_by(way, &bed, &mut txn, (Bound::Included(b"3"), Bound::Included(b"33"))));
    match twice.collect::<Result<Vec<_>>>() {
        Ok(seen) => assert_eq!(seen[0], seen[1], "a phantom"),
        Err(Error::Deadlock { .. }) => {}
        Err(error) => panic!("{error:?}"),
    }
    drop(txn);
    writers.into_iter().for_each(|writer| writer.join().expect("a writer"));
    bed.verify();
}

/// The key behind the range is inserted and rolled back.
fn comes_and_goes() {
    repeated(|bed| {
        let mut txn = begin(bed);
        bed.tree.insert_new(&mut txn, b"35", &value(2)).expect("nobody is in the way");
        txn.rollback().expect("a rollback");
    });
}

/// A scan that has inserted a key into its range finds one key more the second time, and no other.
fn own_key() {
    let bed = bed();
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = begin(&bed);
            bed.tree.insert_new(&mut txn, b"83", &value(1)).expect("it has nothing that others wait for");
            drop(txn.commit().expect("a commit"));
        }
    });
    let mut txn = begin(&bed);
    let range = |txn: &mut Txn| scan(&bed, txn, Bound::Included(b"82"), Bound::Excluded(b"89")).map(|rows| rows.len());
    let before = range(&mut txn).expect("the writer waits for nobody");
    bed.tree.insert_new(&mut txn, b"85", &value(2)).expect("the writer waits for nobody");
    assert_eq!(range(&mut txn).expect("the writer waits for nobody"), before + 1, "a phantom");
    drop(txn.commit().expect("a commit"));
    writer.join().expect("the writer");
}

#[test]
fn six_transactions_on_four_keys_are_serial() {
    for seed in 0..8 {
        shuttle(ITERATIONS / 6, move || histories(seed, script));
    }
}

#[test]
fn six_transactions_that_take_rows_from_the_ends_of_ranges_are_serial() {
    for seed in 0..8 {
        shuttle(ITERATIONS / 6, move || histories(seed, popping));
    }
}

/// One takes the first row of a range and inserts a row behind it. The other one misses that row, and then inserts one
/// before the taken one: it comes first, so the first one would have taken its row.
fn one_takes_and_one_inserts_before() {
    let bed = bed();
    let inserter = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = begin(&bed);
            let missed = bed.tree.get(&mut txn, KEYS[3], &mut Vec::new()).map(|is_there| !is_there);
            match missed.and_then(|missed| bed.tree.insert_new(&mut txn, KEYS[0], &value(1)).map(|()| missed)) {
                Ok(missed) => {
                    drop(txn.commit().expect("a commit"));
                    missed
                }
                Err(Error::Deadlock { .. }) => false,
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    let mut txn = begin(&bed);
    let taken = pop(&bed, &mut txn, End::Front, (KEYS[0], KEYS[1]))
        .and_then(|row| bed.tree.insert_new(&mut txn, KEYS[3], &value(2)).map(|()| row.expect("a row").0));
    let passed = match taken {
        Ok(key) => {
            drop(txn.commit().expect("a commit"));
            key == KEYS[1]
        }
        Err(Error::Deadlock { .. }) => {
            drop(txn);
            false
        }
        Err(error) => panic!("{error:?}"),
    };
    assert!(!(inserter.join().expect("the inserter") && passed), "a phantom before the row that was taken");
}

#[test]
fn a_pop_keeps_others_from_inserting_before_its_row() {
    shuttle(ITERATIONS, one_takes_and_one_inserts_before);
}

/// Two transactions take the only row of a range.
fn two_take_a_row() {
    let bed = bed();
    let takers = [End::Front, End::Back].map(|end| {
        let bed = bed.clone();
        thread::spawn(move || {
            let mut txn = begin(&bed);
            let taken = match pop(&bed, &mut txn, end, (KEYS[0], KEYS[1])) {
                Ok(row) => row.is_some(),
                Err(Error::Deadlock { .. }) => return false,
                Err(error) => panic!("{error:?}"),
            };
            drop(txn.commit().expect("a commit"));
            taken
        })
    });
    let taken = takers.map(|taker| taker.join().expect("a taker"));
    assert_ne!(taken, [true; 2], "a row is taken twice");
}

#[test]
fn a_row_is_taken_once() {
    shuttle(ITERATIONS, two_take_a_row);
}

#[test]
#[should_panic]
fn a_row_is_taken_twice_from_a_leaf_that_has_changed() {
    shuttle_mutated("sabotage: a pop changes a leaf that has changed", 10 * ITERATIONS, two_take_a_row);
}

/// Two transactions remove the only row of a range.
fn two_clear_a_range() {
    let bed = bed();
    let clearers = [(); 2].map(|()| {
        let bed = bed.clone();
        thread::spawn(move || {
            let mut txn = begin(&bed);
            let removed = match clear(&bed, &mut txn, (KEYS[0], KEYS[1])) {
                Ok(count) => count,
                Err(Error::Deadlock { .. }) => return 0,
                Err(error) => panic!("{error:?}"),
            };
            drop(txn.commit().expect("a commit"));
            removed
        })
    });
    let removed = clearers.map(|clearer| clearer.join().expect("a thread"));
    assert_ne!(removed, [1; 2], "a row is removed twice");
}

#[test]
fn a_row_is_removed_once() {
    shuttle(ITERATIONS, two_clear_a_range);
}

#[test]
#[should_panic]
fn a_row_is_removed_twice_from_a_leaf_that_has_changed() {
    let name = "sabotage: several rows are removed from a leaf that has changed";
    shuttle_mutated(name, 10 * ITERATIONS, two_clear_a_range);
}

/// A database in which the locks of a transaction in a table are one interval.
fn poor_bed() -> Arc<Bed> {
    Arc::new(fill(Bed::with_modes(32, Modes { lock_memory: 1, ..Modes::default() })))
}

#[test]
fn six_transactions_whose_locks_are_merged_are_serial() {
    for seed in 0..8 {
        shuttle(ITERATIONS / 6, move || histories_in(poor_bed(), seed, script));
    }
}

/// A transaction reads a row, then another, for which its locks are merged, and finds the first one as it was.
fn reads_again() {
    let bed = poor_bed();
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = begin(&bed);
            bed.tree.put(&mut txn, KEYS[1], &value(7)).expect("it has nothing that others wait for");
            drop(txn.commit().expect("a commit"));
        }
    });
    let mut txn = begin(&bed);
    let seen = [KEYS[1], KEYS[2], KEYS[1]].map(|key| {
        let mut out = Vec::new();
        assert!(bed.tree.get(&mut txn, key, &mut out).expect("the writer waits for nothing else"));
        tag(&out)
    });
    assert_eq!(seen[0], seen[2], "a row has changed");
    drop(txn.commit().expect("a commit"));
    writer.join().expect("the writer");
}

#[test]
fn a_row_stays_as_it_is_while_its_lock_is_merged() {
    shuttle(ITERATIONS, reads_again);
}

#[test]
#[should_panic(expected = "a row has changed")]
fn a_lock_goes_after_it_has_been_merged() {
    shuttle_mutated("range: point locks go before they are merged", 10 * ITERATIONS, reads_again);
}

#[test]
fn transactions_that_go_back_to_a_savepoint_are_serial() {
    for seed in 0..8 {
        shuttle(ITERATIONS / 6, move || histories(seed, winding));
    }
}

/// One transaction learns of a row or an absence, rolls back behind that, and reads another, which a second
/// transaction writes together with the first. It has seen both from before or both from after.
fn both_or_neither() {
    let bed = bed();
    let writer = thread::spawn({
        let bed = bed.clone();
        move || {
            let mut txn = begin(&bed);
            let all =
                [KEYS[0], KEYS[1], KEYS[2], KEYS[3]].into_iter().map(|key| bed.tree.put(&mut txn, key, &value(9)));
            match all.collect::<Result<Vec<_>>>() {
                Ok(_) => drop(txn.commit().expect("a commit")),
                Err(Error::Deadlock { .. }) => drop(txn),
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    for (first, second) in [(0, 3), (1, 2)] {
        let mut txn = begin(&bed);
        let savepoint = txn.savepoint();
        let first = bed.tree.put(&mut txn, KEYS[first], &value(5));
        let both = first.and_then(|old| {
            txn.rollback_to(&savepoint, |_| false)?;
            let mut out = Vec::new();
            bed.tree.get(&mut txn, KEYS[second], &mut out).map(|found| (old, found.then_some(out)))
        });
        match both {
            Ok((first, second)) => assert_eq!(first.as_deref().map(tag), second.as_deref().map(tag), "torn apart"),
            Err(Error::Deadlock { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    writer.join().expect("the writer");
    bed.verify();
}

#[test]
fn what_was_seen_before_going_back_stays_true() {
    shuttle(ITERATIONS, both_or_neither);
}

#[test]
#[should_panic(expected = "torn apart")]
fn rows_that_were_taken_back_to_a_savepoint_stay_locked() {
    shuttle_mutated("btree: a savepoint gives rows back", 10 * ITERATIONS, both_or_neither);
}

#[test]
fn counters_that_add_count_rows_that_no_other_has_counted() {
    for way in WAYS {
        shuttle(ITERATIONS / 3, move || counters(way, b"6"));
        shuttle(ITERATIONS / 3, move || counters(way, b"82"));
        shuttle(ITERATIONS / 3, move || counters_in(way, BEFORE_A_KEY));
    }
}

#[test]
fn a_range_stays_as_it_is_while_the_key_behind_it_goes() {
    shuttle(ITERATIONS, comes_and_goes);
}

#[test]
#[should_panic(expected = "counted")]
fn a_scan_validates_after_it_has_locked() {
    shuttle_mutated("range: no validation after the lock", 10 * ITERATIONS, || counters(Way::Up, b"6"));
}

#[test]
#[should_panic(expected = "counted")]
fn a_scan_from_the_back_validates_after_it_has_locked() {
    shuttle_mutated("range: no validation after the lock", 10 * ITERATIONS, || counters(Way::Down, b"6"));
}

#[test]
#[should_panic(expected = "counted")]
fn a_scan_covers_what_lies_before_its_rows() {
    let name = "range: a step covers its rows alone";
    shuttle_mutated(name, ITERATIONS, || counters_in(Way::Up, BEFORE_A_KEY));
}

#[test]
#[should_panic(expected = "counted")]
fn a_scan_from_the_back_covers_what_lies_behind_its_rows() {
    let name = "range: a step covers its rows alone";
    shuttle_mutated(name, ITERATIONS, || counters_in(Way::Down, BEFORE_A_KEY));
}

#[test]
fn a_range_stays_as_it_is_around_a_key_of_ones_own() {
    shuttle(ITERATIONS, own_key);
}

#[test]
#[should_panic(expected = "a phantom")]
fn a_range_without_rows_is_covered() {
    shuttle_mutated("range: a step covers its rows alone", 10 * ITERATIONS, || repeated(|_| {}));
}
