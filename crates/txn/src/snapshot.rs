//! Snapshots: one number that says what a reader sees.

use crate::manager::TxnManager;
use crate::past::{Past, Visibility};
use crate::readers::{About, Mark, SnapshotLimits, Toll};
use crate::status::Status;
use crate::view::{KeptView, View};
use foreshore_base::{Csn, TableId, Xid};
use foreshore_sync::Clock;
use foreshore_sync::model::mutant;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Which commits a new snapshot sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotKind {
    /// Those that are durable. It never has to wait before it hands out what it has read, and it sees every commit that was
    /// acknowledged as durable before it was taken.
    Durable,
    /// All. What is read rests on commits up to the greatest number seen, which may not be durable yet.
    Latest,
}

/// The oldest snapshot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestSnapshot {
    /// It sees commits up to here.
    pub csn: Csn,
    /// The label of its reader.
    pub label: &'static str,
    /// How long it has been in use.
    pub age: Duration,
    /// About how many bytes go when it ends, which no other reader needs: whole chunks of 8 KiB of old versions, and the pages of tables
    /// that were dropped since.
    pub bytes: u64,
}

/// What a reader sees: the commits up to one number, from its taking to its drop. Old versions of rows are kept for it, unless
/// it is killed because they take too much room.
pub struct Snapshot {
    manager: Arc<TxnManager>,
    mark: Mark,
    past: Past,
}

impl Snapshot {
    /// The number of the newest commit that it sees.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.mark.csn
    }

    /// What it sees of `xid`, found in a row; the same each time, while it is not killed. Never waits: a transaction that
    /// is about to commit is made to commit after the snapshot.
    #[must_use]
    pub fn visibility(&self, xid: Xid) -> Visibility {
        let seen = self.past.visibility(&self.manager.window, &self.mark, xid);
        if seen != Visibility::Invisible && xid != Xid::ZERO {
            self.manager.ask(xid, None);
        }
        seen
    }

    /// Whether it was killed. Asked after a read and before what was read is handed out: versions that it needed may be
    /// gone.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.manager.readers.is_killed(&self.mark)
    }

    /// Begins an operation; `None` if the snapshot was cancelled.
    pub(crate) fn enter(&self) -> Option<ReadOperation<'_>> {
        // Made before the look, so that its drop ends the operation in any case.
        let operation = ReadOperation { snapshot: self };
        self.manager.readers.enter(&self.mark).then_some(operation)
    }

    /// What it had taken, if it was killed.
    pub(crate) fn toll(&self) -> Option<Toll> {
        self.manager.readers.toll(&self.mark)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.manager.readers.release(&self.mark);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("csn", &self.csn()).field("killed", &self.is_killed()).finish_non_exhaustive()
    }
}

/// An operation that reads by a snapshot, begun by [`Txn::begin_read`](crate::Txn::begin_read). Until its drop nothing
/// that the snapshot may need is used otherwise, though the snapshot be cancelled meanwhile: [`TxnManager::passed`]
/// waits for it.
#[must_use = "its drop ends the operation"]
#[derive(Debug)]
pub struct ReadOperation<'s> {
    snapshot: &'s Snapshot,
}

impl Drop for ReadOperation<'_> {
    fn drop(&mut self) {
        self.snapshot.manager.readers.leave(&self.snapshot.mark);
    }
}

impl TxnManager {
    /// Takes a snapshot. `label` is shown by errors and warnings that name its reader.
    #[must_use]
    pub fn snapshot(self: &Arc<Self>, kind: SnapshotKind, label: &'static str) -> Snapshot {
        self.snapshot_within(kind, label, self.snapshot_limits)
    }

    /// The same, for a reader with limits of its own.
    pub(crate) fn snapshot_within(
        self: &Arc<Self>,
        kind: SnapshotKind,
        label: &'static str,
        limits: SnapshotLimits,
    ) -> Snapshot {
        let about = About { label, since: self.time.now(), limits };
        let durable = || self.log.durable().csn();
        let clock = (kind == SnapshotKind::Latest).then_some(|| self.log.commit_clock());
        let mark = self.readers.take(about, || self.window.frozen(), durable, clock, || self.xids.next());
        let past = Past::new(&mark);
        Snapshot { manager: self.clone(), mark, past }
    }

    /// Looks at all readers, gives up those beyond their limits, and shares the view with everybody.
    pub(crate) fn refresh_view(&self) -> KeptView {
        if self.readers.is_any_limited() {
            self.kill_beyond_limits();
        }
        // The window before what is durable: what it has passed is no newer than that.
        let past = self.window.late();
        self.views.share(View::of(&self.readers, &self.pins, past, || self.log.durable().csn()))
    }

