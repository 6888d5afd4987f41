//! The database opens before its losers are undone. Until a loser has ended, its rows are waited for, and all else is
//! in use. A crash in the middle of it loses nothing.

use crate::indexes::{BY_CITY, BY_EMAIL, OwnedUser, USERS, check_all, fill};
use crate::script::{LostCommit, Random, disk, lose_power, lost_commit, options};
use crate::support::{DIR, NUMBERS, POLICIES};
use foreshore::{Db, Error, Isolation, Locked, Options, RowLock, TableDef, TxnOptions};
use foreshore_io::Sim;
use foreshore_io::sim::Persist;
use foreshore_sync::pause;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const OTHERS: TableDef<u64, &[u8]> = TableDef::new("others");
const COUNT: u64 = 300;
/// A row that the loser does not change.
const FREE: u64 = 290;

type Others = BTreeMap<u64, Vec<u8>>;

/// Losers are undone beside new transactions, however few changes there are.
fn lazy(sim: &Sim) -> Options {
    options(sim).memory_limit(32 << 20).lab(|lab| lab.undo_waits_from = Some(0))
}

fn email(id: u64) -> String {
    format!("{id}@x")
}

/// What a killed process leaves: a large transaction over two tables and three indexes has no end.
fn killed(seed: u64) -> Sim {
    let sim = disk(seed);
    let db = options(&sim).memory_limit(32 << 20).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    fill(&db, USERS, COUNT);
    (0..COUNT).for_each(|key| put(&db, key, &[1; 300]));
    db.checkpoint().unwrap();
    let loser = db.begin();
    let (users, others) = (loser.open(USERS).unwrap(), loser.open(OTHERS).unwrap());
    for id in 0..100 {
        users.put(id, (&*email(id + 1000), 7, "c d")).unwrap();
        others.insert(id, &[2; 200][..]).unwrap();
    }
    (100..130).for_each(|id| drop(users.remove(id).unwrap()));
    (COUNT..COUNT + 40).for_each(|id| users.put(id, (&*email(id), 1, "a")).unwrap());
    // Some rows more than once.
    (0..20).for_each(|id| others.insert(id, &[3; 400][..]).map(drop).unwrap());
    db.sync().unwrap();
    sim.kill()
}

fn put(db: &Db, key: u64, value: &[u8]) {
    db.run(|tx| tx.open(OTHERS)?.insert(key, value).map(drop)).unwrap();
}

fn others(db: &Db) -> Others {
    let reader = db.read();
    let table = reader.open(OTHERS).unwrap();
    table.iter().map(|row| row.unwrap()).map(|(key, value)| (key, value.to_vec())).collect()
}

fn user(id: u64) -> (u64, OwnedUser) {
    (id, (email(id), id as u32 % 3, "a b".to_owned()))
}

/// Checks that all is as it was before the loser, but for `changed` rows of the table of others.
fn verify(db: &Db, changed: &Others) {
    let users: Vec<_> = check_all(db).into_iter().collect();
    assert!(users == (0..COUNT).map(user).collect::<Vec<_>>(), "the users are others: {} rows", users.len());
    let mut expected: Others = (0..COUNT).map(|key| (key, vec![1; 300])).collect();
    expected.extend(changed.clone());
    assert!(others(db) == expected, "the other rows are others");
    db.check().unwrap();
}

fn left(db: &Db) -> u64 {
    db.stats().recovery.pending_losers
}

fn hasty(label: &'static str, isolation: Isolation) -> TxnOptions {
    TxnOptions::new().label(label).isolation(isolation).lock_timeout(Duration::from_millis(20))
}

