use super::held::MAX_HELD;
use super::*;
use crate::{Db, Options, ReadOptions, TableDef};
use foreshore_base::{PageId, Xid};
use foreshore_btree::QueuedRange;
use foreshore_io::{Fs, Mem};

use std::sync::Arc;

mod checks;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

fn options() -> Options {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    Options::new().memory_limit(64 << 20).segment_bytes(256 << 10).background(false).fs(fs)
}

fn open() -> Db {
    options().open("/db").unwrap()
}

fn fill(db: &Db, rows: u64, bytes: usize) {
    let value = vec![7; bytes];
    for from in (0..rows).step_by(50) {
        db.run(|tx| {
            let table = tx.open(ROWS)?;
            (from..rows.min(from + 50)).try_for_each(|n| table.insert(n, &value[..]).map(drop))
        })
        .unwrap();
    }
}

fn remove(db: &Db, keys: impl Iterator<Item = u64>) {
    let keys: Vec<u64> = keys.collect();
    for part in keys.chunks(50) {
        db.run(|tx| {
            let table = tx.open(ROWS)?;
            part.iter().try_for_each(|n| table.remove(*n).map(drop))
        })
        .unwrap();
    }
    db.sync().unwrap();
}

fn steps(db: &Db, count: usize) {
    (0..count).for_each(|_| {
        db.engine().purge_step();
    });
}

/// The steps of `count` that ask for the next one at once.
fn busy(db: &Db, count: usize) -> usize {
    (0..count).filter(|_| db.engine().purge_step() == NextWake::Now).count()
}

fn ghosts(db: &Db) -> u64 {
    db.engine().tables.get("rows").unwrap().tree.verify().unwrap().ghosts
}

fn tree(db: &Db, name: &str) -> Tree {
    db.engine().tables.get(name).unwrap().tree.clone()
}

#[test]
fn beside_an_exclusive_lock_the_purge_pauses() {
    let db = open();
    fill(&db, 2000, 1000);
    remove(&db, 0..1990);
    let engine = db.engine();
    let mut other = engine.begin(TxnOptions::new()).unwrap();
    let table = engine.tables.get("rows").unwrap().tree.table();
    other.lock_table(table, TableMode::Exclusive).unwrap();
    // The first steps take what is queued.
    assert!(busy(&db, 200) < 10, "a busy loop for as long as the lock");
    drop(other);
    engine.transaction_ended();
    steps(&db, 200);
    assert_eq!(ghosts(&db), 0);
}

/// What is left to do is bounded by the leaves that there are, however often readers meet them.
#[test]
fn a_leaf_is_held_once() {
    let db = open();
    fill(&db, 2000, 1000);
    let reader = db.read_with(ReadOptions::new().latest());
    reader.open(ROWS).unwrap().get(7).unwrap();
    remove(&db, 0..2000);
    for _ in 0..50 {
        assert_eq!(db.read().open(ROWS).unwrap().iter().count(), 0);
        steps(&db, 1);
    }
    steps(&db, 50);
    let held = db.stats().held;
    assert!(held[0].rows == 2000 && held[0].leaves <= db.stats().space.used_pages, "{held:?}");
    assert!(busy(&db, 200) < 10, "a busy loop for as long as the reader");
    drop(reader);
    steps(&db, 200);
    assert!(db.stats().held.is_empty() && ghosts(&db) == 0);
}

#[test]
fn a_remove_that_is_rolled_back_leaves_nothing_held() {
    let db = open();
    fill(&db, 100, 10);
    db.sync().unwrap();
    let tx = db.begin();
    tx.open(ROWS).unwrap().remove(5).unwrap();
    steps(&db, 1);
    assert_eq!(db.stats().held.len(), 1);
    tx.rollback().unwrap();
    // Nothing commits, and the horizon stays where it is.
    steps(&db, 20);
    assert!(db.stats().held.is_empty(), "nothing is deleted: {:?}", db.stats().held);
}

