//! A transaction rolls back to a savepoint and continues: rows, tables and versions are as before, and the locks stay.

use crate::{
    script::{Script, disk, options},
    support::{DIR, NUMBERS, TEXTS, fill, in_memory, numbers, small},
};
use foreshore::{Db, Error, Isolation, ReadOptions, TableDef, Transaction, TxnOptions};
use foreshore_io::{Mem, sim::Persist};
use std::{sync::Arc, time::Duration};

const OTHER: TableDef<u64, i64> = TableDef::new("other");

fn hasty() -> TxnOptions {
    TxnOptions::new().lock_timeout(Duration::ZERO)
}

fn rows(tx: &Transaction) -> Vec<(u64, i64)> {
    tx.open(NUMBERS).unwrap().iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_transaction_can_go_back_to_a_savepoint_again_but_not_behind_and_forward() {
    let (db, _) = in_memory();
    fill(&db, 3);
    let tx = db.begin();
    let first = tx.savepoint().unwrap();
    tx.open(NUMBERS).unwrap().insert(0, 10).unwrap();
    let second = tx.savepoint().unwrap();
    for round in 0..3 {
        let table = tx.open(NUMBERS).unwrap();
        table.remove(0).unwrap();
        table.insert(1, round).unwrap();
        table.insert(1, round + 1).unwrap();
        table.insert_new(7, round).unwrap();
        let inner = tx.savepoint().unwrap();
        table.insert(7, 70).unwrap();
        tx.rollback_to(&inner).unwrap();
        assert_eq!(rows(&tx), [(1, round + 1), (2, 2), (7, round)]);
        tx.rollback_to(&second).unwrap();
        assert_eq!(rows(&tx), [(0, 10), (1, 1), (2, 2)]);
        assert!(matches!(tx.rollback_to(&inner), Err(Error::NoSavepoint)), "undone with what came after the second");
    }
    tx.rollback_to(&first).unwrap();
    assert_eq!(rows(&tx), [(0, 0), (1, 1), (2, 2)]);
    assert!(matches!(tx.rollback_to(&second), Err(Error::NoSavepoint)));
    let other = db.begin();
    assert!(matches!(other.rollback_to(&first), Err(Error::NoSavepoint)), "another transaction's");
    tx.open(NUMBERS).unwrap().insert(2, 20).unwrap();
    tx.commit().unwrap();
    assert_eq!(other.open(NUMBERS).unwrap().get(2).unwrap(), Some(20), "neither transaction has ended by the refusals");
    other.commit().unwrap();
    assert_eq!(numbers(&db), [(0, 0), (1, 1), (2, 20)]);
    db.check().unwrap();
}

#[test]
fn a_whole_rollback_after_one_in_part_leaves_nothing() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(5, 50).unwrap();
    let savepoint = tx.savepoint().unwrap();
    table.insert(0, 10).unwrap();
    table.remove(1).unwrap();
    table.insert(6, 60).unwrap();
    assert_eq!(table.get_for_update(5).unwrap(), Some(50));
    tx.rollback_to(&savepoint).unwrap();
    // Rows that are locked by what was taken back, changed again.
    table.insert(1, 11).unwrap();
    table.insert(6, 66).unwrap();
    tx.rollback().unwrap();
    assert_eq!(numbers(&db), [(0, 0), (1, 1)]);
    // And nothing is locked.
    let tx = db.begin_with(hasty());
    let table = tx.open(NUMBERS).unwrap();
    (0..8).for_each(|key| assert!(table.insert(key, 9).unwrap().is_none_or(|old| old < 2)));
    tx.commit().unwrap();
    db.check().unwrap();
}

#[test]
fn the_locks_of_what_is_taken_back_stay() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(3, 30).unwrap();
    table.insert(3, 31).unwrap();
    table.remove(4).unwrap();
    table.insert_new(20, 20).unwrap();
    assert_eq!(table.get_for_update(5).unwrap(), Some(5));
    for _ in 0..2 {
        tx.rollback_to(&savepoint).unwrap();
        for key in [3, 4, 5, 20] {
            let other = db.begin_with(hasty());
            let refused = other.open(NUMBERS).unwrap().insert(key, 1);
            assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{key}: {refused:?}");
        }
        let other = db.begin_with(hasty());
        other.open(NUMBERS).unwrap().insert(6, 6).unwrap();
        other.commit().unwrap();
        tx.open(NUMBERS).unwrap().insert(4, 44).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(numbers(&db)[3..6], [(3, 3), (4, 44), (5, 5)]);
    let other = db.begin_with(hasty());
    let table = other.open(NUMBERS).unwrap();
    assert_eq!(table.insert(3, 1).unwrap(), Some(3));
    table.insert_new(20, 1).unwrap();
    other.commit().unwrap();
    db.check().unwrap();
}

