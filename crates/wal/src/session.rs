//! Sessions: the right to append.

mod pieces;
mod space;
mod undo;

use crate::dep::Dep;
use crate::format::record_size;
use crate::log::Shared;
use crate::record::{MAX_TAG, Record, flags};
use crate::ticket::CommitTicket;
use crate::undo_log::UndoLog;
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use foreshore_sync::spent::{self, Spent};
use pieces::Pieces;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

/// How long a session waits for ring space at most before it tries to lead again.
const SPACE_RETRY: Duration = Duration::from_millis(1);

/// Leave to append, leased from [`crate::Log::session`] and given back on drop. Not tied to a thread.
///
/// Appending is split in two, because an append happens under page latches: [`Session::reserve`] may wait or fail and comes
/// before the first latch; [`Session::append`] does neither.
pub struct Session {
    shared: Arc<Shared>,
    slot: usize,
    /// What the buffer knows it by: a lane of its own, or one that it has for this reservation.
    lane: Option<usize>,
    /// Bytes that may still be appended.
    credit: u64,
    /// Log space for the rollback of its transaction.
    undo_log: UndoLog,
    /// Bytes appended by ordinary work since it last paid for them to the throttle.
    owed: u64,
    /// What the newest reservation was for.
    purpose: Purpose,
    /// Whether ordinary reservations are for work that frees space.
    frees: bool,
    /// When its waits for log space are over, by the clock of the throttle, if they are limited.
    until: Option<Nanos>,
    /// Commits that the flusher was asked for and that are not known to be durable, ascending, and when, if that is measured.
    unacked: VecDeque<(Lsn, Option<Nanos>)>,
    /// Whether waits are measured.
    measures: bool,
    /// Whether log space is kept back for what it has in flight.
    is_counted: bool,
    /// Whether its slot says that it holds log space for the rollback of its transaction.
    shows_holds: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("slot", &self.slot).field("credit", &self.credit).finish_non_exhaustive()
    }
}

/// How far down into the prepared log space a reservation may reach (see [`crate::undo_log`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Not into what rollbacks and a restart need.
    Ordinary,
    /// Not into what is in flight.
    Rollback,
    /// To the end: each takes a group at most, which is kept back for its session.
    End,
}

impl Session {
    pub(crate) fn lease(shared: &Arc<Shared>) -> Result<Self> {
        let slot = shared.slots.lease()?;
        shared.expect_sessions(slot + 1);
        let measures = shared.pipeline.measured_from().is_some();
        let lane = shared.lanes.of_slot(slot);
        Ok(Self {
            shared: shared.clone(),
            slot,
            lane,
            credit: 0,
            undo_log: UndoLog::default(),
            owed: 0,
            purpose: Purpose::Ordinary,
            frees: false,
            until: None,
            unacked: VecDeque::new(),
            measures,
            is_counted: false,
            shows_holds: false,
        })
    }

