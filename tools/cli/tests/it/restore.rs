//! Restores, and the check of backup and archive.

use crate::schema;
use crate::support::{Dir, foreshore};
use foreshore::{Options, TableDef};
use std::ffi::OsStr;

const NUMBERS: TableDef<u64, u64> = TableDef::new("numbers");

fn path(dir: &Dir, name: &str) -> String {
    dir.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_restore_ends_where_it_is_told() {
    let dir = Dir::new("restore");
    let [db, backup, archive] = ["db", "copy", "archive"].map(|name| path(&dir, name));
    let open = Options::new().archive(&archive).open(&db).unwrap();
    let put = |n| open.run_pipelined(|tx| tx.open(NUMBERS)?.put(n, n)).unwrap().1;
    put(1).wait().unwrap();
    open.backup(&backup).unwrap();
    let second = put(2).record_lsn();
    put(3).wait().unwrap();
    drop(open);

    let ran = |words: &[&str]| foreshore(words.iter().map(OsStr::new), None);
    let verified = ran(&["verify", &backup, "--archive", &archive, "--json"]);
    let whole = &schema::lines("restore", &verified.output)[0];
    assert!(whole["lsn"].as_u64() > Some(second.0) && whole["time"].as_u64() > Some(1_700_000_000), "{whole}");
    let ends: [(&str, Vec<String>, usize); 4] = [
        ("all", vec!["--archive".into(), archive.clone()], 3),
        ("lsn", vec!["--archive".into(), archive.clone(), "--until-lsn".into(), second.0.to_string()], 2),
        ("alone", vec![], 1),
        ("time", vec!["--until-time".into(), "9999999999".into()], 0),
    ];
    for (name, options, rows) in ends {
        let out = path(&dir, name);
        let words: Vec<&str> =
            ["restore", &backup, &out].into_iter().chain(options.iter().map(String::as_str)).collect();
        let restored = ran(&words);
        if rows == 0 {
            restored.is_refused(2, "before the position");
            continue;
        }
        assert_eq!(restored.code, 0, "{name}: {}", restored.output);
        assert_eq!(ran(&["scan", &out, "numbers"]).output.lines().count(), rows, "{name}");
        ran(&words).is_refused(2, "is not empty");
    }
    ran(&["restore", &db, &path(&dir, "used")]).is_refused(4, "it was opened as a database");
    ran(&["verify", &path(&dir, "nothing")]).is_refused(4, "nothing");
}

#[test]
fn what_a_verb_has_archived_is_restored() {
    let dir = Dir::new("restore-verb");
    let [db, backup, archive, out] = ["db", "copy", "archive", "out"].map(|name| path(&dir, name));
    let ran = |words: &[&str]| foreshore(words.iter().map(OsStr::new), None);
    let open = Options::new().archive(&archive).open(&db).unwrap();
    open.run(|tx| tx.open(NUMBERS)?.put(1, 1)).unwrap();
    open.backup(&backup).unwrap();
    drop(open);
    for words in [
        ["put", &*db, "numbers", "2", "2", "--archive", &*archive].as_slice(),
        &["restore", &backup, &out, "--archive", &archive],
    ] {
        let done = ran(words);
        assert_eq!(done.code, 0, "{words:?}: {done:?}");
    }
    assert_eq!(ran(&["get", &out, "numbers", "2"]).output, "2\n");
    ran(&["tables", &db, "--archive", &path(&dir, "typo")]).is_refused(2, "typo is no directory");
    assert_eq!(ran(&["shell", &db, "--read-only", "--archive", &archive]).code, 2);
}

#[test]
fn a_chain_of_increments_is_restored_in_its_order() {
    let dir = Dir::new("restore-chain");
    let [db, full, first, second, out] = ["db", "full", "first", "second", "out"].map(|name| path(&dir, name));
    let ran = |words: &[&str]| foreshore(words.iter().map(OsStr::new), None);
    let put = |n: u64| Options::new().open(&db).unwrap().run(|tx| tx.open(NUMBERS)?.put(n, n)).unwrap();
    for (n, words) in [
        vec!["backup", &*db, &*full],
        vec!["backup", &*db, &*first, "--since", &*full],
        vec!["backup", &*db, &*second, "--since", &*first],
    ]
    .iter()
    .enumerate()
    {
        put(n as u64);
        let made = ran(words);
        assert_eq!(made.code, 0, "{}", made.output);
    }
    assert_eq!(ran(&["verify", &full, &first, &second]).code, 0);
    ran(&["verify", &full, &second]).is_refused(2, "does not continue the backup");
    ran(&["restore", &first, &out]).is_refused(2, "is an incremental backup");
    ran(&["check", &first]).is_refused(3, "it is an incremental backup");
    assert_eq!(ran(&["restore", &full, &first, &second, &out]).code, 0);
    assert_eq!(ran(&["scan", &out, "numbers"]).output.lines().count(), 3);
}
