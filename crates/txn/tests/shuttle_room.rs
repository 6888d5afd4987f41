//! Memory for undo is short while a writer is about to link a version to an old one: the snapshot that keeps the memory is given
//! up, and none that keeps nothing.
#![cfg(foreshore_shuttle)]

mod toy;

use foreshore_base::TableId;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Before, SnapshotKind, Txn, TxnManagerOptions, UndoPtr, Undoable};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use toy::Toy;

const ITERATIONS: usize = 200;
/// With it an entry has a chunk for itself.
const LARGE: usize = 5000;
/// Chunks that there are.
const CHUNKS: usize = 8;

/// Enters a change of no table, and of so many bytes.
fn enter(txn: &mut Txn, bytes: usize, before: Option<Before<'_>>) -> UndoPtr {
    txn.ensure_xid().expect("an xid");
    txn.reserve(0, bytes).expect("what the first snapshot kept was enough");
    let body = vec![1; bytes];
    txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &body, before })
}

/// Those that a failure has cut short are not rolled back.
fn commit(txn: ManuallyDrop<Txn>) {
    ManuallyDrop::into_inner(txn).commit().expect("committed").wait().expect("durable");
}

fn one_is_given_up() {
    let options = TxnManagerOptions { undo_limit_bytes: CHUNKS << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let take = |label| toy.manager.snapshot(SnapshotKind::Latest, label).expect("a free slot");
    // It sees what lies in half of the memory.
    let oldest = take("oldest");
    let mut first = ManuallyDrop::new(toy.begin("first"));
    let entered: Vec<UndoPtr> = (0..CHUNKS / 2).map(|_| enter(&mut first, LARGE, None)).collect();
    let (xid, undo) = (first.xid().expect("drawn"), *entered.last().expect("some"));
    commit(first);
    let young = take("young");
    let linker = {
        let toy = toy.clone();
        thread::spawn(move || {
            let mut txn = ManuallyDrop::new(toy.begin("linker"));
            txn.refresh_view();
            enter(&mut txn, 100, Some(Before { xid, undo, ..Before::default() }));
            commit(txn);
        })
    };
    let mut large = ManuallyDrop::new(toy.begin("large"));
    (0..CHUNKS - 3).for_each(|_| drop(enter(&mut large, LARGE, None)));
    linker.join().expect("the writer");
    commit(large);
    assert!(oldest.is_killed(), "there was not enough for both");
    assert!(!young.is_killed(), "what the first one kept was enough");
}

#[test]
fn one_snapshot_is_given_up_and_not_the_next() {
    shuttle(ITERATIONS, one_is_given_up);
}

#[test]
#[should_panic(expected = "was enough")]
fn a_pin_must_not_cost_the_next_snapshot() {
    shuttle_mutated("undo: what passes soon costs one more snapshot", ITERATIONS, one_is_given_up);
}

#[test]
#[should_panic(expected = "was enough")]
fn who_is_late_must_look_again() {
    shuttle_mutated("undo: two who look for room give up two snapshots", ITERATIONS, one_is_given_up);
}
