//! Chains of large values: what keeps them, and when they are freed.

use crate::common::{self, Bed, Model, Restart, TABLE, restart, undoable_changes};
use foreshore_base::limits::{MAX_INLINE_VALUE, MAX_VALUE};
use foreshore_base::{Error, Lsn, PageId};
use foreshore_btree::ChainRef;
use foreshore_btree::format::CHAINS;
use foreshore_buffer::PageMut;
use foreshore_buffer::format::{PageType, page_level, page_type};
use foreshore_space::{map_of, mark_free};
use foreshore_txn::ResourceManager;
use std::collections::BTreeMap;

/// Frees what nothing needs, and returns how many chains were freed, and how many are left.
fn free(bed: &Bed) -> (usize, usize) {
    bed.log.force(bed.log.current()).unwrap();
    let mut txn = bed.begin();
    let (mut from, mut freed, mut left) = (Vec::new(), 0, 0);
    loop {
        let found = bed.trees.free_chains(&mut txn, &from, 3).unwrap();
        assert!(found.damage.is_none(), "{found:?}");
        (freed, left) = (freed + found.freed, left + found.left);
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    txn.rollback().unwrap();
    (freed, left)
}

fn value(byte: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| byte ^ (at / 7) as u8).collect()
}

#[test]
fn a_value_over_the_limit_is_refused_before_it_is_read() {
    let bed = Bed::new(64);
    let too_large = vec![0; MAX_VALUE + 1];
    let mut txn = bed.begin();
    let refused = bed.tree.put(&mut txn, b"k", &too_large);
    assert!(
        matches!(refused, Err(Error::ValueTooLarge { len, max: MAX_VALUE, .. }) if len == too_large.len()),
        "{refused:?}"
    );
    assert!(!bed.tree.get_newest(&mut txn, b"k", &mut Vec::new()).unwrap());
}

#[test]
fn a_chain_goes_when_its_row_has_lost_it_and_not_before() {
    let bed = Bed::new(256);
    let used = bed.space.stats().used_pages;
    let first = value(1, 50_000);
    bed.run(|txn| bed.tree.put(txn, b"k", &first));
    assert_eq!(free(&bed), (0, 0));
    let mut txn = bed.begin();
    assert_eq!(bed.tree.put(&mut txn, b"k", &value(2, 9000)).unwrap().as_ref(), Some(&first));
    assert_eq!(free(&bed), (0, 1), "a rollback may need the first");
    txn.rollback().unwrap();
    bed.verify();
    assert_eq!(free(&bed), (1, 0), "the second, which no row refers to");
    let (bed, _) = bed.crash();
    assert_eq!(bed.contents()[&b"k"[..]], first);
    bed.run(|txn| bed.tree.remove(txn, b"k"));
    bed.verify();
    assert_eq!(free(&bed), (1, 0));
    bed.verify();
    assert_eq!(bed.space.stats().used_pages, used);
}

#[test]
fn a_restart_frees_what_an_unfinished_transaction_has_built() {
    let bed = Bed::new(256);
    bed.run(|txn| bed.tree.put(txn, b"k", &value(1, 30_000)));
    let used = bed.space.stats().used_pages;
    let mut txn = bed.begin();
    bed.tree.put(&mut txn, b"k", &value(2, MAX_INLINE_VALUE + 1)).unwrap();
    bed.tree.put(&mut txn, b"l", &value(3, 100_000)).unwrap();
    bed.log.force(bed.log.current()).unwrap();
    std::mem::forget(txn);
    let (bed, Restart { losers, .. }) = bed.crash();
    assert_eq!(losers, 1);
    bed.verify();
    assert_eq!(free(&bed), (2, 0));
    bed.verify();
    assert_eq!(bed.space.stats().used_pages, used);
    assert_eq!(bed.contents()[&b"k"[..]], value(1, 30_000));
}

#[test]
fn an_interrupted_freeing_goes_on() {
    let bed = Bed::new(256);
    let used = bed.space.stats().used_pages;
    for key in 0..3_u8 {
        bed.run(|txn| bed.tree.put(txn, &[key], &value(key, 20_000_000)));
    }
    (0..3_u8).for_each(|key| drop(bed.run(|txn| bed.tree.remove(txn, &[key]))));
    bed.log.force(bed.log.current()).unwrap();
    let mut bed = bed;
    for records in [1, 2, 5] {
        let mut txn = bed.begin();
        let found = bed.trees.free_chains(&mut txn, &[], records).unwrap();
        assert!(found.next.is_some() && found.damage.is_none(), "{found:?}");
        txn.rollback().unwrap();
        bed.verify();
        (bed, _) = bed.crash();
        bed.verify();
    }
    free(&bed);
    bed.verify();
    assert_eq!(bed.space.stats().used_pages, used);
}

