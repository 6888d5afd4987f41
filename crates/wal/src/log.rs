//! The log as its users hold it.

mod space;

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
use std::sync::Arc;

/// A log in use. Clones are handles of the same log; the last one dropped stops its threads without flushing, see
/// [`Log::close`].
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<Core>,
    /// For tickets without a session.
    shared: BiasedRef<Arc<Core>>,
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
    /// Memory of the buffer that may have been touched: its ring, or the lanes that sessions have had.
    pub buffer_bytes: u64,
    /// Segment files made.
    pub segments_made: u64,
    /// Segment files used again.
    pub segments_recycled: u64,
    /// Tickets whose futures or callbacks wait.
    pub watchers: usize,
    /// Callbacks and wakers of tickets that panicked.
    pub callback_panics: u64,
    /// Times that a thread which waited for durability has yielded its processor instead of parking at once.
    pub yields: u64,
    /// Nanoseconds that sessions were slowed down for because too much log stood behind the redo start, all together.
    pub slowed_nanos: u64,
    /// What waits for durability were spent on, if that is measured.
    pub waits: Waits,
}

impl Log {
    /// Number of the first group of a new log.
    pub const FIRST_GROUP: GroupNo = FIRST;

    /// Makes a new, empty log in `dir`, whose parent exists. What an earlier attempt left there without a control file
    /// is removed. All is durable when it returns, but for the name of `dir` itself.
    ///
    /// # Errors
    /// `Io` with `AlreadyExists` if there is a log, `InvalidOption`, or what the disk answered.
    pub fn create(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<()> {
        open::create(fs, dir, uuid, options)
    }

    /// Opens the log in `dir`: finds its end, makes what it accepts durable before it is believed, and begins a new
    /// incarnation. The caller holds the lock of the database.
    ///
    /// # Errors
    /// `LostLog`, `Foreign`, `Newer`, `Corrupted` or `Truncated` without having written anything; `InvalidOption`; or
    /// what the disk answered.
    pub fn open(fs: &Arc<dyn Fs>, dir: &Path, uuid: Uuid, options: &LogOptions) -> Result<(Self, Recovered)> {
        let (parts, recovered) = open::open(fs, dir, uuid, options)?;
        Ok((Self::new(parts), recovered))
    }

    /// A log without files, for measuring how fast sessions append: groups are sealed and dropped, without
    /// checksum and without a write. Everything else goes as usual; "durable" means dropped.
    ///
    /// # Errors
    /// `InvalidOption`, or what getting memory or threads failed with.
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

    /// Every record with an LSN up to here survives a crash.
    #[must_use]
    pub fn durable(&self) -> Lsn {
        self.progress().durable()
    }

    /// Every record with an LSN up to here is in a sealed group.
    #[must_use]
    pub fn sealed(&self) -> Lsn {
        self.progress().sealed()
    }

    /// Number of the next group to be sealed. A record appended after this call is in that group or a later one.
    #[must_use]
    pub fn next_group(&self) -> GroupNo {
        self.progress().next_group()
    }

    /// Upper bound of the LSNs handed out so far.
    #[must_use]
    pub fn current(&self) -> Lsn {
        self.core().buffer.current()
    }

    /// The clock of commits: at or above the LSN of every record with [`flags::COMMIT`](crate::flags::COMMIT) whose
    /// append happened before this call. A reader of a value sees what came before the append of every commit up to it.
    #[must_use]
    pub fn commit_clock(&self) -> Csn {
        self.core().buffer.commit_clock().csn()
    }

    /// Raises the clock of commits to `csn`, so that [`Log::durable`] can get there too, though no record has that
    /// stamp. False, and nothing has changed, in a log whose stamps are positions of records: a further commit record
    /// gets a stamp above all that were read from the clock before.
    #[must_use]
    pub fn raise_commit_clock(&self, csn: Csn) -> bool {
        self.core().buffer.raise_commit_clock(csn.lsn())
    }

    /// Largest payload of [`Session::append`] in bytes under this log's options.
    #[must_use]
    pub fn max_record(&self) -> usize {
        self.core().limits.max_record
    }

    /// Largest payload of [`Session::append_large`] in bytes: [`crate::MAX_LARGE`], but where the buffer takes whole
    /// records only.
    #[must_use]
    pub fn max_large(&self) -> usize {
        self.core().limits.max_large
    }

    /// Largest argument of [`Session::reserve`].
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

    /// The acknowledgement of a commit record at `record` with stamp `csn`, due when `target` is durable: the greater
    /// of `csn` and what the transaction has observed.
    pub fn ticket(&self, record: Lsn, csn: Csn, target: Lsn) -> CommitTicket {
        CommitTicket::new(self.handle.shared.clone(), spread(target), record, csn, target)
    }

    /// Calls `function` once when `lsn` is durable, or when the log has stopped: at once, on the thread that learns it.
    /// It comes before callbacks of tickets, which may wait for what it gives back, so it waits for no other thread. A
    /// panic in it goes no further.
    pub fn release_when_durable(&self, lsn: Lsn, function: impl FnOnce() + Send + 'static) {
        self.core().pipeline.release_when_durable(spread(lsn), lsn, Box::new(|_| function()));
    }

    /// Asks for `lsn` to be durable soon, without waiting: for commits whose tickets are waited for elsewhere, or not
    /// at all. Costs a store, a fence and a load; wakes a flusher only if it is parked and no thread writes. With
    /// [`LogOptions::max_unacked`] commits of the session that are not durable its next reservation waits.
    pub fn flush_soon(&self, session: &mut Session, lsn: Lsn) {
        session.flush_soon(lsn);
    }

    /// Calls the callbacks that are due of tickets of the session with this number (see [`Session::number`]): a
    /// committer spares the threads that write this work. Callbacks are code of users, so the caller holds nothing that
    /// they want.
    pub fn acknowledge(&self, session: usize) {
        self.core().pipeline.acks().acknowledge(session);
    }

    /// Calls the callbacks and wakers that are due of all tickets, as [`acknowledge`](Self::acknowledge) does.
    pub fn acknowledge_all(&self) {
        self.core().pipeline.acks().acknowledge_all();
    }

    /// Calls `function` once when the log has stopped, on a thread that holds nothing, as callbacks of tickets.
    pub fn on_stop(&self, function: impl FnOnce() + Send + 'static) {
        self.core().pipeline.acks().call_when_stopped(Box::new(function));
    }

    /// Follows this log from group `from` on, or from the oldest group if that is [`GroupNo::ZERO`]: yields what is
    /// durable, and can wait for more. For following it from another process see [`Follower::open`].
    ///
    /// # Errors
    /// `LogTruncated` if `from` has been given up, `InvalidOption` for a log without files, or what reading failed
    /// with.
    pub fn follow(&self, from: GroupNo) -> Result<Follower> {
        if !self.core().has_files {
            let (name, value, expected) = ("follow", "a log without files".into(), "a log in a directory".into());
            return Err(InvalidOption { name, value, expected }.into());
        }
        Follower::of(self.handle.core.clone(), from)
    }

    /// Gives up the log before group `before`: the caller has made sure that recovery starts there or later. Works in
    /// whole segments, and keeps what the older slot of the control file needs.
    ///
    /// # Errors
    /// What the disk answered. Nothing is lost; it may be tried again.
    pub fn truncate(&self, before: GroupNo) -> Result<()> {
        self.core().segments.truncate(before, self.progress().durable_group())
    }

    /// Bytes of all groups written since the log was opened, exactly. They stand still while nothing is appended.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.core().growth.written()
    }

