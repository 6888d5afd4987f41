//! Undo space is short while a writer is about to link a version to an old one. The snapshot that keeps the memory is
//! cancelled, and none that keeps nothing. And it is short where transactions hold it: they wait, and none that others
//! keep from its share is taken for too large.

use crate::toy::{self, Toy};
use foreshore_base::{Error, TableId};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_lock::TableMode;
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::pause;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Before, SnapshotKind, Txn, TxnManagerOptions, UndoPtr, Undoable};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

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

/// Those that a failure has cut short are not rolled back. The commit is logged, and leaves the changes of no table.
fn commit(toy: &Toy, mut txn: ManuallyDrop<Txn>) {
    toy.log_a_change(&mut txn);
    ManuallyDrop::into_inner(txn).commit().expect("committed").wait().expect("durable");
}

fn one_is_given_up() {
    let options = TxnManagerOptions { undo_limit_bytes: CHUNKS << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let take = |label| toy.manager.snapshot(SnapshotKind::Latest, label);
    // It sees what lies in half of the memory.
    let oldest = take("oldest");
    let mut first = ManuallyDrop::new(toy.begin("first"));
    let entered: Vec<UndoPtr> = (0..CHUNKS / 2).map(|_| enter(&mut first, LARGE, None)).collect();
    let (xid, undo) = (first.xid().expect("drawn"), *entered.last().expect("some"));
    commit(&toy, first);
    let young = take("young");
    let linker = {
        let toy = toy.clone();
        thread::spawn(move || {
            let mut txn = ManuallyDrop::new(toy.begin("linker"));
            txn.refresh_view();
            enter(&mut txn, 100, Some(Before { xid, undo, ..Before::default() }));
            commit(&toy, txn);
        })
    };
    let mut large = ManuallyDrop::new(toy.begin("large"));
    (0..CHUNKS - 3).for_each(|_| _ = enter(&mut large, LARGE, None));
    linker.join().expect("the writer");
    commit(&toy, large);
    assert!(oldest.is_cancelled(), "there was not enough for both");
    assert!(!young.is_cancelled(), "what the first one kept was enough");
}

#[test]
fn one_snapshot_is_given_up_and_not_the_next() {
    shuttle(ITERATIONS, one_is_given_up);
}

#[test]
#[should_panic(expected = "was enough")]
fn a_pin_must_not_cost_the_next_snapshot() {
    shuttle_mutated("undo: a snapshot is cancelled where a pin ends soon", 20 * ITERATIONS, one_is_given_up);
}

/// Two writers and one chunk that has room. Neither keeps it for longer than its operation takes, or its rollback.
fn writers_share_a_chunk() {
    let options = TxnManagerOptions { undo_limit_bytes: 2 << 13, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let mut large = ManuallyDrop::new(toy.begin("large"));
    enter(&mut large, LARGE, None);
    enter(&mut large, 2900, None);
    large.release();
    // A session with a chunk in hand is held up.
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
    commit(&toy, large);
}

#[test]
fn more_writers_than_chunks_share_them() {
    shuttle(ITERATIONS, writers_share_a_chunk);
}

/// One transaction holds all chunks but one, and wants that one too. Small transactions use it, one after the other.
/// They may leave it in an idle lease, if memory is not short yet.
fn all_but_one_chunk() {
    let options = TxnManagerOptions {
        undo_limit_bytes: CHUNKS << 13,
        undo_timeout: Duration::MAX,
        max_sessions: 4,
        ..toy::small()
    };
    let toy = Arc::new(Toy::lazy_with(&[0; 2], options));
    let mut large = ManuallyDrop::new(toy.begin("large"));
    let fill = |large: &mut Txn| (1..CHUNKS).for_each(|_| _ = enter(large, LARGE, None));
    let hold_up = || (0..500 * choose(2)).for_each(|_| thread::yield_now());
    let points = ["undo: a chunk is in hand", "txn: a lease is about to be idle", "undo: counted a session"];
    pause::set(points[choose(3) as usize], hold_up);
    let fills_at = choose(3);
    if fills_at == 0 {
        fill(&mut large);
    }
    let mut first = ManuallyDrop::new(toy.begin("first"));
    enter(&mut first, 100, None);
    first.release();
    commit(&toy, first);
    if fills_at == 1 {
        fill(&mut large);
    }
    let small = {
        let toy = toy.clone();
        thread::spawn(move || {
            for row in 0..2 {
                let mut txn = toy.begin("small");
                hold_up();
                toy.add(&mut txn, row, 1).expect("it waits");
                txn.release();
                drop(txn.commit().expect("committed"));
            }
        })
    };
    if fills_at == 2 {
        fill(&mut large);
    }
    let outcome = large.reserve(0, LARGE);
    large.release();
    small.join().expect("it is refused nothing");
    outcome.expect("the last chunk comes free");
    commit(&toy, large);
}

#[test]
fn memory_that_others_hold_makes_no_transaction_too_large() {
    shuttle(10 * ITERATIONS, all_but_one_chunk);
}

/// Either of the two is refused.
#[test]
#[should_panic(expected = "max: 65536")]
fn a_session_holds_memory_before_it_takes_a_chunk() {
    shuttle_mutated("undo: a session with a chunk in hand does not hold it", 10 * ITERATIONS, all_but_one_chunk);
}

/// Either of the two is refused.
#[test]
#[should_panic(expected = "max: 65536")]
fn a_session_holds_memory_until_it_has_given_it_up() {
    shuttle_mutated("undo: a session gives its chunk up after it is counted", 10 * ITERATIONS, all_but_one_chunk);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn a_session_holds_memory_until_it_is_on_the_shelf() {
    shuttle_mutated(
        "undo: a session holds nothing before its chunks are on the shelf",
        10 * ITERATIONS,
        all_but_one_chunk,
    );
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn a_session_holds_memory_before_it_takes_it_from_the_shelf() {
    shuttle_mutated(
        "undo: chunks of the shelf are taken before the session holds them",
        10 * ITERATIONS,
        all_but_one_chunk,
    );
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn holders_are_counted_twice() {
    shuttle_mutated("undo: holders are counted once", 10 * ITERATIONS, all_but_one_chunk);
}

/// Three transactions hold all memory, and a table each. Each wants more memory and the next one's table, in any order,
/// and waits without a limit of time.
fn locks_and_memory() {
    const ALL: usize = 3;
    let options =
        TxnManagerOptions { undo_limit_bytes: ALL << 13, undo_timeout: Duration::MAX, max_sessions: 4, ..toy::small() };
    let mut toy = Toy::lazy_with(&[0], options);
    toy.timeout = Duration::MAX;
    let toy = Arc::new(toy);
    let table = |number: usize| TableId((number % ALL) as u32);
    let all = [0; ALL].map(|_| {
        let mut txn = ManuallyDrop::new(toy.begin("writer"));
        enter(&mut txn, LARGE, None);
        txn.release();
        txn
    });
    let well = Arc::new(AtomicUsize::new(0));
    let writers: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(number, mut txn)| {
            let (toy, well) = (toy.clone(), well.clone());
            thread::spawn(move || {
                let mut both = || {
                    txn.lock_table(table(number), TableMode::Exclusive)?;
                    let memory_first = choose(2) == 0;
                    if memory_first {
                        txn.reserve(0, LARGE)?;
                    }
                    txn.lock_table(table(number + 1), TableMode::Exclusive)?;
                    txn.reserve(0, LARGE)
                };
                match both() {
                    // ORDERING: SeqCst, in a model.
                    Ok(()) => drop(well.fetch_add(1, Ordering::SeqCst)),
                    Err(Error::UndoMemory { .. } | Error::Deadlock { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
                // It gives all up, as a rollback does.
                commit(&toy, txn);
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    // ORDERING: SeqCst, in a model.
    assert!(well.load(Ordering::SeqCst) > 0, "the end of one lets another go on");
}

/// The same for two, one of which waits for memory with a lock that the other one waits for.
fn a_lock_under_a_wait_for_memory() {
    let options =
        TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_timeout: Duration::MAX, max_sessions: 4, ..toy::small() };
    let mut toy = Toy::lazy_with(&[0; 1], options);
    toy.timeout = Duration::MAX;
    let toy = Arc::new(toy);
    let mut asks = ManuallyDrop::new(toy.begin("asks"));
    enter(&mut asks, LARGE, None);
    let mut locks = ManuallyDrop::new(toy.begin("locks"));
    enter(&mut locks, LARGE, None);
    asks.lock_table(TableId(5), TableMode::Exclusive).expect("free");
    (asks.release(), locks.release());
    toy.log_a_change(&mut locks);
    let locker = thread::spawn(move || {
        let granted = locks.lock_table(TableId(5), TableMode::Exclusive);
        (granted.is_ok(), ManuallyDrop::into_inner(locks).commit().is_ok())
    });
    let refused = asks.reserve(0, LARGE);
    assert!(matches!(refused, Err(Error::UndoMemory { holder: "locks", .. })), "{refused:?}");
    commit(&toy, asks);
    assert_eq!(locker.join().expect("no panic"), (true, true));
}

#[test]
fn waits_for_locks_and_memory_end() {
    shuttle(5 * ITERATIONS, locks_and_memory);
    shuttle(ITERATIONS, a_lock_under_a_wait_for_memory);
}

#[test]
#[should_panic(expected = "deadlock")]
fn waits_for_memory_are_found_in_vain() {
    shuttle_mutated("undo: a deadlock over memory is not detected", ITERATIONS, locks_and_memory);
}

#[test]
#[should_panic(expected = "deadlock")]
fn waits_for_locks_are_followed_to_waits_for_memory() {
    shuttle_mutated("memory: waits for locks are not followed", ITERATIONS, a_lock_under_a_wait_for_memory);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_wait_for_a_lock_is_told_to_those_that_wait_for_memory() {
    shuttle_mutated("memory: a wait for a lock is not told", ITERATIONS, a_lock_under_a_wait_for_memory);
}

/// All of it is kept by a commit that has come since the log was forced for the last time, unless another thread does
/// that.
fn a_commit_holds_its_undo() {
    let short = Duration::from_millis(20);
    let memory = TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_timeout: short, ..toy::small() };
    let options = TxnManagerOptions { hold_until_durable: EarlyRelease::Off.hook(), max_sessions: 4, ..memory };
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
    pause::set("txn: found no space for undo", move || {
        turn += 1;
        drop(writer.take_if(|_| turn == 2).map(|writer| writer.commit_pipelined().expect("committed")));
    });
    let mut other = ManuallyDrop::new(toy.begin("other"));
    other.ensure_xid().expect("an xid");
    let outcome = other.reserve(0, LARGE);
    pause::set("nowhere", || ());
    acknowledger.join().expect("no panic");
    outcome.expect("all of it comes back");
    commit(&toy, other);
}

#[test]
fn a_holder_of_a_chunk_until_durability_is_made_durable() {
    shuttle(ITERATIONS, a_commit_holds_its_undo);
}

#[test]
#[should_panic(expected = "UndoMemory")]
fn the_log_is_forced_again_for_a_held_commit() {
    shuttle_mutated("undo: a commit that holds its undo is not made durable", ITERATIONS, a_commit_holds_its_undo);
}

/// One transaction holds all memory and wants more, behind another that holds none and wants some. Neither has a limit
/// of time.
fn all_memory_behind_another() {
    let options =
        TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_timeout: Duration::MAX, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    let mut large = ManuallyDrop::new(toy.begin("large"));
    (0..2).for_each(|_| _ = enter(&mut large, LARGE, None));
    large.release();
    let small = {
        let toy = toy.clone();
        thread::spawn(move || {
            let mut small = ManuallyDrop::new(toy.begin("small"));
            small.ensure_xid().expect("an xid");
            let outcome = small.reserve(0, LARGE);
            // If it came last, it is the one to end.
            assert!(matches!(outcome, Ok(()) | Err(Error::UndoMemory { .. })), "{outcome:?}");
            commit(&toy, small);
        })
    };
    let refused = large.reserve(0, LARGE);
    assert!(
        matches!(refused, Err(Error::UndoMemory { .. } | Error::TransactionTooLarge { .. })),
        "there is no more: {refused:?}"
    );
    commit(&toy, large);
    small.join().expect("no panic");
}

#[test]
fn a_transaction_that_holds_all_memory_waits_for_none() {
    shuttle(ITERATIONS, all_memory_behind_another);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_holder_of_all_memory_does_not_wait_behind_others() {
    shuttle_mutated("undo: a session that holds all memory waits behind others", ITERATIONS, all_memory_behind_another);
}

/// A small transaction enters changes beside large ones, which end. It fits alone, and has an entry in each chunk.
fn small_beside_large() {
    let options =
        TxnManagerOptions { undo_limit_bytes: 2 << 13, undo_timeout: Duration::MAX, max_sessions: 4, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    let change = |toy: &Toy, label, sizes: &[usize]| {
        let mut txn = ManuallyDrop::new(toy.begin(label));
        txn.ensure_xid().expect("an xid");
        for &bytes in sizes {
            match txn.reserve(0, bytes) {
                Ok(()) => {
                    enter(&mut txn, bytes, None);
                }
                Err(Error::UndoMemory { .. }) => break,
                Err(error) => panic!("{label}: {error:?}"),
            }
            txn.release();
        }
        commit(toy, txn);
    };
    let large = {
        let toy = toy.clone();
        thread::spawn(move || (0..2).for_each(|_| change(&toy, "large", &[LARGE])))
    };
    change(&toy, "small", &[100, 3000, 3000]);
    large.join().expect("no panic");
}

#[test]
fn a_transaction_that_fits_alone_is_not_too_large() {
    shuttle(ITERATIONS, small_beside_large);
}

#[test]
#[should_panic(expected = "TransactionTooLarge")]
fn entries_of_ended_transactions_do_not_count() {
    shuttle_mutated("undo: entries of others make a transaction too large", ITERATIONS, small_beside_large);
}
