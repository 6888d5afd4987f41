//! The archive: a folder to which the log is copied before its segments are recycled.
//!
//! **Protocol.** `next` is the first group that is not archived. Groups before it are in files that are durable and
//! have been read again ([`file`]). The log is truncated before `next` at most ([`Archive::bound`]). So a segment is
//! recycled only when its groups are archived.
//!
//! **What is copied.** The archiver copies segments that are complete, one to a file. On request it copies the groups
//! that are durable, up to the end of the log. Only durable groups are copied. No start drops one, so what the archive
//! has is a prefix of the chain that every later run continues.
//!
//! **A slow archive** is helped: when the log that waits for it is half of the budget, the thread that truncates the
//! log copies it too. Meanwhile no log is recycled, and writers are slowed as if pages were not written.
//!
//! **An archive that fails** does not stop the database. When the log that waits for it reaches the budget, the oldest
//! part is recycled. It is *lost* to the archive: counted, and named in [`ArchiveStats`]. The next file begins behind
//! the gap, and a restore refuses to pass it.
//!
//! **Another timeline.** A file has the uuid of its database. A restored database has another one. A copy of the files
//! has the same, and may have written other groups under the same numbers. So at a start the last group of the archive
//! is compared with the log by the checksum of its header, which covers the whole chain.

pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod read;
mod stats;

pub use stats::ArchiveStats;

use crate::follow::Cursor;
use crate::format::FIRST_GROUP;
use crate::format::archive::ArchiveHeader;
use crate::log_core::Core;
use crate::reader::GroupReader;
use file::Part;
use folder::{Folder, forked};
use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_io::{DirLock, Fs};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, Nanos, NextWake, SystemClock};
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of groups in a file, apart from its last group.
const MOST_BYTES: u64 = 64 << 20;
/// The longest time after which the end of the log is archived, if a thread does it.
const LAG: Duration = Duration::from_secs(60);
/// When a failed attempt is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// The archive of a log.
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// The file system of the folder.
    pub fs: Arc<dyn Fs>,
    /// The folder, which exists.
    pub dir: PathBuf,
    /// The most bytes of its files; 0 for no limit. The oldest files are removed.
    pub limit: u64,
    /// The most bytes of log that wait for an archive that fails.
    pub budget: u64,
}

/// An archive that a log is copied to.
pub(crate) struct Archive {
    folder: Folder,
    limit: u64,
    budget: u64,
    clock: SystemClock,
    /// The first group that is not archived, as in the state.
    next: AtomicU64,
    state: Mutex<State>,
    /// Read while the archiver waits for its device.
    shown: Mutex<Shown>,
}

/// What users see of an archive.
#[derive(Clone, Default)]
struct Shown {
    stats: ArchiveStats,
    /// The error of the last attempt, if it failed.
    failure: Option<Error>,
}

struct State {
    /// The first group that is not archived.
    next: GroupNo,
    /// Checksum of the header before it; `None` if a new chain begins.
    last_crc: Option<u32>,
    /// A cursor at or before it.
    at: Option<Cursor>,
    files: VecDeque<ArchiveHeader>,
    /// Why an old file was not removed when the last one was written.
    drop_failure: Option<Error>,
    /// When the end of the log was archived.
    ended: Nanos,
    /// `None` once the archive is released.
    lock: Option<Box<dyn DirLock>>,
}

/// How far the log is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// To the end of the last complete segment.
    Segments,
    /// To the last durable group.
    End,
}

impl Archive {
    /// Opens the archive of the log of `core`.
    ///
    /// # Errors
    /// `Foreign` if it holds another log, `Locked` if it is in use, `Newer`, `Corrupted`, or the error of the disk.
    pub(crate) fn open(core: &Core, options: ArchiveOptions) -> Result<Self> {
        let ArchiveOptions { fs, dir, limit, budget } = options;
        let lock = fs.lock(&dir.join("LOCK"))?;
        let folder = Folder { fs, dir, uuid: core.segments.home().uuid };
        folder.clear()?;
        // The names of files that an earlier run has made may be in memory only, and the log before them is given up.
        folder.fs.sync_dir(&folder.dir)?;
        let firsts = folder.firsts()?;
        let files = firsts.iter().map(|&first| Ok(folder.open(first)?.1)).collect::<Result<VecDeque<_>>>()?;
        let clock = SystemClock::new();
        let mut state = State {
            next: GroupNo::ZERO,
            last_crc: None,
            at: None,
            files,
            drop_failure: None,
            ended: clock.now(),
            lock: Some(lock),
        };
        let mut stats = ArchiveStats::default();
        state.join(core, &folder, &mut stats)?;
        state.show(&mut stats);
        Ok(Self {
            shown: Mutex::new(LockRank::Leaf, Shown { stats, failure: None }),
            next: AtomicU64::new(state.next.0),
            folder,
            limit,
            budget,
            clock,
            state: Mutex::new(LockRank::LogArchive, state),
        })
    }

