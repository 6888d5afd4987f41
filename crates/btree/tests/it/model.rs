//! One tree against a sorted map: commits, rollbacks, scans, restarts.

use crate::common::{Bed, Model, Rng, WAYS, key, scan_by, value};
use foreshore_base::Error;
use foreshore_base::limits::MAX_KEY;
use std::ops::Bound;

const TOO_LONG: usize = MAX_KEY + 1;

/// Runs one transaction of random operations on tree and model, and checks every answer.
fn transaction(bed: &Bed, model: &mut Model, rng: &mut Rng, keys: usize) {
    let mut txn = bed.begin();
    let mut mine = model.clone();
    for _ in 0..rng.below(12) {
        let key = key(rng.below(keys));
        let mut out = Vec::new();
        match rng.below(10) {
            0..4 => {
                let value = value(rng);
                assert_eq!(bed.tree.put(&mut txn, &key, &value).unwrap(), mine.insert(key, value));
            }
            4 => {
                let value = value(rng);
                let result = bed.tree.insert_new(&mut txn, &key, &value);
                assert_eq!(matches!(result, Err(Error::KeyExists { .. })), mine.contains_key(&key));
                mine.entry(key).or_insert(value);
            }
            5 => {
                let value = value(rng);
                let old = bed.tree.update(&mut txn, &key, &value).unwrap();
                assert_eq!(old.as_ref(), mine.get(&key));
                mine.entry(key).and_modify(|old| *old = value);
            }
            6 | 7 => assert_eq!(bed.tree.remove(&mut txn, &key).unwrap(), mine.remove(&key)),
            8 => {
                let found = bed.tree.get_for_update(&mut txn, &key, &mut out).unwrap();
                assert_eq!(found.then_some(&out), mine.get(&key));
            }
            _ => {
                let found = bed.tree.get(&mut txn, &key, &mut out).unwrap();
                assert_eq!(found.then_some(&out), mine.get(&key));
            }
        }
    }
    if rng.below(4) == 0 {
        let (lower, upper) = (key(rng.below(keys)), key(rng.below(keys)));
        if lower < upper {
            let bounds = (Bound::Excluded(&lower[..]), Bound::Included(&upper[..]));
            let expected: Model =
                mine.range::<[u8], _>(bounds).map(|(key, value)| (key.clone(), value.clone())).collect();
            let way = WAYS[rng.below(3)];
            assert_eq!(scan_by(way, &bed.tree, &mut txn, bounds.0, bounds.1).unwrap(), expected, "{way:?}");
        }
    }
    if rng.below(3) == 0 {
        txn.rollback().unwrap();
    } else {
        drop(txn.commit().unwrap());
        *model = mine;
    }
}

fn history(seed: u64, frames: usize, transactions: usize, keys: usize) {
    let mut rng = Rng(seed);
    let mut bed = Bed::new(frames);
    let mut model = Model::new();
    let mut height = 0;
    for round in 0..transactions {
        transaction(&bed, &mut model, &mut rng, keys);
        if round % 64 == 63 {
            assert_eq!(bed.contents(), model, "seed {seed}");
            height = height.max(bed.verify().height);
            let (next, restart) = if rng.below(2) == 0 { bed.reopen() } else { bed.crash() };
            assert_eq!(restart.losers, 0, "seed {seed}: all transactions had ended");
            bed = next;
            assert_eq!(bed.contents(), model, "seed {seed}");
            bed.verify();
        }
    }
    assert!(height >= 2, "the tree never split");
}

#[test]
fn random_histories_match_the_model() {
    for seed in 0..12 {
        history(seed, 512, 256, 300);
    }
}

#[test]
fn random_histories_match_the_model_in_a_tiny_pool() {
    for seed in 100..106 {
        history(seed, 24, 256, 300);
    }
}

