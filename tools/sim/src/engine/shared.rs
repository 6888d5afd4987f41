//! What the sessions of a life share, and which answers they take.

use super::check::Prepared;
use super::history::Txn;
use super::numbers::Numbers;
use super::plan::Trouble;
use foreshore::{Db, Error};
use foreshore_io::Sim;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex};
use std::collections::BTreeMap;

/// What the sessions of a life share.
pub(super) struct Shared {
    pub(super) db: Db,
    /// Keys of a table.
    pub(super) keys: u16,
    /// Keys of the last table.
    pub(super) big_keys: u16,
    pub(super) trouble: Trouble,
    disk: Sim,
    /// Faults that the disk had met before.
    pub(super) met: u64,
    /// Moments, and numbers of values.
    pub(super) moments: AtomicU64,
    pub(super) txns: Mutex<Vec<Txn>>,
    pub(super) numbers: Mutex<Numbers>,
    pub(super) prepared: Mutex<BTreeMap<String, Prepared>>,
    /// Whether threads that can run do. Then only a transaction that waits to be resolved explains a wait without end.
    pub(super) is_prompt: bool,
    /// One in so many attempts to resolve a prepared transaction is made: others meet its locks meanwhile.
    pub(super) resolves_one_in: u64,
    /// Whether a transaction has been prepared.
    pub(super) has_prepared: AtomicBool,
    /// Whether a session closes the database beside the others.
    pub(super) is_closing: AtomicBool,
    /// The machine, if the process was killed on it.
    pub(super) killed: Mutex<Option<Sim>>,
    /// What must not be.
    pub(super) wrong: Mutex<Option<String>>,
}

/// Why a session's step ends.
pub(super) enum Stop {
    /// The engine said so.
    Error(Error),
    /// What it said must not be.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<String> for Stop {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

impl Shared {
    pub(super) fn new(
        db: Db,
        (disk, met): (&Sim, u64),
        keys: (u16, u16),
        trouble: Trouble,
        first: u64,
        prepared: BTreeMap<String, Prepared>,
    ) -> Self {
        Self {
            db,
            keys: keys.0,
            big_keys: keys.1,
            trouble,
            disk: disk.clone(),
            met,
            is_prompt: false,
            resolves_one_in: 1,
            has_prepared: AtomicBool::new(!prepared.is_empty()),
            is_closing: AtomicBool::new(false),
            moments: AtomicU64::new(first),
            txns: Mutex::new(LockRank::Leaf, Vec::new()),
            numbers: Mutex::new(LockRank::Leaf, Numbers::default()),
            prepared: Mutex::new(LockRank::Leaf, prepared),
            killed: Mutex::new(LockRank::Leaf, None),
            wrong: Mutex::new(LockRank::Leaf, None),
        }
    }

    pub(super) fn moment(&self) -> u64 {
        // ORDERING: Relaxed, a number that nothing rests on.
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    fn fail(&self, why: String) {
        self.wrong.lock().get_or_insert(why);
    }

    fn has_prepared(&self) -> bool {
        // ORDERING: Relaxed, a flag that nothing rests on.
        self.has_prepared.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        // ORDERING: Relaxed, a flag that nothing rests on.
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Whether what goes wrong in this life has met an operation.
    pub(super) fn has_struck(&self) -> bool {
        self.disk.is_off() || self.disk.faults_met() > self.met
    }

    pub(super) fn has_failed(&self) -> bool {
        self.wrong.lock().is_some()
    }

    /// Whether the session goes on after an error.
    pub(super) fn goes_on(&self, stop: Stop) -> bool {
        let error = match stop {
            Stop::Error(error) => error,
            Stop::Wrong(why) => {
                self.fail(why);
                return false;
            }
        };
        match &error {
            Error::LockTimeout { .. } if self.is_prompt && !self.has_prepared() => {
                self.fail(format!("a wait for a lock that nothing explains: {error} ({error:?})"));
                false
            }
            _ if error.is_retryable() => true,
            Error::OwnThreadLock { .. }
            | Error::RowLocked { .. }
            | Error::KeyExists { .. }
            | Error::RolledBack
            | Error::NoTable { .. }
            | Error::TransactionTooLarge { .. }
            | Error::NoPrepared { .. }
            | Error::PreparedBusy { .. } => true,
            Error::DiskFull { .. } | Error::RollbackParked { .. } if self.trouble.is_full() && self.has_struck() => {
                true
            }
            Error::Io { .. } if matches!(self.trouble, Trouble::Read(_)) && self.has_struck() => true,
            Error::Closed if self.is_closing() => false,
            Error::Poisoned { .. } | Error::Io { .. } | Error::Closed
                if self.trouble.may_stop() && self.has_struck() =>
            {
                false
            }
            _ => {
                self.fail(format!("an answer that must not be: {error} ({error:?})"));
                false
            }
        }
    }
}
