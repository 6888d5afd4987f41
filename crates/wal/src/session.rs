//! Sessions: the right to append.

mod commits;
mod pieces;
mod space;
mod undo;

use crate::dep::Dep;
use crate::format::record_size;
use crate::log_core::Core;
use crate::pipeline::Calls;
use crate::record::{MAX_TAG, Record, flags};
use crate::slots::Slot;
use crate::ticket::CommitTicket;
use crate::undo_log::UndoLog;
use commits::Commits;
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::spent::{self, Spent};
use foreshore_sync::{BiasedOwner, Nanos};
use pieces::Pieces;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

/// The longest wait of a session for free space in the buffer before it tries to lead again.
const SPACE_RETRY: Duration = Duration::from_millis(1);

/// The right to append, leased from [`crate::Log::session`] and returned on drop. It is not tied to a thread.
///
/// Appending has two steps, because an append happens under page latches. [`Session::reserve`] may wait or fail, and
/// comes before the first latch. [`Session::append`] neither waits nor fails.
pub struct Session {
    core: Arc<Core>,
    /// The owner whose references tickets hold.
    owner: BiasedOwner<Arc<Core>>,
    slot: usize,
    /// Its lane of the buffer: its own, or a shared one for this reservation.
    lane: Option<usize>,
    /// Bytes that may still be appended.
    credit: u64,
    /// Log space for the rollback of its transaction.
    undo_log: UndoLog,
    /// Bytes appended by ordinary work that the throttle has not charged yet.
    unpaid: u64,
    /// The purpose of the newest reservation.
    purpose: Purpose,
    /// Whether ordinary reservations are for work that frees space.
    frees: bool,
    /// The end of its waits for log space, by the clock of the throttle, if they are limited.
    until: Option<Nanos>,
    /// Commits that were requested from the flusher.
    commits: Commits,
    /// Whether log space is kept back for its records in flight.
    is_counted: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("slot", &self.slot).field("credit", &self.credit).finish_non_exhaustive()
    }
}

/// The purpose of a reservation. It decides which parts of the prepared log space the reservation may use
/// ([`crate::undo_log`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Leaves the space for rollbacks and a restart.
    Ordinary,
    /// Leaves the space for records in flight.
    Rollback,
    /// May use all: it needs one group at most, which is kept back for its session.
    End,
}

impl Session {
    pub(crate) fn lease(core: &Arc<Core>) -> Result<Self> {
        let slot = core.slots.lease()?;
        core.segments.expect_sessions(slot + 1);
        Ok(Self {
            core: core.clone(),
            owner: BiasedOwner::new(core.clone()),
            slot,
            lane: core.lanes.of_slot(slot),
            credit: 0,
            undo_log: UndoLog::default(),
            unpaid: 0,
            purpose: Purpose::Ordinary,
            frees: false,
            until: None,
            commits: Commits::default(),
            is_counted: false,
        })
    }