/// A rollback puts rows back where they were, and may find the disk full if others have the space by then.
#[test]
fn what_a_rollback_brings_back_keeps_its_space() {
    let db = open();
    fill(&db, 2000, 1000);
    let tx = db.begin();
    let table = tx.open(ROWS).unwrap();
    (0..2000).filter(|n| n % 4 > 0).for_each(|n| drop(table.insert(n, &[7][..]).unwrap()));
    // Others delete rows of the same leaves.
    remove(&db, (0..2000).step_by(4));
    steps(&db, 100);
    let before = db.stats();
    assert_eq!((ghosts(&db), before.tree.merges), (0, 0));
    assert!(before.held.is_empty(), "no row is held: {:?}", before.held);
    drop(table);
    tx.rollback().unwrap();
    let after = db.stats();
    assert_eq!((after.tree.leaf_splits, after.space.used_pages), (before.tree.leaf_splits, before.space.used_pages));
    remove(&db, 0..1990);
    steps(&db, 100);
    assert!(ghosts(&db) == 0 && db.stats().space.used_pages < 12, "{:?}", db.stats().space);
}

/// Neither the leaves that a transaction has rows in nor their neighbours take the space of its rows.
#[test]
fn what_a_rollback_brings_back_keeps_its_space_from_neighbours() {
    let db = open();
    fill(&db, 2048, 1000);
    let tx = db.begin();
    let table = tx.open(ROWS).unwrap();
    let is_mine = |n: &u64| (n / 32).is_multiple_of(2);
    (0..2048).filter(is_mine).for_each(|n| drop(table.insert(n, &[7][..]).unwrap()));
    remove(&db, (0..2048).filter(|n| !is_mine(n) && n % 4 > 0));
    steps(&db, 100);
    let (splits, merges) = (db.stats().tree.leaf_splits, db.stats().tree.merges);
    drop(table);
    tx.rollback().unwrap();
    assert_eq!(db.stats().tree.leaf_splits, splits);
    steps(&db, 100);
    assert!(db.stats().tree.merges > merges, "a thin leaf waits for the writer in its neighbour, and no longer");
}

/// What keeps a leaf from being merged is a writer that may be rolled back, and no snapshot.
#[test]
fn a_leaf_of_a_live_writer_is_merged_at_its_end_beside_a_snapshot() {
    let db = open();
    fill(&db, 2000, 1000);
    let tx = db.begin();
    let table = tx.open(ROWS).unwrap();
    (0..2000).filter(|n| n % 4 > 0).for_each(|n| drop(table.insert(n, &[7][..]).unwrap()));
    remove(&db, (0..2000).step_by(4));
    steps(&db, 100);
    let leaves = || tree(&db, "rows").verify().unwrap().leaves;
    assert!(ghosts(&db) == 0 && leaves() > 200);
    let reader = db.read_with(ReadOptions::new().latest());
    reader.open(ROWS).unwrap().get(7).unwrap();
    drop(table);
    tx.commit().unwrap();
    steps(&db, 100);
    assert!(leaves() < 20, "{} leaves wait for the reader", leaves());
    drop(reader);
}

/// An insert over a deleted row hides the ghost; its rollback brings it back.
#[test]
fn a_ghost_that_a_rollback_brings_back_is_purged() {
    let db = open();
    fill(&db, 100, 10);
    remove(&db, 5..6);
    let tx = db.begin();
    tx.open(ROWS).unwrap().insert(5, &[1][..]).unwrap();
    db.sync().unwrap();
    steps(&db, 50);
    tx.rollback().unwrap();
    steps(&db, 50);
    assert_eq!(ghosts(&db), 0);
}

/// Leaves that were purged, and not freed before the end: they have no ghost that would queue them.
#[test]
fn empty_leaves_are_freed_after_a_reopen() {
    for is_locked in [false, true] {
        let options = options();
        let db = options.open("/db").unwrap();
        fill(&db, 2000, 1000);
        remove(&db, 0..2000);
        leave_empty_leaves(&db);
        db.close(Duration::ZERO).unwrap();
        let db = options.open("/db").unwrap();
        if is_locked {
            db.run(|tx| tx.open(ROWS)?.range(700..701).next().transpose()).unwrap();
        } else {
            assert_eq!(db.read().open(ROWS).unwrap().range(700..701).count(), 0);
        }
        steps(&db, 100);
        assert!(db.stats().space.used_pages < 8, "{:?}", db.stats().space);
    }
}

