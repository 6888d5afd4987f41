//! A merge operator is applied to a row under its lock, so merges of several transactions lose nothing.

use crate::support::{NUMBERS, in_memory, open};
use foreshore::{Error, IndexDef, Isolation, MergeDef, TableDef, TxnOptions};
use std::thread;
use std::time::Duration;

const APPEND: MergeDef<&str> = MergeDef::new(|old, word: &String| match old {
    Some(text) => format!("{text} {word}"),
    None => word.clone(),
});
const BY_LENGTH: IndexDef<u64, &str, u64> =
    IndexDef::new("by length", |_, text: &String, keys| keys.add(text.len() as u64));
const TEXTS: TableDef<u64, &str> = TableDef::new("texts").with_indexes(&[&BY_LENGTH]).with_merge(&APPEND);
const ADD: MergeDef<i64> = MergeDef::new(|old, more| old.unwrap_or(0) + more);
const SUMS: TableDef<u64, i64> = NUMBERS.with_merge(&ADD);

#[test]
fn merges_change_rows_and_indexes_and_are_rolled_back() {
    let (db, fs) = in_memory();
    let tx = db.begin();
    let texts = tx.open(TEXTS).unwrap();
    assert_eq!(texts.merge(1, "red".to_owned()).unwrap(), "red");
    let savepoint = tx.savepoint().unwrap();
    assert_eq!(texts.merge(1, "green".to_owned()).unwrap(), "red green");
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(texts.merge(1, "blue".to_owned()).unwrap(), "red blue");
    tx.commit().unwrap();
    let tx = db.begin();
    tx.open(TEXTS).unwrap().merge(1, "lost".to_owned()).unwrap();
    tx.rollback().unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    let reader = db.read();
    let texts = reader.open(TEXTS).unwrap();
    assert_eq!(texts.get(1).unwrap().as_deref(), Some("red blue"));
    let found = texts.by_index(BY_LENGTH).unwrap().range(..).map(|row| row.unwrap().0).collect::<Vec<_>>();
    assert_eq!(found, [1]);
}

#[test]
fn merges_of_several_threads_lose_nothing_at_any_level() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let before = db.run(|tx| Ok::<_, Error>(tx.open(NUMBERS)?.get(1)?.unwrap_or(0))).unwrap();
        let add = || {
            for _ in 0..200 {
                db.run_with(TxnOptions::new().isolation(isolation), |tx| tx.open(SUMS)?.merge(1, 1)).unwrap();
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(add);
            }
        });
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(1)).unwrap(), Some(before + 800), "{isolation:?}");
    }
}

#[test]
fn a_table_without_an_operator_refuses_and_stays_as_it_is() {
    let (db, _) = in_memory();
    let tx = db.begin();
    let refused = tx.open(NUMBERS).unwrap().merge(1, 1);
    assert!(matches!(refused, Err(Error::InvalidOption { name: "table", .. })), "{refused:?}");
    assert_eq!(tx.open(SUMS).unwrap().merge(1, 5).unwrap(), 5);
    tx.commit().unwrap();
}
