//! Segment files: made ahead of need, filled in order, recycled when the log before a group is no longer needed.

mod control;
mod grants;
mod live;
mod prepare;

pub(crate) use control::Control;
pub(crate) use live::Live;
pub(crate) use prepare::create_segment;

use crate::format::{FIRST_GROUP, SegmentHeader, number_of, segment_name};
use crate::options::LogOptions;
use crate::returns::Returns;
use foreshore_base::limits::BLOCK;
use foreshore_base::{Error, GroupNo, Result, Uuid};
use foreshore_io::{AlignedBuf, File, Fs};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex, Signal, pause};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the files of one log live.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) fs: Arc<dyn Fs>,
    pub(crate) dir: PathBuf,
    pub(crate) uuid: Uuid,
}

impl Home {
    pub(crate) fn segment_path(&self, number: u64) -> PathBuf {
        self.dir.join(segment_name(number))
    }

    /// Opens segment `number` and checks its header and length.
    pub(crate) fn open_segment(&self, number: u64) -> Result<(Arc<dyn File>, u64)> {
        self.check_segment(number, self.fs.open(&self.segment_path(number))?)
    }

    /// Opens segment `number` for a start: reads go past the page cache, which may show groups whose sync has failed.
    pub(crate) fn open_past_cache(&self, number: u64) -> Result<Arc<dyn File>> {
        let file = self.fs.open(&self.segment_path(number))?;
        file.read_past_cache()?;
        Ok(file)
    }

    /// Checks header and length of segment `number`.
    pub(crate) fn check_segment(&self, number: u64, file: Arc<dyn File>) -> Result<(Arc<dyn File>, u64)> {
        let path = file.path().to_owned();
        let mut block = AlignedBuf::new(BLOCK);
        let read = file.read_at(&mut block, 0)?;
        let header = SegmentHeader::decode(&block[..read], &path, self.uuid)?;
        if header.number != number {
            return Err(Error::Foreign { path, why: "it carries the number of another segment" });
        }
        let len = file.len()?;
        if len < header.size {
            return Err(Error::Truncated { file: path, len, expected: header.size });
        }
        Ok((file, header.size))
    }

    /// Numbers of the segments in the directory, ascending.
    pub(crate) fn segment_numbers(&self) -> Result<Vec<u64>> {
        let names = self.fs.list(&self.dir)?;
        let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name, ".seg")).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// A segment that waits for its first group.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) number: u64,
    pub(crate) size: u64,
    pub(crate) file: Arc<dyn File>,
}

/// Every segment of the log that exists, by what it is used for.
#[derive(Debug, Default)]
pub(crate) struct List {
    /// Those with groups that are needed, ascending; the last one is being filled.
    pub(crate) live: VecDeque<Live>,
    pub(crate) ready: VecDeque<Ready>,
    /// Files whose groups nobody needs, with their sizes: the next ready segments.
    pub(crate) spare: Vec<(u64, u64)>,
    /// The spare one that could not be prepared the last time that this failed.
    pub(crate) failed: Option<u64>,
    /// The number of the next segment to prepare.
    pub(crate) next_number: u64,
}

/// The segments of a log in use.
#[derive(Debug)]
pub(crate) struct Segments {
    pub(crate) home: Home,
    segment_bytes: u64,
    options: LogOptions,
    /// Grows with the sessions ever at work at once, by `count_session`.
    kept_back: AtomicU64,
    /// What `kept_back` would be if all sessions ever leased at once were at work.
    expected: AtomicU64,
    /// Prepared bytes that sessions were granted for compensations. Changes by blocks.
    granted: AtomicU64,
    returns: Returns,
    zero_fill: bool,
    /// Held while segments are prepared or recycled and while the control slots move: one of these at a time.
    control: Mutex<Control>,
    list: Mutex<List>,
    /// Bytes of prepared segments, and what is left of the one being filled.
    ready_bytes: AtomicU64,
    left_bytes: AtomicU64,
    /// The last attempt to prepare a segment found the disk full.
    full: AtomicBool,
    made: AtomicU64,
    recycled: AtomicU64,
    preparer: Signal,
}

