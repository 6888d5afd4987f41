//! What a caller may choose for a transaction when it begins.

use foreshore_lock::Attempt;
use foreshore_sync::Nanos;
use foreshore_txn::{Isolation, SnapshotKind};
use std::time::Duration;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it survives power loss.
    #[default]
    Durable,
    /// When its commit record is in the log buffer. It is durable soon after; power loss before that undoes it, and
    /// every later commit with it, never an earlier one. [`CommitTicket::harden`](crate::CommitTicket::harden) makes a single
    /// commit wait after all.
    Relaxed,
}

/// How a transaction runs.
#[derive(Clone, Copy, Debug)]
pub struct TxnOptions {
    pub(crate) label: &'static str,
    pub(crate) durability: Durability,
    pub(crate) isolation: Isolation,
    pub(crate) reads: SnapshotKind,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) snapshot_max_age: Option<Duration>,
    pub(crate) snapshot_max_bytes: Option<u64>,
    pub(crate) is_check: bool,
    /// Whether it only reads.
    pub(crate) is_read: bool,
    /// What came before, if it is run again.
    pub(crate) attempt: Attempt,
}

impl Default for TxnOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl TxnOptions {
    /// Serializable, durable, with the database's lock timeout and no label.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            label: "",
            durability: Durability::Durable,
            isolation: Isolation::Serializable,
            reads: SnapshotKind::Latest,
            lock_timeout: None,
            deadline: None,
            snapshot_max_age: None,
            snapshot_max_bytes: None,
            is_check: false,
            is_read: false,
            attempt: Attempt { first: None, losses: 0 },
        }
    }

    /// For a check: where the user's transactions leave no session, it has one that is kept for it.
    pub(crate) const fn check() -> Self {
        Self { is_check: true, ..Self::new().label("check") }
    }

    /// A name that the errors of others show when they wait for this transaction.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// When the commit is acknowledged.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// What the transaction may see of others.
    #[must_use]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// How long it waits for a lock, and how long it waits to begin where as many transactions run as may run at once.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// How long [`Db::run_with`](crate::Db::run_with) repeats the transaction; without it three times the lock timeout, or that of the
    /// database if that is longer. When it is over the answer to a run that others ended is
    /// [`Deadline`](crate::Error::Deadline). A run that needs no wait goes on beyond it.
    ///
    /// A deadline that is set here also ends every wait of the transaction: to begin, for locks, for undo memory and for log space. The
    /// answer is `Deadline`, whose cause says what was waited for; [`Db::begin_with`](crate::Db::begin_with) gives the same. With it a run
    /// that met [`LockTimeout`](crate::Error::LockTimeout) before is repeated. It counts from the call that asks for the first run. Not
    /// limited are the wait for durability and what a rollback takes.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The same for a transaction that is asked for at `now`: where there is a deadline it counts from here.
    pub(crate) fn asked_at(mut self, now: impl FnOnce() -> Nanos) -> Self {
        if self.deadline.is_some() {
            self.attempt.first.get_or_insert_with(now);
        }
        self
    }

    /// How old the snapshot may be that it reads by, in place of the database's
    /// [`snapshot_max_age`](crate::Options::snapshot_max_age); with [`Duration::MAX`] as old as there is room for. With none at all
    /// the first operation answers `InvalidOption`.
    #[must_use]
    pub const fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_max_age = Some(age);
        self
    }

    /// How many bytes may be kept for that snapshot alone, in place of the database's
    /// [`snapshot_max_bytes`](crate::Options::snapshot_max_bytes); with [`u64::MAX`] as many as there is room for. With fewer than
    /// 8 KiB the first operation answers `InvalidOption`.
    #[must_use]
    pub const fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_max_bytes = Some(bytes);
        self
    }
}

/// How a read transaction reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    pub(crate) label: &'static str,
    pub(crate) is_latest: bool,
    pub(crate) snapshot_max_age: Option<Duration>,
    pub(crate) snapshot_max_bytes: Option<u64>,
}

impl ReadOptions {
    /// What is durable, and no label.
    #[must_use]
    pub const fn new() -> Self {
        Self { label: "", is_latest: false, snapshot_max_age: None, snapshot_max_bytes: None }
    }

    /// A name that errors and statistics show for the snapshot.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Sees commits that are not durable yet, too: [`ReadTransaction::finish`](crate::ReadTransaction::finish) tells when what was
    /// read is.
    #[must_use]
    pub const fn latest(mut self) -> Self {
        self.is_latest = true;
        self
    }

    /// See [`TxnOptions::snapshot_max_age`].
    #[must_use]
    pub const fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_max_age = Some(age);
        self
    }

    /// See [`TxnOptions::snapshot_max_bytes`].
    #[must_use]
    pub const fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_max_bytes = Some(bytes);
        self
    }

    pub(crate) const fn below(self) -> TxnOptions {
        TxnOptions {
            isolation: Isolation::Snapshot,
            reads: if self.is_latest { SnapshotKind::Latest } else { SnapshotKind::Durable },
            snapshot_max_age: self.snapshot_max_age,
            snapshot_max_bytes: self.snapshot_max_bytes,
            is_read: true,
            ..TxnOptions::new().label(self.label)
        }
    }
}
