//! Helpers of the suites: small logs, and a read of all records.

pub(crate) mod flights;
pub(crate) mod policies;

use foreshore_base::{GroupNo, Lsn, Result, Uuid};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::Fs;
use foreshore_sync::{Parker, Unparker};
use foreshore_wal::{Dep, Log, LogOptions, LoggedRecord, Record, Recovered, Session};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

pub(crate) const UUID: Uuid = Uuid(*b"one log, 16 byte");
pub(crate) const KINDS: [BufferKind; 8] = BufferKind::ALL;
/// The buffers that take records of any size.
pub(crate) const FRAGMENTING: [BufferKind; 2] = [BufferKind::Faa, BufferKind::Lanes];

pub(crate) fn dir() -> PathBuf {
    Path::new("/log").to_owned()
}

/// Options of the smallest possible log, without threads.
pub(crate) fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 64 << 10,
        ring_bytes: 64 << 10,
        max_sessions: 8,
        ready_segments: 1,
        background: false,
        ..LogOptions::default()
    }
}

pub(crate) fn create(fs: &Arc<dyn Fs>, options: &LogOptions) -> Result<()> {
    Log::create(fs, &dir(), UUID, options)
}

pub(crate) fn open(fs: &Arc<dyn Fs>, options: &LogOptions) -> Result<(Log, Recovered)> {
    Log::open(fs, &dir(), UUID, options)
}

pub(crate) fn fresh(fs: &Arc<dyn Fs>, options: &LogOptions) -> Log {
    create(fs, options).expect("an empty disk takes a log");
    open(fs, options).expect("a new log opens").0
}

/// Reserves for and appends one record.
pub(crate) fn append(session: &mut Session, tag: u64, payload: &[u8]) -> Result<Lsn> {
    session.reserve(Session::cost(payload.len()))?;
    Ok(session.append(Record { tag, flags: 0, parts: &[payload] }, Dep::none()))
}

/// Payload of `len` bytes that only `tag` has.
pub(crate) fn payload(tag: u64, len: usize) -> Vec<u8> {
    let mut x = tag.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

pub(crate) fn all(recovered: &Recovered) -> Vec<LoggedRecord> {
    from(recovered, recovered.first_group())
}

pub(crate) fn from(recovered: &Recovered, group: GroupNo) -> Vec<LoggedRecord> {
    recovered.records(group).collect::<Result<_>>().expect("accepted groups are readable")
}

pub(crate) fn tags(recovered: &Recovered) -> Vec<u64> {
    all(recovered).iter().map(|record| record.tag).collect()
}

/// Wakes the parker of a thread.
pub(crate) struct ThreadWaker(pub(crate) Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let parker = Parker::new();
    let waker = Arc::new(ThreadWaker(parker.unparker())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => parker.park(),
        }
    }
}
