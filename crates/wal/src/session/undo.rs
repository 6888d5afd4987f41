//! The part of a session in the account of log space for rollbacks (see [`crate::undo_log`]).

use super::Session;
use crate::segment::GRANT;
use foreshore_base::{Error, Result};

impl Session {
    /// Makes sure that compensations of `bytes` together (see [`undo_log_cost`](crate::undo_log_cost)) can be charged.
    /// Without latches, and before [`Session::reserve`]: a wait gives back what was reserved.
    ///
    /// # Errors
    /// `DiskFull` if there is no prepared log space for them, none can be made and none is given up; what making it
    /// failed with; `Poisoned`.
    #[inline]
    pub fn reserve_undo_log(&mut self, bytes: u64) -> Result<()> {
        // Shown before it has some, so that a session that is refused for want of it finds it.
        if !self.own_slot().holds_space() {
            self.own_slot().note_holds(true);
        }
        match self.undo_log.missing(bytes) {
            0 => Ok(()),
            missing => self.take_undo_log(missing, bytes),
        }
    }

    #[cold]
    fn take_undo_log(&mut self, missing: u64, bytes: u64) -> Result<()> {
        self.check_stop()?;
        match self.undo_log.take(&self.core.segments, missing, self.frees) {
            Err(Error::DiskFull { .. }) => self.repeat_after_wait(|session| {
                session.check_stop()?;
                let missing = session.undo_log.missing(bytes);
                if missing > 0 { session.undo_log.take(&session.core.segments, missing, session.frees) } else { Ok(()) }
            }),
            taken => taken,
        }
    }

    fn check_stop(&self) -> Result<()> {
        self.core.pipeline.progress().stop_error().map_or(Ok(()), Err)
    }

    /// Charges the session with `bytes` of log for a compensation. They were reserved; or, at a restart, the run before
    /// had charged them.
    #[inline]
    pub fn charge_undo_log(&mut self, bytes: u64) {
        self.undo_log.charge(&self.core.segments, bytes);
    }

    /// Bytes of log that are charged for compensations.
    #[must_use]
    pub const fn undo_log(&self) -> u64 {
        self.undo_log.charged()
    }

    /// Lowers the charge by `bytes`: the compensation for which they were charged is logged.
    pub fn pay_undo_log(&mut self, bytes: u64) {
        self.lower_undo_log(self.undo_log.charged().saturating_sub(bytes));
    }

    /// Lowers the charge to `bytes`.
    pub fn lower_undo_log(&mut self, bytes: u64) {
        self.undo_log.lower(&self.core.segments, bytes);
    }

    /// Makes sure that copies of `bytes` of what is left to compensate can be logged, from what is charged for that and
    /// what no other session was granted.
    ///
    /// # Errors
    /// `DiskFull` if there is less; `Poisoned`; what making log space failed with.
    pub fn admit_copy(&mut self, bytes: u64) -> Result<()> {
        self.check_stop()?;
        self.core.segments.admit_copy(self.undo_log.granted() / GRANT, bytes)
    }

    /// Ends the account of a transaction: nothing of it will be compensated any more.
    #[inline]
    pub fn end_undo_log(&mut self) {
        let segments = &self.core.segments;
        self.undo_log.end(segments);
        if self.own_slot().holds_space() {
            self.own_slot().note_holds(false);
            // After it: a session may just have parked because of this one.
            if segments.returns().is_waited_for() {
                segments.returns().notify();
            }
        }
    }

    /// Takes the granted blocks that the session keeps for its next transaction, and returns how many. For the function
    /// given to [`Log::on_shortage`](crate::Log::on_shortage), which gives them to other sessions.
    pub fn take_idle_undo_log(&mut self) -> u64 {
        self.undo_log.take_idle()
    }
}
