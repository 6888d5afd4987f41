//! A table keeps the types that it was created with.

use crate::support::{NUMBERS, fill, in_memory, open, small};
use foreshore::{Error, TableDef};
use foreshore_io::{Fs, Mem};
use std::{sync::Arc, time::Duration};

#[test]
fn other_types_are_refused_by_name_now_and_after_a_restart() {
    let (db, fs) = in_memory();
    fill(&db, 3);
    let refused = |db: &foreshore::Db| {
        let tx = db.begin();
        match tx.open(TableDef::<u64, u64>::new("numbers")) {
            Err(Error::TableTypes { table, stored, wanted }) => {
                assert_eq!(table, "numbers");
                assert!(stored.contains("u64") && stored.contains("i64"), "{stored}");
                assert!(!wanted.contains("i64"), "{wanted}");
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(tx.open(TableDef::<&str, i64>::new("numbers")), Err(Error::TableTypes { .. })));
        // It is no reason to end the transaction.
        assert_eq!(tx.open(NUMBERS).unwrap().get(2).unwrap(), Some(2));
    };
    refused(&db);
    db.close(Duration::ZERO).unwrap();
    refused(&open(&fs).unwrap());
}

#[test]
fn a_table_created_in_this_transaction_is_checked_too() {
    let (db, _) = in_memory();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(1, 1).unwrap();
    assert!(matches!(tx.open(TableDef::<u64, u64>::new("numbers")), Err(Error::TableTypes { .. })));
    assert_eq!(tx.open(NUMBERS).unwrap().get(1).unwrap(), Some(1));
    tx.commit().unwrap();
}

/// A transaction refused because of a table's types gets the error only when the table's creation is durable.
#[test]
fn types_that_may_be_lost_are_not_reported() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    // No thread writes the log unless another waits for it.
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(fs);
        })
        .open("/db")
        .unwrap();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap();
    let ticket = tx.commit_pipelined().unwrap();
    assert!(!ticket.is_durable());
    let refused = db.run(|tx| tx.open(TableDef::<u64, u64>::new("numbers")).map(drop));
    assert!(matches!(refused, Err(Error::TableTypes { .. })), "{refused:?}");
    assert!(ticket.is_durable());
}

#[test]
fn every_kind_of_key_keeps_its_order() {
    let (db, _) = in_memory();
    type Mixed = (i32, &'static str, Option<u8>);
    const MIXED: TableDef<Mixed, [u8; 4]> = TableDef::new("mixed");
    let mut keys = vec![];
    for number in [-70_000, -1, 0, 1, 70_000] {
        for text in ["", "a", "a\0", "a\0b", "ab"] {
            for option in [None, Some(0), Some(255)] {
                keys.push((number, text, option));
            }
        }
    }
    let tx = db.begin();
    let table = tx.open(MIXED).unwrap();
    for (i, key) in keys.iter().enumerate().rev() {
        table.insert_new(key, (i as u32).to_be_bytes()).unwrap();
    }
    let rows: Vec<_> = table.iter().map(|row| row.unwrap()).collect();
    let wanted: Vec<_> = (0_u32..).zip(&keys).map(|(i, &(n, s, o))| ((n, s.to_owned(), o), i.to_be_bytes())).collect();
    assert_eq!(rows, wanted);
    tx.commit().unwrap();
}
