//! An index is built, rebuilt and dropped beside readers and writers, and no writer misses one.

use crate::indexes::{BY_CITY, BY_EMAIL, BY_WORD, OwnedUser, PLAIN, USERS, User, check_all, check_indexes, fill};
use crate::support::{SetOnDrop, in_memory};
use foreshore::{Error, IndexDef, Isolation, TableDef, TxnOptions};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

const ISOLATION_LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

#[test]
fn an_index_is_built_by_open_while_readers_continue() {
    for isolation in ISOLATION_LEVELS {
        let (db, _) = in_memory();
        fill(&db, PLAIN, 1000);
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        tx.open(PLAIN).unwrap().put(1, ("first@x", 5, "")).unwrap();
        let rows = check_indexes(&tx.open(USERS).unwrap()).unwrap();
        assert_eq!((rows.len(), &*rows[&1].0), (1000, "first@x"));
        let reader = db.read();
        assert_eq!(reader.open(PLAIN).unwrap().len().unwrap(), 1000);
        let other = db.begin();
        assert_eq!(other.open(PLAIN).unwrap().get(7).unwrap().unwrap().1, 1, "an open waits for no build");
        let waits = other.open(PLAIN).unwrap().put(7, ("7@x", 1, ""));
        assert!(matches!(waits, Err(Error::OwnThreadLock { .. })), "{waits:?}");
        tx.commit().unwrap();
        assert_eq!(check_all(&db), rows);
    }
}

#[test]
fn a_failed_build_leaves_no_index() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 300);
    db.run(|tx| tx.open(PLAIN)?.put(299, ("7@x", 1, ""))).unwrap();
    let tx = db.begin();
    tx.open(PLAIN).unwrap().put(500, ("500@x", 1, "")).unwrap();
    let refused = tx.open(USERS).map(drop);
    assert!(
        matches!(&refused, Err(Error::IndexKeyExists { index, .. })
        if index.name.as_deref() == Some("users.by email")),
        "{refused:?}"
    );
    assert!(matches!(tx.open(PLAIN).map(drop), Err(Error::RolledBack)));
    tx.rollback().unwrap();
    assert_eq!(db.check().unwrap().indexes, 0);
}

#[test]
fn a_build_that_is_rolled_back_leaves_no_index() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 300);
    let tx = db.begin();
    let users = tx.open(PLAIN).unwrap();
    users.put(500, ("500@x", 1, "")).unwrap();
    users.put(299, ("299@x", 1, "")).unwrap();
    let savepoint = tx.savepoint().unwrap();
    let indexed = tx.open(USERS).unwrap();
    assert_eq!(check_indexes(&indexed).unwrap().len(), 301);
    let undeclared = users.put(1, ("1@y", 1, ""));
    assert!(matches!(undeclared, Err(Error::IndexUndeclared { .. })), "of the same transaction: {undeclared:?}");
    tx.rollback_to(&savepoint).unwrap();
    users.put(1, ("1@y", 1, "")).unwrap();
    assert!(matches!(users.by_index(BY_CITY), Err(Error::NoIndex { .. })));
    drop((users, indexed));
    tx.commit().unwrap();
    assert_eq!(db.check().unwrap().indexes, 0);
    db.run(|tx| tx.open(PLAIN)?.put(2, ("2@y", 1, ""))).unwrap();
    assert_eq!(check_all(&db)[&2].0, "2@y");
}

#[test]
fn a_drop_that_is_rolled_back_keeps_the_index() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 300);
    db.run(|tx| tx.open(USERS).map(drop)).unwrap();
    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    tx.drop_index("users", "by word").unwrap();
    let fewer = tx.open(PLAIN.with_indexes(&[&BY_EMAIL, &BY_CITY])).unwrap();
    fewer.put(3, ("3@y", 1, "lost")).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    let undeclared = fewer.put(3, ("3@y", 1, "lost"));
    assert!(matches!(undeclared, Err(Error::IndexUndeclared { .. })), "{undeclared:?}");
    tx.open(USERS).unwrap().put(3, ("3@y", 1, "found")).unwrap();
    drop(fewer);
    tx.commit().unwrap();
    check_all(&db);
}

