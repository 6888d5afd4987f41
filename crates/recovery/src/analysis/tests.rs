use super::*;
use foreshore_base::{GroupNo, TableId};
use foreshore_buffer::format::{SEVERAL, UNDOABLE};

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

fn at(xid: u64, lsn: u64) -> At {
    At { xid: Xid(xid), lsn: Lsn(lsn), group: GroupNo(1), incarnation: Incarnation(1) }
}

/// Which of `lsns` stand, if those are all that do.
fn standing(trace: &Trace, lsns: &[u64]) -> Vec<u64> {
    let standing: Vec<u64> = lsns.iter().copied().filter(|&lsn| trace.stands(Lsn(lsn))).collect();
    assert_eq!(standing.len() as u64, trace.left(), "{trace:?}");
    standing
}

/// The losers, each with what is left of its `changes`, which are pairs of LSN and xid.
fn left(outcome: &Outcome, changes: &[(u64, u64)]) -> Vec<(u64, Vec<u64>)> {
    let of = |xid: u64| changes.iter().filter(|change| change.1 == xid).map(|change| change.0).collect::<Vec<_>>();
    outcome.losers.iter().map(|(xid, open)| (xid.0, standing(&open.trace, &of(xid.0)))).collect()
}

#[test]
fn commits_and_ends_leave_only_the_others() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    let changes = [(10, 1), (20, 2), (30, 3), (40, 1), (50, 4)];
    for (lsn, xid) in changes {
        analysis.note(at(xid, lsn), &change(UNDOABLE, b"body")).unwrap();
    }
    analysis.note(at(2, 60), &mark(COMMIT, &[])).unwrap();
    analysis.note(at(3, 70), &mark(END, &[])).unwrap();
    // A page action without a transaction is never undone.
    analysis.note(at(0, 80), &change(0, b"split")).unwrap();
    assert_eq!(analysis.commits, 1);
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome, &changes), [(1, vec![10, 40]), (4, vec![50])]);
    // Stretches are of 64 bytes here, so each change has its own.
    assert_eq!(outcome.stretches.count(), 5);
    assert_eq!(outcome.losers[&Xid(1)].trace.runs().collect::<Vec<_>>(), [0..=0, 3..=3]);
    assert_eq!((outcome.next_xid, outcome.clock), (Xid(100), Csn(70)));
}

#[test]
fn a_compensation_takes_its_change_out_and_is_never_undone() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    for lsn in [10, 20, 30] {
        analysis.note(at(1, lsn), &change(UNDOABLE, &[])).unwrap();
    }
    for (lsn, compensates) in [(40, 30_u64), (50, 20)] {
        analysis.note(at(1, lsn), &change(CLR, &compensates.to_le_bytes())).unwrap();
    }
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome, &[(10, 1), (20, 1), (30, 1)]), [(1, vec![10])]);
    assert_eq!(outcome.losers[&Xid(1)].last_lsn, Lsn(50));
}

#[test]
fn each_of_several_changes_of_a_record_is_compensated_by_itself() {
    let several = change(UNDOABLE | SEVERAL, &[3, 0]);
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    analysis.note(at(1, 10), &change(UNDOABLE, &[])).unwrap();
    analysis.note(at(1, 20), &several).unwrap();
    analysis.note(at(1, 30), &change(CLR, &20_u64.to_le_bytes())).unwrap();
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome, &[(10, 1), (18, 1), (19, 1), (20, 1)]), [(1, vec![10, 18, 19])]);
    // The last of them is undone first.
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    analysis.note(at(1, 20), &several).unwrap();
    analysis.note(at(1, 30), &change(CLR, &18_u64.to_le_bytes())).unwrap();
    analysis.note(at(1, 31), &change(CLR, &19_u64.to_le_bytes())).unwrap();
    assert!(analysis.finish().is_err());
    for (flags, body, lsn) in [
        (SEVERAL, &[3, 0][..], 20),
        (UNDOABLE | SEVERAL, &[3], 20),
        (UNDOABLE | SEVERAL, &[0, 0], 20),
        (UNDOABLE | SEVERAL, &[3, 0], 2),
    ] {
        let noted = Analysis::new(Lsn::ZERO, Xid(100), 64).note(at(1, lsn), &change(flags, body));
        assert!(noted.is_err(), "flags {flags}, body {body:?} at {lsn}");
    }
}

