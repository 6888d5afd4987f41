//! A session that one transaction after another uses carries nothing from one to the next.

use crate::toy::{Toy, small};
use foreshore_base::{Csn, Error, Lsn};
use foreshore_io::Mem;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_txn::{Isolation, Savepoint, SnapshotKind, Txn, TxnManagerOptions, TxnOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One transaction at a time, so each has the session of the one before.
fn one_session() -> TxnManagerOptions {
    TxnManagerOptions { max_sessions: 1, ..small() }
}

/// Begins a transaction, and checks that it has nothing of another one.
fn begin_afresh(toy: &Toy) -> Txn {
    let mut txn = toy.begin("fresh");
    assert_eq!((txn.label(), txn.isolation(), txn.xid()), ("fresh", Isolation::Serializable, None));
    assert_eq!((txn.observed(), txn.last_lsn()), (Csn::ZERO, Lsn::ZERO));
    assert!(txn.reads_at().expect("it reads").is_none(), "it reads by a snapshot of another one");
    txn
}

/// A transaction that has all that a transaction may have.
fn full(toy: &Toy) -> (Txn, Savepoint) {
    let options = TxnOptions {
        label: "full",
        isolation: Isolation::Snapshot,
        reads: SnapshotKind::Durable,
        ..TxnOptions::default()
    };
    let mut txn = toy.manager.begin(options).expect("a session");
    toy.add(&mut txn, 0, 1).expect("free");
    let savepoint = txn.savepoint();
    toy.add(&mut txn, 1, 1).expect("free");
    txn.observe(toy.log.durable().csn());
    (txn, savepoint)
}

#[test]
fn a_transaction_begins_with_nothing_of_the_one_before() {
    let ends: [fn(Txn); 3] =
        [|txn| drop(txn.commit().expect("committed")), |txn| _ = txn.rollback().expect("rolled back"), drop];
    for end in ends {
        let (toy, _) = Toy::new(Mem::null(), &[1, 2], one_session());
        let (txn, savepoint) = full(&toy);
        end(txn);
        let mut next = begin_afresh(&toy);
        assert!(matches!(next.check_savepoint(&savepoint), Err(Error::NoSavepoint)));
        assert!(matches!(next.rollback_to(&savepoint, |_| false), Err(Error::NoSavepoint)));
        drop(next.commit().expect("committed"));
        assert_eq!(toy.manager.stats().sessions, 1);
        assert!(toy.manager.visibility().oldest_snapshot().is_none(), "a snapshot is kept for nothing");
    }
}

/// A rollback to a savepoint that stops half-way breaks its transaction and no later one.
#[test]
fn a_transaction_is_not_broken_by_the_one_before() {
    let (toy, rows) = Toy::new(Mem::null(), &[1, 2], one_session());
    let (mut txn, savepoint) = full(&toy);
    rows.stuck.store(1, Ordering::Relaxed);
    assert!(txn.rollback_to(&savepoint, |_| false).is_err());
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    txn.rollback().expect("rolled back");
    let mut next = begin_afresh(&toy);
    toy.add(&mut next, 0, 1).expect("free");
    drop(next.commit().expect("committed"));
    assert_eq!(toy.sum(), 4);
}

/// A parked rollback keeps its session: the next transaction has another one. Its snapshot ends at once.
#[test]
fn a_parked_rollback_lends_nothing() {
    let (toy, rows) = Toy::new(Mem::null(), &[1, 2], TxnManagerOptions { max_sessions: 2, ..small() });
    let (txn, savepoint) = full(&toy);
    rows.stuck.store(1, Ordering::Relaxed);
    assert!(matches!(txn.rollback(), Err(Error::RollbackParked { .. })));
    assert!(toy.manager.visibility().oldest_snapshot().is_none(), "it reads no more");
    let next = begin_afresh(&toy);
    assert!(matches!(next.check_savepoint(&savepoint), Err(Error::NoSavepoint)));
    rows.stuck.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(toy.manager.retry_parked().left, 0);
    drop(next);
    drop((begin_afresh(&toy), begin_afresh(&toy)));
}

/// A reference to a snapshot that is kept beyond the transaction stays what it was, and counts as a reader.
#[test]
fn a_snapshot_that_is_kept_is_not_used_again() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], one_session());
    let begin = || {
        let options = TxnOptions { isolation: Isolation::Snapshot, ..TxnOptions::default() };
        toy.manager.begin(options).expect("a session")
    };
    let mut first = begin();
    let kept = first.reads_at().expect("in use").expect("it reads by a snapshot");
    let csn = kept.csn();
    drop(first);
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("free");
    let xid = writer.xid().expect("it wrote");
    drop(writer.commit().expect("committed"));
    let mut second = begin();
    let seen = second.reads_at().expect("in use").expect("it reads by a snapshot");
    assert!(kept.sees(xid).is_none() && seen.sees(xid).is_some());
    assert_eq!((kept.csn(), toy.manager.visibility().oldest_snapshot().map(|oldest| oldest.csn)), (csn, Some(csn)));
    drop((seen, second));
    assert_eq!(toy.manager.visibility().oldest_snapshot().map(|oldest| oldest.csn), Some(csn));
    drop(kept);
    assert!(toy.manager.visibility().oldest_snapshot().is_none());
}

/// What the caller keeps comes back in the next transaction of the session, as its own type only.
#[test]
fn memory_of_the_caller_is_kept_from_one_transaction_to_the_next() {
    let (toy, _) = Toy::new(Mem::null(), &[1], one_session());
    let mut txn = toy.begin("first");
    assert!(txn.take_kept::<Vec<u8>>().is_none());
    txn.keep(Box::new(vec![7_u8]));
    drop(txn);
    let mut txn = toy.begin("second");
    assert_eq!(txn.take_kept::<Vec<u8>>().as_deref(), Some(&vec![7]));
    assert!(txn.take_kept::<Vec<u8>>().is_none(), "it is taken once");
    txn.keep(Box::new(8_u64));
    drop(txn.commit().expect("committed"));
    assert!(toy.begin("third").take_kept::<Vec<u8>>().is_none());
}

/// A panic in an operation of the caller drops its transaction, which gives its session back without its state.
#[test]
fn a_transaction_that_a_panic_has_ended_leaves_nothing() {
    let (toy, _) = Toy::new(Mem::null(), &[1, 2], one_session());
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let (_txn, _savepoint) = full(&toy);
        panic!("a closure of the caller");
    }));
    assert!(unwound.is_err());
    drop(begin_afresh(&toy).commit().expect("committed"));
    assert_eq!(toy.sum(), 3);
    assert!(toy.manager.visibility().oldest_snapshot().is_none());
}