#[test]
fn a_table_with_undeclared_indexes_can_be_read_but_not_written() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(USERS)?.put(1, ("1@x", 1, "w"))).unwrap();
    for def in [PLAIN, PLAIN.with_indexes(&[&BY_EMAIL])] {
        let tx = db.begin();
        let users = tx.open(def).unwrap();
        let refused = |result: Result<(), Error>| {
            assert!(matches!(&result, Err(Error::IndexUndeclared { table, .. }) if table == "users"), "{result:?}");
        };
        refused(users.put(1, ("", 2, "")));
        refused(users.insert(1, ("", 2, "")).map(drop));
        refused(users.insert_new(2, ("", 2, "")));
        refused(users.remove(1).map(drop));
        refused(users.update_with(1, |_| None).map(drop));
        refused(users.entry(2).unwrap().or_insert(("".into(), 2, "".into())).map(drop));
        refused(users.pop_first().map(drop));
        refused(users.retain(|_, _| false).map(drop));
        refused(users.clear().map(drop));
        assert_eq!(users.get(1).unwrap(), Some(("1@x".into(), 1, "w".into())));
        assert_eq!(users.by_index(BY_WORD).unwrap().get("w").unwrap().unwrap().0, 1);
        tx.commit().unwrap();
    }
    let tx = db.begin();
    let refused = tx.open_raw("users").unwrap().remove(&1_u64.to_be_bytes()[..]);
    assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
    drop(tx);
    for index in ["by email", "by city", "by word"] {
        assert!(db.run(|tx| tx.drop_index("users", index)).unwrap());
        assert!(!db.run(|tx| tx.drop_index("users", index)).unwrap());
    }
    db.run(|tx| tx.open(PLAIN)?.put(1, ("", 2, ""))).unwrap();
}

#[test]
fn a_handle_from_before_a_build_or_drop_refuses_writes() {
    for isolation in ISOLATION_LEVELS {
        let (db, _) = in_memory();
        fill(&db, PLAIN, 10);
        let options = TxnOptions::new().isolation(isolation);
        let late = db.begin_with(options);
        let users = late.open(PLAIN).unwrap();
        db.run(|tx| tx.open(USERS).map(drop)).unwrap();
        let refused = users.put(1, ("1@y", 1, ""));
        let is_refused = matches!(refused, Err(Error::IndexUndeclared { .. } | Error::Conflict { .. }));
        assert!(is_refused, "{isolation:?}: {refused:?}");
        drop(users);
        late.rollback().unwrap();
        let late = db.begin_with(options);
        let users = late.open(USERS).unwrap();
        db.run(|tx| tx.drop_index("users", "by word")).unwrap();
        let refused = users.put(1, ("1@y", 1, ""));
        assert!(refused.as_ref().is_err_and(Error::is_retryable), "{isolation:?}: {refused:?}");
        drop(users);
        late.rollback().unwrap();
        db.run(|tx| tx.open(USERS)?.put(1, ("1@y", 1, ""))).unwrap();
        check_all(&db);
    }
}

#[test]
fn a_snapshot_from_before_a_build_gets_a_conflict() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 10);
    let early = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    db.run(|tx| tx.open(USERS)?.put(1, ("1@y", 1, ""))).unwrap();
    let refused = early.open(USERS).map(drop);
    assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
    early.rollback().unwrap();
    let options = TxnOptions::new().isolation(Isolation::Snapshot);
    db.run_with(options, |tx| tx.open(USERS)?.put(1, ("1@z", 1, ""))).unwrap();
    check_all(&db);
}

#[test]
fn a_write_to_a_dropped_table_proves_nothing_about_its_indexes() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 10);
    let tx = db.begin();
    let users = tx.open(USERS).unwrap();
    tx.drop_table("users").unwrap();
    users.put(1, ("lost@x", 1, "")).unwrap();
    let newer = tx.open(PLAIN.with_indexes(&[&BY_CITY])).unwrap();
    newer.put(1, ("new@x", 1, "")).unwrap();
    let taken = users.put(2, ("lost@x", 1, ""));
    assert!(matches!(taken, Err(Error::IndexKeyExists { .. })), "{taken:?}");
    users.put(2, ("2@y", 1, "")).unwrap();
    newer.put(2, ("new@x", 1, "")).unwrap();
    drop((users, newer));
    tx.rollback().unwrap();
    db.run(|tx| tx.open(USERS).map(drop)).unwrap();
    let tx = db.begin();
    let plain = tx.open(PLAIN).unwrap();
    let savepoint = tx.savepoint().unwrap();
    tx.drop_table("users").unwrap();
    plain.put(1, ("lost@x", 1, "")).unwrap();
    tx.rollback_to(&savepoint).unwrap();
    let refused = plain.put(1, ("1@y", 1, ""));
    assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
    drop(plain);
    tx.rollback().unwrap();
    let refused = db.run(|tx| tx.open(PLAIN)?.put(1, ("1@y", 1, "")));
    assert!(matches!(refused, Err(Error::IndexUndeclared { .. })), "{refused:?}");
    check_all(&db);
}

