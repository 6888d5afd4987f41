//! Waits of sessions for the disk: for space that it has refused, and for the log to keep to its budget. Before any latch, and with
//! nothing that others need: ring space and lane go back first.

use super::{Purpose, Session};
use crate::requests::SpaceWait;
use crate::returns::Registered;
use foreshore_base::{Error, Result};
use foreshore_sync::pause;
use foreshore_sync::spent::{self, Spent};
use std::time::Duration;

impl Session {
    /// [`Session::reserve`] when the disk has refused space. `need`: what was reserved before is included.
    #[cold]
    pub(super) fn reserve_after_wait(&mut self, need: usize) -> Result<()> {
        self.repeat_after_wait(|session| session.admit(need, Purpose::Ordinary))
    }

    /// Repeats `reserve`, which the disk has refused space, each time that log was given up, or that another session gave space back.
    /// Ring space goes back first, and what was granted and is not charged.
    #[cold]
    pub(super) fn repeat_after_wait(&mut self, mut reserve: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (wait, shared, slot) = (SpaceWait::within(self.time_left()), self.shared.clone(), self.slot);
        self.undo_log.give_back(&shared, 0);
        shared.take_from_idle();
        loop {
            self.show_holds();
            // Before the request, too: a transaction that ends behind it may have kept the log.
            let registered = shared.returns().map(|returns| returns.register());
            let freed = self.wait_for_space(&wait)?;
            match reserve(self) {
                // Other sessions may have been faster.
                Err(Error::DiskFull { .. }) if freed => {}
                Err(error @ Error::DiskFull { .. }) => {
                    self.leave();
                    let holds = self.show_holds();
                    let holders = || shared.slots.used().filter(|slot| slot.holds_space()).count();
                    let work = || shared.slots.records_but(slot);
                    // WAIT: park - see `returns`.
                    let comes = |waiter: Registered<'_>| waiter.wait(holds, holders, work, wait.left());
                    if !registered.is_some_and(|waiter| spent::during(Spent::LogWait, || comes(waiter))) {
                        return Err(error);
                    }
                }
                reserved => {
                    self.show_holds();
                    // Others may have parked because this session was trying.
                    if let (Err(_), Some(waiter)) = (&reserved, registered) {
                        waiter.give_up();
                    }
                    return reserved;
                }
            }
        }
    }

    /// Shows whether the transaction holds log space for its rollback, and returns it.
    fn show_holds(&mut self) -> bool {
        self.shows_holds = self.undo_log.granted() > 0;
        self.shared.slots.get(self.slot).note_holds(self.shows_holds);
        self.shows_holds
    }

    /// Asks for log to be given up because the disk has refused space, for the log or another file, and waits for the answer:
    /// whether some was. All calls with one `wait` together wait for a bounded time. What is reserved goes back first. Call it
    /// without latches.
    ///
    /// # Errors
    /// `Poisoned`.
    pub fn wait_for_space(&mut self, wait: &SpaceWait) -> Result<bool> {
        // The server of requests may need a lane, and room in the buffer.
        self.leave();
        let shared = &*self.shared;
        let freed =
            spent::during(Spent::LogWait, || shared.requests.ask(wait, || shared.pipeline.poison_error().is_some()));
        shared.pipeline.poison_error().map_or(Ok(freed), Err)
    }

    /// Limits the waits for log space from now on to `most` together; `None` for no limit. Not those for the log of a rollback or an end.
    pub fn limit_waits(&mut self, most: Option<Duration>) {
        self.until = most.map(|most| self.shared.throttle.now() + most);
    }

    /// What is left for waits for log space, if that is limited.
    fn time_left(&self) -> Option<Duration> {
        self.until.map(|until| until.since(self.shared.throttle.now()))
    }

    /// Whether the time for waits for log space is over.
    pub(super) fn is_over(&self) -> bool {
        self.time_left().is_some_and(|left| left.is_zero())
    }

    /// What is left for waits for log space of a reservation for `purpose`, if that is limited.
    ///
    /// # Errors
    /// `LogSpace` when the time is over.
    pub(super) fn time_to_wait(&self, purpose: Purpose) -> Result<Option<Duration>> {
        let left = self.time_left().filter(|_| purpose == Purpose::Ordinary);
        if left.is_some_and(|left| left.is_zero()) { Err(Error::LogSpace) } else { Ok(left) }
    }

    /// Sets whether reservations from now on are for work that frees space. On a full disk such work may use the margin of
    /// prepared log, too. Returns the former setting.
    pub fn set_frees(&mut self, frees: bool) -> bool {
        std::mem::replace(&mut self.frees, frees)
    }

    /// Pays `owed` bytes to the throttle. Returns what to reserve then: `need`, or what was reserved before.
    #[cold]
    pub(super) fn slow_down(&mut self, owed: u64, need: u64) -> Result<u64> {
        let need = need.max(self.credit);
        // The cleaner and the checkpointer need it to move the redo start.
        self.leave();
        let shared = self.shared.clone();
        pause::point("wal: a session is slowed");
        let stopped = || shared.pipeline.poison_error();
        let ends = || stopped().is_some() || self.is_over();
        let is_granted = spent::during(Spent::LogWait, || shared.throttle.pay(owed, || shared.totals.bytes(), ends));
        if !is_granted {
            // What was not granted stays in the line: the next reservation waits for it, too.
            self.owed = self.owed.max(1);
        }
        stopped().map_or(if is_granted { Ok(need) } else { Err(Error::LogSpace) }, Err)
    }
}
