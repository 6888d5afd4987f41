//! Promise: leaves emptied by a rollback, or by the end of dropped tables, do not hinder other operations, however
//! many there are and however few frames.

use crate::common::{Bed, WAYS, scan_by};
use foreshore_base::{Result, TableId};
use foreshore_btree::Tree;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound::{Excluded, Unbounded};

/// Rows between the two of the table; in leaves that are several times as many as the frames.
const ROWS: usize = 480;
const FRAMES: usize = 24;

fn fill(bed: &Bed, txn: &mut Txn) -> Result<()> {
    (0..ROWS).try_for_each(|n| bed.tree.insert_new(txn, format!("k{n:06}").as_bytes(), &[7; 1200]))
}

fn bed() -> Bed {
    let bed = Bed::new(FRAMES);
    for key in [b"a", b"z"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"row"));
    }
    bed
}

/// Scans at all levels and in all ways, and inserts before and behind.
fn use_it(bed: &Bed) {
    assert!(bed.verify().leaves > 3 * FRAMES);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for way in WAYS {
            let mut txn = bed.txns.begin(TxnOptions { isolation, ..TxnOptions::default() }).unwrap();
            assert_eq!(scan_by(way, &bed.tree, &mut txn, Unbounded, Unbounded).unwrap().len(), 2);
            assert!(scan_by(way, &bed.tree, &mut txn, Excluded(b"a"), Excluded(b"k")).unwrap().is_empty());
        }
    }
    for key in [b"b", b"y"] {
        bed.run(|txn| bed.tree.insert_new(txn, key, b"row"));
        bed.run(|txn| bed.tree.remove(txn, key));
    }
}

#[test]
fn after_a_rollback() {
    let bed = bed();
    let mut txn = bed.begin();
    fill(&bed, &mut txn).unwrap();
    txn.rollback().unwrap();
    use_it(&bed);
    // Filling and emptying again takes no more pages.
    let leaves = bed.verify().leaves;
    bed.log.force(bed.log.current()).unwrap();
    let mut txn = bed.begin();
    fill(&bed, &mut txn).unwrap();
    txn.rollback().unwrap();
    assert!(bed.verify().leaves <= leaves + leaves / 4, "{} leaves, before {leaves}", bed.verify().leaves);
    use_it(&bed);
}

#[test]
fn after_a_rollback_at_restart() {
    let bed = bed();
    let mut txn = bed.begin();
    fill(&bed, &mut txn).unwrap();
    bed.log.force(bed.log.current()).unwrap();
    std::mem::forget(txn);
    let (bed, restart) = bed.halt();
    assert_eq!((restart.losers, restart.undone), (1, ROWS));
    use_it(&bed);
}

/// Their rows have keys that never come again.
#[test]
fn after_the_end_of_dropped_tables() {
    let bed = bed();
    let name = |n: usize| format!("k{n:06}").into_bytes();
    let trees: Vec<Tree> = (0..ROWS)
        .map(|n| {
            let table = TableId(10 + n as u32);
            bed.run(|txn| bed.tree.create_table(txn, &name(n), table, |_| vec![7; 1200]))
        })
        .collect();
    bed.log.force(bed.log.current()).unwrap();
    for (n, tree) in trees.iter().enumerate() {
        let mut txn = bed.begin();
        assert!(tree.free_some(&mut txn, bed.txns.clock(), 1).unwrap(), "only the root");
        bed.tree.end_table(&mut txn, &name(n), tree, bed.txns.clock()).unwrap();
        txn.rollback().unwrap();
    }
    use_it(&bed);
    let (bed, _) = bed.crash();
    use_it(&bed);
}

/// The fence of a leaf may be longer than the space in its left neighbour. Then it stays, and to look at it again logs
/// nothing. Its right neighbour has a row with a live writer.
#[test]
fn an_empty_leaf_whose_fence_fits_no_neighbour_is_left_as_it_is() {
    // The fence between `a` and `b` is short, and those between rows of `b` are long.
    let key = |letter: char, number: usize| format!("{letter}{number:0500}").into_bytes();
    let put = |bed: &Bed, key: &[u8]| bed.run(|txn| bed.tree.put(txn, key, &[7; 70]).map(drop));
    // Returns the row that begins one more leaf. The row before goes to that leaf, too.
    let fill_leaf = |bed: &Bed, letter| {
        let before = bed.verify().leaves;
        let begins = |number: &usize| {
            put(bed, &key(letter, *number));
            bed.verify().leaves > before
        };
        (0..).find(begins).unwrap()
    };
    let of_a_leaf = fill_leaf(&Bed::new(64), 'a');
    let bed = Bed::new(64);
    (1..of_a_leaf).for_each(|number| put(&bed, &key('a', number)));
    (0..2).for_each(|number| put(&bed, &key('b', number)));
    put(&bed, &key('a', 0));
    assert_eq!(bed.verify().leaves, 2);
    let behind = fill_leaf(&bed, 'b');
    assert_eq!(bed.verify().leaves, 3);
    (0..behind - 1).for_each(|number| drop(bed.run(|txn| bed.tree.remove(txn, &key('b', number)))));
    bed.log.force(bed.log.current()).unwrap();
    let mut live = bed.begin();
    bed.tree.put(&mut live, &key('b', behind), &[8; 70]).unwrap();
    let (mut txn, emptied) = (bed.begin(), key('b', 0));
    assert!(bed.tree.purge_leaf(&mut txn, &emptied, true).unwrap().is_thin);
    assert_eq!(bed.verify().ghosts, 0, "it is empty");
    let before = (bed.log.current(), bed.log.stats().records);
    let merged = bed.tree.merge_leaf(&mut txn, &emptied).unwrap();
    assert_eq!((merged.pages, bed.verify().leaves), (0, 3), "its fence does not fit");
    assert_eq!((bed.log.current(), bed.log.stats().records), before);
    live.rollback().unwrap();
    assert_eq!(bed.tree.merge_leaf(&mut txn, &emptied).unwrap().pages, 1, "into the right neighbour");
    txn.rollback().unwrap();
    assert_eq!(bed.verify().leaves, 2);
}
