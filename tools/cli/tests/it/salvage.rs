//! The rows that are left of a damaged database, in a new one.

use crate::schema;
use crate::support::{ACCOUNTS, BLOBS, Dir, Ran, close, contents, fill, foreshore};
use foreshore::{Db, TableDef};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: usize = 8192;
/// Rows of 100 bytes: a tree of three levels.
const WIDE: TableDef<u64, &[u8]> = TableDef::new("wide");
const WIDE_ROWS: u64 = 60_000;

/// A directory with a place for the new database.
pub(crate) struct Target(Dir, pub(crate) PathBuf);

impl Target {
    pub(crate) fn new(name: &str) -> Self {
        let dir = Dir::new(name);
        let out = dir.path().join("out");
        Self(dir, out)
    }

    fn salvage(&self, dir: &Dir, words: &[&str]) -> Ran {
        dir.run("salvage", &[&[self.1.to_str().unwrap()], words].concat())
    }

    /// Salvages with `--json`, and returns the report.
    pub(crate) fn report(&self, dir: &Dir, code: i32) -> Json {
        let ran = self.salvage(dir, &["--json"]);
        assert_eq!((ran.code, &*ran.errors), (code, ""), "{ran:?}");
        schema::lines("salvage", &ran.output).remove(0)
    }

    fn run(&self, verb: &str) -> Ran {
        foreshore([OsStr::new(verb), self.1.as_os_str()].into_iter(), None)
    }

    /// Checks that nothing is left beside the new database, or at all.
    fn has(&self, names: &[&str]) {
        let found: Vec<_> = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(found, names);
    }
}

/// The pages of the data file that `is_chosen` accepts.
pub(crate) fn pages(dir: &Dir, is_chosen: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let data = fs::read(dir.path().join("data")).unwrap();
    data.chunks(PAGE).enumerate().filter(|(_, page)| is_chosen(page)).map(|(at, _)| at as u64).collect()
}

/// Whether a page is a node of a table on a level.
pub(crate) fn is_node(page: &[u8], table: u32, level: u8) -> bool {
    page[4..6] == [3, level] && page[24..28] == table.to_le_bytes()
}

/// Changes a byte of each page, and removes the copies of them.
pub(crate) fn damage(dir: &Dir, pages: &[u64]) {
    let data = dir.path().join("data");
    let mut bytes = fs::read(&data).unwrap();
    for &page in pages {
        bytes[page as usize * PAGE + 8000] ^= 1;
    }
    fs::write(&data, bytes).unwrap();
    let doublewrite = dir.path().join("dw");
    let mut bytes = fs::read(&doublewrite).unwrap();
    bytes[PAGE..].fill(0);
    fs::write(&doublewrite, bytes).unwrap();
}

/// A closed database with the table `wide`, and the number of that table.
fn wide(name: &str) -> (Dir, u32) {
    let dir = Dir::new(name);
    let db = dir.open();
    db.run(|tx| tx.open(WIDE)?.load((0..WIDE_ROWS).map(|n| (n, &[7_u8; 100][..])))).unwrap();
    close(db);
    // Its leaves name it.
    let is_leaf = |page: &[u8]| page[4..6] == [3, 0] && page.windows(100).any(|bytes| bytes == [7; 100]);
    let at = pages(&dir, is_leaf)[0] as usize * PAGE;
    let data = fs::read(dir.path().join("data")).unwrap();
    let table = u32::from_le_bytes(data[at + 24..at + 28].try_into().unwrap());
    (dir, table)
}

/// The missing keys below `rows` of the table `wide`, as ranges of the first and the last one.
fn missing(db: &Db, rows: u64) -> Vec<(u64, u64)> {
    let reader = db.read();
    let found: Vec<u64> = reader.open(WIDE).unwrap().keys(..).map(Result::unwrap).collect();
    let ends = [None].into_iter().chain(found.iter().copied().map(Some)).zip(found.iter().copied().chain([rows]));
    let gap = |(before, next): (Option<u64>, u64)| (before.map_or(0, |key| key + 1), next);
    ends.map(gap).filter(|(from, to)| from < to).map(|(from, to)| (from, to - 1)).collect()
}

fn open(path: &Path) -> Db {
    crate::support::options().open_existing(path).unwrap()
}

#[test]
fn a_sound_database_is_copied_whole() {
    let (dir, to) = (Dir::with_database("salvage"), Target::new("salvage-out"));
    let before = contents(dir.path());
    let report = to.report(&dir, 0);
    assert_eq!((&report["whole"], &report["hidden"]), (&json!(true), &json!([])));
    assert_eq!(report["tables"][0], json!({ "name": "accounts", "rows": 300, "indexes": [], "missing": [] }));
    assert!(before == contents(dir.path()), "a file was written");
    to.has(&["out"]);
    assert_eq!(to.run("dump").output, dir.prints("dump", &[]));
    assert_eq!(to.run("check").code, 0);
    // An empty directory is as good as none.
    fs::remove_dir_all(&to.1).unwrap();
    fs::create_dir(&to.1).unwrap();
    assert_eq!(to.salvage(&dir, &[]).output.lines().next(), Some("accounts\trows: 300, missing: 0"));
}

