//! Memory for undo is short while a writer is about to link a version to an old one: the snapshot that keeps the memory is given
//! up, and none that keeps nothing. And it is short where more writers are inside operations than there are chunks.
#![cfg(foreshore_shuttle)]

mod toy;

use foreshore_base::TableId;
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Before, EarlyRelease, SnapshotKind, Txn, TxnManagerOptions, UndoPtr, Undoable};
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::Duration;
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
    txn.push_undo(&Undoable { kind: 1, table: TableId(99), body: &body, before, structure: 0 })
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

/// Two writers and one chunk that has room. Nobody keeps it for longer than his operation takes, or his rollback.
fn writers_share_a_chunk() {
    let options = TxnManagerOptions { undo_limit_bytes: 2 << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let mut large = ManuallyDrop::new(toy.begin("large"));
    enter(&mut large, LARGE, None);
    enter(&mut large, 2900, None);
    large.release();
    // Who has a chunk in hand is held up.
    pause::set("undo: a chunk is in hand", || (0..100).for_each(|_| thread::yield_now()));
    let writers = [0, 1].map(|row| {
        let toy = toy.clone();
        thread::spawn(move || {
            let mut txn = toy.begin("writer");
            toy.add(&mut txn, row, 1).expect("the chunk is left");
            txn.release();
            if row == 0 { drop(txn) } else { drop(txn.commit().expect("committed")) }
        })
    });
    let outcomes = writers.map(|writer| writer.join());
    pause::set("nowhere", || ());
    outcomes.into_iter().for_each(|outcome| outcome.expect("it is refused nothing"));
    assert_eq!(toy.sum(), 1);
    commit(large);
}

#[test]
fn more_writers_than_chunks_share_them() {
    shuttle(ITERATIONS, writers_share_a_chunk);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn who_is_inside_an_operation_is_waited_for() {
    shuttle_mutated("undo: nobody who is busy is waited for", ITERATIONS, writers_share_a_chunk);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn a_session_is_busy_before_it_takes_a_chunk() {
    shuttle_mutated("undo: busy with a chunk in hand", ITERATIONS, writers_share_a_chunk);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn a_session_is_busy_until_it_has_left_its_chunks() {
    shuttle_mutated("undo: idle with a chunk in hand", ITERATIONS, writers_share_a_chunk);
}

/// All of it is kept by a commit that has come since the log was forced for the last time, unless another thread does that.
fn a_commit_lingers() {
    let short = Duration::from_millis(20);
    let memory = TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_patience: short, ..toy::small() };
    let options = TxnManagerOptions { early_release: EarlyRelease::Off, max_sessions: 4, ..memory };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("its own row");
    for _ in 0..2 {
        enter(&mut writer, LARGE, None);
    }
    writer.release();
    let log = toy.log.clone();
    let acknowledger = thread::spawn(move || log.force(log.current()).expect("durable"));
    let (mut writer, mut turn) = (Some(writer), 0);
    pause::set("txn: found no room for undo", move || {
        turn += 1;
        drop(writer.take_if(|_| turn == 2).map(|writer| writer.commit_pipelined().expect("committed")));
    });
    let mut other = ManuallyDrop::new(toy.begin("other"));
    other.ensure_xid().expect("an xid");
    let outcome = other.reserve(0, LARGE);
    pause::set("nowhere", || ());
    acknowledger.join().expect("no panic");
    outcome.expect("all of it comes back");
    commit(other);
}

#[test]
fn who_keeps_a_chunk_until_it_is_durable_is_made_durable() {
    shuttle(ITERATIONS, a_commit_lingers);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn the_log_is_forced_again_for_who_lingers() {
    shuttle_mutated("undo: a commit that lingers is not made durable", ITERATIONS, a_commit_lingers);
}

const ABOUT_TO_END: &str = "txn: about to give up its undo";

/// Memory is full of a large transaction and a chunk that `second` and `first` have left without room.
fn full_memory() -> (Arc<Toy>, [ManuallyDrop<Txn>; 3]) {
    let options = TxnManagerOptions { undo_limit_bytes: 2 << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let mut txns = ["large", "second", "first"].map(|label| ManuallyDrop::new(toy.begin(label)));
    for (txn, bytes) in [(0, LARGE), (0, 2900), (2, LARGE), (1, 2900)] {
        enter(&mut txns[txn], bytes, None);
        txns[txn].release();
    }
    (toy, txns)
}

/// Somebody searches from when the first has begun to end.
fn search_beside(toy: &Toy, enders: impl FnOnce() -> Vec<thread::JoinHandle<()>>, has_begun: &Arc<AtomicBool>) {
    let mut other = ManuallyDrop::new(toy.begin("other"));
    other.ensure_xid().expect("an xid");
    let enders = enders();
    wait_for(has_begun);
    let outcome = other.reserve(0, LARGE);
    enders.into_iter().for_each(|ender| ender.join().expect("no panic"));
    pause::set("nowhere", || ());
    outcome.expect("there was hope all the time");
    commit(other);
}

fn raise(flag: &Arc<AtomicBool>) {
    flag.store(true, Ordering::SeqCst);
}

/// All of the first one's end comes between two steps of who looks.
fn an_ender_passes_who_looks() {
    let (toy, [large, second, first]) = full_memory();
    commit(second);
    let [has_begun, may, done] = [0; 3].map(|_| Arc::new(AtomicBool::new(false)));
    let (begun, is_done) = (has_begun.clone(), done.clone());
    pause::set(ABOUT_TO_END, move || {
        let (first_may, first_done, mut looks) = (may.clone(), is_done.clone(), 0);
        pause::set("undo: looked at the chunks", move || {
            looks += 1;
            // After the first the log was forced.
            if looks == 2 {
                raise(&first_may);
                wait_for(&first_done);
            }
        });
        raise(&begun);
        wait_for(&may);
    });
    let ender = || {
        vec![thread::spawn(move || {
            commit(first);
            raise(&done);
        })]
    };
    search_beside(&toy, ender, &has_begun);
    commit(large);
}

#[test]
fn who_is_about_to_end_is_waited_for() {
    shuttle(ITERATIONS, an_ender_passes_who_looks);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn who_is_busy_is_counted_before_the_look() {
    shuttle_mutated("undo: who is busy is counted after the look", ITERATIONS, an_ender_passes_who_looks);
}

/// The second is counted, begins to end, and only then the first has ended and is counted.
fn two_enders_pass_who_counts() {
    let (toy, [large, second, first]) = full_memory();
    let [first_begun, second_may, second_begun, first_may, first_done] =
        [0; 5].map(|_| Arc::new(AtomicBool::new(false)));
    let (begun, may, done) = (first_begun.clone(), first_may.clone(), first_done.clone());
    let go = second_may.clone();
    pause::set(ABOUT_TO_END, move || {
        let (go, second_begun, first_may, first_done) = (go.clone(), second_begun.clone(), may.clone(), done.clone());
        let mut counted = 0;
        pause::set("undo: counted a session", move || {
            counted += 1;
            // In the second turn, behind the large and the second one. In the first the log was forced.
            if counted != 5 {
                return;
            }
            let begun = second_begun.clone();
            pause::set(ABOUT_TO_END, move || {
                raise(&begun);
                // It is held up.
                (0..100).for_each(|_| thread::yield_now());
            });
            raise(&go);
            wait_for(&second_begun);
            raise(&first_may);
            wait_for(&first_done);
        });
        raise(&begun);
        wait_for(&may);
    });
    let enders = || {
        let first = thread::spawn(move || {
            commit(first);
            raise(&first_done);
        });
        let second = thread::spawn(move || {
            wait_for(&second_may);
            commit(second);
        });
        vec![first, second]
    };
    search_beside(&toy, enders, &first_begun);
    commit(large);
}

#[test]
fn who_begins_to_end_beside_who_counts_is_waited_for() {
    shuttle(ITERATIONS, two_enders_pass_who_counts);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn who_is_busy_is_counted_twice() {
    shuttle_mutated("undo: who is busy is counted once", ITERATIONS, two_enders_pass_who_counts);
}

fn wait_for(flag: &Arc<AtomicBool>) {
    while !flag.load(Ordering::SeqCst) {
        thread::yield_now();
    }
}

/// An idle session has the only chunk with room, or is about to be idle: two look for it, and each needs a part.
fn searchers_share_what_an_idle_session_has() {
    let options = TxnManagerOptions { undo_limit_bytes: CHUNKS << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let mut first = ManuallyDrop::new(toy.begin("first"));
    enter(&mut first, 100, None);
    let (large, filled) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
    let (filler, keep, has_filled) = (toy.clone(), large.clone(), filled.clone());
    // Memory is spent only now, so it has kept its chunk.
    pause::set("txn: a lease is about to be idle", move || {
        if has_filled.load(Ordering::SeqCst) {
            return;
        }
        let mut txn = ManuallyDrop::new(filler.begin("large"));
        for _ in 1..CHUNKS {
            enter(&mut txn, LARGE, None);
        }
        enter(&mut txn, 2900, None);
        txn.release();
        keep.lock().expect("no panic").replace(txn);
        has_filled.store(true, Ordering::SeqCst);
        // It is held up.
        (0..100).for_each(|_| thread::yield_now());
    });
    let searchers = [0, 1].map(|_| {
        let (toy, filled) = (toy.clone(), filled.clone());
        thread::spawn(move || {
            wait_for(&filled);
            let mut txn = ManuallyDrop::new(toy.begin("searcher"));
            enter(&mut txn, 2900, None);
            commit(txn);
        })
    });
    commit(first);
    searchers.into_iter().for_each(|searcher| searcher.join().expect("it is refused nothing"));
    pause::set("nowhere", || ());
    commit(large.lock().expect("no panic").take().expect("it has filled the rest"));
}

#[test]
fn what_idle_sessions_have_is_for_all() {
    shuttle(ITERATIONS, searchers_share_what_an_idle_session_has);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn who_takes_from_the_idle_is_busy() {
    shuttle_mutated(
        "undo: idle while it takes from the idle",
        20 * ITERATIONS,
        searchers_share_what_an_idle_session_has,
    );
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn a_session_is_busy_until_its_lease_is_idle() {
    shuttle_mutated("undo: idle before its lease is", ITERATIONS, searchers_share_what_an_idle_session_has);
}
