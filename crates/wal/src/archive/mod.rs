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
mod join;
mod pace;
pub(crate) mod read;
mod space;
mod state;
mod stats;
mod work;

pub use stats::ArchiveStats;

use crate::log_core::Core;
use folder::Folder;
use foreshore_base::{Error, GroupNo, Result};
use foreshore_io::Fs;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{Clock, Condvar, LockRank, Mutex, MutexGuard, NextWake, SystemClock};
use join::Found;
use state::State;
use stats::Shown;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// The first group that is neither archived nor given up, as in the state.
    next: AtomicU64,
    /// Whether the disk of the log is full, and the archive fails.
    yields: AtomicBool,
    /// Whether the archiver has a thread.
    has_thread: AtomicBool,
    /// Never locked while a device works.
    state: Mutex<State>,
    /// Notified when a file is archived, and when a turn to write ends.
    changed: Condvar,
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
        let found = Found::read(core, &folder, None, &|| ())?;
        if found.begin.is_none() {
            // Log may be given up before the first file is written. Later runs count that.
            folder.mark_begin(found.next)?;
        }
        let clock = SystemClock::new();
        let mut state = State {
            next: GroupNo::ZERO,
            begin: found.begin.unwrap_or(found.next),
            files: VecDeque::new(),
            others: VecDeque::new(),
            unread: None,
            at: None,
            at_work: None,
            failed: 0,
            drop_failure: None,
            ended: clock.now(),
            lock: Some(lock),
            shown: Shown { failure: found.unread.clone(), ..Shown::default() },
        };
        state.adopt(found);
        Ok(Self {
            next: AtomicU64::new(state.next.0),
            yields: AtomicBool::new(false),
            has_thread: AtomicBool::new(false),
            folder,
            limit,
            budget,
            clock,
            state: Mutex::new(LockRank::LogArchive, state),
            changed: Condvar::new(),
        })
    }

    /// Notes whether the archiver has a thread.
    pub(crate) fn driven(&self, has_thread: bool) {
        // ORDERING: hint, threads that wait for the archiver check it again and again.
        self.has_thread.store(has_thread, Ordering::Relaxed);
    }

    fn has_thread(&self) -> bool {
        // ORDERING: hint, see `driven`.
        self.has_thread.load(Ordering::Relaxed)
    }

    /// Returns the first group that is neither archived nor given up.
    pub(crate) fn next(&self) -> GroupNo {
        // ORDERING: Acquire, pairs with `publish`: groups before it are archived.
        GroupNo(self.next.load(Ordering::Acquire))
    }

    /// Publishes a change of the state, which another thread may wait for.
    fn publish(&self, state: MutexGuard<'_, State>) {
        // ORDERING: Release, publishes that the groups before it are archived.
        self.next.store(state.next.0, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Runs one step of the archiver.
    pub(crate) fn step(&self, core: &Core) -> NextWake {
        let ended = self.state.lock().ended;
        let is_old = core.options.background && self.clock.now().since(ended) >= LAG;
        if self.copy(core, if is_old { Extent::End } else { Extent::Segments }).is_err() {
            return NextWake::After(RETRY);
        }
        if is_old {
            self.state.lock().ended = self.clock.now();
        }
        NextWake::After(LAG)
    }

    /// Ends the work and releases the folder.
    pub(crate) fn release(&self) {
        let _turn = self.turn();
        let lock = self.state.lock().lock.take();
        drop(lock);
    }

    /// Returns the counters. Does not wait for the device.
    pub(crate) fn stats(&self, core: &Core) -> ArchiveStats {
        let behind_bytes = core.segments.list().bytes_since(self.next());
        ArchiveStats { behind_bytes, ..self.state.lock().shown.stats }
    }

    /// Returns the error of the last attempt, if it failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.lock().shown.failure.clone()
    }

    /// Returns what is wrong with the newest file that was not sound when the archive was opened.
    pub(crate) fn damage(&self) -> Option<Error> {
        self.state.lock().shown.damage.clone()
    }
}
