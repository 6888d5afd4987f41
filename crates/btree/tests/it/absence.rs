//! A transaction that found no row depends on the commits that deleted it, like a reader of the row (T2, E3). It is
//! acknowledged only when those commits are durable.

use crate::common::{Bed, Model, scan};
use foreshore_txn::{Isolation, SnapshotKind, Txn, TxnOptions};
use std::ops::Bound;

/// A request, and how it is made.
type Ask = fn(&Bed, &mut Txn);

const ASKS: [(&str, Ask); 4] = [
    ("a row", |bed, txn| assert!(!bed.tree.get(txn, b"b", &mut Vec::new()).unwrap())),
    ("a range", |bed, txn| {
        let found = scan(&bed.tree, txn, Bound::Included(b"b"), Bound::Excluded(b"c"));
        assert_eq!(found.unwrap(), Model::new());
    }),
    ("a row to change", |bed, txn| assert_eq!(bed.tree.update(txn, b"b", b"new").unwrap(), None)),
    ("a row to delete", |bed, txn| assert_eq!(bed.tree.remove(txn, b"b").unwrap(), None)),
];

#[test]
fn the_absence_of_a_row_depends_on_its_deleter() {
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        for (what, ask) in ASKS {
            let bed = Bed::new(64);
            for key in [b"a", b"b", b"c"] {
                bed.run(|txn| bed.tree.insert_new(txn, key, b"old"));
            }
            bed.log.force(bed.log.current()).unwrap();
            let mut deleter = bed.begin();
            bed.tree.remove(&mut deleter, b"b").unwrap();
            let deleted = deleter.commit().unwrap();
            // More of the same: the ghost may not go before its deletion is durable.
            for key in 0..40_u8 {
                bed.run(|txn| {
                    bed.tree.insert_new(txn, &[b'b', key], &[0; 1000]).and_then(|()| bed.tree.remove(txn, &[b'b', key]))
                });
            }
            assert!(!deleted.is_durable(), "nobody has waited for it");
            let options = TxnOptions { isolation, reads: SnapshotKind::Latest, ..TxnOptions::default() };
            let mut reader = bed.txns.begin(options).unwrap();
            ask(&bed, &mut reader);
            assert!(reader.observed() >= deleted.csn(), "{what} at {isolation}");
            let told = reader.commit().unwrap();
            assert!(!told.is_durable(), "{what} at {isolation}: acknowledged before what it rests on");
            told.wait().unwrap();
            assert!(deleted.is_durable(), "{what} at {isolation}");
        }
    }
}
