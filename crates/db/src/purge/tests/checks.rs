//! The purge beside checks.

use super::*;
use crate::Table;
use crate::purge::held::MAX_HELD;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::thread;

/// A check counts on the pages of the table to stay that it walks.
#[test]
fn beside_the_walk_of_a_check_rows_are_purged_and_leaves_stay() {
    const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
    let db = open();
    fill(&db, 2000, 1000);
    db.run(|tx| (0..100).try_for_each(|n| tx.open(OTHERS)?.insert(n, &[7; 1000][..]).map(drop))).unwrap();
    let walk = db.engine().purger.walk(tree(&db, "rows").table());
    remove(&db, 0..1990);
    db.run(|tx| (0..100).try_for_each(|n| tx.open(OTHERS)?.remove(n).map(drop))).unwrap();
    db.sync().unwrap();
    assert!(busy(&db, 200) < 10, "a busy loop for as long as the walk");
    let [rows, others] = ["rows", "others"].map(|name| tree(&db, name).verify().unwrap());
    assert!(rows.ghosts == 0 && rows.leaves > 200, "{rows:?}");
    assert!(others.ghosts == 0 && others.leaves == 1, "{others:?}");
    assert!(db.stats().held.is_empty(), "no row is held: {:?}", db.stats().held);
    drop(walk);
    steps(&db, 20);
    assert!(db.stats().space.used_pages < 12, "{:?}", db.stats().space);
}

/// What waits for the end of a walk has a bound in memory, and is gone soon after.
#[test]
fn leaves_that_were_emptied_beside_a_walk_are_free_soon_after_it() {
    let db = options().lab(|lab| lab.background = true).memory_limit(256 << 20).open("/db").unwrap();
    fill(&db, 50_000, 1000);
    let leaves = tree(&db, "rows").verify().unwrap().leaves;
    assert!(leaves > MAX_HELD, "{leaves} leaves");
    let clock = SystemClock::new();
    let within = |limit: Duration, is_so: &dyn Fn() -> bool| {
        let until = clock.now() + limit;
        while !is_so() {
            assert!(clock.now() < until, "{:?} {:?}", db.stats().space, db.stats().tree);
            thread::sleep(Duration::from_millis(20));
        }
    };
    let walk = db.engine().purger.walk(tree(&db, "rows").table());
    remove(&db, 0..50_000);
    within(Duration::from_secs(60), &|| ghosts(&db) == 0);
    assert_eq!(tree(&db, "rows").verify().unwrap().leaves, leaves);
    drop(walk);
    within(Duration::from_secs(60), &|| db.stats().space.used_pages < 12);
}

/// Of six rows of each leaf three stay: those beyond the bound are thin, and not sparse.
#[test]
fn leaves_that_were_thinned_beside_a_walk_are_merged_after_it() {
    let db = options().memory_limit(256 << 20).open("/db").unwrap();
    fill(&db, 50_000, 1000);
    let leaves = || tree(&db, "rows").verify().unwrap().leaves;
    let before = leaves();
    assert!(before > MAX_HELD, "{before} leaves");
    let walk = db.engine().purger.walk(tree(&db, "rows").table());
    remove(&db, (0..50_000).filter(|n| n % 6 >= 3));
    steps(&db, 300);
    assert_eq!((ghosts(&db), leaves()), (0, before));
    drop(walk);
    steps(&db, 300);
    // Half of them, and those of which both neighbours have been merged with others before.
    assert!(leaves() * 3 < before * 2, "{} of {before} leaves", leaves());
}

/// Rows that pass through a queue beside the check of a large table, from its first page to its last.
#[test]
fn a_queue_stays_small_beside_a_check() {
    const QUEUE: TableDef<u64, &[u8]> = TableDef::new("queue");
    const BATCH: u64 = 200;
    let db = Rc::new(open());
    fill(&db, 8000, 1000);
    db.run(|tx| tx.open(QUEUE).map(drop)).unwrap();
    let leaves = Rc::new(RefCell::new(Vec::new()));
    pause::set("check: has a transaction", {
        let (db, leaves) = (Rc::clone(&db), Rc::clone(&leaves));
        move || {
            let from = leaves.borrow().len() as u64 * BATCH;
            let batch = from..from + BATCH;
            let insert = |table: &Table<'_, u64, &[u8]>, n| table.insert(n, &[7; 500][..]).map(drop);
            db.run(|tx| tx.open(QUEUE).and_then(|table| batch.clone().try_for_each(|n| insert(&table, n)))).unwrap();
            let remove = |table: &Table<'_, u64, &[u8]>, n| table.remove(n).map(drop);
            db.run(|tx| tx.open(QUEUE).and_then(|table| batch.clone().try_for_each(|n| remove(&table, n)))).unwrap();
            db.sync().unwrap();
            steps(&db, 5);
            leaves.borrow_mut().push(tree(&db, "queue").verify().unwrap().leaves);
        }
    });
    let report = db.check();
    pause::set("nowhere", || ());
    assert_eq!(report.unwrap().rows, 8000);
    let leaves = leaves.borrow();
    assert!(leaves.len() > 10 && leaves.iter().all(|&leaves| leaves <= 20), "{leaves:?}");
}