/// Purges all leaves, and merges none.
/// Rows that come in random order leave leaves half full, which a merge would rewrite with all of the table.
#[test]
fn a_remove_after_a_reopen_leaves_thin_leaves_alone() {
    let db = open();
    for n in 0..8_000_u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        db.run(|tx| tx.open(ROWS)?.insert(key, &[7; 100][..]).map(drop)).unwrap();
    }
    db.close(Duration::ZERO).unwrap();
    let db = db.reopen().unwrap();
    remove(&db, std::iter::once(0));
    steps(&db, 20);
    let stats = db.stats().tree;
    assert_eq!((ghosts(&db), stats.purges), (0, 1), "the sweep has purged the leaf");
    assert!(stats.merges <= 1 && stats.shifts <= 1, "{stats:?}");
}

fn leave_empty_leaves(db: &Db) {
    let engine = db.engine();
    let tree = engine.tables.get("rows").unwrap().tree.clone();
    let mut txn = engine.begin_own(TxnOptions::new()).unwrap();
    let mut next = Some(Vec::new());
    while let Some(key) = next {
        next = tree.purge_leaf(&mut txn, &key, true).unwrap().next;
    }
    txn.rollback().unwrap();
    assert!(tree.verify().unwrap().leaves > 200 && ghosts(db) == 0);
}

/// One damaged leaf keeps neither the rest of its table nor other tables from being purged, and stops no log.
#[test]
fn a_damaged_leaf_is_given_up_alone() {
    const OTHERS: TableDef<u64, u64> = TableDef::new("others");
    let db = open();
    fill(&db, 2000, 1000);
    remove(&db, 0..2000);
    db.run(|tx| {
        let table = tx.open(OTHERS)?;
        (0..100).try_for_each(|n| table.insert(n, &n).map(drop))
    })
    .unwrap();
    db.run(|tx| {
        let table = tx.open(OTHERS)?;
        (0..100).try_for_each(|n| table.remove(n).map(drop))
    })
    .unwrap();
    db.sync().unwrap();
    let engine = db.engine();
    let tree = engine.tables.get("rows").unwrap().tree.clone();
    let mut txn = engine.begin_own(TxnOptions::new()).unwrap();
    let in_the_middle = tree.purge_leaf(&mut txn, &1000_u64.to_be_bytes(), false).unwrap().page;
    txn.rollback().unwrap();
    // Its map has it as free, although the tree has it.
    let map = foreshore_space::map_of(in_the_middle);
    foreshore_space::mark_free(&mut engine.pool.exclusive(map).unwrap(), in_the_middle).unwrap();
    steps(&db, 200);
    assert!(engine.log.poisoned().is_none());
    let others = engine.tables.get("others").unwrap().tree.verify().unwrap();
    assert_eq!((others.ghosts, ghosts(&db)), (0, 0));
    assert!(tree.verify().unwrap().leaves < 8, "{:?}", tree.verify());
    assert_eq!(busy(&db, 50), 0);
}

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

/// Leaves that wait for one writer after another are looked at and held again, which is no reason to go on at once.
#[test]
fn leaves_that_pass_from_writer_to_writer_keep_no_step_busy() {
    let db = open();
    fill(&db, 3000, 1000);
    let shrink = |rest| {
        let tx = db.begin();
        let table = tx.open(ROWS).unwrap();
        (0..3000).filter(|n| n % 4 == rest).for_each(|n| drop(table.insert(n, &[7][..]).unwrap()));
        drop(table);
        tx
    };
    let (first, second) = (shrink(1), shrink(2));
    remove(&db, (0..3000).step_by(4));
    steps(&db, 100);
    first.commit().unwrap();
    assert_eq!(busy(&db, 1), 0);
    second.rollback().unwrap();
}

/// Beyond its bound the purge holds a range of keys of each table. The leaves of a range that was held back from merges may be merged
/// then.
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
