use super::*;
use foreshore_base::{GroupNo, TableId};

const TREE_KIND: u8 = 40;

fn change(flags: u8, body: &[u8]) -> ChangeRecord<'_> {
    let mut record = ChangeRecord::new(TREE_KIND, flags, 0, TableId(2), &[]);
    record.body = body;
    record
}

fn mark(kind: u8, body: &[u8]) -> ChangeRecord<'_> {
    let mut record = ChangeRecord::new(kind, 0, 0, TableId::ZERO, &[]);
    record.body = body;
    record
}

fn left(outcome: &Outcome) -> Vec<(u64, Vec<u64>)> {
    let lsns = |open: &Open| open.undo.iter().map(|entry| entry.lsn.0).collect();
    outcome.losers.iter().map(|(xid, open)| (xid.0, lsns(open))).collect()
}

#[test]
fn commits_and_ends_leave_only_the_others() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    for (lsn, xid) in [(10, 1), (20, 2), (30, 3), (40, 1), (50, 4)] {
        analysis.note(Xid(xid), Lsn(lsn), &change(UNDOABLE, b"body")).unwrap();
    }
    analysis.note(Xid(2), Lsn(60), &mark(COMMIT, &[])).unwrap();
    analysis.note(Xid(3), Lsn(70), &mark(END, &[])).unwrap();
    // A page action without a transaction is nobody's to undo.
    analysis.note(Xid::ZERO, Lsn(80), &change(0, b"split")).unwrap();
    assert_eq!(analysis.commits, 1);
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome), [(1, vec![10, 40]), (4, vec![50])]);
    assert_eq!(&*outcome.losers[&Xid(4)].undo[0].body, b"body");
    assert_eq!((outcome.next_xid, outcome.clock), (Xid(100), Csn(70)));
}

#[test]
fn a_compensation_takes_its_change_out_and_is_never_undone() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    for lsn in [10, 20, 30] {
        analysis.note(Xid(1), Lsn(lsn), &change(UNDOABLE, &[])).unwrap();
    }
    for (lsn, compensates) in [(40, 30_u64), (50, 20)] {
        analysis.note(Xid(1), Lsn(lsn), &change(CLR, &compensates.to_le_bytes())).unwrap();
    }
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome), [(1, vec![10])]);
    assert_eq!(outcome.losers[&Xid(1)].last_lsn, Lsn(50));
}

#[test]
fn a_loser_that_was_taken_back_wholly_still_needs_its_end() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    analysis.note(Xid(1), Lsn(10), &change(UNDOABLE, &[])).unwrap();
    analysis.note(Xid(1), Lsn(20), &change(CLR, &10_u64.to_le_bytes())).unwrap();
    assert_eq!(left(&analysis.finish().unwrap()), [(1, vec![])]);
}

#[test]
fn who_had_ended_at_the_checkpoint_is_no_loser() {
    let body = CheckpointBody {
        next_xid: Xid(5),
        ceiling: Xid(200),
        clock: Csn(45),
        active: vec![(Xid(2), GroupNo(1)), (Xid(6), GroupNo(1))],
    };
    let bytes = body.encode();
    let mut analysis = Analysis::new(Lsn(50), Xid(100));
    // 1 ended before the scan begins, as far as its commit goes; 2 and 6 ran on; 7 began after the checkpoint looked.
    for (lsn, xid) in [(10, 1), (20, 2), (30, 6), (40, 7)] {
        analysis.note(Xid(xid), Lsn(lsn), &change(UNDOABLE, &[])).unwrap();
    }
    // Nor does a compensation without its change matter in one that has ended.
    analysis.note(Xid(3), Lsn(41), &change(CLR, &5_u64.to_le_bytes())).unwrap();
    analysis.note(Xid::ZERO, Lsn(50), &mark(CHECKPOINT, &bytes)).unwrap();
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome), [(2, vec![20]), (6, vec![30]), (7, vec![40])]);
    assert_eq!((outcome.next_xid, outcome.clock), (Xid(200), Csn(45)));
}

#[test]
fn only_the_checkpoint_of_the_superblock_counts() {
    let newer = CheckpointBody { next_xid: Xid(50), ceiling: Xid(100), clock: Csn(1), active: vec![] };
    let bytes = newer.encode();
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    analysis.note(Xid(1), Lsn(10), &change(UNDOABLE, &[])).unwrap();
    // Its superblock was never written, so what it says may rest on what is lost.
    analysis.note(Xid::ZERO, Lsn(20), &mark(CHECKPOINT, &bytes)).unwrap();
    assert_eq!(left(&analysis.finish().unwrap()), [(1, vec![10])]);
}

