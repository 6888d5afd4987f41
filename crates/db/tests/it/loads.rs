//! A load of sorted rows is whole or absent: after an error, a rollback, and a loss of power at any operation. Indexes
//! and large values come with it, and readers beside it see the state before.

use crate::script::{Random, disk};
use crate::support::{DIR, POLICIES, in_memory, open, small};
use foreshore::{
    Db, Error, IndexDef, Isolation, LoadOptions, Options, Savepoint, Table, TableDef, Transaction, TxnOptions,
};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

type Rows = BTreeMap<u64, Vec<u8>>;

/// The first byte of the value.
const BY_FIRST: IndexDef<u64, &[u8], u8> =
    IndexDef::new("by first", |_, value: &Vec<u8>, keys| value.first().into_iter().for_each(|byte| keys.add(*byte)));
/// Values that begin with 255 differ in their second byte.
const BY_SECOND: IndexDef<u64, &[u8], u8> = IndexDef::unique("by second", |_, value: &Vec<u8>, keys| {
    if let [255, second, ..] = value[..] {
        keys.add(second);
    }
});
const PLAIN: TableDef<u64, &[u8]> = TableDef::new("plain");
const INDEXED: TableDef<u64, &[u8]> = TableDef::<u64, &[u8]>::new("indexed").with_indexes(&[&BY_FIRST, &BY_SECOND]);

fn value(key: u64, len: usize) -> Vec<u8> {
    vec![key as u8 % 200; len]
}

fn rows(keys: std::ops::Range<u64>, len: usize) -> Rows {
    keys.map(|key| (key, value(key, len))).collect()
}

fn load(table: &Table<'_, u64, &[u8]>, rows: &Rows) -> Result<u64, Error> {
    table.load(rows.iter().map(|(key, value)| (key, &value[..])))
}

/// Returns all rows, and checks the indexes.
fn contents(tx: &Transaction, def: TableDef<u64, &'static [u8]>) -> Result<Rows, Error> {
    let table = tx.open(def)?;
    let found: Rows = table.iter().collect::<Result<_, _>>()?;
    if def.name() == INDEXED.name() {
        assert_eq!(table.by_index(BY_FIRST)?.check()?, found.values().filter(|value| !value.is_empty()).count() as u64);
        table.by_index(BY_SECOND)?.check()?;
    }
    Ok(found)
}

fn read(db: &Db) -> Rows {
    db.read().open(PLAIN).unwrap().iter().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_load_of_many_rows_takes_pages_and_no_record_for_each() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = Options::new().memory_limit(32 << 20).lab(|lab| lab.fs = Some(Arc::clone(&fs))).open(DIR).unwrap();
    let all = rows(0..20_000, 100);
    let before = db.stats();
    assert_eq!(db.run(|tx| load(&tx.open(PLAIN)?, &all)).unwrap(), 20_000);
    let stats = db.stats();
    let log = stats.log.record_bytes - before.log.record_bytes;
    assert!(log < 20_000 * 150, "{log} bytes of log");
    assert!(stats.tree.loaded_leaves > 300, "{:?}", stats.tree);
    assert_eq!(read(&db), all);
    db.check().unwrap();
    db.close(Duration::from_secs(10)).unwrap();
}