#[test]
fn a_transaction_in_flight_at_a_crash_leaves_nothing() {
    for seed in 200..220 {
        let mut rng = Rng(seed);
        let mut bed = Bed::new(256);
        let mut model = Model::new();
        for _ in 0..80 {
            transaction(&bed, &mut model, &mut rng, 150);
        }
        let mut txn = bed.begin();
        for _ in 0..60 {
            let key = key(rng.below(200));
            if rng.below(3) == 0 {
                bed.tree.remove(&mut txn, &key).unwrap();
            } else {
                bed.tree.put(&mut txn, &key, &value(&mut rng)).unwrap();
            }
        }
        if seed % 2 == 0 {
            bed.pool.flush_all().unwrap();
        }
        bed.log.force(bed.log.current()).unwrap();
        // The transaction is lost, not rolled back.
        std::mem::forget(txn);
        let mut restarts = 0;
        while restarts < 2 {
            let (next, restart) = bed.crash();
            bed = next;
            assert_eq!(restart.losers, usize::from(restarts == 0), "seed {seed}");
            assert_eq!(bed.contents(), model, "seed {seed}");
            bed.verify();
            restarts += 1;
        }
    }
}

#[test]
fn rows_of_every_size_fit_and_larger_keys_are_refused() {
    let bed = Bed::new(256);
    let mut model = Model::new();
    for (round, key_len) in [0, 1, 4, 5, 900, MAX_KEY].into_iter().cycle().take(120).enumerate() {
        let value_len = [0, 1, 2047, 2048, 700][round % 5];
        let mut key = vec![round as u8; key_len];
        if let Some(last) = key.last_mut() {
            *last = (round * 7) as u8;
        }
        let value = vec![round as u8; value_len];
        bed.run(|txn| bed.tree.put(txn, &key, &value));
        model.insert(key, value);
    }
    let mut txn = bed.begin();
    let refused = bed.tree.put(&mut txn, &[0; TOO_LONG], b"");
    assert!(matches!(refused, Err(Error::KeyTooLarge { len: TOO_LONG, max: MAX_KEY, .. })), "{refused:?}");
    drop(txn);
    assert_eq!(bed.contents(), model);
    bed.verify();
}

#[test]
fn keys_in_order_fill_their_leaves() {
    let bed = Bed::new(256);
    for number in 0..6000_u32 {
        bed.run(|txn| bed.tree.put(txn, &number.to_be_bytes(), &[7; 40]));
    }
    let report = bed.verify();
    assert_eq!(report.rows, 6000);
    // A row takes 68 bytes with its slot. A page holds 119.
    assert!(report.leaves <= 6000 / 117 + 2, "{} leaves", report.leaves);
}

#[test]
fn runs_in_turns_fill_their_leaves() {
    let bed = Bed::new(1024);
    for batch in 0..600 {
        bed.run(|txn| {
            for number in batch * 100..(batch + 1) * 100 {
                let (run, place) = (number % 10_u32, number / 10);
                bed.tree.insert_new(txn, &(run << 16 | place).to_be_bytes(), &[7; 40])?;
            }
            Ok(())
        });
    }
    let report = bed.verify();
    assert!(report.leaves <= 60_000 / 116 + 10, "{} leaves", report.leaves);
}

#[test]
fn late_keys_of_another_session_find_space() {
    let bed = Bed::new(1024);
    let (mut early, mut late) = (bed.begin(), bed.begin());
    for number in 0..10_000_u32 {
        // Every other key comes four keys late.
        bed.tree.insert_new(&mut early, &(2 * number + 8).to_be_bytes(), &[7; 40]).unwrap();
        bed.tree.insert_new(&mut late, &(2 * number + 1).to_be_bytes(), &[7; 40]).unwrap();
    }
    drop(early.commit().unwrap());
    drop(late.commit().unwrap());
    let report = bed.verify();
    assert!(report.leaves <= 245, "{} leaves", report.leaves);
}

