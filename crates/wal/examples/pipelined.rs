//! Commits without a waiting thread: tickets tell when they are durable.
//!
//! `cargo run --release -p foreshore-wal --example pipelined -- DIR COMMITS`

use foreshore_wal::{Dep, Disk, Error, Fs, Log, LogOptions, Record, Result, Session, Uuid, flags};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes pipelined commits. Returns how many were acknowledged, and in how many groups they were written.
pub(crate) fn run(dir: &Path, commits: u64) -> Result<(u64, u64)> {
    let fs: Arc<dyn Fs> = Arc::new(Disk::auto(dir)?);
    // The log of the other examples.
    let uuid = Uuid(*b"log of examples!");
    let options = LogOptions { segment_bytes: 1 << 20, ring_bytes: 1 << 20, max_sessions: 64, ..LogOptions::default() };
    match Log::create(&fs, dir, uuid, &options) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
        created => created?,
    }
    let _lock = fs.lock(&dir.join("lock"))?;
    let (log, _) = Log::open(&fs, dir, uuid, &options)?;
    let acknowledged = Arc::new(AtomicU64::new(0));
    let mut session = log.session()?;
    for tag in 0..commits {
        // Waits only if the buffer is full or too many commits of this session are not durable.
        session.reserve(Session::cost(8))?;
        let lsn = session.append(Record { tag, flags: flags::COMMIT, parts: &[&tag.to_le_bytes()] }, Dep::none());
        log.flush_soon(&mut session, lsn);
        let count = acknowledged.clone();
        session.ticket(lsn, lsn.csn(), lsn).on_durable(move |outcome| {
            if outcome.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    drop(session);
    log.close()?;
    Ok((acknowledged.load(Ordering::Relaxed), log.stats().groups))
}

#[allow(dead_code, reason = "the test of examples calls the rest")]
fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let dir = args.next().unwrap_or_else(|| "wal-example".into());
    let commits = args.next().and_then(|count| count.to_str()?.parse().ok()).unwrap_or(10_000);
    let (acknowledged, groups) = run(dir.as_ref(), commits)?;
    println!("{acknowledged} of {commits} commits acknowledged, {groups} groups");
    Ok(())
}
