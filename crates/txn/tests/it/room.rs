//! Undo space is short: a session that looks for some finds what there is, cancels the snapshots that stand in the way
//! and no other, and comes to an end.

use crate::toy::{self, Toy};
use foreshore_base::{Error, Result, TableId};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_sync::pause;
use foreshore_sync::primitive::thread;
use foreshore_txn::{Snapshot, SnapshotKind, Txn, TxnManagerOptions, Undoable};
use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With it an entry has a chunk for itself.
const LARGE: usize = 5000;
const CHUNK: usize = 8 << 10;

fn toy(chunks: usize) -> Arc<Toy> {
    let options = TxnManagerOptions { undo_limit_bytes: chunks * CHUNK, ..toy::small() };
    Arc::new(Toy::lazy_with(&[0; 4], options))
}

fn latest(toy: &Toy, label: &'static str) -> Snapshot {
    toy.manager.snapshot(SnapshotKind::Latest, label)
}

/// A transaction that enters changes of no table, and so must not be rolled back. Its commit is logged, and leaves
/// them.
fn begin(toy: &Toy, label: &'static str) -> ManuallyDrop<Txn> {
    let mut txn = toy.begin(label);
    toy.log_a_change(&mut txn);
    ManuallyDrop::new(txn)
}

/// Enters a change that takes a chunk.
fn enter(txn: &mut Txn) -> Result<()> {
    txn.ensure_xid()?;
    txn.reserve(0, LARGE)?;
    txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; LARGE], before: None, structure: 0 });
    Ok(())
}

fn enter_many(txn: &mut Txn, chunks: usize) -> Result<()> {
    (0..chunks).try_for_each(|_| enter(txn))
}

fn commit(txn: ManuallyDrop<Txn>) {
    drop(ManuallyDrop::into_inner(txn).commit().expect("committed"));
}

fn is_too_large(outcome: &Result<()>) -> bool {
    matches!(outcome, Err(Error::TransactionTooLarge { .. }))
}

#[test]
fn only_snapshots_that_keep_something_are_given_up() {
    let toy = toy(8);
    let old = latest(&toy, "old");
    let mut first = begin(&toy, "first");
    enter_many(&mut first, 4).expect("no other session has any");
    commit(first);
    let young = latest(&toy, "young");
    let mut large = begin(&toy, "large");
    enter_many(&mut large, 7).expect("enough without what the old one sees");
    assert!(old.is_cancelled() && !young.is_cancelled());
    assert!(is_too_large(&enter_many(&mut large, 2)));
    assert!(!young.is_cancelled(), "it is not in the way");
    commit(large);
}

#[test]
fn a_transaction_that_needs_too_much_is_refused_beside_new_readers() {
    let toy = toy(4);
    let mut first = begin(&toy, "first");
    enter(&mut first).expect("no other session has any");
    commit(first);
    let mut large = begin(&toy, "large");
    let (turns, reader) = (Rc::new(Cell::new(0)), RefCell::new(None));
    let (counter, others) = (turns.clone(), toy.clone());
    pause::set("txn: found no space for undo", move || {
        counter.set(counter.get() + 1);
        assert!(counter.get() < 1000, "it goes on and on");
        reader.replace(Some(latest(&others, "new")));
    });
    let outcome = enter_many(&mut large, 5);
    pause::set("nowhere", || ());
    assert!(is_too_large(&outcome) && turns.get() > 0);
    assert_eq!(toy.manager.stats().snapshots_cancelled, 0, "none is in the way");
    commit(large);
}

