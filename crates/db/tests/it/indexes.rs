//! Every write of a table keeps its indexes, and reads by them find what reads of the table find.

use crate::support::{in_memory, open};
use foreshore::limits::MAX_KEY;
use foreshore::{Db, Error, IndexDef, Isolation, RowLock, Table, TableDef, TxnOptions};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

/// Email, which may be empty, city and words.
pub(crate) type User = (&'static str, u32, &'static str);
pub(crate) type OwnedUser = (String, u32, String);

/// Of those that have an email.
pub(crate) const BY_EMAIL: IndexDef<u64, User, &str> = IndexDef::unique("by email", |_, user: &OwnedUser, keys| {
    if !user.0.is_empty() {
        keys.add(user.0.as_str());
    }
});
pub(crate) const BY_CITY: IndexDef<u64, User, u32> =
    IndexDef::new("by city", |_, user: &OwnedUser, keys| keys.add(user.1));
pub(crate) const BY_WORD: IndexDef<u64, User, &str> = IndexDef::new("by word", |_, user: &OwnedUser, keys| {
    user.2.split_whitespace().for_each(|word| keys.add(word));
});
pub(crate) const PLAIN: TableDef<u64, User> = TableDef::new("users");
pub(crate) const USERS: TableDef<u64, User> = PLAIN.with_indexes(&[&BY_EMAIL, &BY_CITY, &BY_WORD]);

pub(crate) type Users<'tx> = Table<'tx, u64, User>;

/// Checks each index against the table, both ways, and returns the rows.
pub(crate) fn check_indexes(users: &Users<'_>) -> Result<BTreeMap<u64, OwnedUser>, Error> {
    let rows: BTreeMap<_, _> = users.iter().collect::<Result<_, _>>()?;
    assert_eq!(users.by_index(BY_EMAIL)?.check()?, rows.values().filter(|user| !user.0.is_empty()).count() as u64);
    assert_eq!(users.by_index(BY_CITY)?.check()?, rows.len() as u64);
    users.by_index(BY_WORD)?.check()?;
    let mut by_city: Vec<_> = rows.iter().map(|(&id, user)| (user.1, id)).collect();
    by_city.sort_unstable();
    assert_eq!(users.by_index(BY_CITY)?.keys(..).collect::<Result<Vec<_>, _>>()?, by_city);
    for (&id, user) in rows.iter().filter(|(_, user)| !user.0.is_empty()) {
        assert_eq!(users.by_index(BY_EMAIL)?.get(user.0.as_str())?, Some((id, user.clone())));
    }
    Ok(rows)
}

/// Checks all indexes in a transaction of its own, and returns the rows.
pub(crate) fn check_all(db: &Db) -> BTreeMap<u64, OwnedUser> {
    db.run(|tx| check_indexes(&tx.open(USERS)?)).unwrap()
}

pub(crate) fn fill(db: &Db, def: TableDef<'static, u64, User>, count: u64) {
    db.run(|tx| {
        let users = tx.open(def)?;
        (0..count).try_for_each(|id| users.put(id, (&*format!("{id}@x"), id as u32 % 3, "a b")))
    })
    .unwrap();
}

fn is_taken<T>(result: Result<T, Error>, email: &str) -> bool {
    matches!(result, Err(Error::IndexKeyExists { index, key })
        if index.name.as_deref() == Some("users.by email") && *key == *email.as_bytes())
}

