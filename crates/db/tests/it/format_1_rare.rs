//! Format 1: a damaged database, and a log with records that the other fixtures lack. It has a quarantined page, a
//! rebuilt map, and changes that a rollback has skipped. Rows went to the leaf before theirs, and a tree has lost
//! levels.

use crate::format_1::{ARCHIVE, BACKUP, Both, LOG, TARGET, WAIT, both, memory, on, quiet};
use crate::format_1_files::Files;
use crate::support::DIR;
use foreshore::limits::{BLOCK, PAGE_SIZE};
use foreshore::{Db, Error, TableDef};
use std::sync::{Arc, LazyLock};

const KEPT: TableDef<u64, u64> = TableDef::new("kept");
/// Long keys, so that few rows make several levels.
const SHRUNK: TableDef<&[u8], u64> = TableDef::new("shrunk");
const HURT: TableDef<u64, &[u8]> = TableDef::new("hurt");
const MAP: usize = 2;
const UNCOMMITTED: [u8; 100] = [9; 100];

pub(crate) static DAMAGED: Both = LazyLock::new(|| both("damaged", damaged()));

/// A database whose transaction in progress is lost, and of which a leaf with a change of it and the map are damaged
/// then. It was opened again after that, and crashed. There is a backup, and the archive of all log since.
fn damaged() -> Files {
    let fs = memory();
    let db = quiet(&fs).archive(ARCHIVE).open(DIR).unwrap();
    let key = |n: u8| [&[0; 600][..], &[n]].concat();
    db.run(|tx| (0..200).try_for_each(|n| tx.open(KEPT)?.put(n, n * n))).unwrap();
    db.run(|tx| (0..150).try_for_each(|n| tx.open(SHRUNK)?.put(&key(n)[..], u64::from(n)))).unwrap();
    db.run(|tx| (0..100).try_for_each(|n| tx.open(HURT)?.put(n, &[1; 100][..]))).unwrap();
    db.backup(BACKUP).unwrap();
    for of in [2, 3] {
        let rest = (10..150).filter(|n| n % of != 0);
        db.run(|tx| rest.clone().try_for_each(|n| tx.open(SHRUNK)?.remove(&key(n)[..]).map(drop))).unwrap();
        (0..300).for_each(|_| db.step());
        db.compact().unwrap();
    }
    db.run(|tx| tx.open(SHRUNK)?.remove_range(&key(2)[..]..).map(drop)).unwrap();
    (0..300).for_each(|_| db.step());
    db.compact().unwrap();
    let loser = db.begin();
    loser.open(HURT).unwrap().put(5, &UNCOMMITTED[..]).unwrap();
    for _ in 0..2 {
        (0..300).for_each(|_| db.step());
        db.checkpoint().unwrap();
    }
    db.archive().unwrap();
    let dirs = [DIR, LOG, BACKUP, "/backup/log", ARCHIVE];
    let mut files = Files::of(&fs, &dirs);
    let data = files.0.get_mut("/db/data").unwrap();
    let is_hurt = |page: &[u8]| page.windows(UNCOMMITTED.len()).any(|bytes| bytes == UNCOMMITTED);
    let leaf = data.chunks(PAGE_SIZE).position(is_hurt).expect("the leaf was written");
    [leaf, MAP].iter().for_each(|page| data[page * PAGE_SIZE + PAGE_SIZE / 2] ^= 1);
    files.0.get_mut("/db/dw").unwrap()[BLOCK..].fill(0);
    let fs = files.restore();
    let db = quiet(&fs).archive(ARCHIVE).open(DIR).unwrap();
    // The damaged pages are overwritten.
    for _ in 0..2 {
        (0..300).for_each(|_| db.step());
        db.checkpoint().unwrap();
    }
    db.run(|tx| tx.open(KEPT)?.put(200, 200 * 200)).unwrap();
    db.archive().unwrap();
    Files::of(&fs, &dirs)
}

/// Checks the rows of the sound tables.
fn check(db: &Db) {
    let reader = db.read();
    let rows: Vec<_> = reader.open(KEPT).unwrap().iter().map(Result::unwrap).collect();
    assert_eq!(rows, (0..=200).map(|n| (n, n * n)).collect::<Vec<_>>());
    let rows: Vec<_> = reader.open(SHRUNK).unwrap().iter().map(|row| row.unwrap().1).collect();
    assert_eq!(rows, [0, 1]);
}

/// Checks that the rows of the damaged leaf are refused, and the others are there as they were committed.
fn check_hurt(db: &Db) {
    let get = |n| db.read().open(HURT).unwrap().get(n);
    assert!(matches!(get(5), Err(Error::Corrupted { .. })));
    let values: Vec<_> = (0..100).filter_map(|n| get(n).ok()).map(Option::unwrap).collect();
    assert!((10..100).contains(&values.len()) && values.iter().all(|value| *value == [1; 100]), "{values:?}");
}

#[test]
fn a_damaged_database_opens_without_its_quarantined_pages() {
    for files in &*DAMAGED {
        let fs = files.restore();
        let db = on(&fs).open(DIR).unwrap();
        check(&db);
        check_hurt(&db);
        assert_eq!(db.stats().damage.pages, 1, "{:?}", db.stats().damage);
        db.run(|tx| tx.open(KEPT)?.put(201, 1)).unwrap();
        db.run(|tx| tx.open(KEPT)?.remove(201).map(drop)).unwrap();
        db.close(WAIT).unwrap();
        let db = on(&fs).open(DIR).unwrap();
        check(&db);
        check_hurt(&db);
    }
}

#[test]
fn the_archive_of_a_damaged_database_is_restored() {
    for files in &*DAMAGED {
        let fs = files.restore();
        let restore = foreshore::restore(BACKUP, TARGET).lab(Arc::clone(&fs), 64 << 10);
        restore.archive(ARCHIVE).run().unwrap();
        let db = on(&fs).open(TARGET).unwrap();
        check(&db);
        check_hurt(&db);
    }
}