#[test]
fn a_loser_that_was_taken_back_wholly_still_needs_its_end() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    analysis.note(at(1, 10), &change(UNDOABLE, &[])).unwrap();
    analysis.note(at(1, 20), &change(CLR, &10_u64.to_le_bytes())).unwrap();
    assert_eq!(left(&analysis.finish().unwrap(), &[(10, 1)]), [(1, vec![])]);
}

#[test]
fn a_transaction_that_ended_before_the_checkpoint_is_no_loser() {
    let body = CheckpointBody {
        next_xid: Xid(5),
        ceiling: Xid(200),
        clock: Csn(45),
        active: vec![(Xid(2), GroupNo(1)), (Xid(6), GroupNo(1))],
    };
    let bytes = body.encode();
    let mut analysis = Analysis::new(Lsn(50), Xid(100), 64);
    // 1 ended before the scan begins, as far as its commit goes; 2 and 6 ran on; 7 began after the checkpoint looked.
    let changes = [(10, 1), (20, 2), (30, 6), (40, 7)];
    for (lsn, xid) in changes {
        analysis.note(at(xid, lsn), &change(UNDOABLE, &[])).unwrap();
    }
    // Nor does a compensation without its change matter in one that has ended.
    analysis.note(at(3, 41), &change(CLR, &5_u64.to_le_bytes())).unwrap();
    analysis.note(at(0, 50), &mark(CHECKPOINT, &bytes)).unwrap();
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome, &changes), [(2, vec![20]), (6, vec![30]), (7, vec![40])]);
    assert_eq!((outcome.next_xid, outcome.clock), (Xid(200), Csn(45)));
}

#[test]
fn only_the_checkpoint_of_the_superblock_counts() {
    let newer = CheckpointBody { next_xid: Xid(50), ceiling: Xid(100), clock: Csn(1), active: vec![] };
    let bytes = newer.encode();
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    analysis.note(at(1, 10), &change(UNDOABLE, &[])).unwrap();
    // Its superblock was never written, so what it says may rest on what is lost.
    analysis.note(at(0, 20), &mark(CHECKPOINT, &bytes)).unwrap();
    assert_eq!(left(&analysis.finish().unwrap(), &[(10, 1)]), [(1, vec![10])]);
}

#[test]
fn ceilings_only_rise() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    analysis.note(at(0, 10), &mark(XID_CEILING, &300_u64.to_le_bytes())).unwrap();
    analysis.note(at(0, 20), &mark(XID_CEILING, &200_u64.to_le_bytes())).unwrap();
    assert_eq!(analysis.finish().unwrap().next_xid, Xid(300));
}

#[test]
fn logs_that_no_engine_writes_are_refused() {
    let missing = Analysis::new(Lsn(10), Xid(100), 64);
    assert!(missing.finish().is_err(), "the checkpoint is not there");

    let mut unmatched = Analysis::new(Lsn::ZERO, Xid(100), 64);
    unmatched.note(at(1, 10), &change(CLR, &5_u64.to_le_bytes())).unwrap();
    assert!(unmatched.finish().is_err(), "what a live transaction compensates is in the scan");

    let mut beyond = Analysis::new(Lsn::ZERO, Xid(100), 64);
    beyond.note(at(100, 10), &change(UNDOABLE, &[])).unwrap();
    assert!(beyond.finish().is_err(), "an xid at the ceiling was never handed out");

    let mut short = Analysis::new(Lsn::ZERO, Xid(100), 64);
    assert!(short.note(at(1, 10), &change(CLR, &[1, 2])).is_err());
    assert!(short.note(at(0, 10), &mark(XID_CEILING, &[1])).is_err());
    assert!(short.note(at(0, 10), &mark(CHECKPOINT, &[1])).is_err());
}

/// The body of a prepare record under `name`, with nothing locked.
fn prepare_body(name: &str) -> Vec<u8> {
    let mut body = vec![name.len() as u8, 0];
    body.extend(name.as_bytes());
    body.extend([0; 14]);
    body
}