#[test]
fn every_method_that_writes_keeps_them() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let users = tx.open(USERS)?;
        let owned = |email: &str, city, words: &str| (email.to_owned(), city, words.to_owned());
        for id in 0..20 {
            users.insert_new(id, (&*format!("{id}@x"), id as u32 % 4, "some words"))?;
        }
        assert_eq!(check_indexes(&users)?.len(), 20);
        assert_eq!(users.insert(3, ("", 9, "other words other"))?, Some(owned("3@x", 3, "some words")));
        users.put(4, ("3@x", 4, ""))?;
        assert_eq!(check_indexes(&users)?[&4], owned("3@x", 4, ""));
        users.update_with(5, |_| None)?;
        users.update_with(6, |user| user.map(|user| (user.0, 100, user.2)))?;
        users.update_with(50, |_| Some(owned("50@x", 50, "new")))?;
        assert!(!check_indexes(&users)?.contains_key(&5));
        users.entry(51)?.or_insert(owned("51@x", 1, "x"))?;
        users.entry(51)?.and_modify(|user| user.0.push('x'))?.or_insert(owned("", 0, ""))?;
        users.entry(7)?.insert(("7@y", 7, "y"))?;
        users.entry(8)?.remove()?;
        assert_eq!(check_indexes(&users)?[&51], owned("51@xx", 1, "x"));
        assert_eq!(users.remove(9)?, Some(owned("9@x", 1, "some words")));
        assert_eq!(users.pop_first()?.unwrap().0, 0);
        assert_eq!(users.pop_last()?.unwrap().0, 51);
        assert_eq!(check_indexes(&users)?.len(), 20 + 2 - 5);
        assert_eq!(users.retain(|&id, _| id != 10)?, 1);
        assert_eq!(users.extract_if(..=12, |_, user| user.1 == 100).count(), 1);
        check_indexes(&users)?;
        assert_eq!(users.remove_range(..12)?, 6);
        assert!(check_indexes(&users)?.keys().eq(&[12, 13, 14, 15, 16, 17, 18, 19, 50]));
        users.range_locked(.., RowLock::update()).count();
        assert_eq!(users.clear()?, 9);
        assert!(check_indexes(&users)?.is_empty());
        let large = "a ".repeat(3000);
        users.put(60, ("60@x", 1, &*large))?;
        users.put(60, ("60@x", 1, &*format!("{large} b")))?;
        users.put(61, ("61@x", 1, &*large))?;
        assert_eq!(users.by_index(BY_WORD)?.get("b")?.unwrap().0, 60);
        check_indexes(&users)?;
        assert_eq!(users.remove_range(60..)?, 2);
        users.put(1, ("1@x", 1, "again"))?;
        check_indexes(&users)
    })
    .unwrap();
    check_all(&db);
    let report = db.check().unwrap();
    assert_eq!((report.tables, report.rows, report.indexes, report.entries), (1, 1, 3, 3));
}

/// The reader locks all entries. A change that leaves them as they are does not wait for it.
#[test]
fn a_change_that_keeps_the_index_keys_writes_no_entry() {
    let (db, _) = in_memory();
    fill(&db, USERS, 3);
    let reader = db.begin();
    let users = reader.open(USERS).unwrap();
    assert_eq!(users.by_index(BY_WORD).unwrap().keys(..).count(), 6);
    assert_eq!(users.by_index(BY_EMAIL).unwrap().keys(..).count(), 3);
    db.run(|tx| tx.open(USERS)?.put(1, ("1@x", 77, " b  a"))).unwrap();
    let writer = db.begin();
    let waited = writer.open(USERS).unwrap().put(2, ("2@x", 1, "c"));
    assert!(matches!(waited, Err(Error::OwnThreadLock { .. })), "{waited:?}");
}