#[test]
fn a_damaged_page_of_a_value_is_named_and_nothing_else_is_lost() {
    let bed = Bed::new(256);
    bed.run(|txn| {
        bed.tree.put(txn, b"a", &value(1, 3000))?;
        bed.tree.put(txn, b"b", &value(2, 40_000))
    });
    let last = (5..40).map(PageId).rfind(|&pid| {
        bed.pool.shared(pid).is_ok_and(|page| page_type(&page) == Some(PageType::Chain) && page_level(&page) == 0)
    });
    let damaged = last.unwrap();
    {
        let mut page = bed.pool.exclusive(damaged).unwrap();
        let byte = page[4000] ^ 1;
        page.write(4000, &[byte]);
    }
    let mut txn = bed.begin();
    let read = bed.tree.get_newest(&mut txn, b"b", &mut Vec::new());
    assert!(matches!(read, Err(Error::Corrupted { .. })), "{read:?}");
    let mut found = Vec::new();
    assert!(bed.tree.get_newest(&mut txn, b"a", &mut found).unwrap());
    assert_eq!(found, value(1, 3000));
}

#[test]
fn a_rollback_notes_the_chain_that_it_leaves() {
    let bed = Bed::new(256);
    let used = bed.space.stats().used_pages;
    let mut txn = bed.begin();
    bed.tree.put(&mut txn, b"k", &value(1, 9000)).unwrap();
    assert!(bed.trees.take_chain_note());
    assert_eq!(free(&bed), (0, 0), "the chain has no row: the transaction has adopted it");
    txn.rollback().unwrap();
    assert!(bed.trees.take_chain_note(), "a pass follows");
    assert_eq!(free(&bed), (1, 0));
    assert_eq!(bed.space.stats().used_pages, used);
}

/// An undo goes the other way. Where it stops for long, no chain may go to which the row still leads.
#[test]
fn the_row_changes_after_the_rows_of_both_chains() {
    let bed = Bed::new(256);
    let fs = bed.fs.clone();
    bed.run(|txn| bed.tree.put(txn, b"k", &value(1, 9000)));
    bed.run(|txn| bed.tree.put(txn, b"k", &value(2, 3000)));
    bed.run(|txn| bed.tree.put(txn, b"k", b"small"));
    bed.run(|txn| bed.tree.put(txn, b"k", &value(3, 3000)));
    bed.run(|txn| bed.tree.remove(txn, b"k"));
    bed.log.force(bed.log.current()).unwrap();
    let trees = bed.trees.clone();
    drop(bed);
    let changes = undoable_changes(&fs, 256);
    let expected =
        [&[CHAINS, TABLE][..], &[CHAINS, CHAINS, TABLE], &[CHAINS, TABLE], &[CHAINS, TABLE], &[CHAINS, TABLE]];
    assert_eq!(changes.iter().map(|change| change.1).collect::<Vec<_>>(), expected.concat());
    // A restart that skips the undo of a row skips the older ones of chains too.
    for (kind, table, body) in &changes {
        assert_eq!(trees.row_of(*kind, body).unwrap().is_none(), *table == CHAINS);
    }
}

#[test]
fn every_prefix_of_the_log_keeps_the_values_and_loses_no_page() {
    let bed = Bed::new(256);
    let (fs, empty) = (bed.fs.clone(), bed.space.stats().used_pages);
    let mut commits = BTreeMap::from([(Lsn::ZERO, Model::new())]);
    let mut model = Model::new();
    for (n, len) in [30_000, 3000, 20, 50_000, 9000, 0, 12_000].into_iter().enumerate() {
        let (key, byte) = (vec![n as u8 % 2], n as u8);
        let mut txn = bed.begin();
        if len == 0 {
            bed.tree.remove(&mut txn, &key).unwrap();
            model.remove(&key);
        } else {
            bed.tree.put(&mut txn, &key, &value(byte, len)).unwrap();
            model.insert(key.clone(), value(byte, len));
        }
        commits.insert(txn.commit().unwrap().csn().lsn(), model.clone());
        let mut txn = bed.begin();
        bed.tree.put(&mut txn, &key, &value(byte ^ 0x80, 20_000)).unwrap();
        bed.tree.put(&mut txn, b"other", &value(byte ^ 0x80, 2500)).unwrap();
        txn.rollback().unwrap();
        free(&bed);
    }
    bed.log.force(bed.log.current()).unwrap();
    drop(bed);
    let lsns = common::lsns(&fs, 256);
    let mut losers = 0;
    for limit in common::LAYOUT_RECORDS..=lsns.len() {
        let (bed, done) = restart(&fs, 256, limit);
        losers += done.losers;
        bed.verify();
        let (_, expected) = commits.range(..=lsns[limit - 1]).next_back().unwrap();
        assert_eq!(&bed.contents(), expected, "after record {limit}");
        free(&bed);
        bed.verify();
        for key in expected.keys() {
            bed.run(|txn| bed.tree.remove(txn, key));
        }
        free(&bed);
        assert_eq!(bed.space.stats().used_pages, empty, "after record {limit}");
        assert_eq!(bed.pool.stats().pages_written, 0, "the next prefix starts from a blank file, too");
    }
    assert!(losers > 30, "{losers} losers");
}