    /// A small number that no other session has at the same time.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.slot
    }

    /// Bytes that a record of `payload_len` bytes of payload takes of a reservation.
    #[must_use]
    pub const fn cost(payload_len: usize) -> usize {
        record_size(payload_len)
    }

    /// Makes sure that records of together `max_bytes` (see [`Session::cost`]) can be appended. Held until used,
    /// until [`Session::release`] or drop; a second reservation includes what is left of the first. May write a group to
    /// make room, or park: also while too much log stands behind the redo start, and, where the disk is full, for log to be
    /// given up. Call it without latches.
    ///
    /// # Errors
    /// `DiskFull` if prepared log space is short, none can be made and none is given up; `LogSpace` if the time for waits is over (see
    /// [`Session::limit_waits`]); `Poisoned`; what making log space failed with.
    ///
    /// # Panics
    /// If `max_bytes` is above [`crate::Log::max_reserve`].
    // Part of the caller: what it mostly does is a few comparisons, less than to pass its result through memory.
    #[inline(always)]
    pub fn reserve(&mut self, max_bytes: usize) -> Result<()> {
        // What was reserved before has gone back by the time of the refusal, if writers are slowed.
        let held = self.credit as usize;
        match self.admit(max_bytes, Purpose::Ordinary) {
            Err(Error::DiskFull { .. }) => self.reserve_after_wait(max_bytes.max(held)),
            admitted => admitted,
        }
    }

    /// As [`Session::reserve`], for compensations and checkpoints: may use the log space that is kept back for them.
    ///
    /// # Errors
    /// `DiskFull` if no more is prepared than what is in flight may take, and none can be made: nothing has changed,
    /// and it may be tried again. `Poisoned`.
    ///
    /// # Panics
    /// As [`Session::reserve`].
    pub fn reserve_rollback(&mut self, max_bytes: usize) -> Result<()> {
        self.admit(max_bytes, Purpose::Rollback)
    }

    /// As [`Session::reserve`], for the record that ends a transaction: a commit, an end, a decision. It is never
    /// refused.
    ///
    /// # Errors
    /// `Poisoned`.
    ///
    /// # Panics
    /// As [`Session::reserve`].
    pub fn reserve_end(&mut self, max_bytes: usize) -> Result<()> {
        self.admit(max_bytes, Purpose::End)
    }

    #[inline(always)]
    fn admit(&mut self, max_bytes: usize, purpose: Purpose) -> Result<()> {
        if let Some(error) = self.shared.pipeline.poison_error() {
            return Err(error);
        }
        if purpose == Purpose::Ordinary && self.unacked.len() >= self.shared.max_unacked {
            spent::during(Spent::LogWait, || self.measured(Self::hold_back))?;
        }
        self.purpose = purpose;
        let mut need = max_bytes as u64;
        if purpose == Purpose::Ordinary && need > 0 {
            if self.owed > 0 {
                need = self.pay(need)?;
            }
            // Credit is no space on disk: a session may turn each record into a group of its own.
            self.shared.admit_space(self.frees)?;
        }
        if purpose == Purpose::Rollback && need > 0 {
            self.shared.admit_rollback()?;
        }
        if need <= self.credit {
            return Ok(());
        }
        assert!(max_bytes <= self.shared.max_reserve, "a reservation of {max_bytes} bytes");
        // What is taken beyond the need stays small enough for all idle sessions together.
        let more = need.next_multiple_of(8).max(self.shared.quantum) - self.credit;
        spent::during(Spent::LogWait, || self.measured(|session| session.refill(more, purpose)))
    }

    /// Pays for what was appended, waiting if too much log stands behind the redo start. Returns what to reserve: `need`, or what
    /// was reserved before, which a wait gives back.
    #[inline]
    fn pay(&mut self, need: u64) -> Result<u64> {
        let owed = std::mem::take(&mut self.owed);
        if self.shared.is_slowed() { self.slow_down(owed, need) } else { Ok(need) }
    }

    /// Does `work`, and counts its time as spent before a record is in the buffer, if that is measured.
    fn measured<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let from = self.shared.pipeline.measured_from();
        let result = work(self);
        if let Some(from) = from {
            self.shared.slots.get(self.slot).count_wait(self.shared.pipeline.nanos_since(from));
        }
        result
    }

    fn refill(&mut self, more: u64, purpose: Purpose) -> Result<()> {
        let (shared, frees) = (&*self.shared, self.frees);
        if !self.is_counted {
            shared.count_session(self.slot + 1, (purpose == Purpose::Ordinary).then_some(frees))?;
            self.is_counted = true;
        }
        let lane = match self.lane {
            Some(lane) => lane,
            None => {
                let check = || shared.pipeline.poison_error().map_or(Ok(()), Err);
                shared.lanes.take(check, || self.time_to_wait(purpose))?
            }
        };
        self.lane = Some(lane);
        if shared.drops_groups() && shared.buffer.is_short(lane) {
            // WAIT: help - a copy, and the next half of the lane is free when this one is full.
            shared.pipeline.lead_for_space(lane);
        }
        let mut is_first = true;
        let admitted = shared.pipeline.make_room(lane, Some(SPACE_RETRY), || {
            if purpose == Purpose::Ordinary {
                shared.admit_space(frees)?;
            }
            let found = shared.buffer.admit(lane, more);
            // Before the second look the session has led, if it could: that is no wait.
            if found.is_none() && !mem::take(&mut is_first) {
                self.time_to_wait(purpose)?;
            }
            Ok(found)
        });
        if admitted.is_err() && self.credit == 0 && !mutant("lanes: one that is refused keeps its lane") {
            // Nothing ends here, and others wait for the lane.
            self.leave();
        }
        self.credit += admitted?;
        Ok(())
    }

    /// Gives back what is reserved and not needed, but for a small share that saves the next reservation a trip. A session
    /// that goes idle or waits for a lock must not sit on a reservation: the ring is shared, and so may be its lane.
    pub fn release(&mut self) {
        match self.shared.lanes.of_slot(self.slot) {
            Some(_) => self.give_back(self.shared.quantum),
            None => self.leave(),
        }
    }

    fn give_back(&mut self, keep: u64) {
        if self.credit > keep {
            let lane = self.lane.expect("credit is in a lane");
            if self.shared.buffer.give_back(lane, self.credit - keep) {
                self.shared.pipeline.space().notify_all();
            }
            self.credit = keep;
        }
    }

    /// Gives back everything, and the lane if that is a shared one.
    fn leave(&mut self) {
        self.give_back(0);
        if self.shared.lanes.of_slot(self.slot).is_none()
            && let Some(lane) = self.lane.take()
        {
            self.shared.lanes.leave(lane);
        }
    }

    /// Appends a record and returns its LSN, greater than `dep`. Never waits and never fails.
    ///
    /// # Panics
    /// If the record was not reserved for, is larger than [`crate::Log::max_record`], or has bits outside of tag and flags; if
    /// `dep` is a stamp of another log, which lies ahead of this one: then the record is in. In `lanes`, if it
    /// is beyond what they can count on from: then it is not.
    // A record that goes through memory on its way is read back in other pieces than it was written in, which takes longer
    // than its checksum.
    #[inline(always)]
    pub fn append(&mut self, record: Record<'_>, dep: Dep) -> Lsn {
        assert!(record.flags & !flags::CALLER == 0, "flags {:#x} are not the caller's", record.flags);
        self.append_any(record, dep.lsn())
    }

    #[inline(always)]
    fn append_any(&mut self, record: Record<'_>, dep: Lsn) -> Lsn {
        assert!(record.tag <= MAX_TAG, "tag {:#x} has more than 56 bits", record.tag);
        let payload = record.payload_len();
        assert!(payload <= self.shared.max_record, "a record of {payload} bytes");
        let size = record_size(payload);
        assert!(size as u64 <= self.credit, "a record of {size} bytes, {} reserved", self.credit);
        self.credit -= size as u64;
        if self.purpose == Purpose::Ordinary {
            self.owed += size as u64;
        }
        let lane = self.lane.expect("credit is in a lane");
        let lsn = match self.measures {
            false => spent::during(Spent::LogInsert, || self.shared.buffer.append(lane, &record, dep)),
            true => self.measured(|session| {
                spent::during(Spent::LogInsert, || session.shared.buffer.append(lane, &record, dep))
            }),
        };
        self.shared.slots.get(self.slot).count(size);
        lsn
    }

    /// Appends a record of any size up to [`crate::Log::max_large`] and returns its LSN, that of its last fragment. Reserves by
    /// itself and may wait between fragments: call it without latches.
    ///
    /// # Errors
    /// As [`Session::reserve`], and `ValueTooLarge`. A record that fails half-way was never appended.
    ///
    /// # Panics
    /// If tag or flags have bits outside of theirs.
    pub fn append_large(&mut self, record: Record<'_>, dep: Dep) -> Result<Lsn> {
        self.append_large_after(record, dep, || ())
    }

    /// As [`Session::append_large`], for a caller that notes from which group on it needs the log. Calls `before` once, between the
    /// reservation for the first append and that append, which nothing delays or refuses any more.
    ///
    /// # Errors
    /// As [`Session::append_large`].
    pub fn append_large_after(&mut self, record: Record<'_>, dep: Dep, before: impl FnOnce()) -> Result<Lsn> {
        let total = record.payload_len();
        let max = self.shared.max_large;
        if total > max {
            return Err(Error::ValueTooLarge { len: total, max });
        }
        if total <= self.shared.max_record {
            self.reserve(Self::cost(total))?;
            before();
            return Ok(self.append(record, dep));
        }
        assert!(record.flags & !flags::CALLER == 0, "flags {:#x} are not the caller's", record.flags);
        let mut pieces = Pieces::of(record.parts);
        let (mut first, mut lsn, mut left, mut before) = (None::<Lsn>, dep.lsn(), total, Some(before));
        while left > 0 {
            let len = left.min(self.shared.max_record - 8);
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
            // Only the last fragment speaks for the record.
            let caller = if left == 0 { record.flags } else { 0 };
            lsn = self.append_any(Record { tag: record.tag, flags: caller | kind, parts: &parts }, lsn);
            first = first.or(Some(lsn));
        }
        Ok(lsn)
    }

    /// As [`crate::Log::ticket`], for a commit of this session: [`crate::Log::acknowledge`] with its number calls the ticket's
    /// callback, too.
    pub fn ticket(&self, record: Lsn, csn: Csn, target: Lsn) -> CommitTicket {
        CommitTicket::new(self.shared.clone(), self.slot, record, csn, target)
    }

    pub(crate) fn flush_soon(&mut self, lsn: Lsn) {
        self.shared.check_target(lsn);
        let asked = self.shared.pipeline.measured_from();
        self.shared.pipeline.flush_soon(self.slot, lsn);
        self.forget_acked();
        if self.unacked.back().is_none_or(|&(last, _)| last < lsn) && lsn > self.shared.pipeline.durable() {
            self.unacked.push_back((lsn, asked));
        }
    }

    /// Drops from the list of commits on their way those that have arrived.
    fn forget_acked(&mut self) {
        let durable = self.shared.pipeline.durable();
        while let Some(&(lsn, asked)) = self.unacked.front().filter(|(lsn, _)| *lsn <= durable) {
            self.shared.pipeline.count_wait(lsn, asked, false);
            self.unacked.pop_front();
        }
    }

    /// Waits while too many commits of this session are on their way.
    fn hold_back(&mut self) -> Result<()> {
        while self.unacked.len() >= self.shared.max_unacked {
            let (oldest, _) = self.unacked[self.unacked.len() - self.shared.max_unacked];
            // WAIT: help - or park, as every wait for durability.
            self.shared.pipeline.force(oldest)?;
            self.forget_acked();
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.leave();
        self.end_undo_log();
        self.undo_log.give_back(&self.shared, 0);
        self.shared.slots.release(self.slot);
    }
}
