//! The handle of an open log.

mod archive;
mod restore;
mod space;

use crate::archive::Archive;
use crate::copy::{self, CopiedLog, CopyTarget};
use crate::follow::Follower;
use crate::log_core::Core;
use crate::open;
use crate::options::LogOptions;
use crate::pipeline::{Calls, Progress, SHARDS, Waits};
use crate::reader::Recovered;
use crate::scan::FIRST;
use crate::session::Session;
use crate::ticket::CommitTicket;
use foreshore_base::{Csn, Error, GroupNo, InvalidOption, Lsn, Result, Uuid};
use foreshore_io::Fs;
use foreshore_sync::{BiasedOwner, BiasedRef, Daemon, LockRank, Mutex, NextWake};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// An open log. Clones are handles of the same log. Dropping the last one stops its threads without flushing; to flush,
/// call [`Log::close`].
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<Core>,
    /// The reference that tickets without a session clone.
    shared: BiasedRef<Arc<Core>>,
    /// Set once, if the log is archived.
    archive: OnceLock<Archive>,
    daemons: Mutex<Vec<Daemon>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // The flusher stops before the preparer, so that its last group finds a segment.
        self.daemons.get_mut().drain(..).for_each(Daemon::stop);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (durable, next_group) = (self.durable(), self.next_group());
        f.debug_struct("Log").field("durable", &durable).field("next_group", &next_group).finish_non_exhaustive()
    }
}

/// Counters since the log was opened. Bytes include envelopes, headers and padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Records appended; each fragment counts.
    pub records: u64,
    /// Bytes of records appended.
    pub record_bytes: u64,
    /// Groups written, or dropped by a log without files.
    pub groups: u64,
    /// Bytes of these groups.
    pub group_bytes: u64,
    /// Durable writes of groups.
    pub writes: u64,
    /// Memory of the buffer that may have been touched: its ring, or the lanes that sessions have used.
    pub buffer_bytes: u64,
    /// Segment files created.
    pub segments_made: u64,
    /// Segment files reused.
    pub segments_recycled: u64,
    /// Tickets with a waiting future or callback.
    pub watchers: usize,
    /// Callbacks and wakers of tickets that panicked.
    pub callback_panics: u64,
    /// Times that a thread that waited for durability yielded its processor before it parked.
    pub yields: u64,
    /// Nanoseconds that the throttle slowed sessions down in all, because too much log stood behind the redo start.
    pub slowed_nanos: u64,
    /// The parts of waits for durability, if they are measured.
    pub waits: Waits,
}

impl Log {
    /// Number of the first group of a new log.
    pub const FIRST_GROUP: GroupNo = FIRST;

