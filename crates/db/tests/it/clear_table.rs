//! A table is cleared at once: by new roots, in the transaction, while snapshots keep the rows.

use crate::support::{DIR, NUMBERS, TEXTS, fill, in_memory, numbers};
use foreshore::{Db, Error, IndexDef, Isolation, Options, ReadOptions, Table, TableDef, Transaction, TxnOptions};
use foreshore_io::{Fs, Mem};
use foreshore_sync::pause;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const BY_VALUE: IndexDef<u64, i64, i64> = IndexDef::new("by value", |_, value: &i64, keys| keys.add(*value));
const INDEXED: TableDef<u64, i64> = NUMBERS.with_indexes(&[&BY_VALUE]);
const ROWS: u64 = 5000;
/// More sessions than the log of a small database has lanes.
const LANES: usize = 8;

#[test]
fn all_rows_go_at_once_and_types_indexes_and_numbers_stay() {
    let (mut db, _fs) = in_memory();
    db.run(|tx| tx.open(INDEXED).map(drop)).unwrap();
    db.vacuum().unwrap();
    db.check().unwrap();
    let empty = db.stats().space.used_pages;
    db.run(|tx| (0..ROWS).try_for_each(|n| tx.open(INDEXED)?.put(n, n as i64 % 7))).unwrap();
    let number = db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap();
    let before = (db.stats().log.record_bytes, db.read());
    assert!(db.run(|tx| tx.clear_table("numbers")).unwrap());
    assert!(
        db.stats().log.record_bytes - before.0 < 20_000,
        "{} bytes are logged",
        db.stats().log.record_bytes - before.0
    );
    let old = before.1.open(NUMBERS).unwrap();
    assert_eq!((old.len().unwrap(), old.by_index(BY_VALUE).unwrap().range(3..=3).count()), (ROWS, 714));
    drop(before);
    for _ in 0..2 {
        assert_eq!(db.read().open(NUMBERS).unwrap().by_index(BY_VALUE).unwrap().range(..).count(), 0);
        let refused = db.run(|tx| tx.open(NUMBERS)?.put(1, 1));
        assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
        let refused = db.run(|tx| tx.open(TableDef::<&str, &str>::new("numbers")).map(drop));
        assert!(matches!(refused, Err(Error::TableTypes { .. })), "{refused:?}");
        db.vacuum().unwrap();
        let report = db.check().unwrap();
        assert_eq!((report.tables, report.indexes, report.rows, report.entries), (1, 1, 0, 0));
        assert!(db.stats().space.used_pages <= empty + 1);
        assert!(db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap() > number);
        db = db.reopen().unwrap();
    }
    db.run(|tx| tx.open(INDEXED)?.put(1, 10)).unwrap();
    db.run(|tx| tx.open(INDEXED)?.by_index(BY_VALUE)?.check()).unwrap();
    assert!(!db.run(|tx| tx.clear_table("nothing")).unwrap());
}

#[test]
fn a_clear_is_part_of_its_transaction() {
    let (db, _fs) = in_memory();
    db.run(|tx| (0..100).try_for_each(|n| tx.open(INDEXED)?.put(n, 5))).unwrap();
    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    for n in 0..3 {
        assert!(tx.clear_table("numbers").unwrap());
        let numbers = tx.open(INDEXED).unwrap();
        assert!(numbers.is_empty().unwrap());
        numbers.put(n, 7).unwrap();
        assert_eq!(numbers.by_index(BY_VALUE).unwrap().range(..).count(), 1);
    }
    assert!(tx.rename_table("numbers", "renamed").unwrap() && tx.clear_table("renamed").unwrap());
    assert!(!tx.clear_table("numbers").unwrap());
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(tx.open(INDEXED).unwrap().len().unwrap(), 100);
    assert!(tx.clear_table("numbers").unwrap());
    tx.rollback().unwrap();
    assert_eq!(numbers(&db).len(), 100);
    db.run(|tx| tx.open(INDEXED)?.by_index(BY_VALUE)?.check()).unwrap();
    db.vacuum().unwrap();
    db.check().unwrap();
}

fn take(all: &mut Vec<u64>, tx: &Transaction, table: &Table<'_, u64, i64>) {
    (0..1500).for_each(|_| all.push(tx.next_id(table).unwrap()));
}

