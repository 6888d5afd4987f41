//! Promise: an error says what was refused, on what, in words that a user reads once.

use foreshore::{Error, Lockable, Lsn, PageId, Place, RestoreRefusal, TableId, TableRef, UnknownBase, Waiter};
use foreshore_base::{Error as Storage, GroupNo};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// One of each kind.
fn all() -> Vec<Error> {
    let cause = Arc::new(Error::io("sync", "/db/data", io::Error::from_raw_os_error(5)));
    let table = || TableRef { id: TableId(7), name: Some("accounts".into()), key_type: Some("u16".into()) };
    let what = Lockable::Table(table());
    let waiter = |label| Waiter { label, waits_for: what.clone() };
    vec![
        (*cause).clone(),
        Error::io("write", "/db/data", io::Error::from_raw_os_error(28)),
        Storage::corrupted("/db/data", Place::Page(PageId(9)), "the checksum does not fit").into(),
        Storage::corrupted("/db/dw", Place::File, "the file is missing").into(),
        Error::Truncated { file: "/db/data".into(), len: 1, expected: 2 },
        Error::LostLog { file: "/db/log/1.seg".into(), offset: 8192, missing: GroupNo(7) },
        Error::LogTruncated { dir: "/db/log".into(), wanted: GroupNo(7), first: GroupNo(8) },
        Error::LogRetracted { dir: "/db/log".into(), group: GroupNo(7) },
        Error::Foreign { path: "/db/data".into(), why: "it has no superblock" },
        Error::Newer { path: "/db/data".into(), found: 2, supported: 1 },
        Error::Locked { path: "/db".into() },
        Error::UnfinishedBackup { dir: "/db".into() },
        Error::NotEmpty { dir: "/db".into() },
        Error::Restore(RestoreRefusal::Gap { dir: "/archive".into(), missing: GroupNo(7), next: GroupNo(9) }),
        Error::Restore(RestoreRefusal::BeforeBackup { end: Lsn(7) }),
        Error::Restore(RestoreRefusal::BeyondLog { end: Lsn(7) }),
        Error::Restore(RestoreRefusal::MissingBase { increment: "/second".into() }),
        Error::Restore(RestoreRefusal::WrongBase { increment: "/second".into(), base: "/first".into() }),
        Error::UnknownBase(UnknownBase::new("/first", "/db")),
        Error::Poisoned { cause: cause.clone() },
        Error::Closed,
        Error::RolledBack,
        Error::KeyTooLarge { table: table(), len: 2000, max: 992 },
        Error::ValueTooLarge { table: Some(table()), len: 4000, max: 2048 },
        Error::ValueTooLarge { table: None, len: 4000, max: 2048 },
        Error::ReaderFailed {
            table: table(),
            key: [1, 2].into(),
            source: Arc::new(io::ErrorKind::UnexpectedEof.into()),
        },
        Error::TableName { name: String::new() },
        Error::TableTypes { table: "accounts".into(), stored: "u64, i64".into(), wanted: "u64, u64".into() },
        Error::TableDropped { table: table() },
        Error::Undecodable { table: table(), key: [0, 2].into(), part: "value" },
        Error::Exhausted { runs: 100, cause: cause.clone() },
        Error::Deadline { holder: "a", runs: 9, elapsed: Duration::from_secs(30), cause },
        Error::OwnThreadLock { holder: "a", what: what.clone(), waited: Duration::from_millis(100) },
        Error::XidsUsedUp { max: (1 << 48) - 1 },
        Error::NoSavepoint,
        Error::KeyExists { table: table(), key: [1, 2].into() },
        Error::IndexKeyExists { index: table(), key: [1, 2].into() },
        Error::IndexMismatch { index: table(), entry: [1, 2].into() },
        Error::IndexUndeclared { table: "accounts".into(), index: "by owner".into() },
        Error::IndexesChanged { table: table() },
        Error::NoIndex { table: "accounts".into(), index: "by owner".into() },
        Error::IndexTypes {
            table: "accounts".into(),
            index: "by owner".into(),
            stored: "keys u64 of version 1".into(),
            wanted: "keys u64 of version 2".into(),
        },
        Error::Deadlock { cycle: [waiter("a"), waiter("b")].into() },
        Error::LockTimeout { holder: "a", what: what.clone(), waited: Duration::from_secs(1) },
        Error::RowLocked { what: what.clone(), holder: "a" },
        Error::Conflict { table: table(), key: [1, 2].into() },
        Error::SnapshotTooOld { label: "report", age: Duration::from_secs(9), bytes: 10 },
        Error::ReadOnly,
        Error::NotClosed { path: "/db".into() },
        Error::NoDatabase { path: "/db".into() },
        Error::NoTable { name: "accounts".into() },
        Error::PreparedName { name: String::new() },
        Error::PreparedExists { name: "x".into() },
        Error::NoPrepared { name: "x".into() },
        Error::PreparedBusy { name: "x".into() },
        Error::OutOfFrames { frames: 16 },
        Error::InvalidOption { name: "frames", value: "1".into(), expected: "16 to 100".into() },
    ]
}