#[test]
fn a_prepared_transaction_is_kept_until_it_ends_or_is_rolled_back() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    for xid in 1..=5 {
        let at = At { group: GroupNo(20 - xid), ..at(xid, 10 * xid) };
        analysis.note(at, &change(UNDOABLE, &[])).unwrap();
    }
    // 5 takes something back before, which decides nothing.
    let later = |lsn| At { group: GroupNo(25), ..at(5, lsn) };
    analysis.note(later(55), &change(UNDOABLE, &[])).unwrap();
    analysis.note(later(56), &change(CLR, &55_u64.to_le_bytes())).unwrap();
    for xid in 1..=5 {
        let body = prepare_body(&format!("n{xid}"));
        analysis.note(At { group: GroupNo(30), ..at(xid, 60 + xid) }, &mark(PREPARE, &body)).unwrap();
    }
    analysis.note(at(1, 70), &mark(COMMIT, &[])).unwrap();
    analysis.note(at(2, 71), &mark(END, &[])).unwrap();
    analysis.note(at(3, 72), &mark(ABORT, &[])).unwrap();
    let outcome = analysis.finish().unwrap();
    assert_eq!(left(&outcome, &[(30, 3)]), [(3, vec![30])], "its rollback had been decided");
    let found: Vec<_> = outcome.in_doubt.iter().map(|found| (found.xid.0, &*found.body.name)).collect();
    assert_eq!(found, [(4, "n4"), (5, "n5")]);
    let five = &outcome.in_doubt[1];
    assert_eq!((five.first_group, five.last_lsn), (GroupNo(15), Lsn(65)));
    assert_eq!(standing(&outcome.prepared[&Xid(5)], &[50, 55]), [50]);
}

#[test]
fn prepare_records_that_no_engine_writes_are_refused() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    assert!(analysis.note(at(1, 10), &mark(PREPARE, &[1, 2])).is_err());
    analysis.note(at(2, 10), &mark(PREPARE, &prepare_body("n"))).unwrap();
    let body = CheckpointBody { next_xid: Xid(5), ceiling: Xid(200), clock: Csn(45), active: vec![] };
    analysis.wanted = Lsn(50);
    analysis.note(at(0, 50), &mark(CHECKPOINT, &body.encode())).unwrap();
    assert!(analysis.finish().unwrap().in_doubt.is_empty(), "it had ended at the checkpoint");
}

/// Bit 0 for the first record of a set, bit 1 for the last.
fn copies(flags: u8, lsns: &[u64]) -> Vec<u8> {
    let change = |lsn: &u64| [&lsn.to_le_bytes()[..], &[TREE_KIND, 2, 0, 0, 0, 1, 0, 9]].concat();
    std::iter::once(flags).chain(lsns.iter().flat_map(change)).collect()
}

/// Changes at 10 to 50; what comes then is (LSN, flags or none for a compensation, LSNs). Which stand, and which
/// records are theirs.
fn after_copies(first: u64, then: &[(u64, Option<u8>, &[u64])]) -> (Vec<u64>, Vec<u64>) {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    let changes = [10, 20, 30, 40, 50];
    for lsn in changes.into_iter().filter(|&lsn| lsn >= first) {
        analysis.note(at(1, lsn), &change(UNDOABLE, b"body")).unwrap();
    }
    for &(lsn, flags, lsns) in then.iter().filter(|(lsn, ..)| *lsn >= first) {
        match flags {
            Some(flags) => analysis.note(at(1, lsn), &mark(COPY, &copies(flags, lsns))).unwrap(),
            None => lsns.iter().for_each(|change_at| {
                analysis.note(at(1, lsn), &change(CLR, &change_at.to_le_bytes())).unwrap();
            }),
        }
    }
    let outcome = analysis.finish().unwrap();
    let trace = &outcome.losers[&Xid(1)].trace;
    let originals = changes.into_iter().map(|lsn| (lsn, false, vec![lsn]));
    let copies = then.iter().filter(|(_, flags, _)| flags.is_some()).map(|&(lsn, _, lsns)| (lsn, true, lsns.to_vec()));
    let all = originals.chain(copies);
    let theirs: Vec<_> = all.filter(|&(lsn, are_copies, _)| trace.is_about(Lsn(lsn), are_copies)).collect();
    let found = theirs.iter().flat_map(|(.., lsns)| lsns.clone()).collect::<Vec<_>>();
    (standing(trace, &found), theirs.into_iter().map(|(lsn, ..)| lsn).collect())
}