/// Numbers are handed out without a lock, also by a table that another transaction has cleared.
#[test]
fn numbers_taken_around_a_clear_never_repeat() {
    let (mut db, _fs) = in_memory();
    let mut all = Vec::new();
    db.run(|tx| tx.open(NUMBERS).map(drop)).unwrap();
    for ends in [Transaction::rollback, |tx: Transaction| tx.commit().map(drop)] {
        for is_first_used in [false, true] {
            let early = db.begin();
            let before = early.open(NUMBERS).unwrap();
            if is_first_used {
                take(&mut all, &early, &before);
            }
            let clears = db.begin();
            assert!(clears.clear_table("numbers").unwrap());
            let after = clears.open(NUMBERS).unwrap();
            take(&mut all, &early, &before);
            take(&mut all, &clears, &after);
            assert!(clears.clear_table("numbers").unwrap());
            take(&mut all, &early, &before);
            take(&mut all, &clears, &clears.open(NUMBERS).unwrap());
            ends(clears).unwrap();
            take(&mut all, &early, &before);
            early.rollback().unwrap();
            let late = db.begin();
            take(&mut all, &late, &late.open(NUMBERS).unwrap());
            late.rollback().unwrap();
            db = db.reopen().unwrap();
            let late = db.begin();
            let numbers = late.open(NUMBERS).unwrap();
            take(&mut all, &late, &numbers);
            let least = *all.last().unwrap() + 5000;
            late.skip_ids(&numbers, least).unwrap();
            all.push(late.next_id(&numbers).unwrap());
            assert!(*all.last().unwrap() > least);
            late.rollback().unwrap();
        }
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a number was handed out twice");
    db.check().unwrap();
}

/// The call asks whose numbers the table has while a clear of it runs. It might find neither the note of the clear nor
/// the row that the clear removes.
#[test]
fn a_call_for_a_number_beside_a_clear_finds_whose_numbers_the_table_has() {
    let (db, _fs) = in_memory();
    let next = |db: &Db| db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap();
    let last = next(&db);
    assert!(db.run(|tx| tx.clear_table("numbers")).unwrap());
    // Nothing is known now of the table, which goes on with the numbers of another one.
    let db = db.reopen().unwrap();
    let (begins, has_begun) = mpsc::channel();
    let (arrives, has_arrived) = mpsc::channel();
    let (clears, has_cleared) = mpsc::channel();
    thread::scope(|scope| {
        let (early, opened) = (db.begin(), mpsc::channel());
        let call = scope.spawn(move || {
            let before = early.open(NUMBERS).unwrap();
            opened.0.send(()).unwrap();
            has_begun.recv().unwrap();
            let searches = arrives.clone();
            pause::set("db: a table is asked whose numbers it has", move || {
                searches.send(()).unwrap();
                has_cleared.recv().unwrap();
            });
            let number = early.next_id(&before);
            // It may not have been at that point.
            let _ = arrives.send(());
            number
        });
        opened.1.recv().unwrap();
        pause::set("db: a clear has found the numbers of its table", move || {
            begins.send(()).unwrap();
            has_arrived.recv().unwrap();
        });
        assert!(db.run(|tx| tx.clear_table("numbers")).unwrap());
        pause::set("nowhere", || ());
        let _ = clears.send(());
        let number = call.join().unwrap().unwrap();
        assert!(number > last, "number {number} is handed out, and {last} was before");
    });
    assert!(next(&db) > last);
    db.check().unwrap();
}

/// A prepared clear that a restart has found has locked the row which says whose numbers the table has, and removes it.
/// If it has been taken back, only the lock is left.
#[test]
fn numbers_taken_around_a_prepared_clear_never_repeat() {
    let (mut db, _fs) = in_memory();
    let mut all = Vec::new();
    let first = db.begin();
    take(&mut all, &first, &first.open(NUMBERS).unwrap());
    first.commit().unwrap();
    // From here on the table goes on with the numbers of another one.
    assert!(db.run(|tx| tx.clear_table("numbers")).unwrap());
    let yes_or_no = || [false, true].into_iter();
    let cases = yes_or_no().flat_map(|commits| yes_or_no().map(move |is_first_used| (commits, is_first_used)));
    for (taken_back, (commits, is_first_used)) in
        yes_or_no().flat_map(|back| cases.clone().map(move |case| (back, case)))
    {
        let clears = db.begin();
        clears.open(TEXTS).unwrap().put("its only", "change").unwrap();
        let savepoint = clears.savepoint().unwrap();
        assert!(clears.clear_table("numbers").unwrap());
        if taken_back {
            clears.rollback_to(&savepoint).unwrap();
        }
        clears.prepare("clear").unwrap();
        db = db.reopen().unwrap();
        let early = db.begin();
        let before = early.open(NUMBERS).unwrap();
        if is_first_used {
            take(&mut all, &early, &before);
        }
        if commits { db.commit_prepared("clear").map(drop) } else { db.rollback_prepared("clear") }.unwrap();
        take(&mut all, &early, &before);
        early.rollback().unwrap();
        let late = db.begin();
        take(&mut all, &late, &late.open(NUMBERS).unwrap());
        late.rollback().unwrap();
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a number was handed out twice");
    db.check().unwrap();
}

/// Late sessions share one lane of the log's memory, which a clear does not keep while others reserve numbers.
#[test]
fn a_clear_beside_calls_for_numbers_ends() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = Options::new().memory_limit(4 << 20).lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
    fill(&db, 10);
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let early: Vec<_> = (0..LANES).map(|_| db.begin()).collect();
        let write = |(n, tx): (u64, &Transaction)| tx.open(NUMBERS).unwrap().put(n, 1).unwrap();
        (0..).zip(&early).for_each(write);
        let numbers = |tx: &Transaction, n: u64| tx.skip_ids(&tx.open(TEXTS)?, n * 1500);
        db.run(|tx| numbers(tx, 0)).unwrap();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..500).for_each(|n| db.run(|tx| numbers(tx, n)).unwrap()));
            }
            for _ in 0..500 {
                let tx = db.begin();
                assert!(tx.clear_table("texts").unwrap());
                tx.rollback().unwrap();
            }
        });
        done.send(()).unwrap();
    });
    assert!(is_done.recv_timeout(Duration::from_secs(60)).is_ok(), "a clear keeps the lane that others wait for");
}