#[test]
fn readers_see_what_was_before_the_transaction_at_all_times() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let before = db.read();
    let see = |reader: &foreshore::ReadTransaction| {
        let table = reader.open(NUMBERS).unwrap();
        let all = table.iter().collect::<Result<Vec<_>, _>>().unwrap();
        assert!((0..12).all(|key| table.get(key).unwrap() == all.iter().find(|row| row.0 == key).map(|row| row.1)));
        all
    };
    let old = numbers(&db);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(1, 10).unwrap();
    let savepoint = tx.savepoint().unwrap();
    for round in 0..3 {
        table.insert(1, 11 + round).unwrap();
        table.insert(2, 20).unwrap();
        table.remove(3).unwrap();
        table.insert(11, 1).unwrap();
        assert_eq!(see(&db.read()), old);
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!((see(&before), see(&db.read())), (old.clone(), old.clone()));
    }
    let during = db.read_with(ReadOptions::new().latest());
    tx.commit().unwrap();
    let mut new = old.clone();
    new[1] = (1, 10);
    assert_eq!((see(&before), see(&during), see(&db.read())), (old.clone(), old.clone(), new));
    // The locks that were kept lie between the versions now.
    db.run(|tx| (1..4).try_for_each(|key| tx.open(NUMBERS)?.insert(key, 99).map(drop))).unwrap();
    assert_eq!((see(&before), see(&during)), (old.clone(), old));
}

#[test]
fn at_weaker_levels_too_the_first_writer_keeps_its_rows() {
    for isolation in [Isolation::Snapshot, Isolation::ReadCommitted] {
        let (db, _) = in_memory();
        fill(&db, 3);
        let tx = db.begin_with(TxnOptions::new().isolation(isolation));
        let savepoint = tx.savepoint().unwrap();
        tx.open(NUMBERS).unwrap().insert(1, 10).unwrap();
        tx.open(NUMBERS).unwrap().insert(8, 80).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        assert_eq!(rows(&tx), [(0, 0), (1, 1), (2, 2)]);
        let other = db.begin_with(hasty().isolation(isolation));
        assert_eq!(rows(&other), [(0, 0), (1, 1), (2, 2)]);
        let refused = other.open(NUMBERS).unwrap().insert(8, 1);
        assert!(matches!(refused, Err(Error::LockTimeout { .. })), "{isolation}: {refused:?}");
        tx.open(NUMBERS).unwrap().insert(8, 81).unwrap();
        tx.commit().unwrap();
        assert_eq!(numbers(&db), [(0, 0), (1, 1), (2, 2), (8, 81)]);
    }
}

#[test]
fn tables_come_back_and_go_with_what_is_taken_back() {
    let (db, fs) = in_memory();
    fill(&db, 5);
    let free = |db: &Db| {
        db.vacuum().unwrap();
        db.check().unwrap()
    };
    free(&db);
    let tx = db.begin();
    let start = tx.savepoint().unwrap();
    tx.open(TEXTS).unwrap().insert("kept", "x").unwrap();
    let kept = tx.savepoint().unwrap();
    // Created and filled.
    let other = tx.open(OTHER).unwrap();
    (0..2000).for_each(|key| other.insert_new(key, 1).unwrap());
    // Dropped: one of this transaction, one that was there, and one that it has just created.
    assert!(tx.drop_table(TEXTS.name()).unwrap());
    assert!(tx.drop_table(NUMBERS.name()).unwrap());
    assert!(tx.drop_table(OTHER.name()).unwrap());
    // Created anew under old names.
    assert_eq!(tx.open(TEXTS).unwrap().get("kept").unwrap(), None);
    tx.open(NUMBERS).unwrap().insert(100, 1).unwrap();
    tx.rollback_to(&kept).unwrap();
    assert_eq!(tx.open(TEXTS).unwrap().get("kept").unwrap().as_deref(), Some("x"));
    assert_eq!(rows(&tx), (0..5).map(|n| (n, n as i64)).collect::<Vec<_>>());
    assert_eq!(tx.open(OTHER).unwrap().iter().count(), 0, "created anew");
    tx.rollback_to(&kept).unwrap();
    tx.open(TEXTS).unwrap().insert("too", "y").unwrap();
    tx.rollback_to(&kept).unwrap();
    tx.rollback_to(&start).unwrap();
    tx.open(TEXTS).unwrap().insert("after", "z").unwrap();
    tx.commit().unwrap();
    let texts = |db: &Db| db.run(|tx| tx.open(TEXTS)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap();
    let wanted = [("after".to_owned(), "z".to_owned())];
    assert_eq!((texts(&db), numbers(&db).len()), (wanted.to_vec(), 5));
    assert!(matches!(db.read().open(OTHER), Err(Error::NoTable { .. })), "nobody was told of it");
    free(&db);
    db.close(Duration::ZERO).unwrap();
    let db = crate::support::open(&fs).unwrap();
    assert_eq!((texts(&db), numbers(&db).len()), (wanted.to_vec(), 5));
    assert!(matches!(db.read().open(OTHER), Err(Error::NoTable { .. })));
    free(&db);
}

#[test]
fn a_table_that_is_gone_with_its_creation_says_so() {
    let (db, _) = in_memory();
    for iterate in [false, true] {
        let tx = db.begin();
        let savepoint = tx.savepoint().unwrap();
        let table = tx.open(OTHER).unwrap();
        (0..10).for_each(|key| table.insert_new(key, 1).unwrap());
        let mut range = table.iter();
        assert!(range.next().unwrap().is_ok());
        tx.rollback_to(&savepoint).unwrap();
        // Its pages may belong to this one.
        let fresh = tx.open(NUMBERS).unwrap();
        fresh.insert(1, 1).unwrap();
        let outcome = if iterate { range.next().unwrap().map(drop) } else { table.insert(3, 3).map(drop) };
        assert!(matches!(outcome, Err(Error::TableDropped { .. })), "{outcome:?}");
        assert!(matches!(tx.savepoint(), Err(Error::RolledBack)));
    }
    assert_eq!(numbers(&db), []);
    db.check().unwrap();
}

#[test]
fn going_back_takes_no_more_memory_each_time() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    let table = tx.open(NUMBERS).unwrap();
    // All of it would take many times the memory that there is for undo.
    for round in 0..100_000 {
        assert_eq!(table.insert(1, round).unwrap(), Some(1));
        assert_eq!(table.insert(2, round).unwrap(), Some(2));
        tx.rollback_to(&savepoint).unwrap();
    }
    tx.commit().unwrap();
    assert_eq!(numbers(&db)[..3], [(0, 0), (1, 1), (2, 2)]);
}

