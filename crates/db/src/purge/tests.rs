use super::*;
use crate::{Db, Options, ReadOptions, TableDef};
use foreshore_io::{Fs, Mem};

use std::sync::Arc;

mod checks;
mod turns;

const ROWS: TableDef<u64, &[u8]> = TableDef::new("rows");

fn options() -> Options {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    Options::new().memory_limit(64 << 20).lab(|lab| {
        lab.segment_bytes = 256 << 10;
        lab.background = false;
        lab.fs = Some(fs);
    })
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

fn step(db: &Db) -> NextWake {
    let engine = db.engine();
    engine.purger.step(&engine.admission, &engine.catalogue)
}

fn steps(db: &Db, count: usize) {
    (0..count).for_each(|_| {
        step(db);
    });
}

/// The steps of `count` that ask for the next one at once.
fn busy(db: &Db, count: usize) -> usize {
    (0..count).filter(|_| step(db) == NextWake::Now).count()
}

fn ghosts(db: &Db) -> u64 {
    db.engine().catalogue.get("rows").unwrap().tree.verify().unwrap().ghosts
}

fn tree(db: &Db, name: &str) -> Tree {
    db.engine().catalogue.get(name).unwrap().tree.clone()
}

#[test]
fn beside_an_exclusive_lock_the_purge_pauses() {
    let db = open();
    fill(&db, 2000, 1000);
    remove(&db, 0..1990);
    let engine = db.engine();
    let mut other = engine.admission.begin(TxnOptions::new()).unwrap();
    let table = engine.catalogue.get("rows").unwrap().tree.table();
    other.lock_table(table, TableMode::Exclusive).unwrap();
    // The first steps take what is queued.
    assert!(busy(&db, 200) < 10, "a busy loop for as long as the lock");
    drop(other);
    engine.admission.transaction_ended();
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
    let tree = engine.catalogue.get("rows").unwrap().tree.clone();
    let mut txn = engine.admission.begin_own(TxnOptions::new()).unwrap();
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
    let tree = engine.catalogue.get("rows").unwrap().tree.clone();
    let mut txn = engine.admission.begin_own(TxnOptions::new()).unwrap();
    let in_the_middle = tree.purge_leaf(&mut txn, &1000_u64.to_be_bytes(), false).unwrap().page;
    txn.rollback().unwrap();
    // Its map has it as free, although the tree has it.
    let map = foreshore_space::map_of(in_the_middle);
    foreshore_space::mark_free(&mut engine.storage.pool().exclusive(map).unwrap(), in_the_middle).unwrap();
    steps(&db, 200);
    assert!(engine.storage.log().poisoned().is_none());
    let others = engine.catalogue.get("others").unwrap().tree.verify().unwrap();
    assert_eq!((others.ghosts, ghosts(&db)), (0, 0));
    assert!(tree.verify().unwrap().leaves < 8, "{:?}", tree.verify());
    assert_eq!(busy(&db, 50), 0);
}

/// A read that fails puts one leaf off. What is queued beside it is purged, and the rest of what is held too.
#[test]
fn a_leaf_that_fails_puts_no_other_one_off() {
    const OTHERS: TableDef<u64, u64> = TableDef::new("others");
    let sim = foreshore_io::Sim::new(1);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let db = options().memory_limit(4 << 20).lab(|lab| lab.fs = Some(fs)).open("/db").unwrap();
    type Change<'a> = &'a dyn Fn(&crate::Table<'_, u64, u64>, u64) -> crate::Result<()>;
    let change = |change: Change<'_>| {
        db.run(|tx| {
            let table = tx.open(OTHERS)?;
            (0..100).try_for_each(|n| change(&table, n))
        })
        .unwrap();
        db.sync().unwrap();
    };
    let others = || tree(&db, "others").verify().unwrap().ghosts;
    // The table has been swept as a whole.
    change(&|table, n| table.insert(n, &n).map(drop));
    change(&|table, n| table.remove(n).map(drop));
    steps(&db, 20);
    assert_eq!(others(), 0);
    change(&|table, n| table.insert(n, &n).map(drop));
    fill(&db, 6000, 1000);
    let reader = db.read_with(ReadOptions::new().latest());
    reader.open(ROWS).unwrap().get(7).unwrap();
    remove(&db, 0..100);
    steps(&db, 20);
    assert_eq!(db.stats().held.len(), 1);
    assert_eq!(db.read().open(ROWS).unwrap().iter().count(), 5900, "what is held leaves memory");
    drop(reader);
    change(&|table, n| table.remove(n).map(drop));
    let met = sim.faults_met();
    sim.inject_read_error(sim.reads(), false);
    steps(&db, 1);
    assert_eq!(sim.faults_met() - met, 1, "a held leaf is read first");
    assert_eq!(others(), 0);
    steps(&db, 20);
    assert!(db.stats().held.is_empty() && ghosts(&db) == 0, "{:?}", db.stats().held);
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