#[test]
fn an_empty_database_becomes_an_empty_one() {
    let (dir, to) = (Dir::new("salvage-empty"), Target::new("salvage-empty-out"));
    close(dir.open());
    assert_eq!(to.report(&dir, 0), json!({ "whole": true, "tables": [], "hidden": [], "prepared": [] }));
    assert_eq!(to.run("dump").output, dir.prints("dump", &[]));
}

#[test]
fn a_database_that_was_not_closed_is_recovered_in_a_copy() {
    let (live, to) = (Dir::new("salvage-live"), Target::new("salvage-crashed-out"));
    let db = live.open();
    fill(&db);
    let unfinished = db.begin();
    unfinished.open(ACCOUNTS).unwrap().put(7, 0).unwrap();
    db.sync().unwrap();
    to.salvage(&live, &[]).is_refused(3, "is already open");
    to.has(&[]);
    let crashed = live.copy("salvage-crashed");
    drop(unfinished);
    let before = contents(crashed.path());
    assert_eq!(to.report(&crashed, 0)["tables"][0]["rows"], json!(300));
    assert!(before == contents(crashed.path()), "a file was written");
    to.has(&["out"]);
    close(db);
    assert_eq!(to.run("dump").output, live.prints("dump", &[]));
}

#[test]
fn the_changes_of_a_prepared_transaction_are_listed_as_missing() {
    let (dir, to) = (Dir::with_database("salvage-prepared"), Target::new("salvage-prepared-out"));
    let db = open(dir.path());
    let tx = db.begin();
    tx.open(ACCOUNTS).unwrap().put(1_000_000, 1).unwrap();
    tx.prepare("order 7").unwrap();
    close(db);
    let report = to.report(&dir, 1);
    assert_eq!((&report["whole"], &report["prepared"]), (&json!(false), &json!(["order 7"])));
    let line = "the changes of the prepared transaction order 7 are missing";
    let (text, other) = (Target::new("salvage-prepared-text"), dir.copy("salvage-prepared-copy"));
    let ran = text.salvage(&other, &[]);
    assert!(ran.code == 1 && ran.output.lines().any(|found| found == line), "{ran:?}");
}

#[test]
fn the_rows_of_a_damaged_leaf_are_missing_and_no_others() {
    let (dir, table) = wide("salvage-leaf");
    let to = Target::new("salvage-leaf-out");
    let leaves = pages(&dir, |page| is_node(page, table, 0));
    assert!(leaves.len() > 600, "{}", leaves.len());
    // The first, two that lie side by side in the middle, and the last one.
    let middle = leaves.len() / 2;
    let hurt = [leaves[0], leaves[middle], leaves[middle + 1], leaves[leaves.len() - 1]];
    damage(&dir, &hurt);
    let report = to.report(&dir, 1);
    let found = &report["tables"][0];
    let mut named: Vec<_> =
        found["missing"].as_array().unwrap().iter().map(|gap| gap["page"].as_u64().unwrap()).collect();
    named.sort_unstable();
    assert_eq!((&report["whole"], named), (&json!(false), hurt.to_vec()));
    let db = open(&to.1);
    let gaps = missing(&db, WIDE_ROWS);
    let lost: u64 = gaps.iter().map(|(first, last)| last - first + 1).sum();
    assert_eq!(found["rows"], json!(WIDE_ROWS - lost));
    assert!(lost < 4 * 80, "{gaps:?}");
    // The report says where they were.
    let said: std::collections::BTreeSet<_> = found["missing"].as_array().unwrap().iter().map(range).collect();
    assert_eq!(said.into_iter().collect::<Vec<_>>(), gaps);
    assert!(db.read().open(WIDE).unwrap().iter().all(|row| row.unwrap().1 == [7; 100]));
    db.check().unwrap();
}

/// The first and the last key of a gap in the report.
fn range(gap: &Json) -> (u64, u64) {
    let first = gap["after"].as_u64().map_or(0, |key| key + 1);
    (first, gap["before"].as_u64().unwrap_or(WIDE_ROWS) - 1)
}