#[test]
fn a_refused_load_changes_nothing_and_the_transaction_goes_on() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let plain = tx.open(PLAIN)?;
        plain.put(7, &b"first"[..])?;
        let mut wrong = rows(8..2000, 50).into_iter().collect::<Vec<_>>();
        wrong.push((1999, Vec::new()));
        let refused = plain.load(wrong.iter().map(|(key, value)| (key, &value[..])));
        let Err(Error::LoadOrder { row: 1992, table, key }) = &refused else { panic!("{refused:?}") };
        assert_eq!((table.name.as_deref(), &**key), (Some("plain"), &1999_u64.to_be_bytes()[..]));
        assert!(refused.unwrap_err().to_string().contains("row 1992 of a load is not above"));
        let refused = plain.load([(7_u64, &b""[..])]);
        assert!(matches!(refused, Err(Error::LoadOrder { row: 0, .. })), "{refused:?}");
        let too_large = vec![0; foreshore::limits::MAX_VALUE + 1];
        let refused = plain.load([(8_u64, &b"x"[..]), (9, &too_large)]);
        assert!(matches!(refused, Err(Error::ValueTooLarge { .. })), "{refused:?}");
        assert_eq!(plain.len()?, 1);
        assert_eq!(load(&plain, &rows(8..300, 50))?, 292);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(read(&db).len(), 293);
    let refused = db.run(|tx| tx.open(PLAIN)?.load_with(LoadOptions::new().fill_percent(5), [(1_u64, &b""[..])]));
    assert!(matches!(refused, Err(Error::InvalidOption { .. })), "{refused:?}");
    db.check().unwrap();
}

#[test]
fn a_unique_key_that_is_taken_refuses_the_whole_load() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(INDEXED)?;
        load(&table, &rows(0..500, 40))?;
        table.put(500, &[255, 9][..])?;
        let mut more = rows(501..900, 40);
        more.insert(850, vec![255, 9, 1]);
        let refused = load(&table, &more);
        assert!(matches!(refused, Err(Error::IndexKeyExists { .. })), "{refused:?}");
        assert_eq!(contents(tx, INDEXED)?.len(), 501);
        more.insert(850, vec![255, 10, 1]);
        load(&table, &more)?;
        assert_eq!(contents(tx, INDEXED)?.len(), 900);
        Ok::<_, Error>(())
    })
    .unwrap();
    db.check().unwrap();
}

#[test]
fn the_iterator_may_use_the_transaction() {
    let (db, _) = in_memory();
    db.run(|tx| load(&tx.open(INDEXED)?, &rows(0..1000, 30)).map(drop)).unwrap();
    db.run(|tx| {
        let (from, to) = (tx.open(INDEXED)?, tx.open(PLAIN)?);
        let mut copied = from.iter().map(Result::unwrap);
        assert_eq!(to.load_owned(LoadOptions::new(), std::iter::from_fn(|| copied.next()))?, 1000);
        // It writes the table itself: a row that is not in the way, and one that is.
        let more = (1000..3000_u64).inspect(|&key| {
            if key == 1500 {
                to.put(5000, &b"beyond"[..]).unwrap();
            }
        });
        assert_eq!(to.load_owned(LoadOptions::new(), more.map(|key| (key, value(key, 20))))?, 2000);
        let savepoint = tx.savepoint()?;
        let more = (6000..8000_u64).inspect(|&key| {
            if key == 6500 {
                to.put(7500, &b"between"[..]).unwrap();
            }
        });
        let refused = to.load_owned(LoadOptions::new(), more.map(|key| (key, value(key, 20))));
        assert!(matches!(refused, Err(Error::KeyExists { .. })), "{refused:?}");
        tx.rollback_to(&savepoint)?;
        assert_eq!(to.len()?, 3001);
        Ok::<_, Error>(())
    })
    .unwrap();
    db.check().unwrap();
    let tx = db.begin();
    let plain = tx.open(PLAIN).unwrap();
    let more = (10_000..12_000_u64).inspect(|&key| assert!(key < 11_990));
    let rest =
        catch_unwind(AssertUnwindSafe(|| plain.load_owned(LoadOptions::new(), more.map(|key| (key, value(key, 20))))));
    assert!(rest.is_err(), "the iterator panics");
    assert!(matches!(tx.commit(), Err(Error::RolledBack)), "a part of a load does not commit");
    assert_eq!(read(&db).len(), 3001);
    db.check().unwrap();
}