#[test]
fn all_but_the_rows_and_tables_of_a_loser_is_in_use_at_once() {
    let sim = killed(1);
    let db = lazy(&sim).open(DIR).unwrap();
    let opened = db.stats().recovery;
    assert_eq!((opened.losers, opened.pending_losers, opened.undone), (1, 1, 0));
    put(&db, FREE, &[9; 10]);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let tx = db.begin_with(hasty("reader", isolation));
        assert_eq!(tx.open(USERS).unwrap().get(FREE).unwrap(), Some(user(FREE).1));
        assert_eq!(tx.open(USERS).unwrap().by_index(BY_EMAIL).unwrap().get(&*email(FREE)).unwrap(), Some(user(FREE)));
        let others = tx.open(OTHERS).unwrap();
        for lock in [RowLock::update(), RowLock::share()] {
            match others.get_locked(3, lock.no_wait()) {
                Err(Error::RowLocked { holder, .. }) => assert_eq!(holder, "rollback at restart"),
                other => panic!("{other:?}"),
            }
            assert_eq!(others.get_locked(3, lock.skip_locked()).unwrap(), Locked::Skipped);
        }
        let mut skips = others.range_locked(.., RowLock::update().skip_locked());
        assert_eq!(skips.next().unwrap().unwrap().0, 100);
        drop(skips);
        tx.rollback().unwrap();
    }
    // It keeps others out of no table but for their drop.
    let tx = db.begin_with(hasty("drops", Isolation::Serializable));
    match tx.drop_table(OTHERS.name()) {
        Err(Error::LockTimeout { holder, .. }) => assert_eq!(holder, "rollback at restart"),
        other => panic!("{other:?}"),
    }
    tx.rollback().unwrap();
    assert_eq!((db.stats().recovery.undone, left(&db)), (0, 1));
    let oldest = db.stats().oldest_transaction.unwrap();
    assert_eq!(oldest.label, "rollback at restart");
    verify(&db, &[(FREE, vec![9; 10])].into());
    let after = db.stats().recovery;
    assert_eq!((after.losers, after.pending_losers, after.parked), (1, 0, 0));
    assert!(after.undone > 500, "{after:?}");
    db.run(|tx| tx.drop_table(OTHERS.name()).map(drop)).unwrap();
}