#[test]
fn no_row_below_damaged_inner_nodes_is_missing() {
    let (dir, table) = wide("salvage-inner");
    let to = Target::new("salvage-inner-out");
    let is_inner = |page: &[u8]| is_node(page, table, 1) || is_node(page, table, 2);
    let inner = pages(&dir, is_inner);
    assert!(inner.len() > 3, "a tree of three levels");
    damage(&dir, &inner);
    let report = to.report(&dir, 0);
    assert_eq!((&report["whole"], &report["tables"][0]["rows"]), (&json!(true), &json!(WIDE_ROWS)));
    let db = open(&to.1);
    assert_eq!(missing(&db, WIDE_ROWS), []);
    db.check().unwrap();
}

/// The undo of changes below a damaged node is skipped, so its leaves show what was not committed.
#[test]
fn no_change_that_was_not_committed_comes_back_from_below_a_damaged_node() {
    let (live, table) = wide("salvage-undo");
    let to = Target::new("salvage-undo-out");
    let db = open(live.path());
    let unfinished = db.begin();
    let rows = unfinished.open(WIDE).unwrap();
    rows.put(100, &[8; 100][..]).unwrap();
    rows.remove(101).unwrap();
    rows.put(WIDE_ROWS, &[8; 100][..]).unwrap();
    // The changed leaves reach the data file.
    db.checkpoint().unwrap();
    let crashed = live.copy("salvage-undo-crashed");
    drop(rows);
    drop(unfinished);
    close(db);
    damage(&crashed, &pages(&crashed, |page| is_node(page, table, 1) || is_node(page, table, 2)));
    let report = to.report(&crashed, 1);
    let gaps = report["tables"][0]["missing"].as_array().unwrap();
    assert!(report["whole"] == json!(false) && !gaps.is_empty(), "{report}");
    let out = open(&to.1);
    assert!(out.read().open(WIDE).unwrap().iter().all(|row| row.unwrap().1 == [7; 100]), "a change came back");
    let gaps: Vec<_> = gaps.iter().map(range).collect();
    assert!(missing(&out, WIDE_ROWS).iter().all(|gap| gaps.iter().any(|said| said.0 <= gap.0 && gap.1 <= said.1)));
}

/// Without a map no page is known to be in use, so only those that the tree leads to are read.
#[test]
fn without_the_map_the_rows_below_a_damaged_inner_node_are_missing_and_no_others() {
    let (dir, table) = wide("salvage-map");
    let to = Target::new("salvage-map-out");
    let inner = pages(&dir, |page| is_node(page, table, 1));
    damage(&dir, &[inner[0], 2]);
    let report = to.report(&dir, 1);
    let gaps = report["tables"][0]["missing"].as_array().unwrap();
    assert_eq!((gaps.len(), &gaps[0]["page"]), (1, &json!(inner[0])));
    let db = open(&to.1);
    assert_eq!(missing(&db, WIDE_ROWS), [range(&gaps[0])]);
    assert!(db.read().open(WIDE).unwrap().len().unwrap() > 0, "other subtrees are there");
}

#[test]
fn the_rows_before_the_cut_of_a_data_file_are_there() {
    let (dir, table) = wide("salvage-cut");
    let to = Target::new("salvage-cut-out");
    let leaves = pages(&dir, |page| is_node(page, table, 0));
    let cut = leaves[leaves.len() / 2] as usize * PAGE;
    let data = fs::read(dir.path().join("data")).unwrap();
    let rows = |at: &u64| u64::from(u16::from_le_bytes(data[*at as usize * PAGE + 32..][..2].try_into().unwrap()));
    let left: u64 = leaves[..leaves.len() / 2].iter().map(rows).sum();
    fs::write(dir.path().join("data"), &data[..cut]).unwrap();
    let images = fs::read(dir.path().join("dw")).unwrap();
    fs::write(dir.path().join("dw"), &images[..PAGE]).unwrap();
    let before = contents(dir.path());
    assert_eq!(to.report(&dir, 1)["tables"][0]["rows"], json!(left));
    assert!(before == contents(dir.path()), "a file was written");
    assert!(left > WIDE_ROWS / 3, "{left}");
    to.has(&["out"]);
}

#[test]
fn a_damaged_root_hides_its_table_alone() {
    let (dir, to) = (Dir::with_database("salvage-root"), Target::new("salvage-root-out"));
    let row = [&b"Ada"[..], b"Countess\tof Lovelace"];
    let root = pages(&dir, |page| row.iter().all(|text| page.windows(text.len()).any(|bytes| bytes == *text)));
    assert_eq!(root.len(), 1, "{root:?}");
    damage(&dir, &root);
    let ran = to.salvage(&dir, &[]);
    let lines: Vec<_> = ran.output.lines().collect();
    assert_eq!((ran.code, lines.len()), (1, 5), "{ran:?}");
    assert_eq!((lines[0], lines[2]), ("accounts\trows: 300, missing: 0", "names\trows: 0, missing: 1"));
    assert!(lines[3].starts_with(&format!("names\tpage {}: all rows are missing: ", root[0])), "{}", lines[3]);
    let tables = to.run("tables").output;
    assert!(tables.contains("names\tstr\toption<str>\n"), "the table is there: {tables}");
}