#[test]
fn a_walk_beside_the_freeing_of_a_chain_finds_no_damage() {
    let bed = Bed::new(4096);
    bed.run(|txn| bed.tree.put(txn, b"k", &value(1, 20_000_000)));
    bed.run(|txn| bed.tree.remove(txn, b"k"));
    bed.log.force(bed.log.current()).unwrap();
    let chains = bed.trees.chains();
    let (mut met, mut freed) = (0, 0);
    let refers = &mut |found: &ChainRef<'_>| {
        chains.verify_chain(found, &mut |page| {
            met += 1;
            if page != found.chain.head {
                let mut txn = bed.begin();
                let step = bed.trees.free_chains(&mut txn, &[], 1)?;
                assert!(step.damage.is_none(), "{step:?}");
                freed += step.freed;
                txn.rollback()?;
            }
            bed.space.verify_in_use(page)
        })
    };
    chains.verify_with(&mut |_| Ok(()), &mut Err, refers).unwrap();
    assert!(met > 1900 && freed == 1, "{met} pages met, {freed} chains freed");
}

#[test]
fn damage_of_the_table_of_chains_keeps_only_its_own_chains() {
    const COUNT: usize = 700;
    let bed = Bed::new(4096);
    let key = |n: usize| (n as u32).to_be_bytes();
    bed.run(|txn| (0..COUNT).try_for_each(|n| bed.tree.put(txn, &key(n), &value(1, 2500)).map(drop)));
    bed.run(|txn| (0..COUNT).try_for_each(|n| bed.tree.remove(txn, &key(n)).map(drop)));
    bed.log.force(bed.log.current()).unwrap();
    let chains = bed.trees.chains();
    let mut leaves = Vec::new();
    chains.pages().unwrap().into_iter().for_each(|pid| {
        let page = bed.pool.shared(pid).unwrap();
        if page_level(&page) == 0 {
            leaves.push(pid);
        }
    });
    leaves.sort();
    assert!(leaves.len() >= 3, "{} leaves", leaves.len());
    {
        // More slots than a page can have.
        let mut page = bed.pool.exclusive(leaves[1]).unwrap();
        page.write(32, &[0xff; 2]);
    }
    let mut txn = bed.begin();
    let (mut from, mut freed, mut damaged) = (Vec::new(), 0, 0);
    loop {
        let found = bed.trees.free_chains(&mut txn, &from, 32).unwrap();
        freed += found.freed;
        damaged += usize::from(found.damage.is_some());
        match found.next {
            Some(next) => from = next,
            None => break,
        }
    }
    assert_eq!(damaged, 1);
    assert!(freed > COUNT / 3 && freed < COUNT, "{freed} chains freed");
}

#[test]
fn a_page_that_the_map_has_as_free_is_not_freed_and_the_log_goes_on() {
    let bed = Bed::new(256);
    bed.run(|txn| bed.tree.put(txn, b"k", &value(1, 40_000)));
    bed.run(|txn| bed.tree.put(txn, b"l", &value(2, 40_000)));
    bed.run(|txn| bed.tree.remove(txn, b"k"));
    bed.run(|txn| bed.tree.remove(txn, b"l"));
    bed.log.force(bed.log.current()).unwrap();
    let lost = (5..40).map(PageId).find(|&pid| {
        bed.pool.shared(pid).is_ok_and(|page| page_type(&page) == Some(PageType::Chain) && page_level(&page) == 0)
    });
    mark_free(&mut bed.pool.exclusive(map_of(lost.unwrap())).unwrap(), lost.unwrap()).unwrap();
    let mut txn = bed.begin();
    let found = bed.trees.free_chains(&mut txn, &[], 32).unwrap();
    assert!(matches!(found.damage, Some(Error::Corrupted { .. })), "{found:?}");
    assert_eq!(found.freed, 1, "the other one");
    txn.rollback().unwrap();
    assert!(bed.log.poisoned().is_none());
    bed.run(|txn| bed.tree.put(txn, b"k", b"small"));
}
