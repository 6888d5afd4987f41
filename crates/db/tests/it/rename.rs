//! A renamed table keeps its rows, indexes and numbers. Its old name ends and its new one begins with the commit, for
//! snapshots too, and neither a rollback nor a loss of power leaves it between the two.

use crate::script::{Random, disk};
use crate::support::{DIR, NUMBERS, POLICIES, fill, in_memory, numbers, open, small};
use foreshore::{Db, Error, IndexDef, Isolation, Options, ReadOptions, Table, TableDef, Transaction, TxnOptions};
use foreshore_io::{Fs, Sim};
use foreshore_sync::pause;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

const RENAMED: TableDef<u64, i64> = TableDef::new("renamed");

const BY_VALUE: IndexDef<u64, i64, i64> = IndexDef::new("by value", |_, value: &i64, keys| keys.add(*value));
const INDEXED: TableDef<u64, i64> = NUMBERS.with_indexes(&[&BY_VALUE]);
const INDEXED_RENAMED: TableDef<u64, i64> = RENAMED.with_indexes(&[&BY_VALUE]);

fn names(db: &Db) -> Vec<String> {
    db.read_with(ReadOptions::new().latest()).tables().unwrap().into_iter().map(|table| table.name).collect()
}

fn rename(db: &Db, name: &str, new: &str) {
    assert!(db.run(|tx| tx.rename_table(name, new)).unwrap(), "{name} to {new}");
}

fn rows(table: &Table<'_, u64, i64>) -> Vec<(u64, i64)> {
    table.iter().collect::<Result<_, _>>().unwrap()
}

fn is_gone<T>(found: Result<T, Error>) -> bool {
    matches!(found, Err(Error::NoTable { .. }))
}

#[test]
fn rows_indexes_and_numbers_go_with_the_table() {
    let (db, fs) = in_memory();
    db.run(|tx| (0..100).try_for_each(|n| tx.open(INDEXED)?.put(n, n as i64 % 7))).unwrap();
    let first = db.run(|tx| tx.next_id(&tx.open(NUMBERS)?)).unwrap();
    rename(&db, "numbers", "renamed");
    let check = |db: &Db| {
        assert_eq!(names(db), ["renamed"]);
        let reader = db.read_with(ReadOptions::new().latest());
        assert!(is_gone(reader.open(NUMBERS)));
        let table = reader.open(RENAMED).unwrap();
        let found = table.by_index(BY_VALUE).unwrap().range(3..4).count();
        assert_eq!((table.len().unwrap(), found), (100, 14));
        db.run(|tx| tx.open(INDEXED_RENAMED)?.by_index(BY_VALUE)?.check()).unwrap();
        let report = db.check().unwrap();
        assert_eq!((report.tables, report.indexes, report.rows, report.entries), (1, 1, 100, 100));
    };
    check(&db);
    let refused = db.run(|tx| tx.open(RENAMED)?.put(1, 1));
    assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
    assert!(db.run(|tx| tx.next_id(&tx.open(RENAMED)?)).unwrap() > first);
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    check(&db);
    // The name is free for another table, of other types.
    db.run(|tx| tx.open(TableDef::<&str, &str>::new("numbers"))?.insert("a", "b").map(drop)).unwrap();
    assert_eq!(names(&db), ["numbers", "renamed"]);
    assert_eq!(db.run(|tx| tx.next_id(&tx.open(TableDef::<&str, &str>::new("numbers"))?)).unwrap(), 1);
    assert!(db.run(|tx| tx.drop_table("renamed")).unwrap());
    db.vacuum().unwrap();
    assert_eq!(db.check().unwrap().tables, 1);
}

