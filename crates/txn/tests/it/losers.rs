//! Losers of a restart: transactions of this run wait for them, are refused while their undo is stuck, and get on when
//! all have ended.

use crate::toy::{TABLE, Toy, key, small};
use foreshore_base::{Error, GroupNo, Lsn, Xid};
use foreshore_lock::TableMode;
use foreshore_sync::primitive::thread;
use foreshore_txn::{
    EarlierXids, Isolation, Losers, LosersHold, RowHolder, Snapshot, SnapshotKind, Start, Txn, TxnManagerOptions,
    TxnOptions, UndoContext,
};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const LOSER: Xid = Xid(70);
/// The first xid of this run.
const FIRST: Xid = Xid(100);
const UNDO_LOG: u64 = 5000;

/// A manager that has one loser.
fn with_a_loser() -> (Arc<Toy>, Losers) {
    let start = Start { next_xid: FIRST, clock: Default::default() };
    let toy = Toy::starting(start, &[0; 4], TxnManagerOptions { system_sessions: 1, ..small() }).0;
    let losers = toy.manager.hold_losers(LosersHold {
        xids: EarlierXids { first: Xid(64), ended: vec![0] },
        losers: vec![LOSER],
        first_group: GroupNo(1),
        tables: vec![TABLE],
        undo_log: UNDO_LOG,
    });
    (Arc::new(toy), losers.expect("no other transaction has begun"))
}

fn is_refused(outcome: &Result<(), Error>) -> bool {
    matches!(outcome, Err(Error::RollbackParked { label: "rollback at restart", .. }))
}

/// Waits until so many waits have begun.
fn until_waits(toy: &Toy, waits: u64) {
    let began = Instant::now();
    // WAIT: window - for a thread that is about to wait.
    while toy.manager.stats().locks.waits < waits {
        assert!(began.elapsed() < SOON, "no thread waits");
        thread::yield_now();
    }
}

fn wait(txn: &mut Txn) -> Result<(), Error> {
    while txn.row_holder(LOSER) == RowHolder::Other(LOSER) {
        txn.wait_row(TABLE, &key(1), LOSER)?;
    }
    Ok(())
}

/// Runs `work` in a transaction on a thread of its own. The transaction runs until the result is dropped.
fn beside<T: Send + 'static>(
    toy: &Arc<Toy>,
    work: impl FnOnce(&Toy, &mut Txn) -> T + Send + 'static,
) -> (mpsc::Receiver<T>, mpsc::Sender<()>) {
    let (toy, (tell, told), (keep, kept)) = (Arc::clone(toy), mpsc::channel(), mpsc::channel::<()>());
    thread::spawn(move || {
        let options = TxnOptions { isolation: Isolation::Snapshot, lock_timeout: toy.timeout, ..TxnOptions::default() };
        let mut txn = toy.manager.begin(options).expect("a session");
        let done = work(&toy, &mut txn);
        tell.send(done).ok();
        kept.recv().ok();
    });
    (told, keep)
}

const SOON: Duration = Duration::from_secs(30);

#[test]
fn losers_hold_their_tables_their_log_and_their_rows_until_they_have_ended() {
    let (toy, mut losers) = with_a_loser();
    assert_eq!(losers.session().undo_log(), UNDO_LOG, "the log of the compensations is theirs");
    let is_listed = |toy: &Toy| toy.manager.checkpoint_view().active.contains(&(LOSER, Some(GroupNo(1))));
    assert!(is_listed(&toy));
    assert_eq!(toy.manager.xids().oldest_group(), Some(GroupNo(1)), "statistics show what keeps the log");
    let mut other = toy.begin("other");
    assert!(!other.try_lock_table(TABLE, TableMode::Exclusive) && other.try_lock_table(TABLE, TableMode::IntentShared));
    let (waiter, _keep) = beside(&toy, |_, txn| wait(txn));
    until_waits(&toy, 1);
    assert!(waiter.try_recv().is_err());
    losers.end(LOSER);
    assert!(!is_listed(&toy), "its END is in the log");
    losers.finish().expect("nothing is left");
    assert!(waiter.recv_timeout(SOON).expect("woken").is_ok());
    assert!(other.try_lock_table(TABLE, TableMode::Exclusive));
    assert!(wait(&mut other).is_ok(), "there is nothing to wait for");
}

