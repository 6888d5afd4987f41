//! Promise: a table has exactly the rows that its writers left, whatever pages are purged, merged, moved, freed,
//! checked and truncated meanwhile.

use crate::script::Random;
use crate::support::{DIR, SetOnDrop};
use foreshore::{Db, Error, Options, ReadOptions, TableDef, Transaction};
use foreshore_io::{Fs, Mem};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Long keys, so that the tree is deep.
const ROWS: TableDef<&str, &[u8]> = TableDef::new("rows");
const WRITERS: u64 = 4;
const ROUNDS: usize = 80;
/// Keys of each writer.
const SPAN: u64 = 800;

type Model = BTreeMap<u64, Vec<u8>>;

fn key(number: u64) -> String {
    format!("{number:0600}")
}

/// Removes or inserts a run of the writer's keys.
fn change(tx: &Transaction, random: &mut Random, me: u64, after: &mut Model) -> Result<(), Error> {
    let (is_removal, from, len) = (random.below(10) < 7, random.below(SPAN), 1 + random.below(SPAN / 2));
    let value = vec![from as u8; random.below(60) as usize];
    let table = tx.open(ROWS)?;
    for n in from..from + len {
        let number = n % SPAN * WRITERS + me;
        let (found, expected) = if is_removal {
            (table.remove(&*key(number))?, after.remove(&number))
        } else {
            (table.insert(&*key(number), &value[..])?, after.insert(number, value.clone()))
        };
        assert_eq!(found, expected, "row {number}");
    }
    Ok(())
}

/// Changes rows, and in some turns changes more and rolls that back to a savepoint. Others change nothing before it.
fn change_in_parts(tx: &Transaction, random: &mut Random, me: u64, after: &mut Model) -> Result<(), Error> {
    let turn = random.below(4);
    if turn > 0 {
        change(tx, random, me, after)?;
    }
    if turn < 2 {
        let (savepoint, before) = (tx.savepoint()?, after.clone());
        change(tx, random, me, after)?;
        tx.rollback_to(&savepoint)?;
        *after = before;
    }
    Ok(())
}

/// Changes that are committed, rolled back, or rolled back to a savepoint.
fn write(db: &Db, me: u64) -> Model {
    let (mut random, mut model) = (Random(0x9e37_79b9 + me * 7919), Model::new());
    for _ in 0..ROUNDS {
        let tx = db.begin();
        let mut after = model.clone();
        let done = change_in_parts(&tx, &mut random, me, &mut after);
        match done {
            Ok(()) if random.below(4) > 0 => {
                tx.commit().unwrap();
                model = after;
            }
            Err(error) if !error.is_retryable() => panic!("writer {me}: {error}"),
            _ => tx.rollback().unwrap(),
        }
        let number = random.below(SPAN) * WRITERS + me;
        let read = db.read_with(ReadOptions::new().latest());
        assert_eq!(read.open(ROWS).unwrap().get(&*key(number)).unwrap(), model.get(&number).cloned(), "row {number}");
    }
    model
}

/// A snapshot has the same rows forwards and backwards.
fn scan(db: &Db) {
    let read = db.read();
    let table = read.open(ROWS).unwrap();
    let forwards: Result<Vec<_>, Error> = table.iter().collect();
    let backwards: Result<Vec<_>, Error> = table.iter().rev().collect();
    match (forwards, backwards) {
        (Ok(forwards), Ok(mut backwards)) => {
            backwards.reverse();
            assert!(forwards == backwards, "{} rows forwards, {} backwards", forwards.len(), backwards.len());
        }
        (Err(Error::SnapshotTooOld { .. }), _) | (_, Err(Error::SnapshotTooOld { .. })) => {}
        (forwards, backwards) => panic!("{:?} {:?}", forwards.err(), backwards.err()),
    }
}

/// A serializable transaction finds the same rows twice.
fn scan_locked(db: &Db, from: u64) {
    let tx = db.begin();
    let table = tx.open(ROWS).unwrap();
    let read = || table.range(&*key(from)..).take(40).collect::<Result<Vec<_>, Error>>();
    match read().and_then(|first| Ok((first, read()?))) {
        Ok((first, second)) => assert!(first == second, "two scans of a serializable transaction differ"),
        Err(error) if error.is_retryable() => {}
        Err(error) => panic!("a locked scan: {error}"),
    }
    tx.rollback().unwrap();
}

#[test]
fn rows_survive_merges_checks_and_truncations() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = Options::new().memory_limit(12 << 20).lab(|lab| lab.segment_bytes = 256 << 10).log_budget(2 << 20);
    let db = options.lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap();
    db.run(|tx| tx.open(ROWS).map(drop)).unwrap();
    let has_ended = AtomicBool::new(false);
    // ORDERING: hint, the others end a little later.
    let goes_on = || !has_ended.load(Ordering::Relaxed);
    let models: Vec<Model> = thread::scope(|scope| {
        let (db, goes_on) = (&db, &goes_on);
        let writers: Vec<_> = (0..WRITERS).map(|me| scope.spawn(move || write(db, me))).collect();
        scope.spawn(move || {
            while goes_on() {
                scan(db);
            }
        });
        scope.spawn(move || {
            for from in (0..).map(|turn| turn * 7919 % (SPAN * WRITERS)).take_while(|_| goes_on()) {
                scan_locked(db, from);
            }
        });
        scope.spawn(move || {
            while goes_on() {
                db.check().unwrap();
                db.compact().unwrap();
                (0..8).try_for_each(|_| db.vacuum().map(drop)).unwrap();
            }
        });
        let _ends = SetOnDrop(&has_ended);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let all: Model = models.into_iter().flatten().collect();
    let tx = db.begin();
    let rows = tx.open(ROWS).unwrap().iter().map(|row| row.map(|(key, value)| (key.parse().unwrap(), value)));
    let found: Model = rows.collect::<Result<_, _>>().unwrap();
    tx.rollback().unwrap();
    assert!(found == all, "{} rows, {} of the writers", found.len(), all.len());
    let report = db.check().unwrap();
    assert_eq!((report.rows, report.unused), (all.len() as u64, 0));
    assert!(db.stats().tree.merges > 5, "{:?}", db.stats().tree);
}