#[test]
fn a_name_in_use_is_refused_and_the_transaction_goes_on() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    db.run(|tx| tx.open(RENAMED)?.put(1, 1)).unwrap();
    let tx = db.begin();
    let refused = tx.rename_table("numbers", "renamed");
    assert!(matches!(&refused, Err(Error::TableExists { name }) if name == "renamed"), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("\"renamed\""));
    assert!(matches!(tx.rename_table("numbers", ""), Err(Error::TableName { .. })));
    assert!(!tx.rename_table("nothing", "something").unwrap() && tx.rename_table("numbers", "numbers").unwrap());
    // Three renames exchange the two.
    for (name, new) in [("numbers", "other"), ("renamed", "numbers"), ("other", "renamed")] {
        assert!(tx.rename_table(name, new).unwrap());
    }
    assert_eq!(rows(&tx.open(NUMBERS).unwrap()), [(1, 1)]);
    tx.commit().unwrap();
    assert_eq!((names(&db), numbers(&db)), (vec!["numbers".into(), "renamed".into()], vec![(1, 1)]));
    assert_eq!(db.read().open(RENAMED).unwrap().len().unwrap(), 10);
    assert_eq!(db.check().unwrap().tables, 2);
}

#[test]
fn a_rollback_brings_the_name_back() {
    let (db, fs) = in_memory();
    fill(&db, 10);
    let tx = db.begin();
    let start = tx.savepoint().unwrap();
    let old = tx.open(NUMBERS).unwrap();
    assert!(tx.rename_table("numbers", "renamed").unwrap());
    assert!(is_gone(tx.open_existing(NUMBERS)));
    // Through the table that was opened before, and through the new name.
    old.put(11, 11).unwrap();
    tx.open(RENAMED).unwrap().put(12, 12).unwrap();
    let between = tx.savepoint().unwrap();
    tx.open(NUMBERS).unwrap().put(1, 100).unwrap();
    assert!(tx.rename_table("numbers", "third").unwrap() && tx.drop_table("renamed").unwrap());
    tx.rollback_to(&between).unwrap();
    assert_eq!(tx.open(RENAMED).unwrap().len().unwrap(), 12);
    assert!(is_gone(tx.open_existing(NUMBERS)));
    tx.rollback_to(&start).unwrap();
    assert_eq!(tx.open(NUMBERS).unwrap().len().unwrap(), 10);
    assert!(is_gone(tx.open_existing(RENAMED)));
    assert!(tx.rename_table("numbers", "renamed").unwrap());
    tx.rollback().unwrap();
    assert_eq!((names(&db), numbers(&db).len()), (vec!["numbers".to_owned()], 10));
    db.vacuum().unwrap();
    db.check().unwrap();
    db.close(Duration::ZERO).unwrap();
    let db = open(&fs).unwrap();
    assert_eq!((names(&db), numbers(&db).len()), (vec!["numbers".to_owned()], 10));
}

#[test]
fn a_table_that_the_transaction_has_created_is_renamed() {
    let (db, _fs) = in_memory();
    for rolls_back in [true, false] {
        let tx = db.begin();
        tx.open(INDEXED).unwrap().put(1, 10).unwrap();
        let savepoint = tx.savepoint().unwrap();
        for (name, new) in [("numbers", "renamed"), ("renamed", "numbers"), ("numbers", "renamed")] {
            assert!(tx.rename_table(name, new).unwrap());
            tx.open(TableDef::<u64, i64>::new(new).with_indexes(&[&BY_VALUE])).unwrap().put(2, 20).unwrap();
        }
        if rolls_back {
            tx.rollback_to(&savepoint).unwrap();
            assert_eq!(rows(&tx.open(INDEXED).unwrap()), [(1, 10)]);
            tx.rollback().unwrap();
            assert!(names(&db).is_empty());
        } else {
            tx.commit().unwrap();
            assert_eq!(names(&db), ["renamed"]);
        }
        db.vacuum().unwrap();
        db.check().unwrap();
    }
    db.run(|tx| tx.open(INDEXED_RENAMED)?.by_index(BY_VALUE)?.check()).unwrap();
    assert_eq!(db.read().open(RENAMED).unwrap().by_index(BY_VALUE).unwrap().get(20).unwrap(), Some((2, 20)));
}

