//! Limits are checked on entry, name themselves, and end no transaction.

use crate::support::{TEXTS, in_memory};
use foreshore::{
    Error, Options, ReadOptions, TableDef, TxnOptions,
    limits::{MAX_INLINE_VALUE, MAX_KEY, MAX_TABLE_NAME},
};
use std::time::Duration;

#[test]
fn the_longest_key_fits_and_a_longer_one_does_not() {
    let (db, _) = in_memory();
    let (key, value) = ("k".repeat(MAX_KEY), "v".repeat(MAX_INLINE_VALUE));
    let tx = db.begin();
    let table = tx.open(TEXTS).unwrap();
    table.insert(&*key, &*value).unwrap();
    let long_key = format!("{key}k");
    let key_len = MAX_KEY + 1;
    assert!(
        matches!(table.insert(&*long_key, "v"), Err(Error::KeyTooLarge { len, max: MAX_KEY, .. }) if len == key_len)
    );
    assert!(matches!(table.get(&*long_key), Err(Error::KeyTooLarge { .. })));
    assert!(matches!(table.get_for_update(&*long_key), Err(Error::KeyTooLarge { .. })));
    assert!(matches!(table.remove(&*long_key), Err(Error::KeyTooLarge { .. })));
    assert_eq!(table.get(&*key).unwrap().as_deref(), Some(&*value));
    tx.commit().unwrap();
}

#[test]
fn the_empty_key_and_value_are_a_row() {
    let (db, _) = in_memory();
    db.run(|tx| tx.open(TEXTS)?.insert_new("", "")).unwrap();
    assert_eq!(db.run(|tx| tx.open(TEXTS)?.get("")).unwrap().as_deref(), Some(""));
    assert_eq!(db.run(|tx| tx.open(TEXTS)?.remove("")).unwrap().as_deref(), Some(""));
}

#[test]
fn a_table_name_has_1_to_255_bytes() {
    let (db, _) = in_memory();
    let tx = db.begin();
    let longest = "n".repeat(MAX_TABLE_NAME);
    tx.open(TableDef::<u64, u64>::new(&longest)).unwrap();
    let too_long = format!("{longest}n");
    for name in ["", &*too_long, "with a byte \0"] {
        let opened = tx.open(TableDef::<u64, u64>::new(name));
        assert!(matches!(opened, Err(Error::TableName { name: refused }) if refused == name));
    }
    tx.commit().unwrap();
}

#[test]
fn options_out_of_range_name_themselves() {
    let cases = [
        ("memory_limit", Options::new().memory_limit(1 << 20)),
        ("segment_bytes", Options::new().lab(|lab| lab.segment_bytes = 100_000)),
        ("segment_bytes", Options::new().lab(|lab| lab.segment_bytes = 32 << 10)),
        ("log_budget", Options::new().log_budget(1 << 20)),
        ("restart_target", Options::new().restart_target(Duration::ZERO)),
        ("snapshot_max_age", Options::new().snapshot_max_age(Duration::ZERO)),
        ("snapshot_max_bytes", Options::new().snapshot_max_bytes(8191)),
        ("transaction_max_age", Options::new().transaction_max_age(Duration::ZERO)),
        ("max_transactions", Options::new().max_transactions(0)),
        ("max_transactions", Options::new().max_transactions(1025)),
    ];
    for (wanted, options) in cases {
        match options.device(foreshore::Device::Null).open("/db") {
            Err(Error::InvalidOption { name, .. }) => assert_eq!(name, wanted),
            other => panic!("{wanted}: {other:?}"),
        }
    }
}

/// Those of one transaction are in the same range as the database's. It takes no place.
#[test]
fn limits_of_a_transaction_out_of_range_name_themselves() {
    let db = crate::support::small().max_transactions(1).device(foreshore::Device::Null).open("/db").unwrap();
    db.run(|tx| tx.open(TEXTS)?.insert("k", "v")).unwrap();
    let (age, bytes) = (Duration::ZERO, 8191);
    let (all, reads) = (TxnOptions::new(), ReadOptions::new());
    let refused = [
        ("snapshot_max_age", db.begin_with(all.snapshot_max_age(age)).open(TEXTS).map(drop)),
        ("snapshot_max_bytes", db.begin_with(all.snapshot_max_bytes(bytes)).open(TEXTS).map(drop)),
        ("snapshot_max_age", db.read_with(reads.snapshot_max_age(age)).open(TEXTS).map(drop)),
        ("snapshot_max_bytes", db.read_with(reads.snapshot_max_bytes(bytes)).open(TEXTS).map(drop)),
    ];
    for (wanted, refused) in refused {
        assert!(matches!(refused, Err(Error::InvalidOption { name, .. }) if name == wanted), "{wanted}: {refused:?}");
    }
    let least = reads.snapshot_max_age(Duration::from_nanos(1)).snapshot_max_bytes(bytes + 1);
    assert_eq!(db.read_with(least).open(TEXTS).unwrap().get("k").unwrap().as_deref(), Some("v"));
}

#[test]
fn one_transaction_more_than_allowed_is_refused_until_one_ends() {
    let options = crate::support::small().max_transactions(3).lock_timeout(Duration::from_millis(50));
    let db = options.device(foreshore::Device::Null).open("/db").unwrap();
    let label = |label| TxnOptions::new().label(label);
    let held: Vec<_> = ["oldest", "second", "third"].map(|name| db.begin_with(label(name))).into();
    match db.begin().open(TEXTS) {
        Err(error @ Error::TooManyTransactions { max: 3, .. }) => assert!(error.is_retryable()),
        other => panic!("{other:?}"),
    }
    drop(held);
    db.begin().open(TEXTS).unwrap();
}