    /// Returns a small number that no other session has at the same time.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.slot
    }

    /// Returns the bytes of a reservation that a record with `payload_len` bytes of payload uses.
    #[must_use]
    pub const fn cost(payload_len: usize) -> usize {
        record_size(payload_len)
    }

    /// Reserves space for records of `max_bytes` in all (see [`Session::cost`]). The reservation ends when it is used,
    /// at [`Session::release`], or on drop. A second reservation includes the rest of the first.
    ///
    /// Call it without latches: it may write a group to free space in the buffer, and it may park. It parks for space
    /// in the buffer, while too much log stands behind the redo start, and on a full disk until log is truncated.
    ///
    /// # Errors
    /// `DiskFull` if prepared log space is short, none can be made and no log is truncated. `LogSpace` if the time for
    /// waits is over (see [`Session::limit_waits`]). `Poisoned`; or the error of making log space.
    ///
    /// # Panics
    /// If `max_bytes` is above [`crate::Log::max_reserve`].
    // Inlined: the common case is a few comparisons, which cost less than passing the result through memory.
    #[inline(always)]
    pub fn reserve(&mut self, max_bytes: usize) -> Result<()> {
        // If writers are slowed down, the earlier reservation has been returned by the time of a refusal.
        let held = self.credit as usize;
        match self.admit(max_bytes, Purpose::Ordinary) {
            Err(Error::DiskFull { .. }) => self.reserve_after_wait(max_bytes.max(held)),
            admitted => admitted,
        }
    }

    /// Reserves like [`Session::reserve`], for compensations and checkpoints. They may use the log space that is kept
    /// back for them.
    ///
    /// # Errors
    /// `DiskFull` if the prepared space only suffices for records in flight, and no more can be made. Nothing has
    /// changed then, and the caller may try again. `Poisoned`.
    ///
    /// # Panics
    /// Like [`Session::reserve`].
    pub fn reserve_rollback(&mut self, max_bytes: usize) -> Result<()> {
        self.admit(max_bytes, Purpose::Rollback)
    }

    /// Reserves like [`Session::reserve`], for the record that ends a transaction: a commit, an end, a decision. A full
    /// disk never refuses it.
    ///
    /// # Errors
    /// `Poisoned`.
    ///
    /// # Panics
    /// Like [`Session::reserve`].
    pub fn reserve_end(&mut self, max_bytes: usize) -> Result<()> {
        self.admit(max_bytes, Purpose::End)
    }

    #[inline(always)]
    fn admit(&mut self, max_bytes: usize, purpose: Purpose) -> Result<()> {
        if let Some(error) = self.core.pipeline.progress().stop_error() {
            return Err(error);
        }
        if purpose == Purpose::Ordinary && self.commits.len() >= self.core.limits.max_unacked {
            spent::during(Spent::LogWait, || self.measured(Self::wait_for_commits))?;
        }
        self.purpose = purpose;
        let mut need = max_bytes as u64;
        if purpose == Purpose::Ordinary && need > 0 {
            let unpaid = mem::take(&mut self.unpaid);
            if unpaid > 0 && self.core.throttle.slows(self.core.growth.written()) {
                need = self.slow_down(unpaid, need)?;
            }
            // Credit is no space on disk: each record of a session may become a group of its own.
            self.core.segments.admit(self.frees)?;
        }
        if purpose == Purpose::Rollback && need > 0 {
            self.core.segments.admit_rollback()?;
        }
        if need <= self.credit {
            return Ok(());
        }
        assert!(max_bytes <= self.core.limits.max_reserve, "a reservation of {max_bytes} bytes");
        // The extra credit is small enough for all idle sessions together.
        let more = need.next_multiple_of(8).max(self.core.limits.credit_quantum) - self.credit;
        spent::during(Spent::LogWait, || self.measured(|session| session.refill(more, purpose)))
    }

    /// Does `work`, and counts its time as spent before the append, if waits are measured.
    fn measured<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let from = self.core.measured_now();
        let result = work(self);
        if let (Some(times), Some(from)) = (self.core.pipeline.wait_times(), from) {
            self.own_slot().count_append(times.now().0.saturating_sub(from.0));
        }
        result
    }

    fn own_slot(&self) -> &Slot {
        self.core.slots.get(self.slot)
    }

    fn refill(&mut self, more: u64, purpose: Purpose) -> Result<()> {
        let (core, frees) = (&*self.core, self.frees);
        if !self.is_counted {
            core.segments.count_session(self.slot + 1, (purpose == Purpose::Ordinary).then_some(frees))?;
            self.is_counted = true;
        }
        let lane = match self.lane {
            Some(lane) => lane,
            None => {
                let check = || core.pipeline.progress().stop_error().map_or(Ok(()), Err);
                core.lanes.take(check, || self.time_to_wait(purpose))?
            }
        };
        self.lane = Some(lane);
        if !core.has_files && core.buffer.is_short(lane) {
            // WAIT: help - copies records, and writes no group. The next half of the lane is free when this one is
            // full.
            core.pipeline.lead_for_space(lane);
        }
        let mut is_first = true;
        let admitted = core.pipeline.wait_for_space(lane, Some(SPACE_RETRY), || {
            if purpose == Purpose::Ordinary {
                core.segments.admit(frees)?;
            }
            let found = core.buffer.admit(lane, more);
            // The second attempt comes right after the session has led, if it could, and without a wait.
            if found.is_none() && !mem::take(&mut is_first) {
                self.time_to_wait(purpose)?;
            }
            Ok(found)
        });
        if admitted.is_err() && self.credit == 0 && !mutant("lanes: a refused session keeps its lane") {
            // The transaction goes on, and other sessions wait for the lane.
            self.release_all();
        }
        self.credit += admitted?;
        Ok(())
    }

    /// Returns the unused reservation, except for a small credit that makes the next reservation cheap. A session that
    /// goes idle or waits for a lock must not keep a reservation: the ring is shared, and so may be its lane.
    pub fn release(&mut self) {
        match self.core.lanes.of_slot(self.slot) {
            Some(_) => self.release_credit(self.core.limits.credit_quantum),
            None => self.release_all(),
        }
    }

    fn release_credit(&mut self, keep: u64) {
        if self.credit > keep {
            let lane = self.lane.expect("credit is in a lane");
            if self.core.buffer.give_back(lane, self.credit - keep) {
                self.core.pipeline.space().notify_all();
            }
            self.credit = keep;
        }
    }

    /// Returns the whole reservation, and the lane if it is a shared one.
    fn release_all(&mut self) {
        self.release_credit(0);
        if self.core.lanes.of_slot(self.slot).is_none()
            && let Some(lane) = self.lane.take()
        {
            self.core.lanes.release(lane);
        }
    }

    /// Appends a record and returns its LSN, greater than `dep`. Never waits and never fails.
    ///
    /// # Panics
    /// - If the record was not reserved for, is larger than [`crate::Log::max_record`], or has bits outside of tag and
    ///   flags.
    /// - If `dep` is a stamp of another log that is ahead of this one. The record is appended then.
    /// - In `lanes`, if `dep` is beyond the range of stamps. The record is not appended then.
    // Inlined, so that the record does not go through memory: reading it back in other pieces than it was written in
    // takes longer than its checksum.
    #[inline(always)]
    pub fn append(&mut self, record: Record<'_>, dep: Dep) -> Lsn {
        assert!(record.flags & !flags::CALLER == 0, "flags {:#x} are not the caller's", record.flags);
        self.append_any(record, dep.lsn())
    }

    #[inline(always)]
    fn append_any(&mut self, record: Record<'_>, dep: Lsn) -> Lsn {
        assert!(record.tag <= MAX_TAG, "tag {:#x} has more than 56 bits", record.tag);
        let payload = record.payload_len();
        assert!(payload <= self.core.limits.max_record, "a record of {payload} bytes");
        let size = record_size(payload);
        assert!(size as u64 <= self.credit, "a record of {size} bytes, {} reserved", self.credit);
        self.credit -= size as u64;
        if self.purpose == Purpose::Ordinary {
            self.unpaid += size as u64;
        }
        let lane = self.lane.expect("credit is in a lane");
        let lsn = match self.core.pipeline.wait_times() {
            None => spent::during(Spent::LogInsert, || self.core.buffer.append(lane, &record, dep)),
            Some(_) => self
                .measured(|session| spent::during(Spent::LogInsert, || session.core.buffer.append(lane, &record, dep))),
        };
        self.own_slot().count_record(size);
        lsn
    }

    /// Appends a record of any size up to [`crate::Log::max_large`] and returns the LSN of its last fragment, which is
    /// its own. Reserves by itself and may wait between fragments, so call it without latches.
    ///
    /// # Errors
    /// Those of [`Session::reserve`], and `ValueTooLarge`. A record that fails half-way does not count.
    ///
    /// # Panics
    /// If tag or flags have bits outside of their ranges.
    pub fn append_large(&mut self, record: Record<'_>, dep: Dep) -> Result<Lsn> {
        self.append_large_after(record, dep, || ())
    }

    /// Appends like [`Session::append_large`], for a caller that notes the first group that it needs. Calls `before`
    /// once, after the reservation for the first fragment and before its append, which can no longer wait or fail.
    ///
    /// # Errors
    /// Those of [`Session::append_large`].
    pub fn append_large_after(&mut self, record: Record<'_>, dep: Dep, before: impl FnOnce()) -> Result<Lsn> {
        let total = record.payload_len();
        let max = self.core.limits.max_large;
        if total > max {
            return Err(Error::ValueTooLarge { table: None, len: total, max });
        }
        if total <= self.core.limits.max_record {
            self.reserve(Self::cost(total))?;
            before();
            return Ok(self.append(record, dep));
        }
        assert!(record.flags & !flags::CALLER == 0, "flags {:#x} are not the caller's", record.flags);
        let mut pieces = Pieces::of(record.parts);
        let (mut first, mut lsn, mut left, mut before) = (None::<Lsn>, dep.lsn(), total, Some(before));
        while left > 0 {
            let len = left.min(self.core.limits.max_record - 8);
            left -= len;
            let (kind, link) = match first {
                None => (flags::FIRST, total as u64),
                Some(first) if left > 0 => (flags::MIDDLE, first.0),
                Some(first) => (flags::LAST, first.0),
            };
            let link = link.to_le_bytes();
            let parts: Vec<&[u8]> = std::iter::once(&link[..]).chain(pieces.take(len)).collect();
            self.reserve(Self::cost(8 + len))?;
            before.take().into_iter().for_each(|before| before());
            // Only the last fragment has the flags of the record.
            let caller = if left == 0 { record.flags } else { 0 };
            lsn = self.append_any(Record { tag: record.tag, flags: caller | kind, parts: &parts }, lsn);
            first = first.or(Some(lsn));
        }
        Ok(lsn)
    }

    /// Returns the ticket of a commit of this session, like [`crate::Log::ticket`]. [`crate::Log::acknowledge`] with
    /// the number of the session also calls the callback of this ticket.
    pub fn ticket(&mut self, record: Lsn, csn: Csn, target: Lsn) -> CommitTicket {
        CommitTicket::new(self.owner.hand_out(), self.slot, record, csn, target)
    }

    pub(crate) fn flush_soon(&mut self, lsn: Lsn) {
        self.core.check_target(lsn);
        let asked = self.core.measured_now();
        self.core.pipeline.flush_soon(self.slot, lsn);
        let durable = self.forget_durable();
        if lsn > durable {
            self.commits.add(lsn, asked);
        }
    }

    /// Removes the durable commits from the list, and returns the durable LSN.
    fn forget_durable(&mut self) -> Lsn {
        let durable = self.core.pipeline.progress().durable();
        let times = self.core.pipeline.wait_times();
        self.commits.remove_upto(durable, |lsn, asked| {
            times.into_iter().for_each(|times| times.count(lsn, asked, None));
        });
        durable
    }

    /// Waits while too many commits of this session are not durable.
    fn wait_for_commits(&mut self) -> Result<()> {
        while let Some(oldest) = self.commits.oldest_of(self.core.limits.max_unacked) {
            // WAIT: help - or park, like every wait for durability.
            self.core.pipeline.force(oldest, Calls::Elsewhere)?;
            self.forget_durable();
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.release_all();
        self.end_undo_log();
        self.undo_log.give_back(&self.core.segments, 0);
        self.core.slots.release(self.slot);
    }
}
