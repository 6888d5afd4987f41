//! Early lock release: nothing that rests on a commit is acknowledged before that commit is durable.

use crate::toy::{self, TABLE, Toy};
use foreshore_base::{Csn, Error};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_lock::{TableMode, Target};
use foreshore_sync::pause;
use foreshore_txn::TxnManagerOptions;

fn committed_by_a_writer(toy: &Toy) -> foreshore_wal::CommitTicket {
    let mut writer = toy.begin("writer");
    toy.add(&mut writer, 0, 1).expect("free");
    let ticket = writer.commit_pipelined().expect("committed");
    assert!(!ticket.is_durable(), "nobody has waited for it");
    ticket
}

fn assert_waits_for(reader: foreshore_wal::CommitTicket, writer: &foreshore_wal::CommitTicket) {
    assert!(!writer.is_durable() && !reader.is_durable(), "acknowledged before what it has read");
    reader.wait().expect("durable");
    assert!(writer.is_durable(), "acknowledged before what it has read");
}

/// T1 and E4: a commit is acknowledged when it and its watermark are durable.
#[test]
fn a_reader_of_a_row_waits_for_its_writer() {
    let toy = Toy::lazy(&[1]);
    let writer = committed_by_a_writer(&toy);
    let mut reader = toy.begin("reader");
    assert_eq!(toy.get(&mut reader, 0).expect("the lock is free"), 2);
    let reader = reader.commit().expect("committed");
    assert_eq!(reader.csn(), writer.csn());
    assert_waits_for(reader, &writer);
}

/// T2 and E3, for a transaction that locks the whole table.
#[test]
fn a_reader_of_absence_waits_for_the_last_writer_of_the_table() {
    let toy = Toy::lazy(&[1]);
    let writer = committed_by_a_writer(&toy);
    let mut reader = toy.begin("reader");
    reader.lock_table(TABLE, TableMode::Shared).expect("the lock is free");
    assert_eq!(reader.observed(), writer.csn());
    assert_waits_for(reader.commit().expect("committed"), &writer);
}

#[test]
fn a_reader_of_nothing_new_does_not_wait() {
    let toy = Toy::lazy(&[1, 1]);
    let writer = committed_by_a_writer(&toy);
    let mut reader = toy.begin("reader");
    assert_eq!(toy.get(&mut reader, 1).expect("free"), 1);
    assert_eq!(reader.observed(), Csn::ZERO);
    assert!(reader.commit().expect("committed").is_durable());
    writer.wait().expect("durable");
}

/// A transaction that has only locked rows leaves nothing that could be read: it waits for what it has seen, and no
/// other for it.
#[test]
fn what_was_only_locked_rests_on_nothing_that_the_locker_has_seen() {
    let toy = Toy::lazy(&[1, 1]);
    let writer = committed_by_a_writer(&toy);
    let mut locker = toy.begin("locker");
    toy.get(&mut locker, 0).expect("free");
    toy.lock(&mut locker, 1).expect("free");
    let locked = locker.commit().expect("committed");
    let mut reader = toy.begin("reader");
    toy.get(&mut reader, 1).expect("free");
    assert!(reader.commit().expect("committed").is_durable(), "it waits for what it has not read");
    assert_waits_for(locked, &writer);
}

/// E6, for a transaction that rolls back.
#[test]
fn a_rollback_hands_out_what_its_answers_rest_on() {
    let toy = Toy::lazy(&[1, 1]);
    let writer = committed_by_a_writer(&toy);
    let mut txn = toy.begin("rolled back");
    toy.get(&mut txn, 0).expect("free");
    toy.add(&mut txn, 1, 1).expect("free");
    assert_eq!(txn.rollback().expect("undone"), writer.csn());
    writer.wait().expect("durable");
}

fn with(early_release: EarlyRelease) -> Toy {
    Toy::lazy_with(&[1, 1], TxnManagerOptions { hold_until_durable: early_release.hook(), ..toy::small() })
}

/// E5, of rows: what is released early is a matter of locks.
#[test]
fn without_early_release_a_row_is_locked_until_its_commit_is_durable() {
    for early_release in [EarlyRelease::Off, EarlyRelease::SharedOnly] {
        let toy = with(early_release);
        let writer = committed_by_a_writer(&toy);
        let mut next = toy.begin("next");
        // It helps to make the commit durable, and goes on: no other thread would write the log here.
        toy.add(&mut next, 0, 1).expect("free when the commit is durable");
        assert!(writer.is_durable(), "{early_release}: let on before the commit was durable");
        let next = next.commit().expect("committed");
        let mut reader = toy.begin("reader");
        assert_eq!(toy.get(&mut reader, 0).expect("free when the commit is durable"), 3);
        assert!(next.is_durable(), "{early_release}: read before the commit was durable");
    }
    let toy = with(EarlyRelease::Full);
    let writer = committed_by_a_writer(&toy);
    toy.add(&mut toy.begin("next"), 0, 1).expect("free");
    assert!(!writer.is_durable());
}

/// E5, of shared locks.
#[test]
fn shared_locks_go_early_unless_nothing_does() {
    for (early_release, is_kept) in
        [(EarlyRelease::Off, true), (EarlyRelease::SharedOnly, false), (EarlyRelease::Full, false)]
    {
        let toy = with(early_release);
        let mut first = toy.begin("first");
        toy.get(&mut first, 1).expect("free");
        toy.add(&mut first, 0, 1).expect("free");
        let first = first.commit().expect("committed");
        let mut writer = toy.begin("writer");
        let (locks, owner) = writer.locks();
        assert_eq!(locks.shared_by_other(owner, Target::row(TABLE, &toy::key(1))), is_kept, "{early_release}");
        first.wait().expect("durable");
        toy.add(&mut writer, 1, 1).expect("free when the commit is durable");
    }
}

/// As many commits without a waiter as there are sessions: the next transaction waits for one, and only running ones
/// are too many.
#[test]
fn a_session_comes_back_when_its_commit_is_durable() {
    for early_release in [EarlyRelease::Off, EarlyRelease::SharedOnly] {
        let options = TxnManagerOptions { hold_until_durable: early_release.hook(), max_sessions: 1, ..toy::small() };
        let toy = Toy::lazy_with(&[1], options);
        let mut last = None::<foreshore_wal::CommitTicket>;
        for round in 0..3 {
            let mut writer = toy.begin("writer");
            assert!(
                last.is_none_or(|last| last.is_durable()),
                "{early_release}, round {round}: it has what another keeps"
            );
            toy.add(&mut writer, 0, 1).expect("free");
            let refused = toy.try_begin("second").expect_err("all run");
            assert!(matches!(refused, Error::TooManyTransactions { max: 1, .. }), "{refused:?}");
            let ticket = writer.commit().expect("committed");
            assert!(!ticket.is_durable(), "{early_release}, round {round}: nobody has waited for it");
            last = Some(ticket);
        }
    }
}

/// A commit whose locks and session are lost to a panic stops the log: no transaction waits for what does not come
/// back.
#[test]
fn a_panic_in_a_rollback_stops_the_log() {
    let options = TxnManagerOptions { hold_until_durable: EarlyRelease::Off.hook(), max_sessions: 1, ..toy::small() };
    let toy = Toy::lazy_with(&[1], options);
    let ticket = committed_by_a_writer(&toy);
    pause::set("txn: a lease comes back", || panic!("told to panic"));
    ticket.wait().expect("durable before the panic");
    assert_eq!(toy.log.stats().callback_panics, 1);
    assert!(matches!(toy.try_begin("next"), Err(Error::Poisoned { .. })));
    assert!(toy.log.poisoned().is_some());
}