impl Segments {
    pub(crate) fn new(home: Home, options: &LogOptions, control: Control, list: List) -> Self {
        let left = list.live.back().map_or(0, |live| live.size - live.end);
        let ready: u64 = list.ready.iter().map(|ready| ready.size - FIRST_GROUP).sum();
        Self {
            zero_fill: home.fs.backend().durable,
            home,
            segment_bytes: options.segment_bytes,
            options: options.clone(),
            kept_back: AtomicU64::new(options.kept_back(0)),
            expected: AtomicU64::new(options.kept_back(0)),
            returns: Returns::default(),
            granted: AtomicU64::new(0),
            control: Mutex::new(LockRank::LogCtl, control),
            list: Mutex::new(LockRank::LogSegments, list),
            ready_bytes: AtomicU64::new(ready),
            left_bytes: AtomicU64::new(left),
            full: AtomicBool::new(false),
            made: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
            preparer: Signal::new(),
        }
    }

    /// The bell of the preparer.
    pub(crate) fn preparer_signal(&self) -> &Signal {
        &self.preparer
    }

    /// Prepared bytes ahead of the last group.
    fn ahead(&self) -> u64 {
        // ORDERING: Relaxed, a measure; the segments themselves are handed over under the list's lock.
        self.ready_bytes.load(Ordering::Relaxed) + self.left_bytes.load(Ordering::Relaxed)
    }

    /// Prepared space that is set aside: what is kept back, and what sessions were granted.
    fn set_aside(&self) -> u64 {
        // ORDERING: Relaxed, as in `expect_sessions`, and as in `grant`.
        self.kept_back.load(Ordering::Relaxed) + self.granted.load(Ordering::Relaxed)
    }

    /// Whether prepared space has fallen below what is set aside.
    pub(crate) fn is_short(&self) -> bool {
        self.ahead() < self.set_aside()
    }

    /// Whether ordinary reservations would use what rollbacks or a restart need.
    fn is_spent(&self) -> bool {
        self.ahead() + self.options.margin() < self.set_aside()
    }

    /// Whether there is no more than what is in flight may take.
    fn is_at_end(&self) -> bool {
        let spared = self.options.margin() + self.options.for_restart();
        // ORDERING: Relaxed, as in `expect_sessions`.
        self.ahead() + spared < self.kept_back.load(Ordering::Relaxed)
    }

    /// Segments to keep ready.
    fn ready_target(&self) -> usize {
        // ORDERING: Relaxed, as in `expect_sessions`, and as in `grant`.
        let expected = self.expected.load(Ordering::Relaxed) + self.granted.load(Ordering::Relaxed);
        self.options.ready_target(self.set_aside().max(expected))
    }

    /// Whether an ordinary reservation may go on. Where space ahead has fallen below what is spoken for, the caller helps
    /// to prepare a segment. On a full disk it is refused then; one that `frees` space is refused only when the margin is
    /// used up, too.
    ///
    /// # Errors
    /// `DiskFull`, or what else preparing a segment failed with.
    pub(crate) fn admit(&self, frees: bool) -> Result<()> {
        if !self.is_short() {
            return Ok(());
        }
        // ORDERING: Relaxed, a flag about the disk that every attempt sets anew.
        if !self.full.load(Ordering::Relaxed) {
            // WAIT: help - one caller at a time prepares; the others go on while the disk was not known to be full.
            match self.control.try_lock() {
                Some(mut control) if self.is_short() => match self.prepare_one(&mut control) {
                    Ok(()) | Err(Error::DiskFull { .. }) => {}
                    Err(error) => return Err(error),
                },
                _ => {}
            }
        }
        // ORDERING: Relaxed, as above.
        let keeps_margin = self.full.load(Ordering::Relaxed) && !frees;
        self.prepare_while(if keeps_margin { Self::is_short } else { Self::is_spent }).map_err(|error| match error {
            Error::DiskFull { .. } => Error::DiskFull { path: self.home.dir.clone(), held_by: None },
            error => error,
        })
    }

