//! What a caller may choose for a transaction when it begins.

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
        }
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

    /// How long it waits for a lock.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }
}

/// How a read transaction reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    pub(crate) label: &'static str,
    pub(crate) is_latest: bool,
}

impl ReadOptions {
    /// What is durable, and no label.
    #[must_use]
    pub const fn new() -> Self {
        Self { label: "", is_latest: false }
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

    pub(crate) const fn below(self) -> TxnOptions {
        TxnOptions {
            isolation: Isolation::Snapshot,
            reads: if self.is_latest { SnapshotKind::Latest } else { SnapshotKind::Durable },
            ..TxnOptions::new().label(self.label)
        }
    }
}