#[test]
fn a_row_whose_large_value_is_damaged_is_missing_by_itself() {
    let (dir, to) = (Dir::with_database("salvage-large"), Target::new("salvage-large-out"));
    let chain = pages(&dir, |page| page[4] != 3 && page.windows(4000).any(|bytes| bytes == [b'x'; 4000]));
    assert!(chain.len() > 10, "{chain:?}");
    damage(&dir, &chain[5..6]);
    let report = to.report(&dir, 1);
    let blobs = &report["tables"][1];
    assert_eq!((&blobs["name"], &blobs["rows"]), (&json!("blobs"), &json!(1)));
    let gap = &blobs["missing"][0];
    assert_eq!((&gap["page"], &gap["key"]), (&json!(chain[5]), &json!("6c61726765")));
    let db = open(&to.1);
    assert_eq!(db.read().open(BLOBS).unwrap().get(&b"\x00\xff"[..]).unwrap().as_deref(), Some(&b"a\\b"[..]));
}

#[test]
fn a_damaged_leaf_of_the_catalogue_hides_its_tables_alone() {
    let (dir, to) = (Dir::new("salvage-catalogue"), Target::new("salvage-catalogue-out"));
    let db = dir.open();
    let name = |n: u32| format!("table {n:03} {}", "x".repeat(100));
    db.run(|tx| (0..200).try_for_each(|n| tx.open(TableDef::<u32, u32>::new(&name(n)))?.put(n, n))).unwrap();
    close(db);
    let leaves = pages(&dir, |page| is_node(page, 1, 0));
    assert!(leaves.len() > 2, "{leaves:?}");
    damage(&dir, &leaves[1..2]);
    let report = to.report(&dir, 1);
    assert_eq!(report["hidden"].as_array().unwrap().len(), 1);
    assert_eq!(report["hidden"][0]["page"], json!(leaves[1]));
    let there: BTreeMap<_, _> = report["tables"]
        .as_array()
        .unwrap()
        .iter()
        .map(|table| (table["name"].as_str().unwrap(), &table["rows"]))
        .collect();
    assert!((100..200).contains(&there.len()), "{}", there.len());
    assert!(there.values().all(|&rows| rows == &json!(1)));
    let dump = to.run("dump");
    assert_eq!((dump.code, dump.output.lines().count()), (0, 2 * there.len() + 2));
}

#[test]
fn what_is_no_target_is_refused_and_stays_as_it_is() {
    let (dir, to) = (Dir::with_database("salvage-target"), Target::new("salvage-target-out"));
    fs::create_dir(&to.1).unwrap();
    fs::write(to.1.join("notes.txt"), "text").unwrap();
    to.salvage(&dir, &[]).is_refused(2, "out");
    assert_eq!(fs::read(to.1.join("notes.txt")).unwrap(), b"text");
    fs::remove_dir_all(&to.1).unwrap();
    fs::write(&to.1, "text").unwrap();
    to.salvage(&dir, &[]).is_refused(2, "is no directory");
    fs::remove_file(&to.1).unwrap();
    let linked = to.0.path().join("linked");
    fs::create_dir(&linked).unwrap();
    std::os::unix::fs::symlink(&linked, &to.1).unwrap();
    to.salvage(&dir, &[]).is_refused(2, "cannot be replaced");
    fs::remove_file(&to.1).unwrap();
    fs::remove_dir(&linked).unwrap();
    fs::create_dir(to.0.path().join("out.unfinished")).unwrap();
    to.salvage(&dir, &[]).is_refused(2, "out.unfinished exists");
    to.has(&["out.unfinished"]);
    let inside = dir.path().join("out");
    dir.run("salvage", &[inside.to_str().unwrap()]).is_refused(2, " lies in ");
    dir.run("salvage", &["/nowhere/out"]).is_refused(4, "/nowhere");
}

#[test]
fn what_is_no_database_is_refused_and_leaves_nothing() {
    let (dir, to) = (Dir::new("salvage-foreign"), Target::new("salvage-foreign-out"));
    to.salvage(&dir, &[]).is_refused(3, "there is no database in");
    fs::write(dir.path().join("data"), b"SQLite format 3\0".repeat(4096)).unwrap();
    assert_eq!(to.salvage(&dir, &[]).code, 3);
    let other = Dir::with_database("salvage-other");
    fs::write(other.path().join("data"), b"SQLite format 3\0".repeat(4096)).unwrap();
    to.salvage(&other, &[]).is_refused(3, "data does not belong to this database");
    to.has(&[]);
}
