//! A table is dropped and its pages are freed and reused, while a reader by an older snapshot is in an operation and
//! is cancelled. The real tree runs over the real manager, under many schedules.

use crate::common::Bed;
use foreshore_base::{Error, TableId};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicUsize, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::sync::Arc;

const ITERATIONS: usize = 100;
const ROWS: u8 = 8;
/// Two of them fill a leaf.
const VALUE: [u8; 1900] = [7; 1900];
/// The key under which the catalogue has the table once it is dropped.
const DROPPED: &[u8] = b"\xffdropped";
/// How often a thread checks whether the table may be freed.
const LOOKS: usize = 6;

struct World {
    bed: Bed,
    table: Tree,
    /// Running operations of the reader, as it counts them.
    reading: AtomicUsize,
    is_freed: AtomicBool,
}

fn world() -> Arc<World> {
    let bed = Bed::new(48);
    let table = bed.run(|txn| bed.tree.create_table(txn, b"table", TableId(7), |_| b"row".to_vec()));
    for row in 0..ROWS {
        bed.run(|txn| table.insert_new(txn, &[row], &VALUE));
    }
    bed.log.force(bed.log.current()).expect("a sound log");
    Arc::new(World { bed, table, reading: AtomicUsize::new(0), is_freed: AtomicBool::new(false) })
}

/// Reads until the snapshot is cancelled or all rows are read.
fn read(world: &World, txn: &mut Txn) -> Result<(), Error> {
    for row in 0..ROWS {
        let snapshot = txn.reads_at()?.expect("it reads by a snapshot");
        let operation = txn.begin_read(&snapshot)?;
        world.reading.fetch_add(1, Ordering::SeqCst);
        let mut out = Vec::new();
        let found = world.table.get_at(txn, &snapshot, &[row], &mut out);
        assert!(!world.is_freed.load(Ordering::SeqCst), "pages are freed under an operation");
        world.reading.fetch_sub(1, Ordering::SeqCst);
        drop(operation);
        assert!(found? && out == VALUE, "row {row} is there");
    }
    Ok(())
}

/// Drops the table, frees its pages when they may go, and fills another table.
fn drop_and_free(world: &World) {
    let World { bed, table, .. } = world;
    let mut txn = bed.begin();
    txn.lock_table(table.table(), TableMode::Exclusive).expect("no reader by a snapshot is in the way");
    bed.tree.remove(&mut txn, b"table").expect("a change");
    bed.tree.insert_dropped(&mut txn, DROPPED, b"row").expect("a change");
    table.retire(txn.xid().expect("it has changed the catalogue"));
    let ticket = txn.commit().expect("a commit");
    table.dropped_by(ticket.csn());
    ticket.wait().expect("a sound log");
    if !(0..LOOKS).any(|_| bed.txns.visibility().passed() >= ticket.csn()) {
        return;
    }
    world.is_freed.store(true, Ordering::SeqCst);
    assert_eq!(world.reading.load(Ordering::SeqCst), 0, "pages are freed under an operation");
    let mut txn = bed.begin();
    txn.lock_table(table.table(), TableMode::Exclusive).expect("no transaction uses it");
    while !table.free_some(&mut txn, ticket.csn(), 2).expect("a sound tree") {}
    bed.tree.end_table(&mut txn, DROPPED, table, ticket.csn()).expect("a sound tree");
    txn.rollback().expect("nothing to roll back");
    let other = bed.run(|txn| bed.tree.create_table(txn, b"other", TableId(8), |_| b"row".to_vec()));
    for row in 0..ROWS {
        bed.run(|txn| other.insert_new(txn, &[row], &VALUE));
    }
    bed.verify_with(&[&other]);
}

fn drop_beside_a_reader() {
    let world = world();
    let options = TxnOptions { isolation: Isolation::Snapshot, ..TxnOptions::default() };
    let mut txn = world.bed.txns.begin(options).expect("a session");
    let dropper = thread::spawn({
        let world = world.clone();
        move || drop_and_free(&world)
    });
    let canceller = thread::spawn({
        let world = world.clone();
        move || {
            // Where the reader has ended there is none.
            let _killed = world.bed.txns.visibility().cancel_oldest();
        }
    });
    let reader = thread::spawn(move || {
        match read(&world, &mut txn) {
            Ok(()) | Err(Error::SnapshotTooOld { .. }) => {}
            Err(error) => panic!("{error:?}"),
        }
        drop(txn);
    });
    [dropper, canceller, reader].into_iter().for_each(|thread| thread.join().expect("no thread fails"));
}

#[test]
fn no_page_is_freed_under_an_operation_of_a_cancelled_reader() {
    shuttle(ITERATIONS, drop_beside_a_reader);
}

#[test]
#[should_panic(expected = "freed under an operation")]
fn freeing_waits_for_cancelled_readers() {
    shuttle_mutated("txn: no wait for cancelled readers", 20 * ITERATIONS, drop_beside_a_reader);
}
