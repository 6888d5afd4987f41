//! Snapshot readers beside writers that move amounts between rows, split leaves and roll changes back, with few undo
//! chunks. The real tree runs over the real manager, under many schedules. The sum over the rows is the same in every
//! snapshot, and two reads by one snapshot find the same. Which assertion finds a wrong version depends on the
//! schedule.

use crate::common::{Bed, Rng};
use foreshore_base::{Error, Result};
use foreshore_btree::Batch;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, SnapshotKind, Txn, TxnOptions};
use std::sync::Arc;
use std::time::Duration;

const ROWS: u64 = 4;
const START: u64 = 100;
const ITERATIONS: usize = 60;
/// Bytes of a value: a chunk holds a few old ones, and a leaf too.
const FILL: usize = 1500;

fn value(amount: u64) -> Vec<u8> {
    let mut value = vec![amount as u8; FILL];
    value[..8].copy_from_slice(&amount.to_le_bytes());
    value
}

fn amount(value: &[u8]) -> u64 {
    let amount = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value[8..].iter().all(|&byte| byte == amount as u8), "a value in one piece");
    amount
}

fn get(bed: &Bed, txn: &mut Txn, row: u64) -> Result<u64> {
    let mut out = Vec::new();
    assert!(bed.tree.get(txn, &row.to_be_bytes(), &mut out)?, "row {row} is there");
    Ok(amount(&out))
}

/// Moves an amount from one row to another, once or again after a rollback to a savepoint. The savepoint may lie
/// between the lock of a row and its change, or the rollback may undo half of the change.
fn transfer(bed: &Bed, rng: &mut Rng) -> Result<()> {
    let (from, to) = (rng.below(ROWS as usize) as u64, rng.below(ROWS as usize) as u64);
    let mut txn = bed.txns.begin(TxnOptions { lock_timeout: Duration::ZERO, ..TxnOptions::default() })?;
    if rng.below(4) == 0 {
        let savepoint = txn.savepoint();
        bed.tree.put(&mut txn, &from.to_be_bytes(), &value(0))?;
        bed.tree.put(&mut txn, &to.to_be_bytes(), &value(0))?;
        txn.rollback_to(&savepoint, |_| false)?;
    }
    for (row, change) in [(from, -1_i64), (to, 1)] {
        let mut old = Vec::new();
        bed.tree.get_for_update(&mut txn, &row.to_be_bytes(), &mut old)?;
        if rng.below(4) == 0 {
            let (savepoint, mut again) = (txn.savepoint(), Vec::new());
            bed.tree.put(&mut txn, &row.to_be_bytes(), &value(0))?;
            txn.rollback_to(&savepoint, |_| false)?;
            bed.tree.get_for_update(&mut txn, &row.to_be_bytes(), &mut again)?;
            assert!(again == old, "as it was at the savepoint");
        }
        bed.tree.put(&mut txn, &row.to_be_bytes(), &value(amount(&old).wrapping_add_signed(change)))?;
        if rng.below(4) == 0 {
            return txn.rollback().map(drop);
        }
    }
    let ticket = txn.commit()?;
    // Snapshots of the durable state must not stay behind forever.
    if rng.below(2) == 0 { ticket.wait() } else { Ok(()) }
}

/// Reads all rows three times by one snapshot: one by one, by a scan, and as a batch.
fn audit(bed: &Bed, reads: SnapshotKind) -> Result<()> {
    let options = TxnOptions { isolation: Isolation::Snapshot, reads, ..TxnOptions::default() };
    let mut txn = bed.txns.begin(options)?;
    let first: Vec<u64> = (0..ROWS).map(|row| get(bed, &mut txn, row)).collect::<Result<_>>()?;
    assert_eq!(first.iter().sum::<u64>(), ROWS * START, "the sum in a snapshot: {first:?}");
    let mut again = Vec::new();
    let mut cursor = bed.tree.range(&mut txn, std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?;
    while let Some((_, value)) = cursor.next(&mut txn)? {
        again.push(amount(value));
    }
    assert_eq!(first, again, "two reads by one snapshot");
    let mut batch = Batch::default();
    (0..ROWS).for_each(|row| batch.push(|key| key.extend_from_slice(&row.to_be_bytes())));
    bed.tree.get_many(&mut txn, &mut batch)?;
    let together: Vec<u64> = (0..ROWS as usize).map(|row| amount(batch.value(row).expect("a row"))).collect();
    assert_eq!(first, together, "a lookup of all rows by the same snapshot");
    txn.commit().map(drop)
}

fn sums() {
    let bed = Arc::new(Bed::with_undo(16, 3 * 8192));
    for row in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &row.to_be_bytes(), &value(START)));
    }
    bed.log.force(bed.log.current()).expect("a sound log");
    let may_fail = |outcome: Result<()>| match outcome {
        Ok(()) => {}
        Err(
            Error::Deadlock { .. }
            | Error::LockTimeout { .. }
            | Error::SnapshotTooOld { .. }
            | Error::UndoMemory { .. },
        ) => {}
        Err(error) => panic!("{error:?}"),
    };
    let mut threads = Vec::new();
    for seed in 0..2 {
        let bed = bed.clone();
        threads.push(thread::spawn(move || {
            let mut rng = Rng(seed);
            (0..6).for_each(|_| may_fail(transfer(&bed, &mut rng)));
        }));
    }
    for reads in [SnapshotKind::Latest, SnapshotKind::Durable] {
        let bed = bed.clone();
        threads.push(thread::spawn(move || (0..3).for_each(|_| may_fail(audit(&bed, reads)))));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
    may_fail(audit(&bed, SnapshotKind::Latest));
}

#[test]
fn every_snapshot_is_one_state() {
    shuttle(ITERATIONS, sums);
}

#[test]
#[should_panic]
fn versions_that_are_not_validated_are_of_many_states() {
    shuttle_mutated("btree: versions are not validated", 20 * ITERATIONS, sums);
}

#[test]
#[should_panic]
fn rows_of_a_batch_that_are_not_validated_are_of_many_states() {
    shuttle_mutated("btree: the rows of a batch are not validated", 20 * ITERATIONS, sums);
}

#[test]
#[should_panic]
fn a_rollback_must_restore_the_way_to_older_versions() {
    shuttle_mutated("btree: a rollback keeps the undo pointer", 20 * ITERATIONS, sums);
}

#[test]
#[should_panic]
fn versions_that_a_reader_sees_must_not_be_dropped() {
    shuttle_mutated("undo: a version that a reader sees is dropped", 20 * ITERATIONS, sums);
}

#[test]
#[should_panic]
fn the_place_of_a_lock_must_not_be_taken_across_a_savepoint() {
    shuttle_mutated("txn: the place of a lock is taken across a savepoint", ITERATIONS, sums);
}

#[test]
#[should_panic]
fn chunks_must_not_be_used_again_before_their_readers_have_gone() {
    shuttle_mutated("undo: chunks are used again too early", 20 * ITERATIONS, sums);
}
