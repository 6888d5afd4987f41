//! Tables opened without their types: rows go in and out as encoded bytes, in key order.

use crate::support::{DIR, NUMBERS, TEXTS, TempDir, closed_database, fill, in_memory, open, small};
use foreshore::{Error, Key, TableDef, Value};
use foreshore_io::{Fs, Mem};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn key(n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    u64::encode_key(&n, &mut bytes);
    bytes
}

fn value(n: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    i64::encode(&n, &mut bytes);
    bytes
}

#[test]
fn rows_are_read_and_written_encoded_in_key_order() {
    let (db, fs) = in_memory();
    fill(&db, 300);
    db.run(|tx| {
        let raw = tx.open_raw("numbers")?;
        assert_eq!(raw.get(&*key(7))?, Some(value(7)));
        assert_eq!(raw.remove(&*key(8))?, Some(value(8)));
        raw.put(&*key(1 << 40), &*value(-1))
    })
    .unwrap();
    let before = db.read();
    let rows: Vec<_> = before.open_raw("numbers").unwrap().iter().map(Result::unwrap).collect();
    let expected: Vec<_> = (0..300).filter(|&n| n != 8).map(|n| (key(n), value(n as i64))).collect();
    assert_eq!((&rows[..299], &rows[299]), (&expected[..], &(key(1 << 40), value(-1))));
    let keys = before.open_raw("numbers").unwrap().range(&*key(5)..&*key(10)).map(|row| row.unwrap().0);
    assert!(keys.eq([5, 6, 7, 9].map(key)));
    drop(before);
    // A program with the types finds what was written, now and after a restart.
    assert_eq!(db.read().open(NUMBERS).unwrap().last().unwrap(), Some((1 << 40, -1)));
    db.close(Duration::ZERO).unwrap();
    assert_eq!(open(&fs).unwrap().read().open(NUMBERS).unwrap().len().unwrap(), 300);
}

#[test]
fn a_table_without_its_types_is_opened_and_not_created() {
    let (db, _) = in_memory();
    assert!(matches!(db.begin().open_raw("numbers"), Err(Error::NoTable { .. })));
    assert!(matches!(db.read().open_raw("numbers"), Err(Error::NoTable { .. })));
    assert!(matches!(db.begin().open_raw(""), Err(Error::TableName { .. })));
    assert!(db.read().tables().unwrap().is_empty());
    // An open that states types is checked against those of the table, also after an open that states none.
    fill(&db, 3);
    let tx = db.begin();
    tx.open_raw("numbers").unwrap();
    assert!(matches!(tx.open(TableDef::<&[u8], &[u8]>::new("numbers")), Err(Error::TableTypes { .. })));
    tx.open(NUMBERS).unwrap();
}

#[test]
fn a_table_is_created_with_names_of_types() {
    let (db, fs) = in_memory();
    db.run(|tx| {
        tx.create_raw("texts", "str", "str")?.put(&b"a"[..], &b"one"[..])?;
        tx.create_raw("shapes", "shape.v2", "(id,option<shape>)").map(drop)
    })
    .unwrap();
    let check = |db: &foreshore::Db| {
        assert_eq!(db.read().open(TEXTS).unwrap().get("a").unwrap().as_deref(), Some("one"));
        let listed = db.read().tables().unwrap();
        assert_eq!((&*listed[0].key_type, &*listed[0].value_type), ("shape.v2", "(id,option<shape>)"));
    };
    check(&db);
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    check(&db);
    let tx = db.begin();
    assert_eq!(tx.create_raw("texts", "str", "str").unwrap().len().unwrap(), 1, "one that exists is opened");
    assert!(matches!(tx.create_raw("texts", "str", "bytes"), Err(Error::TableTypes { .. })));
    tx.open_raw("texts").unwrap();
}

#[test]
fn names_of_types_over_the_limit_are_refused_and_nothing_changes() {
    let (db, _) = in_memory();
    let tx = db.begin();
    let long = "x".repeat(1000);
    tx.create_raw("fits", &long, &long[..984]).unwrap();
    for len in [985, 1000] {
        assert!(matches!(tx.create_raw("long", &long, &long[..len]), Err(Error::InvalidOption { .. })));
    }
    let huge = "x".repeat(100_000);
    assert!(matches!(tx.create_raw("long", &huge, "u8"), Err(Error::InvalidOption { .. })));
    tx.commit().unwrap();
    assert_eq!(db.read().tables().unwrap().len(), 1);
}

#[test]
fn a_value_that_does_not_decode_to_the_stated_type_is_undecodable() {
    let (db, _) = in_memory();
    fill(&db, 1);
    db.run(|tx| tx.open_raw("numbers")?.put(&*key(0), &b"short"[..])).unwrap();
    assert!(matches!(db.read().open(NUMBERS).unwrap().get(0), Err(Error::Undecodable { .. })));
}

/// A directory without a database gets neither a lock file nor the file of a trial of direct I/O.
#[test]
fn a_directory_without_a_database_is_not_opened_and_stays_as_it_is() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let existing = |fs: &Arc<dyn Fs>| small().lab(|lab| lab.fs = Some(Arc::clone(fs))).open_existing(DIR);
    assert!(matches!(existing(&fs), Err(Error::NoDatabase { path }) if path == Path::new(DIR)));
    assert!(fs.kind(Path::new(DIR)).unwrap().is_none());
    drop(small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap());
    existing(&fs).unwrap();

    let dir = TempDir::new("open-existing");
    assert!(matches!(small().open_existing(dir.path()), Err(Error::NoDatabase { .. })));
    assert!(matches!(small().open_existing(dir.path().join("absent")), Err(Error::NoDatabase { .. })));
    std::fs::write(dir.path().join("notes"), "text").unwrap();
    assert!(matches!(small().open_existing(dir.path()), Err(Error::NoDatabase { .. })));
    assert!(matches!(small().open_existing(dir.path().join("notes")), Err(Error::Foreign { .. })));
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["notes"]);
}

#[test]
fn a_creation_that_has_not_finished_is_no_database() {
    // A crash at the start of a creation leaves `UNFINISHED` alone. It holds the first superblock, as `data` does.
    let mut files = closed_database();
    files.0.retain(|(name, _)| name == "data");
    files.0[0].0 = "UNFINISHED".into();
    let fs = files.restore();
    let existing = small().lab(|lab| lab.fs = Some(Arc::clone(&fs))).open_existing(DIR);
    assert!(matches!(existing, Err(Error::NoDatabase { .. })), "{existing:?}");
    assert!(fs.kind(&Path::new(DIR).join("LOCK")).unwrap().is_none(), "nothing was written");
}
