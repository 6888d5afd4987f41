//! A renamed table keeps its rows and indexes, and what has it open. Snapshots know the name that it had.

use crate::indexes::{PLAIN, USERS, named, sound};
use crate::script::disk;
use crate::support::{DIR, NUMBERS, POLICIES, in_memory, open, small};
use foreshore::{Db, Error, Isolation, Options, TableDef, Transaction, TxnOptions};
use foreshore_io::{Fs, Sim};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const OTHER: TableDef<u64, i64> = TableDef::new("other");

fn fill(db: &Db, def: TableDef<'_, u64, i64>, value: i64) {
    db.run(|tx| tx.open(def)?.put(1, value)).unwrap();
}

/// The row of key 1, or `None` if there is no table.
fn seen(tx: &Transaction, def: TableDef<'_, u64, i64>) -> Option<i64> {
    match tx.open_existing(def) {
        Ok(table) => Some(table.get(1).unwrap().unwrap_or_default()),
        Err(Error::NoTable { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn both(db: &Db) -> (Option<i64>, Option<i64>) {
    let (reader, tx) = (db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot)), db.begin());
    let both = (seen(&tx, NUMBERS), seen(&tx, OTHER));
    assert_eq!((seen(&reader, NUMBERS), seen(&reader, OTHER)), both);
    both
}

#[test]
fn rows_and_indexes_keep_with_their_table_also_after_a_restart() {
    let (db, fs) = in_memory();
    db.run(|tx| {
        let users = tx.open(USERS)?;
        (0..50).try_for_each(|id| users.put(id, (&*format!("{id}@x"), id as u32 % 3, "a b")))
    })
    .unwrap();
    let before = db.run(|tx| sound(&tx.open(USERS)?)).unwrap();
    db.run(|tx| tx.rename_table("users", "people")).unwrap();
    let check = |db: &Db| {
        assert_eq!(db.run(|tx| sound(&tx.open_existing(named("people"))?)).unwrap(), before);
        assert!(matches!(db.begin().open_existing(PLAIN), Err(Error::NoTable { .. })));
        let tables = db.read().tables().unwrap();
        let names: Vec<_> = tables.iter().map(|table| (&*table.name, table.indexes.len())).collect();
        assert_eq!(names, [("people", 3)]);
        db.check().unwrap();
    };
    check(&db);
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    check(&db);
    // A new table may have the old name.
    db.run(|tx| tx.open(PLAIN)?.put(1, ("x", 1, "y"))).unwrap();
    db.run(|tx| tx.open(named("people"))?.put(1, ("1@x", 7, "c"))).unwrap();
    assert_eq!(db.read().open(PLAIN).unwrap().len().unwrap(), 1);
    assert_eq!(db.run(|tx| sound(&tx.open_existing(named("people"))?)).unwrap().len(), 50);
}

#[test]
fn names_that_are_taken_or_absent_are_refused_and_the_transaction_goes_on() {
    let (db, _) = in_memory();
    fill(&db, NUMBERS, 10);
    fill(&db, OTHER, 20);
    let tx = db.begin();
    assert!(matches!(tx.rename_table("numbers", "other"), Err(Error::TableExists { name }) if name == "other"));
    assert!(matches!(tx.rename_table("numbers", "numbers"), Err(Error::TableExists { .. })));
    assert!(matches!(tx.rename_table("absent", "new"), Err(Error::NoTable { name }) if name == "absent"));
    assert!(matches!(tx.rename_table("numbers", ""), Err(Error::TableName { .. })));
    tx.commit().unwrap();
    assert_eq!(both(&db), (Some(10), Some(20)));
}

#[test]
fn open_handles_keep_working() {
    let (db, _) = in_memory();
    fill(&db, NUMBERS, 10);
    let (early, tx) = (db.begin(), db.begin());
    let handle = early.open(NUMBERS).unwrap();
    let own = tx.open(NUMBERS).unwrap();
    own.put(2, 20).unwrap();
    tx.rename_table("numbers", "other").unwrap();
    own.put(3, 30).unwrap();
    assert_eq!((seen(&tx, NUMBERS), seen(&tx, OTHER)), (None, Some(10)));
    tx.commit().unwrap();
    handle.put(4, 40).unwrap();
    assert_eq!(handle.len().unwrap(), 4);
    early.commit().unwrap();
    assert_eq!(db.read().open(OTHER).unwrap().len().unwrap(), 4);
}

#[test]
fn a_snapshot_from_before_finds_the_old_name_only() {
    let (db, _) = in_memory();
    fill(&db, NUMBERS, 10);
    db.run(|tx| tx.open(OTHER).map(drop)).unwrap();
    db.run(|tx| tx.drop_table("other")).unwrap();
    let snapshot = || db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    let (reader, writer, second) = (db.read(), snapshot(), snapshot());
    db.run(|tx| tx.rename_table("numbers", "other")).unwrap();
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(10));
    assert!(matches!(reader.open(OTHER), Err(Error::NoTable { .. })));
    assert_eq!(reader.tables().unwrap()[0].name, "numbers");
    assert_eq!(writer.open(NUMBERS).unwrap().get(1).unwrap(), Some(10));
    assert!(matches!(writer.open(OTHER), Err(Error::Conflict { .. })));
    let gone = second.rename_table("numbers", "third");
    assert!(matches!(&gone, Err(error) if error.is_retryable()), "{gone:?}");
    assert_eq!(both(&db), (None, Some(10)));
    // The old name is free, and means a new table.
    fill(&db, NUMBERS, 30);
    assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(10));
    assert_eq!(both(&db), (Some(30), Some(10)));
    assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(30));
}

