//! Loads of sorted rows: what snapshots see, what a rollback and a restart leave, and rows that change afterwards.

use crate::common::{self, Bed, Model, restart, scan};
use foreshore_base::limits::MAX_KEY;
use foreshore_base::{Error, Result, TableId};
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::{Bound::Unbounded, Range};

fn key(n: usize) -> Vec<u8> {
    format!("k{n:06}").into_bytes()
}

fn row(n: usize) -> (Vec<u8>, Vec<u8>) {
    (key(n), vec![n as u8; 400])
}

fn load(bed: &Bed, txn: &mut Txn, rows: Range<usize>) -> Result<u64> {
    let mut loader = bed.tree.begin_load(txn, 100)?;
    for (key, value) in rows.map(row) {
        loader.add(txn, &key, &value)?;
    }
    loader.finish(txn)
}

fn model(rows: Range<usize>) -> Model {
    rows.map(row).collect()
}

fn all(bed: &Bed, txn: &mut Txn) -> Model {
    scan(&bed.tree, txn, Unbounded, Unbounded).unwrap()
}

fn reader(bed: &Bed) -> Txn {
    bed.txns.begin(TxnOptions { label: "reader", isolation: Isolation::Snapshot, ..TxnOptions::default() }).unwrap()
}

#[test]
fn rows_are_loaded_into_an_empty_table_and_behind_others() {
    let bed = Bed::new(256);
    for rows in [0..3, 3..500, 500..501, 501..2000] {
        let count = rows.len() as u64;
        assert_eq!(bed.run(|txn| load(&bed, txn, rows)), count);
        bed.verify();
    }
    assert_eq!(bed.contents(), model(0..2000));
    assert!(bed.trees.stats().loaded_leaves > 80, "{:?}", bed.trees.stats());
    let (bed, _) = bed.reopen();
    assert_eq!(bed.contents(), model(0..2000));
    bed.verify();
}

#[test]
fn keys_of_any_length_are_loaded() {
    let bed = Bed::new(256);
    let long = |n: usize, len: usize| {
        let mut key = key(n);
        key.resize(len.max(7), b'x');
        key
    };
    let rows: Model = (0..800)
        .map(|n| (long(n, [7, 8, 300, MAX_KEY][n % 4]), vec![7; [0, 1, 700, 2048, 100][n % 5]]))
        .chain([(Vec::new(), vec![1])])
        .collect();
    bed.run(|txn| {
        let mut loader = bed.tree.begin_load(txn, 100)?;
        rows.iter().try_for_each(|(key, value)| loader.add(txn, key, value))?;
        loader.finish(txn)
    });
    assert_eq!(bed.contents(), rows);
    bed.verify();
}

#[test]
fn a_key_that_is_not_above_the_others_is_refused() {
    let bed = Bed::new(64);
    bed.run(|txn| load(&bed, txn, 0..100));
    let mut txn = bed.begin();
    let refused = load(&bed, &mut txn, 99..120);
    assert!(matches!(&refused, Err(Error::LoadOrder { row: 0, key, .. }) if **key == *self::key(99)), "{refused:?}");
    let mut loader = bed.tree.begin_load(&mut txn, 100).unwrap();
    loader.add(&mut txn, &key(100), b"").unwrap();
    let refused = loader.add(&mut txn, &key(100), b"");
    assert!(matches!(refused, Err(Error::LoadOrder { row: 1, .. })), "{refused:?}");
    txn.rollback().unwrap();
    assert_eq!(bed.contents(), model(0..100));
}