#[test]
fn the_last_complete_set_of_copies_is_all_that_is_left_of_a_rollback() {
    let (from, to) = (Some(1), Some(2));
    let whole: &[(u64, Option<u8>, &[u64])] = &[(60, None, &[50]), (70, from, &[10, 20]), (80, to, &[30, 40])];
    assert_eq!(after_copies(0, whole), (vec![10, 20, 30, 40], vec![70, 80]));
    // A scan that begins in the middle of what the set replaces.
    assert_eq!(after_copies(45, whole), (vec![10, 20, 30, 40], vec![70, 80]));
    // The rollback goes on: its compensations name the changes themselves.
    let on = [whole, &[(90, None, &[40]), (95, None, &[30])]].concat();
    assert_eq!(after_copies(55, &on), (vec![10, 20], vec![70, 80]));
    // Copied once more.
    let again = [&on[..], &[(100, Some(3), &[10, 20])]].concat();
    assert_eq!(after_copies(0, &again), (vec![10, 20], vec![100]));
    // A scan that begins within a set that a later one replaces.
    assert_eq!(after_copies(75, &again), (vec![10, 20], vec![100]));
    assert_eq!(after_copies(99, &[&again[..], &[(110, None, &[20])]].concat()), (vec![10], vec![100]));
}

#[test]
fn a_set_of_copies_that_is_not_complete_counts_for_nothing() {
    let cut: &[(u64, Option<u8>, &[u64])] = &[(60, None, &[50]), (70, Some(1), &[10, 20]), (80, Some(0), &[30])];
    let own = vec![10, 20, 30, 40, 50];
    assert_eq!(after_copies(0, cut), (vec![10, 20, 30, 40], own.clone()));
    // The rollback goes on from the changes themselves, and a later set is complete.
    let on = [cut, &[(90, None, &[40])]].concat();
    assert_eq!(after_copies(0, &on), (vec![10, 20, 30], own));
    let whole = [&on[..], &[(100, Some(1), &[10]), (110, Some(2), &[20, 30])]].concat();
    assert_eq!(after_copies(0, &whole), (vec![10, 20, 30], vec![100, 110]));
    // And behind a complete one.
    let behind = [&whole[..], &[(120, None, &[30]), (130, Some(1), &[10])]].concat();
    assert_eq!(after_copies(0, &behind), (vec![10, 20], vec![100, 110]));
}

#[test]
fn the_first_group_of_a_rollback_is_that_of_its_copies() {
    let mut analysis = Analysis::new(Lsn::ZERO, Xid(100), 64);
    let in_group = |lsn, group| At { group: GroupNo(group), ..at(1, lsn) };
    analysis.note(in_group(10, 3), &change(UNDOABLE, b"body")).unwrap();
    analysis.note(in_group(20, 8), &mark(COPY, &copies(1, &[10]))).unwrap();
    // One cut may travel in several groups.
    analysis.note(in_group(30, 7), &mark(COPY, &copies(2, &[]))).unwrap();
    let outcome = analysis.finish().unwrap();
    let open = &outcome.losers[&Xid(1)];
    assert_eq!((open.first_group, open.last_lsn), (GroupNo(7), Lsn(30)));
    assert_eq!(left(&outcome, &[(10, 1)]), [(1, vec![10])]);
}

#[test]
fn copies_that_no_engine_writes_are_refused() {
    let note = |body: &[u8]| Analysis::new(Lsn::ZERO, Xid(100), 64).note(at(1, 10), &mark(COPY, body));
    assert!(note(&[]).is_err() && note(&[4]).is_err() && note(&[3, 1, 2]).is_err());
    assert!(note(&[3]).is_ok());
}
