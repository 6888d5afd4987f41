//! Opens a log in a directory, reads the records of earlier runs, and appends one more.
//!
//! `cargo run --release -p foreshore-wal --example append_force -- DIR`

use foreshore_wal::{Dep, Disk, Error, Fs, Log, LogOptions, Record, Result, Session, Uuid};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// The identity of a log, which its files carry. A program with many logs draws it at random, and stores it.
const UUID: Uuid = Uuid(*b"log of examples!");

/// Small files, so that an example takes little space.
fn options() -> LogOptions {
    LogOptions { segment_bytes: 1 << 20, ring_bytes: 1 << 20, max_sessions: 64, ..LogOptions::default() }
}

/// Opens the log in `dir`, appends a record, and returns how many there are.
pub(crate) fn run(dir: &Path) -> Result<u64> {
    let fs: Arc<dyn Fs> = Arc::new(Disk::auto(dir)?);
    match Log::create(&fs, dir, UUID, &options()) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
        created => created?,
    }
    // One process writes a log at a time.
    let _lock = fs.lock(&dir.join("lock"))?;
    let (log, recovered) = Log::open(&fs, dir, UUID, &options())?;
    let mut count = 0;
    for record in recovered.records(recovered.first_group()) {
        let record = record?;
        println!("{}: {}", record.lsn, String::from_utf8_lossy(&record.payload));
        count += 1;
    }
    let text = format!("record {count}, written by process {}", std::process::id());
    let mut session = log.session()?;
    session.reserve(Session::cost(text.len()))?;
    let lsn = session.append(Record { tag: count, flags: 0, parts: &[text.as_bytes()] }, Dep::none());
    log.force(lsn)?;
    println!("{lsn}: {text}, durable");
    drop(session);
    log.close()?;
    Ok(count + 1)
}

#[allow(dead_code, reason = "the test of examples calls the rest")]
fn main() -> Result<()> {
    let dir = std::env::args_os().nth(1).unwrap_or_else(|| "wal-example".into());
    run(dir.as_ref()).map(|count| println!("{count} records"))
}