#[test]
fn a_snapshot_finds_the_table_by_the_name_that_it_had() {
    let (db, _fs) = in_memory();
    db.run(|tx| (0..10).try_for_each(|n| tx.open(INDEXED)?.put(n, 5))).unwrap();
    let before = db.read_with(ReadOptions::new().latest());
    rename(&db, "numbers", "renamed");
    db.run(|tx| tx.open(INDEXED_RENAMED)?.put(100, 5)).unwrap();
    let between = db.read_with(ReadOptions::new().latest());
    db.run(|tx| tx.open(NUMBERS)?.put(1, 1)).unwrap();
    db.run(|tx| tx.drop_table("renamed")).unwrap();
    rename(&db, "numbers", "renamed");
    db.vacuum().unwrap();
    let after = db.read_with(ReadOptions::new().latest());
    for _ in 0..2 {
        let table = before.open(NUMBERS).unwrap();
        assert_eq!((table.len().unwrap(), table.by_index(BY_VALUE).unwrap().range(..).count()), (10, 10));
        assert!(is_gone(before.open(RENAMED)));
        let table = between.open(RENAMED).unwrap();
        assert_eq!((table.len().unwrap(), table.by_index(BY_VALUE).unwrap().range(..).count()), (11, 11));
        assert_eq!(after.open(RENAMED).unwrap().len().unwrap(), 1);
        assert!(is_gone(after.open(NUMBERS)));
        let listed = |reader: &foreshore::ReadTransaction| reader.tables().unwrap()[0].name.clone();
        assert_eq!([listed(&before), listed(&between), listed(&after)], ["numbers", "renamed", "renamed"]);
        db.check().unwrap();
    }
}

#[test]
fn transactions_that_write_by_a_snapshot_conflict_with_a_rename() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let begin = || db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    let [reader, opener, dropper, renamer] = [(); 4].map(|()| {
        let tx = begin();
        assert!(is_gone(tx.open_existing(TableDef::<u64, u64>::new("nothing"))));
        tx
    });
    rename(&db, "numbers", "renamed");
    let table = reader.open(NUMBERS).unwrap();
    assert_eq!(table.len().unwrap(), 10);
    assert!(matches!(table.put(1, 1), Err(Error::TableDropped { .. })));
    let conflict = opener.open(RENAMED).map(drop);
    assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
    let refused = dropper.drop_table("numbers");
    assert!(matches!(refused, Err(Error::TableDropped { .. })), "{refused:?}");
    let refused = renamer.rename_table("renamed", "third");
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    assert_eq!(names(&db), ["renamed"]);
}

/// A snapshot that sees the commit of a rename finds the table before others are told of its name.
#[test]
fn a_writer_by_a_snapshot_finds_a_table_before_its_new_name_is_known() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let found = Rc::new(Cell::new(None));
    let (writes, finds) = (db.clone(), Rc::clone(&found));
    pause::set("db: about to make tables known", move || {
        let tx = writes.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
        let sum = tx.open(RENAMED).and_then(|table| table.insert(1, 100)?.zip(table.get(1)?).ok_or(Error::NoSavepoint));
        finds.set(Some(sum.and_then(|sum| tx.commit().map(|_| sum))));
    });
    rename(&db, "numbers", "renamed");
    pause::set("nowhere", || ());
    assert_eq!(found.take().unwrap().unwrap(), (1, 100));
    assert_eq!(db.read().open(RENAMED).unwrap().get(1).unwrap(), Some(100));
    db.check().unwrap();
}

/// The check has listed the table by its old name. It ends before the commit tells others of the new one.
#[test]
fn a_check_walks_a_table_before_its_new_name_is_known() {
    let (db, _fs) = in_memory();
    db.run(|tx| (0..10).try_for_each(|n| tx.open(INDEXED)?.put(n, 1))).unwrap();
    let (lists, has_listed) = mpsc::channel();
    let (renames, has_renamed) = mpsc::channel();
    let (ends, has_ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let check = scope.spawn(|| {
            pause::set("check: has a transaction", move || {
                if lists.send(()).is_ok() {
                    has_renamed.recv().unwrap();
                }
            });
            let report = db.check();
            drop(ends);
            report
        });
        has_listed.recv().unwrap();
        drop(has_listed);
        pause::set("db: about to make tables known", move || {
            renames.send(()).unwrap();
            assert!(has_ended.recv().is_err(), "nothing is sent");
        });
        rename(&db, "numbers", "renamed");
        pause::set("nowhere", || ());
        let report = check.join().unwrap().unwrap();
        assert_eq!((report.tables, report.rows, report.indexes, report.entries), (1, 10, 1, 10));
    });
}

