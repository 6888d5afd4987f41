//! The start of a transaction.

use super::{Txn, TxnOptions};
use crate::isolation::Isolation;
use crate::manager::{ManagerRef, TxnManager};
use foreshore_base::Result;
use foreshore_sync::BiasedOwner;
use std::sync::Arc;

impl TxnManager {
    /// Returns a reference for one transaction. It allocates, so a caller that begins many transactions hands out
    /// references of its own.
    #[must_use]
    pub fn reference(self: &Arc<Self>) -> ManagerRef {
        BiasedOwner::new(Arc::clone(self)).hand_out()
    }

    /// Begins a transaction. If all sessions are in use, it waits in the queue for up to
    /// [`session_timeout`](TxnOptions::session_timeout).
    ///
    /// # Errors
    /// `TooManyTransactions` when all sessions are in use; `Poisoned`.
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        Self::begin_by(self.reference(), options)
    }

    /// Begins a transaction as [`begin`](Self::begin) does, through the reference `manager`.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn begin_by(manager: ManagerRef, options: TxnOptions) -> Result<Txn> {
        Txn::begin(manager, options, false)
    }

    /// Begins a system transaction, which the engine itself runs. It takes no session from ordinary transactions, and
    /// does not wait for one.
    ///
    /// # Errors
    /// Those of [`begin`](Self::begin).
    pub fn begin_system(self: &Arc<Self>, options: TxnOptions) -> Result<Txn> {
        Txn::begin(self.reference(), options, true)
    }
}

impl Txn {
    fn begin(manager: ManagerRef, mut options: TxnOptions, is_system: bool) -> Result<Self> {
        if options.deadline.is_some() {
            // The time that the lock manager notes is not exact.
            options.attempt.first.get_or_insert_with(|| manager.now());
        }
        let mut lease = manager.sessions.take(is_system, || options.time_for_a_session(manager.now()))?;
        lease.owner.begin_attempt(options.label, options.attempt);
        let waits = options.waits(options.attempt.first.unwrap_or(lease.owner.began()));
        lease.session.limit_waits(waits.left(|| manager.now()));
        lease.run.begin(options.label, waits, (options.isolation, options.reads, options.snapshot_limits));
        let mut txn = Self { manager, lease: Some(lease) };
        if options.isolation == Isolation::Snapshot {
            txn.take_snapshot();
        }
        Ok(txn)
    }
}