#[test]
fn rollbacks_give_names_back() {
    let (db, fs) = in_memory();
    fill(&db, NUMBERS, 10);
    let tx = db.begin();
    tx.rename_table("numbers", "other").unwrap();
    fill_in(&tx, NUMBERS, 30);
    assert_eq!((seen(&tx, NUMBERS), seen(&tx, OTHER)), (Some(30), Some(10)));
    tx.rollback().unwrap();
    assert_eq!(both(&db), (Some(10), None));

    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    tx.rename_table("numbers", "other").unwrap();
    let inner = tx.savepoint().unwrap();
    tx.rename_table("other", "third").unwrap();
    tx.rollback_to(&inner).unwrap();
    assert_eq!((seen(&tx, NUMBERS), seen(&tx, OTHER)), (None, Some(10)));
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!((seen(&tx, NUMBERS), seen(&tx, OTHER)), (Some(10), None));
    tx.open(NUMBERS).unwrap().put(1, 11).unwrap();
    // There and back.
    tx.rename_table("numbers", "other").unwrap();
    tx.rename_table("other", "numbers").unwrap();
    tx.commit().unwrap();
    assert_eq!(both(&db), (Some(11), None));

    // A table of the transaction itself.
    let tx = db.begin();
    fill_in(&tx, OTHER, 20);
    tx.rename_table("other", "third").unwrap();
    tx.rename_table("numbers", "other").unwrap();
    tx.rename_table("third", "numbers").unwrap();
    assert_eq!((seen(&tx, NUMBERS), seen(&tx, OTHER)), (Some(20), Some(11)));
    let savepoint = tx.savepoint().unwrap();
    assert!(tx.drop_table("other").unwrap());
    tx.rollback_to(&savepoint).unwrap();
    tx.commit().unwrap();
    assert_eq!(both(&db), (Some(20), Some(11)));

    let tx = db.begin();
    fill_in(&tx, TableDef::new("fourth"), 1);
    tx.rename_table("fourth", "fifth").unwrap();
    tx.rollback().unwrap();
    assert_eq!(db.read().tables().unwrap().len(), 2);
    db.check().unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let db = open(&fs).unwrap();
    assert_eq!(both(&db), (Some(20), Some(11)));
    assert!(db.run(|tx| tx.drop_table("other")).unwrap());
    db.run(|tx| tx.rename_table("numbers", "other")).unwrap();
    assert_eq!(both(&db), (None, Some(20)));
    db.vacuum().unwrap();
    db.check().unwrap();
}

fn fill_in(tx: &Transaction, def: TableDef<'_, u64, i64>, value: i64) {
    tx.open(def).unwrap().put(1, value).unwrap();
}

