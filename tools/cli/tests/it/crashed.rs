//! A database whose last user has crashed.

use crate::support::{ACCOUNTS, Dir, close, fill};
use serde_json::json;

#[test]
fn the_first_verb_that_opens_it_recovers_it_and_commits_are_there() {
    let live = Dir::new("live");
    let db = live.open();
    fill(&db);
    let unfinished = db.begin();
    unfinished.open(ACCOUNTS).unwrap().put(7, 0).unwrap();
    db.sync().unwrap();
    let crashed = live.copy("crashed");
    drop(unfinished);
    close(db);
    // Verbs that open nothing leave it as it is.
    assert_eq!(crashed.json("info", &[], 0)[0]["closed"], json!(false));
    crashed.json("log", &[], 0);
    assert_eq!(crashed.json("info", &[], 0)[0]["closed"], json!(false));
    let recovery = &crashed.json("stats", &[], 0)[0]["recovery"];
    assert_eq!((&recovery["was_clean"], &recovery["losers"]), (&json!(false), &json!(1)));
    assert_eq!(crashed.json("info", &[], 0)[0]["closed"], json!(true));
    assert_eq!(crashed.prints("get", &["accounts", "7"]), "-93\n");
    assert_eq!(crashed.json("check", &[], 0)[0]["rows"], json!(304));
    assert_eq!(crashed.json("stats", &[], 0)[0]["recovery"]["was_clean"], json!(true));
}

#[test]
fn tables_are_renamed_and_cleared_after_a_crash() {
    let live = Dir::new("live-tables");
    let db = live.open();
    fill(&db);
    let unfinished = db.begin();
    unfinished.open(ACCOUNTS).unwrap().put(7, 0).unwrap();
    db.sync().unwrap();
    let crashed = live.copy("crashed-tables");
    drop(unfinished);
    close(db);
    crashed.prints("rename", &["accounts", "ledger"]);
    crashed.prints("clear", &["names"]);
    assert_eq!(crashed.prints("get", &["ledger", "7"]), "-93\n");
    assert_eq!(crashed.json("check", &[], 0)[0]["rows"], json!(302));
}
