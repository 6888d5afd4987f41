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
//! **An archive that fails** does not stop the database. When the log that waits for it reaches the budget, or writers
//! find the disk full, the oldest part is recycled. It is *lost* to the archive: counted, and named in
//! [`ArchiveStats`]. The next file begins behind the gap, and a restore refuses to pass it. One error is no failure:
//! attempts are repeated before log is given up.
//!
//! **A file that is not sound** does not stop the database either. It is counted, and what it had is lost. If the log
//! still has its groups, they are archived again, and the file is put aside under another name. A file that cannot be
//! read may be sound: it is read again before log is archived, and that fails until then.
//!
//! **Another timeline.** A file has the uuid of its database. A restored database has another one. A copy of the files
//! has the same, and may have written other groups under the same numbers. So at a start the last group of the archive
//! is compared with the log by the checksum of its header, which covers the whole chain.

pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod read;
mod state;
mod stats;

pub use stats::ArchiveStats;

use crate::log_core::Core;
use file::Part;
use folder::Folder;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_io::Fs;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{Clock, LockRank, Mutex, NextWake, SystemClock};
use state::{State, cursor};
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of groups in a file, apart from its last group.
const MOST_BYTES: u64 = 64 << 20;
/// The longest time after which the end of the log is archived, if a thread does it.
const LAG: Duration = Duration::from_secs(60);
/// When a failed attempt is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Attempts in a row that fail before log is given up.
const TRIES: u32 = 3;

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
    /// Whether the disk of the log is full, and the archive fails.
    yields: AtomicBool,
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
    /// What is wrong with the newest file that is not sound.
    damage: Option<Error>,
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
    /// `Foreign` if it holds another log, `Locked` if it is in use, or the error of the disk.
    pub(crate) fn open(core: &Core, options: ArchiveOptions) -> Result<Self> {
        let ArchiveOptions { fs, dir, limit, budget } = options;
        let lock = fs.lock(&dir.join("LOCK"))?;
        let folder = Folder { fs, dir, uuid: core.segments.home().uuid };
        folder.clear()?;
        // The names of files that an earlier run has made may be in memory only, and the log before them is given up.
        folder.fs.sync_dir(&folder.dir)?;
        let (files, unsound) = folder.files()?;
        let clock = SystemClock::new();
        let mut state = State {
            next: GroupNo::ZERO,
            last_crc: None,
            at: None,
            files,
            unread: Vec::new(),
            failed: 0,
            drop_failure: None,
            ended: clock.now(),
            lock: Some(lock),
        };
        let mut stats = ArchiveStats { unsound_files: unsound.len() as u64, ..ArchiveStats::default() };
        state.join(core, &folder, &mut stats)?;
        state.settle(&folder, &unsound);
        state.show(&mut stats);
        let failure = state.read_failure();
        let damage = unsound.into_iter().next_back().map(|(_, error)| error);
        Ok(Self {
            shown: Mutex::new(LockRank::Leaf, Shown { stats, failure, damage }),
            next: AtomicU64::new(state.next.0),
            yields: AtomicBool::new(false),
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

    /// Returns the first group that has to stay in the log if all before `wanted` is to be truncated.
    pub(crate) fn held(&self, wanted: GroupNo) -> GroupNo {
        if self.yields() { wanted } else { self.next().min(wanted) }
    }

    fn yields(&self) -> bool {
        // ORDERING: hint, only the thread that has set it relies on it.
        self.yields.load(Ordering::Relaxed)
    }

    /// Copies complete segments, since the disk of the log is full. If the archive fails, no log is held for it until
    /// [`hold`](Self::hold). Then log that is truncated is lost to it.
    pub(crate) fn yield_space(&self, core: &Core) {
        let fails = self.fails(core, &mut self.state.lock());
        // ORDERING: hint, see `yields`.
        self.yields.store(fails, Ordering::Relaxed);
    }

    /// Ends [`yield_space`](Self::yield_space).
    pub(crate) fn hold(&self) {
        // ORDERING: hint, see `yields`.
        self.yields.store(false, Ordering::Relaxed);
    }

    /// As [`held`](Self::held), and helps an archive that is behind. Counts log as lost if the archive fails and the
    /// budget is used up, or the disk of the log is full.
    pub(crate) fn bound(&self, core: &Core, wanted: GroupNo) -> GroupNo {
        if mutant("sabotage: log is recycled before it is archived") {
            return wanted;
        }
        let budget = if self.yields() { 0 } else { self.budget };
        if self.waiting(core, wanted) > budget / 2 {
            let mut state = self.state.lock();
            if self.fails(core, &mut state) && self.waiting(core, wanted) > budget {
                self.lose(&mut state, wanted);
            }
        }
        self.next().min(wanted)
    }

    /// Copies complete segments. Returns whether the archive fails: the last [`TRIES`] attempts at least.
    fn fails(&self, core: &Core, state: &mut State) -> bool {
        while self.advance(core, state, Extent::Segments).is_err() {
            if state.failed >= TRIES {
                return true;
            }
        }
        false
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
        if wanted <= state.next {
            return;
        }
        self.shown.lock().stats.lose(state.next, wanted);
        (state.at, state.last_crc) = (None, None);
        self.set_next(state, wanted);
        let unread = mem::take(&mut state.unread);
        state.put_aside(&self.folder, &unread);
    }

    /// Reads the files again if one that is in the way could not be read, and finds where the next one begins.
    fn read_again(&self, core: &Core, state: &mut State) -> Result<()> {
        if state.unread.is_empty() || state.lock.is_none() {
            return Ok(());
        }
        let (files, unsound) = self.folder.files()?;
        let mut stats = ArchiveStats::default();
        let before = state.next;
        let known = mem::replace(&mut state.files, files);
        (state.at, state.last_crc) = (None, None);
        if let Err(error) = state.join(core, &self.folder, &mut stats) {
            (state.next, state.files) = (before, known);
            return Err(error);
        }
        let next = mem::replace(&mut state.next, before);
        if next < before {
            // A file that was read before is not there now. The log that it had may be recycled already.
            (state.at, state.last_crc) = (None, None);
        }
        self.set_next(state, next.max(before));
        state.settle(&self.folder, &unsound);
        let mut shown = self.shown.lock();
        state.show(&mut shown.stats);
        shown.stats.unsound_files = unsound.len() as u64;
        (shown.stats.lost_groups, shown.stats.lost_upto) = (stats.lost_groups, stats.lost_upto);
        shown.damage = unsound.into_iter().next_back().map(|(_, error)| error);
        state.read_failure().map_or(Ok(()), Err)
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
        let mut done = self.read_again(core, state);
        state.failed = if done.is_ok() { state.failed } else { state.failed.saturating_add(1) };
        while done.is_ok() && state.next <= upto && state.lock.is_some() {
            assert!(state.unread.is_empty(), "archived over a file that was not read");
            done = self.write_file(core, state, upto);
            state.failed = if done.is_ok() { 0 } else { state.failed.saturating_add(1) };
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
        let before = state.files.back().map_or(GroupNo::ZERO, |file| file.last);
        assert!(before < header.first, "the archive has group {before}, and then {}", header.first);
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

    /// Returns what is wrong with the newest file that was not sound when the archive was opened.
    pub(crate) fn damage(&self) -> Option<Error> {
        self.shown.lock().damage.clone()
    }
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
