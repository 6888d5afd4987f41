//! Ranges, prefixes, keys and counts, by every kind of range and from both ends.

use crate::support::{NUMBERS, TEXTS, fill, in_memory};
use foreshore::{Error, Isolation, TableDef, TxnOptions};
use std::ops::Bound;
use std::time::Duration;

#[test]
fn every_kind_of_range_selects_its_keys() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let reader = db.read();
    let table = reader.open(NUMBERS).unwrap();
    let collected = |keys: foreshore::Keys<'_, u64>| keys.collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(collected(table.keys(3..5)), [3, 4]);
    assert_eq!(collected(table.keys(3..=5)), [3, 4, 5]);
    assert_eq!(collected(table.keys(8..)), [8, 9]);
    assert_eq!(collected(table.keys(..2)), [0, 1]);
    assert_eq!(collected(table.keys(..=2)), [0, 1, 2]);
    assert_eq!(collected(table.keys(..)), (0..10).collect::<Vec<_>>());
    assert_eq!(collected(table.keys((Bound::Excluded(7), Bound::Included(9)))), [8, 9]);
    let (from, to) = (4, 6);
    assert_eq!(collected(table.keys(&from..&to)), [4, 5]);
    assert_eq!(collected(table.keys(&(from..to))), [4, 5]);
    let (none, reversed) = (table.keys(5..5), table.keys((Bound::Included(7), Bound::Excluded(3))));
    assert_eq!((none.count(), reversed.count()), (0, 0));
    assert_eq!((table.count(3..5).unwrap(), table.count(..).unwrap(), table.len().unwrap()), (2, 10, 10));
    let mut keys = table.keys(2..8);
    assert_eq!((keys.next().unwrap().unwrap(), keys.next_back().unwrap().unwrap()), (2, 7));
    assert_eq!(keys.rev().collect::<Result<Vec<_>, _>>().unwrap(), [6, 5, 4, 3]);
}

#[test]
fn an_empty_table_is_empty_and_another_one_is_counted_exactly() {
    let (db, _) = in_memory();
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    assert!(table.is_empty().unwrap() && table.len().unwrap() == 0);
    for number in 0..5000 {
        table.put(number, 0).unwrap();
    }
    assert!(!table.is_empty().unwrap());
    assert_eq!((table.len().unwrap(), table.count(10..4000).unwrap()), (5000, 3990));
    for number in (0..5000).step_by(2) {
        table.remove(number).unwrap();
    }
    assert_eq!(table.len().unwrap(), 2500);
    tx.commit().unwrap();
    let reader = db.read();
    let before = reader.open(NUMBERS).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.clear()).unwrap();
    assert_eq!(before.len().unwrap(), 2500, "exact at the snapshot");
    assert!(before.contains(1).unwrap() && !before.contains(2).unwrap());
    assert!(db.read().open(NUMBERS).unwrap().is_empty().unwrap());
}

#[test]
fn a_prefix_selects_the_keys_that_begin_with_it() {
    const TREE: TableDef<(&str, u64, Vec<u8>), ()> = TableDef::new("tree");
    let (db, _) = in_memory();
    db.run(|tx| {
        let (texts, tree) = (tx.open(TEXTS)?, tx.open(TREE)?);
        for key in ["", "a", "a\0", "ab", "a\u{10FFFF}", "b"] {
            texts.put(key, "")?;
            for number in 0..3 {
                tree.put((key, number, &b"x"[..]), ())?;
            }
        }
        let count = |prefix: &str| texts.prefix(prefix).count();
        assert_eq!((count(""), count("a"), count("a\0"), count("b"), count("c")), (6, 4, 1, 1, 0));
        assert_eq!(tree.prefix(("a",)).count(), 3);
        assert_eq!(tree.prefix(("a", 1)).count(), 1);
        assert_eq!(tree.prefix((&"a", &1)).rev().count(), 1);
        assert_eq!(tree.prefix(("c",)).count(), 0);
        Ok::<_, Error>(())
    })
    .unwrap();
    const BYTES: TableDef<Vec<u8>, ()> = TableDef::new("bytes");
    db.run(|tx| {
        let bytes = tx.open(BYTES)?;
        [&[0xFF][..], &[0xFF, 0xFF], &[0xFF, 0], &[0xFE, 1]].iter().try_for_each(|key| bytes.put(*key, ()))?;
        assert_eq!((bytes.prefix(&[0xFF][..]).count(), bytes.prefix(&[0xFF, 0xFF][..]).count()), (3, 1));
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn what_was_counted_stays_so_for_a_serializable_transaction() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    assert_eq!(table.count(3..=5).unwrap(), 3);
    assert!(!table.contains(20).unwrap());
    let write = |number| {
        let tx = db.begin_with(TxnOptions::new().lock_timeout(Duration::from_millis(20)));
        tx.open(NUMBERS).unwrap().put(number, 0)
    };
    for number in [3, 4, 5, 20] {
        assert!(matches!(write(number), Err(Error::LockTimeout { .. })), "{number}");
    }
    [2, 6, 21].into_iter().for_each(|number| write(number).unwrap());
}

#[test]
fn a_cursor_moves_both_ways_and_sees_what_its_transaction_writes() {
    for level in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, _) = in_memory();
        fill(&db, 100);
        let tx = db.begin_with(TxnOptions::new().isolation(level));
        let table = tx.open(NUMBERS).unwrap();
        let mut cursor = table.cursor();
        let key = |row: Result<Option<(u64, i64)>, Error>| row.unwrap().map(|row| row.0);
        assert_eq!(key(cursor.prev()), None);
        assert_eq!(key(cursor.next()), Some(0));
        assert_eq!(key(cursor.next()), Some(1));
        assert_eq!(key(cursor.prev()), Some(0));
        assert_eq!(key(cursor.prev()), None);
        assert_eq!(key(cursor.prev()), None);
        assert_eq!(key(cursor.next()), Some(0));
        assert_eq!(key(cursor.seek(50)), Some(50));
        table.remove(51).unwrap();
        assert_eq!(key(cursor.next()), Some(52));
        table.put(51, -51).unwrap();
        assert_eq!(cursor.prev().unwrap(), Some((51, -51)));
        table.remove(51).unwrap();
        assert_eq!(key(cursor.next()), Some(52), "also from where a row was");
        assert_eq!(key(cursor.seek_back(51)), Some(50));
        assert_eq!(key(cursor.seek(100)), None);
        assert_eq!(key(cursor.next()), None);
        assert_eq!(key(cursor.prev()), Some(99));
        assert_eq!(key(cursor.last()), Some(99));
        assert_eq!(key(cursor.next()), None);
        assert_eq!(key(cursor.first()), Some(0));
        let mut met = 1;
        while cursor.next().unwrap().is_some() {
            met += 1;
        }
        assert_eq!(met, 99);
    }
}
