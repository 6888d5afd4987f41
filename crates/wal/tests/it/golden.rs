//! The files of format version 1: old fixtures are read, and the same appends write the same bytes.

use crate::common::*;
use foreshore_base::{Incarnation, Lsn};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::{AlignedBuf, Fs, Mem};
use foreshore_wal::{Dep, Log, LogOptions, MAX_TAG, Record, Session, flags};
use std::path::PathBuf;
use std::sync::Arc;

/// Name, contents up to the last block that is not zero, and length of each file.
const FILES: [(&str, &[u8], usize); 2] = [
    ("ctl", include_bytes!("../fixtures/v1/ctl"), 8192),
    ("00000000000000000001.seg", include_bytes!("../fixtures/v1/00000000000000000001.seg"), 64 << 10),
];

fn path(name: &str) -> PathBuf {
    dir().join(name)
}

/// Appends the records of the fixture: two groups, the second of a record in fragments.
fn write(log: &Log) -> Vec<Lsn> {
    log.stamp_by(|| foreshore_wal::Nanos(0));
    let mut session = log.session().unwrap();
    session.reserve(3 * Session::cost(16)).unwrap();
    let parts: [&[u8]; 2] = [b"first ", b"record"];
    let one = session.append(Record { tag: 1, flags: 0, parts: &parts }, Dep::none());
    let none = session.append(Record { tag: 0, flags: 0, parts: &[] }, Dep::none().transaction(one));
    let last = session.append(Record { tag: MAX_TAG, flags: flags::COMMIT, parts: &[b"commit"] }, Dep::none());
    log.force(last).unwrap();
    let bytes = payload(9, 10_000);
    let large = session.append_large(Record { tag: 9, flags: flags::CALLER, parts: &[&bytes] }, Dep::none()).unwrap();
    log.force(large).unwrap();
    vec![one, none, last, large]
}

#[test]
fn the_same_bytes_are_written() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    // The stamps of the fixture are positions.
    write(&fresh(&fs, &LogOptions { buffer: BufferKind::Faa.maker(), ..small() }));
    for (name, expected, len) in FILES {
        let file = fs.open(&path(name)).unwrap();
        let mut bytes = AlignedBuf::new(len);
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), len);
        assert!(bytes.starts_with(expected), "{name} is written differently");
        assert!(bytes[expected.len()..].iter().all(|&byte| byte == 0), "{name} has more in it");
    }
}

#[test]
fn the_fixture_is_read() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    fs.create_dir(&dir()).unwrap();
    for (name, bytes, len) in FILES {
        let file = fs.create(&path(name)).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.set_len(len as u64).unwrap();
    }
    let (_, recovered) = open(&fs, &small()).unwrap();
    assert_eq!((recovered.incarnation(), recovered.first_group().0, recovered.next_group().0), (Incarnation(2), 1, 3));
    let lsns: Vec<_> = all(&recovered).iter().map(|record| record.lsn).collect();
    assert_eq!(lsns, [40, 64, 96, 10_160].map(Lsn));
    let records = all(&recovered);
    assert_eq!(records.iter().map(|r| r.tag).collect::<Vec<_>>(), [1, 0, MAX_TAG, 9]);
    assert_eq!(records.iter().map(|r| r.flags).collect::<Vec<_>>(), [0, 0, flags::COMMIT, flags::CALLER]);
    assert_eq!((&records[0].payload[..], records[1].payload.len()), (&b"first record"[..], 0));
    assert!(records[3].payload == payload(9, 10_000));
}