#[test]
fn no_message_stumbles() {
    let prepositions = ["for", "of", "in", "on", "at", "to", "from", "with"];
    for error in all() {
        let message = error.to_string();
        let words: Vec<_> = message.split(' ').collect();
        for two in words.windows(2) {
            let doubled = two[0] == two[1] || two.iter().all(|word| prepositions.contains(word));
            assert!(!doubled, "{message}");
        }
        assert!(message.len() > 10 && !message.ends_with(['.', ' ']), "{message}");
    }
}

#[test]
fn an_operation_reads_as_what_cannot_be_done() {
    let said = |op| Error::io(op, "/db/log", io::Error::other("no memory")).to_string();
    assert_eq!(said("read"), "cannot read /db/log: no memory");
    assert_eq!(said("reserve memory for"), "cannot reserve memory for /db/log: no memory");
}

#[test]
fn no_space_is_said_where_space_was_asked_for_and_nowhere_else() {
    // ENOSPC, EDQUOT and EFBIG.
    for errno in [28, 122, 27] {
        let said = |op| Error::io(op, "/db/data", io::Error::from_raw_os_error(errno));
        for op in ["write", "sync", "create", "allocate space for", "set the length of", "rename", "remove", "lock"] {
            assert!(matches!(said(op), Error::DiskFull { .. }), "{op}");
        }
        for op in ["read", "open", "list", "stat", "map memory for", "start a thread for"] {
            assert!(matches!(said(op), Error::Io { .. }), "{op}");
        }
    }
}

#[test]
fn a_lost_group_is_named_with_its_place_and_a_missing_file_without_one() {
    let error = Error::LostLog { file: "/db/log/3.seg".into(), offset: 8192, missing: GroupNo(7) };
    let place = "log group 7 was durable and is missing in /db/log/3.seg at offset 8192";
    assert_eq!(error.to_string(), format!("{place}: restore the database from a backup"));
    let missing = Error::from(Storage::corrupted("/db/dw", Place::File, "the file is missing"));
    assert_eq!(missing.to_string(), "/db/dw is corrupted: the file is missing");
}

#[test]
fn keys_are_shown_decoded() {
    let table = || TableRef { id: TableId(7), name: Some("accounts".into()), key_type: Some("u16".into()) };
    let large = Error::KeyTooLarge { table: table(), len: 2000, max: 992 };
    assert_eq!(large.to_string(), "table \"accounts\" refuses a key of 2000 bytes, at most 992 are allowed");
    let says = |error: Error| assert!(error.to_string().ends_with("key 258"), "{error:?}");
    says(Error::KeyExists { table: table(), key: [1, 2].into() });
    says(Error::Conflict { table: table(), key: [1, 2].into() });
    says(Error::Undecodable { table: table(), key: [1, 2].into(), part: "value" });
    let what = Lockable::Row(table(), vec![1, 2]);
    assert_eq!(what.to_string(), "table \"accounts\" key 258");
    assert!(Error::RowLocked { what, holder: "a" }.to_string().contains("key 258"));
}
