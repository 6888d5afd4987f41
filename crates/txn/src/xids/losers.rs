//! Waits for losers of a restart that are undone beside new transactions.

use foreshore_base::{Error, Xid};
use foreshore_sync::{LockRank, Mutex};
use std::sync::OnceLock;

/// Undoes some more of the losers. Returns false if a thread does so, and the caller may wait for that.
pub type HelpUndo = Box<dyn Fn() -> bool + Send + Sync>;

/// What a waiter for a loser needs to know.
pub(crate) struct LoserWaits {
    /// The first xid of this run.
    first: Xid,
    help: OnceLock<HelpUndo>,
    /// The error for waiters, while the undo is stuck.
    refusal: Mutex<Option<Error>>,
}

impl LoserWaits {
    pub(crate) fn new(first: Xid) -> Self {
        Self { first, help: OnceLock::new(), refusal: Mutex::new(LockRank::Leaf, None) }
    }

    /// Sets what a waiter does first. Returns false if that is set already.
    pub(crate) fn set_help(&self, help: HelpUndo) -> bool {
        self.help.set(help).is_ok()
    }

    /// Refuses waiters from here on.
    pub(crate) fn refuse(&self, refusal: Error) {
        *self.refusal.lock() = Some(refusal);
    }

    /// Lets waiters wait again.
    pub(crate) fn wait_again(&self) {
        *self.refusal.lock() = None;
    }

    /// Returns the error for a transaction that meets a row of `holder`, which is live, if it is not to wait.
    pub(crate) fn refusal(&self, holder: Xid) -> Option<Error> {
        if holder < self.first { self.refusal.lock().clone() } else { None }
    }

    /// Returns the xid under which the lock manager knows a holder: all of the previous run have one.
    pub(crate) fn shown(&self, holder: Xid) -> Xid {
        if holder < self.first { Xid(self.first.0 - 1) } else { holder }
    }

    /// Undoes changes of losers while the holder is live, if no thread does so.
    pub(crate) fn help_while(&self, is_live: &dyn Fn() -> bool) {
        if let Some(help) = self.help.get() {
            // WAIT: help - each turn undoes some changes.
            while is_live() && help() {}
        }
    }
}