#[test]
fn ceilings_only_rise() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    analysis.note(Xid::ZERO, Lsn(10), &mark(XID_CEILING, &300_u64.to_le_bytes())).unwrap();
    analysis.note(Xid::ZERO, Lsn(20), &mark(XID_CEILING, &200_u64.to_le_bytes())).unwrap();
    assert_eq!(analysis.finish().unwrap().next_xid, Xid(300));
}

#[test]
fn logs_that_no_engine_writes_are_refused() {
    let missing = Analysis::new(Lsn(10), Xid(100));
    assert!(missing.finish().is_err(), "the checkpoint is not there");

    let mut unmatched = Analysis::new(Lsn::ZERO, Xid(100));
    unmatched.note(Xid(1), Lsn(10), &change(CLR, &5_u64.to_le_bytes())).unwrap();
    assert!(unmatched.finish().is_err(), "what a live transaction compensates is in the scan");

    let mut beyond = Analysis::new(Lsn::ZERO, Xid(100));
    beyond.note(Xid(100), Lsn(10), &change(UNDOABLE, &[])).unwrap();
    assert!(beyond.finish().is_err(), "an xid at the ceiling was never handed out");

    let mut short = Analysis::new(Lsn::ZERO, Xid(100));
    assert!(short.note(Xid(1), Lsn(10), &change(CLR, &[1, 2])).is_err());
    assert!(short.note(Xid::ZERO, Lsn(10), &mark(XID_CEILING, &[1])).is_err());
    assert!(short.note(Xid::ZERO, Lsn(10), &mark(CHECKPOINT, &[1])).is_err());
}

/// The body of a prepare record under `name`, with nothing locked.
fn prepare_body(name: &str) -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend([name.len() as u8, 0]);
    body.extend(name.as_bytes());
    body.extend([0; 14]);
    body
}

#[test]
fn who_has_prepared_waits_until_it_has_ended_or_is_being_taken_back() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    for xid in 1..=5 {
        analysis.note(Xid(xid), Lsn(10 * xid), &change(UNDOABLE, &[])).unwrap();
        analysis.note_group(Xid(xid), GroupNo(20 - xid));
    }
    // 5 takes something back before, which decides nothing.
    analysis.note(Xid(5), Lsn(55), &change(UNDOABLE, &[])).unwrap();
    analysis.note(Xid(5), Lsn(56), &change(CLR, &55_u64.to_le_bytes())).unwrap();
    for xid in 1..=5 {
        let body = prepare_body(&format!("n{xid}"));
        analysis.note(Xid(xid), Lsn(60 + xid), &mark(PREPARE, &body)).unwrap();
        analysis.note_group(Xid(xid), GroupNo(30));
    }
    analysis.note(Xid(1), Lsn(70), &mark(COMMIT, &[])).unwrap();
    analysis.note(Xid(2), Lsn(71), &mark(END, &[])).unwrap();
    analysis.note(Xid(3), Lsn(72), &mark(ABORT, &[])).unwrap();
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome), [(3, vec![30])], "its rollback had been decided");
    let found: Vec<_> = outcome.in_doubt.iter().map(|found| (found.xid.0, &*found.body.name)).collect();
    assert_eq!(found, [(4, "n4"), (5, "n5")]);
    let five = &outcome.in_doubt[1];
    assert_eq!((five.first_group, five.last_lsn), (GroupNo(15), Lsn(65)));
    assert_eq!(five.changes.iter().map(|change| change.lsn.0).collect::<Vec<_>>(), [50]);
}

#[test]
fn prepare_records_that_no_engine_writes_are_refused() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100));
    assert!(analysis.note(Xid(1), Lsn(10), &mark(PREPARE, &[1, 2])).is_err());
    analysis.note(Xid(2), Lsn(10), &mark(PREPARE, &prepare_body("n"))).unwrap();
    analysis.note_group(Xid(2), GroupNo(1));
    let body = CheckpointBody { next_xid: Xid(5), ceiling: Xid(200), clock: Csn(45), active: vec![] };
    analysis.wanted = Lsn(50);
    analysis.note(Xid::ZERO, Lsn(50), &mark(CHECKPOINT, &body.encode())).unwrap();
    assert!(analysis.finish().unwrap().in_doubt.is_empty(), "it had ended at the checkpoint");
}
