//! What the insert experiments drive: logs without files, and yardsticks that no log can pass.

use super::drive::{Counted, Span, Worker, drive};
use foreshore::{Error, Result};
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_sync::{ByteArena, CachePadded, rmw};
use foreshore_wal::{Dep, Log, LogOptions, Record, Session};
use std::{
    fmt,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

/// The log buffers, by name, those of the papers first.
pub(super) const BUFFERS: [&str; 8] = ["mutex", "carray", "decoupled", "hybrid", "delegated", "laser", "faa", "lanes"];
/// The buffers of the papers.
pub(super) const PAPERS: [&str; 6] = ["mutex", "carray", "decoupled", "hybrid", "delegated", "laser"];
/// Buffers whose appends may wait for each other, so that how they wait makes a difference.
pub(super) const WAITING: [&str; 5] = ["mutex", "carray", "decoupled", "hybrid", "delegated"];
/// The yardsticks.
pub(super) const BOUND_FETCH_ADD: &str = "bound-fetch-add";
pub(super) const BOUND_PRIVATE: &str = "bound-private";

/// Bytes that the log adds to a payload.
pub(super) const HEADER: usize = Session::cost(0);

/// What inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A log with this buffer.
    Log(BufferOptions),
    /// One shared counter, and a copy without order or checksum: what a log with one position could reach at best.
    FetchAdd,
    /// A counter and a ring for each thread: what the memory allows.
    Private,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(buffer) => buffer.kind.fmt(f),
            Self::FetchAdd => f.write_str(BOUND_FETCH_ADD),
            Self::Private => f.write_str(BOUND_PRIVATE),
        }
    }
}

/// Those of `names` that this build has.
pub(super) fn built(names: &[&str]) -> Vec<BufferKind> {
    names.iter().filter_map(|name| name.parse().ok()).collect()
}

/// Threads that insert records of one size.
#[derive(Clone, Debug)]
pub(super) struct InsertPoint {
    pub(super) subject: Subject,
    pub(super) threads: usize,
    /// With the header of the log, a multiple of eight.
    pub(super) record_bytes: usize,
    pub(super) options: LogOptions,
}

impl InsertPoint {
    /// How its appends wait, if they do.
    pub(super) fn wait(&self) -> Option<WaitKind> {
        match self.subject {
            Subject::Log(buffer) => WAITING.contains(&buffer.kind.to_string().as_str()).then_some(buffer.wait),
            _ => None,
        }
    }

    pub(super) fn measure(&self, span: Span) -> Result<Counted> {
        match self.subject {
            Subject::Log(buffer) => {
                let log = discarding(&LogOptions { buffer: buffer.maker()?, ..self.options.clone() })?;
                let workers: Result<Vec<_>> =
                    (0..self.threads).map(|_| Appender::new(&log, self.record_bytes)).collect();
                drive(workers?, span)
            }
            Subject::FetchAdd => {
                let shared = Shared::new(self.options.ring_bytes, self.record_bytes)?;
                drive((0..self.threads).map(|_| FetchAdd { shared: &shared }).collect(), span)
            }
            Subject::Private => {
                let bytes = private_bytes(self.options.ring_bytes);
                drive((0..self.threads).map(|_| Private::new(bytes, self.record_bytes)).collect(), span)
            }
        }
    }
}

/// Returns a log whose groups are cut and dropped by an appender that finds no space.
pub(super) fn discarding(options: &LogOptions) -> foreshore_base::Result<Log> {
    Log::discarding(&LogOptions { background: false, ..options.clone() })
}

/// Appends records of one size.
pub(super) struct Appender {
    session: Session,
    payload: Vec<u8>,
}

impl Appender {
    pub(super) fn new(log: &Log, record_bytes: usize) -> Result<Self> {
        Ok(Self { session: log.session()?, payload: payload(record_bytes - HEADER) })
    }
}

impl Worker for Appender {
    fn insert(&mut self) -> Result<usize> {
        let bytes = Session::cost(self.payload.len());
        self.session.reserve(bytes)?;
        self.session.append(Record { tag: 1, flags: 0, parts: &[&self.payload] }, Dep::none());
        Ok(bytes)
    }
}

