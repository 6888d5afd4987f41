//! The directory of the log: control file, segments, groups and records, without a database above them.
#![no_main]

#[path = "../src/limit.rs"]
mod limit;

use foreshore_fuzz::exercise::expect_damage;
use foreshore_fuzz::golden::{DIR, UUID};
use foreshore_fuzz::input::Input;
use foreshore_fuzz::layout::Kind;
use foreshore_fuzz::patch::{Scope, apply};
use foreshore_io::{Fs, Sim};
use foreshore_wal::{Dep, Error, Follower, Log, LogOptions, Lsn, Record, Result, Session};
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::Arc;

const SCOPE: Scope = Scope { kinds: &[Kind::Control, Kind::Segment, Kind::Group, Kind::Record], files: true };

fuzz_target!(|bytes: &[u8]| {
    let disk = apply(&mut Input::new(bytes), SCOPE);
    if let Err(error) = follow(&disk) {
        expect_damage(&error.into(), "follow");
    }
    if let Err(error) = write(&disk) {
        expect_damage(&error.into(), "write");
    }
});

fn dir() -> PathBuf {
    PathBuf::from(DIR).join("log")
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        max_sessions: 4,
        background: false,
        ..LogOptions::default()
    }
}

/// Reads as another process would.
fn follow(disk: &Sim) -> Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(disk.fork());
    let from = match Follower::open(&fs, &dir(), UUID, Log::FIRST_GROUP) {
        Err(Error::LogTruncated { first, .. }) => first,
        opened => opened?.resume_at(),
    };
    let mut follower = Follower::open(&fs, &dir(), UUID, from)?.unconfirmed();
    while follower.read()?.is_some() {}
    Ok(())
}

/// Opens, reads, appends, and finds again what was appended.
fn write(disk: &Sim) -> Result<()> {
    let fs: Arc<dyn Fs> = Arc::new(disk.clone());
    let mut written: Vec<(Lsn, Vec<u8>)> = Vec::new();
    for life in 0..3_u8 {
        let (log, recovered) = Log::open(&fs, &dir(), UUID, &options())?;
        let mut found = Vec::new();
        let mut last = Lsn::ZERO;
        for record in recovered.records(recovered.first_group()) {
            let record = record?;
            assert!(record.lsn >= last, "records are not in the order of their stamps");
            last = record.lsn;
            found.push((record.lsn, record.payload.to_vec()));
        }
        assert!(found.ends_with(&written), "acknowledged records are gone, or others follow them");
        drop(recovered);
        let mut session = log.session()?;
        for n in 0..4_u8 {
            let payload = vec![life ^ n; usize::from(n) * 1000];
            session.reserve(Session::cost(payload.len()))?;
            let lsn = session.append(Record { tag: 1, flags: 0, parts: &[&payload] }, Dep::none());
            assert!(lsn > last, "a stamp was given twice");
            last = lsn;
            log.force(lsn)?;
            written.push((lsn, payload));
        }
        drop(session);
        log.close()?;
    }
    Ok(())
}
