//! The text of a dump is frozen: this build writes the same one, and loads what an earlier one has written.
//!
//! `FORESHORE_WRITE_FIXTURES=1` replaces the dump in `fixtures/format-1`.

use crate::support::{ACCOUNTS, BLOBS, Dir, NAMES, close};
use std::fs;
use std::path::PathBuf;

/// A closed database with one row or more for each kind of line, and for each form of a name.
fn filled(name: &str) -> Dir {
    let dir = Dir::new(name);
    let db = dir.open();
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        (0..20).try_for_each(|n| accounts.put(n, n as i64 - 10))?;
        let names = tx.open(NAMES)?;
        names.put("Ada", Some("Countess\tof Lovelace"))?;
        names.put("Bob", None)?;
        tx.open(BLOBS)?.put(&b"\x00\xff"[..], &(0..=255).cycle().take(5000).collect::<Vec<u8>>()[..])?;
        tx.create_raw("quoted \"\\ \u{e9}", "shape.v2", "(u8,shape.v2)")?.put(&b"\x01"[..], &b""[..])
    })
    .unwrap();
    close(db);
    dir
}

#[test]
fn a_dump_is_the_same_text_and_is_loaded() {
    let (from, to) = (filled("format-dump"), Dir::new("format-load"));
    let dump = from.prints("dump", &[]);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/format-1/dump.jsonl");
    if std::env::var_os("FORESHORE_WRITE_FIXTURES").is_some() {
        fs::write(&path, &dump).unwrap();
    }
    let fixture = fs::read_to_string(&path).unwrap();
    assert_eq!(dump, fixture, "a dump of version 1 has another text");
    let words = ["load".as_ref(), to.path().as_os_str(), path.as_os_str()];
    let ran = crate::support::foreshore(words.into_iter(), None);
    assert_eq!((ran.code, &*ran.errors), (0, "loaded tables: 4, rows: 24\n"));
    assert_eq!(to.prints("dump", &[]), fixture);
    assert_eq!(to.prints("get", &["accounts", "3"]), "-7\n");
    let newer = fixture.replacen("\"foreshore_dump\":1", "\"foreshore_dump\":2", 1);
    let none = Dir::new("format-newer");
    let why = |name: &str| format!("error: {name} has dump version 2, this build reads up to 1: use a newer build");
    none.run_with("load", &[], &newer).is_refused(2, &why("standard input"));
    assert_eq!(fs::read_dir(none.path()).unwrap().count(), 0);
    // The error names the file.
    let path = to.path().join("newer.jsonl");
    fs::write(&path, &newer).unwrap();
    none.run("load", &[path.to_str().unwrap()]).is_refused(2, &why(path.to_str().unwrap()));
    assert_eq!(fs::read_dir(none.path()).unwrap().count(), 0);
}