/// Ids of tables that were dropped do not come back, because the rows of their sequences stay.
#[test]
fn a_table_never_gets_the_sequence_of_a_dropped_one() {
    let (mut db, _fs) = in_memory();
    let next = |db: &Db, name: &str| db.run(|tx| tx.next_id(&tx.open(TableDef::<u64, i64>::new(name))?));
    let create = |db: &Db, name: &str| db.run(|tx| tx.open(TableDef::<u64, i64>::new(name)).map(drop)).unwrap();
    create(&db, "kept");
    create(&db, "dropped");
    let first = next(&db, "dropped").unwrap();
    assert!(db.run(|tx| tx.clear_table("dropped")).unwrap());
    assert!(db.run(|tx| tx.drop_table("dropped")).unwrap());
    db.vacuum().unwrap();
    db = db.reopen().unwrap();
    assert!(db.run(|tx| tx.clear_table("kept")).unwrap());
    create(&db, "new");
    db = db.reopen().unwrap();
    assert_eq!((next(&db, "new").unwrap(), next(&db, "kept").unwrap(), first), (1, 1, 1));
    db.run(|tx| tx.skip_ids(&tx.open(TableDef::<u64, i64>::new("new"))?, 5000)).unwrap();
    assert!(next(&db, "new").unwrap() == 5001 && next(&db, "kept").unwrap() < 5000);
    db.check().unwrap();
}

#[test]
fn a_clear_waits_for_writers_and_ends_tables_that_were_opened_before() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let (writer, opener) = (db.begin(), db.begin());
    let opened = opener.open(NUMBERS).unwrap();
    writer.open(NUMBERS).unwrap().put(1, 100).unwrap();
    let hasty = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
    assert!(matches!(hasty.clear_table("numbers"), Err(Error::LockTimeout { .. })));
    drop(hasty);
    writer.commit().unwrap();
    let snapshot = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    assert_eq!(snapshot.open(NUMBERS).unwrap().len().unwrap(), 10);
    assert!(db.run(|tx| tx.clear_table("numbers")).unwrap());
    assert!(matches!(opened.put(2, 200), Err(Error::TableDropped { .. })));
    assert_eq!(snapshot.open(NUMBERS).unwrap().len().unwrap(), 10);
    let refused = snapshot.clear_table("numbers");
    assert!(matches!(refused, Err(Error::TableDropped { .. })), "{refused:?}");
    drop((opener, snapshot));
    assert_eq!(db.read_with(ReadOptions::new().latest()).open(NUMBERS).unwrap().len().unwrap(), 0);
}

#[test]
fn a_prepared_clear_outlives_restarts() {
    for commits in [true, false] {
        let (mut db, _fs) = in_memory();
        db.run(|tx| (0..100).try_for_each(|n| tx.open(INDEXED)?.put(n, 5))).unwrap();
        let tx = db.begin();
        assert!(tx.clear_table("numbers").unwrap());
        tx.open(INDEXED).unwrap().put(7, 70).unwrap();
        tx.prepare("clear").unwrap();
        db = db.reopen().unwrap();
        assert_eq!(db.read().open(NUMBERS).unwrap().len().unwrap(), 100);
        match commits {
            true => drop(db.commit_prepared("clear").unwrap()),
            false => db.rollback_prepared("clear").unwrap(),
        }
        for _ in 0..2 {
            assert_eq!(numbers(&db).len(), if commits { 1 } else { 100 });
            db.run(|tx| tx.open(INDEXED)?.by_index(BY_VALUE)?.check()).unwrap();
            db.vacuum().unwrap();
            db.check().unwrap();
            db = db.reopen().unwrap();
        }
    }
}
