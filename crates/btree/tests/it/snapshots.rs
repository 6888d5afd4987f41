//! Transactions with snapshots meet a cancelled snapshot, rows that others have only locked, and a table that is gone.

use crate::common::{self, Bed, TABLE};
use foreshore_base::{Csn, Error, Result, TableId, Xid};
use foreshore_btree::Tree;
use foreshore_lock::TableMode;
use foreshore_space::CATALOGUE_ROOT;
use foreshore_sync::pause;
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, SnapshotKind, Txn, TxnOptions};
use std::ops::Bound;
use std::rc::Rc;
use std::sync::mpsc::sync_channel;

fn begin(bed: &Bed) -> Txn {
    let options = TxnOptions { isolation: Isolation::Snapshot, reads: SnapshotKind::Latest, ..TxnOptions::default() };
    bed.txns.begin(options).unwrap()
}

/// A cancelled snapshot says nothing of any row, whether it exists or not. Versions that it sees may be gone, and so
/// may ghosts of its rows.
#[test]
fn a_transaction_that_lost_its_snapshot_writes_and_reads_nothing() {
    type Write = fn(&Bed, &mut Txn, &[u8]) -> Result<()>;
    let writes: [(&str, Write); 5] = [
        ("put", |bed, txn, key| bed.tree.put(txn, key, b"new").map(drop)),
        ("insert", |bed, txn, key| bed.tree.insert_new(txn, key, b"new")),
        ("update", |bed, txn, key| bed.tree.update(txn, key, b"new").map(drop)),
        ("remove", |bed, txn, key| bed.tree.remove(txn, key).map(drop)),
        ("lock", |bed, txn, key| bed.tree.get_for_update(txn, key, &mut Vec::new()).map(drop)),
    ];
    let bed = Bed::new(64);
    for key in [b"is there", b"is ghost"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"old"));
    }
    bed.run(|txn| bed.tree.remove(txn, b"is ghost"));
    for (name, write) in writes {
        for key in ["absent", "is ghost", "is there"] {
            let mut txn = begin(&bed);
            assert!(bed.txns.visibility().cancel_oldest().is_some());
            let outcome = write(&bed, &mut txn, key.as_bytes());
            assert!(matches!(outcome, Err(Error::SnapshotTooOld { .. })), "{name} of a row that {key}: {outcome:?}");
            txn.rollback().unwrap();
        }
    }
    assert_eq!(bed.contents(), [(b"is there".to_vec(), b"old".to_vec())].into());
}

/// A value that fills a good part of a chunk of undo.
fn value(row: u8) -> Vec<u8> {
    vec![row; 1500]
}

/// Rows that a transaction has locked, and not changed, since a snapshot was taken. Their older versions stay
/// reachable, whatever others roll back, and whatever memory they need.
#[test]
fn rows_that_were_only_locked_are_read_by_older_snapshots() {
    const LOCKED: u8 = 12;
    let bed = Bed::with_undo(64, 16 * 8192);
    for row in 0..2 * LOCKED {
        bed.run(|txn| bed.tree.insert_new(txn, &[row], &value(row)));
    }
    bed.log.force(bed.log.current()).unwrap();
    let mut reader = begin(&bed);
    bed.run(|txn| (0..LOCKED).try_for_each(|row| bed.tree.get_for_update(txn, &[row], &mut Vec::new()).map(drop)));
    for row in 0..2 {
        let mut writer = bed.begin();
        bed.tree.put(&mut writer, &[row], &value(99)).unwrap();
        writer.rollback().unwrap();
    }
    // Unneeded memory is reused.
    bed.run(|txn| (LOCKED..2 * LOCKED).try_for_each(|row| bed.tree.put(txn, &[row], &value(98)).map(drop)));
    for row in 0..2 * LOCKED {
        let mut found = Vec::new();
        assert!(bed.tree.get(&mut reader, &[row], &mut found).unwrap(), "row {row}");
        assert!(found == value(row), "row {row} as it was");
    }
    drop(reader.commit().unwrap());
}

