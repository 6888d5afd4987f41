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

    /// Its transaction is over, and nothing of it will be compensated any more.
    #[inline]
    pub fn end_undo_log(&mut self) {
        self.undo_log.end(&self.shared);
    }
}
