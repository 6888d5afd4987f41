//! Every type that tables hold, through the program and back.

use crate::support::{Dir, close, options};
use foreshore::{Db, Key, TableDef, Timestamp, Uuid, Value};
use serde_json::{Value as Json, json};
use std::cmp::Reverse;
use std::time::Duration;

/// Puts one row, with the same type for key and value.
fn put<K: Key + 'static>(db: &Db, name: &str, row: &K::Ref<'_>) {
    let table = TableDef::<K, K>::new(name);
    db.run(|tx| tx.open(table)?.put(row, row)).unwrap();
}

/// A table for each type, with a row, and how it is shown.
fn fill(db: &Db) -> Vec<(&'static str, Json)> {
    put::<u8>(db, "u8", &255);
    put::<u16>(db, "u16", &258);
    put::<u32>(db, "u32", &7);
    put::<u64>(db, "u64", &u64::MAX);
    put::<u128>(db, "u128", &u128::MAX);
    put::<i8>(db, "i8", &-1);
    put::<i16>(db, "i16", &-300);
    put::<i32>(db, "i32", &-7);
    put::<i64>(db, "i64", &i64::MIN);
    put::<i128>(db, "i128", &-1);
    put::<f32>(db, "f32", &-0.1);
    put::<f64>(db, "f64", &f64::INFINITY);
    put::<bool>(db, "bool", &true);
    put::<char>(db, "char", &'é');
    put::<&str>(db, "str", &"é\n");
    put::<&[u8]>(db, "bytes", &&b"\x00\xFF"[..]);
    put::<[u8; 3]>(db, "array", &[1, 2, 3]);
    put::<Uuid>(db, "uuid", &Uuid([0xAB; 16]));
    put::<Timestamp>(db, "time", &Timestamp::new(-1, 750_000_000).unwrap());
    put::<Duration>(db, "duration", &Duration::from_millis(1500));
    put::<Option<&str>>(db, "option", &Some("x"));
    put::<Reverse<(&str, u8)>>(db, "reverse", &Reverse(("a\0", 1)));
    put::<(u32, &[u8], Option<u8>)>(db, "tuple", &(1, &b"b\0"[..], None));
    vec![
        ("array", json!("010203")),
        ("bool", json!(true)),
        ("bytes", json!("00ff")),
        ("char", json!("é")),
        ("duration", json!("1.500000000")),
        ("f32", json!(-0.1)),
        ("f64", json!("inf")),
        ("i128", json!("-1")),
        ("i16", json!(-300)),
        ("i32", json!(-7)),
        ("i64", json!(i64::MIN)),
        ("i8", json!(-1)),
        ("option", json!("x")),
        ("reverse", json!(["a\0", 1])),
        ("str", json!("é\n")),
        ("time", json!("-0.250000000")),
        ("tuple", json!([1, "6200", null])),
        ("u128", json!(u128::MAX.to_string())),
        ("u16", json!(258)),
        ("u32", json!(7)),
        ("u64", json!(u64::MAX)),
        ("u8", json!(255)),
        ("uuid", json!("abababab-abab-abab-abab-abababababab")),
    ]
}

#[test]
fn rows_of_every_type_are_shown_and_survive_dump_and_load() {
    let (from, to) = (Dir::new("types"), Dir::new("types-loaded"));
    let db = from.open();
    let shown = fill(&db);
    db.run(|tx| {
        tx.open(TableDef::<u8, ()>::new("unit"))?.put(1, ())?;
        tx.create_raw("application", "point", "vec<point>")?.put(&b"\x01"[..], &b""[..])
    })
    .unwrap();
    close(db);
    let dump = from.prints("dump", &[]);
    crate::schema::lines("dump", &dump);
    let loaded = to.run_with("load", &[], &dump);
    assert_eq!((loaded.code, &*loaded.errors), (0, "loaded tables: 25, rows: 25\n"));
    assert_eq!(to.prints("dump", &[]), dump, "the same in the loaded database");
    for (name, json) in &shown {
        let rows = to.json("scan", &[name], 0);
        assert_eq!(rows, [json!({ "key": json, "value": json })], "{name}");
    }
    assert_eq!(to.json("scan", &["unit"], 0), [json!({ "key": 1, "value": [] })]);
    assert_eq!(to.json("scan", &["application"], 0), [json!({ "key": "01", "value": "" })]);
    // A program with the types opens what was loaded.
    let db = options().open(to.path()).unwrap();
    let tx = db.read();
    let row = tx.open(TableDef::<Reverse<(&str, u8)>, Reverse<(&str, u8)>>::new("reverse")).unwrap().first().unwrap();
    assert_eq!(row.unwrap().0, Reverse(("a\0".to_owned(), 1)));
}

#[test]
fn a_row_that_does_not_decode_is_shown_as_its_bytes() {
    let dir = Dir::with_database("undecodable");
    let db = dir.open();
    let mut key = Vec::new();
    u64::encode_key(&7, &mut key);
    db.run(|tx| tx.open_raw("accounts")?.put(&*key, &b"short"[..])).unwrap();
    close(db);
    assert_eq!(dir.prints("get", &["accounts", "7"]), "{\"undecodable\":\"73686f7274\"}\n");
    assert_eq!(i64::decode(b"short"), None);
}