/// A search among many versions ends early when it finds the leaf latched. A writer that finds its row locked releases
/// the latch without a change, and the leaf validates again. The reader then repeats the search.
#[test]
fn a_search_that_a_latch_has_ended_is_no_answer() {
    // More than a reader follows between two looks at the leaf.
    const CHANGES: u8 = 100;
    type Read = fn(&Bed, &mut Txn) -> Vec<u8>;
    let reads: [(&str, Read); 2] = [
        ("get", |bed, txn| {
            let mut found = Vec::new();
            assert!(bed.tree.get(txn, b"row", &mut found).unwrap());
            found
        }),
        ("scan", |bed, txn| {
            let mut cursor = bed.tree.range(txn, Bound::Unbounded, Bound::Unbounded).unwrap();
            cursor.next(txn).unwrap().unwrap().1.to_vec()
        }),
    ];
    for (name, read) in reads {
        let bed = Bed::new(64);
        bed.run(|txn| bed.tree.insert_new(txn, b"row", b"old"));
        let mut reader = begin(&bed);
        let mut writer = bed.begin();
        (0..CHANGES).for_each(|change| drop(bed.tree.put(&mut writer, b"row", &[change]).unwrap()));
        // Each message is received before the sender goes on.
        let ((to_latch, latch), (to_unlatch, unlatch)) = (sync_channel::<()>(0), sync_channel::<()>(0));
        let (latched, wait_latched) = sync_channel(0);
        let (unlatched, wait_unlatched) = sync_channel(0);
        let (given_up, was_given_up) = sync_channel(1);
        thread::scope(|scope| {
            let pool = &bed.pool;
            scope.spawn(move || {
                latch.recv().unwrap();
                let leaf = pool.exclusive(CATALOGUE_ROOT).unwrap();
                latched.send(()).unwrap();
                unlatch.recv().unwrap();
                drop(leaf);
                unlatched.send(()).unwrap();
            });
            let mut unlatch = Some(move || {
                to_unlatch.send(()).unwrap();
                wait_unlatched.recv().unwrap();
                given_up.send(()).unwrap();
            });
            pause::set("undo: about to look at the page again", move || {
                to_latch.send(()).unwrap();
                wait_latched.recv().unwrap();
                pause::set("undo: a search is given up", unlatch.take().expect("the hook is called once"));
            });
            assert_eq!(read(&bed, &mut reader), b"old", "{name}");
            pause::set("nowhere", || ());
        });
        assert!(was_given_up.try_recv().is_ok(), "{name}: the search was given up once");
        assert_eq!(read(&bed, &mut reader), b"old", "{name}");
        writer.rollback().unwrap();
        drop(reader.commit().unwrap());
    }
}

/// The absence of a table depends on the commit that dropped it, which may be lost.
#[test]
fn a_reader_of_a_dropped_table_depends_on_its_dropper() {
    let bed = Bed::new(64);
    bed.run(|txn| bed.tree.insert_new(txn, b"row", b"old"));
    let mut dropper = bed.begin();
    dropper.lock_table(TABLE, TableMode::Exclusive).unwrap();
    bed.tree.put(&mut dropper, b"row", b"new").unwrap();
    bed.tree.retire(dropper.xid().unwrap());
    let csn = dropper.commit().unwrap().csn();
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let mut other = bed.txns.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
        let outcome = bed.tree.get(&mut other, b"row", &mut Vec::new());
        assert!(matches!(outcome, Err(Error::TableDropped { .. })), "{outcome:?}");
        assert!(other.rollback().unwrap() >= csn, "{isolation}");
    }
}

/// Undo of a row that is locked and then changed is that of one that is changed at once, where nothing came in between.
#[test]
fn a_change_takes_the_place_of_the_lock_of_its_row() {
    const ROWS: u8 = 40;
    let used = |locks: bool, commits: bool| {
        let bed = Bed::new(64);
        for row in 0..ROWS {
            bed.run(|txn| bed.tree.insert_new(txn, &[row], &value(row)));
        }
        bed.log.force(bed.log.current()).unwrap();
        let mut reader = begin(&bed);
        let mut writer = bed.begin();
        for row in 0..ROWS {
            let mut old = Vec::new();
            if locks {
                assert!(bed.tree.get_for_update(&mut writer, &[row], &mut old).unwrap());
            }
            if row % 2 == 0 {
                bed.tree.put(&mut writer, &[row], &value(row + 100)).unwrap();
            } else {
                bed.tree.remove(&mut writer, &[row]).unwrap();
            }
        }
        let used = bed.txns.stats().undo_bytes;
        let seen = |reader: &mut Txn, row: u8| {
            let mut found = Vec::new();
            bed.tree.get(reader, &[row], &mut found).unwrap().then_some(found)
        };
        assert!((0..ROWS).all(|row| seen(&mut reader, row) == Some(value(row))), "beside the writer");
        if commits {
            drop(writer.commit().unwrap());
        } else {
            writer.rollback().unwrap();
        }
        assert!((0..ROWS).all(|row| seen(&mut reader, row) == Some(value(row))), "behind the writer");
        let mut late = begin(&bed);
        let after = |row: u8| match (commits, row % 2) {
            (false, _) => Some(value(row)),
            (true, 0) => Some(value(row + 100)),
            (true, _) => None,
        };
        assert!((0..ROWS).all(|row| seen(&mut late, row) == after(row)), "when it has ended");
        used
    };
    for commits in [true, false] {
        assert_eq!(used(true, commits), used(false, commits));
    }
}

