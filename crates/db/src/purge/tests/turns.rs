//! What is held comes in turn.

use super::*;
use crate::purge::held::MAX_HELD;
use foreshore_base::{PageId, Xid};
use foreshore_btree::QueuedRange;

/// A transaction that stays may hold a leaf, and others remove rows of it.
#[test]
fn a_leaf_that_is_queued_while_it_is_held_is_looked_at_within_a_second() {
    let mut work = Work::default();
    let leaf = QueuedLeaf { table: TableId(7), page: PageId(9) };
    let at = |millis| Nanos::ZERO + Duration::from_millis(millis);
    let hold = |work: &mut Work, looked| {
        let until = Until::Settled(Xid(5));
        work.hold(leaf.page, b"key", Held { table: leaf.table, until, rows: 1, looked, is_queued: false });
    };
    let due = |work: &mut Work, now| work.released(|until| matches!(until, Until::Time(time) if time <= now), 8);
    hold(&mut work, at(500));
    assert!(due(&mut work, at(5000)).is_empty(), "nothing has come");
    hold(&mut work, at(5000));
    assert!(work.puts_off(leaf, at(5100)));
    assert!(due(&mut work, at(5900)).is_empty(), "it was looked at a moment ago");
    assert_eq!(due(&mut work, at(6000)), [leaf]);
    assert_eq!(work.released(|until| until == Until::Settled(Xid(5)), 8), [leaf], "that comes first if it does");
    hold(&mut work, at(6000));
    assert!(due(&mut work, at(9000)).is_empty(), "it has been looked at");
    assert!(!work.puts_off(leaf, at(9000)), "at once");
    assert!(!work.puts_off(QueuedLeaf { table: TableId(8), ..leaf }, at(6001)), "its page has another life");
}

#[test]
fn leaves_that_are_held_for_rows_do_not_starve_those_that_wait_for_a_walk() {
    let (mut work, table) = (Work::default(), TableId(7));
    let held = |until| Held { table, until, rows: 0, looked: Nanos::ZERO, is_queued: false };
    (1..=20).for_each(|page| work.hold(PageId(page), b"key", held(Until::Settled(Xid(page)))));
    work.hold(PageId(21), b"key", held(Until::Walked(table)));
    let released = work.released(|_| true, 8);
    assert!(released.len() == 9 && released.contains(&QueuedLeaf { table, page: PageId(21) }), "{released:?}");
}

/// Leaves that are held again and again stay behind those that were not looked at for longer.
#[test]
fn of_more_leaves_than_a_step_takes_each_has_its_turn() {
    let (mut work, table) = (Work::default(), TableId(7));
    let at = |step| Nanos::ZERO + Duration::from_secs(step);
    let held = |looked| Held { table, until: Until::Ended(Xid(3)), rows: 0, looked, is_queued: false };
    (1..=20).for_each(|page| work.hold(PageId(page), b"key", held(at(0))));
    let mut seen = Vec::new();
    for step in 1..=4 {
        let released = work.released(|_| true, 5);
        released.iter().for_each(|leaf| work.hold(leaf.page, b"key", held(at(step))));
        seen.extend(released.into_iter().map(|leaf| leaf.page.0));
    }
    seen.sort_unstable();
    assert!(seen.iter().copied().eq(1..=20), "{seen:?}");
}

/// Beyond its bound the purge holds a range of keys of each table. The leaves of a range that was held back from merges
/// may be merged then.
#[test]
fn what_is_held_beyond_the_bound_is_a_range_that_only_widens() {
    let table = TableId(7);
    held_beyond_the_bound(table, |xid| Until::Settled(Xid(xid)), false);
    held_beyond_the_bound(table, |xid| Until::Ended(Xid(xid)), true);
    held_beyond_the_bound(table, |_| Until::Walked(table), true);
}

fn held_beyond_the_bound(table: TableId, until: impl Fn(u64) -> Until, is_held_back: bool) {
    let mut work = Work::default();
    let held = |xid| Held { table, until: until(xid), rows: 2, looked: Nanos::ZERO, is_queued: false };
    let (many, more) = (MAX_HELD as u64, 100);
    for page in 1..=many + more {
        work.hold(PageId(page), &page.to_be_bytes(), held(page));
    }
    let counted = HeldRows { table, leaves: many + more, rows: 2 * (many + more) };
    assert_eq!(work.held_rows(), [counted]);
    // The sweep that each table begins with.
    assert_eq!(work.next_sweep(|_| false), Some(table));
    assert_eq!(work.sweep_from(table), Some((Vec::new(), false)));
    work.sweep_to(table, None);
    assert_eq!(work.next_sweep(|_| false), None);
    // A range that is queued is swept, and what is held stays.
    work.add_range(table, QueuedRange { from: vec![5], to: vec![6] });
    assert_eq!(work.sweep_from(table), Some((vec![5], false)));
    work.sweep_to(table, Some(vec![6]));
    // A new range does not begin before the one that is swept has ended.
    work.add_range(table, QueuedRange { from: vec![1], to: vec![2] });
    assert_eq!(work.sweep_from(table), Some((vec![6], false)));
    work.sweep_to(table, None);
    assert_eq!(work.sweep_from(table), Some((vec![1], false)));
    work.sweep_to(table, None);
    assert_eq!(work.held_rows(), [counted]);
    assert!(work.released(|_| false, usize::MAX).is_empty() && work.next_sweep(|_| false).is_none());
    // What held it has gone.
    assert_eq!(work.released(|_| true, usize::MAX).len(), MAX_HELD);
    assert_eq!(work.sweep_from(table), Some(((many + 1).to_be_bytes().to_vec(), is_held_back)));
    work.sweep_to(table, Some((many + more).to_be_bytes().to_vec()));
    assert_eq!(work.sweep_from(table), Some(((many + more).to_be_bytes().to_vec(), is_held_back)));
    work.sweep_to(table, Some((many + more + 1).to_be_bytes().to_vec()));
    assert_eq!(work.next_sweep(|_| false), None);
}
