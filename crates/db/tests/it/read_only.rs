//! A database that is open for reading only: every read works, every write is refused, and no byte of a file changes.

use crate::support::{DIR, NUMBERS, Snapshot, TempDir, fill, in_memory, small};
use foreshore::{Db, Error, Isolation, Options, RowLock, TableDef, TxnOptions};
use foreshore_io::Fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const NAMES: TableDef<u64, &[u8]> = TableDef::new("names");

fn over(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

/// The files under `dir`, with their bytes and the time of their last change.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>, SystemTime)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let changed = std::fs::metadata(&path).unwrap().modified().unwrap();
            found.push((path.clone(), std::fs::read(&path).unwrap(), changed));
        }
    }
    found.sort();
    found
}

/// Checks that every operation that would change something is refused, and that the transaction goes on.
fn check_refusals(db: &Db) {
    for isolation in [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted] {
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let numbers = tx.open(NUMBERS).unwrap();
        let is_refused = |done: Result<(), Error>| assert!(matches!(done, Err(Error::ReadOnly)), "{done:?}");
        is_refused(numbers.put(1, 5));
        is_refused(numbers.insert(1, 5).map(drop));
        is_refused(numbers.insert_new(9_999_999, 5));
        is_refused(numbers.remove(1).map(drop));
        is_refused(numbers.update_with(1, |old| old.map(|old| old + 1)).map(drop));
        is_refused(numbers.get_for_update(1).map(drop));
        is_refused(numbers.range_locked(.., RowLock::update()).next().unwrap().map(drop));
        is_refused(numbers.pop_first().map(drop));
        is_refused(numbers.remove_range(..).map(drop));
        is_refused(tx.open(TableDef::<u64, u64>::new("new")).map(drop));
        is_refused(tx.drop_table("numbers").map(drop));
        assert_eq!(numbers.get(1).unwrap(), Some(1));
        // An absent row needs no change, and no error.
        assert_eq!(numbers.remove(9_999_999).unwrap_or_default(), None);
        tx.commit().unwrap();
    }
    assert!(matches!(db.vacuum(), Err(Error::ReadOnly)));
    assert!(matches!(db.compact(), Err(Error::ReadOnly)));
    let tx = db.begin();
    assert_eq!(tx.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    drop(tx);
}

#[test]
fn everything_is_read_nothing_is_written_and_openers_share() {
    let dir = TempDir::new("read-only");
    let db = small().open(dir.path()).unwrap();
    fill(&db, 5000);
    db.run(|tx| tx.open(NAMES)?.put(1, &vec![7; 100_000][..])).unwrap();
    db.run(|tx| (0..2000).try_for_each(|n| tx.open(NUMBERS)?.remove(2 * n + 1_000).map(drop))).unwrap();
    assert!(matches!(small().open_read_only(dir.path()), Err(Error::Locked { .. })));
    db.close(Duration::from_secs(10)).unwrap();

    let before = files(dir.path());
    let (db, other) = (small().open_read_only(dir.path()).unwrap(), Db::open_read_only(dir.path()).unwrap());
    assert!(matches!(small().open(dir.path()), Err(Error::Locked { .. })));
    for db in [&db, &other] {
        let reader = db.read();
        let numbers = reader.open(NUMBERS).unwrap();
        assert_eq!(numbers.len().unwrap(), 3000);
        assert_eq!(
            numbers.range(990..1010).map(|row| row.unwrap().0).collect::<Vec<_>>(),
            [990, 991, 992, 993, 994, 995, 996, 997, 998, 999, 1001, 1003, 1005, 1007, 1009]
        );
        assert_eq!(reader.open(NAMES).unwrap().get(1).unwrap(), Some(vec![7; 100_000]));
        assert_eq!(reader.tables().unwrap().len(), 2);
        assert_eq!(db.run(|tx| tx.open(NUMBERS)?.get(2)).unwrap(), Some(2));
        assert_eq!(db.check().unwrap().rows, 3001);
        db.checkpoint().unwrap();
        check_refusals(db);
    }
    db.close(Duration::from_secs(10)).unwrap();
    drop(other);
    assert!(files(dir.path()) == before, "no file has changed");

    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.run(|tx| tx.open(NUMBERS)?.insert(1, 5)).unwrap(), Some(1));
}

#[test]
fn a_database_that_needs_recovery_is_refused_and_stays_as_it_is() {
    let (db, fs) = in_memory();
    fill(&db, 1000);
    db.checkpoint().unwrap();
    let crashed = Snapshot::of(&fs);
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().put(1, 9).unwrap();
    tx.prepare("held").unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    for files in [crashed, Snapshot::of(&fs)] {
        let fs = files.restore();
        fs.create(&Path::new(DIR).join("LOCK")).unwrap();
        let refused = over(&fs).open_read_only(DIR);
        assert!(matches!(&refused, Err(Error::NotClosed { path }) if path == Path::new(DIR)), "{refused:?}");
        assert_eq!(Snapshot::of(&fs), files);
        // A writer recovers it.
        let db = over(&fs).open(DIR).unwrap();
        let _ = db.rollback_prepared("held");
        db.close(Duration::from_secs(10)).unwrap();
        let db = over(&fs).open_read_only(DIR).unwrap();
        assert_eq!(db.read().open(NUMBERS).unwrap().len().unwrap(), 1000);
    }
}

#[test]
fn what_is_no_database_is_refused_and_stays_as_it_is() {
    let dir = TempDir::new("read-only-none");
    assert!(matches!(small().open_read_only(dir.path()), Err(Error::NoDatabase { .. })));
    assert!(matches!(small().open_read_only(dir.path().join("absent")), Err(Error::NoDatabase { .. })));
    std::fs::write(dir.path().join("notes"), "text").unwrap();
    assert!(matches!(small().open_read_only(dir.path()), Err(Error::NoDatabase { .. })));
    assert!(matches!(small().open_read_only(dir.path().join("notes")), Err(Error::Foreign { .. })));
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["notes"]);
}

#[test]
fn a_reopen_shows_what_others_have_written_meanwhile() {
    let (db, fs) = in_memory();
    fill(&db, 1000);
    db.close(Duration::from_secs(10)).unwrap();
    let reader = over(&fs).open_read_only(DIR).unwrap();
    assert_eq!(reader.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    reader.close(Duration::from_secs(10)).unwrap();
    let writer = over(&fs).open(DIR).unwrap();
    writer.run(|tx| tx.open(NUMBERS)?.put(1, 50)).unwrap();
    assert!(matches!(reader.reopen(), Err(Error::Locked { .. })));
    writer.close(Duration::from_secs(10)).unwrap();
    let reader = reader.reopen().unwrap();
    assert_eq!(reader.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(50));
    assert!(matches!(reader.run(|tx| tx.open(NUMBERS)?.put(1, 50)), Err(Error::ReadOnly)));
}