#[test]
fn a_snapshot_from_before_sees_nothing_of_a_load_nor_of_what_follows() {
    let bed = Bed::new(256);
    bed.run(|txn| load(&bed, txn, 0..10));
    let mut before = reader(&bed);
    assert_eq!(all(&bed, &mut before).len(), 10);
    let mut txn = bed.begin();
    load(&bed, &mut txn, 10..600).unwrap();
    assert_eq!(all(&bed, &mut before), model(0..10), "an open load");
    assert_eq!(all(&bed, &mut reader(&bed)), model(0..10), "an open load");
    // Its own changes of the rows it has loaded.
    bed.tree.put(&mut txn, &key(20), b"own").unwrap();
    bed.tree.remove(&mut txn, &key(21)).unwrap();
    assert_eq!(all(&bed, &mut before), model(0..10), "an open load with changes");
    drop(txn.commit().unwrap());
    assert_eq!(all(&bed, &mut before), model(0..10), "a committed load");
    // Changes by others, so many that versions are pruned behind the first.
    let mut between = reader(&bed);
    for n in 0..60_u8 {
        bed.run(|txn| bed.tree.put(txn, &key(30), &[n]));
        bed.run(|txn| bed.tree.put(txn, &key(20), &[n]));
        bed.run(|txn| if n % 2 == 0 { bed.tree.remove(txn, &key(31)) } else { bed.tree.put(txn, &key(31), b"x") });
        assert_eq!(all(&bed, &mut before), model(0..10), "after {n} changes");
    }
    let mut then = model(0..600);
    then.insert(key(20), b"own".to_vec());
    then.remove(&key(21));
    assert_eq!(all(&bed, &mut between), then);
    between.rollback().unwrap();
    before.rollback().unwrap();
    bed.verify();
}

#[test]
fn a_rollback_leaves_nothing_wherever_the_rows_are() {
    let bed = Bed::new(256);
    bed.run(|txn| load(&bed, txn, 0..50));
    let mut txn = bed.begin();
    load(&bed, &mut txn, 100..400).unwrap();
    // Own rows between those loaded split their leaves, and own changes and removals are undone first.
    for n in 100..200 {
        for m in 0..4 {
            let between = format!("k{n:06}.{m}").into_bytes();
            bed.tree.put(&mut txn, &between, &[1; 400]).unwrap();
        }
        bed.tree.put(&mut txn, &key(n), b"short").unwrap();
        bed.tree.remove(&mut txn, &key(n + 100)).unwrap();
    }
    bed.verify();
    txn.rollback().unwrap();
    assert_eq!(bed.contents(), model(0..50));
    bed.verify();
    bed.run(|txn| load(&bed, txn, 50..400));
    assert_eq!(bed.contents(), model(0..400));
    bed.verify();
}

#[test]
fn the_undo_of_rows_in_several_leaves_is_durable_before_others_insert_them_again() {
    let bed = Bed::new(256);
    let mut txn = bed.begin();
    load(&bed, &mut txn, 0..100).unwrap();
    (0..40).for_each(|m| {
        bed.tree.put(&mut txn, format!("k000050.{m:03}").as_bytes(), &[1; 400]).unwrap();
    });
    let before = bed.log.current();
    txn.rollback().unwrap();
    let removed = before.0 + 40;
    assert!(bed.log.durable().0 > removed, "{:?} is durable, {before:?} was logged before", bed.log.durable());
    assert_eq!(bed.contents(), Model::new());
    bed.verify();
}

#[test]
fn a_savepoint_before_a_load_undoes_it() {
    let bed = Bed::new(256);
    let mut txn = bed.begin();
    load(&bed, &mut txn, 0..100).unwrap();
    let savepoint = txn.savepoint();
    load(&bed, &mut txn, 100..300).unwrap();
    bed.tree.put(&mut txn, &key(150), b"changed").unwrap();
    bed.tree.put(&mut txn, b"k000150.5", b"between").unwrap();
    txn.rollback_to(&savepoint, |_: TableId| false).unwrap();
    assert_eq!(all(&bed, &mut txn), model(0..100));
    load(&bed, &mut txn, 100..250).unwrap();
    let inner = txn.savepoint();
    bed.tree.put(&mut txn, b"k000120.5", b"between").unwrap();
    txn.rollback_to(&inner, |_: TableId| false).unwrap();
    assert_eq!(all(&bed, &mut txn), model(0..250));
    drop(txn.commit().unwrap());
    assert_eq!(bed.contents(), model(0..250));
    bed.verify();
    let mut txn = bed.begin();
    let savepoint = txn.savepoint();
    load(&bed, &mut txn, 250..300).unwrap();
    bed.tree.put(&mut txn, b"k000270.5", b"between").unwrap();
    txn.rollback_to(&savepoint, |_: TableId| false).unwrap();
    txn.rollback().unwrap();
    assert_eq!(bed.contents(), model(0..250));
    bed.verify();
}