/// Damage that a snapshot reader meets counts only while the snapshot is in use and the table exists for it.
#[test]
fn damage_that_a_reader_by_a_snapshot_meets_is_judged_again() {
    type Read = fn(&Tree, &mut Txn, &dyn Fn()) -> Result<()>;
    let reads: [Read; 2] = [
        |tree, txn, begin| {
            begin();
            tree.get(txn, b"row", &mut Vec::new()).map(drop)
        },
        |tree, txn, begin| {
            let mut cursor = tree.range(txn, Bound::Unbounded, Bound::Unbounded)?;
            begin();
            cursor.next(txn).map(drop)
        },
    ];
    for read in reads {
        let bed = Bed::new(64);
        bed.run(|txn| bed.tree.insert_new(txn, b"row", b"old"));
        // The pages of this tree are those of another table, as they are when a table is gone.
        let gone = bed.trees.tree(TableId(9), bed.tree.root());
        let meets = |meanwhile: &dyn Fn()| {
            let mut reader = begin(&bed);
            let met = read(&gone, &mut reader, meanwhile).unwrap_err();
            pause::set("nowhere", || ());
            reader.rollback().unwrap();
            met
        };
        let on_its_way = |hook: Rc<dyn Fn()>| pause::set("btree: a reader by a snapshot is on its way", move || hook());
        assert!(matches!(meets(&|| ()), Error::Corrupted { .. }), "nothing explains it");
        let txns = bed.txns.clone();
        let cancel: Rc<dyn Fn()> = Rc::new(move || assert!(txns.visibility().cancel_oldest().is_some()));
        let met = meets(&|| on_its_way(cancel.clone()));
        assert!(matches!(met, Error::SnapshotTooOld { .. }), "the snapshot was cancelled meanwhile: {met:?}");
        let ends = gone.clone();
        let drops: Rc<dyn Fn()> = Rc::new(move || {
            ends.retire(Xid(1));
            ends.dropped_by(Csn(1));
        });
        let met = meets(&|| on_its_way(drops.clone()));
        assert!(matches!(met, Error::TableDropped { .. }), "the table was dropped meanwhile: {met:?}");
    }
}

/// Older snapshots read a table that is dropped, and its pages go as they are: there is nothing to purge.
#[test]
fn readers_of_a_dropped_table_queue_none_of_its_leaves() {
    let bed = Bed::new(256);
    let rows = 0..60_u8;
    rows.clone().for_each(|row| bed.run(|txn| bed.tree.insert_new(txn, &[row], &[row; 1800])));
    rows.for_each(|row| drop(bed.run(|txn| bed.tree.remove(txn, &[row]))));
    bed.log.force(bed.log.current()).unwrap();
    // Leaves with no row, and leaves with deleted ones.
    bed.run(|txn| (0..30).try_for_each(|row| bed.tree.purge_leaf(txn, &[row], true).map(drop)));
    let queued = |reader: &mut Txn| {
        let mut leaves = 0;
        drop(bed.trees.take_queued(usize::MAX, |_| ()));
        let found = common::scan(&bed.tree, reader, Bound::Unbounded, Bound::Unbounded).unwrap();
        assert!(found.is_empty());
        let ranges = bed.trees.take_queued(usize::MAX, |_| leaves += 1);
        leaves + ranges.len()
    };
    let mut reader = begin(&bed);
    assert!(queued(&mut reader) > 5, "leaves of both kinds");
    let mut dropper = bed.begin();
    dropper.lock_table(TABLE, TableMode::Exclusive).unwrap();
    bed.tree.put(&mut dropper, b"row", b"new").unwrap();
    bed.tree.retire(dropper.xid().unwrap());
    bed.tree.dropped_by(dropper.commit().unwrap().csn());
    assert_eq!(queued(&mut reader), 0);
}

/// A snapshot reader has no lock that keeps the table: it passes open splits, which other operations finish.
#[test]
fn a_reader_by_a_snapshot_passes_by_open_splits() {
    let bed = Bed::new(512);
    for row in 0..60_u8 {
        bed.run(|txn| bed.tree.insert_new(txn, &[row; 500], &[row; 900]));
    }
    bed.log.force(bed.log.current()).unwrap();
    let fs = bed.fs.clone();
    drop(bed);
    let (records, mut open) = (common::lsns(&fs, 512).len(), 0);
    for limit in common::LAYOUT_RECORDS..=records {
        let (bed, _) = common::restart(&fs, 512, limit);
        let before = bed.verify().open_splits;
        let mut reader = begin(&bed);
        let rows = common::scan(&bed.tree, &mut reader, Bound::Unbounded, Bound::Unbounded).unwrap();
        let mut out = Vec::new();
        for (key, value) in &rows {
            assert!(bed.tree.get(&mut reader, key, &mut out).unwrap() && out == *value, "after {limit} records");
        }
        drop(reader);
        assert_eq!(bed.verify().open_splits, before, "after {limit} records");
        assert_eq!(bed.contents(), rows, "a scan that locks finds the same");
        assert_eq!(bed.verify().open_splits, 0, "and finishes what it finds open");
        assert_eq!(bed.pool.stats().pages_written, 0, "the next prefix starts from a blank file, too");
        open += before;
    }
    assert!(open > 0, "no split was open");
}