/// The index comes, or goes, when the writer has looked for it and before it has its lock of the table.
#[cfg(debug_assertions)]
#[test]
fn a_writer_overtaken_by_a_build_or_a_drop_gets_a_retryable_error() {
    for (isolation, is_built) in ISOLATION_LEVELS.into_iter().flat_map(|level| [(level, true), (level, false)]) {
        let (db, _) = in_memory();
        fill(&db, PLAIN, 10);
        if !is_built {
            // The second one reads from the catalogue that these are all.
            (0..2).for_each(|_| db.run(|tx| tx.open(USERS)?.put(2, ("2@y", 1, ""))).unwrap());
        }
        let late = db.begin_with(TxnOptions::new().isolation(isolation));
        let users = late.open(if is_built { PLAIN } else { USERS }).unwrap();
        let (other, mut is_over) = (db.clone(), false);
        foreshore_sync::pause::set("db: about to write a row", move || {
            if !std::mem::replace(&mut is_over, true) {
                let change = |tx: &foreshore::Transaction| match is_built {
                    true => tx.open(USERS).map(drop),
                    false => tx.drop_index("users", "by city").map(drop),
                };
                other.run(change).unwrap();
            }
        });
        let refused = users.put(1, ("1@y", 7, ""));
        foreshore_sync::pause::set("nowhere", || ());
        let is_refused = matches!(refused, Err(Error::IndexesChanged { .. } | Error::Conflict { .. }));
        assert!(is_refused, "{isolation:?}, built: {is_built}: {refused:?}");
        assert!(matches!(users.get(1), Err(Error::RolledBack)));
        drop(users);
        late.rollback().unwrap();
        assert_eq!(check_all(&db)[&1].0, "1@x");
    }
}

#[test]
fn a_table_that_was_dropped_since_the_snapshot_is_read_by_its_definition() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(USERS)?.put(1, ("1@x", 1, "w"))).unwrap();
    let tx = db.begin_with(TxnOptions::new().isolation(Isolation::Snapshot));
    assert_eq!(tx.tables().unwrap().len(), 1);
    db.run(|tx| tx.drop_table("users")).unwrap();
    db.run(|tx| tx.open(USERS)?.put(1, ("new@x", 1, "w"))).unwrap();
    let users = tx.open(USERS).unwrap();
    assert_eq!(check_indexes(&users).unwrap()[&1].0, "1@x");
    let refused = users.put(2, ("2@x", 1, ""));
    assert!(matches!(refused, Err(Error::TableDropped { .. })), "{refused:?}");
}

#[test]
fn an_index_is_rebuilt_when_its_definition_differs() {
    const NEWER: IndexDef<u64, User, u32> =
        IndexDef::new("by city", |_, user: &OwnedUser, keys| keys.add(user.1 + 1)).version(2);
    const UNIQUE: IndexDef<u64, User, u32> = IndexDef::unique("by city", |_, user: &OwnedUser, keys| keys.add(user.1));
    const TEXT: IndexDef<u64, User, &str> =
        IndexDef::new("by city", |_, user: &OwnedUser, keys| keys.add(user.1.to_string().as_str()));
    const DUPLICATE: TableDef<u64, User> = PLAIN.with_indexes(&[&BY_CITY, &BY_CITY]);
    let (db, _) = in_memory();
    let def = |index: &'static [&'static dyn foreshore::TableIndex<u64, User>]| PLAIN.with_indexes(index);
    fill(&db, PLAIN, 50);
    assert!(matches!(db.begin().open_existing(def(&[&BY_CITY])), Err(Error::NoIndex { .. })));
    assert!(matches!(db.begin().open(DUPLICATE), Err(Error::TableName { .. })));
    db.run(|tx| tx.open(def(&[&BY_CITY])).map(drop)).unwrap();
    assert!(matches!(db.begin().open_existing(def(&[&NEWER])), Err(Error::IndexTypes { .. })));
    let reader = db.read();
    let refused = reader.open(PLAIN).unwrap().by_index(NEWER).map(drop).unwrap_err();
    let message = "index \"by city\" of table \"users\" has keys u32 of version 1, not keys u32 of version 2";
    assert!(refused.to_string().starts_with(message), "{refused}");
    let refused = db.run(|tx| tx.open(def(&[&UNIQUE])).map(drop));
    assert!(
        matches!(&refused, Err(Error::IndexKeyExists { index, .. }) if index.name.as_deref() == Some("users.by city")),
        "{refused:?}"
    );
    assert_eq!(db.read().open(PLAIN).unwrap().by_index(BY_CITY).unwrap().check().unwrap(), 50, "the old one is there");
    db.run(|tx| {
        let index = tx.open(def(&[&NEWER]))?.by_index(NEWER)?;
        assert_eq!((index.check()?, index.range(3..).count()), (50, 16));
        Ok::<_, Error>(())
    })
    .unwrap();
    db.run(|tx| {
        let users = tx.open(def(&[&TEXT]))?;
        users.put(1, ("", 77, ""))?;
        assert_eq!(users.by_index(TEXT)?.get("77")?.unwrap().0, 1);
        users.by_index(TEXT)?.check()
    })
    .unwrap();
    assert!(matches!(reader.open(PLAIN).unwrap().by_index(TEXT), Err(Error::IndexTypes { .. })), "its own is older");
    assert_eq!(reader.open(PLAIN).unwrap().by_index(BY_CITY).unwrap().check().unwrap(), 50);
    db.vacuum().unwrap();
    assert_eq!(db.check().unwrap().indexes, 1);
}

