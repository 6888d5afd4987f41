//! A check beside writers finds nothing wrong with a sound tree, and each kind of damage in another.

use crate::common::{self, Bed};
use foreshore_base::codec::{u16_at, u64_at};
use foreshore_base::{Error, PageId, TableId};
use foreshore_btree::format::{HAS_HIGH, INCOMPLETE};
use foreshore_buffer::format::{page_level, page_table};
use foreshore_buffer::{ExclusiveGuard, PageMut};
use foreshore_sync::primitive::{atomic::AtomicBool, atomic::Ordering, thread};

/// Long keys, so that a small tree has three levels.
fn key(number: u32) -> Vec<u8> {
    format!("{number:0500}").into_bytes()
}

/// Rows that are there from the start. Writers add others behind them, and change some of these.
const ROWS: u32 = 1500;

/// Runs `work` beside two writers: one changes rows and so splits leaves in the upper half, one adds rows at the end.
fn beside_writers(bed: &Bed, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let over = &over;
            scope.spawn(move || {
                let mut rounds = 0;
                // At least some, and no more than the log has room for.
                while rounds < 20 || (!over.load(Ordering::Relaxed) && rounds < 4000) {
                    let number = if writer == 0 { ROWS / 2 + rounds * 37 % (ROWS / 2) } else { ROWS + rounds };
                    bed.run(|txn| bed.tree.put(txn, &key(number), &vec![7; 10 + (rounds % 90) as usize]));
                    rounds += 1;
                }
            });
        }
        work();
        over.store(true, Ordering::Relaxed);
    });
}

fn filled(frames: usize) -> Bed {
    let bed = Bed::new(frames);
    for number in 0..ROWS {
        bed.run(|txn| bed.tree.insert_new(txn, &key(number), &[1; 10]));
    }
    bed
}

#[test]
fn nothing_is_wrong_with_a_tree_that_grows() {
    for frames in [64, 1024] {
        let bed = filled(frames);
        let mut pages = bed.verify().pages.len();
        let first = pages;
        beside_writers(&bed, || {
            for _ in 0..60 {
                let found = bed.tree.verify().unwrap();
                assert!(found.pages.len() >= pages && found.rows >= u64::from(ROWS), "{found:?}");
                pages = found.pages.len();
            }
        });
        let last = bed.verify();
        assert!(last.pages.len() > first && last.height >= 3, "the tree has grown: {first}, {last:?}");
    }
}

/// A page somewhere in the lower half on `level`, not the first of its level, and the next one on its right.
fn victims(bed: &Bed, level: u8) -> [PageId; 2] {
    let mut at = bed.tree.root();
    loop {
        let page = bed.pool.shared(at).unwrap();
        if page_level(&page) == level {
            let second = PageId(u64_at(&page, 40));
            return [second, PageId(u64_at(&bed.pool.shared(second).unwrap(), 40))];
        }
        // The leftmost child.
        at = PageId(u64_at(&page, 48));
    }
}

type Plant = fn(&mut ExclusiveGuard<'_>, PageId);

/// Damage of a page that has the given level.
const KINDS: [(&str, u8, Plant); 11] = [
    ("a leaf that passes over its sibling", 0, |page, next| {
        page.write(40, &(next.0 + 1).to_le_bytes());
    }),
    ("a leaf that is its own sibling", 0, |page, _| {
        let own = page.pid().0;
        page.write(40, &own.to_le_bytes());
    }),
    ("a leaf of another table", 0, |page, _| page.set_page_table(TableId(77))),
    ("a leaf on another level", 0, |page, _| page.set_page_level(1)),
    ("a low fence", 0, |page, _| {
        let at = usize::from(u16_at(page, 56));
        page.write(at, b"x");
    }),
    ("a high fence", 0, |page, _| {
        let (at, len) = (usize::from(u16_at(page, 60)), usize::from(u16_at(page, 62)));
        page.write(at + len - 1, b":");
    }),
    ("an open split that is none", 0, |page, _| page.set_page_flags(INCOMPLETE | HAS_HIGH)),
    ("two keys in each other's place", 0, |page, _| {
        let slots: [u8; 16] = page[64..80].try_into().expect("two slots");
        page.write(64, &[&slots[8..], &slots[..8]].concat());
    }),
    ("an inner node with the first child of another", 1, |page, _| {
        let other = u64_at(page, usize::from(u16_at(page, 64)));
        page.write(48, &other.to_le_bytes());
    }),
    ("an entry that leads to the child of another", 1, |page, _| {
        let (first, second) = (usize::from(u16_at(page, 64)), usize::from(u16_at(page, 72)));
        let other = u64_at(page, second);
        page.write(first, &other.to_le_bytes());
    }),
    ("an inner node that passes over its sibling", 1, |page, next| {
        page.write(40, &(next.0 + 1).to_le_bytes());
    }),
];

#[test]
fn each_kind_of_damage_is_found_while_others_write() {
    for (what, level, plant) in KINDS {
        let bed = filled(1024);
        let [victim, next] = victims(&bed, level);
        beside_writers(&bed, || {
            bed.tree.verify().unwrap();
            {
                let mut page = bed.pool.exclusive(victim).unwrap();
                assert_eq!((page_level(&page), page_table(&page)), (level, common::TABLE), "{what}");
                page.mark_dirty();
                plant(&mut page, next);
            }
            let found = bed.tree.verify();
            assert!(matches!(found, Err(Error::Corrupted { .. })), "{what}: {found:?}");
        });
    }
}

/// A page with the fences of another is no node of the tree, whatever it says.
#[test]
fn a_page_that_no_key_leads_to_is_told_from_one_that_is_reached() {
    let bed = filled(1024);
    let [victim, next] = victims(&bed, 0);
    assert!(bed.tree.reaches(victim).unwrap());
    let bytes = bed.pool.shared(next).unwrap().to_vec();
    let stray = bed.space.take(0, foreshore_space::Purpose::Data).unwrap();
    {
        let mut page = bed.pool.create(stray).unwrap();
        page.mark_dirty();
        page.write(24, &bytes[24..]);
        page.set_page_table(common::TABLE);
        let kind = bytes[4..8].to_vec();
        page.write(4, &kind);
    }
    assert!(!bed.tree.reaches(stray).unwrap());
}
