//! Compaction of a database that no other process has open.

use crate::support::Dir;
use serde_json::json;

#[test]
fn a_compacted_database_has_the_same_rows_in_fewer_pages() {
    let dir = Dir::with_database("compact");
    let before = dir.prints("dump", &[]);
    let done = &dir.json("compact", &[], 0)[0];
    assert!(done["data_pages"].as_u64() > Some(0) && done["skipped_tables"] == json!(0), "{done}");
    assert_eq!(dir.prints("dump", &[]), before);
    let again = &dir.json("compact", &["--share", "50"], 0)[0];
    // A start may have made pages ready for writers.
    assert_eq!((&again["freed_pages"], &again["moved_pages"]), (&json!(0), &json!(0)), "{again}");
    assert!(dir.prints("compact", &[]).contains("truncated"));
    assert_eq!(dir.run("check", &[]).code, 0);
    Dir::new("compact-none").run("compact", &[]).is_refused(3, "there is no database in");
}
