//! Format 1 is frozen: files that an earlier build has written open, and hold what they held.
//!
//! Each test makes its files and checks them, and then checks those in `fixtures/format-1`, which are never made again
//! once a release has written them. `FORESHORE_WRITE_FIXTURES=1` replaces them.

use crate::format_1_files::Files;
use crate::format_1_rows::{DROPPED, LARGE, NUMBERS, PLEDGES, apply, change, check, go_on, large};
use crate::support::{DIR, small};
use foreshore::{Db, Error, Lsn, Options, Restore, TableDef, Transaction, TxnOptions, Until};
use foreshore_io::{Fs, Mem};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

pub(crate) const LOG: &str = "/db/log";
pub(crate) const BACKUP: &str = "/backup";
const INCREMENT: &str = "/increment";
pub(crate) const ARCHIVE: &str = "/archive";
pub(crate) const TARGET: &str = "/restored";
/// The LSN of the last commit of stage 2, in decimal.
const POSITION: &str = "/position/stage-2";
const IN_DOUBT: &str = "in doubt";
const MADE: TableDef<u64, u64> = TableDef::new("made");
pub(crate) const WAIT: Duration = Duration::from_secs(10);

pub(crate) fn on(fs: &Arc<dyn Fs>) -> Options {
    small().lab(|lab| lab.fs = Some(Arc::clone(fs)))
}

/// Options of a writer whose files change only in its calls.
pub(crate) fn quiet(fs: &Arc<dyn Fs>) -> Options {
    on(fs).lab(|lab| lab.background = false)
}

pub(crate) fn memory() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

/// A database that was closed after stage 1.
fn closed() -> Files {
    let fs = memory();
    let db = quiet(&fs).open(DIR).unwrap();
    apply(&db, 0);
    db.checkpoint().unwrap();
    churn(&db).unwrap();
    apply(&db, 1);
    db.close(WAIT).unwrap();
    Files::of(&fs, &[DIR, LOG])
}

/// Leaves nothing but log, and pages that have moved: leaves grow thin and are merged, a table is dropped, pages of
/// large values become free.
fn churn(db: &Db) -> Result<(), Error> {
    const CHURNED: TableDef<&[u8], &[u8]> = TableDef::new("churned");
    let key = |n: u8| [&[0; 150][..], &[n]].concat();
    db.run(|tx| {
        let churned = tx.open(CHURNED)?;
        (0..160).try_for_each(|n| churned.put(&key(n)[..], &[0; 300][..]))?;
        (200..210).try_for_each(|n| churned.put(&key(n)[..], &large(20_000)[..]))
    })?;
    db.run(|tx| tx.open(CHURNED)?.remove_range(&key(10)[..]..&key(150)[..]).map(drop))?;
    db.run(|tx| tx.open(CHURNED)?.remove_range(&key(200)[..]..&key(205)[..]).map(drop))?;
    (0..1000).for_each(|_| db.step());
    db.compact()?;
    assert!(db.run(|tx| tx.drop_table("churned"))?);
    (0..200).for_each(|_| db.step());
    db.vacuum().map(drop)
}

/// A full backup after stage 0, an increment of stage 1, and the archive of all log up to stage 3.
fn backed_up() -> Files {
    let fs = memory();
    let db = quiet(&fs).archive(ARCHIVE).open(DIR).unwrap();
    apply(&db, 0);
    db.backup(BACKUP).unwrap();
    apply(&db, 1);
    db.backup_since(INCREMENT, BACKUP).unwrap();
    let (_, ticket) = db.run_pipelined(|tx| change(tx, 2)).unwrap();
    ticket.wait().unwrap();
    db.archive().unwrap();
    apply(&db, 3);
    db.archive().unwrap();
    let dirs = [BACKUP, "/backup/log", INCREMENT, "/increment/log", ARCHIVE];
    let mut files = Files::of(&fs, &dirs);
    files.0.insert(POSITION.into(), ticket.record_lsn().0.to_string().into_bytes());
    files
}

