//! A crash after every single record of a history: between the steps of splits, in the middle of rollbacks, anywhere.

use crate::common::{self, Bed, Model, Rng, key, restart, value};
use foreshore_base::{Lsn, TableId};
use std::collections::BTreeMap;

/// Runs a history whose data pages never reach the disk, and returns the contents after each commit.
fn history(bed: &Bed, seed: u64) -> BTreeMap<Lsn, Model> {
    let mut rng = Rng(seed);
    let mut model = Model::new();
    let mut commits = BTreeMap::from([(Lsn::ZERO, Model::new())]);
    for _ in 0..60 {
        let mut txn = bed.begin();
        let mut mine = model.clone();
        for _ in 0..rng.below(6) {
            let key = key(rng.below(120));
            if rng.below(4) == 0 {
                bed.tree.remove(&mut txn, &key).unwrap();
                mine.remove(&key);
            } else {
                let value = value(&mut rng);
                bed.tree.put(&mut txn, &key, &value).unwrap();
                mine.insert(key, value);
            }
        }
        if rng.below(3) == 0 {
            txn.rollback().unwrap();
        } else if txn.last_lsn() > Lsn::ZERO {
            let ticket = txn.commit().unwrap();
            model = mine;
            commits.insert(ticket.csn().lsn(), model.clone());
        }
        bed.log.force(bed.log.current()).unwrap();
    }
    assert_eq!(bed.pool.stats().pages_written, 0, "the data file is blank");
    commits
}

#[test]
fn every_prefix_of_the_log_is_a_whole_database() {
    let bed = Bed::new(512);
    let fs = bed.fs.clone();
    let commits = history(&bed, 5);
    drop(bed);
    let lsns = common::lsns(&fs, 512);
    assert!(lsns.len() > 200, "{} records", lsns.len());
    let (mut open_splits, mut losers) = (0, 0);
    // The first records lay out the database itself.
    for limit in common::LAYOUT_RECORDS..=lsns.len() {
        let end = lsns[limit - 1];
        let (bed, done) = restart(&fs, 512, limit);
        let (_, expected) = commits.range(..=end).next_back().unwrap();
        open_splits += bed.verify().open_splits;
        losers += done.losers;
        assert_eq!(&bed.contents(), expected, "after record {limit}");
        // Writers go on, and finish what they find open.
        bed.run(|txn| (0..120).try_for_each(|n| bed.tree.put(txn, &key(n), b"after").map(drop)));
        assert_eq!(bed.verify().open_splits, 0, "after record {limit}");
        assert_eq!(bed.pool.stats().pages_written, 0, "the next prefix starts from a blank file, too");
    }
    assert!(open_splits >= 3 && losers > 50, "{open_splits} open splits, {losers} losers");
}

#[test]
fn a_crash_anywhere_in_the_life_of_a_table_that_is_taken_back_leaks_nothing() {
    let bed = Bed::new(512);
    let fs = bed.fs.clone();
    let mut rng = Rng(9);
    let mut txn = bed.begin();
    let tree = bed.tree.create_table(&mut txn, b"new", TableId(7), |root| root.0.to_le_bytes().to_vec()).unwrap();
    for n in 0..60 {
        tree.put(&mut txn, &key(n), &value(&mut rng)).unwrap();
    }
    txn.rollback().unwrap();
    bed.log.force(bed.log.current()).unwrap();
    drop((tree, bed));
    let records = common::lsns(&fs, 512).len();
    let mut undone = 0;
    for limit in common::LAYOUT_RECORDS..=records {
        let (bed, done) = restart(&fs, 512, limit);
        undone += done.undone;
        // No row, and no page beside superblocks, map and roots.
        assert_eq!(bed.contents(), Model::new(), "after record {limit}");
        assert_eq!(bed.verify().pages.len(), 1, "after record {limit}");
        assert_eq!(bed.space.stats().used_pages, 5, "after record {limit}");
    }
    assert!(undone > 60 * 60, "{undone} changes undone");
}
