//! Waits of sessions for log space: after the disk has refused it, and while the log is over its budget. They come
//! before any latch. The session first returns its credit and its lane, which other sessions need.

use super::{Purpose, Session};
use crate::requests::SpaceWait;
use foreshore_base::{Error, Result};
use foreshore_sync::pause;
use foreshore_sync::spent::{self, Spent};
use std::time::Duration;

impl Session {
    /// Repeats [`Session::reserve`] when the disk has refused space. `need` includes what was reserved before.
    #[cold]
    pub(super) fn reserve_after_wait(&mut self, need: usize) -> Result<()> {
        self.repeat_after_wait(|session| session.admit(need, Purpose::Ordinary))
    }

    /// Repeats a refused `reserve` each time that log was truncated or another session has returned space. First
    /// returns the credit, and the space that was granted and is not charged.
    #[cold]
    pub(super) fn repeat_after_wait(&mut self, mut reserve: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (wait, core, slot) = (SpaceWait::within(self.time_left()), self.core.clone(), self.slot);
        self.undo_log.give_back(&core.segments, 0);
        core.segments.take_from_idle();
        loop {
            self.show_holds();
            // Registered before the request: a transaction that ends after it may have kept the log from being
            // truncated.
            let registered = core.segments.returns().register();
            let freed = self.wait_for_space(&wait)?;
            match reserve(self) {
                // Other sessions may have taken the space.
                Err(Error::DiskFull { .. }) if freed => {}
                Err(error @ Error::DiskFull { .. }) => {
                    self.release_all();
                    let holds = self.show_holds();
                    let holders = || core.slots.used().filter(|slot| slot.holds_space()).count();
                    let work = || core.slots.records_of_others(slot);
                    // WAIT: park - see `returns`.
                    if !spent::during(Spent::LogWait, || registered.wait(holds, holders, work, wait.time_left())) {
                        return Err(error);
                    }
                }
                reserved => {
                    self.show_holds();
                    // Other sessions may have parked because this one was trying.
                    if reserved.is_err() {
                        registered.give_up();
                    }
                    return reserved;
                }
            }
        }
    }

    /// Publishes whether the transaction holds log space for its rollback, and returns it.
    pub(super) fn show_holds(&self) -> bool {
        let holds = self.undo_log.granted() > 0;
        self.own_slot().note_holds(holds);
        holds
    }

    /// Requests truncation of the log because the disk has refused space, for the log or another file. Waits for the
    /// answer and returns whether log was truncated. All calls with one `wait` together wait for a limited time. Credit
    /// is returned first. Call it without latches.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn wait_for_space(&mut self, wait: &SpaceWait) -> Result<bool> {
        // The server of requests may need a lane, and free space in it.
        self.release_all();
        let progress = self.core.pipeline.progress();
        let freed = spent::during(Spent::LogWait, || self.core.requests.request(wait, || progress.is_stopped()));
        progress.stop_error().map_or(Ok(freed), Err)
    }

    /// Limits the later waits for log space to `most` in all; `None` removes the limit. It does not apply to the log of
    /// a rollback or of the end of a transaction.
    pub fn limit_waits(&mut self, most: Option<Duration>) {
        self.until = most.map(|most| self.core.throttle.now() + most);
    }

    /// Returns the time that is left for waits for log space, if they are limited.
    fn time_left(&self) -> Option<Duration> {
        self.until.map(|until| until.since(self.core.throttle.now()))
    }

    /// Whether the time for waits for log space is over.
    pub(super) fn is_over(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// Returns the time that is left for waits of a reservation for `purpose`, if they are limited.
    ///
    /// # Errors
    /// `LogSpace` when the time is over.
    pub(super) fn time_to_wait(&self, purpose: Purpose) -> Result<Option<Duration>> {
        let left = self.time_left().filter(|_| purpose == Purpose::Ordinary);
        if left.is_some_and(|left| left.is_zero()) { Err(Error::LogSpace) } else { Ok(left) }
    }

    /// Sets whether later reservations are for work that frees space. On a full disk such work may use the margin of
    /// prepared log, too. Returns the former setting.
    pub fn set_frees(&mut self, frees: bool) -> bool {
        std::mem::replace(&mut self.frees, frees)
    }

    /// Waits until the throttle grants `unpaid` bytes. Returns the bytes to reserve then: `need`, or the earlier
    /// reservation.
    #[cold]
    pub(super) fn slow_down(&mut self, unpaid: u64, need: u64) -> Result<u64> {
        let need = need.max(self.credit);
        // The cleaner and the checkpointer need it to move the redo start.
        self.release_all();
        let core = self.core.clone();
        pause::point("wal: a session is slowed");
        let stop_error = || core.pipeline.progress().stop_error();
        let ends = || stop_error().is_some() || self.is_over();
        let is_granted = spent::during(Spent::LogWait, || core.throttle.pay(unpaid, || core.growth.written(), ends));
        if !is_granted {
            // Bytes that were not granted stay in the queue, so the next reservation waits for them, too.
            self.unpaid = self.unpaid.max(1);
        }
        stop_error().map_or(if is_granted { Ok(need) } else { Err(Error::LogSpace) }, Err)
    }
}