/// Every kind of change and of lock that a prepared transaction has.
fn pledge(tx: &Transaction) -> Result<(), Error> {
    let pledges = tx.open(PLEDGES)?;
    pledges.put(1, "held")?;
    pledges.remove(2)?;
    pledges.put(20, &*"a longer text ".repeat(300))?;
    pledges.get_for_update(3)?;
    pledges.get(30)?;
    assert_eq!(pledges.range(5..7).count(), 2);
    let savepoint = tx.savepoint()?;
    pledges.put(4, "undone")?;
    pledges.put(21, "undone")?;
    tx.rollback_to(&savepoint)?;
    Ok(())
}

/// What the transaction in doubt has locked, and what it has done once it is committed.
fn check_pledges(db: &Db, is_committed: bool) {
    let reader = db.read();
    let mut expected: Vec<_> = (0..10).map(|n| (n, "free".to_owned())).collect();
    if is_committed {
        expected.remove(2);
        expected[1].1 = "held".into();
        expected.push((20, "a longer text ".repeat(300)));
    }
    let found: Vec<_> = reader.open(PLEDGES).unwrap().iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(found, expected);
    assert!(matches!(reader.open(DROPPED), Err(Error::NoTable { .. })));
}

/// A database that was not closed after stage 2. It needs redo, has a transaction in doubt, and a loser.
fn crashed() -> Files {
    let fs = memory();
    let db = quiet(&fs).open(DIR).unwrap();
    apply(&db, 0);
    db.checkpoint().unwrap();
    apply(&db, 1);
    apply(&db, 2);
    // Its rows stay for the snapshot.
    let snapshot = db.read();
    assert!(snapshot.open(DROPPED).unwrap().contains(1).unwrap());
    assert!(db.run(|tx| tx.drop_table("dropped")).unwrap());
    let loser = db.begin_with(TxnOptions::new().label("loser"));
    lose(&loser).unwrap();
    let prepared = db.begin_with(TxnOptions::new().label("pledger"));
    pledge(&prepared).unwrap();
    prepared.prepare(IN_DOUBT).unwrap();
    db.sync().unwrap();
    Files::of(&fs, &[DIR, LOG])
}

/// A database with a transaction in doubt that has created a table and dropped another one.
fn tables_in_doubt() -> Files {
    let fs = memory();
    let db = quiet(&fs).open(DIR).unwrap();
    db.run(|tx| tx.open(DROPPED)?.put(1, 2)).unwrap();
    let prepared = db.begin();
    prepared.open(MADE).unwrap().put(3, 4).unwrap();
    assert!(prepared.drop_table("dropped").unwrap());
    prepared.prepare(IN_DOUBT).unwrap();
    Files::of(&fs, &[DIR, LOG])
}

/// Changes of each kind, part of them undone.
fn lose(tx: &Transaction) -> Result<(), Error> {
    let numbers = tx.open(NUMBERS)?;
    (2000..2100).try_for_each(|n| numbers.put(n, 1))?;
    (300..310).try_for_each(|n| numbers.put(n, 7))?;
    let savepoint = tx.savepoint()?;
    (310..320).try_for_each(|n| numbers.remove(n).map(drop))?;
    tx.rollback_to(&savepoint)?;
    numbers.remove_range(320..350)?;
    numbers.load((5000..5210).map(|n| (n, 1)))?;
    tx.open(LARGE)?.put(1_000_000, &large(3000)[..])
}

/// The files that this build makes, and those of the fixture.
pub(crate) type Both = LazyLock<[Files; 2]>;
pub(crate) static CLOSED: Both = LazyLock::new(|| both("closed", closed()));
pub(crate) static BACKUPS: Both = LazyLock::new(|| both("backups", backed_up()));
pub(crate) static CRASHED: Both = LazyLock::new(|| both("crashed", crashed()));

pub(crate) static TABLES_IN_DOUBT: Both = LazyLock::new(|| both("tables-in-doubt", tables_in_doubt()));

pub(crate) fn both(name: &str, made: Files) -> [Files; 2] {
    let fixture = Files::fixture(name, &made);
    [made, fixture]
}

/// Writes to the database after so many stages, and reads it after a close.
fn write_and_open_again(fs: &Arc<dyn Fs>, db: &Db, stage: u64) {
    go_on(db, stage);
    db.close(WAIT).unwrap();
    let db = on(fs).open(DIR).unwrap();
    check(&db, stage + 1);
    db.close(WAIT).unwrap();
}

