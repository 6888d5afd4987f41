//! Tables as CSV.

use crate::support::{Dir, close};
use foreshore::{Key, TableDef, Value};
use std::fs;

/// A table `(u32, str)` to `(option<str>, f64, bytes)` with awkward text.
fn awkward(name: &str) -> Dir {
    let dir = Dir::new(name);
    let db = dir.open();
    db.run(|tx| {
        let table = tx.open(TableDef::<(u32, &str), (Option<&str>, f64, &[u8])>::new("awkward"))?;
        table.put((1, "a,b"), (Some(""), 0.5, &b"\x00x"[..]))?;
        table.put((1, "two\nlines"), (None, f64::NAN, &b""[..]))?;
        table.put((2, "say \"hi\""), (Some("null"), -1e300, &b"\\"[..]))
    })
    .unwrap();
    close(db);
    dir
}

const HEX: &str = "\
key.0,key.1,value.0,value.1,value.2
1,\"a,b\",\"\",0.5,0078
1,\"two
lines\",,NaN,\"\"
2,\"say \"\"hi\"\"\",null,-1e+300,5c
";

#[test]
fn a_table_is_dumped_as_csv_and_loaded_again() {
    let from = awkward("csv");
    assert_eq!(from.prints("dump", &["--csv", "--table", "awkward"]), HEX);
    for form in ["--hex", "--utf8"] {
        let csv = from.prints("dump", &["--csv", "--table", "awkward", form]);
        let to = Dir::new("csv-loaded");
        let types = ["--key-type", "(u32,str)", "--value-type", "(option<str>,f64,bytes)"];
        let words = [&["--csv", "--table", "awkward", form], &types[..]].concat();
        let loaded = to.run_with("load", &words, &csv);
        assert_eq!((loaded.code, &*loaded.errors), (0, "loaded tables: 1, rows: 3\n"), "{form}");
        assert_eq!(to.prints("dump", &[]), from.prints("dump", &[]), "{form}");
        // The types of a table that exists need not be given, and another program may end lines as Windows does.
        let again = to.run_with(
            "load",
            &["--csv", "--table", "awkward", form],
            &csv.replace("\nlines", "lines").replace('\n', "\r\n"),
        );
        assert_eq!((again.code, &*again.errors), (0, "loaded tables: 1, rows: 3\n"), "{form}");
        assert_eq!(to.prints("scan", &["awkward", "--keys"]).lines().count(), 4);
    }
}

#[test]
fn a_set_has_no_column_for_its_value() {
    let dir = Dir::new("csv-set");
    let words = ["--csv", "--table", "set", "--key-type", "str", "--value-type", "unit"];
    let ran = dir.run_with("load", &words, "key\nb\n\na\n");
    assert_eq!((ran.code, &*ran.errors), (0, "loaded tables: 1, rows: 3\n"));
    assert_eq!(dir.prints("dump", &["--csv", "--table", "set"]), "key\n\"\"\na\nb\n");
}

#[test]
fn what_has_no_cells_or_does_not_fit_is_refused() {
    let dir = Dir::with_database("csv-refused");
    dir.run("dump", &["--csv", "--table", "shapes"]).is_refused(2, "there is no CSV for rows of shape.v2 to shape.v2");
    dir.run("dump", &["--csv", "--table", "names", "--table", "blobs"]).is_refused(2, "CSV is of one table");
    dir.run("dump", &["--utf8"]).is_refused(2, "--hex and --utf8 are for --csv");
    assert_eq!(dir.run("dump", &["--csv"]).code, 2);
    let load = |text: &str| dir.run_with("load", &["--csv", "--table", "accounts"], text);
    load("").is_refused(2, "line 0: expected the header key,value");
    load("key,values\n1,2\n").is_refused(2, "line 1: expected the header key,value");
    load("key,value\n1,2\n1\n").is_refused(2, "line 3: expected 2 cells, not 1");
    load("key,value\n1,x\n").is_refused(2, "line 2: expected a number of i64, not \"x\"");
    load("key,value\n1,\"2\n").is_refused(2, "line 2: a quote is not closed");
    let none = dir.run_with("load", &["--csv", "--table", "none"], "key,value\n");
    none.is_refused(2, "there is no table \"none\"");
    let types = ["--csv", "--table", "accounts", "--key-type", "u64", "--value-type", "u8"];
    dir.run_with("load", &types, "key,value\n").is_refused(2, "table \"accounts\" holds u64 to i64");
    let empty = Dir::new("csv-none");
    empty.run_with("load", &["--csv", "--table", "t"], "key,value\n").is_refused(3, "there is no database");
    empty.run_with("load", &types, "key\n").is_refused(2, "line 1: expected the header");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn a_row_that_does_not_decode_has_no_cells() {
    let dir = Dir::with_database("csv-undecodable");
    let (db, mut key) = (dir.open(), Vec::new());
    u64::encode_key(&299, &mut key);
    assert_eq!(i64::decode(b"short"), None);
    db.run(|tx| tx.open_raw("accounts")?.put(&*key, &b"short"[..])).unwrap();
    close(db);
    let ran = dir.run("dump", &["--csv", "--table", "accounts"]);
    assert_eq!((ran.code, ran.output.lines().count()), (2, 300));
    assert_eq!(ran.errors, "error: a row does not decode to the types of table \"accounts\"\n");
}
