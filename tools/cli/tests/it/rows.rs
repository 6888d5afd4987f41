//! Verbs about single rows and ranges of rows.

use crate::support::{ACCOUNTS, Dir, close};
use foreshore::TableDef;
use serde_json::{Value as Json, json};

#[test]
fn get_prints_the_value_of_a_key() {
    let dir = Dir::with_database("get");
    assert_eq!(dir.prints("get", &["accounts", "7"]), "-93\n");
    assert_eq!(dir.prints("get", &["names", "Ada"]), "Countess\tof Lovelace\n");
    assert_eq!(dir.prints("get", &["names", "Bob"]), "null\n");
    assert_eq!(dir.prints("get", &["blobs", "00ff"]), "615c62\n");
    assert_eq!(dir.prints("get", &["blobs", "--utf8", "\\x00\\xff"]), "a\\\\b\n");
    assert_eq!(dir.prints("get", &["blobs", "large", "--utf8"]).len(), 100_001);
    assert_eq!(dir.json("get", &["accounts", "7"], 0)[0], json!({ "found": true, "key": 7, "value": -93 }));
}

#[test]
fn get_of_an_absent_row_ends_with_1() {
    let dir = Dir::with_database("get-absent");
    let ran = dir.run("get", &["accounts", "4000"]);
    assert_eq!((ran.code, &*ran.output), (1, ""));
    assert_eq!(ran.errors, "table \"accounts\" has no row of key 4000\n");
    assert_eq!(dir.json("get", &["accounts", "4000"], 1)[0], json!({ "found": false, "key": 4000 }));
}

#[test]
fn put_and_del_change_one_row() {
    let dir = Dir::with_database("put");
    dir.prints("put", &["accounts", "7", "-5"]);
    dir.prints("put", &["accounts", "1000", "1"]);
    dir.prints("put", &["names", "Bob", "\"the builder\""]);
    dir.prints("put", &["blobs", "01", ""]);
    dir.prints("put", &["shapes", "0102", "ff"]);
    dir.prints("del", &["accounts", "8"]);
    let ran = dir.run("del", &["accounts", "8"]);
    assert_eq!((ran.code, &*ran.errors), (1, "table \"accounts\" has no row of key 8\n"));
    assert_eq!(dir.prints("get", &["shapes", "0102"]), "ff\n");
    let db = dir.open();
    let accounts = db.read();
    let accounts = accounts.open(ACCOUNTS).unwrap();
    let found = [7, 8, 9, 1000].map(|key| accounts.get(key).unwrap());
    assert_eq!((found, accounts.len().unwrap()), ([Some(-5), None, Some(-91), Some(1)], 300));
    assert_eq!(dir_names(&db), [("Ada".to_owned(), true), ("Bob".to_owned(), true)]);
}

fn dir_names(db: &foreshore::Db) -> Vec<(String, bool)> {
    let tx = db.read();
    let names = tx.open(crate::support::NAMES).unwrap();
    names.iter().map(|row| row.map(|(name, title)| (name, title.is_some())).unwrap()).collect()
}

#[test]
fn what_does_not_fit_the_types_is_refused_and_changes_nothing() {
    let dir = Dir::with_database("misfits");
    dir.run("put", &["accounts", "seven", "1"]).is_refused(2, "key \"seven\": expected a number of u64");
    dir.run("put", &["accounts", "7", "1.5"]).is_refused(2, "value \"1.5\": expected a number of i64");
    dir.run("get", &["accounts", "-7"]).is_refused(2, "key \"-7\": expected a number of u64");
    dir.run("del", &["blobs", "0"]).is_refused(2, "expected an even number of hex digits");
    dir.run("scan", &["accounts", "--from", "x"]).is_refused(2, "key \"x\"");
    dir.run("put", &["names", "x", "y"]).is_refused(2, "value \"y\": expected JSON");
    dir.run("put", &["names", &"x".repeat(2000), "null"]).is_refused(2, "refuses a key of 2000 bytes");
    assert_eq!(dir.prints("get", &["accounts", "7"]), "-93\n");
}

#[test]
fn scan_prints_rows_in_the_order_of_the_keys() {
    let dir = Dir::with_database("scan");
    assert_eq!(dir.prints("scan", &["names"]), "\"Ada\"\t\"Countess\\tof Lovelace\"\n\"Bob\"\tnull\n");
    assert_eq!(dir.prints("scan", &["names", "--keys", "--reverse"]), "\"Bob\"\n\"Ada\"\n");
    assert_eq!(dir.prints("scan", &["names", "--prefix", "A", "--keys"]), "\"Ada\"\n");
    assert_eq!(dir.prints("scan", &["accounts", "--from", "298"]), "298\t198\n299\t199\n");
    assert_eq!(dir.prints("scan", &["accounts", "--from", "3", "--to", "5", "--keys"]), "3\n4\n");
    assert_eq!(dir.prints("scan", &["accounts", "--limit", "1", "--reverse"]), "299\t199\n");
    assert_eq!(dir.prints("scan", &["accounts", "--limit", "0"]), "");
    assert_eq!(dir.prints("scan", &["shapes"]), "");
    let keys: Vec<_> = dir.json("scan", &["accounts", "--keys"], 0);
    assert!(keys.iter().enumerate().all(|(n, row)| *row == json!({ "key": n })) && keys.len() == 300);
    assert_eq!(dir.json("scan", &["names"], 0)[1], json!({ "key": "Bob", "value": Json::Null }));
}

#[test]
fn a_range_of_negative_numbers_and_of_tuples() {
    let dir = Dir::new("scan-ranges");
    let db = dir.open();
    db.run(|tx| {
        let levels = tx.open(TableDef::<i32, u8>::new("levels"))?;
        (-3..3).try_for_each(|n| levels.put(n, 0))?;
        let pairs = tx.open(TableDef::<(u8, &str), u8>::new("pairs"))?;
        [(1, "a"), (2, "a"), (2, "b"), (3, "")].into_iter().try_for_each(|pair| pairs.put(pair, 0))
    })
    .unwrap();
    close(db);
    assert_eq!(dir.prints("scan", &["levels", "--from", "-2", "--to", "1", "--keys"]), "-2\n-1\n0\n");
    assert_eq!(dir.prints("get", &["levels", "-3"]), "0\n");
    assert_eq!(dir.prints("scan", &["pairs", "--prefix", "[2]", "--keys"]), "[2,\"a\"]\n[2,\"b\"]\n");
    assert_eq!(dir.prints("scan", &["pairs", "--from", "[2,\"b\"]", "--keys"]), "[2,\"b\"]\n[3,\"\"]\n");
}