#[test]
fn a_closed_database_is_read_and_written() {
    for files in &*CLOSED {
        let fs = files.restore();
        let db = on(&fs).open(DIR).unwrap();
        check(&db, 1);
        write_and_open_again(&fs, &db, 1);
    }
}

#[test]
fn a_closed_database_is_read_without_a_byte_written() {
    for files in &*CLOSED {
        let fs = files.restore();
        let db = on(&fs).open_read_only(DIR).unwrap();
        check(&db, 1);
        db.close(WAIT).unwrap();
        assert!(files.again(&fs) == *files, "a file was written");
    }
}

#[test]
fn a_crashed_database_is_recovered_with_its_transaction_in_doubt() {
    for files in &*CRASHED {
        for is_committed in [false, true] {
            let fs = files.restore();
            assert!(matches!(on(&fs).open_read_only(DIR), Err(Error::NotClosed { .. })));
            assert!(files.again(&fs) == *files, "a file was written");
            let db = on(&fs).open(DIR).unwrap();
            check(&db, 2);
            check_pledges(&db, false);
            assert!(db.stats().recovery.losers >= 1);
            let db = db.reopen().unwrap();
            let listed = db.prepared().unwrap();
            assert_eq!(listed.iter().map(|txn| (&*txn.name, &*txn.label)).collect::<Vec<_>>(), [(IN_DOUBT, "pledger")]);
            let options = || TxnOptions::new().lock_timeout(Duration::ZERO);
            for n in [1, 2, 3, 4, 5, 20, 21, 30] {
                let refused = db.begin_with(options()).open(PLEDGES).unwrap().put(n, "no");
                assert!(matches!(refused, Err(Error::LockTimeout { .. })), "row {n}: {refused:?}");
            }
            db.begin_with(options()).open(PLEDGES).unwrap().put(9, "not locked").unwrap();
            match is_committed {
                true => drop(db.commit_prepared(IN_DOUBT).unwrap()),
                false => db.rollback_prepared(IN_DOUBT).unwrap(),
            }
            check_pledges(&db, is_committed);
            write_and_open_again(&fs, &db, 2);
        }
    }
}

#[test]
fn tables_of_a_transaction_in_doubt_are_made_and_dropped_by_its_commit() {
    for files in &*TABLES_IN_DOUBT {
        for is_committed in [false, true] {
            let fs = files.restore();
            let db = on(&fs).open(DIR).unwrap();
            assert_eq!(db.prepared().unwrap().len(), 1);
            match is_committed {
                true => drop(db.commit_prepared(IN_DOUBT).unwrap()),
                false => db.rollback_prepared(IN_DOUBT).unwrap(),
            }
            let db = db.reopen().unwrap();
            db.check().unwrap();
            let (reader, held) = (db.read(), if is_committed { (MADE, 3, 4) } else { (DROPPED, 1, 2) });
            assert_eq!(reader.tables().unwrap().len(), 1);
            assert_eq!(reader.open(held.0).unwrap().get(held.1).unwrap(), Some(held.2));
        }
    }
}

fn restored(files: &Files, restore: impl FnOnce(Restore) -> Restore, stage: u64) {
    let fs = files.restore();
    let full = foreshore::restore(BACKUP, TARGET).lab(Arc::clone(&fs), 64 << 10);
    restore(full).run().unwrap();
    let db = on(&fs).open(TARGET).unwrap();
    check(&db, stage);
    go_on(&db, stage);
    db.close(WAIT).unwrap();
    check(&on(&fs).open(TARGET).unwrap(), stage + 1);
}

#[test]
fn backups_and_archive_restore_to_the_end_and_to_a_position() {
    for files in &*BACKUPS {
        let position = Lsn(std::str::from_utf8(&files.0[POSITION]).unwrap().parse().unwrap());
        assert!(files.ending(".arc").len() > 1);
        restored(files, |full| full, 0);
        restored(files, |full| full.increment(INCREMENT), 1);
        restored(files, |full| full.increment(INCREMENT).archive(ARCHIVE).until(Until::Lsn(position)), 2);
        restored(files, |full| full.increment(INCREMENT).archive(ARCHIVE), 3);
        restored(files, |full| full.archive(ARCHIVE), 3);
    }
}