#[test]
fn a_second_row_with_a_unique_key_is_refused_and_nothing_changes() {
    let (db, _) = in_memory();
    fill(&db, USERS, 4);
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let users = tx.open(USERS).unwrap();
        let before = check_indexes(&users).unwrap();
        assert!(is_taken(users.insert_new(10, ("1@x", 5, "w")), "1@x"));
        assert!(is_taken(users.put(2, ("1@x", 5, "w")), "1@x"));
        assert!(is_taken(users.insert(2, ("1@x", 5, "w")), "1@x"));
        assert!(is_taken(users.update_with(2, |_| Some(("3@x".into(), 5, "w".into()))), "3@x"));
        assert!(is_taken(users.update_with(11, |_| Some(("3@x".into(), 5, "w".into()))), "3@x"));
        assert!(is_taken(users.entry(12).unwrap().or_insert(("3@x".into(), 5, "w".into())), "3@x"));
        assert!(is_taken(users.entry(2).unwrap().and_modify(|user| user.0 = "0@x".into()), "0@x"));
        assert!(matches!(users.insert_new(2, ("2@y", 5, "w")), Err(Error::KeyExists { .. })));
        assert_eq!(check_indexes(&users).unwrap(), before);
        users.put(1, ("", 1, "")).unwrap();
        users.put(2, ("1@x", 1, "")).unwrap();
        assert_eq!(users.by_index(BY_EMAIL).unwrap().get("1@x").unwrap().unwrap().0, 2);
        check_indexes(&users).unwrap();
        tx.rollback().unwrap();
        assert_eq!(check_all(&db), before);
    }
    let message = db.run(|tx| tx.open(USERS)?.put(9, ("1@x", 0, ""))).unwrap_err().to_string();
    assert!(message.contains("\"users.by email\"") && message.contains("1@x"), "{message}");
}

