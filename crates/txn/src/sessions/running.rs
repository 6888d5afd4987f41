//! The state of a running transaction.

use crate::isolation::Isolation;
use crate::savepoints::Savepoints;
use crate::undo::Fetched;
use crate::visibility::snapshot::OwnSnapshot;
use crate::visibility::{SnapshotKind, SnapshotLimits};
use crate::waits::Waits;
use foreshore_base::{Csn, Lsn, Xid};

/// The state of a transaction. Transactions use the memory of it one after another.
///
/// **Invariant:** [`begin`](Self::begin) sets every field. [`end`](Self::end) releases what others wait for. So no
/// state of one transaction reaches the next.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) label: &'static str,
    pub(crate) xid: Option<Xid>,
    /// The xid was just drawn, so the status window and the ceiling of xids may have to move up.
    pub(crate) is_new_xid: bool,
    pub(crate) trail: Trail,
    pub(crate) waits: Waits,
    pub(crate) reads: Reads,
    /// The savepoints that can be rolled back to, by age.
    pub(crate) savepoints: Savepoints,
    /// A change or a rollback to a savepoint stopped half-way, so only the whole transaction can be rolled back.
    pub(crate) is_broken: bool,
    /// The current reservation, which is repeated after a wait: bytes of log, and bytes of an undo entry if there will
    /// be one.
    pub(crate) reserved: (usize, Option<usize>),
}

/// The transaction's records in the log, and the commits on which they depend.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// LSN of its last record, zero before the first.
    pub(crate) last_lsn: Lsn,
    /// The newest commit that the transaction has read from.
    pub(crate) observed: Csn,
    /// For a prepared transaction, the xid under which the log has it. After a restart its rows have another xid.
    pub(crate) prepared_as: Option<Xid>,
    /// Its commit is durable before its locks go.
    pub(crate) syncs_before_release: bool,
}

impl Trail {
    /// Returns the xid in the records of the transaction whose rows have `xid`.
    pub(crate) fn logged_as(&self, xid: Option<Xid>) -> Option<Xid> {
        self.prepared_as.or(xid)
    }
}

/// The way in which a transaction reads.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) isolation: Isolation,
    pub(crate) kind: SnapshotKind,
    pub(crate) limits: Option<SnapshotLimits>,
    /// The snapshot of the whole transaction, if it has one.
    pub(crate) snapshot: OwnSnapshot,
    /// Old versions that were fetched from the spill file.
    pub(crate) fetched: Option<Box<Fetched>>,
}

impl Running {
    /// Returns the state of a session without a transaction.
    pub(super) fn idle() -> Self {
        Self {
            label: "",
            xid: None,
            is_new_xid: false,
            trail: Trail::default(),
            waits: Waits::default(),
            reads: Reads {
                isolation: Isolation::default(),
                kind: SnapshotKind::Latest,
                limits: None,
                snapshot: OwnSnapshot::default(),
                fetched: None,
            },
            savepoints: Savepoints::default(),
            is_broken: false,
            reserved: (0, None),
        }
    }

    /// Resets the state for a new transaction.
    pub(crate) fn begin(
        &mut self,
        label: &'static str,
        waits: Waits,
        (isolation, kind, limits): (Isolation, SnapshotKind, Option<SnapshotLimits>),
    ) {
        let Self { label: shown, xid, is_new_xid, trail, waits: limited, reads, savepoints, is_broken, reserved } =
            self;
        assert!(reads.snapshot.get().is_none(), "{label:?} begins with the snapshot of {shown:?}");
        (*shown, *xid, *is_new_xid, *is_broken, *reserved) = (label, None, false, false, (0, None));
        (*trail, *limited) = (Trail::default(), waits);
        (reads.isolation, reads.kind, reads.limits, reads.fetched) = (isolation, kind, limits, None);
        savepoints.clear();
    }

    /// Ends the reads and the savepoints. The transaction has ended, or from now on can only be rolled back or
    /// committed.
    pub(crate) fn end(&mut self) {
        self.reads.snapshot.end();
        self.reads.fetched = None;
        self.savepoints.clear();
    }
}