#[test]
fn a_rename_waits_for_writers_and_a_table_that_was_only_opened_is_opened_again() {
    let (db, _fs) = in_memory();
    fill(&db, 10);
    let (writer, opener) = (db.begin(), db.begin());
    let opened = opener.open(NUMBERS).unwrap();
    writer.open(NUMBERS).unwrap().put(1, 100).unwrap();
    let hasty = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
    assert!(matches!(hasty.rename_table("numbers", "renamed"), Err(Error::LockTimeout { .. })));
    drop(hasty);
    writer.commit().unwrap();
    rename(&db, "numbers", "renamed");
    let error = opened.put(2, 200).unwrap_err();
    assert!(matches!(error, Error::TableDropped { .. }) && error.is_retryable(), "{error:?}");
    drop(opener);
    assert_eq!(db.read().open(RENAMED).unwrap().get(1).unwrap(), Some(100));
}

#[test]
fn a_write_through_a_table_that_was_opened_before_keeps_its_indexes() {
    let (db, _fs) = in_memory();
    db.run(|tx| tx.open(INDEXED)?.put(1, 10)).unwrap();
    for def in [NUMBERS, INDEXED] {
        let tx = db.begin();
        let old = tx.open(def).unwrap();
        assert!(tx.rename_table("numbers", "renamed").unwrap());
        assert_eq!(old.get(1).unwrap(), Some(10));
        assert!(matches!(old.put(2, 20), Err(Error::IndexesChanged { .. })));
        drop(tx);
        let refused = db.run(|tx| tx.open(NUMBERS)?.put(2, 20));
        assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
    }
    db.run(|tx| tx.open(INDEXED)?.put(2, 20)).unwrap();
    db.run(|tx| tx.open(INDEXED)?.by_index(BY_VALUE)?.check()).unwrap();
}

const UNIQUE: IndexDef<u64, i64, i64> = IndexDef::unique("unique", |_, value: &i64, keys| keys.add(*value));
const UNIQUE_RENAMED: TableDef<u64, i64> = RENAMED.with_indexes(&[&UNIQUE]);
const UNIQUE_THIRD: TableDef<u64, i64> = TableDef::new("third").with_indexes(&[&UNIQUE]);