#[test]
fn an_iteration_goes_on_over_what_is_there_now() {
    let (db, _) = in_memory();
    fill(&db, 5);
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(10, 10).unwrap();
    let savepoint = tx.savepoint().unwrap();
    table.remove(3).unwrap();
    table.insert(7, 7).unwrap();
    let mut range = table.range(1..);
    assert_eq!([range.next().unwrap().unwrap().0, range.next().unwrap().unwrap().0], [1, 2]);
    tx.rollback_to(&savepoint).unwrap();
    assert_eq!(range.map(|row| row.unwrap().0).collect::<Vec<_>>(), [3, 4, 10]);
}

#[test]
fn power_lost_in_any_operation_of_transactions_that_go_back() {
    const POLICIES: [Persist; 4] = [Persist::None, Persist::All, Persist::RandomHalf, Persist::Torn];
    for seed in 1..=3 {
        let sim = disk(seed);
        let mut script = Script::new(&sim, seed);
        let db = options(&sim).lab(|lab| lab.step_seed = seed).open(DIR).unwrap();
        script.run(&db, 25).unwrap();
        let mut points = sim.crash_points();
        loop {
            let op = points.op();
            let policy = &POLICIES[op as usize % POLICIES.len()];
            let db = options(&points.image(policy, op)).open(DIR).unwrap();
            script.verify(&db, op).unwrap_or_else(|why| panic!("seed {seed}, lost in {op}, {policy:?}: {why}"));
            if !points.advance() {
                break;
            }
        }
    }
}

/// Each round changes more than a chunk of undo holds, and all rounds together many times what there is.
#[test]
fn going_back_over_large_changes_takes_no_more_memory_each_time_and_kills_no_reader() {
    let db = small().memory_limit(32 << 20).lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open(DIR).unwrap();
    let mut random = 1_u64;
    let mut text = || {
        let mut letter = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'a' + (random >> 60) as u8)
        };
        (0..2 << 10).map(|_| letter()).collect::<String>()
    };
    let keys: Vec<String> = (0..8).map(|n| format!("row {n}")).collect();
    let texts: Vec<String> = keys.iter().map(|_| text()).collect();
    let write = |tx: &Transaction, texts: &[String]| {
        let table = tx.open(TEXTS)?;
        keys.iter().zip(texts).try_for_each(|(key, text)| table.insert(&key[..], &text[..]).map(drop))
    };
    let read = |reader: &foreshore::ReadTransaction| {
        let table = reader.open(TEXTS).unwrap();
        keys.iter().map(|key| table.get(&key[..]).unwrap().expect("a row")).collect::<Vec<String>>()
    };
    db.run(|tx| write(tx, &texts)).unwrap();
    let reader = db.read();
    assert_eq!(read(&reader), texts);
    db.run(|tx| write(tx, &keys)).unwrap();
    let tx = db.begin();
    let savepoint = tx.savepoint().unwrap();
    for _ in 0..500 {
        let texts: Vec<String> = keys.iter().map(|_| text()).collect();
        write(&tx, &texts).unwrap();
        tx.rollback_to(&savepoint).unwrap();
    }
    assert_eq!(read(&reader), texts);
    tx.commit().unwrap();
    assert_eq!(read(&db.read()), keys);
    db.check().unwrap();
}