    /// Creates an empty log in `dir`, whose parent exists. Removes the files of an earlier attempt that has left no
    /// control file. When it returns, all is durable except the name of `dir` itself.
    ///
    /// # Errors
    /// `Io` with `AlreadyExists` if there is a log; `InvalidOption`; or the error of the disk.
    pub fn create(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<()> {
        open::create(fs, dir, uuid, options)
    }

    /// Opens the log in `dir`: finds its end, makes the accepted groups durable, and begins a new incarnation. The
    /// caller holds the lock of the database.
    ///
    /// # Errors
    /// `LostLog`, `Foreign`, `Newer`, `Corrupted` or `Truncated`, before anything was written; `InvalidOption`; or the
    /// error of the disk. Segments whose groups are all confirmed are not read: [`Recovered::records`] checks them.
    pub fn open(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<(Self, Recovered)> {
        let (parts, recovered) = open::open(fs, dir, uuid, options)?;
        Ok((Self::new(parts), recovered))
    }

    /// Returns a log without files, for measuring how fast sessions append. Groups are sealed and dropped, without
    /// checksum and without a write. All else works as usual; "durable" means dropped.
    ///
    /// # Errors
    /// `InvalidOption`, or the error of an allocation or of a thread's start.
    pub fn discarding(options: &LogOptions) -> Result<Self> {
        open::discarding(options).map(Self::new)
    }

    /// Leases a session.
    ///
    /// # Errors
    /// `TooManyTransactions` if all are leased.
    pub fn session(&self) -> Result<Session> {
        Session::lease(&self.handle.core)
    }

    /// Returns the durable LSN: every record with an LSN up to it survives a crash.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.progress().durable()
    }

    /// Returns the sealed LSN: every record with an LSN up to it is in a sealed group.
    #[must_use]
    pub fn sealed(&self) -> Lsn {
        self.progress().sealed()
    }

    /// Returns the number of the next group to be sealed. A record appended after this call is in that group or a later
    /// one.
    #[must_use]
    pub fn next_group(&self) -> GroupNo {
        self.progress().next_group()
    }

    /// Returns an upper bound of the LSNs assigned so far.
    #[must_use]
    pub fn current(&self) -> Lsn {
        self.core().buffer.current()
    }

    /// Returns the commit clock. It is at or above the LSN of every record with [`flags::COMMIT`](crate::flags::COMMIT)
    /// whose append happened before this call. A reader of the clock sees all that happened before the append of every
    /// commit up to its value.
    #[must_use]
    pub fn commit_clock(&self) -> Csn {
        self.core().buffer.commit_clock().csn()
    }

    /// Raises the commit clock to `csn`, so that [`Log::durable`] can reach it too, though no record has that stamp.
    ///
    /// Returns false and changes nothing in a log whose stamps are positions of records. There a further commit record
    /// gets a stamp above all values of the clock that were read before.
    #[must_use]
    pub fn raise_commit_clock(&self, csn: Csn) -> bool {
        self.core().buffer.raise_commit_clock(csn.lsn())
    }

    /// Returns the largest payload of [`Session::append`] in bytes under this log's options.
    #[must_use]
    pub fn max_record(&self) -> usize {
        self.core().limits.max_record
    }

    /// Returns the largest payload of [`Session::append_large`] in bytes. It is [`crate::MAX_LARGE`], unless the buffer
    /// takes whole records only.
    #[must_use]
    pub fn max_large(&self) -> usize {
        self.core().limits.max_large
    }

    /// Returns the largest argument of [`Session::reserve`].
    #[must_use]
    pub fn max_reserve(&self) -> usize {
        self.core().limits.max_reserve
    }

    /// Waits until `lsn` is durable. The caller writes the group itself if no other thread does; otherwise it parks.
    ///
    /// # Errors
    /// `Poisoned`: the record may or may not survive.
    ///
    /// # Panics
    /// If `lsn` is above [`Log::current`]: it would wait for a record that does not exist.
    pub fn force(&self, lsn: Lsn) -> Result<()> {
        self.core().force(lsn, Calls::Elsewhere, None).map(drop)
    }

    /// Returns the ticket of a commit record at `record` with stamp `csn`. It resolves when `target` is durable: the
    /// greatest of `csn` and the stamps that the transaction has observed.
    pub fn ticket(&self, record: Lsn, csn: Csn, target: Lsn) -> CommitTicket {
        CommitTicket::new(self.handle.shared.clone(), spread(target), record, csn, target)
    }

    /// Calls `function` once, when `lsn` is durable or the log has stopped, on the thread that detects it. The call
    /// comes before callbacks of tickets, since those may wait for what `function` releases. So `function` must wait
    /// for no other thread. A panic in it is caught.
    pub fn release_when_durable(&self, lsn: Lsn, function: impl FnOnce() + Send + 'static) {
        self.core().pipeline.release_when_durable(spread(lsn), lsn, Box::new(|_| function()));
    }

    /// Requests that `lsn` becomes durable soon, without waiting: for commits whose tickets another thread waits for,
    /// or none. Costs a store, a fence and a load; wakes a flusher only if it is parked and no thread writes. If
    /// [`LogOptions::max_unacked`] requested commits of the session are not durable, its next reservation waits.
    pub fn flush_soon(&self, session: &mut Session, lsn: Lsn) {
        session.flush_soon(lsn);
    }

    /// Requests that the relaxed commit `lsn` of the session becomes durable with a later group, about a millisecond
    /// after the last one. The next reservation of the session does not wait for it.
    pub fn flush_later(&self, session: &mut Session, lsn: Lsn) {
        self.core().check_target(lsn);
        self.core().pipeline.flush_later(session.number(), lsn);
    }

    /// Calls the due callbacks of tickets of the session with this number ([`Session::number`]). So a committer takes
    /// this work off the threads that write. Callbacks are code of users, so the caller holds no lock that they may
    /// need.
    pub fn acknowledge(&self, session: usize) {
        self.core().pipeline.acks().acknowledge(session);
    }

    /// Calls the due callbacks and wakers of all tickets, as [`acknowledge`](Self::acknowledge) does.
    pub fn acknowledge_all(&self) {
        self.core().pipeline.acks().acknowledge_all();
    }

    /// Calls `function` once when the log has stopped, on a thread that holds no lock, like callbacks of tickets.
    pub fn on_stop(&self, function: impl FnOnce() + Send + 'static) {
        self.core().pipeline.acks().call_when_stopped(Box::new(function));
    }

    /// Follows this log from group `from` on, or from the oldest group if `from` is [`GroupNo::ZERO`]. The follower
    /// yields durable records, and can wait for more. [`Follower::open`] follows a log of another process.
    ///
    /// # Errors
    /// `LogTruncated` if `from` was truncated; `InvalidOption` for a log without files; or the error of the disk.
    pub fn follow(&self, from: GroupNo) -> Result<Follower> {
        self.check_files("follow")?;
        Follower::of(self.handle.core.clone(), from)
    }

    /// Copies the durable groups from `from` on into a new log. Sessions append meanwhile. Calls `go_on` before each
    /// group, and ends with its error. When it returns, all is durable except the name of the directory itself.
    ///
    /// Group `from` is durable, and the caller keeps the log from being truncated before it.
    ///
    /// # Errors
    /// `InvalidOption` for a log without files; `LogTruncated` if it begins after `from`; `LostLog` or `Corrupted` for
    /// a damaged group; the error of a disk. What was written is no log then, since it has no control file.
    pub fn copy(&self, from: GroupNo, to: &CopyTarget<'_>, go_on: &mut dyn FnMut() -> Result<()>) -> Result<CopiedLog> {
        self.check_files("copy")?;
        copy::copy(self.core(), from, to, go_on)
    }

    /// Refuses a call of `name` for a log without files.
    fn check_files(&self, name: &'static str) -> Result<()> {
        if self.core().has_files {
            return Ok(());
        }
        let (value, expected) = ("a log without files".into(), "a log in a directory".into());
        Err(InvalidOption { name, value, expected }.into())
    }

    /// Truncates the log before group `before`. The caller has made sure that recovery starts there or later. Releases
    /// whole segments, and keeps those that the older slot of the control file needs, or that are not archived.
    ///
    /// # Errors
    /// The error of the disk. Nothing is lost, and the caller may try again.
    pub fn truncate(&self, before: GroupNo) -> Result<()> {
        let before = self.archive_bound(before, true);
        self.core().segments.truncate(before, self.progress().durable_group())
    }

    /// Removes the files of truncated segments, which are kept for later ones. Returns how many bytes they had.
    ///
    /// # Errors
    /// The error of the disk. Nothing is lost.
    pub fn remove_spare_segments(&self) -> Result<u64> {
        self.core().segments.remove_spare()
    }

    /// Returns the exact bytes of all groups written since the log was opened. They are constant while nothing is
    /// appended.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.core().growth.written()
    }