/// The entries of transactions that have ended stay for as long as the chunks have one of a transaction that runs.
#[test]
fn a_session_that_shares_its_chunks_is_not_too_large_but_run_again() {
    let toy = toy(2);
    let enter = |txn: &mut Txn, len: usize| {
        txn.ensure_xid()?;
        txn.reserve(0, len)?;
        txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; LARGE][..len], before: None, structure: 0 });
        txn.release();
        Ok(())
    };
    let mut small = begin(&toy, "small");
    for len in [100, 3000] {
        enter(&mut small, len).expect("a chunk has room");
        let mut other = begin(&toy, "other");
        enter(&mut other, LARGE).expect("beside the small one");
        commit(other);
    }
    let refused: Result<()> = enter(&mut small, 3000);
    assert!(matches!(refused, Err(Error::UndoMemory { holder: "", .. })), "{refused:?}");
    commit(small);
    let mut again = begin(&toy, "again");
    for len in [3000, 100, 3000, 3000, 3000] {
        enter(&mut again, len).expect("it fits alone");
    }
    assert!(is_too_large(&enter(&mut again, 3000)), "and is told where it does not");
    commit(again);
}

/// The commit has to be made durable, not the snapshot given up that has just seen it.
#[test]
fn a_snapshot_of_what_is_not_durable_yet_stays() {
    let toy = toy(6);
    let mut other = begin(&toy, "other");
    enter_many(&mut other, 3).expect("half of all");
    let mut large = begin(&toy, "large");
    enter_many(&mut large, 3).expect("the other half");
    let seen = Rc::new(RefCell::new(None));
    let (keep, others, mut other, mut turn) = (seen.clone(), toy.clone(), Some(other), 0);
    pause::set("txn: found no space for undo", move || {
        turn += 1;
        // In the first turn all has been made durable.
        if let Some(other) = other.take_if(|_| turn == 2) {
            commit(other);
            *keep.borrow_mut() = Some(latest(&others, "latest"));
        }
    });
    // In a turn of its own, in which there is more to hope for than in the others.
    let mut third = begin(&toy, "third");
    third.ensure_xid().expect("an xid");
    let outcome = enter(&mut large);
    pause::set("nowhere", || ());
    outcome.expect("what has committed is needed by nobody");
    let seen = seen.borrow();
    assert!(!seen.as_ref().expect("taken").is_cancelled());
    commit(third);
    commit(large);
}

/// A chunk that an operation has held until now has room as it is.
#[test]
fn no_snapshot_is_cancelled_for_space_that_a_session_frees() {
    let toy = toy(2);
    let old = latest(&toy, "old");
    let mut first = begin(&toy, "first");
    enter(&mut first).expect("no other session has any");
    ManuallyDrop::into_inner(first).commit().expect("committed").wait().expect("durable");
    let mut other = begin(&toy, "other");
    other.ensure_xid().expect("an xid");
    other.reserve(0, LARGE).expect("the last chunk");
    other.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; 100], before: None, structure: 0 });
    let other = Rc::new(RefCell::new(other));
    let leaver = other.clone();
    let mut small = begin(&toy, "small");
    small.ensure_xid().expect("an xid");
    pause::set("txn: found no space for undo", move || leaver.borrow_mut().release());
    let outcome = small.reserve(0, 4000);
    pause::set("nowhere", || ());
    outcome.expect("the chunk that was left");
    assert!(!old.is_cancelled(), "it is not in the way");
    commit(small);
    commit(Rc::into_inner(other).expect("the only one").into_inner());
}

/// A transaction inside an operation, which holds the last of two chunks.
fn holder_of_the_last(toy: &Toy) -> ManuallyDrop<Txn> {
    let mut first = begin(toy, "first");
    enter(&mut first).expect("no other session has any");
    first.release();
    let mut holder = begin(toy, "inside an operation");
    holder.ensure_xid().expect("an xid");
    holder.reserve(0, LARGE).expect("the last chunk");
    holder
}

#[test]
fn what_an_operation_holds_is_waited_for() {
    let toy = toy(2);
    let holder = Rc::new(RefCell::new(holder_of_the_last(&toy)));
    let mut other = begin(&toy, "other");
    other.ensure_xid().expect("an xid");
    let (leaver, mut turn) = (holder.clone(), 0);
    pause::set("txn: found no space for undo", move || {
        turn += 1;
        // In the first turn the log is forced, and in the next one there is nothing to do but to wait.
        if turn == 2 {
            leaver.borrow_mut().release();
        }
    });
    let outcome = other.reserve(0, LARGE);
    pause::set("nowhere", || ());
    outcome.expect("it was left in the end");
    commit(other);
    commit(Rc::into_inner(holder).expect("the only one").into_inner());
}

