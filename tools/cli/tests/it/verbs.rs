//! Every verb on a good, an empty, a live, a damaged and a foreign database.
//!
//! `top`, `bench`, `lab`, `completions` and `man` open no database of a user.

use crate::support::{Dir, Ran, close, fill, foreshore};
use std::ffi::OsStr;
use std::fs;

const PAGE: usize = 8192;

/// What a run leaves: its exit status, and a part of its output or, if it is refused, of its error.
type End = (i32, &'static str);

/// A verb with its words, of which `OUT` is a new directory, `BACKUP` a backup and `LEAF` a page, and its input. Then
/// what it leaves of the five databases. The row 299 of `accounts` lies in the damaged leaf.
type Case = (&'static str, &'static [&'static str], &'static str, [End; 5]);

const NONE: End = (2, "there is no table \"accounts\"");
const OPEN: End = (3, "is already open");
const DAMAGED: End = (4, "table \"accounts\" is damaged at page");
const FOREIGN: End = (3, "data does not belong to this database");

const DUMP: &str = "{\"foreshore_dump\":1}\n{\"table\":\"accounts\",\"key_type\":\"u64\",\"value_type\":\"i64\"}\n\
                    [\"000000000000012b\",\"0100000000000000\"]\n{\"end\":{\"rows\":1,\"tables\":1}}\n";

const CASES: [Case; 21] = [
    ("info", &[], "", [(0, "uuid"), (0, "uuid"), (0, "uuid"), (0, "uuid"), FOREIGN]),
    ("stats", &[], "", [(0, "accounts"), (0, "recovery"), OPEN, DAMAGED, FOREIGN]),
    ("check", &[], "", [(0, "rows: 304"), (0, "rows: 0"), OPEN, (1, "damaged: 1"), FOREIGN]),
    ("tables", &[], "", [(0, "accounts\tu64\ti64"), (0, ""), OPEN, (0, "accounts\tu64\ti64"), FOREIGN]),
    ("get", &["accounts", "299"], "", [(0, "199\n"), NONE, OPEN, DAMAGED, FOREIGN]),
    ("put", &["accounts", "299", "1"], "", [(0, ""), NONE, OPEN, DAMAGED, FOREIGN]),
    ("del", &["accounts", "299"], "", [(0, ""), NONE, OPEN, DAMAGED, FOREIGN]),
    ("scan", &["accounts"], "", [(0, "299\t199\n"), NONE, OPEN, (4, "is damaged at page"), FOREIGN]),
    ("rename", &["accounts", "ledger"], "", [(0, ""), NONE, OPEN, (0, ""), FOREIGN]),
    ("clear", &["accounts"], "", [(0, ""), NONE, OPEN, (0, ""), FOREIGN]),
    ("dump", &[], "", [(0, "\"rows\":304"), (0, "\"rows\":0"), OPEN, (4, "is damaged at page"), FOREIGN]),
    ("load", &[], DUMP, [(0, "rows: 1"), (0, "rows: 1"), OPEN, DAMAGED, FOREIGN]),
    ("log", &[], "", [(0, "last LSN"), (0, "last LSN"), (0, "last LSN"), (0, "last LSN"), FOREIGN]),
    ("page", &["LEAF"], "", [(0, "damage"), (0, "header"), (0, "damage"), (1, "checksum"), FOREIGN]),
    ("backup", &["OUT"], "", [(0, "pages"), (0, "pages"), OPEN, (4, "is corrupted at page"), FOREIGN]),
    ("restore", &["OUT"], "", [(0, "pages"), (0, "pages"), (4, "is already open"), (4, "checksum"), (4, "belong")]),
    ("verify", &[], "", [(0, "pages"), (0, "pages"), (4, "is already open"), (4, "checksum"), (4, "belong")]),
    ("compact", &[], "", [(0, "truncated"), (0, "truncated"), OPEN, (0, "truncated"), FOREIGN]),
    ("repair", &["--backup", "BACKUP"], "", [(0, "damaged: 0"), (0, "damaged: 0"), OPEN, (0, "repaired: 1"), FOREIGN]),
    ("salvage", &["OUT"], "", [(0, "accounts"), (0, ""), OPEN, (1, "missing: "), FOREIGN]),
    ("shell", &[], "get accounts 299\n", [(0, "199\n"), NONE, OPEN, DAMAGED, FOREIGN]),
];

/// A closed database, a backup of it, the page with the row 299, and a directory for what is made of them.
struct Subject {
    dir: Dir,
    beside: Dir,
    leaf: usize,
    is_live: bool,
}

impl Subject {
    fn new(is_empty: bool) -> Self {
        let kind = if is_empty { "empty" } else { "good" };
        let (dir, beside) = (Dir::new(&format!("verbs-{kind}")), Dir::new(&format!("verbs-{kind}-beside")));
        let db = dir.open();
        if !is_empty {
            fill(&db);
        }
        db.backup(beside.path().join("backup")).unwrap();
        close(db);
        let row = [&299_u64.to_be_bytes()[..], &199_i64.to_le_bytes()].concat();
        let data = fs::read(dir.path().join("data")).unwrap();
        let leaf = data.chunks(PAGE).position(|page| page.windows(16).any(|bytes| bytes == row)).unwrap_or(3);
        Self { dir, beside, leaf, is_live: false }
    }

    fn copy(&self, is_live: bool) -> Self {
        let (dir, beside) = (self.dir.copy("verbs-copy"), self.beside.copy("verbs-copy-beside"));
        Self { dir, beside, leaf: self.leaf, is_live }
    }

    /// Damages the leaf in the database, without a copy that mends it, and in the backup if that is `of_backup`.
    fn damage(&self, of_backup: bool) {
        let dir = if of_backup { self.beside.path().join("backup") } else { self.dir.path().to_owned() };
        let data = dir.join("data");
        let mut bytes = fs::read(&data).unwrap();
        bytes[self.leaf * PAGE + 8000] ^= 1;
        fs::write(&data, bytes).unwrap();
        let images = self.dir.path().join("dw");
        let mut bytes = fs::read(&images).unwrap();
        bytes[PAGE..].fill(0);
        fs::write(&images, bytes).unwrap();
    }

    /// Makes the files those of something else.
    fn replace(&self) {
        for dir in [self.dir.path().to_owned(), self.beside.path().join("backup")] {
            fs::write(dir.join("data"), b"SQLite format 3\0".repeat(4096)).unwrap();
        }
    }

    fn run(&self, verb: &str, words: &[&str], input: &str) -> Ran {
        let (out, backup) = (self.beside.path().join("out"), self.beside.path().join("backup"));
        let leaf = self.leaf.to_string();
        // These two read a backup, and the database only if it is the live one.
        let of_backup = ["restore", "verify"].contains(&verb) && !self.is_live;
        let mut all = vec![OsStr::new(verb), if of_backup { backup.as_os_str() } else { self.dir.path().as_os_str() }];
        all.extend(words.iter().map(|&word| match word {
            "OUT" => out.as_os_str(),
            "BACKUP" => backup.as_os_str(),
            "LEAF" => OsStr::new(&leaf),
            other => OsStr::new(other),
        }));
        foreshore(all.into_iter(), Some(input).filter(|input| !input.is_empty()))
    }
}

/// Whether a run has left what it should.
fn has_left(ran: &Ran, (code, text): End) -> bool {
    let said = if code > 1 { &ran.errors } else { &format!("{}{}", ran.output, ran.errors) };
    let is_one_line = || ran.errors.lines().count() == 1 && ran.errors.starts_with("error: ");
    ran.code == code && said.contains(text) && (code <= 1 || is_one_line())
}

#[test]
fn every_verb_does_its_work_or_says_why_not() {
    let mut wrong = Vec::new();
    let [good, empty] = [false, true].map(Subject::new);
    for (verb, words, input, ends) in CASES {
        for (kind, end) in ["good", "empty", "live", "damaged", "foreign"].into_iter().zip(ends) {
            let subject = if kind == "empty" { &empty } else { &good }.copy(kind == "live");
            let reads_backup = ["restore", "verify"].contains(&verb);
            let db = subject.is_live.then(|| subject.dir.open());
            match kind {
                "damaged" => subject.damage(reads_backup),
                "foreign" => subject.replace(),
                _ => {}
            }
            let ran = subject.run(verb, words, input);
            if !has_left(&ran, end) {
                wrong.push(format!("{verb} of a database that is {kind}: {ran:?}, expected: {end:?}"));
            }
            drop(db);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A verb that is added has to be in the table.
#[test]
fn the_table_has_every_verb_that_reads_a_database() {
    let help = foreshore([OsStr::new("--help")].into_iter(), None).output;
    let listed = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let verbs = listed.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let others = ["top", "bench", "lab", "completions", "man", "help"];
    let verbs: Vec<_> = verbs.filter(|verb| !others.contains(verb)).collect();
    assert_eq!(verbs.len(), CASES.len(), "{verbs:?}");
    assert!(verbs.iter().all(|verb| CASES.iter().any(|case| case.0 == *verb)), "{verbs:?}");
}