    /// Returns the first group that is not archived.
    pub(crate) fn next(&self) -> GroupNo {
        // ORDERING: Acquire, pairs with `set_next`: groups before it are archived.
        GroupNo(self.next.load(Ordering::Acquire))
    }

    fn set_next(&self, state: &mut State, next: GroupNo) {
        assert!(state.next <= next, "the archive goes back from {} to {next}", state.next);
        state.next = next;
        // ORDERING: Release, publishes that the groups before it are archived.
        self.next.store(next.0, Ordering::Release);
    }

    /// Returns the first group that has to stay in the log if all before `wanted` is to be truncated. Helps an archive
    /// that is behind. Counts log as lost if the archive fails and the budget is used up.
    pub(crate) fn bound(&self, core: &Core, wanted: GroupNo) -> GroupNo {
        if mutant("sabotage: log is recycled before it is archived") {
            return wanted;
        }
        if self.waiting(core, wanted) > self.budget / 2 {
            let mut state = self.state.lock();
            let failed = self.advance(core, &mut state, Extent::Segments).is_err();
            if failed && self.waiting(core, wanted) > self.budget {
                self.lose(&mut state, wanted);
            }
        }
        self.next().min(wanted)
    }

    /// Returns the bytes of log before `wanted` that are not archived.
    fn waiting(&self, core: &Core, wanted: GroupNo) -> u64 {
        let next = self.next();
        if wanted <= next {
            return 0;
        }
        let list = core.segments.list();
        list.bytes_since(next).saturating_sub(list.bytes_since(wanted))
    }

    /// Gives up the groups before `wanted`.
    fn lose(&self, state: &mut State, wanted: GroupNo) {
        let lost = wanted.0.saturating_sub(state.next.0);
        if lost == 0 {
            return;
        }
        self.shown.lock().stats.lose(lost, wanted);
        (state.at, state.last_crc) = (None, None);
        self.set_next(state, wanted);
    }

    /// Copies the log as far as `extent` says.
    ///
    /// # Errors
    /// The error of a file, which is counted. What was copied before it stays archived.
    pub(crate) fn copy(&self, core: &Core, extent: Extent) -> Result<()> {
        self.advance(core, &mut self.state.lock(), extent)
    }

    fn advance(&self, core: &Core, state: &mut State, extent: Extent) -> Result<()> {
        let upto = upto(core, extent);
        let mut done = Ok(());
        while done.is_ok() && state.next <= upto && state.lock.is_some() {
            done = self.write_file(core, state, upto);
        }
        let mut shown = self.shown.lock();
        shown.stats.failures += u64::from(done.is_err());
        shown.failure = done.as_ref().err().or(state.drop_failure.as_ref()).cloned();
        done
    }

    fn write_file(&self, core: &Core, state: &mut State, upto: GroupNo) -> Result<()> {
        let home = core.segments.home();
        let mut at = match state.at.take() {
            Some(at) => at,
            None => cursor(core, state.next)?,
        };
        let part = Part { home, first: state.next, upto, most: core.options.segment_bytes.min(MOST_BYTES) };
        let header = file::write(&self.folder, &part, &mut at)?;
        assert!(header.first == state.next && header.last <= upto, "{header:?}, from {} to {upto}", state.next);
        // The caller compared the chain at the start, and the log only goes on.
        assert!(state.last_crc.is_none_or(|crc| crc == header.prev_crc), "the archive has another log: {header:?}");
        (state.at, state.last_crc) = (Some(at), Some(header.last_crc));
        state.files.push_back(header);
        self.set_next(state, header.last.next());
        // The archive has the log all the same.
        state.drop_failure = self.drop_old(state).err();
        let stats = &mut self.shown.lock().stats;
        stats.written_files += 1;
        state.show(stats);
        Ok(())
    }

