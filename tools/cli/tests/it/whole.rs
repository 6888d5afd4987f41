//! Verbs about a database as a whole, on good and empty databases.

use crate::support::{Dir, close, contents};
use serde_json::json;

/// Whether a text of fields, one a line, has this one.
fn has_field(text: &str, name: &str, value: &str) -> bool {
    text.lines().any(|line| line.split_whitespace().eq([name, value]))
}

#[test]
fn info_says_what_the_files_say_and_writes_none() {
    let dir = Dir::with_database("info");
    let before = contents(dir.path());
    let info = &dir.json("info", &[], 0)[0];
    assert_eq!((&info["closed"], &info["format_version"]), (&json!(true), &json!(1)));
    assert_eq!(info["uuid"].as_str().unwrap().len(), 36);
    assert!(info["data"]["bytes"].as_u64() >= Some(8192 * info["data"]["pages"].as_u64().unwrap()));
    let text = dir.prints("info", &[]);
    assert!(has_field(&text, "uuid", info["uuid"].as_str().unwrap()), "{text}");
    assert!(has_field(&text, "data.pages", &info["data"]["pages"].to_string()), "{text}");
    assert!(has_field(&text, "quarantined_pages", "none"), "{text}");
    assert!(before == contents(dir.path()), "a file was written");
}

#[test]
fn info_works_on_a_database_in_use() {
    let dir = Dir::with_database("info-live");
    let db = dir.open();
    let info = &dir.json("info", &[], 0)[0];
    assert_eq!(info["closed"], json!(false));
    close(db);
}

#[test]
fn stats_count_the_rows_of_each_table() {
    let dir = Dir::with_database("stats");
    let stats = &dir.json("stats", &[], 0)[0];
    assert_eq!(stats["recovery"]["was_clean"], json!(true));
    let tables = stats["tables"].as_array().unwrap();
    let counts: Vec<_> = tables.iter().map(|table| (table["name"].as_str().unwrap(), &table["rows"])).collect();
    let rows = [300, 2, 2, 0].map(|count| json!(count));
    assert_eq!(counts, [("accounts", &rows[0]), ("blobs", &rows[1]), ("names", &rows[2]), ("shapes", &rows[3])]);
    assert_eq!(tables[1]["large_values"], json!(1));
    let one = &dir.json("stats", &["names"], 0)[0];
    assert_eq!(one["tables"].as_array().unwrap().len(), 1);
    assert!(has_field(&dir.prints("stats", &["accounts"]), "tables.0.rows", "300"));
    dir.run("stats", &["none"]).is_refused(2, "there is no table \"none\"");
}

/// 32 MiB for a second, until a restart was measured.
#[test]
fn a_restart_target_bounds_the_log() {
    let dir = Dir::with_database("restart-target");
    let text = dir.prints("stats", &["--prometheus", "--restart-target", "4s"]);
    assert!(text.contains("\nforeshore_log_budget_bytes 134217728\n"), "{text}");
    let refused = dir.run("stats", &["--restart-target", "soon"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.errors.contains("a time such as 10s"), "{refused:?}");
}

#[test]
fn stats_are_printed_for_prometheus() {
    let dir = Dir::with_database("prometheus");
    let text = dir.prints("stats", &["--prometheus"]);
    for line in [
        "# TYPE foreshore_commits_total counter",
        "foreshore_recovery_clean 1",
        "foreshore_table_rows{table=\"accounts\"} 300",
        "foreshore_table_large_values{table=\"blobs\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!dir.prints("stats", &["names", "--prometheus"]).contains("accounts"));
    assert_eq!(dir.run("stats", &["--prometheus", "--json"]).code, 2);
}

#[test]
fn check_finds_a_sound_database_sound() {
    let dir = Dir::with_database("check");
    let report = &dir.json("check", &[], 0)[0];
    assert_eq!((&report["sound"], &report["tables"], &report["rows"]), (&json!(true), &json!(4), &json!(304)));
    let text = dir.prints("check", &[]);
    assert!(text.starts_with("tables: 4, rows: 304, pages: ") && text.ends_with(", damaged: 0\n"), "{text}");
}

#[test]
fn tables_are_listed_with_their_types() {
    let dir = Dir::with_database("tables");
    let text = "accounts\tu64\ti64\nblobs\tbytes\tbytes\nnames\tstr\toption<str>\nshapes\tshape.v2\tshape.v2\n";
    assert_eq!(dir.prints("tables", &[]), text);
    let listed = &dir.json("tables", &[], 0)[0];
    assert_eq!(listed["tables"][0], json!({ "name": "accounts", "key_type": "u64", "value_type": "i64" }));
}

#[test]
fn an_empty_database_has_nothing_and_is_sound() {
    let dir = Dir::new("empty");
    close(dir.open());
    assert_eq!(dir.prints("tables", &[]), "");
    assert_eq!(dir.json("tables", &[], 0)[0], json!({ "tables": [] }));
    assert_eq!(dir.json("stats", &[], 0)[0]["tables"], json!([]));
    assert_eq!(dir.json("check", &[], 0)[0]["rows"], json!(0));
    assert_eq!(dir.json("info", &[], 0)[0]["closed"], json!(true));
    assert_eq!(dir.prints("dump", &[]), "{\"foreshore_dump\":1}\n{\"end\":{\"rows\":0,\"tables\":0}}\n");
    for verb in ["get", "del"] {
        dir.run(verb, &["accounts", "7"]).is_refused(2, "there is no table \"accounts\"");
    }
    dir.run("put", &["accounts", "7", "1"]).is_refused(2, "there is no table \"accounts\"");
    for (verb, words) in [("scan", &["accounts"][..]), ("rename", &["accounts", "new"]), ("clear", &["accounts"])] {
        dir.run(verb, words).is_refused(2, "there is no table \"accounts\"");
    }
    assert_eq!(dir.prints("tables", &[]), "", "none was created");
}