#[test]
fn deleted_rows_at_the_end_do_not_hinder_a_load() {
    let bed = Bed::new(256);
    bed.run(|txn| load(&bed, txn, 0..200));
    let mut before = reader(&bed);
    assert_eq!(all(&bed, &mut before).len(), 200);
    bed.run(|txn| (50..200).try_for_each(|n| bed.tree.remove(txn, &key(n)).map(drop)));
    bed.run(|txn| load(&bed, txn, 50..400));
    assert_eq!(bed.contents(), model(0..400));
    assert_eq!(all(&bed, &mut before), model(0..200));
    bed.verify();
}

#[test]
fn a_snapshot_transaction_does_not_load_behind_a_row_that_it_does_not_see() {
    let bed = Bed::new(64);
    bed.run(|txn| load(&bed, txn, 0..10));
    let mut txn = reader(&bed);
    assert_eq!(all(&bed, &mut txn).len(), 10);
    bed.run(|txn| load(&bed, txn, 10..20));
    let refused = load(&bed, &mut txn, 20..30);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
}

/// Rows of loads that are committed, rolled back, rolled back to a savepoint, and open.
fn history(bed: &Bed) -> Vec<Model> {
    let mut states = vec![Model::new()];
    bed.run(|txn| load(bed, txn, 0..60));
    states.push(model(0..60));
    let mut txn = bed.begin();
    load(bed, &mut txn, 60..140).unwrap();
    bed.tree.put(&mut txn, &key(70), b"changed").unwrap();
    txn.rollback().unwrap();
    let mut txn = bed.begin();
    load(bed, &mut txn, 60..130).unwrap();
    let savepoint = txn.savepoint();
    load(bed, &mut txn, 130..200).unwrap();
    bed.tree.put(&mut txn, b"k000150.5", &[1; 2000]).unwrap();
    bed.tree.put(&mut txn, b"k000150.6", &[1; 2000]).unwrap();
    txn.rollback_to(&savepoint, |_: TableId| false).unwrap();
    let mut loader = bed.tree.begin_load(&mut txn, 60).unwrap();
    loader.add(&mut txn, &key(300), &[5; 20_000]).unwrap();
    (301..350).map(row).try_for_each(|(key, value)| loader.add(&mut txn, &key, &value)).unwrap();
    loader.finish(&mut txn).unwrap();
    drop(txn.commit().unwrap());
    let mut after = model(0..130);
    after.extend(model(301..350));
    after.insert(key(300), vec![5; 20_000]);
    states.push(after.clone());
    // An open transaction, whose rows others follow.
    let mut txn = bed.begin();
    load(bed, &mut txn, 400..460).unwrap();
    bed.tree.remove(&mut txn, &key(410)).unwrap();
    bed.tree.put(&mut txn, b"k000420.5", &[1; 2000]).unwrap();
    bed.tree.put(&mut txn, b"k000420.6", &[1; 2000]).unwrap();
    bed.log.force(bed.log.current()).unwrap();
    std::mem::forget(txn);
    states
}

#[test]
fn a_restart_after_any_record_finds_whole_loads() {
    let bed = Bed::new(1024);
    let states = history(&bed);
    let (fs, frames) = (bed.fs.clone(), bed.frames);
    assert_eq!(bed.pool.stats().pages_written, 0, "the data file is blank");
    drop(bed);
    let records = common::lsns(&fs, frames).len();
    let mut seen = 0;
    for limit in common::LAYOUT_RECORDS..=records {
        let (bed, _) = restart(&fs, frames, limit);
        bed.verify();
        let contents = bed.contents();
        let state = states.iter().rposition(|state| *state == contents);
        let state = state.unwrap_or_else(|| panic!("{} rows after {limit} of {records} records", contents.len()));
        assert!(seen <= state, "a state comes back after {limit} records");
        seen = state;
        // What is left takes rows.
        bed.run(|txn| load(&bed, txn, 500..540));
        bed.verify();
        assert_eq!(bed.contents().len(), contents.len() + 40);
    }
    assert_eq!(seen, states.len() - 1);
}

#[test]
fn an_interrupted_rollback_of_a_load_goes_on() {
    let bed = Bed::new(256);
    history(&bed);
    let (mut bed, first) = bed.halt();
    assert_eq!(first.losers, 1);
    for _ in 0..3 {
        bed.verify();
        let (again, restart) = bed.halt();
        assert_eq!(restart.losers, 0);
        bed = again;
    }
}