/// Bytes that differ.
pub(super) fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| i as u8).collect()
}

/// The ring and the position of `bound-fetch-add`.
///
/// Copies are relaxed stores of words: two threads may write the same place, so a plain copy would be a data race.
/// For records of 120 bytes they are within a few percent of `memcpy`.
struct Shared {
    next: CachePadded<AtomicU64>,
    ring: ByteArena,
    /// Words of the ring, a power of two; the arena has room for one record more, so that none meets a seam.
    words: usize,
    record: Vec<u64>,
}

impl Shared {
    fn new(ring_bytes: usize, record_bytes: usize) -> Result<Self> {
        let ring = ByteArena::new(ring_bytes + record_bytes)
            .map_err(|e| Error::io("map the memory of", PathBuf::from(BOUND_FETCH_ADD), e))?;
        let record = (0..record_bytes as u64 / 8).collect();
        Ok(Self { next: CachePadded::new(AtomicU64::new(0)), ring, words: ring_bytes / 8, record })
    }
}

struct FetchAdd<'a> {
    shared: &'a Shared,
}

impl Worker for FetchAdd<'_> {
    fn insert(&mut self) -> Result<usize> {
        let Shared { next, ring, words, record } = self.shared;
        rmw::contended(1);
        // ORDERING: Relaxed, the yardstick orders nothing.
        let at = next.fetch_add(record.len() as u64, Ordering::Relaxed) as usize & (words - 1);
        for (word, value) in ring.words(8 * at, record.len()).iter().zip(record) {
            // ORDERING: as above.
            word.store(*value, Ordering::Relaxed);
        }
        Ok(8 * record.len())
    }
}

/// Bytes of a private ring: those of a lane in a log with this ring.
pub(super) fn private_bytes(ring_bytes: usize) -> usize {
    (ring_bytes / 16).clamp(64 << 10, 256 << 10)
}

struct Private {
    next: usize,
    bytes: usize,
    ring: Vec<u8>,
    record: Vec<u8>,
}

impl Private {
    fn new(bytes: usize, record_bytes: usize) -> Self {
        Self { next: 0, bytes, ring: vec![0; bytes + record_bytes], record: payload(record_bytes) }
    }
}

impl Worker for Private {
    fn insert(&mut self) -> Result<usize> {
        let at = self.next & (self.bytes - 1);
        self.ring[at..at + self.record.len()].copy_from_slice(&self.record);
        // The copies are the work: they must not be dropped as dead stores.
        std::hint::black_box(&self.ring);
        self.next += self.record.len();
        Ok(self.record.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_takes_many_times_its_ring() {
        for buffer in built(&BUFFERS) {
            let (maker, ring_bytes) = (buffer.maker(), 256 << 10);
            let options = LogOptions { buffer: maker, ring_bytes, max_sessions: 4, ..LogOptions::default() };
            let log = discarding(&options).unwrap();
            let mut worker = Appender::new(&log, 120).unwrap();
            (0..10_000).for_each(|_| assert_eq!(worker.insert().unwrap(), 120));
            let stats = log.stats();
            assert_eq!((stats.records, stats.record_bytes), (10_000, 1_200_000), "{buffer}");
        }
    }

    #[test]
    fn yardsticks_wrap_at_the_end_of_their_rings() {
        let shared = Shared::new(64 << 10, 120).unwrap();
        let mut worker = FetchAdd { shared: &shared };
        let before = rmw::counted();
        (0..1000).for_each(|_| assert_eq!(worker.insert().unwrap(), 120));
        assert_eq!(rmw::counted() - before, 1000);
        let mut worker = Private::new(64 << 10, 120);
        (0..1000).for_each(|_| assert_eq!(worker.insert().unwrap(), 120));
    }

    #[test]
    fn only_what_is_built_is_driven() {
        assert_eq!(built(&["nothing", "mutex"]), [BufferKind::Mutex]);
        assert!(built(&BUFFERS).len() >= 2);
    }
}
