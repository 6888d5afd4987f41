//! The records of the log, read by a thread of its own: its reads, checksums and merge run beside the analysis.
//!
//! The thread fills one batch while the other side goes through the one before, and some wait. Batches are used again,
//! so their memory is allocated once.

use foreshore_base::{Error, GroupNo, Incarnation, Lsn, Result};
use foreshore_sync::primitive::REPLAYS;
use foreshore_sync::{Condvar, Joiner, LockRank, Mutex, spawn};
use foreshore_wal::{LoggedRecord, RecordIter, Recovered};
use std::any::Any;
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

const IS_SMALL: bool = REPLAYS || cfg!(test);
/// Records that are handed over together.
const BATCH: usize = if IS_SMALL { 3 } else { 512 };
/// Bytes of payload from which on fewer are.
const BATCH_BYTES: usize = 64 << 10;
/// Batches that wait at most.
const WAITING: usize = if IS_SMALL { 2 } else { 4 };
/// Bytes of payload from which on fewer wait.
const WAITING_BYTES: usize = WAITING * BATCH_BYTES;

/// A record, and the incarnation that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadRecord<'b> {
    pub(crate) lsn: Lsn,
    pub(crate) group: GroupNo,
    pub(crate) tag: u64,
    pub(crate) payload: &'b [u8],
    pub(crate) incarnation: Incarnation,
}

/// A record in a batch.
struct Header {
    lsn: Lsn,
    group: GroupNo,
    tag: u64,
    payload: Range<usize>,
    incarnation: Incarnation,
}

/// What came instead of another record.
enum End {
    Log,
    Error(Error),
    /// Of the thread.
    Panic(Box<dyn Any + Send>),
}

/// Some records.
#[derive(Default)]
pub(crate) struct Batch {
    headers: Vec<Header>,
    payloads: Vec<u8>,
    end: Option<End>,
    /// Of the groups read so far.
    read_bytes: u64,
}

impl Batch {
    /// Reads the next records. `record` is memory for one.
    fn read(&mut self, records: &mut RecordIter<'_>, record: &mut LoggedRecord) {
        self.fill(record, |record| Ok(records.next_into(record)?.then(|| records.incarnation())));
        self.read_bytes = records.bytes();
    }

    /// Gets the next records from `next`, which returns the incarnation of one, or `None` at the end.
    fn fill(
        &mut self,
        record: &mut LoggedRecord,
        mut next: impl FnMut(&mut LoggedRecord) -> Result<Option<Incarnation>>,
    ) {
        assert!(self.end.is_none(), "nothing follows the end");
        if self.payloads.capacity() > 2 * BATCH_BYTES {
            self.payloads = Vec::new();
        }
        self.headers.clear();
        self.payloads.clear();
        while self.headers.len() < BATCH && self.payloads.len() < BATCH_BYTES {
            let incarnation = match next(record) {
                Ok(Some(incarnation)) => incarnation,
                Ok(None) => return self.end = Some(End::Log),
                Err(error) => return self.end = Some(End::Error(error)),
            };
            let from = self.payloads.len();
            self.payloads.extend_from_slice(&record.payload);
            let &mut LoggedRecord { lsn, group, tag, .. } = record;
            self.headers.push(Header { lsn, group, tag, payload: from..self.payloads.len(), incarnation });
            if record.payload.capacity() > 2 * BATCH_BYTES {
                record.payload = Vec::new();
            }
        }
    }

    /// Returns the records in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ReadRecord<'_>> {
        self.headers.iter().map(|&Header { lsn, group, tag, ref payload, incarnation }| {
            let payload = &self.payloads[payload.clone()];
            ReadRecord { lsn, group, tag, payload, incarnation }
        })
    }
}

#[derive(Default)]
struct Waiting {
    batches: VecDeque<Batch>,
    /// Bytes of payload in them.
    bytes: usize,
    /// Batches whose memory can be used again.
    used: Vec<Batch>,
    /// Set when no more are wanted.
    is_closed: bool,
}