/// Leaves are split, emptied and merged on both sides of a check, in the table that it walks and in another one.
#[test]
fn a_check_finds_no_damage_beside_merges() {
    const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
    const KEPT: u64 = 3000;
    let db = Rc::new(open());
    fill(&db, KEPT, 1000);
    db.run(|tx| tx.open(OTHERS).map(drop)).unwrap();
    let merges = Rc::new(Cell::new(0));
    pause::set("check: has a transaction", {
        let (db, merges, mut round) = (Rc::clone(&db), Rc::clone(&merges), 0);
        move || {
            round += 1;
            for (at, def) in [ROWS, OTHERS].into_iter().enumerate() {
                // The rows of the round before go.
                let keys = |round: u64| {
                    (0..60).map(move |n| if at == 0 { n * 50 % KEPT * 1000 + round } else { n * 1000 + round })
                };
                db.run(|tx| keys(round).try_for_each(|n| tx.open(def)?.insert(n << 20, &[7; 1000][..]).map(drop)))
                    .unwrap();
                db.run(|tx| keys(round - 1).try_for_each(|n| tx.open(def)?.remove(n << 20).map(drop))).unwrap();
            }
            db.sync().unwrap();
            let before = db.stats().tree.merges;
            steps(&db, 5);
            merges.set(merges.get() + db.stats().tree.merges - before);
        }
    });
    let reports: Vec<_> = (0..5).map(|_| db.check()).collect();
    pause::set("nowhere", || ());
    reports.into_iter().for_each(|report| drop(report.unwrap()));
    assert!(merges.get() > 100, "{} merges", merges.get());
}

/// Each walk may wait for a step of the purge.
#[test]
fn a_check_walks_a_table_once_for_many_pages_that_came_behind_it() {
    let db = Rc::new(open());
    fill(&db, 2000, 1000);
    remove(&db, 0..1000);
    steps(&db, 20);
    let (walks, splits) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    pause::set("check: has a transaction", {
        let (db, walks, splits, mut calls) = (Rc::clone(&db), Rc::clone(&walks), Rc::clone(&splits), 0);
        move || {
            calls += 1;
            if calls < 3 {
                return;
            }
            let before = db.stats().tree.leaf_splits;
            fill(&db, 1000, 1000);
            splits.set(db.stats().tree.leaf_splits - before);
            let walks = Rc::clone(&walks);
            pause::set("check: a walk begins", move || walks.set(walks.get() + 1));
        }
    });
    let report = db.check();
    pause::set("nowhere", || ());
    report.unwrap();
    assert!(splits.get() > 100 && walks.get() > 0 && walks.get() < 20, "{} walks, {} pages", walks.get(), splits.get());
}

/// A page that came behind the walk stays while the check looks whether the tree leads to it.
#[test]
fn a_check_finds_no_damage_in_a_page_that_is_about_to_be_merged() {
    // Before all that are there, so that the walk has passed them.
    const NEW: std::ops::Range<u64> = 0..200;
    let db = Rc::new(open());
    // The walk renews its transaction before it comes to the last of them.
    fill(&db, 2000, 1000);
    remove(&db, NEW);
    steps(&db, 20);
    let met = Rc::new(Cell::new(0));
    pause::set("check: has a transaction", {
        let (db, met, mut calls) = (Rc::clone(&db), Rc::clone(&met), 0);
        move || {
            calls += 1;
            if calls < 3 {
                return;
            }
            db.run(|tx| NEW.into_iter().try_for_each(|n| tx.open(ROWS)?.insert(n, &[7; 1000][..]).map(drop))).unwrap();
            let (db, met) = (Rc::clone(&db), Rc::clone(&met));
            pause::set("check: a page that no walk has met is in use", move || {
                met.set(met.get() + 1);
                remove(&db, NEW);
                steps(&db, 20);
            });
        }
    });
    let report = db.check();
    pause::set("nowhere", || ());
    report.unwrap();
    assert!(met.get() > 5, "{} pages", met.get());
    steps(&db, 20);
    assert_eq!(ghosts(&db), 0);
}