/// Opens a table without indexes, renames it, and builds an index under the new name. Then writes by the old one.
fn write_by_the_old_name(
    db: &Db,
    is_new: bool,
    twice: bool,
    write: impl Fn(&Table<'_, u64, i64>) -> Result<(), Error>,
) {
    if !is_new {
        db.run(|tx| tx.open(NUMBERS)?.put(1, 10)).unwrap();
    }
    let tx = db.begin();
    let old = tx.open(NUMBERS).unwrap();
    old.put(2, 20).unwrap();
    assert!(tx.rename_table("numbers", "renamed").unwrap());
    old.put(3, 30).unwrap();
    if twice {
        assert!(tx.rename_table("renamed", "third").unwrap());
        tx.open(UNIQUE_THIRD).unwrap();
    } else {
        tx.open(UNIQUE_RENAMED).unwrap();
    }
    let refused = write(&old);
    assert!(matches!(refused, Err(Error::IndexesChanged { .. })), "{is_new} {twice}: {refused:?}");
    drop(tx);
    // What was rolled back leaves a table without indexes.
    if !is_new {
        db.run(|tx| tx.open(NUMBERS)?.put(4, 10)).unwrap();
        assert_eq!(numbers(db), [(1, 10), (4, 10)]);
    }
}

#[test]
fn an_index_that_is_built_under_the_new_name_is_kept_by_all_writes() {
    for (is_new, twice) in [(false, false), (false, true), (true, false), (true, true)] {
        write_by_the_old_name(&in_memory().0, is_new, twice, |old| old.put(5, 50));
        write_by_the_old_name(&in_memory().0, is_new, twice, |old| old.put(5, 20));
        write_by_the_old_name(&in_memory().0, is_new, twice, |old| old.remove(2).map(drop));
    }
    let (db, _fs) = in_memory();
    db.run(|tx| {
        tx.open(NUMBERS)?.put(1, 10)?;
        tx.rename_table("numbers", "renamed")?;
        tx.open(UNIQUE_RENAMED)?.put(2, 20)
    })
    .unwrap();
    db.run(|tx| tx.open(UNIQUE_RENAMED)?.by_index(UNIQUE)?.check()).unwrap();
    let taken = db.run(|tx| tx.open(UNIQUE_RENAMED)?.put(3, 20));
    assert!(matches!(taken, Err(Error::IndexKeyExists { .. })), "{taken:?}");
}

#[test]
fn a_prepared_rename_outlives_restarts() {
    for (commits, restarts) in [(true, 0), (true, 2), (false, 0), (false, 2)] {
        let (mut db, _fs) = in_memory();
        db.run(|tx| (0..10).try_for_each(|n| tx.open(INDEXED)?.put(n, 5))).unwrap();
        let tx = db.begin();
        assert!(tx.rename_table("numbers", "renamed").unwrap());
        tx.open(INDEXED_RENAMED).unwrap().put(100, 5).unwrap();
        tx.open(NUMBERS).unwrap().put(1, 1).unwrap();
        assert!(tx.rename_table("numbers", "third").unwrap());
        tx.prepare("rename").unwrap();
        for _ in 0..restarts {
            db = db.reopen().unwrap();
        }
        let before = db.read_with(ReadOptions::new().latest());
        let hasty = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
        let refused = hasty.open(NUMBERS).and_then(|table| table.put(1, 1));
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{refused:?}");
        drop(hasty);
        match commits {
            true => drop(db.commit_prepared("rename").unwrap()),
            false => db.rollback_prepared("rename").unwrap(),
        }
        assert_eq!(before.open(NUMBERS).unwrap().len().unwrap(), 10);
        assert!(is_gone(before.open(RENAMED)));
        drop(before);
        for _ in 0..2 {
            if commits {
                assert_eq!(names(&db), ["renamed", "third"]);
                assert_eq!(db.read().open(RENAMED).unwrap().len().unwrap(), 11);
                db.run(|tx| tx.open(INDEXED_RENAMED)?.by_index(BY_VALUE)?.check()).unwrap();
            } else {
                assert_eq!((names(&db), numbers(&db).len()), (vec!["numbers".to_owned()], 10));
                db.run(|tx| tx.open(INDEXED)?.by_index(BY_VALUE)?.check()).unwrap();
            }
            db.vacuum().unwrap();
            db.check().unwrap();
            db = db.reopen().unwrap();
        }
        // No number is given twice.
        db.run(|tx| tx.open(TableDef::<u64, u64>::new("later"))?.put(1, 1)).unwrap();
        assert!(db.run(|tx| tx.rename_table("later", "latest")).unwrap());
        db.check().unwrap();
    }
}

/// Threads rename one table to and fro, use it by both names, and check the database.
#[test]
fn renames_beside_readers_writers_and_checks() {
    let (db, _fs) = in_memory();
    fill(&db, 200);
    let (is_over, db) = (AtomicBool::new(false), &db);
    let names = ["numbers", "renamed"];
    let by_either = |tx: &Transaction| -> Result<u64, Error> {
        let mut found = 0;
        for name in names {
            match tx.open_existing(TableDef::<u64, i64>::new(name)) {
                Ok(table) => {
                    table.put(7, 7)?;
                    found += table.len()?;
                }
                Err(Error::NoTable { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    };
    thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                let mut renamed = 0;
                for round in first.. {
                    let (name, new) = (names[round % 2], names[(round + 1) % 2]);
                    renamed += usize::from(db.run(|tx| tx.rename_table(name, new)).unwrap());
                    if renamed == 60 {
                        break;
                    }
                    thread::yield_now();
                }
            });
        }
        let over = &is_over;
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                // At serializable the table has one name, whatever else happens.
                assert_eq!(db.run(by_either).unwrap(), 200);
            }
        });
        scope.spawn(move || {
            while !over.load(Ordering::Acquire) {
                let reader = db.read_with(ReadOptions::new().latest());
                let found = names.map(|name| reader.open(TableDef::<u64, i64>::new(name)));
                let found: Vec<_> = found.into_iter().flatten().collect();
                assert!(found.len() == 1 && found[0].len().unwrap() == 200, "{} names", found.len());
            }
        });
        for _ in 0..20 {
            assert_eq!(db.check().unwrap().damaged.len(), 0);
        }
        over.store(true, Ordering::Release);
    });
    assert_eq!(db.check().unwrap().rows, 200);
}

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(fs);
        lab.step_seed = seed;
    })
}

