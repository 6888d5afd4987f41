//! Sessions that draw xids in blocks, while others take a checkpoint's view and move the window. What a view counts as
//! ended has ended, and no transaction begins with an xid that it has counted.

use crate::toy::{self, Toy};
use foreshore_base::{GroupNo, Xid};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_txn::{RowHolder, TxnManagerOptions};
use std::sync::Arc;

const ITERATIONS: usize = 300;
const WORKERS: u64 = 2;

/// `capacity`: words of the window, 32 for each xid that a session draws at once.
fn writers_and_checkpoints(capacity: usize, times: i64) {
    let options = TxnManagerOptions { max_sessions: 3, status_capacity: capacity, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0; WORKERS as usize], options));
    // The xid of each worker's transaction from before its first record until after its end; zero between two.
    let running = Arc::new([const { AtomicU64::new(0) }; WORKERS as usize]);
    let counted = Arc::new(AtomicU64::new(0));
    let workers = (0..WORKERS).map(|row| {
        let (toy, running, counted) = (toy.clone(), running.clone(), counted.clone());
        thread::spawn(move || {
            for _ in 0..times {
                let before = counted.load(Ordering::SeqCst);
                let mut txn = toy.begin("writer");
                toy.add(&mut txn, row, 1).expect("its own row");
                let xid = txn.xid().expect("it wrote");
                assert!(xid.0 >= before, "{xid} begins after a view that has counted it as ended");
                running[row as usize].store(xid.0, Ordering::SeqCst);
                thread::yield_now();
                running[row as usize].store(0, Ordering::SeqCst);
                drop(txn.commit_pipelined().expect("committed"));
            }
        })
    });
    let (workers, viewed): (Vec<_>, _) = (workers.collect(), toy.clone());
    let checkpointer = thread::spawn(move || {
        for _ in 0..3 {
            let before = running.each_ref().map(|xid| xid.load(Ordering::SeqCst));
            let view = viewed.manager.checkpoint_view();
            let after = running.each_ref().map(|xid| xid.load(Ordering::SeqCst));
            for (xid, _) in before.into_iter().zip(after).filter(|(before, after)| *before > 0 && before == after) {
                let is_known = Xid(xid) >= view.next_xid || view.active.iter().any(|&(active, _)| active.0 == xid);
                assert!(is_known, "{xid} runs and is not in {view:?}");
            }
            counted.fetch_max(view.next_xid.0, Ordering::SeqCst);
        }
    });
    workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    checkpointer.join().expect("the checkpointer");
    assert_eq!(toy.sum(), times * WORKERS as i64);
}

#[test]
fn a_view_counts_no_xid_that_is_still_to_be_used() {
    shuttle(ITERATIONS, || writers_and_checkpoints(128, 3));
}

/// More transactions than the window has words.
#[test]
fn a_small_window_is_moved_over_what_sessions_have_left() {
    shuttle(ITERATIONS / 10, || writers_and_checkpoints(64, 40));
}

/// Writers whose first records come in any group, and a checkpointer beside them. The log from its scan start on has
/// all records of a transaction that it counts as running.
fn first_records(times: i64) {
    let toy = Arc::new(Toy::lazy_with(&[0; WORKERS as usize], TxnManagerOptions { max_sessions: 3, ..toy::small() }));
    // The xid of each worker's transaction once its first record is durable, until its commit; and a group behind that
    // record.
    let durable = Arc::new([const { AtomicU64::new(0) }; WORKERS as usize]);
    let workers = (0..WORKERS).map(|row| {
        let (toy, durable) = (toy.clone(), durable.clone());
        thread::spawn(move || {
            for _ in 0..times {
                let mut txn = toy.begin("writer");
                toy.lock(&mut txn, row).expect("its own row");
                toy.add(&mut txn, row, 1).expect("its own row");
                toy.log.force(txn.last_lsn()).expect("written");
                let xid = txn.xid().expect("it wrote").0;
                assert!(xid < 1 << 32, "both fit a word");
                durable[row as usize].store(toy.log.next_group().0 << 32 | xid, Ordering::SeqCst);
                thread::yield_now();
                durable[row as usize].store(0, Ordering::SeqCst);
                drop(txn.commit_pipelined().expect("committed"));
            }
        })
    });
    let (workers, viewed): (Vec<_>, _) = (workers.collect(), toy.clone());
    let checkpointer = thread::spawn(move || {
        for _ in 0..3 {
            let begin = viewed.log.next_group();
            let before = durable.each_ref().map(|word| word.load(Ordering::SeqCst));
            let view = viewed.manager.checkpoint_view();
            let after = durable.each_ref().map(|word| word.load(Ordering::SeqCst));
            for (word, _) in before.into_iter().zip(after).filter(|(before, after)| *before > 0 && before == after) {
                let (behind, xid) = (GroupNo(word >> 32), Xid(word & 0xffff_ffff));
                let first = view.active.iter().find(|&&(active, _)| active == xid).expect("it runs").1;
                assert!(
                    first.unwrap_or(begin) < behind,
                    "the first record of {xid} lies before {behind}, not in {view:?}"
                );
            }
        }
    });
    workers.into_iter().for_each(|worker| worker.join().expect("a worker"));
    checkpointer.join().expect("the checkpointer");
}

#[test]
fn a_view_keeps_the_log_from_each_first_record_on() {
    shuttle(ITERATIONS, || first_records(3));
}

#[test]
#[should_panic(expected = "the first record of")]
fn a_first_record_is_noted() {
    shuttle_mutated("txn: checkpoints overlook the first record", ITERATIONS, || first_records(3));
}

#[test]
#[should_panic(expected = "the first record of")]
fn a_first_record_is_noted_before_it_is_appended() {
    shuttle_mutated("txn: the first record is noted behind it", ITERATIONS, || first_records(3));
}

/// A session has drawn three xids and has used one. Whichever thread takes the others, none finds one still to be used
/// after its own view.
fn two_views() {
    let options = TxnManagerOptions { max_sessions: 3, status_capacity: 128, ..toy::small() };
    let toy = Arc::new(Toy::lazy_with(&[0], options));
    let mut txn = toy.begin("writer");
    toy.add(&mut txn, 0, 1).expect("free");
    let left = Xid(txn.xid().expect("it wrote").0 + 1);
    assert_eq!(txn.row_holder(left), RowHolder::Unknown, "it was drawn");
    let looks = [(); 2].map(|()| {
        let toy = toy.clone();
        thread::spawn(move || {
            let view = toy.manager.checkpoint_view();
            assert!(view.next_xid > left);
            assert_eq!(toy.begin("reader").row_holder(left), RowHolder::None, "{left} holds the window");
        })
    });
    looks.into_iter().for_each(|look| look.join().expect("a view"));
    drop(txn.commit_pipelined().expect("committed"));
}

#[test]
fn what_one_view_takes_away_no_other_finds() {
    shuttle(ITERATIONS, two_views);
}

#[test]
#[should_panic(expected = "holds the window")]
fn what_is_left_is_void_before_its_slot_is_free() {
    shuttle_mutated("slots: voided when the slot is free again", ITERATIONS, two_views);
}

#[test]
#[should_panic(expected = "counted it as ended")]
fn a_view_takes_away_what_is_left() {
    shuttle_mutated("slots: left xids stay with their session", ITERATIONS, || writers_and_checkpoints(128, 3));
}
