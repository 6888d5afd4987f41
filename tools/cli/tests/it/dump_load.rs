//! Dumps, and what happens to those that are not whole.

use crate::support::{ACCOUNTS, Dir, close};
use std::fs;

#[test]
fn a_dump_is_loaded_into_a_new_database_and_again_into_it() {
    let (from, to) = (Dir::with_database("dump"), Dir::new("loaded"));
    let dump = from.prints("dump", &[]);
    let file = to.path().join("dump.jsonl");
    fs::write(&file, &dump).unwrap();
    let new = to.path().join("new");
    let words = ["load".as_ref(), new.as_os_str(), file.as_os_str()];
    for _ in 0..2 {
        let ran = crate::support::foreshore(words.into_iter(), None);
        assert_eq!((ran.code, &*ran.errors), (0, "loaded tables: 4, rows: 304\n"));
    }
    let words = ["dump".as_ref(), new.as_os_str()];
    assert_eq!(crate::support::foreshore(words.into_iter(), None).output, dump);
}

#[test]
fn chosen_tables_are_dumped_and_loaded() {
    let (from, to) = (Dir::with_database("dump-table"), Dir::new("load-table"));
    let dump = from.prints("dump", &["--table", "names", "--table", "shapes"]);
    let ran = to.run_with("load", &["--table", "names"], &dump);
    assert_eq!((ran.code, &*ran.errors), (0, "loaded tables: 1, rows: 2\n"));
    assert_eq!(to.prints("tables", &[]), "names\tstr\toption<str>\n");
    to.run_with("load", &["--table", "blobs"], &dump).is_refused(2, "the dump has no table \"blobs\"");
    from.run("dump", &["--table", "none"]).is_refused(2, "there is no table \"none\"");
}

#[test]
fn loaded_rows_replace_those_of_the_same_key_and_keep_others() {
    let (from, to) = (Dir::with_database("dump-over"), Dir::new("load-over"));
    let db = to.open();
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        accounts.put(7, 1000)?;
        accounts.put(7000, 1)
    })
    .unwrap();
    close(db);
    let ran = to.run_with("load", &[], &from.prints("dump", &["--table", "accounts"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(to.prints("get", &["accounts", "7"]), "-93\n");
    assert_eq!(to.prints("get", &["accounts", "7000"]), "1\n");
}

/// Thousands of rows, and one that is larger than a transaction takes besides others.
#[test]
fn large_tables_are_loaded_in_several_transactions() {
    let (from, to) = (Dir::new("dump-many"), Dir::new("load-many"));
    let db = from.open();
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        (0..4321).try_for_each(|n| accounts.put(n, 1))?;
        let blobs = tx.open(crate::support::BLOBS)?;
        (0..5_u8).try_for_each(|n| blobs.put(&[n][..], &vec![n; 700_000 * usize::from(n)][..]))
    })
    .unwrap();
    close(db);
    let dump = from.prints("dump", &[]);
    let ran = to.run_with("load", &[], &dump);
    assert_eq!((ran.code, &*ran.errors), (0, "loaded tables: 2, rows: 4326\n"));
    assert!(to.prints("dump", &[]) == dump);
}

#[test]
fn a_dump_that_was_cut_off_is_refused_at_its_end() {
    let (from, to) = (Dir::with_database("dump-cut"), Dir::new("load-cut"));
    let dump = from.prints("dump", &["--table", "accounts"]);
    let lines: Vec<_> = dump.lines().collect();
    to.run_with("load", &[], &lines[..200].join("\n")).is_refused(2, "line 201: the dump was cut off");
    assert_eq!(to.prints("get", &["accounts", "197"]), "97\n", "it goes as far as the dump does");
    assert_eq!(to.run("get", &["accounts", "198"]).code, 1);
    let holed = [&lines[..100], &lines[101..]].concat().join("\n");
    to.run_with("load", &[], &holed).is_refused(2, "line 302: rows or tables are missing");
    to.run_with("load", &[], &lines[..2].join("\n")).is_refused(2, "line 3: the dump was cut off");
    // Half a line.
    to.run_with("load", &[], &dump[..dump.len() - 60]).is_refused(2, "no JSON");
}

#[test]
fn what_is_no_dump_creates_no_database() {
    let dir = Dir::new("no-dump");
    for (text, why) in [
        ("", "line 1: the text does not begin as a dump"),
        ("hello\n", "line 1: no JSON"),
        ("[\"00\",\"00\"]\n", "line 1: the text does not begin as a dump"),
        ("{\"foreshore_dump\":2}\n", "standard input has dump version 2, this build reads up to 1: use a newer build"),
    ] {
        dir.run_with("load", &[], text).is_refused(2, why);
    }
    dir.run("load", &["/nowhere/dump"]).is_refused(2, "cannot open /nowhere/dump");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn rows_and_tables_that_do_not_fit_are_refused_with_their_line() {
    let dir = Dir::with_database("load-misfit");
    let head = "{\"foreshore_dump\":1}\n";
    for (lines, why) in [
        ("[\"00\",\"00\"]\n", "line 2: a row comes before the first table"),
        (
            "{\"table\":\"accounts\",\"key_type\":\"u64\",\"value_type\":\"u8\"}\n",
            "line 2: table \"accounts\" holds u64 to i64, not u64 to u8",
        ),
        (
            "{\"table\":\"new\",\"key_type\":\"u8\",\"value_type\":\"u8\"}\n[\"00\",\"0000\"]\n",
            "line 3: the row is no encoding of the types of table \"new\"",
        ),
        ("{\"table\":\"\",\"key_type\":\"u8\",\"value_type\":\"u8\"}\n", "line 2: \"\" cannot name a table"),
        ("{\"foreshore_dump\":1}\n", "line 2: another dump begins"),
    ] {
        dir.run_with("load", &[], &format!("{head}{lines}")).is_refused(2, why);
    }
    let long = format!("{head}{{\"table\":\"t\",\"key_type\":\"{}\",\"value_type\":\"\"}}\n", "x".repeat(100_000));
    dir.run_with("load", &[], &long).is_refused(2, "option types cannot be \"names of 100000 bytes\"");
}