    /// Returns the counters since the log was opened.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        let Core { pipeline, segments, slots, growth, .. } = self.core();
        let (records, record_bytes) = slots.totals();
        let (segments_made, segments_recycled) = {
            let list = segments.list();
            (list.made, list.recycled)
        };
        LogStats {
            records,
            record_bytes,
            groups: growth.groups(),
            group_bytes: growth.written(),
            writes: if self.core().has_files { growth.groups() } else { 0 },
            buffer_bytes: self.core().options.touched(slots.used_len()) as u64,
            segments_made,
            segments_recycled,
            watchers: pipeline.acks().outstanding(),
            callback_panics: pipeline.acks().panics(),
            yields: pipeline.yields_so_far(),
            slowed_nanos: self.core().throttle.waited(),
            waits: pipeline.wait_times().map_or_else(Waits::default, |times| times.sums(slots.append_nanos())),
        }
    }

    /// Stops the log because of `cause`: all waiters get an error, and no group begins afterwards. Groups in flight may
    /// still become durable.
    pub fn poison(&self, cause: &Error) {
        self.core().pipeline.stop(cause);
    }

    /// Returns the error that all callers get if the log has stopped.
    #[inline]
    #[must_use]
    pub fn poisoned(&self) -> Option<Error> {
        self.progress().stop_error()
    }

    /// Runs one step of the flusher, for owners without threads.
    pub fn flush_step(&self) -> NextWake {
        self.core().pipeline.flush_step(0)
    }

    /// Runs one step of the preparer, for owners without threads.
    pub fn prepare_step(&self) -> NextWake {
        self.core().segments.prepare_step()
    }

    /// Makes all appended records durable and stops the threads of this log. Sessions stay usable; their later records
    /// are flushed only if a thread waits for them.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn close(&self) -> Result<()> {
        let forced = self.force(self.current());
        self.end_threads();
        forced
    }

    /// Stops the threads of this log, then calls the due callbacks in their place. The caller holds no lock that
    /// callbacks may need.
    pub fn end_threads(&self) {
        let daemons = std::mem::take(&mut *self.handle.daemons.lock());
        daemons.into_iter().for_each(Daemon::stop);
        self.acknowledge_all();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.handle.core
    }

    fn progress(&self) -> &Progress {
        self.core().pipeline.progress()
    }

    fn new((core, daemons): (Arc<Core>, Vec<Daemon>)) -> Self {
        let daemons = Mutex::new(LockRank::Leaf, daemons);
        let shared = BiasedOwner::new(core.clone()).hand_out();
        Self { handle: Arc::new(Handle { core, shared, archive: OnceLock::new(), daemons }) }
    }
}

/// Returns the shard of a ticket without a session. Stamps are multiples of eight in some buffers, so the low bits do
/// not count.
const fn spread(lsn: Lsn) -> usize {
    (lsn.0 ^ lsn.0 >> 3) as usize % SHARDS
}