type Access = (&'static str, fn(&Db) -> Result<(), Error>);

const ACCESSES: &[Access] = &[
    ("get", |db| {
        assert_eq!(db.read().open(OTHERS)?.get(5)?.as_deref(), Some(&[1; 300][..]));
        Ok(())
    }),
    ("get of an inserted row", |db| {
        assert_eq!(db.read().open(USERS)?.get(COUNT + 3)?, None);
        Ok(())
    }),
    ("get of a deleted row", |db| {
        assert_eq!(db.read().open(USERS)?.get(110)?, Some(user(110).1));
        Ok(())
    }),
    ("many", |db| {
        let found = db.read().open(OTHERS)?.get_many(&[FREE, 5, 6])?;
        assert!(found.iter().all(|row| row.as_deref() == Some(&[1; 300][..])));
        Ok(())
    }),
    ("scan", |db| {
        let ids: Vec<u64> = db.read().open(USERS)?.iter().map(|row| Ok(row?.0)).collect::<Result<_, Error>>()?;
        assert_eq!(ids, (0..COUNT).collect::<Vec<_>>());
        Ok(())
    }),
    ("scan backwards", |db| {
        let ids: Vec<u64> = db.read().open(USERS)?.iter().rev().map(|row| Ok(row?.0)).collect::<Result<_, Error>>()?;
        assert_eq!(ids, (0..COUNT).rev().collect::<Vec<_>>());
        Ok(())
    }),
    ("read committed", |db| {
        let tx = db.begin_with(TxnOptions::new().isolation(Isolation::ReadCommitted));
        assert_eq!(tx.open(USERS)?.get(7)?, Some(user(7).1));
        tx.commit().map(drop)
    }),
    ("serializable get", |db| {
        db.run(|tx| {
            assert_eq!(tx.open(USERS)?.get(7)?, Some(user(7).1));
            Ok(())
        })
    }),
    ("serializable scan", |db| {
        db.run(|tx| {
            assert_eq!(tx.open(OTHERS)?.range(0..50).count(), 50);
            Ok(())
        })
    }),
    ("get for update", |db| {
        db.run(|tx| {
            assert_eq!(tx.open(USERS)?.get_for_update(7)?, Some(user(7).1));
            Ok(())
        })
    }),
    ("write", |db| {
        db.run(|tx| {
            assert_eq!(tx.open(OTHERS)?.insert(7, &[1; 300][..])?.as_deref(), Some(&[1; 300][..]));
            Ok(())
        })
    }),
    ("blind write", |db| db.run(|tx| tx.open(OTHERS)?.put(7, &[1; 300][..]))),
    ("remove", |db| {
        db.run(|tx| {
            let removed = tx.open(USERS)?.remove(7)?.expect("it is there");
            tx.open(USERS)?.put(7, (&*removed.0, removed.1, &*removed.2))
        })
    }),
    ("remove of a range", |db| {
        let tx = db.begin();
        assert_eq!(tx.open(OTHERS)?.remove_range(90..110)?, 20);
        tx.rollback()
    }),
    ("pop", |db| {
        let tx = db.begin();
        assert_eq!(tx.open(OTHERS)?.pop_first()?.map(|(key, _)| key), Some(0));
        tx.rollback()
    }),
    ("index", |db| {
        let tx = db.read();
        let users = tx.open(USERS)?;
        assert_eq!(users.by_index(BY_EMAIL)?.get(&*email(7))?, Some(user(7)));
        assert_eq!(users.by_index(BY_EMAIL)?.get(&*email(1007))?, None);
        assert_eq!(users.by_index(BY_CITY)?.range(7..8).count(), 0);
        Ok(())
    }),
    ("a key that the loser has taken", |db| {
        let tx = db.begin();
        tx.open(USERS)?.put(FREE, (&*email(1007), 0, ""))?;
        tx.rollback()
    }),
];

#[test]
fn each_access_to_a_row_of_a_loser_waits_for_its_end() {
    let sim = killed(2);
    for (what, access) in ACCESSES {
        let sim = sim.fork();
        let db = lazy(&sim).open(DIR).unwrap();
        assert_eq!((left(&db), db.stats().recovery.undone), (1, 0), "{what}");
        access(&db).unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert_eq!(left(&db), 0, "{what}");
        verify(&db, &Others::new());
        db.close(Duration::ZERO).unwrap();
        let db = lazy(&sim).open(DIR).unwrap();
        assert!(db.stats().recovery.was_clean, "{what}");
        verify(&db, &Others::new());
    }
}

/// Power is lost at operations from the start on, while the loser is undone beside commits and checkpoints, and again
/// behind the next start.
#[test]
fn commits_beside_a_loser_survive_power_loss() {
    let (mut beside, mut behind) = (0, 0);
    let seed = 3;
    let sim = killed(seed);
    let db = lazy(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
    let (from, mut random, mut over) = (sim.ops(), Random(seed), None);
    let mut changed = Others::new();
    let mut commits = vec![(from, changed.clone())];
    for n in 0..120 {
        let (key, value) = (1000 + random.below(200), vec![n as u8; 100 + random.below(1500) as usize]);
        put(&db, key, &value);
        changed.insert(key, value);
        commits.push((sim.ops(), changed.clone()));
        (0..4).for_each(|_| db.step());
        if n % 40 == 10 {
            db.checkpoint().unwrap();
        }
        over = over.or((left(&db) == 0).then(|| sim.ops()));
    }
    let over = over.expect("steps have undone all");
    drop(db);
    lose_power(&sim, (from, 11), |loss| {
        let durable = commits.partition_point(|&(at, _)| at <= loss.op);
        let open = |sim: &Sim, what: &str| {
            let options = if loss.op.is_multiple_of(3) { options(sim).memory_limit(32 << 20) } else { lazy(sim) };
            options.open(DIR).unwrap_or_else(|error| panic!("{what}: {error:?}"))
        };
        let db = open(&loss.image, &loss.what);
        (0..loss.op % 25).for_each(|_| db.step());
        let again = loss.image.crash_image(&POLICIES[loss.op as usize % POLICIES.len()], loss.op);
        let found: Others = others(&db).into_iter().filter(|&(key, _)| key >= 1000).collect();
        let mut possible = commits[durable.saturating_sub(1)..].iter().take(2);
        assert!(possible.any(|commit| commit.1 == found), "seed {seed}, {}", loss.what);
        verify(&db, &found);
        verify(&open(&again, "again"), &found);
        *(if loss.op < over { &mut beside } else { &mut behind }) += 1;
    });
    assert!(beside > 10 && behind > 3, "{beside} losses beside the loser, {behind} behind it");
}

/// A crash between any two changes that are undone beside others, and then a start of either kind.
#[test]
fn a_crash_between_two_changes_leaves_the_rest_to_the_next_start() {
    let sim = killed(6);
    let db = lazy(&sim).open(DIR).unwrap();
    let images = Rc::new(RefCell::new(Vec::new()));
    let (taken, disk, within) = (Rc::clone(&images), sim.clone(), db.clone());
    let mut count = 0;
    pause::set("restart: a change is taken back", move || {
        count += 1;
        if count % 60 == 1 {
            if count % 120 == 1 {
                within.sync().unwrap();
            }
            taken.borrow_mut().push(disk.crash_image(&Persist::None, count));
        }
    });
    verify(&db, &Others::new());
    pause::set("nowhere", || ());
    let images = images.take();
    assert!(images.len() > 5, "{} images", images.len());
    for (n, image) in images.iter().enumerate() {
        let db = if n % 2 == 0 { lazy(image) } else { options(image).memory_limit(32 << 20) }.open(DIR).unwrap();
        assert_eq!(left(&db), 0, "image {n}: the second start for one log undoes first");
        verify(&db, &Others::new());
    }
}

/// As in `crash.rs`: the lock of a later transaction hides the loser. The log does not know that transaction.
#[test]
fn a_lost_commit_under_the_lock_of_another_is_waited_for() {
    let mut lost = 0;
    for seed in 0..40 {
        let LostCommit { image, is_durable, went_home } = lost_commit(seed, false);
        let again = lazy(&image).open(DIR).unwrap();
        let is_left = left(&again) > 0;
        let found = again.read().open(NUMBERS).unwrap().get(1).unwrap();
        assert_eq!(found, Some(if is_durable { 20 } else { 10 }), "seed {seed}");
        again.run(|tx| tx.open(NUMBERS)?.insert(1, 30).map(drop)).unwrap();
        again.check().unwrap();
        lost += u32::from(!is_durable && went_home && is_left);
    }
    assert!(lost > 0, "no page went home with the lock alone");
}

/// A loser that has changed another row has locked the row of a lost commit, and is undone first. The row is not free
/// before the lost commit is undone, too.
#[test]
fn a_row_that_an_undone_loser_has_locked_stays_with_the_others() {
    let mut lost = 0;
    for seed in 0..40 {
        let LostCommit { image, is_durable, went_home } = lost_commit(seed, true);
        let again = lazy(&image).open(DIR).unwrap();
        if is_durable || !went_home || left(&again) < 2 {
            continue;
        }
        let (within, ends) = (again.clone(), Rc::new(RefCell::new(0)));
        let counted = Rc::clone(&ends);
        pause::set("restart: a loser has ended beside transactions", move || {
            *counted.borrow_mut() += 1;
            if *counted.borrow() == 1 {
                let tx = within.begin();
                let found = tx.open(NUMBERS).unwrap().get_locked(1, RowLock::update().no_wait());
                assert!(matches!(found, Err(Error::RowLocked { .. })), "seed {seed}: {found:?}");
                tx.rollback().unwrap();
            }
        });
        let get = |key| again.read().open(NUMBERS).unwrap().get(key).unwrap();
        assert_eq!([1, 2].map(get), [Some(10); 2], "seed {seed}");
        pause::set("nowhere", || ());
        assert_eq!((*ends.borrow(), left(&again)), (2, 0));
        again.run(|tx| tx.open(NUMBERS)?.insert(1, 30).map(drop)).unwrap();
        again.check().unwrap();
        lost += 1;
    }
    assert!(lost > 0, "no page went home with the lock alone");
}

/// Most changes of a loser are rolled back to a savepoint. When the one that is left is undone, nothing keeps the log
/// of the others, and checkpoints let it go before the undo is over.
#[test]
fn the_undo_reads_no_log_that_losers_do_not_need() {
    let sim = disk(12);
    let small = |sim: &Sim| lazy(sim).log_budget(8 << 20).lab(|lab| lab.segment_bytes = 1 << 20);
    let db = small(&sim).open(DIR).unwrap();
    (0..COUNT).for_each(|key| put(&db, key, &[1; 300]));
    db.checkpoint().unwrap();
    let loser = db.begin();
    let table = loser.open(OTHERS).unwrap();
    let savepoint = loser.savepoint().unwrap();
    (0..2000).for_each(|n| drop(table.insert(n % 200, &[n as u8; 600][..]).unwrap()));
    loser.rollback_to(&savepoint).unwrap();
    table.insert(7, &[2; 300][..]).unwrap();
    db.sync().unwrap();
    let image = sim.kill();
    let db = small(&image).open(DIR).unwrap();
    assert_eq!(left(&db), 1);
    let within = db.clone();
    pause::set("restart: a loser has ended beside transactions", move || {
        for n in 0..30_000 {
            put(&within, FREE, &[n as u8; 900]);
            if n % 2000 == 0 {
                within.checkpoint().unwrap();
            }
        }
        put(&within, FREE, &[1; 300]);
        within.checkpoint().unwrap();
    });
    verify_rows(&db);
    pause::set("nowhere", || ());
    assert_eq!((left(&db), db.stats().recovery.undone), (0, 1));
    db.close(Duration::ZERO).unwrap();
}

fn verify_rows(db: &Db) {
    let expected: Others = (0..COUNT).map(|key| (key, vec![1; 300])).collect();
    assert!(others(db) == expected, "the other rows are others");
}

#[test]
fn a_close_ends_the_undo_or_leaves_it_to_the_next_start() {
    let sim = killed(7);
    let patient = sim.fork();
    let db = lazy(&patient).open(DIR).unwrap();
    put(&db, FREE, &[9; 10]);
    db.close(Duration::from_secs(600)).unwrap();
    let db = lazy(&patient).open(DIR).unwrap();
    assert!(db.stats().recovery.was_clean);
    verify(&db, &[(FREE, vec![9; 10])].into());
    for closes in [true, false] {
        let sim = sim.fork();
        let db = lazy(&sim).open(DIR).unwrap();
        put(&db, FREE, &[9; 10]);
        let undone = db.stats().recovery.undone;
        if closes {
            db.close(Duration::ZERO).unwrap()
        } else {
            drop(db)
        };
        let db = lazy(&sim).open(DIR).unwrap();
        let stats = db.stats().recovery;
        assert_eq!((stats.was_clean, stats.pending_losers, undone), (false, 0, 0));
        assert!(stats.undone > 500);
        verify(&db, &[(FREE, vec![9; 10])].into());
    }
}

#[test]
fn a_vacuum_a_compaction_and_a_backup_bear_the_undo() {
    let sim = killed(8);
    let db = lazy(&sim).open(DIR).unwrap();
    db.backup("/copy").unwrap();
    db.vacuum().unwrap();
    assert_eq!(left(&db), 1);
    verify(&lazy(&sim).open("/copy").unwrap(), &Others::new());
    db.check().unwrap();
    db.compact().unwrap();
    verify(&db, &Others::new());
}

/// A few changes, a change of the catalogue, or a database without threads: all is undone before the open.
#[test]
fn where_it_does_not_pay_losers_are_undone_before_the_open() {
    let sim = killed(9);
    let db = options(&sim.fork()).memory_limit(32 << 20).open(DIR).unwrap();
    assert_eq!(left(&db), 0);
    assert!(db.stats().recovery.undone > 500);
    let db = options(&sim).memory_limit(32 << 20).lab(|lab| lab.background = true).open(DIR).unwrap();
    assert_eq!(left(&db), 0, "it is a small one");
    let loser = db.begin();
    loser.open(NUMBERS).unwrap().insert(1, 1).unwrap();
    db.sync().unwrap();
    let db = lazy(&sim.kill()).open(DIR).unwrap();
    assert_eq!((left(&db), db.stats().recovery.losers), (0, 1), "it has created a table");
}