/// What both sides use. Only one waits at a time: one for a batch, the other for room.
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    /// Hands over what `fill` puts into batches, up to an end.
    fn hand_over(&self, mut fill: impl FnMut(&mut Batch)) {
        let mut batch = Batch::default();
        loop {
            fill(&mut batch);
            let is_last = batch.end.is_some();
            match self.put(batch) {
                Some(next) if !is_last => batch = next,
                _ => return,
            }
        }
    }

    /// Hands a batch over, when there is room. Returns one to fill; `None` if no more are wanted.
    fn put(&self, batch: Batch) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        while !waiting.is_closed && (waiting.batches.len() >= WAITING || waiting.bytes > WAITING_BYTES) {
            // WAIT: park - until a batch is taken, or the other side goes.
            waiting = self.changed.wait(waiting);
        }
        waiting.bytes += batch.payloads.len();
        waiting.batches.push_back(batch);
        self.changed.notify_one();
        (!waiting.is_closed).then(|| waiting.used.pop().unwrap_or_default())
    }

    /// Returns the next batch in exchange for a used one. The last one has an end.
    fn take(&self, used: Batch) -> Batch {
        let mut waiting = self.waiting.lock();
        waiting.used.push(used);
        loop {
            if let Some(batch) = waiting.batches.pop_front() {
                waiting.bytes -= batch.payloads.len();
                self.changed.notify_one();
                return batch;
            }
            // WAIT: park - until a batch comes. The thread hands over an end, whatever happens.
            waiting = self.changed.wait(waiting);
        }
    }
}

/// What fills batches.
enum Source<'a> {
    Here(Box<dyn FnMut(&mut Batch) + 'a>),
    Thread(Arc<Shared>, Option<Joiner>),
}

/// The records from some group on, in the order of [`Recovered::records`].
pub(crate) struct ReadAhead<'a> {
    source: Source<'a>,
    batch: Batch,
}

impl<'a> ReadAhead<'a> {
    /// Reads from group `from` on, by another thread if `may_spawn`, and if there is one.
    pub(crate) fn new(recovered: &'a Recovered, from: GroupNo, may_spawn: bool) -> Self {
        let thread = may_spawn.then(|| {
            let recovered = recovered.clone();
            by_thread(move |shared| {
                let (mut records, mut record) = (recovered.records(from), LoggedRecord::default());
                shared.hand_over(|batch| batch.read(&mut records, &mut record));
            })
        });
        let here = || {
            let (mut records, mut record) = (recovered.records(from), LoggedRecord::default());
            Source::Here(Box::new(move |batch| batch.read(&mut records, &mut record)))
        };
        Self { source: thread.flatten().unwrap_or_else(here), batch: Batch::default() }
    }

    /// Goes to the next batch. Returns false if there is none.
    ///
    /// # Errors
    /// Those of the log, behind the records before.
    pub(crate) fn next(&mut self) -> Result<bool> {
        match self.batch.end.take() {
            None => {}
            Some(End::Panic(panic)) => resume_unwind(panic),
            Some(end) => {
                self.batch.end = Some(End::Log);
                return if let End::Error(error) = end { Err(error) } else { Ok(false) };
            }
        }
        match &mut self.source {
            Source::Here(fill) => fill(&mut self.batch),
            Source::Thread(shared, _) => self.batch = shared.take(std::mem::take(&mut self.batch)),
        }
        Ok(true)
    }

    /// Returns the records of the batch.
    pub(crate) fn records(&self) -> impl Iterator<Item = ReadRecord<'_>> {
        self.batch.iter()
    }

    /// Returns the bytes of the groups that were read for the records so far.
    pub(crate) const fn read_bytes(&self) -> u64 {
        self.batch.read_bytes
    }
}

