//! The account of a session for the log space of its rollback ([`crate::undo_log`]).

use super::Session;
use crate::segment::GRANT;
use foreshore_base::{Error, Result};

impl Session {
    /// Makes sure that compensations of `bytes` in all ([`undo_log_cost`](crate::undo_log_cost)) can be charged. Call
    /// it without latches, and before [`Session::reserve`]: a wait returns the reservation.
    ///
    /// # Errors
    /// `DiskFull` if there is no prepared log space for them, none can be made and no log is truncated; the error of
    /// making log space; `Poisoned`.
    #[inline]
    pub fn reserve_undo_log(&mut self, bytes: u64) -> Result<()> {
        // Published before the session has space, so that a session that is refused meanwhile counts it as a holder.
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

    /// Does the same as [`reserve_undo_log`](Self::reserve_undo_log), and waits for nothing. Returns false if there is
    /// too little space now. Reservations stay.
    ///
    /// # Errors
    /// The error of making log space, unless the disk is full; `Poisoned`.
    pub fn try_reserve_undo_log(&mut self, bytes: u64) -> Result<bool> {
        if !self.own_slot().holds_space() {
            self.own_slot().note_holds(true);
        }
        let missing = self.undo_log.missing(bytes);
        if missing == 0 {
            return Ok(true);
        }
        self.check_stop()?;
        let taken = self.undo_log.take(&self.core.segments, missing, self.frees);
        assert!(taken.is_err() || self.undo_log.missing(bytes) == 0, "{bytes} bytes of undo log are granted in part");
        match taken {
            Err(Error::DiskFull { .. }) => {
                // Other sessions may have parked because this one seemed to hold space.
                if !self.show_holds() && self.core.segments.returns().is_waited_for() {
                    self.core.segments.returns().notify();
                }
                Ok(false)
            }
            taken => taken.map(|()| true),
        }
    }

    fn check_stop(&self) -> Result<()> {
        self.core.pipeline.progress().stop_error().map_or(Ok(()), Err)
    }

    /// Charges the session with `bytes` of log for a compensation. They were reserved before. At a restart the previous
    /// run had charged them.
    #[inline]
    pub fn charge_undo_log(&mut self, bytes: u64) {
        self.undo_log.charge(&self.core.segments, bytes);
    }

    /// Returns the bytes of log that are charged for compensations.
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

    /// Makes sure that copies of `bytes` of the changes still to be compensated can be logged. They use the charge of
    /// this session, and space that was granted to no other session.
    ///
    /// # Errors
    /// `DiskFull` if there is less; `Poisoned`; or the error of making log space.
    pub fn admit_copy(&mut self, bytes: u64) -> Result<()> {
        self.check_stop()?;
        self.core.segments.admit_copy(self.undo_log.granted() / GRANT, bytes)
    }

    /// Ends the account of a transaction, of which nothing will be compensated any more.
    #[inline]
    pub fn end_undo_log(&mut self) {
        let segments = &self.core.segments;
        self.undo_log.end(segments);
        if self.own_slot().holds_space() {
            self.own_slot().note_holds(false);
            // Notified after the return: a session may just have parked because of this one.
            if segments.returns().is_waited_for() {
                segments.returns().notify();
            }
        }
    }

    /// Returns the granted blocks that the session keeps for its next transaction to the account, and returns how many
    /// bytes. Called by the function of [`Log::on_shortage`](crate::Log::on_shortage).
    pub fn take_idle_undo_log(&mut self) -> u64 {
        self.undo_log.take_idle()
    }
}