    /// Removes the oldest files, as many as are above the limit, except the last one.
    fn drop_old(&self, state: &mut State) -> Result<()> {
        while self.limit > 0 && state.files.len() > 1 && state.bytes() > self.limit {
            let oldest = state.files[0];
            assert!(oldest.last < state.next, "group {} is dropped, and {} is next", oldest.last, state.next);
            match self.folder.fs.remove(&self.folder.path(oldest.first)) {
                // Others have removed it.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
            state.files.pop_front();
            {
                let stats = &mut self.shown.lock().stats;
                stats.dropped_files += 1;
                stats.dropped_upto = oldest.cut;
            }
            // In order, so that no gap is left.
            self.folder.fs.sync_dir(&self.folder.dir)?;
        }
        Ok(())
    }

    /// Runs one step of the archiver.
    pub(crate) fn step(&self, core: &Core) -> NextWake {
        let mut state = self.state.lock();
        let is_old = core.options.background && self.clock.now().since(state.ended) >= LAG;
        if self.advance(core, &mut state, if is_old { Extent::End } else { Extent::Segments }).is_err() {
            return NextWake::After(RETRY);
        }
        if is_old {
            state.ended = self.clock.now();
        }
        NextWake::After(LAG)
    }

    /// Ends the work and releases the folder.
    pub(crate) fn release(&self) {
        let lock = self.state.lock().lock.take();
        drop(lock);
    }

    /// Returns the counters. Does not wait for the device.
    pub(crate) fn stats(&self, core: &Core) -> ArchiveStats {
        let behind_bytes = core.segments.list().bytes_since(self.next());
        ArchiveStats { behind_bytes, ..self.shown.lock().stats }
    }

    /// Returns the error of the last attempt, if it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.shown.lock().failure.clone()
    }
}

impl State {
    fn bytes(&self) -> u64 {
        self.files.iter().map(|file| FIRST_GROUP + file.bytes).sum()
    }

    /// Puts what the files are into the counters.
    fn show(&self, stats: &mut ArchiveStats) {
        stats.files = self.files.len() as u64;
        stats.bytes = self.bytes();
        stats.archived = self.files.back().map_or(Lsn::ZERO, |file| file.cut);
    }

    /// Finds the first group of the log that is not archived, and checks that the archive has this log.
    fn join(&mut self, core: &Core, folder: &Folder, stats: &mut ArchiveStats) -> Result<()> {
        let first = core.segments.list().live.front().expect("a log with files has a segment").first;
        self.next = first;
        let Some(&ArchiveHeader { last, last_crc, first: file, .. }) = self.files.back() else { return Ok(()) };
        if last >= core.pipeline.progress().next_group() {
            return Err(forked(&folder.path(file)));
        }
        if last.next() < first {
            // The log between was lost to the archive, in an earlier run or one without it.
            stats.lose(first.0 - last.next().0, first);
            return Ok(());
        }
        let mut at = cursor(core, last.max(first))?;
        let mut reader = GroupReader::new(crate::format::MAX_GROUP as u64);
        while at.next_group() <= last {
            if at.step(core.segments.home(), &mut reader, true)?.is_none() {
                return Err(at.lost_next());
            }
        }
        if at.last_crc() != last_crc {
            return Err(forked(&folder.path(file)));
        }
        (self.next, self.last_crc, self.at) = (last.next(), Some(last_crc), Some(at));
        Ok(())
    }
}

/// Returns a cursor at or before `group`.
fn cursor(core: &Core, group: GroupNo) -> Result<Cursor> {
    let home = core.segments.home();
    let start = core.segments.list().slot_at(group, home.uuid).expect("a log with files has a segment");
    let (file, size) = home.open_segment(start.segment)?;
    if start.first > group {
        return Err(Error::LogTruncated { dir: home.dir.clone(), wanted: group, first: start.first });
    }
    Ok(Cursor::new(&start, file, size))
}

/// Returns the last group to copy.
fn upto(core: &Core, extent: Extent) -> GroupNo {
    let durable = core.pipeline.progress().durable_group();
    match extent {
        Extent::End => durable,
        Extent::Segments => {
            let last = core.segments.list().live.back().map_or(GroupNo::ZERO, |live| live.first);
            GroupNo(last.0.saturating_sub(1)).min(durable)
        }
    }
}
