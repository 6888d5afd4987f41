//! The begin of a transaction.

use super::{Txn, TxnOptions};
use crate::isolation::Isolation;
use crate::manager::TxnManager;
use foreshore_base::Result;
use std::sync::Arc;

impl TxnManager {
    /// Begins a transaction. Where all sessions are in use it waits in the queue for one, as long as
    /// [`session_timeout`](TxnOptions::session_timeout) says.
    ///
    /// # Errors
    /// `TooManyTransactions` when all sessions are in use; `Poisoned`.
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        self.begin_as(options, false)
    }

    /// Begins a system transaction, one of the engine itself. It takes no session away from the others, and does not
    /// wait for one.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn begin_system(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        self.begin_as(options, true)
    }

    fn begin_as(self: &Arc<Self>, options: TxnOptions, is_system: bool) -> Result<Txn> {
        let mut lease = self.sessions.take(is_system, || options.time_for_a_session(self.now()))?;
        lease.owner.begin_attempt(options.label, options.attempt);
        let waits = options.waits(options.attempt.first.unwrap_or(lease.owner.began()));
        lease.session.limit_waits(waits.left(|| self.now()));
        lease.run.begin(options.label, waits, (options.isolation, options.reads, options.snapshot_limits));
        let mut txn = Txn { manager: self.clone(), lease: Some(lease) };
        if options.isolation == Isolation::Snapshot {
            txn.take_snapshot();
        }
        Ok(txn)
    }
}
