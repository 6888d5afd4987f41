//! Pages of every type, sound and damaged.

use crate::support::{Dir, close, contents};
use serde_json::{Value as Json, json};
use std::fs;

/// Returns the descriptions of all pages behind the superblocks, each with its exit status.
fn pages(dir: &Dir) -> Vec<Json> {
    let count = fs::metadata(dir.path().join("data")).unwrap().len() / 8192;
    (2..count).map(|page| dir.json("page", &[&page.to_string()], 0).remove(0)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_page_of_a_closed_database_is_shown_and_no_file_is_written() {
    let dir = Dir::with_database("page");
    let before = contents(dir.path());
    let pages = pages(&dir);
    assert!(pages.iter().all(|page| page["damage"] == Json::Null));
    let used = pages[0]["content"]["used"].as_u64().unwrap();
    let in_use = pages.iter().filter(|page| page["in_use"] == json!(true)).count();
    assert!(pages.iter().all(|page| page["in_use"] == json!(false) || page["type"] != "none"), "{pages:?}");
    assert_eq!((&pages[0]["type"], used), (&json!("map"), in_use as u64 + 2), "with the two superblocks");
    let rows = |page: &Json| page["content"]["rows"].as_array().cloned().unwrap_or_default();
    let account = json!(hex(&299_u64.to_be_bytes()));
    let found: Vec<_> = pages.iter().flat_map(rows).filter(|row| row["key"] == account).collect();
    assert_eq!((found.len(), &found[0]["value"]), (1, &json!(hex(&199_i64.to_le_bytes()))));
    assert_eq!((&found[0]["deleted"], &found[0]["large"]), (&json!(false), &json!(false)));
    // A large value: the row has a stub, and pages lead to the data.
    let blob = json!(hex(b"large"));
    assert!(pages.iter().flat_map(rows).any(|row| row["large"] == json!(true) && row["key"] == blob));
    let data = |page: &Json| page["content"]["data"].as_str().map_or(0, |data| data.len() / 2);
    assert_eq!(pages.iter().map(data).sum::<usize>(), 100_000);
    let text = dir.prints("page", &["2"]);
    assert!(text.lines().any(|line| line.split_whitespace().eq(["type", "map"])), "{text}");
    assert_eq!(dir.json("page", &["0"], 0)[0]["type"], json!("superblock"));
    assert!(before == contents(dir.path()), "a file was written");
}

#[test]
fn keys_and_values_are_shown_as_text() {
    let dir = Dir::with_database("page-text");
    let pages: Vec<_> = (3..20).map(|page| dir.run("page", &[&page.to_string(), "--utf8"]).output).collect();
    assert!(pages.iter().any(|page| page.contains("large")), "{pages:?}");
}

#[test]
fn nodes_above_the_leaves_list_their_children() {
    let dir = Dir::new("page-inner");
    let db = dir.open();
    let table = crate::support::ACCOUNTS;
    db.run(|tx| (0..20_000).try_for_each(|n| tx.open(table)?.put(n, 1))).unwrap();
    close(db);
    let pages = pages(&dir);
    let inner = pages.iter().find(|page| page["header"]["level"] == json!(1)).unwrap();
    let children = inner["content"]["children"].as_array().unwrap();
    let mut below = vec![inner["content"]["leftmost"].as_u64().unwrap()];
    below.extend(children.iter().map(|child| child["page"].as_u64().unwrap()));
    let page = |id: u64| pages.iter().find(|page| page["page"] == json!(id)).unwrap();
    assert!(below.len() > 20 && below.iter().all(|&id| page(id)["content"]["rows"].is_array()));
    for (child, &id) in children.iter().zip(&below[1..]) {
        assert_eq!(page(id)["content"]["low"], child["key"]);
    }
}

#[test]
fn a_damaged_page_is_shown_with_what_is_wrong() {
    let dir = Dir::with_database("page-damaged");
    let data = dir.path().join("data");
    let sound = fs::read(&data).unwrap();
    let (mut damaged, at) = (sound.clone(), 3 * 8192);
    damaged[at + 8000] ^= 1;
    fs::write(&data, &damaged).unwrap();
    let page = &dir.json("page", &["3"], 1)[0];
    assert_eq!(page["damage"], json!("the checksum of the page does not fit"));
    assert_eq!((&page["type"], &page["header"]["id"]), (&json!("tree"), &json!(3)));
    // Every byte of the page may be anything.
    let mut state = 1_u64;
    for _ in 0..200 {
        let mut damaged = sound.clone();
        for _ in 0..8 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            damaged[at + (state >> 33) as usize % 200] = (state >> 50) as u8;
        }
        fs::write(&data, &damaged).unwrap();
        let ran = dir.run("page", &["3"]);
        assert!(ran.code == 1 && ran.errors.is_empty(), "{ran:?}");
    }
    fs::write(&data, &sound[..sound.len() - 100]).unwrap();
    dir.run("page", &["3"]).is_refused(3, "is truncated");
}

#[test]
fn a_page_beyond_the_file_is_refused() {
    let dir = Dir::with_database("page-beyond");
    dir.run("page", &["1000000"]).is_refused(2, "there is no page 1000000: the data file has ");
    assert_eq!(dir.run("page", &["x"]).code, 2);
}