/// It may have come since the log was forced, and no other thread may force it.
#[test]
fn what_a_commit_keeps_until_it_is_durable_is_waited_for() {
    let options =
        TxnManagerOptions { undo_limit_bytes: 4 * CHUNK, hold_until_durable: EarlyRelease::Off.hook(), ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 4], options));
    let mut writer = begin(&toy, "writer");
    enter_many(&mut writer, 4).expect("no other session has any");
    writer.release();
    let (mut writer, mut turn) = (Some(writer), 0);
    pause::set("txn: found no space for undo", move || {
        turn += 1;
        if let Some(writer) = writer.take_if(|_| turn == 2) {
            drop(ManuallyDrop::into_inner(writer).commit_pipelined().expect("committed"));
        }
    });
    let mut other = begin(&toy, "other");
    let outcome = enter(&mut other);
    pause::set("nowhere", || ());
    outcome.expect("all of it comes back");
    commit(other);
}

#[test]
fn a_search_ends_in_time_and_tells_of_the_limit() {
    const PATIENCE: Duration = Duration::from_millis(50);
    let options = TxnManagerOptions { undo_limit_bytes: 2 * CHUNK, undo_timeout: PATIENCE, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 4], options));
    let seen = latest(&toy, "in nobody's way");
    let holder = holder_of_the_last(&toy);
    let mut other = begin(&toy, "other");
    other.ensure_xid().expect("an xid");
    let began = Instant::now();
    let outcome = other.reserve(0, LARGE);
    let Err(Error::UndoMemory { max, holder: label }) = outcome else { panic!("{outcome:?}") };
    assert!(max == 2 * CHUNK && ["first", "inside an operation"].contains(&label), "{max} {label}");
    assert!(began.elapsed() >= PATIENCE, "who is inside an operation may have left in time");
    assert!(!seen.is_cancelled());
    commit(holder);
    enter(&mut other).expect("it can go on");
    commit(other);
}

/// A transaction that waits for a row may wait for one that needs the memory to end.
#[test]
fn a_waiter_for_a_row_keeps_no_space_from_others() {
    const WAITERS: usize = 3;
    let toy = toy(WAITERS + 1);
    let mut holder = toy.begin("holder");
    toy.add(&mut holder, 0, 1).expect("free");
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let mut txn = toy.begin("waiter");
                toy.add(&mut txn, 0, 1).expect("the row, and room again");
                txn.commit().expect("committed").wait().expect("durable");
            });
        }
        while toy.manager.stats().locks.waits < WAITERS as u64 {
            thread::yield_now();
        }
        // A chunk that is empty.
        let roomy = holder.reserve(0, CHUNK - 64);
        holder.commit().expect("committed").wait().expect("durable");
        roomy.expect("those who wait have no use for it");
    });
    assert_eq!(toy.value(0), 1 + WAITERS as i64);
}

/// It keeps the chunks of the transaction before in its session, and may be idle for long.
#[test]
fn a_transaction_that_has_changed_nothing_keeps_no_memory_from_others() {
    let toy = toy(4);
    let mut first = begin(&toy, "first");
    first.ensure_xid().expect("an xid");
    first.reserve(0, 100).expect("the first chunk");
    first.push_undo(&Undoable { kind: 1, table: TableId(99), body: &[1; 100], before: None, structure: 0 });
    ManuallyDrop::into_inner(first).commit().expect("committed").wait().expect("durable");
    let mut idle = begin(&toy, "idle since it began");
    let mut large = begin(&toy, "large");
    enter_many(&mut large, 4).expect("all of the memory");
    commit(large);
    enter(&mut idle).expect("it goes on as any");
    commit(idle);
}
