//! A transaction that locks a whole table holds it alone, wherever the others enter their intents.

use crate::support::{NUMBERS, TEXTS, small};
use foreshore::{Db, Device, Error, TableDef, Transaction};
use foreshore_classics::intents::IntentKind;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{thread, time::Duration};

const WRITERS: u64 = 8;

fn open(intents: IntentKind) -> Db {
    small().lab(|lab| lab.fast_intents = intents.is_fast()).device(Device::Null).open("/db").unwrap()
}

/// Every transaction writes two rows of a table: one alone means that the table went away under it.
fn assert_pairs(rows: &[u64], when: &str) {
    let rows: BTreeSet<u64> = rows.iter().copied().collect();
    for row in &rows {
        assert!(rows.contains(&(row ^ 1)), "{when}: {row} without its pair");
    }
}

fn keys(tx: &Transaction) -> Result<Vec<u64>, Error> {
    let table = tx.open(NUMBERS)?;
    table.lock_against_writes()?;
    table.iter().map(|row| Ok(row?.0)).collect()
}

/// Runs a transaction in which no wait may time out. Waits of background work may: it has a short timeout when it
/// frees pages of dropped tables.
fn run_in_time<T>(db: &Db, f: impl Fn(&Transaction) -> Result<T, Error>) -> T {
    let in_time = |e: &Error| assert!(!matches!(e, Error::LockTimeout { .. }), "{e}");
    db.run(|tx| f(tx).inspect_err(in_time)).unwrap()
}

fn insert_pair(db: &Db, pair: u64) {
    run_in_time(db, |tx| {
        tx.open(NUMBERS)?.insert(2 * pair, 0)?;
        thread::yield_now();
        tx.open(NUMBERS)?.insert(2 * pair + 1, 0).map(drop)
    });
}

#[test]
fn a_table_is_not_dropped_under_its_users() {
    for intents in [IntentKind::Table, IntentKind::Fastpath] {
        let db = open(intents);
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| (0..150).for_each(|_| insert_pair(&db, next.fetch_add(1, Ordering::Relaxed))));
            }
            scope.spawn(|| {
                for round in 0..15 {
                    let mut there = Vec::new();
                    db.run(|tx| {
                        there = keys(tx)?;
                        tx.drop_table(NUMBERS.name())
                    })
                    .unwrap();
                    assert_pairs(&there, &format!("{intents}, round {round}"));
                }
            });
        });
        assert_pairs(&db.run(keys).unwrap(), &format!("{intents}, at the end"));
        db.vacuum().unwrap();
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
    }
}

/// Tables come and go and are checked beside writers in tables that stay.
#[test]
fn writers_go_on_beside_changes_of_tables() {
    for intents in [IntentKind::Table, IntentKind::Fastpath] {
        let db = open(intents);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let db = &db;
                scope.spawn(move || {
                    for round in 0..100 {
                        insert_pair(db, writer << 32 | round);
                        let text = format!("{writer} {round}");
                        run_in_time(db, |tx| tx.open(TEXTS)?.insert(text.as_str(), "").map(drop));
                    }
                });
            }
            scope.spawn(|| {
                for round in 0..20 {
                    let name = format!("table {}", round % 3);
                    run_in_time(&db, |tx| tx.open(TableDef::<u64, u64>::new(&name))?.insert(round, round).map(drop));
                    if round % 2 == 0 {
                        run_in_time(&db, |tx| tx.drop_table(&name).map(drop));
                    }
                    if round % 5 == 0 {
                        db.check().unwrap();
                        db.vacuum().unwrap();
                    }
                }
            });
        });
        assert_eq!(db.run(keys).unwrap().len(), 2 * 100 * WRITERS as usize, "{intents}");
        let texts = db.run(|tx| tx.open(TEXTS)?.iter().collect::<Result<Vec<_>, Error>>()).unwrap();
        assert_eq!(texts.len(), 100 * WRITERS as usize, "{intents}");
        db.check().unwrap();
        db.close(Duration::ZERO).unwrap();
    }
}