#[test]
fn ghosts_make_room_once_their_deletion_is_durable() {
    let bed = Bed::new(256);
    let put = |number: u32| bed.run(|txn| bed.tree.put(txn, &number.to_be_bytes(), &[1; 200]));
    let remove = |number: u32| bed.run(|txn| bed.tree.remove(txn, &number.to_be_bytes()));
    (0..30).for_each(|number| drop(put(number)));
    (0..30).for_each(|number| drop(remove(number)));
    assert_eq!(bed.verify().ghosts, 30, "nothing is purged before there is need");
    // The deletions are not durable: the leaf must split.
    (100..120).for_each(|number| drop(put(number)));
    assert_eq!(bed.verify().leaves, 2);
    bed.log.force(bed.log.current()).unwrap();
    (120..180).for_each(|number| {
        bed.log.force(bed.log.current()).unwrap();
        drop(put(number));
        drop(remove(number));
    });
    let report = bed.verify();
    assert!(report.leaves <= 3 && report.ghosts < 60, "{report:?}");
    assert_eq!(bed.contents().len(), 20);
}

#[test]
fn a_cursor_sees_what_its_transaction_writes_ahead_of_it() {
    let bed = Bed::new(64);
    bed.run(|txn| (0..10_u8).try_for_each(|n| bed.tree.put(txn, &[n * 10], b"old").map(drop)));
    let mut txn = bed.begin();
    let mut cursor = bed.tree.range(&mut txn, Bound::Unbounded, Bound::Unbounded).unwrap();
    assert_eq!(cursor.next(&mut txn).unwrap(), Some((&[0][..], &b"old"[..])));
    bed.tree.put(&mut txn, &[5], b"new").unwrap();
    bed.tree.remove(&mut txn, &[10]).unwrap();
    bed.tree.put(&mut txn, &[20], b"changed").unwrap();
    assert_eq!(cursor.next(&mut txn).unwrap(), Some((&[5][..], &b"new"[..])));
    assert_eq!(cursor.next(&mut txn).unwrap(), Some((&[20][..], &b"changed"[..])));
    bed.tree.put(&mut txn, &[95], b"last").unwrap();
    let mut rest = Vec::new();
    while let Some((key, _)) = cursor.next(&mut txn).unwrap() {
        rest.push(key[0]);
    }
    assert_eq!(rest, [30, 40, 50, 60, 70, 80, 90, 95]);
    txn.rollback().unwrap();
    assert_eq!(bed.contents().len(), 10);
}

/// Long keys that differ in their last byte, and the separator of two of them is as long. A run ends between them and
/// few bytes, which lie behind it or before it.
#[test]
fn a_leaf_with_a_run_beside_few_bytes_is_split_whatever_the_separator() {
    let long = |n: u8| {
        let mut key = vec![b'm'; 991];
        key.push(n);
        key
    };
    let check = |rows: Vec<(Vec<u8>, usize)>| {
        let bed = Bed::new(64);
        let mut model = Model::new();
        for (key, len) in rows {
            let value = vec![7; len];
            bed.run(|txn| bed.tree.put(txn, &key, &value));
            model.insert(key, value);
        }
        assert_eq!(bed.contents(), model);
        bed.verify();
    };
    let filler = || (b'a'..b'm').map(|n| (vec![n], 900));
    for (len, few) in (0..60).step_by(6).flat_map(|len| (300..480).step_by(12).map(move |few| (len, few))) {
        let behind = [(b"z1".to_vec(), few), (b"z2".to_vec(), few)];
        check(filler().chain(behind).chain((b'a'..=b'y').map(|n| (long(n), len))).collect());
    }
    for (len, few) in (0..240).step_by(8).flat_map(|len| (2..9).map(move |few| (len, few))) {
        let before = (1..few).map(|n| (vec![b'l', n], 1));
        let run = (b'c'..b'c' + few).map(|n| (long(n), len));
        let rest = [b'b', b'a'].map(|n| (long(n), len));
        check(filler().chain(run).chain(before).chain(rest).collect());
    }
}