    /// Whether a reservation of a rollback may go on.
    ///
    /// # Errors
    /// As [`admit`](Self::admit).
    pub(crate) fn admit_rollback(&self) -> Result<()> {
        self.prepare_while(Self::is_at_end)
    }

    /// Prepares segments as long as space `is_missing`, or waits for the thread that does.
    fn prepare_while(&self, is_missing: impl Fn(&Self) -> bool) -> Result<()> {
        while is_missing(self) {
            // WAIT: park - behind the thread that prepares a segment just now.
            let mut control = self.control.lock();
            if is_missing(self) {
                self.prepare_one(&mut control)?;
            }
        }
        Ok(())
    }

    /// The next segment to fill, whose first group is `first`. Prepared inline if none is ready.
    ///
    /// # Errors
    /// `DiskFull` if what was kept back is used up too, or what preparing failed with.
    pub(crate) fn roll(&self, first: GroupNo, prev_crc: u32) -> Result<Ready> {
        let ready = loop {
            if let Some(ready) = self.list.lock().ready.pop_front() {
                break ready;
            }
            // WAIT: help - or park for the one who prepares a segment just now.
            let mut control = self.control.lock();
            if self.list.lock().ready.is_empty() {
                self.prepare_one(&mut control)?;
            }
        };
        assert!(ready.size > FIRST_GROUP, "segment {} has no place for a group: {} bytes", ready.number, ready.size);
        let space = ready.size - FIRST_GROUP;
        let mut list = self.list.lock();
        assert!(list.live.back().is_none_or(|live| live.number + 1 == ready.number), "segments follow each other");
        list.live.push_back(Live::new(ready.number, ready.size, first, prev_crc));
        pause::point("wal: a segment begins");
        drop(list);
        // ORDERING: Relaxed, a measure.
        self.left_bytes.store(space, Ordering::Relaxed);
        self.ready_bytes.fetch_sub(space, Ordering::Relaxed);
        self.preparer.notify();
        Ok(ready)
    }

    /// Notes that `group` goes to `offset` of the segment being filled and ends at `end`.
    pub(crate) fn placed(&self, group: GroupNo, offset: u64, end: u64) {
        let mut list = self.list.lock();
        let live = list.live.back_mut().expect("a group goes into a live segment");
        live.push(group, offset, end);
        // ORDERING: Relaxed, a measure.
        self.left_bytes.store(live.size - end, Ordering::Relaxed);
    }

    /// Bytes of log from `group` on, to the precision of a group and a sixty-fourth of a segment, at most 256 KiB.
    pub(crate) fn bytes_since(&self, group: GroupNo) -> u64 {
        let list = self.list.lock();
        let first = list.live.partition_point(|live| live.first <= group).saturating_sub(1);
        let bytes = |(i, live): (usize, &Live)| match i.cmp(&first) {
            std::cmp::Ordering::Less => 0,
            std::cmp::Ordering::Equal => live.end - live.seek(group).1,
            std::cmp::Ordering::Greater => live.end - FIRST_GROUP,
        };
        list.live.iter().enumerate().map(bytes).sum()
    }

    /// Bytes of the segments that lie before group `before`, which is durable.
    pub(crate) fn truncatable(&self, before: GroupNo) -> u64 {
        let list = self.list.lock();
        let first = list.live.partition_point(|live| live.first <= before).saturating_sub(1);
        list.live.iter().take(first).map(|live| live.size).sum()
    }

    /// Bytes of all groups kept.
    pub(crate) fn retained_bytes(&self) -> u64 {
        self.list.lock().live.iter().map(|live| live.end - FIRST_GROUP).sum()
    }

    /// Segments made and recycled since the log was opened.
    pub(crate) fn counts(&self) -> (u64, u64) {
        // ORDERING: Relaxed, counters.
        (self.made.load(Ordering::Relaxed), self.recycled.load(Ordering::Relaxed))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.home.dir
    }
}

#[cfg(test)]
mod tests;
