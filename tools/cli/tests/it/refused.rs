//! Directories that cannot be opened, and arguments that are refused.

use crate::support::{Dir, close, contents, fill, foreshore};
use foreshore_base::crc32c;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// The verbs with the arguments that they need, except `load`, which creates a database.
const VERBS: [(&str, &[&str]); 14] = [
    ("info", &[]),
    ("stats", &[]),
    ("check", &[]),
    ("tables", &[]),
    ("get", &["accounts", "7"]),
    ("put", &["accounts", "7", "1"]),
    ("del", &["accounts", "7"]),
    ("scan", &["accounts"]),
    ("rename", &["accounts", "renamed"]),
    ("clear", &["accounts"]),
    ("dump", &[]),
    ("log", &[]),
    ("page", &["3"]),
    ("shell", &[]),
];

fn run(verb: &str, dir: &Path, words: &[&str]) -> crate::support::Ran {
    let words = words.iter().map(OsStr::new);
    foreshore([OsStr::new(verb), dir.as_os_str()].into_iter().chain(words), None)
}

#[test]
fn a_directory_without_a_database_is_refused_and_stays_as_it_is() {
    let dir = Dir::new("foreign");
    fs::write(dir.path().join("notes.txt"), "text").unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    let before = contents(dir.path());
    for (verb, words) in VERBS {
        for path in [dir.path().to_owned(), dir.path().join("empty"), dir.path().join("absent")] {
            run(verb, &path, words).is_refused(3, &format!("there is no database in {}", path.display()));
        }
        let file = dir.path().join("notes.txt");
        run(verb, &file, words).is_refused(3, &file.display().to_string());
    }
    assert!(before == contents(dir.path()));
}

#[test]
fn files_of_something_else_are_refused() {
    let dir = Dir::with_database("other-files");
    fs::write(dir.path().join("data"), b"SQLite format 3\0".repeat(4096)).unwrap();
    for (verb, words) in VERBS {
        dir.run(verb, words).is_refused(3, "data does not belong to this database");
    }
    let ran = dir.run_with("load", &[], "{\"foreshore_dump\":1}\n");
    ran.is_refused(3, "data does not belong to this database");
}

#[test]
fn a_database_in_use_is_refused_by_the_verbs_that_open_it() {
    let dir = Dir::new("in-use");
    let db = dir.open();
    fill(&db);
    for (verb, words) in VERBS.into_iter().filter(|(verb, _)| !["info", "log", "page"].contains(verb)) {
        dir.run(verb, words).is_refused(3, &format!("{} is already open", dir.path().display()));
    }
    let ran = dir.run_with("load", &[], "{\"foreshore_dump\":1}\n");
    ran.is_refused(3, "is already open");
    close(db);
    assert_eq!(dir.prints("get", &["accounts", "7"]), "-93\n");
}

#[test]
fn a_newer_format_is_refused() {
    let dir = Dir::with_database("newer");
    let data = dir.path().join("data");
    let mut bytes = fs::read(&data).unwrap();
    for slot in [0, 8192] {
        let block = &mut bytes[slot..slot + 4096];
        block[8..12].copy_from_slice(&99_u32.to_le_bytes());
        let crc = crc32c(&block[..4092]);
        block[4092..].copy_from_slice(&crc.to_le_bytes());
    }
    fs::write(&data, bytes).unwrap();
    for (verb, words) in VERBS {
        dir.run(verb, words).is_refused(3, "has format version 99, this build reads up to 1: use a newer build");
    }
}

#[test]
fn superblocks_that_are_damaged_are_refused() {
    let dir = Dir::with_database("no-superblock");
    let data = dir.path().join("data");
    let mut bytes = fs::read(&data).unwrap();
    [100, 8292].into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&data, bytes).unwrap();
    for (verb, words) in VERBS {
        dir.run(verb, words).is_refused(3, "no superblock is sound");
    }
}

#[test]
fn arguments_are_refused_with_2() {
    let dir = Dir::with_database("usage");
    for (verb, words) in [
        ("get", &["accounts"][..]),
        ("rename", &["accounts"]),
        ("clear", &["accounts", "names"]),
        ("get", &["accounts", "7", "--hex", "--utf8"]),
        ("scan", &["accounts", "--prefix", "x", "--from", "1"]),
        ("scan", &["accounts", "--limit", "-1"]),
        ("info", &["--yaml"]),
        ("stats", &["--memory", "1GB"]),
    ] {
        let ran = dir.run(verb, words);
        assert_eq!((ran.code, &*ran.output), (2, ""), "{ran:?}");
    }
    dir.run("stats", &["--memory", "1KiB"]).is_refused(2, "option memory_limit");
    dir.run("scan", &["accounts", "--prefix", "1"]).is_refused(2, "keys of this type have no prefix");
    dir.run("inspect", &[]).is_refused(2, "expected info, stats, check");
}

#[test]
fn the_help_of_every_verb_says_what_it_does() {
    let help = run("--help", Path::new("help"), &[]);
    assert_eq!(help.code, 0, "{help:?}");
    assert!(help.output.contains("Exit status:") && help.output.contains("recovers"), "{}", help.output);
    for verb in VERBS.map(|(verb, _)| verb).into_iter().chain(["load"]) {
        assert!(help.output.contains(&format!("\n  {verb} ")), "{verb}");
        let own = run(verb, Path::new("--help"), &[]);
        assert_eq!(own.code, 0, "{own:?}");
        let is_opened = !["info", "log", "page"].contains(&verb);
        let says = if is_opened { "this recovers it: files are written" } else { "recovers nothing, writes nothing" };
        let text = own.output.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(says), "{}", own.output);
    }
}
