//! The check of histories finds what it must and allows what it may.

use foreshore_sim::engine::check::{Asked, Found, Prepared, check, check_recovered};
use foreshore_sim::engine::history::{Level, NEVER, Outcome, Row, Rows, Step, Txn};
use std::collections::{BTreeMap, BTreeSet};

const A: Row = (0, 1);
const B: Row = (0, 2);

fn txn(level: Level, (begin, answered): (u64, u64), csn: u64, steps: Vec<Step>) -> Txn {
    let outcome = Outcome::Committed(csn);
    Txn { level, begin, ended: answered, answered, durable: answered, outcome, record: Some(csn), steps }
}

fn write(row: Row, value: u64) -> Step {
    Step::Write { row, value: Some(value) }
}

fn read(row: Row, found: Option<u64>) -> Step {
    Step::Read { row, found, is_locked: false }
}

fn scan(rows: &[(u16, u64)], is_whole: bool) -> Step {
    Step::Scan { table: 0, keys: 0..10, rows: rows.to_vec(), is_backward: false, is_whole, skips: false }
}

fn base() -> Rows {
    Rows::from([(A, 10), (B, 20)])
}

fn is_right(txns: &[Txn]) -> bool {
    check(&base(), txns, &BTreeMap::new()).is_ok()
}

#[test]
fn a_serializable_writer_has_read_what_is_there_just_before_its_commit() {
    let first = txn(Level::Serializable, (1, 4), 5, vec![write(A, 11)]);
    let second = |seen| txn(Level::Serializable, (2, 6), 7, vec![read(A, Some(seen)), write(B, 21)]);
    assert!(is_right(&[first.clone(), second(11)]));
    assert!(!is_right(&[first, second(10)]), "write skew");
}

#[test]
fn a_reader_sees_one_place_and_what_was_answered_before_it_began() {
    let writer = txn(Level::Serializable, (1, 4), 5, vec![write(A, 11), write(B, 21)]);
    let reader = |begin, a, b| {
        let mut reader = txn(Level::Durable, (begin, NEVER), 0, vec![read(A, Some(a)), read(B, Some(b))]);
        reader.outcome = Outcome::Aborted;
        reader
    };
    for (begin, a, b, expected) in [(2, 10, 20, true), (2, 11, 21, true), (2, 10, 21, false), (5, 10, 20, false)] {
        assert_eq!(is_right(&[writer.clone(), reader(begin, a, b)]), expected, "begun at {begin}: {a}, {b}");
    }
}

#[test]
fn the_first_of_two_snapshot_writers_of_a_row_wins() {
    let first = txn(Level::Snapshot, (1, 4), 5, vec![write(A, 11)]);
    let second = |row| txn(Level::Snapshot, (2, 6), 7, vec![read(A, Some(10)), write(row, 21)]);
    assert!(is_right(&[first.clone(), second(B)]), "write skew is allowed");
    assert!(!is_right(&[first, second(A)]), "an update is lost");
}

#[test]
fn what_was_taken_back_is_seen_by_no_level() {
    let steps = vec![write(A, 11), Step::Back { changes: 0 }, write(B, 21)];
    let writer = txn(Level::Serializable, (1, 4), 5, steps);
    for level in [Level::ReadCommitted, Level::Snapshot, Level::Serializable] {
        let reader = |seen| txn(level, (2, 6), 7, vec![read(A, Some(seen)), write((1, 1), 1)]);
        assert!(is_right(&[writer.clone(), reader(10)]));
        assert!(!is_right(&[writer.clone(), reader(11)]), "{level:?}");
    }
    let scanner = |seen| txn(Level::ReadCommitted, (2, 6), 7, vec![scan(&[(1, seen), (2, 21)], true)]);
    assert!(is_right(&[writer.clone(), scanner(10)]) && !is_right(&[writer, scanner(11)]));
}

#[test]
fn a_scan_leaves_no_row_out_and_sees_own_changes() {
    let own = |rows: &[(u16, u64)], is_whole| {
        let steps = vec![write((0, 5), 50), Step::Write { row: A, value: None }, scan(rows, is_whole)];
        is_right(&[txn(Level::Serializable, (1, 4), 5, steps)])
    };
    assert!(own(&[(2, 20), (5, 50)], true) && own(&[(2, 20)], false));
    assert!(!own(&[(2, 20)], true) && !own(&[(5, 50)], false) && !own(&[(1, 10), (2, 20), (5, 50)], true));
    let dropped = vec![Step::Drop { table: 0 }, scan(&[], true), write(A, 12), scan(&[(1, 12)], true)];
    assert!(is_right(&[txn(Level::Serializable, (1, 4), 5, dropped)]));
}

/// Whether these rows may be found after a crash.
fn is_left(txns: &[Txn], rows: &[(Row, u64)]) -> bool {
    let found = Found { rows: rows.iter().copied().collect(), prepared: BTreeSet::new() };
    check_recovered(&base(), txns, &BTreeMap::new(), &found).is_ok()
}