/// The tables by name, with their rows.
type Contents = Vec<(String, Vec<(u64, i64)>)>;

fn contents(db: &Db) -> Contents {
    let reader = db.read_with(ReadOptions::new().latest());
    let read = |name: String| {
        let table = reader.open(TableDef::<u64, i64>::new(&name)).unwrap();
        let rows: Vec<_> = table.iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(table.by_index(BY_VALUE).unwrap().range(..).count(), rows.len(), "{name}");
        (name, rows)
    };
    reader.tables().unwrap().into_iter().map(|table| read(table.name)).collect()
}

/// Runs transactions that create, rename, change, clear and drop tables. Returns what each commit has left, and how
/// many operations the disk had done when it was acknowledged.
fn script(db: &Db, sim: &Sim, seed: u64) -> Vec<(u64, Contents)> {
    const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
    let mut random = Random(seed);
    let mut history = vec![(sim.ops(), contents(db))];
    for round in 0..25 {
        let tx = db.begin();
        for step in 0..1 + random.below(5) {
            let savepoint = tx.savepoint().unwrap();
            let [name, new] = [(); 2].map(|()| NAMES[random.below(4) as usize]);
            match random.below(9) {
                0 => drop(tx.drop_table(name).unwrap()),
                8 => drop(tx.clear_table(name).unwrap()),
                1..=4 => match tx.rename_table(name, new) {
                    Ok(_) | Err(Error::TableExists { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                },
                _ => {
                    let table = tx.open(TableDef::<u64, i64>::new(name).with_indexes(&[&BY_VALUE])).unwrap();
                    (0..40).for_each(|n| table.put(40 * round + n, step as i64).unwrap());
                }
            }
            if random.below(4) == 0 {
                tx.rollback_to(&savepoint).unwrap();
            }
        }
        if random.below(4) == 0 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            history.push((sim.ops(), contents(db)));
        }
        (0..random.below(6)).for_each(|_| db.step());
    }
    history
}

#[test]
fn power_loss_at_any_operation_leaves_each_table_under_one_name() {
    for seed in 1..4 {
        let sim = disk(seed);
        let db = options(&sim, seed).open(DIR).unwrap();
        let history = script(&db, &sim, seed);
        db.close(Duration::from_secs(10)).unwrap();
        let (mut points, mut images) = (sim.crash_points(), 0);
        loop {
            let op = points.op();
            if op >= history[0].0 {
                let lost = points.image(&POLICIES[images % POLICIES.len()], op);
                images += 1;
                let db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
                let last = history.iter().rposition(|(at, _)| *at <= op).unwrap_or(0);
                let found = contents(&db);
                assert!(history[last..].iter().take(2).any(|(_, known)| *known == found), "{found:?} after {op}");
                db.check().unwrap_or_else(|error| panic!("check after {op}: {error}"));
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 50, "{images} images");
    }
}