/// Starts a thread that hands batches over. `None` if there is none.
fn by_thread(body: impl FnOnce(&Shared) + Send + 'static) -> Option<Source<'static>> {
    let shared = Arc::new(Shared { waiting: Mutex::new(LockRank::Leaf, Waiting::default()), changed: Condvar::new() });
    let other = Arc::clone(&shared);
    let body = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&other))) {
            other.put(Batch { end: Some(End::Panic(panic)), ..Batch::default() });
        }
    };
    let joiner = spawn("foreshore-log", body).ok()?;
    Some(Source::Thread(shared, Some(joiner)))
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        if let Source::Thread(shared, joiner) = &mut self.source {
            shared.waiting.lock().is_closed = true;
            shared.changed.notify_one();
            // WAIT: park - the thread ends when it has read its batch.
            joiner.take().into_iter().for_each(|join| join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foreshore_base::Place;

    /// Of record `number`; every tenth is longer than a batch may be.
    fn payload(number: u64) -> Vec<u8> {
        vec![number as u8; if number % 10 == 7 { 3 * BATCH_BYTES } else { number as usize % 50 }]
    }

    /// Stores record `number` in memory that has another one.
    fn store(number: u64, record: &mut LoggedRecord) {
        (record.lsn, record.tag, record.group) = (Lsn(number), number * 3, GroupNo(number / 4));
        record.payload.clear();
        record.payload.extend(payload(number));
    }

    /// Records 0 to `count`, then what `end` returns.
    fn fill(
        count: u64,
        end: impl Fn() -> Result<Option<Incarnation>> + Send + 'static,
    ) -> impl FnMut(&mut Batch) + Send + 'static {
        let (mut number, mut record) = (0, LoggedRecord::default());
        move |batch| {
            batch.fill(&mut record, |record| {
                if number == count {
                    return end();
                }
                store(number, record);
                number += 1;
                Ok(Some(Incarnation(number as u32)))
            });
        }
    }

    /// By a thread, or here.
    fn sources(
        count: u64,
        end: impl Fn() -> Result<Option<Incarnation>> + Clone + Send + 'static,
    ) -> [ReadAhead<'static>; 2] {
        let (by_other, here) = (fill(count, end.clone()), fill(count, end));
        let thread = by_thread(move |shared| shared.hand_over(by_other)).expect("a thread");
        [thread, Source::Here(Box::new(here))].map(|source| ReadAhead { source, batch: Batch::default() })
    }

    /// Returns how many records come, and what comes then.
    fn count(records: &mut ReadAhead<'_>) -> (u64, Result<()>) {
        let mut count = 0;
        loop {
            match records.next() {
                Ok(true) => {}
                Ok(false) => return (count, Ok(())),
                Err(error) => return (count, Err(error)),
            }
            for record in records.records() {
                let payload = &payload(count)[..];
                let (lsn, group, incarnation) = (Lsn(count), GroupNo(count / 4), Incarnation(count as u32 + 1));
                assert_eq!(record, ReadRecord { lsn, group, tag: count * 3, payload, incarnation });
                count += 1;
            }
        }
    }

    #[test]
    fn all_records_come_and_then_the_end_or_the_error() {
        for length in (0..20).chain([500]) {
            for mut records in sources(length, || Ok(None)) {
                let (found, end) = count(&mut records);
                assert_eq!((found, end.is_ok(), records.next().expect("the end")), (length, true, false));
            }
            for mut records in sources(length, || Err(Error::corrupted("log", Place::File, "as it was told"))) {
                let (found, end) = count(&mut records);
                assert!(found == length && matches!(end, Err(Error::Corrupted { .. })), "{found} of {length}: {end:?}");
                assert!(!records.next().expect("the end"));
            }
        }
    }

    #[test]
    fn the_thread_ends_with_a_reader_that_gives_up() {
        for batches in 0..20 {
            let mark = Arc::new(());
            let of_thread = Arc::clone(&mark);
            let [mut records, _] = sources(10_000, move || Ok(Some(Incarnation(Arc::strong_count(&of_thread) as u32))));
            for _ in 0..batches {
                assert!(records.next().expect("sound"));
            }
            drop(records);
            assert_eq!(Arc::strong_count(&mark), 1, "{batches} batches");
        }
    }

    #[test]
    fn a_panic_of_the_thread_goes_on_in_the_reader() {
        let [mut records, _] = sources(100, || panic!("as it was told"));
        let panic = catch_unwind(AssertUnwindSafe(|| count(&mut records))).expect_err("a panic");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"as it was told"));
    }
}