#[test]
fn a_crash_leaves_a_prefix_with_all_that_is_durable() {
    let mut txns: Vec<Txn> = (0..3)
        .map(|n| {
            let steps = vec![write(A, 11 + n), write((1, n as u16), n)];
            txn(Level::Serializable, (n, n + 10), n + 1, steps)
        })
        .collect();
    txns[1].durable = NEVER;
    txns[2].durable = NEVER;
    let first = [(A, 11), (B, 20), ((1, 0), 0)];
    assert!(is_left(&txns, &first));
    assert!(is_left(&txns, &[(A, 12), (B, 20), ((1, 0), 0), ((1, 1), 1)]));
    assert!(!is_left(&txns, &[(A, 10), (B, 20)]), "a durable commit is lost");
    assert!(!is_left(&txns, &[(A, 13), (B, 20), ((1, 0), 0), ((1, 2), 2)]), "a hole");
    assert!(!is_left(&txns, &[(A, 12), (B, 20), ((1, 0), 0)]), "half of a transaction");
    txns[1].outcome = Outcome::Aborted;
    assert!(!is_left(&txns, &[(A, 12), (B, 20), ((1, 0), 0), ((1, 1), 1)]), "an aborted one");
    txns[1].outcome = Outcome::Unknown;
    assert!(is_left(&txns, &[(A, 12), (B, 20), ((1, 0), 0), ((1, 1), 1)]) && is_left(&txns, &first));
}

#[test]
fn of_commits_with_one_number_a_crash_may_leave_any() {
    let mut txns = [A, B].map(|row| txn(Level::Serializable, (1, 4), 5, vec![write(row, 1)]));
    txns.iter_mut().for_each(|txn| txn.durable = NEVER);
    for (a, b) in [(10, 20), (1, 20), (10, 1), (1, 1)] {
        assert!(is_left(&txns, &[(A, a), (B, b)]), "{a}, {b}");
    }
    txns[1].durable = 6;
    assert!(!is_left(&txns, &[(A, 1), (B, 20)]));
}

#[test]
fn a_prepared_transaction_stays_until_it_is_asked_to_end() {
    let prepared = txn(Level::Serializable, (1, NEVER), 0, vec![write(A, 11)]);
    let is_left = |asked, is_listed: bool, a| {
        let list = BTreeMap::from([("p".to_owned(), Prepared { txn: prepared.clone(), asked })]);
        let names = if is_listed { BTreeSet::from(["p".to_owned()]) } else { BTreeSet::new() };
        let found = Found { rows: Rows::from([(A, a), (B, 20)]), prepared: names };
        check_recovered(&base(), &[], &list, &found).is_ok()
    };
    assert!(is_left(Asked::Nothing, true, 10) && !is_left(Asked::Nothing, false, 10), "it was lost");
    assert!(!is_left(Asked::Nothing, true, 11), "its changes show");
    assert!(is_left(Asked::Commit, false, 11) && is_left(Asked::Commit, true, 10));
    assert!(!is_left(Asked::Commit, false, 10), "it was forgotten");
    assert!(is_left(Asked::Rollback, false, 10) && !is_left(Asked::Rollback, false, 11));
    assert!(is_left(Asked::Prepare, true, 10) && is_left(Asked::Prepare, false, 10));
    let found = Found { rows: base(), prepared: BTreeSet::from(["unknown".to_owned()]) };
    assert!(check_recovered(&base(), &[], &BTreeMap::new(), &found).is_err());
}

#[test]
fn what_a_dropped_table_had_conflicts_with_nothing() {
    let first = txn(Level::Snapshot, (1, 4), 5, vec![write(A, 11)]);
    let drops = txn(Level::Serializable, (1, 5), 6, vec![Step::Drop { table: 0 }]);
    let second = txn(Level::Snapshot, (2, 8), 9, vec![read(A, Some(10)), write(A, 21)]);
    assert!(is_right(&[first.clone(), drops, second.clone()]));
    assert!(!is_right(&[first, second.clone()]));
    let anew = vec![Step::Drop { table: 0 }, write(A, 12)];
    assert!(!is_right(&[txn(Level::Serializable, (1, 5), 6, anew), second]), "the row is one of the new table");
}

#[test]
fn what_a_prepared_transaction_has_locked_stays_as_it_was_over_a_restart() {
    let locked = Step::Read { row: A, found: Some(10), is_locked: true };
    let by_another = txn(Level::Serializable, (20, 24), 25, vec![write(A, 11)]);
    let is_right_after = |level, steps: &[Step]| {
        let mut prepared = txn(level, (1, 28), 30, [steps, &[write(B, 21)]].concat());
        prepared.keep_what_is_locked();
        is_right(&[by_another.clone(), prepared])
    };
    assert!(!is_right_after(Level::Serializable, &[read(A, Some(10))]), "its shared lock was forgotten");
    assert!(!is_right_after(Level::Serializable, &[scan(&[(1, 10), (2, 20)], true)]));
    assert!(!is_right_after(Level::ReadCommitted, std::slice::from_ref(&locked)));
    // A row that only a snapshot has shown may change, and a place in the run before is not known any more.
    assert!(is_right_after(Level::ReadCommitted, &[read(A, Some(10))]));
    assert!(is_right_after(Level::Snapshot, &[read(A, Some(10))]));
}
