//! Verbs that change a table as a whole.

use crate::support::{Dir, close, options};
use foreshore::{Error, IndexDef, TableDef};

const BY_LENGTH: IndexDef<u64, &str, u64> =
    IndexDef::new("by length", |_, name: &String, keys| keys.add(name.len() as u64));
const PEOPLE: TableDef<u64, &str> = TableDef::new("people").with_indexes(&[&BY_LENGTH]);
const MEMBERS: TableDef<u64, &str> = TableDef::new("members").with_indexes(&[&BY_LENGTH]);

/// A closed database with a table of two rows and an index, whose next row has the number 51.
fn with_index(name: &str) -> Dir {
    let dir = Dir::new(name);
    let db = dir.open();
    db.run(|tx| {
        let people = tx.open(PEOPLE)?;
        tx.skip_ids(&people, 50)?;
        [(1, "Grace"), (2, "Ada")].into_iter().try_for_each(|(key, name)| people.put(key, name))
    })
    .unwrap();
    close(db);
    dir
}

/// The keys of `table` in the order of its index, and the number of its next row.
fn by_length(dir: &Dir, table: TableDef<u64, &str>) -> (Vec<u64>, u64) {
    let db = options().open_existing(dir.path()).unwrap();
    let found = db.run(|tx| {
        let table = tx.open(table)?;
        let keys: Result<Vec<_>, _> = table.by_index(BY_LENGTH)?.range(..).map(|row| row.map(|(key, _)| key)).collect();
        Ok::<_, Error>((keys?, tx.next_id(&table)?))
    });
    close(db);
    found.unwrap()
}

#[test]
fn a_renamed_table_keeps_its_rows() {
    let dir = Dir::with_database("rename");
    let rows = dir.prints("scan", &["accounts"]);
    dir.prints("rename", &["accounts", "ledger of 2026"]);
    assert_eq!(dir.prints("scan", &["ledger of 2026"]), rows);
    dir.run("scan", &["accounts"]).is_refused(2, "there is no table \"accounts\"");
    let names = "blobs\tbytes\tbytes\nledger of 2026\tu64\ti64\nnames\tstr\toption<str>\nshapes\tshape.v2\tshape.v2\n";
    assert_eq!(dir.prints("tables", &[]), names);
    assert_eq!(dir.run("check", &[]).code, 0);
}

#[test]
fn a_rename_that_is_refused_changes_nothing() {
    let dir = Dir::with_database("rename-refused");
    let before = dir.prints("dump", &[]);
    dir.run("rename", &["none", "new"]).is_refused(2, "there is no table \"none\"");
    dir.run("rename", &["accounts", "names"]).is_refused(2, "there is a table \"names\": drop it or rename it first");
    dir.run("rename", &["accounts", ""]).is_refused(2, "\"\" cannot name a table");
    assert_eq!(dir.prints("dump", &[]), before);
}

#[test]
fn a_cleared_table_keeps_its_types_and_others_keep_their_rows() {
    let dir = Dir::with_database("clear");
    for table in ["accounts", "blobs", "shapes", "accounts"] {
        dir.prints("clear", &[table]);
    }
    assert_eq!(dir.prints("scan", &["accounts"]), "");
    assert_eq!(dir.run("get", &["accounts", "7"]).code, 1);
    let types = "accounts\tu64\ti64\nblobs\tbytes\tbytes\nnames\tstr\toption<str>\nshapes\tshape.v2\tshape.v2\n";
    assert_eq!(dir.prints("tables", &[]), types);
    let report = &dir.json("check", &[], 0)[0];
    assert_eq!(report["rows"], 2, "those of names: {report}");
    dir.prints("put", &["accounts", "7", "5"]);
    assert_eq!(dir.prints("scan", &["accounts"]), "7\t5\n");
    dir.run("clear", &["none"]).is_refused(2, "there is no table \"none\"");
    dir.run("clear", &[""]).is_refused(2, "\"\" cannot name a table");
}

#[test]
fn indexes_and_numbers_go_with_the_table() {
    let dir = with_index("tables-index");
    dir.prints("rename", &["people", "members"]);
    let (keys, number) = by_length(&dir, MEMBERS);
    assert_eq!(keys, [2, 1], "the index is used");
    assert!(number > 50, "{number}");
    dir.prints("clear", &["members"]);
    let (keys, next) = by_length(&dir, MEMBERS);
    assert!(keys.is_empty() && next > number, "{keys:?} {next}");
    assert_eq!(dir.run("check", &[]).code, 0);
}
