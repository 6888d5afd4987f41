//! The part of a session in the account of log space for rollbacks (see [`crate::undo_log`]).

use super::Session;
use foreshore_base::{Error, Result};

impl Session {
    /// Makes sure that compensations of `bytes` together (see [`undo_log_cost`](crate::undo_log_cost)) can be charged.
    /// Without latches, and before [`Session::reserve`]: a wait gives back what was reserved.
    ///
    /// # Errors
    /// `DiskFull` if there is no prepared log space for them, none can be made and none is given up; what making it failed
    /// with; `Poisoned`.
    #[inline]
    pub fn reserve_undo_log(&mut self, bytes: u64) -> Result<()> {
        // Shown before it has some, so that a session that is refused for want of it finds it.
        if !self.shows_holds {
            self.shared.slots.get(self.slot).note_holds(true);
            self.shows_holds = true;
        }
        match self.undo_log.reserve(&self.shared, bytes, self.frees) {
            Err(Error::DiskFull { .. }) => {
                self.repeat_after_wait(|session| session.undo_log.reserve(&session.shared, bytes, session.frees))
            }
            reserved => reserved,
        }
    }

    /// Charges the session with `bytes` of log for a compensation. They were reserved; or, at a restart, the run before
    /// had charged them.
    #[inline]
    pub fn charge_undo_log(&mut self, bytes: u64) {
        self.undo_log.charge(&self.shared, bytes);
    }

    /// Bytes of log that are charged for compensations.
    #[must_use]
    pub const fn undo_log(&self) -> u64 {
        self.undo_log.charged()
    }

    /// A compensation is logged for which `bytes` were charged.
    pub fn pay_undo_log(&mut self, bytes: u64) {
        self.undo_log.pay(&self.shared, bytes);
    }

    /// Lowers the charge to `bytes`: what was charged beyond is taken back.
    pub fn lower_undo_log(&mut self, bytes: u64) {
        self.undo_log.lower(&self.shared, bytes);
    }

    /// Makes sure that copies of `bytes` of what is left to compensate can be logged, from what is charged for that and what no other
    /// session was granted.
    ///
    /// # Errors
    /// `DiskFull` if there is less; `Poisoned`; what making log space failed with.
    pub fn admit_copy(&mut self, bytes: u64) -> Result<()> {
        if let Some(error) = self.shared.pipeline.poison_error() {
            return Err(error);
        }
        self.undo_log.admit_copy(&self.shared, bytes)
    }

    /// Its transaction is over, and nothing of it will be compensated any more.
    #[inline]
    pub fn end_undo_log(&mut self) {
        self.undo_log.end(&self.shared);
        if std::mem::take(&mut self.shows_holds) {
            self.shared.slots.get(self.slot).note_holds(false);
            // After it: a session may just have parked because of this one.
            self.shared.returns().filter(|returns| returns.is_waited_for()).inspect(|returns| returns.notify());
        }
    }

    /// Takes the blocks that the session was granted and keeps for later: its transaction is over. [`Log::give_back_undo_log`] gives them
    /// to others.
    ///
    /// [`Log::give_back_undo_log`]: crate::Log::give_back_undo_log
    pub fn take_idle_undo_log(&mut self) -> u64 {
        self.undo_log.take_idle()
    }
}