#[test]
fn waiters_are_refused_only_while_the_undo_is_stuck() {
    let (toy, mut losers) = with_a_loser();
    for round in 0..2 {
        let (waiter, _keep) = beside(&toy, |_, txn| wait(txn));
        until_waits(&toy, 2 * round + 1);
        losers.refuse(Error::DiskFull { path: "data".into(), held_by: None });
        assert!(is_refused(&waiter.recv_timeout(SOON).expect("woken")), "round {round}");
        assert!(is_refused(&wait(&mut toy.begin("later"))), "round {round}");
        losers.wait_again();
        let (waiter, _keep) = beside(&toy, |_, txn| wait(txn));
        until_waits(&toy, 2 * round + 2);
        assert!(waiter.try_recv().is_err(), "round {round}: it waits again");
    }
    losers.finish().expect("nothing is left");
    assert!(wait(&mut toy.begin("later")).is_ok());
}

/// A reader by a snapshot is woken first. It takes no row, so the next waiter does not wait for the reader's end.
#[test]
fn a_reader_that_is_woken_passes_that_on() {
    let (toy, mut losers) = with_a_loser();
    let (reader, reads) = beside(&toy, |_, txn| {
        let snapshot = txn.own_snapshot().expect("it reads by one");
        let waited = txn.wait_earlier(&snapshot, TABLE, &key(1), LOSER);
        txn.end_reads_at(snapshot);
        waited
    });
    until_waits(&toy, 1);
    let (writer, _writes) = beside(&toy, |_, txn| wait(txn));
    until_waits(&toy, 2);
    losers.finish().expect("nothing is left");
    assert!(reader.recv_timeout(SOON).expect("woken").is_ok());
    assert!(writer.recv_timeout(SOON).expect("the reader still runs").is_ok());
    drop(reads);
}

#[test]
fn a_reader_does_not_wait_on_when_its_snapshot_is_cancelled() {
    let (toy, losers) = with_a_loser();
    let (reader, _reads) = beside(&toy, |_, txn| {
        let snapshot = txn.own_snapshot().expect("it reads by one");
        let waited = txn.wait_earlier(&snapshot, TABLE, &key(1), LOSER);
        txn.end_reads_at(snapshot);
        waited
    });
    until_waits(&toy, 1);
    assert!(toy.manager.visibility().cancel_oldest().is_some());
    let waited = reader.recv_timeout(SOON).expect("it looks around");
    assert!(matches!(waited, Err(Error::SnapshotTooOld { .. })), "{waited:?}");
    drop(losers);
}

#[test]
fn an_xid_of_the_previous_run_is_seen_when_all_have_ended() {
    let (toy, mut losers) = with_a_loser();
    let sees = |snapshot: &Snapshot| snapshot.sees(LOSER).is_some();
    let before = toy.manager.snapshot(SnapshotKind::Latest, "reader");
    assert!(!sees(&before));
    losers.finish().expect("nothing is left");
    assert!(sees(&before) && sees(&toy.manager.snapshot(SnapshotKind::Latest, "reader")));
}

/// Locks in headers are not logged. So the undo at a restart meets those of other transactions of the previous run, and
/// beside transactions none of this run: that row is not the loser's.
#[test]
fn an_undo_takes_only_rows_of_its_own_run() {
    let (toy, mut losers) = with_a_loser();
    let may_hold = |losers: &mut Losers, beside| {
        let context = UndoContext::at_restart(losers.session(), LOSER, Lsn(1), beside);
        [LOSER.0, 64, FIRST.0 - 1, FIRST.0, FIRST.0 + 9].map(|xid| context.may_hold(Xid(xid)))
    };
    assert_eq!(losers.first_xid(), FIRST);
    assert_eq!(may_hold(&mut losers, Some(FIRST)), [true, true, true, false, false]);
    assert_eq!(may_hold(&mut losers, None), [true; 5]);
    drop(toy);
}