#[test]
fn a_prepared_rename_takes_place_when_it_is_committed_also_after_a_restart() {
    for (is_restarted, is_committed) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut db, fs) = in_memory();
        fill(&db, NUMBERS, 10);
        let tx = db.begin();
        tx.rename_table("numbers", "other").unwrap();
        fill_in(&tx, TableDef::new("third"), 30);
        tx.rename_table("third", "fourth").unwrap();
        tx.prepare("swap").unwrap();
        if is_restarted {
            db.close(Duration::from_secs(10)).unwrap();
            db = open(&fs).unwrap();
        }
        assert_eq!(db.read().open(NUMBERS).unwrap().get(1).unwrap(), Some(10));
        assert!(matches!(db.read().open(OTHER), Err(Error::NoTable { .. })));
        let reader = db.read();
        if is_committed {
            db.commit_prepared("swap").unwrap();
            assert_eq!(both(&db), (None, Some(10)));
        } else {
            db.rollback_prepared("swap").unwrap();
            assert_eq!(both(&db), (Some(10), None));
        }
        assert_eq!(reader.open(NUMBERS).unwrap().get(1).unwrap(), Some(10));
        drop(reader);
        let fourth = db.run(|tx| Ok::<_, Error>(seen(tx, TableDef::new("fourth")))).unwrap();
        assert_eq!(fourth, is_committed.then_some(30));
        db.run(|tx| tx.drop_table(if is_committed { "other" } else { "numbers" })).unwrap();
        assert_eq!(both(&db), (None, None));
        db.check().unwrap();
    }
}

#[test]
fn a_table_has_one_name_at_a_time_for_all_transactions() {
    let (db, _) = in_memory();
    fill(&db, NUMBERS, 10);
    thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..60 {
                let (old, new) = if n % 2 == 0 { ("numbers", "other") } else { ("other", "numbers") };
                db.run(|tx| tx.rename_table(old, new)).unwrap();
            }
        });
        for seed in 0..3 {
            let db = &db;
            scope.spawn(move || {
                for n in 0..100 {
                    let key = 2 + seed * 1000 + n;
                    db.run(|tx| {
                        let (one, two) = (tx.open_existing(NUMBERS), tx.open_existing(OTHER));
                        match (one, two) {
                            (Ok(table), Err(Error::NoTable { .. })) | (Err(Error::NoTable { .. }), Ok(table)) => {
                                table.put(key, 1)
                            }
                            (Err(Error::NoTable { .. }), Err(Error::NoTable { .. })) => panic!("no name"),
                            (Ok(_), Ok(_)) => panic!("two names"),
                            (Err(Error::NoTable { .. }) | Ok(_), Err(error)) | (Err(error), _) => Err(error),
                        }
                    })
                    .unwrap();
                    let reader = db.read();
                    let names = reader.tables().unwrap();
                    assert_eq!(names.len(), 1, "{names:?}");
                    let (one, two) = (reader.open(NUMBERS), reader.open(OTHER));
                    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
                    assert_eq!(one.or(two).unwrap().get(1).unwrap(), Some(10));
                }
            });
        }
    });
    assert_eq!(db.read().open(NUMBERS).unwrap().len().unwrap(), 301);
    db.check().unwrap();
}

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(fs);
        lab.step_seed = seed;
    })
}

#[test]
fn power_loss_at_any_operation_leaves_a_table_with_one_of_the_names() {
    let sim = disk(3);
    let db = options(&sim, 3).open(DIR).unwrap();
    db.run(|tx| {
        let users = tx.open(USERS)?;
        (0..30).try_for_each(|id| users.put(id, (&*format!("{id}@x"), id as u32 % 3, "a b")))
    })
    .unwrap();
    let expected = db.run(|tx| sound(&tx.open(USERS)?)).unwrap();
    let mut names = vec![(sim.ops(), "users".to_owned())];
    for n in 0..12 {
        let (old, new) = (names.last().unwrap().1.clone(), format!("users {}", n % 3));
        let tx = db.begin();
        tx.rename_table(&old, &new).unwrap();
        if n % 4 == 3 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            names.push((sim.ops(), new));
        }
        db.step();
    }
    drop(db);
    let mut points = sim.crash_points();
    let mut images = 0;
    loop {
        let op = points.op();
        if op >= names[0].0 {
            let lost = points.image(&POLICIES[images % POLICIES.len()], op);
            images += 1;
            let db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
            let tables = db.read().tables().unwrap();
            assert_eq!(tables.len(), 1, "after {op}: {tables:?}");
            let last = names.iter().rposition(|(at, _)| *at <= op).unwrap_or(0);
            assert!(names[last..].iter().take(2).any(|(_, name)| *name == tables[0].name), "after {op}: {tables:?}");
            let def = named(&tables[0].name);
            assert_eq!(db.run(|tx| sound(&tx.open_existing(def)?)).unwrap(), expected, "after {op}");
            db.check().unwrap_or_else(|error| panic!("check after {op}: {error}"));
        }
        if !points.advance() {
            break;
        }
    }
    assert!(images > 10, "{images} images");
}
