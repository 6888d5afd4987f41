//! What a running transaction knows of itself.

use crate::isolation::Isolation;
use crate::savepoints::Savepoints;
use crate::undo::Fetched;
use crate::visibility::snapshot::OwnSnapshot;
use crate::visibility::{SnapshotKind, SnapshotLimits};
use crate::waits::Waits;
use foreshore_base::{Csn, Lsn, Xid};

/// The state of a transaction. Its memory is used by one transaction after another.
///
/// **Invariant:** [`begin`](Self::begin) sets every field, and [`end`](Self::end) frees what others wait for, so
/// nothing of a transaction is left to the next one.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) label: &'static str,
    pub(crate) xid: Option<Xid>,
    /// The xid was drawn, and the window and the ceiling of xids may have to move up.
    pub(crate) is_new_xid: bool,
    pub(crate) trail: Trail,
    pub(crate) waits: Waits,
    pub(crate) reads: Reads,
    /// Those that can be rolled back to, by age.
    pub(crate) savepoints: Savepoints,
    /// A rollback to a savepoint stopped half-way: it can only be rolled back as a whole.
    pub(crate) is_broken: bool,
    /// The current reservation, made again after a wait: bytes of the log, and of the undo entry, if there is to be
    /// one.
    pub(crate) reserved: (usize, Option<usize>),
}

/// What a transaction has in the log, and what its records rest on.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// LSN of its last record, zero before the first.
    pub(crate) last_lsn: Lsn,
    /// The newest commit that the transaction has read from.
    pub(crate) observed: Csn,
    /// Once it is prepared, the xid under which the log has it: after a restart that is not the one in rows.
    pub(crate) prepared_as: Option<Xid>,
}

impl Trail {
    /// Returns the xid that the records carry of the transaction with `xid`.
    pub(crate) fn logged_as(&self, xid: Option<Xid>) -> Option<Xid> {
        self.prepared_as.or(xid)
    }
}

/// How a transaction reads.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) isolation: Isolation,
    pub(crate) kind: SnapshotKind,
    pub(crate) limits: Option<SnapshotLimits>,
    /// The snapshot of the whole transaction, if it reads by one.
    pub(crate) snapshot: OwnSnapshot,
    /// What was fetched from the file of old versions.
    pub(crate) fetched: Option<Box<Fetched>>,
}

impl Running {
    /// The state of a session that no transaction has.
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

    /// Begins a transaction, which has nothing yet.
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

    /// The transaction has ended, or does nothing any more but to be rolled back: it reads no more and goes back to no
    /// savepoint.
    pub(crate) fn end(&mut self) {
        self.reads.snapshot.end();
        self.reads.fetched = None;
        self.savepoints.clear();
    }
}
