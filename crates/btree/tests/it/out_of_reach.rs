//! A rollback beside a quarantined page skips the rows on it, and ends.

use crate::common::{Bed, TABLE, key};
use foreshore_base::{Error, PageId};
use foreshore_buffer::format::page_level;

const ROWS: usize = 80;

fn filled() -> Bed {
    let bed = Bed::new(256);
    bed.run(|txn| (0..ROWS).try_for_each(|n| bed.tree.put(txn, &key(n), &[1; 500]).map(drop)));
    bed
}

/// Locked rows lie between changed ones. A lock has no record, so the log does not mention it.
#[test]
fn a_lock_in_a_lost_leaf_holds_no_rollback_up() {
    let bed = filled();
    let mut pages: Vec<PageId> = bed.tree.verify().expect("sound").pages.into_iter().collect();
    pages.retain(|&pid| page_level(&bed.pool.shared(pid).expect("sound")) == 0);
    pages.sort();
    assert!(pages.len() > 3, "{} leaves", pages.len());
    for page in pages {
        let (bed, mut out) = (filled(), Vec::new());
        let mut txn = bed.begin();
        for n in 0..ROWS {
            match n % 2 {
                0 => bed.tree.put(&mut txn, &key(n), &[2; 500]).map(drop).expect("free"),
                _ => assert!(bed.tree.get_for_update(&mut txn, &key(n), &mut out).expect("free")),
            }
        }
        bed.space.quarantine(page, TABLE, txn.session()).expect("a leaf may be lost");
        txn.rollback().unwrap_or_else(|error| panic!("leaf {page}: {error:?}"));
        assert!(bed.txns.parked().is_empty());
        let mut lost = 0;
        let mut other = bed.begin();
        for n in 0..ROWS {
            match bed.tree.get_for_update(&mut other, &key(n), &mut out) {
                Ok(found) => assert!(found && out == [1; 500], "leaf {page}, row {n}"),
                Err(Error::Corrupted { .. }) => lost += 1,
                Err(error) => panic!("leaf {page}, row {n}: {error:?}"),
            }
        }
        assert!((1..ROWS / 2).contains(&lost), "leaf {page}: {lost} rows");
    }
}
