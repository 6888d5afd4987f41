use super::*;

fn lsns(trace: &Trace, range: std::ops::Range<u64>) -> Vec<u64> {
    range.filter(|&lsn| trace.stands(Lsn(lsn))).collect()
}

/// A transaction that changes, and rolls back to savepoints, in every way; beside it the list of all remaining
/// changes.
#[test]
fn what_stands_is_what_a_list_of_all_changes_says() {
    let mut state = 1_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    for _ in 0..300 {
        let (mut trace, mut stack, mut all, mut lsn) = (Trace::default(), Vec::new(), Vec::new(), 0);
        for _ in 0..40 {
            for _ in 0..below(6) {
                lsn += 1 + below(3);
                trace.add(Lsn(lsn), (lsn / 10) as u32);
                stack.push(lsn);
                all.push(lsn);
            }
            for _ in 0..below(5) {
                let Some(change) = stack.pop() else { break };
                lsn += 1 + below(3);
                assert!(trace.mark_undone(Lsn(change), Lsn(lsn)), "{change} at {lsn}");
            }
            let standing: Vec<u64> = all.iter().copied().filter(|&lsn| trace.stands(Lsn(lsn))).collect();
            assert_eq!(standing, stack);
            assert_eq!(trace.left(), stack.len() as u64);
            assert!(trace.taken_back.len() <= stack.len() + 1, "{trace:?}");
            assert!(stack.iter().all(|&lsn| trace.is_in((lsn / 10) as u32)), "{trace:?}");
        }
    }
}

#[test]
fn a_long_rollback_is_one_interval_and_long_work_one_span() {
    let mut trace = Trace::default();
    (1..=100_000_u64).for_each(|lsn| trace.add(Lsn(lsn), (lsn / 1000) as u32));
    for (i, change) in (50_001..=100_000_u64).rev().enumerate() {
        assert!(trace.mark_undone(Lsn(change), Lsn(100_001 + i as u64)));
    }
    assert_eq!((trace.taken_back.len(), trace.spans.len(), trace.left()), (1, 1, 50_000));
    assert!(trace.stands(Lsn(50_000)) && !trace.stands(Lsn(50_001)) && !trace.stands(Lsn(100_000)));
    // One change at a time, to the same savepoint.
    for round in 0..50_000_u64 {
        let lsn = 200_000 + 2 * round;
        trace.add(Lsn(lsn), 200);
        assert!(trace.mark_undone(Lsn(lsn), Lsn(lsn + 1)));
    }
    assert_eq!((trace.taken_back.len(), trace.left()), (1, 50_000));
}

#[test]
fn rollbacks_to_savepoints_leave_what_was_done_before_and_after() {
    let mut trace = Trace::default();
    for lsn in [10, 20, 30] {
        trace.add(Lsn(lsn), 0);
    }
    assert!(trace.mark_undone(Lsn(30), Lsn(40)));
    trace.add(Lsn(50), 0);
    trace.add(Lsn(60), 0);
    assert!(trace.mark_undone(Lsn(60), Lsn(70)));
    assert_eq!(lsns(&trace, 10..30), (10..30).collect::<Vec<_>>());
    assert_eq!(lsns(&trace, 30..70), (40..60).collect::<Vec<_>>());
    assert!(trace.mark_undone(Lsn(50), Lsn(80)) && trace.mark_undone(Lsn(20), Lsn(90)));
    assert_eq!((trace.taken_back.len(), trace.left()), (1, 1));
    assert_eq!(lsns(&trace, 0..100), [(0..20).collect::<Vec<_>>(), (90..100).collect()].concat());
}

#[test]
fn compensations_that_no_rollback_logs_are_told() {
    let with = |changes: &[u64]| {
        let mut trace = Trace::default();
        changes.iter().for_each(|&lsn| trace.add(Lsn(lsn), 0));
        trace
    };
    assert!(!with(&[]).mark_undone(Lsn(5), Lsn(10)), "there is none");
    assert!(!with(&[10]).mark_undone(Lsn(5), Lsn(20)), "it comes before the first");
    assert!(!with(&[10]).mark_undone(Lsn(20), Lsn(20)), "it comes later");
    let mut twice = with(&[10, 20]);
    assert!(twice.mark_undone(Lsn(20), Lsn(30)) && !twice.mark_undone(Lsn(25), Lsn(40)), "it was taken back");
    let mut older = with(&[10, 20]);
    assert!(older.mark_undone(Lsn(20), Lsn(30)));
    older.add(Lsn(40), 0);
    assert!(!older.mark_undone(Lsn(10), Lsn(50)), "a newer one stands");
}

/// A restart skips what it cannot undo. A later one tries again, and so may the run between them, in any order.
#[test]
fn what_was_passed_over_stands_until_it_is_named() {
    let mut trace = Trace::default();
    (1..=6_u64).for_each(|i| trace.add(Lsn(10 * i), 0));
    let all = [10, 20, 30, 40, 50, 60];
    let standing = |trace: &Trace| {
        let standing: Vec<u64> = all.into_iter().filter(|&lsn| trace.stands(Lsn(lsn))).collect();
        assert_eq!(standing.len() as u64, trace.left());
        standing
    };
    assert!(trace.mark_undone(Lsn(60), Lsn(70)) && trace.pass(Lsn(50), Lsn(71)) && trace.pass(Lsn(40), Lsn(72)));
    assert_eq!(standing(&trace), [10, 20, 30, 40, 50]);
    assert!(trace.mark_undone(Lsn(30), Lsn(73)));
    assert_eq!(standing(&trace), [10, 20, 40, 50]);
    assert!(trace.is_passed(Lsn(50)) && !trace.is_passed(Lsn(20)));
    // The next restart finds space for one.
    assert!(trace.mark_undone(Lsn(40), Lsn(80)) && trace.mark_undone(Lsn(20), Lsn(81)));
    assert_eq!(standing(&trace), [10, 50]);
    assert!(!trace.mark_undone(Lsn(40), Lsn(90)), "twice");
    let mut trace = Trace { compensations: 4, ..trace };
    assert!(!trace.pass(Lsn(50), Lsn(90)), "it had been passed over");
    assert!(trace.mark_undone(Lsn(50), Lsn(91)) && trace.mark_undone(Lsn(10), Lsn(92)));
    assert_eq!((standing(&trace), trace.passed.len()), (vec![], 0));
}

#[test]
fn spans_are_few_and_the_closest_are_joined() {
    let mut trace = Trace::default();
    let stretches: Vec<u32> = (0..200).map(|i| i * i).collect();
    (1..).zip(&stretches).for_each(|(lsn, &stretch)| trace.add(Lsn(lsn), stretch));
    assert_eq!(trace.spans.len(), MAX_SPANS);
    assert!(stretches.iter().all(|&stretch| trace.is_in(stretch)), "none is forgotten");
    assert!(!trace.is_in(199 * 199 - 1) && !trace.is_in(199 * 199 + 1), "{:?}", trace.spans);
    assert_eq!(trace.runs().last(), Some(199 * 199..=199 * 199));
}
