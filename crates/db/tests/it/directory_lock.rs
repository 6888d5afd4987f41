//! A directory is open once: in one process and across processes.

use crate::support::{DIR, TempDir, fill, in_memory, numbers, open, small};
use foreshore::{Db, Error};
use std::{
    process::{Command, Stdio},
    time::Duration,
};

#[test]
fn a_second_open_in_the_same_process_is_refused() {
    let (db, fs) = in_memory();
    assert!(matches!(open(&fs), Err(Error::Locked { path }) if path.starts_with(DIR)));
    let clone = db.clone();
    drop(db);
    assert!(matches!(open(&fs), Err(Error::Locked { .. })), "a clone is still there");
    drop(clone);
    open(&fs).unwrap();
}

#[test]
fn a_second_open_on_disk_is_refused_and_changes_nothing() {
    let dir = TempDir::new("lock");
    let db = small().open(dir.path()).unwrap();
    fill(&db, 10);
    assert!(matches!(Db::open(dir.path()), Err(Error::Locked { .. })));
    db.close(Duration::ZERO).unwrap();
    assert_eq!(numbers(&small().open(dir.path()).unwrap()).len(), 10);
}

#[test]
fn another_process_that_holds_the_lock_is_seen() {
    let dir = TempDir::new("lock-process");
    small().open(dir.path()).unwrap();
    // flock(1) takes the same kind of lock on the same file.
    let lock = dir.path().join("LOCK");
    let mut holder = Command::new("flock")
        .args(["--exclusive", lock.to_str().unwrap(), "sh", "-c", "echo held; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut held).unwrap();
    assert!(matches!(small().open(dir.path()), Err(Error::Locked { .. })));
    drop(holder.stdin.take());
    holder.wait().unwrap();
    small().open(dir.path()).unwrap();
}
