//! Options of a transaction.

use foreshore_lock::Attempt;
use foreshore_sync::Nanos;
use foreshore_txn::{Isolation, SnapshotKind};
use std::time::Duration;

/// Point at which a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// The commit survives power loss.
    #[default]
    Durable,
    /// The commit record is in the log buffer. The commit becomes durable soon after: with the default group policy the
    /// write begins about a millisecond after the one before, or when that one ends. A kill of the process or a power
    /// loss before that undoes it and every later commit, never an earlier one.
    /// [`CommitTicket::harden`](crate::CommitTicket::harden) makes a single commit wait for the disk.
    Relaxed,
}

/// Options of a transaction that reads and writes.
///
/// ```
/// # use foreshore::{Db, Durability, Error, Isolation, TableDef, TxnOptions};
/// # use std::time::Duration;
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// let options = TxnOptions::new()
///     .label("restock")
///     .isolation(Isolation::Snapshot)
///     .durability(Durability::Relaxed)
///     .lock_timeout(Duration::from_millis(100))
///     .deadline(Duration::from_secs(5))
///     .snapshot_max_age(Duration::from_secs(60))
///     .snapshot_max_bytes(64 << 20);
/// db.run_with(options, |tx| tx.open(STOCK)?.put(1, 10))?;
/// # Ok::<(), Error>(())
/// ```
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
    /// Whether the transaction only reads.
    pub(crate) is_read: bool,
    /// Earlier runs, if this is a retry.
    pub(crate) attempt: Attempt,
}

impl Default for TxnOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl TxnOptions {
    /// Returns the defaults: serializable, durable, the database's lock timeout, no label.
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

    /// Returns the options of a check. If user transactions hold all sessions, a check uses one that is reserved for
    /// it.
    pub(crate) const fn check() -> Self {
        Self { is_check: true, ..Self::new().label("check") }
    }

    /// Sets a name that errors of other transactions show when they wait for this one.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Sets when the commit is acknowledged.
    #[must_use]
    pub const fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the isolation level.
    #[must_use]
    pub const fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets how long the transaction waits for a lock. The same limit holds for its begin, if the maximum number of
    /// transactions is running.
    #[must_use]
    pub const fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// Sets how long [`Db::run_with`](crate::Db::run_with) retries the transaction, counted from the call of
    /// `run_with`.
    ///
    /// Without it the limit is three times the lock timeout, or three times the database's if that is longer. After
    /// the limit a run that would be retried returns [`Deadline`](crate::Error::Deadline). A run that needs no wait
    /// continues beyond it.
    ///
    /// A deadline set here also ends every wait of the transaction: to begin, for locks, for undo memory and for log
    /// space. The wait returns `Deadline`, whose cause names what it waited for, also in a transaction of
    /// [`Db::begin_with`](crate::Db::begin_with). With a deadline, a run that ended by
    /// [`LockTimeout`](crate::Error::LockTimeout) is retried. The wait for durability and the time of a rollback have
    /// no limit.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Returns these options for a transaction requested at `now`, from which a deadline counts.
    pub(crate) fn requested_at(mut self, now: impl FnOnce() -> Nanos) -> Self {
        if self.deadline.is_some() {
            self.attempt.first.get_or_insert_with(now);
        }
        self
    }

    /// Sets the largest age of the transaction's snapshot, in place of the database's
    /// [`snapshot_max_age`](crate::Options::snapshot_max_age). [`Duration::MAX`] means that only the lack of
    /// undo space ends the snapshot. With zero the first operation returns `InvalidOption`.
    #[must_use]
    pub const fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_max_age = Some(age);
        self
    }

    /// Sets how many bytes may be kept for the transaction's snapshot alone, in place of the database's
    /// [`snapshot_max_bytes`](crate::Options::snapshot_max_bytes). [`u64::MAX`] means that only the lack of
    /// undo space ends the snapshot. With fewer than 8 KiB the first operation returns `InvalidOption`.
    #[must_use]
    pub const fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_max_bytes = Some(bytes);
        self
    }
}

/// Options of a transaction that only reads.
///
/// ```
/// # use foreshore::{Db, Error, ReadOptions, TableDef};
/// # use std::time::Duration;
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// db.run(|tx| tx.open(STOCK)?.put(1, 10))?;
/// let options = ReadOptions::new()
///     .label("report")
///     .latest()
///     .snapshot_max_age(Duration::from_secs(3600))
///     .snapshot_max_bytes(1 << 30);
/// assert_eq!(db.read_with(options).open(STOCK)?.len()?, 1);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions {
    pub(crate) label: &'static str,
    pub(crate) is_latest: bool,
    pub(crate) snapshot_max_age: Option<Duration>,
    pub(crate) snapshot_max_bytes: Option<u64>,
}

impl ReadOptions {
    /// Returns the defaults: reads what is durable, no label.
    #[must_use]
    pub const fn new() -> Self {
        Self { label: "", is_latest: false, snapshot_max_age: None, snapshot_max_bytes: None }
    }

    /// Sets a name that errors and statistics show for the snapshot.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }

    /// Makes the transaction see commits that are not durable yet.
    /// [`ReadTransaction::finish`](crate::ReadTransaction::finish) tells when all that it read is durable.
    #[must_use]
    pub const fn latest(mut self) -> Self {
        self.is_latest = true;
        self
    }

    /// Sets the largest age of the snapshot, as [`TxnOptions::snapshot_max_age`] does.
    #[must_use]
    pub const fn snapshot_max_age(mut self, age: Duration) -> Self {
        self.snapshot_max_age = Some(age);
        self
    }

    /// Sets how many bytes may be kept for the snapshot, as [`TxnOptions::snapshot_max_bytes`] does.
    #[must_use]
    pub const fn snapshot_max_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_max_bytes = Some(bytes);
        self
    }

    /// Returns the options of the transaction below a [`ReadTransaction`](crate::ReadTransaction).
    pub(crate) const fn into_txn_options(self) -> TxnOptions {
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