/// Each round one key, which one row gets, at whatever levels its writers run.
#[test]
fn exactly_one_writer_of_a_unique_key_succeeds() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(USERS).map(drop)).unwrap();
    let (threads, rounds) = (4, 40);
    let barrier = Barrier::new(threads);
    let winners: Vec<AtomicU64> = (0..rounds).map(|_| AtomicU64::new(0)).collect();
    // A panic in a round would leave the other threads at the barrier.
    let errors = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for thread in 0..threads {
            let (db, barrier, winners, errors) = (&db, &barrier, &winners, &errors);
            scope.spawn(move || {
                for (round, winner) in winners.iter().enumerate() {
                    let (id, email) = ((round * threads + thread) as u64, format!("{round}@x"));
                    barrier.wait();
                    let options = TxnOptions::new().isolation(ISOLATION_LEVELS[(round + thread) % 3]);
                    let inserted = db.run_with(options, |tx| {
                        let users = tx.open(USERS)?;
                        match round % 2 {
                            0 => users.insert_new(id, (&*email, thread as u32, "w")),
                            _ => users.put(id, ("", 0, "")).and_then(|()| users.put(id, (&*email, 1, "w"))),
                        }
                    });
                    match inserted {
                        Ok(()) => drop(winner.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::IndexKeyExists { .. }) => {}
                        Err(error) => errors.lock().unwrap().push(error),
                    }
                }
            });
        }
    });
    let errors = errors.into_inner().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
    assert!(winners.iter().all(|winner| winner.load(Ordering::Relaxed) == 1), "{winners:?}");
    let rows = check_all(&db);
    assert_eq!(rows.len(), rounds);
    db.check().unwrap();
}

/// Writers use both definitions, of which one is right at a time, while the indexes are built and dropped.
#[test]
fn no_entry_is_missing_after_writes_during_builds_and_drops() {
    let (db, _) = in_memory();
    fill(&db, PLAIN, 200);
    let is_over = AtomicBool::new(false);
    // Of each definition.
    let written = [const { AtomicU64::new(0) }; 2];
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (db, is_over, written) = (&db, &is_over, &written);
            scope.spawn(move || {
                for n in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (id, isolation) = (n * 7 % 200, ISOLATION_LEVELS[(n % 3) as usize]);
                    let email = format!("{thread} {id}@x");
                    let write = |def: TableDef<'_, u64, User>| {
                        db.run_with(TxnOptions::new().isolation(isolation), |tx| {
                            let users = tx.open_existing(def)?;
                            if n % 5 == 0 {
                                users.remove(id).map(drop)
                            } else {
                                users.put(id, (&*email, n as u32, "c d"))
                            }
                        })
                    };
                    for (def, written) in [PLAIN, USERS].into_iter().zip(written) {
                        match write(def) {
                            Ok(()) => drop(written.fetch_add(1, Ordering::Relaxed)),
                            Err(
                                Error::IndexUndeclared { .. } | Error::NoIndex { .. } | Error::IndexKeyExists { .. },
                            ) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
        let _ends = SetOnDrop(&is_over);
        for round in 0..12 {
            check_all(&db);
            if round % 3 == 2 {
                thread::yield_now();
            }
            db.run(|tx| {
                check_indexes(&tx.open(USERS)?)?;
                ["by email", "by city", "by word"].iter().try_for_each(|index| tx.drop_index("users", index).map(drop))
            })
            .unwrap();
        }
        db.run(|tx| tx.open(USERS).map(drop)).unwrap();
    });
    assert!(written.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{written:?}: both definitions were right");
    check_all(&db);
    db.check().unwrap();
}