#[test]
fn snapshots_do_not_wait_for_a_load_and_others_do() {
    let (db, _) = in_memory();
    let old = rows(0..100, 40);
    db.run(|tx| load(&tx.open(PLAIN)?, &old).map(drop)).unwrap();
    let before = db.read();
    let tx = db.begin_with(TxnOptions::new().label("loader"));
    load(&tx.open(PLAIN).unwrap(), &rows(100..3000, 40)).unwrap();
    let seen =
        |read: &foreshore::ReadTransaction| read.open(PLAIN).unwrap().iter().collect::<Result<Rows, _>>().unwrap();
    assert_eq!(seen(&before), old);
    assert_eq!(seen(&db.read()), old);
    for isolation in [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::Serializable] {
        let options = || TxnOptions::new().isolation(isolation).lock_timeout(Duration::ZERO);
        let other = db.begin_with(options());
        let refused = other.open(PLAIN).and_then(|table| table.put(1, &b"x"[..]));
        assert!(matches!(refused, Err(Error::LockTimeout { holder: "loader", .. })), "{refused:?}");
        let other = db.begin_with(options());
        let got = other.open(PLAIN).and_then(|table| table.get(150));
        match isolation {
            Isolation::Serializable => assert!(matches!(got, Err(Error::LockTimeout { holder: "loader", .. }))),
            _ => assert_eq!(got.unwrap(), None),
        }
    }
    tx.commit().unwrap();
    assert_eq!(seen(&before), old, "the commit changes nothing");
    assert_eq!(seen(&db.read()).len(), 3000);
    // A reader at serializable keeps a load out.
    let reader = db.begin_with(TxnOptions::new().label("reader"));
    reader.open(PLAIN).unwrap().get(5).unwrap();
    let tx = db.begin_with(TxnOptions::new().lock_timeout(Duration::ZERO));
    let refused = tx.open(PLAIN).and_then(|table| load(&table, &rows(3000..3100, 40)));
    assert!(matches!(refused, Err(Error::LockTimeout { holder: "reader", .. })), "{refused:?}");
}

#[test]
fn the_pages_of_a_load_that_is_rolled_back_become_free() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| (lab.background, lab.fs) = (false, Some(fs))).open(DIR).unwrap();
    db.run(|tx| load(&tx.open(PLAIN)?, &rows(0..200, 100)).map(drop)).unwrap();
    let used = |db: &Db| {
        (0..200).for_each(|_| db.step());
        db.vacuum().unwrap();
        db.check().unwrap();
        db.stats().space.used_pages
    };
    let before = used(&db);
    for _ in 0..3 {
        let tx = db.begin();
        let mut more = rows(200..10_000, 100);
        more.insert(5000, vec![1; 100_000]);
        load(&tx.open(PLAIN).unwrap(), &more).unwrap();
        assert!(db.stats().space.used_pages > before + 100);
        tx.rollback().unwrap();
        let after = used(&db);
        assert!(after <= before + 2, "{after} pages are used, {before} before");
    }
    assert_eq!(read(&db).len(), 200);
}

#[test]
fn a_full_disk_ends_a_load_and_loses_nothing() {
    for after in (0..200).step_by(7) {
        let sim = disk(3);
        let db = crate::script::open(&sim).unwrap();
        let old = rows(0..300, 100);
        db.run(|tx| load(&tx.open(PLAIN)?, &old).map(drop)).unwrap();
        sim.inject(Fault { at: sim.ops() + after, kind: FaultKind::Enospc, sticky: true });
        let mut from = 300;
        let error = loop {
            match db.run(|tx| load(&tx.open(PLAIN)?, &rows(from..from + 2000, 100))) {
                Ok(count) => from += count,
                Err(error) => break error,
            }
            db.step();
            assert!(from < 100_000, "the disk was never full");
        };
        assert!(matches!(error, Error::DiskFull { .. }), "{error:?}");
        assert_eq!(read(&db), rows(0..from, 100));
        sim.clear_faults();
        db.run(|tx| load(&tx.open(PLAIN)?, &rows(from..from + 500, 100)).map(drop)).unwrap();
        db.check().unwrap();
        let db = db.reopen().unwrap();
        assert_eq!(read(&db), rows(0..from + 500, 100));
        db.check().unwrap();
    }
}