    /// The commit up to which what commits took away, such as the pages of dropped tables, may be used otherwise: it is
    /// durable, no reader has a snapshot below it, now or later, and no operation of a cancelled reader is under way.
    /// Zero while one is. What is passed stays so: a reader that was cancelled begins no operation.
    #[must_use]
    pub fn passed(&self) -> Csn {
        let horizon = self.refresh_view().horizon();
        // After the view, which leaves cancelled readers out.
        let is_at_work = self.readers.is_any_cancelled_at_work() && !mutant("txn: no wait for cancelled readers");
        if is_at_work { Csn::ZERO } else { horizon }
    }

    /// See [`Txn::is_settled`](crate::Txn::is_settled).
    pub(crate) fn is_settled(&self, header_xid: Xid) -> bool {
        let view = self.views.newest();
        match self.csn_by(&view, header_xid) {
            Some(csn) if csn <= view.horizon() || mutant("sabotage: a ghost goes that a snapshot needs") => true,
            // A newer view can tell more, unless a reader is the reason that is known.
            Some(csn) if csn <= view.floor() || csn.lsn() > self.log.durable() => false,
            None if self.window.get(header_xid) == Status::Live => false,
            _ => {
                let view = self.refresh_view();
                self.csn_by(&view, header_xid).is_some_and(|csn| csn <= view.horizon())
            }
        }
    }

    /// The commit number of the transaction with `xid`, or one that says the same to every reader (see
    /// [`View::csn_of_frozen`]); zero if it left nothing that a reader may miss. `None` if it has not ended, or so that only a newer view
    /// can tell.
    pub(crate) fn csn_by(&self, view: &View, xid: Xid) -> Option<Csn> {
        match self.window.get(xid) {
            Status::Live | Status::Spare => None,
            Status::Aborted => Some(Csn::ZERO),
            Status::Committed(csn) => Some(csn),
            Status::Frozen => view.csn_of_frozen(xid),
        }
    }

    /// The oldest snapshot in use.
    #[must_use]
    pub fn oldest_snapshot(&self) -> Option<OldestSnapshot> {
        let (csn, about) = self.readers.oldest()?;
        Some(described(csn, &about, self.toll_of(csn, &about)))
    }

    /// Kills the oldest snapshot, so that nothing is kept for it any more, and returns what it was.
    pub fn kill_oldest_snapshot(&self) -> Option<OldestSnapshot> {
        self.kill_oldest_if(|_, _| true)
    }

    /// The same, if `dooms` says so of its number and of what is told of it.
    pub(crate) fn kill_oldest_if(&self, dooms: impl Fn(Csn, &About) -> bool) -> Option<OldestSnapshot> {
        let judge = |csn, about: &About| dooms(csn, about).then(|| self.toll_of(csn, about));
        let (csn, about, toll) = self.readers.kill_oldest(judge)?;
        self.kills.add(1);
        Some(described(csn, &about, toll))
    }

    /// Any that is too old; and the oldest, while too much is kept for it alone. What a younger one keeps alone is not known: the
    /// older ones may need it too.
    fn kill_beyond_limits(&self) {
        let now = self.time.now();
        let is_old = |about: &About| now.since(about.since) > about.limits.max_age;
        let killed = self.readers.kill_each(|csn, about| is_old(about).then(|| self.toll_of(csn, about)));
        self.kills.add(killed as u64);
        let is_large = |csn, about: &About| {
            about.limits.max_bytes < u64::MAX && self.toll_of(csn, about).bytes > about.limits.max_bytes
        };
        while self.kill_oldest_if(is_large).is_some() {}
    }

    /// What the snapshot at `csn` takes, if it is the oldest.
    fn toll_of(&self, csn: Csn, about: &About) -> Toll {
        let durable = self.log.durable().csn();
        let next = self.readers.all().map(|reader| reader.csn).filter(|&next| next > csn).fold(durable, Csn::min);
        let bytes = self.undo.bytes_between(csn, next) + self.kept_pages.bytes_between(csn, next);
        Toll { age: self.time.now().since(about.since), bytes }
    }

    /// Notes that pages of `table`, of `bytes`, which commit `by` took away are kept for older snapshots. They count, once, for what such a
    /// snapshot takes.
    pub fn keep_pages(&self, table: TableId, by: Csn, bytes: u64) {
        self.kept_pages.note(table, by, bytes);
    }

    /// Notes that pages which commits up to `passed` took away are not kept any more.
    pub fn let_pages_go(&self, passed: Csn) {
        self.kept_pages.forget(passed);
    }
}

fn described(csn: Csn, about: &About, Toll { age, bytes }: Toll) -> OldestSnapshot {
    OldestSnapshot { csn, label: about.label, age, bytes }
}
