//! The log: its groups and records, and what is missing.

use crate::support::{Dir, close, contents, fill};
use serde_json::json;
use std::fs;

#[test]
fn the_log_of_a_closed_database_is_whole() {
    let dir = Dir::with_database("log");
    let before = contents(dir.path());
    let lines = dir.json("log", &[], 0);
    let (end, groups) = lines.split_last().unwrap();
    assert_eq!((&end["end"]["sound"], &end["end"]["damage"]), (&json!(true), &json!(null)));
    assert_eq!(end["end"]["groups"], json!(groups.len()));
    let records: u64 = groups.iter().map(|group| group["group"]["records"].as_u64().unwrap()).sum();
    assert_eq!(end["end"]["records"], json!(records));
    let all = dir.json("log", &["--records"], 0);
    assert_eq!(all.len() as u64, records + 1);
    let count = |kind: &str| all.iter().filter(|line| line["record"]["kind"] == kind).count();
    assert_eq!((count("create-table"), count("row-insert")), (4, 304));
    assert!(count("commit") >= 1 && count("checkpoint") >= 1);
    let text = dir.prints("log", &["--records"]);
    assert!(text.lines().any(|line| line.contains(" create-table xid 1 table ")), "{text}");
    assert!(text.ends_with(&format!(", last LSN: {}\n", end["end"]["last_lsn"])), "{text}");
    assert!(before == contents(dir.path()), "a file was written");
}

#[test]
fn the_log_of_a_database_in_use_can_be_read() {
    let dir = Dir::new("log-live");
    let db = dir.open();
    fill(&db);
    let lines = dir.json("log", &[], 0);
    assert_eq!(lines.last().unwrap()["end"]["sound"], json!(true));
    close(db);
}

#[test]
fn a_damaged_group_before_the_checkpoint_is_found() {
    let dir = Dir::with_database("log-damaged");
    let segments = contents(&dir.path().join("log"));
    let (segment, bytes) = segments.into_iter().find(|(path, _)| path.extension().is_some_and(|e| e == "seg")).unwrap();
    let mut bytes = bytes.unwrap();
    // The first group begins behind the header.
    bytes[4096 + 100] ^= 1;
    fs::write(&segment, bytes).unwrap();
    let ran = dir.run("log", &[]);
    assert_eq!((ran.code, &*ran.errors), (1, ""), "{ran:?}");
    assert!(ran.output.contains("the newest checkpoint is at LSN"), "{}", ran.output);
    let end = &dir.json("log", &[], 1)[0]["end"];
    assert_eq!((&end["sound"], &end["groups"]), (&json!(false), &json!(0)));
    assert!(end["damage"].is_string());
}
