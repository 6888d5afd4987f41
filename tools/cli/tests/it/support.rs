//! Databases for tests, and the program run on them.

use crate::schema;
use foreshore::{Db, Options, TableDef};
use serde_json::Value as Json;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
pub(crate) const NAMES: TableDef<&str, Option<&str>> = TableDef::new("names");
pub(crate) const BLOBS: TableDef<&[u8], &[u8]> = TableDef::new("blobs");

/// A directory that is removed on drop.
pub(crate) struct Dir(PathBuf);

impl Dir {
    /// An empty directory. Each test has a name of its own.
    pub(crate) fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    /// A closed database with tables of 300 accounts, 2 names, 2 blobs, one of which is large, and an empty table of an
    /// application's types.
    pub(crate) fn with_database(name: &str) -> Self {
        let dir = Self::new(name);
        let db = dir.open();
        fill(&db);
        close(db);
        dir
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn open(&self) -> Db {
        options().open(&self.0).unwrap()
    }

    /// Copies the files, which is what a crash of the process that has them open would leave.
    pub(crate) fn copy(&self, name: &str) -> Self {
        let to = Self::new(name);
        copy(&self.0, &to.0);
        to
    }

    /// Runs the program with a verb, this directory and further words.
    pub(crate) fn run(&self, verb: &str, words: &[&str]) -> Ran {
        let words = words.iter().map(OsStr::new);
        foreshore([OsStr::new(verb), self.0.as_os_str()].into_iter().chain(words), None)
    }

    /// The same with text as standard input.
    pub(crate) fn run_with(&self, verb: &str, words: &[&str], input: &str) -> Ran {
        let words = words.iter().map(OsStr::new);
        foreshore([OsStr::new(verb), self.0.as_os_str()].into_iter().chain(words), Some(input))
    }

    /// Runs a verb that succeeds, and returns its output.
    pub(crate) fn prints(&self, verb: &str, words: &[&str]) -> String {
        let ran = self.run(verb, words);
        assert_eq!((ran.code, &*ran.errors), (0, ""), "{verb} {words:?}");
        ran.output
    }

    /// Runs a verb with `--json`, and returns the lines of its output, each checked by the verb's schema.
    pub(crate) fn json(&self, verb: &str, words: &[&str], code: i32) -> Vec<Json> {
        let ran = self.run(verb, &[words, &["--json"]].concat());
        assert_eq!(ran.code, code, "{verb} {words:?}: {}", ran.errors);
        schema::lines(verb, &ran.output)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn options() -> Options {
    Options::new().memory_limit(16 << 20)
}

pub(crate) fn fill(db: &Db) {
    db.run(|tx| {
        let accounts = tx.open(ACCOUNTS)?;
        (0..300).try_for_each(|n| accounts.put(n, n as i64 - 100))?;
        let names = tx.open(NAMES)?;
        names.put("Ada", Some("Countess\tof Lovelace"))?;
        names.put("Bob", None)?;
        let blobs = tx.open(BLOBS)?;
        blobs.put(&b"\x00\xff"[..], &b"a\\b"[..])?;
        blobs.put(&b"large"[..], &vec![b'x'; 100_000][..])?;
        tx.create_raw("shapes", "shape.v2", "shape.v2").map(drop)
    })
    .unwrap();
}

pub(crate) fn close(db: Db) {
    db.close(Duration::from_secs(10)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&to).unwrap();
            copy(&entry.path(), &to);
        } else {
            copy_file(&entry.path(), &to);
        }
    }
}

/// Copies a file without its blocks of zeros: most of the log is prepared and has no record.
fn copy_file(from: &Path, to: &Path) {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let (mut from, to) = (File::open(from).unwrap(), File::create(to).unwrap());
    let (mut block, mut offset) = (ZEROS, 0);
    loop {
        let len = from.read(&mut block).unwrap();
        if len == 0 {
            return to.set_len(offset).unwrap();
        }
        if block[..len] != ZEROS[..len] {
            to.write_all_at(&block[..len], offset).unwrap();
        }
        offset += len as u64;
    }
}

/// What a run of the program has left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Ran {
    /// Checks that the run was refused with one line that says `why`, and without output.
    pub(crate) fn is_refused(&self, code: i32, why: &str) {
        assert_eq!((self.code, &*self.output), (code, ""), "{self:?}");
        assert_eq!(self.errors.lines().count(), 1, "{self:?}");
        assert!(self.errors.starts_with("error: ") && self.errors.contains(why), "{self:?}, expected: {why}");
    }
}

pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_foreshore"))
}

pub(crate) fn foreshore<'w>(words: impl Iterator<Item = &'w OsStr>, input: Option<&str>) -> Ran {
    let mut command = program();
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().unwrap();
    if let Some(input) = input {
        // The program may refuse the input before it has read all of it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    }
    let done = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: done.status.code().unwrap(), output: text(done.stdout), errors: text(done.stderr) }
}

/// Names and contents of the files in a directory.
pub(crate) fn contents(dir: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let bytes = entry.is_file().then(|| fs::read(&entry).unwrap());
            if bytes.is_none() {
                dirs.push(entry.clone());
            }
            found.push((entry, bytes));
        }
    }
    found.sort();
    found
}