    /// Counters since the log was opened.
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
            waits: pipeline.wait_times().map_or_else(Waits::default, |times| times.sums(slots.waited())),
        }
    }

    /// Stops the log because of `cause`: all waiters get an error, and no group is begun after. Those in flight may
    /// still become durable.
    pub fn poison(&self, cause: &Error) {
        self.core().pipeline.stop(cause);
    }

    /// The error that all callers get if the log has stopped.
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

    /// Makes everything appended so far durable and stops the threads of this log. Sessions stay usable; what they
    /// append from now on is flushed only where a thread waits for it.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn close(&self) -> Result<()> {
        let forced = self.force(self.current());
        self.end_threads();
        forced
    }

    /// Stops the threads of this log, then calls what they would have. The caller holds nothing that callbacks may
    /// want.
    pub fn end_threads(&self) {
        let daemons = std::mem::take(&mut *self.handle.daemons.lock());
        daemons.into_iter().for_each(Daemon::stop);
        self.acknowledge_all();
    }

    fn core(&self) -> &Core {
        &self.handle.core
    }

    fn progress(&self) -> &Progress {
        self.core().pipeline.progress()
    }

    fn new((core, daemons): (Arc<Core>, Vec<Daemon>)) -> Self {
        let daemons = Mutex::new(LockRank::Leaf, daemons);
        let shared = BiasedOwner::new(core.clone()).hand_out();
        Self { handle: Arc::new(Handle { core, shared, daemons }) }
    }
}

/// Spreads over the shards by what is at hand: stamps are multiples of eight in some buffers.
const fn spread(lsn: Lsn) -> usize {
    (lsn.0 ^ lsn.0 >> 3) as usize % SHARDS
}