#[test]
fn a_value_from_a_reader_has_its_entries() {
    const BY_FIRST: IndexDef<u64, &[u8], u8> =
        IndexDef::new("first", |_, bytes: &Vec<u8>, keys| bytes.iter().take(1).for_each(|byte| keys.add(byte)));
    const FILES: TableDef<u64, &[u8]> = TableDef::new("files");
    const INDEXED: TableDef<u64, &[u8]> = FILES.with_indexes(&[&BY_FIRST]);
    let (db, _) = in_memory();
    db.run(|tx| {
        let files = tx.open(INDEXED)?;
        for len in [0_u64, 10, 100_000] {
            let byte = (len % 7) as u8;
            assert_eq!(files.insert_reader(len, std::io::Read::take(std::io::repeat(byte), len), Some(len))?, len);
            assert_eq!(files.insert_reader(7, std::io::Read::take(std::io::repeat(byte), len), None)?, len);
            files.by_index(BY_FIRST)?.check()?;
        }
        let refused = files.insert_reader(7, &b"short"[..], Some(6));
        assert!(matches!(refused, Err(Error::ReaderFailed { .. })), "{refused:?}");
        assert_eq!(files.by_index(BY_FIRST)?.check()?, 3);
        let refused = tx.open(FILES)?.insert_reader(7, &b"plain"[..], None);
        assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn a_key_of_an_index_that_is_too_long_is_refused_and_nothing_changes() {
    let (db, _) = in_memory();
    fill(&db, USERS, 2);
    let tx = db.begin();
    let users = tx.open(USERS).unwrap();
    // The entry has the terminated word and the primary key.
    let (fits, long) = ("w".repeat(MAX_KEY - 10), "w".repeat(MAX_KEY - 9));
    let refused = users.put(1, ("new@x", 9, &*long));
    assert!(
        matches!(&refused, Err(Error::KeyTooLarge { table, len, .. })
            if *len == MAX_KEY + 1 && table.name.as_deref() == Some("users.by word")),
        "{refused:?}"
    );
    assert_eq!(check_indexes(&users).unwrap()[&1], ("1@x".into(), 1, "a b".into()));
    users.put(1, ("new@x", 9, &*fits)).unwrap();
    check_indexes(&users).unwrap();
    tx.commit().unwrap();
}

#[test]
fn bounds_prefixes_and_both_ends_are_those_of_the_index_keys() {
    const BY_BYTES: IndexDef<&str, &[u8], &[u8]> =
        IndexDef::new("bytes", |_, bytes: &Vec<u8>, keys| keys.add(&**bytes));
    const ONE: IndexDef<&str, &[u8], &[u8]> = IndexDef::unique("one", |_, bytes: &Vec<u8>, keys| keys.add(&**bytes));
    const BY_FIRST: IndexDef<&str, &[u8], u8> =
        IndexDef::new("first", |_, bytes: &Vec<u8>, keys| bytes.iter().take(1).for_each(|byte| keys.add(byte)));
    const THINGS: TableDef<&str, &[u8]> = TableDef::new("things").with_indexes(&[&BY_BYTES, &ONE, &BY_FIRST]);
    let byte = || prop_oneof![Just(0_u8), Just(1), Just(254), Just(255)];
    let bytes = || prop::collection::vec(byte(), 0..4);
    let bound =
        || prop_oneof![Just(Bound::Unbounded), bytes().prop_map(Bound::Included), bytes().prop_map(Bound::Excluded)];
    let config = ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() };
    let (db, _) = in_memory();
    proptest!(config, |(values in prop::collection::btree_set(bytes(), 0..12), from in bound(), to in bound(), prefix in bytes())| {
        let tx = db.begin();
        let things = tx.open(THINGS).unwrap();
        let mut expected: Vec<(Vec<u8>, String)> = Vec::new();
        for (n, value) in values.iter().enumerate() {
            let name = format!("{n}");
            things.put(&*name, &**value).unwrap();
            expected.push((value.clone(), name));
        }
        let range = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let is_in = |key: &Vec<u8>| std::ops::RangeBounds::<[u8]>::contains(&range, key.as_slice());
        let inside: Vec<_> = expected.iter().filter(|(key, _)| is_in(key)).cloned().collect();
        for (many, one) in [(false, true), (true, false)] {
            let index = things.by_index(if one { ONE } else { BY_BYTES }).unwrap();
            prop_assert_eq!(index.keys(range).collect::<Result<Vec<_>, _>>().unwrap(), &*inside, "many: {}", many);
            let mut back: Vec<_> = index.range(range).rev().map(|row| row.unwrap()).map(|(k, v)| (v, k)).collect();
            back.reverse();
            prop_assert_eq!(back, &*inside);
            let begun: Vec<_> = expected.iter().filter(|(key, _)| key.starts_with(&prefix)).map(|(_, k)| k.clone()).collect();
            let found: Vec<_> = index.prefix(&*prefix).map(|row| row.unwrap().0).collect();
            prop_assert_eq!(found, begun);
        }
        let first = things.by_index(BY_FIRST).unwrap();
        for byte in [0, 255] {
            let count = values.iter().filter(|value| value.first() == Some(&byte)).count();
            prop_assert_eq!(first.range(byte..=byte).count(), count);
            let above = values.iter().filter(|value| value.first().is_some_and(|&first| first > byte)).count();
            prop_assert_eq!(first.keys((Bound::Excluded(byte), Bound::Unbounded)).count(), above);
            prop_assert_eq!(first.contains(byte).unwrap(), count > 0);
        }
        tx.rollback().unwrap();
    });
}

#[test]
fn a_changed_function_without_a_new_version_is_found_by_a_write() {
    const CITY: IndexDef<u64, User, u32> = IndexDef::new("by city", |_, user: &OwnedUser, keys| keys.add(user.1 + 1));
    const CHANGED: TableDef<u64, User> = PLAIN.with_indexes(&[&BY_EMAIL, &CITY, &BY_WORD]);
    let (db, _) = in_memory();
    fill(&db, USERS, 3);
    let tx = db.begin();
    let users = tx.open(CHANGED).unwrap();
    assert!(matches!(users.put(1, ("1@y", 1, "z")), Ok(())), "the entry of the city stays as it is");
    for refused in [users.put(1, ("1@z", 7, "zz")), users.remove(2).map(drop)] {
        let Err(Error::IndexMismatch { index, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(index.name.as_deref(), Some("users.by city"));
    }
    assert!(matches!(users.by_index(CITY).unwrap().check(), Err(Error::IndexMismatch { .. })));
    drop(users);
    let users = tx.open(USERS).unwrap();
    assert_eq!(check_indexes(&users).unwrap()[&1], ("1@y".into(), 1, "z".into()));
    tx.commit().unwrap();
}

/// By the changed function, row 1 has the key of row 2.
#[test]
fn a_write_removes_no_unique_key_of_another_row() {
    const NEXT: IndexDef<u64, User, &str> =
        IndexDef::unique("by email", |id, _: &OwnedUser, keys| keys.add(format!("{}@x", id + 1).as_str()));
    const CHANGED: TableDef<u64, User> = PLAIN.with_indexes(&[&NEXT, &BY_CITY, &BY_WORD]);
    let (db, _) = in_memory();
    fill(&db, USERS, 4);
    let tx = db.begin();
    let users = tx.open(CHANGED).unwrap();
    let Err(Error::IndexMismatch { index, entry }) = users.remove(1) else { panic!("removed") };
    assert_eq!((index.name.as_deref(), &*entry), (Some("users.by email"), &b"2@x"[..]));
    drop(users);
    assert_eq!(check_indexes(&tx.open(USERS).unwrap()).unwrap().len(), 4);
    tx.commit().unwrap();
    assert_eq!(check_all(&db).len(), 4);
}

#[test]
fn a_function_that_panics_leaves_a_transaction_that_does_not_commit() {
    const BAD: IndexDef<u64, User, u32> = IndexDef::new("bad", |_, user: &OwnedUser, keys| {
        assert!(user.1 != 13, "told to panic");
        keys.add(user.1);
    });
    const CAREFUL: TableDef<u64, User> = PLAIN.with_indexes(&[&BY_EMAIL, &BAD]);
    const OTHERS: TableDef<u64, i64> = TableDef::new("others");
    fn panics<T>(work: impl FnOnce() -> T) {
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    }
    let (db, _) = in_memory();
    db.run(|tx| tx.open(OTHERS)?.put(1, 1)).unwrap();
    // While it is built, and in a write.
    db.run(|tx| tx.open(PLAIN)?.put(1, ("1@x", 13, ""))).unwrap();
    let tx = db.begin();
    panics(|| tx.open(CAREFUL).map(drop));
    assert!(matches!(tx.commit(), Err(Error::RolledBack)));
    assert_eq!(db.check().unwrap().indexes, 0);
    db.run(|tx| tx.open(PLAIN)?.put(1, ("1@x", 1, ""))).unwrap();
    for prepares in [false, true] {
        let tx = db.begin();
        tx.drop_table("others").unwrap();
        let users = tx.open(CAREFUL).unwrap();
        let savepoint = tx.savepoint().unwrap();
        panics(|| users.put(2, ("2@x", 13, "")));
        tx.rollback_to(&savepoint).unwrap();
        drop(users);
        let ended = if prepares { tx.prepare("it") } else { tx.commit().map(drop) };
        assert!(matches!(ended, Err(Error::RolledBack)), "{ended:?}");
        assert_eq!(db.run(|tx| tx.open_existing(OTHERS)?.get(1)).unwrap(), Some(1), "not dropped");
    }
    let rows = db.run(|tx| {
        let users = tx.open(CAREFUL)?;
        users.put(3, ("2@x", 3, ""))?;
        users.by_index(BAD)?.check()
    });
    assert_eq!(rows.unwrap(), 2);
}

#[test]
fn snapshots_see_the_index_as_they_see_the_table() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(PLAIN)?.put(1, ("1@x", 1, ""))).unwrap();
    let before = [db.read(), db.read()];
    fill(&db, USERS, 5);
    let there = db.read();
    db.run(|tx| {
        let users = tx.open(USERS)?;
        users.put(1, ("other@x", 8, "w"))?;
        users.remove(2)
    })
    .unwrap();
    db.run(|tx| tx.drop_index("users", "by word")).unwrap();
    let old = there.open(USERS).unwrap();
    assert_eq!(old.by_index(BY_EMAIL).unwrap().get("1@x").unwrap().unwrap().1.1, 1);
    assert_eq!(old.by_index(BY_EMAIL).unwrap().get("other@x").unwrap(), None);
    assert_eq!(old.by_index(BY_CITY).unwrap().range(..).count(), 5);
    assert_eq!(old.by_index(BY_WORD).unwrap().check().unwrap(), 10);
    let refused = before[0].open(PLAIN).unwrap().by_index(BY_EMAIL).map(drop);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "it was built since: {refused:?}");
    let refused = before[1].open(PLAIN).unwrap().by_index(BY_WORD).map(drop);
    assert!(matches!(refused, Err(Error::NoIndex { .. })), "{refused:?}");
    let now = db.read();
    let users = now.open(PLAIN).unwrap();
    assert_eq!(users.by_index(BY_CITY).unwrap().check().unwrap(), 4);
    assert!(matches!(users.by_index(BY_WORD), Err(Error::NoIndex { .. })));
}

#[test]
fn a_dropped_table_takes_its_indexes_with_it() {
    let (db, fs) = in_memory();
    fill(&db, USERS, 300);
    let reader = db.read();
    assert!(db.run(|tx| tx.drop_table("users")).unwrap());
    assert_eq!(reader.open(PLAIN).unwrap().by_index(BY_CITY).unwrap().check().unwrap(), 300);
    drop(reader);
    db.vacuum().unwrap();
    let report = db.check().unwrap();
    assert_eq!((report.tables, report.indexes, report.entries), (0, 0, 0));
    fill(&db, USERS, 10);
    let listed = db.read().tables().unwrap();
    let indexes: Vec<_> =
        listed[0].indexes.iter().map(|index| (&*index.name, index.is_unique, index.version)).collect();
    assert_eq!((listed.len(), &*listed[0].name), (1, "users"));
    assert_eq!(indexes, [("by city", false, 1), ("by email", true, 1), ("by word", false, 1)]);
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    assert_eq!(check_all(&db).len(), 10);
    db.run(|tx| tx.open(USERS)?.put(11, ("11@x", 1, "w"))).unwrap();
}

#[test]
fn prepared_changes_and_builds_survive_restarts() {
    for commits in [true, false] {
        let (db, fs) = in_memory();
        fill(&db, USERS, 4);
        db.run(|tx| tx.open(TableDef::<u64, User>::new("others"))?.put(1, ("o@x", 1, ""))).unwrap();
        const OTHERS: TableDef<u64, User> = TableDef::<u64, User>::new("others").with_indexes(&[&BY_EMAIL]);
        let tx = db.begin();
        let users = tx.open(USERS).unwrap();
        users.put(1, ("new@x", 9, "w")).unwrap();
        users.remove(2).unwrap();
        assert_eq!(tx.open(OTHERS).unwrap().by_index(BY_EMAIL).unwrap().check().unwrap(), 1);
        tx.drop_index("users", "by word").unwrap();
        drop(users);
        tx.prepare("it").unwrap();
        db.close(Duration::from_secs(10)).unwrap();
        let db = open(&fs).unwrap();
        let reader = db.read();
        assert_eq!(reader.open(PLAIN).unwrap().by_index(BY_EMAIL).unwrap().check().unwrap(), 4);
        if commits {
            db.commit_prepared("it").unwrap();
        } else {
            db.rollback_prepared("it").unwrap();
        }
        let plain = TableDef::<u64, User>::new("others");
        let written = db.run(|tx| tx.open(plain)?.put(2, ("2@x", 1, "")));
        assert_eq!(matches!(written, Err(Error::IndexUndeclared { .. })), commits, "{written:?}");
        db.run(|tx| tx.open(OTHERS)?.put(3, ("3@x", 1, ""))).unwrap();
        db.run(|tx| {
            let index = tx.open(OTHERS)?.by_index(BY_EMAIL)?;
            assert_eq!(index.check()?, if commits { 2 } else { 3 });
            // Without the words, which the transaction has dropped.
            let kept = PLAIN.with_indexes(&[&BY_EMAIL, &BY_CITY]);
            let refused = tx.open(kept)?.put(7, ("7@x", 7, ""));
            assert_eq!(matches!(refused, Err(Error::IndexUndeclared { .. })), !commits, "{refused:?}");
            Ok::<_, Error>(())
        })
        .unwrap();
        let rows = check_all(&db);
        assert_eq!(rows.contains_key(&2), !commits);
        assert_eq!(rows[&1].0 == "new@x", commits);
    }
}