#[test]
fn a_prepared_load_outlives_restarts() {
    for commits in [true, false] {
        let (db, fs) = in_memory();
        let old = rows(0..50, 40);
        db.run(|tx| load(&tx.open(INDEXED)?, &old).map(drop)).unwrap();
        let tx = db.begin();
        let table = tx.open(INDEXED).unwrap();
        let mut after = old.clone();
        let mut more = rows(50..1200, 40);
        more.insert(600, vec![3; 30_000]);
        load(&table, &more).unwrap();
        after.extend(more);
        // Changes, removals and inserts among the loaded rows, and a lock that stays behind a savepoint.
        for key in (100..400).step_by(3) {
            table.put(key, &[9; 60][..]).unwrap();
            after.insert(key, vec![9; 60]);
            table.remove(key + 1).unwrap();
            after.remove(&(key + 1));
        }
        let savepoint = tx.savepoint().unwrap();
        table.remove(500).unwrap();
        table.put(101, &b"again"[..]).unwrap();
        tx.rollback_to(&savepoint).unwrap();
        table.put(2000, &b"beyond"[..]).unwrap();
        after.insert(2000, b"beyond".to_vec());
        tx.prepare("load").unwrap();
        let mut db = db;
        for _ in 0..3 {
            let seen: Rows = db.read().open(INDEXED).unwrap().iter().collect::<Result<_, _>>().unwrap();
            assert_eq!(seen, old);
            db.close(Duration::from_secs(10)).unwrap();
            db = open(&fs).unwrap();
        }
        if commits {
            db.commit_prepared("load").unwrap();
        } else {
            db.rollback_prepared("load").unwrap();
        }
        for _ in 0..2 {
            let seen = db.run(|tx| contents(tx, INDEXED)).unwrap();
            assert_eq!(seen, if commits { after.clone() } else { old.clone() });
            db.check().unwrap();
            db.close(Duration::from_secs(10)).unwrap();
            db = open(&fs).unwrap();
        }
    }
}

#[test]
fn a_refused_load_undoes_what_its_iterator_has_done_to_tables() {
    const OLD: TableDef<u64, &[u8]> = TableDef::new("old");
    const NEW: TableDef<u64, &[u8]> = TableDef::new("new");
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small().lab(|lab| (lab.background, lab.fs) = (false, Some(Arc::clone(&fs)))).open(DIR).unwrap();
    let old = rows(0..500, 50);
    db.run(|tx| load(&tx.open(OLD)?, &old).map(drop)).unwrap();
    let tx = db.begin();
    let plain = tx.open(PLAIN).unwrap();
    let unsorted = (0..1000_u64).chain([5]).inspect(|&key| match key {
        600 => assert!(tx.drop_table("old").unwrap()),
        700 => tx.open(NEW).unwrap().put(1, &b"x"[..]).unwrap(),
        _ => {}
    });
    let refused = plain.load_owned(LoadOptions::new(), unsorted.map(|key| (key, value(key, 20))));
    assert!(matches!(refused, Err(Error::LoadOrder { row: 1000, .. })), "{refused:?}");
    assert_eq!(tx.open(OLD).unwrap().len().unwrap(), 500);
    tx.open(PLAIN).unwrap().put(3, &b"y"[..]).unwrap();
    tx.commit().unwrap();
    (0..200).for_each(|_| db.step());
    db.vacuum().unwrap();
    for _ in 0..2 {
        let found: Rows = db.read().open(OLD).unwrap().iter().collect::<Result<_, _>>().unwrap();
        assert_eq!(found, old);
        assert!(matches!(db.read().open(NEW), Err(Error::NoTable { .. })));
    }
    db.check().unwrap();
    db.run(|tx| tx.open(NEW)?.put(1, &b"x"[..])).unwrap();
    db.check().unwrap();
}

