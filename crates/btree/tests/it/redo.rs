//! Redo repeats history: pages rebuilt from the log alone equal the original pages.

use crate::common::{Bed, Rng, key, value};
use foreshore_base::PageId;
use foreshore_base::codec::u16_at;
use foreshore_buffer::PageType;
use foreshore_buffer::format::{page_level, page_type};
use std::collections::BTreeMap;

/// Returns the bytes of a page that redo must rebuild: headers, slots, tuples and fences. It leaves out:
///
/// - the checksum, which is set when the page is written
/// - the undo pointers of rows, which are volatile
/// - unused bytes of the heap, which may hold old undo pointers
///
/// The numbers are the offsets of `docs/format.md`, because the constants of the crate are private.
fn image(page: &[u8]) -> Vec<u8> {
    if page_type(page) != Some(PageType::Tree) {
        return page[4..].to_vec();
    }
    let slots = usize::from(u16_at(page, 32));
    let mut image = page[4..64 + slots * 8].to_vec();
    for fence in [56, 60] {
        let at = usize::from(u16_at(page, fence));
        image.extend_from_slice(&page[at..at + usize::from(u16_at(page, fence + 2))]);
    }
    for slot in 0..slots {
        let at = usize::from(u16_at(page, 64 + slot * 8));
        let key_len = usize::from(u16_at(page, 64 + slot * 8 + 2));
        if page_level(page) > 0 {
            image.extend_from_slice(&page[at..at + 8 + key_len]);
        } else {
            let value_len = usize::from(u16_at(page, at + 8));
            image.extend_from_slice(&page[at..at + 10]);
            image.extend_from_slice(&page[at + 16..at + 16 + key_len + value_len]);
        }
    }
    image
}

fn images(bed: &Bed) -> BTreeMap<PageId, Vec<u8>> {
    let mut pages = bed.tree.verify().unwrap().pages;
    // The first map of the data file.
    pages.insert(PageId(2));
    pages.into_iter().map(|pid| (pid, image(&bed.pool.shared(pid).unwrap()))).collect()
}

#[test]
fn pages_rebuilt_from_the_log_equal_the_original_ones() {
    let bed = Bed::new(1024);
    let mut rng = Rng(77);
    for _ in 0..500 {
        let mut txn = bed.begin();
        for _ in 0..rng.below(8) {
            let key = key(rng.below(300));
            match rng.below(3) {
                0 => drop(bed.tree.remove(&mut txn, &key).unwrap()),
                _ => drop(bed.tree.put(&mut txn, &key, &value(&mut rng)).unwrap()),
            }
        }
        if rng.below(4) == 0 {
            txn.rollback().unwrap();
        } else {
            drop(txn.commit().unwrap());
        }
        // The history must have purges, and only ghosts whose deletion is durable are purged.
        bed.log.force(bed.log.current()).unwrap();
    }
    assert_eq!(bed.pool.stats().pages_written, 0, "the data file is blank");
    let before = images(&bed);
    assert!(before.len() > 20, "{} pages", before.len());
    let (bed, restart) = bed.crash();
    assert_eq!((restart.losers, restart.undone), (0, 0));
    assert!(restart.redone > 1000, "{restart:?}");
    let after = images(&bed);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (pid, image) in before {
        assert!(after[&pid] == image, "page {pid} differs");
    }
}
