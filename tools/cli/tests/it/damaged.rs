//! Damaged pages: `check` lists them, and other verbs refuse what lies in them.

use crate::support::Dir;
use serde_json::json;
use std::fs;

/// Changes a byte of each page that holds rows of `accounts`, and returns the numbers of these pages.
fn damage(dir: &Dir) -> Vec<u64> {
    let data = dir.path().join("data");
    let mut bytes = fs::read(&data).unwrap();
    // The value of account 299, and the number of it.
    let row = [&299_u64.to_be_bytes()[..], &199_i64.to_le_bytes()].concat();
    let pages: Vec<_> = (0..bytes.len() / 8192).filter(|page| holds(&bytes[page * 8192..][..8192], &row)).collect();
    for page in &pages {
        bytes[page * 8192 + 8000] ^= 1;
    }
    fs::write(&data, bytes).unwrap();
    // No sound copy is left.
    let doublewrite = dir.path().join("dw");
    let mut bytes = fs::read(&doublewrite).unwrap();
    bytes[8192..].fill(0);
    fs::write(&doublewrite, bytes).unwrap();
    pages.into_iter().map(|page| page as u64).collect()
}

fn holds(page: &[u8], row: &[u8]) -> bool {
    let (key, value) = row.split_at(8);
    page.windows(8).any(|bytes| bytes == key) && page.windows(8).any(|bytes| bytes == value)
}

#[test]
fn check_lists_damaged_pages_with_their_table_and_ends_with_1() {
    let dir = Dir::with_database("damaged");
    let pages = damage(&dir);
    assert_eq!(pages.len(), 1, "{pages:?}");
    let ran = dir.run("check", &[]);
    assert_eq!((ran.code, &*ran.errors), (1, ""), "{ran:?}");
    let lines: Vec<_> = ran.output.lines().collect();
    assert!(lines[0].contains(&format!("page {}: ", pages[0])), "{lines:?}");
    assert!(lines[1].ends_with(", damaged: 1") && lines.len() == 2, "{lines:?}");
    let report = &dir.json("check", &[], 1)[0];
    assert_eq!((&report["sound"], &report["complete"]), (&json!(false), &json!(true)));
    assert_eq!(report["damaged"][0]["page"], json!(pages[0]));
}

#[test]
fn rows_of_damaged_pages_are_refused_and_others_are_read() {
    let dir = Dir::with_database("damaged-rows");
    damage(&dir);
    dir.run("get", &["accounts", "299"]).is_refused(4, "table \"accounts\" is damaged at page");
    assert_eq!(dir.prints("get", &["names", "Bob"]), "null\n");
    let dump = dir.run("dump", &[]);
    assert_eq!(dump.code, 4, "{dump:?}");
    assert!(!dump.output.contains("\"end\""), "a dump that failed has no end");
    let rest = dir.run("dump", &["--table", "names"]);
    assert!(rest.code == 0 && rest.output.contains("\"end\""), "{rest:?}");
    assert_eq!(dir.run("scan", &["accounts"]).code, 4);
    assert_eq!(dir.run("stats", &["accounts"]).code, 4);
    assert_eq!(dir.run("info", &[]).code, 0);
    assert_eq!(dir.run("tables", &[]).code, 0);
}

#[test]
fn a_table_with_a_damaged_page_is_renamed_and_cleared() {
    let dir = Dir::with_database("damaged-tables");
    damage(&dir);
    dir.prints("rename", &["accounts", "ledger"]);
    dir.run("get", &["ledger", "299"]).is_refused(4, "table \"ledger\" is damaged at page");
    dir.prints("clear", &["ledger"]);
    assert_eq!(dir.prints("scan", &["ledger"]), "");
    dir.prints("put", &["ledger", "299", "1"]);
    assert_eq!(dir.prints("scan", &["ledger"]), "299\t1\n");
}