#[test]
fn a_load_whose_rows_the_iterator_rolls_back_is_refused() {
    let (db, _) = in_memory();
    db.run(|tx| {
        let plain = tx.open(PLAIN)?;
        plain.put(0, &b"first"[..])?;
        let mut inner = None;
        let undone = (1..5000_u64).inspect(|&key| match key {
            1000 => inner = Some(tx.savepoint().unwrap()),
            3000 => tx.rollback_to(inner.as_ref().unwrap()).unwrap(),
            _ => {}
        });
        let refused = plain.load_owned(LoadOptions::new(), undone.map(|key| (key, value(key, 20))));
        assert!(matches!(refused, Err(Error::NoSavepoint)), "{refused:?}");
        assert_eq!(plain.len()?, 1);
        // A savepoint behind all rows that are loaded so far undoes none of them.
        let harmless = (1..5000_u64).inspect(|_| tx.rollback_to(&tx.savepoint().unwrap()).unwrap());
        assert_eq!(plain.load_owned(LoadOptions::new(), harmless.map(|key| (key, value(key, 20))))?, 4999);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(read(&db).len(), 5000);
    let tx = db.begin();
    let (savepoint, plain) = (tx.savepoint().unwrap(), tx.open(PLAIN).unwrap());
    let undone = (5000..9000_u64).inspect(|&key| {
        if key == 8000 {
            tx.rollback_to(&savepoint).unwrap();
        }
    });
    let refused = plain.load_owned(LoadOptions::new(), undone.map(|key| (key, value(key, 20))));
    assert!(matches!(refused, Err(Error::NoSavepoint)), "{refused:?}");
    assert!(matches!(tx.commit(), Err(Error::RolledBack)));
    assert_eq!(read(&db).len(), 5000);
    db.check().unwrap();
}

#[test]
fn a_panic_in_a_write_of_the_iterator_keeps_the_transaction_from_committing() {
    const PANICS: IndexDef<u64, &[u8], u8> =
        IndexDef::new("panics", |key: &u64, _, keys| keys.add(if *key == 7 { panic!("as planned") } else { 1 }));
    const OTHER: TableDef<u64, &[u8]> = TableDef::<u64, &[u8]>::new("other").with_indexes(&[&PANICS]);
    let (db, _) = in_memory();
    let tx = db.begin();
    let (plain, other) = (tx.open(PLAIN).unwrap(), tx.open(OTHER).unwrap());
    let caught = (0..2000_u64).inspect(|&key| {
        if key == 1000 {
            assert!(catch_unwind(AssertUnwindSafe(|| other.put(7, &b"x"[..]))).is_err());
        }
    });
    assert_eq!(plain.load_owned(LoadOptions::new(), caught.map(|key| (key, value(key, 20)))).unwrap(), 2000);
    assert!(matches!(tx.commit(), Err(Error::RolledBack)));
    db.check().unwrap();
}

/// A restart needs as little memory for a load as the run before.
#[test]
fn a_large_prepared_load_opens_again() {
    const KEYS: TableDef<u64, ()> = TableDef::new("keys");
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = || {
        let fs = Arc::clone(&fs);
        Options::new().memory_limit(8 << 20).lab(|lab| (lab.fs, lab.undo_limit) = (Some(fs), Some(256 << 10)))
    };
    let db = options().open(DIR).unwrap();
    let tx = db.begin();
    tx.open(KEYS).unwrap().load((0..300_000_u64).map(|key| (key, ()))).unwrap();
    tx.prepare("large").unwrap();
    db.close(Duration::from_secs(10)).unwrap();
    let db = options().open(DIR).unwrap();
    assert!(matches!(db.read().open(KEYS), Err(Error::NoTable { .. })));
    db.commit_prepared("large").unwrap();
    assert_eq!(db.read().open(KEYS).unwrap().len().unwrap(), 300_000);
    db.check().unwrap();
}

/// While a restart may undo the load, no other transaction has written between its rows.
#[test]
fn the_table_is_locked_until_the_commit_is_durable() {
    let sim = disk(2);
    let db = options(&sim, 2).open(DIR).unwrap();
    let tx = db.begin();
    load(&tx.open(PLAIN).unwrap(), &rows(0..500, 50)).unwrap();
    // Nothing else makes the commit durable: there are no threads, and no ticket is waited for.
    drop(tx.commit_pipelined().unwrap());
    let lost = sim.crash_image(&foreshore_io::sim::Persist::None, 1);
    let db = options(&lost, 2).open(DIR).unwrap();
    assert_eq!(read(&db).len(), 500);
    db.check().unwrap();
}

#[derive(Clone, Debug)]
enum Operation {
    /// So many rows, with gaps of that, and a value length.
    Load(u64, u64, usize),
    Put(u64, usize),
    Remove(u64),
    RemoveLast(u64),
    Savepoint,
    RollbackTo(usize),
    Commit,
    Rollback,
    Checkpoint,
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let len = || prop_oneof![4 => 0_usize..100, 2 => 500_usize..2000, 1 => 2049_usize..20_000];
    prop_oneof![
        8 => (0_u64..300, 1_u64..4, len()).prop_map(|(count, gap, len)| {
            Operation::Load(if len > 2048 { count % 8 } else { count }, gap, len)
        }),
        6 => (0_u64..2000, len()).prop_map(|(key, len)| Operation::Put(key, len)),
        4 => (0_u64..2000).prop_map(Operation::Remove),
        2 => (0_u64..300).prop_map(Operation::RemoveLast),
        3 => Just(Operation::Savepoint),
        3 => (0_usize..3).prop_map(Operation::RollbackTo),
        3 => Just(Operation::Commit),
        2 => Just(Operation::Rollback),
        1 => Just(Operation::Checkpoint),
        1 => Just(Operation::Reopen),
    ]
}

fn apply(table: &Table<'_, u64, &[u8]>, model: &mut Rows, operation: &Operation) {
    match *operation {
        Operation::Load(count, gap, len) => {
            let first = model.last_key_value().map_or(0, |(key, _)| key + gap);
            let more: Rows = (0..count).map(|n| first + n * gap).map(|key| (key, value(key, len))).collect();
            assert_eq!(load(table, &more).unwrap(), count);
            model.extend(more);
        }
        Operation::Put(key, len) => {
            table.put(key, &value(key, len)[..]).unwrap();
            model.insert(key, value(key, len));
        }
        Operation::Remove(key) => assert_eq!(table.remove(key).unwrap(), model.remove(&key)),
        Operation::RemoveLast(count) => {
            let from = model.keys().rev().nth(count as usize).copied().unwrap_or(0);
            let gone = model.split_off(&from);
            assert_eq!(table.remove_range(from..).unwrap(), gone.len() as u64);
        }
        _ => unreachable!("it writes no row"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn loads_among_other_writes_leave_what_a_map_holds(
        operations in prop::collection::vec(operation(), 1..60),
        is_indexed in any::<bool>(),
    ) {
        let def = if is_indexed { INDEXED } else { PLAIN };
        let (mut db, fs) = in_memory();
        db.run(|tx| tx.open(def).map(drop)).unwrap();
        let mut committed = Rows::new();
        let ends = |operation: &Operation| {
            matches!(operation, Operation::Commit | Operation::Rollback | Operation::Checkpoint | Operation::Reopen)
        };
        for part in operations.split_inclusive(ends) {
            let (tx, reader) = (db.begin(), db.read());
            let mut model = committed.clone();
            let mut savepoints: Vec<(Savepoint, Rows)> = Vec::new();
            let table = tx.open(def).unwrap();
            for operation in part {
                match operation {
                    Operation::Savepoint => savepoints.push((tx.savepoint().unwrap(), model.clone())),
                    Operation::RollbackTo(nth) => {
                        savepoints.truncate(savepoints.len().saturating_sub(*nth));
                        let Some((savepoint, then)) = savepoints.last() else { continue };
                        tx.rollback_to(savepoint).unwrap();
                        model.clone_from(then);
                    }
                    operation if ends(operation) => {}
                    operation => apply(&table, &mut model, operation),
                }
            }
            prop_assert_eq!(&contents(&tx, def).unwrap(), &model);
            if matches!(part.last(), Some(Operation::Rollback)) {
                tx.rollback().unwrap();
            } else {
                tx.commit().unwrap();
            }
            let seen: Rows = reader.open(def).unwrap().iter().collect::<Result<_, _>>().unwrap();
            prop_assert_eq!(&seen, &committed, "a snapshot from before");
            drop(reader);
            if !matches!(part.last(), Some(Operation::Rollback)) {
                committed = model;
            }
            match part.last() {
                Some(Operation::Checkpoint) => db.checkpoint().unwrap(),
                Some(Operation::Reopen) => {
                    db.check().unwrap();
                    db.close(Duration::from_secs(10)).unwrap();
                    db = open(&fs).unwrap();
                }
                _ => {}
            }
        }
        db.check().unwrap();
        prop_assert_eq!(db.run(|tx| contents(tx, def)).unwrap(), committed);
    }
}

fn options(sim: &Sim, seed: u64) -> Options {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(fs);
        lab.step_seed = seed;
    })
}

/// The rows after each commit, and how many operations the disk had done when it was acknowledged.
type History = Vec<(u64, Rows)>;

/// Runs transactions that load, change and roll back.
fn script(db: &Db, sim: &Sim, seed: u64) -> History {
    let mut random = Random(seed);
    let mut model = Rows::new();
    db.run(|tx| tx.open(INDEXED).map(drop)).unwrap();
    let mut history = vec![(sim.ops(), model.clone())];
    for _ in 0..14 {
        let tx = db.begin();
        let (table, mut after) = (tx.open(INDEXED).unwrap(), model.clone());
        for _ in 0..1 + random.below(4) {
            let (savepoint, before) = (tx.savepoint().unwrap(), after.clone());
            let operation = match random.below(6) {
                0 => Operation::Put(random.below(600), random.below(200) as usize),
                1 => Operation::Remove(random.below(600)),
                2 => Operation::RemoveLast(random.below(40)),
                3 => Operation::Load(random.below(4), 1, 9000),
                _ => Operation::Load(random.below(250), 2, random.below(120) as usize),
            };
            apply(&table, &mut after, &operation);
            if random.below(4) == 0 {
                tx.rollback_to(&savepoint).unwrap();
                after = before;
            }
        }
        if random.below(3) == 0 {
            tx.rollback().unwrap();
        } else {
            tx.commit().unwrap();
            model = after;
            history.push((sim.ops(), model.clone()));
        }
        (0..random.below(6)).for_each(|_| db.step());
    }
    history
}

#[test]
fn power_loss_at_any_operation_leaves_whole_loads() {
    for seed in 1..4 {
        let sim = disk(seed);
        let db = options(&sim, seed).open(DIR).unwrap();
        let history = script(&db, &sim, seed);
        db.close(Duration::from_secs(10)).unwrap();
        let mut points = sim.crash_points();
        let mut images = 0;
        loop {
            let op = points.op();
            if op >= history[0].0 {
                let policy = &POLICIES[images % POLICIES.len()];
                images += 1;
                let lost = points.image(policy, op);
                let mut db = options(&lost, op).open(DIR).unwrap_or_else(|error| panic!("open after {op}: {error}"));
                if images % 3 == 0 {
                    // Power is lost once more, in the middle of the rollbacks.
                    let again = lost.crash_points().image(&POLICIES[images / 3 % POLICIES.len()], op);
                    drop(db);
                    db = options(&again, op).open(DIR).unwrap_or_else(|error| panic!("open again: {error}"));
                }
                let last = history.iter().rposition(|(at, _)| *at <= op).unwrap_or(0);
                let rows = db.run(|tx| contents(tx, INDEXED)).unwrap_or_else(|error| panic!("after {op}: {error}"));
                assert!(history[last..].iter().take(2).any(|(_, known)| *known == rows), "other rows after {op}");
                db.check().unwrap_or_else(|error| panic!("check after {op}: {error}"));
            }
            if !points.advance() {
                break;
            }
        }
        assert!(images > 50, "{images} images");
    }
}
