//! The xids of transactions: their source, and the transactions that run under them.
//!
//! | part | job |
//! |---|---|
//! | `ceiling` | the next xid, and the durable ceiling below which xids may be drawn |
//! | `losers` | the waits for transactions of the previous run that are still undone |
//! | `active` | the xid of each running transaction, and the xids that each session has drawn for later |
//!
//! 1. A session draws a block of xids below the limit, and reserves their status words.
//! 2. A transaction that changes or locks its first row takes the next xid of its session's block.
//! 3. A session that finds no xid raises the limit: it logs a higher ceiling, or moves the status window. It does both
//!    ahead of need.

mod active;
mod ceiling;
mod losers;

pub(crate) use active::{Active, ActiveSlots};
pub use losers::HelpUndo;

use crate::visibility::Visibility;
use crate::visibility::status::Status;
use ceiling::{Bound, RAISE_COST, XidSource};
use foreshore_base::{Error, GroupNo, Result, Xid};
use foreshore_lock::LockManager;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_wal::{Log, Session};
use losers::LoserWaits;
use std::sync::Arc;
use std::time::Duration;

/// Most xids that a session draws at once. Their status words fill cache lines of their own.
const MOST_DRAWN: usize = 64;
/// Number of xids drawn between two moves of the status window.
const SLIDE_STRIDE: u64 = 4096;
/// Number of window moves that a session has at least to use what it has drawn.
const STRIDES: u64 = 4;

/// The running transaction whose log is the oldest, with what is kept for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OldestTransaction {
    /// Its xid.
    pub xid: Xid,
    /// The first log group that it keeps from being truncated; `None` if the log has no record of it.
    pub first_group: Option<GroupNo>,
    /// Its label.
    pub label: &'static str,
    /// The time that it has run. A transaction that was prepared before the last restart has run since that restart.
    pub age: Duration,
    /// Approximate number of bytes of log that are kept for it.
    pub log_bytes: u64,
    /// Number of row versions that are kept for its rollback.
    pub versions: u64,
}

/// The source of xids, and the transactions that have one. Sessions are named by the numbers of their lock owners.
pub struct Xids {
    log: Log,
    locks: Arc<LockManager>,
    source: XidSource,
    active: ActiveSlots,
    /// Most xids that a session draws at once in this database. Zero if it is only read: no xid is drawn.
    draw: u64,
    losers: LoserWaits,
}

impl Xids {
    /// Returns the xids from `first` on. The ceiling moves up by `block`. At most `sessions` sessions draw, beside a
    /// status window of `capacity` words. None is drawn if the database is only read.
    pub(crate) fn new(
        log: Log,
        locks: Arc<LockManager>,
        first: Xid,
        block: u64,
        sessions: usize,
        capacity: usize,
        read_only: bool,
    ) -> Self {
        let (source, active) = (XidSource::new(first, block), ActiveSlots::new(sessions));
        let draw = if read_only { 0 } else { most_drawn(capacity, sessions) };
        Self { log, locks, source, active, draw, losers: LoserWaits::new(first) }
    }

    /// Returns an error if the database is only read.
    pub(crate) const fn check_writable(&self) -> Result<()> {
        if self.draw == 0 { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Returns the first xid that was not drawn.
    pub(crate) fn next(&self) -> Xid {
        self.source.next()
    }

    /// Returns the newest ceiling in the log. No xid at or above it was handed out.
    pub(crate) fn ceiling(&self) -> Xid {
        self.source.ceiling()
    }

    /// Draws an xid for the transaction of a session, and publishes it to checkpoints; `None` if none is left below the
    /// limit. `logged` is set for a transaction of the previous run: its xid in the log, and the group of its first
    /// record.
    pub(crate) fn draw(&self, visibility: &Visibility, index: usize, logged: Option<(Xid, GroupNo)>) -> Option<Xid> {
        if self.draw == 0 {
            return None;
        }
        let (logged_as, first_group) = logged.unzip();
        let window = visibility.window();
        let draw = || {
            let block = self.source.draw(self.draw)?;
            window.set_aside(block.clone());
            Some(block)
        };
        self.active.enter(index, first_group, draw, |xid| window.begin(xid), logged_as)
    }

    /// Raises the limit that has refused the next xid. With `kept_back` it may use log space that is kept for
    /// rollbacks.
    ///
    /// # Errors
    /// `TooManyTransactions` when more run than the status window has words for; `XidsUsedUp`; `DiskFull`; `LogSpace`;
    /// `Poisoned`.
    pub(crate) fn raise_limit(&self, visibility: &Visibility, session: &mut Session, kept_back: bool) -> Result<()> {
        match self.bound(visibility) {
            Bound::None => return Ok(()),
            Bound::Ceiling => {
                if kept_back {
                    session.reserve_rollback(RAISE_COST)?
                } else {
                    session.reserve(RAISE_COST)?
                }
                if let Some(lsn) = self.source.raise(session, &self.log)? {
                    // WAIT: help - or park behind the leader. Only when half a block of xids went faster than one
                    // write.
                    self.log.force(lsn)?;
                }
            }
            Bound::Window => {
                if self.slide(visibility, u64::MAX) == 0 {
                    // WAIT: help - or park behind the leader: the oldest commit in the window is not durable.
                    self.log.force(self.log.current())?;
                    pause::point("txn: the window is full");
                    if self.is_window_held(visibility) && self.bound(visibility) == Bound::Window {
                        let oldest = self.oldest_transaction().map_or("", |active| active.label);
                        return Err(Error::TooManyTransactions { max: visibility.window().capacity(), oldest });
                    }
                }
            }
        }
        self.bound(visibility);
        Ok(())
    }

    /// Returns what stops the next xid, after it has raised the limit as far as permitted.
    fn bound(&self, visibility: &Visibility) -> Bound {
        self.source.raise_limit(&self.log, || visibility.window().cleared())
    }

    fn slide(&self, visibility: &Visibility, most: u64) -> u64 {
        visibility.slide(self.next(), most)
    }

    /// Returns whether a running transaction holds the window. A transaction that has just committed holds it only
    /// until it is durable, and does not count.
    fn is_window_held(&self, visibility: &Visibility) -> bool {
        let window = visibility.window();
        let lo = window.lo();
        if window.get(lo) == Status::Spare {
            self.void_left(visibility, self.next());
        }
        self.slide(visibility, u64::MAX) == 0 && window.lo() == lo && window.get(lo) == Status::Live
    }

    /// Moves the window and the ceiling ahead of need. The session that drew `xid` calls it. `sessions` counts the
    /// sessions that draw.
    ///
    /// # Errors
    /// Those of the status table; `XidsUsedUp`; `DiskFull`; `LogSpace`; `Poisoned`.
    pub(crate) fn keep_ahead(
        &self,
        visibility: &Visibility,
        xid: Xid,
        session: &mut Session,
        sessions: impl FnOnce() -> usize,
    ) -> Result<()> {
        let stride = SLIDE_STRIDE.min(visibility.window().capacity() as u64 / 8);
        if xid.0.is_multiple_of(stride) {
            self.void_old(visibility, sessions());
            // The window moves faster than xids are drawn, so it catches up after an old transaction has ended.
            self.slide(visibility, 4 * stride);
            visibility.prepare_table(xid)?;
        }
        if self.source.is_near(xid) {
            session.reserve(RAISE_COST)?;
            if let Some(lsn) = self.source.raise(session, &self.log)? {
                self.log.flush_soon(session, lsn);
            }
        }
        Ok(())
    }

    /// Voids the unused blocks of sessions that start below `below`, so that the window can move over them. Returns the
    /// running transactions. No status table learns of it, because no row has such an xid.
    fn void_left(&self, visibility: &Visibility, below: Xid) -> Vec<Active> {
        self.active.take_left(below, |left| left.for_each(|xid| visibility.window().void(Xid(xid))))
    }

    /// Voids blocks that hold the window and were drawn long ago. Recent xids are spared: a few strides and two blocks
    /// per session, but at most a quarter of the window. A session that keeps drawing has used its older blocks by
    /// then, so it loses none.
    fn void_old(&self, visibility: &Visibility, sessions: usize) {
        let window = visibility.window();
        let in_use = STRIDES * SLIDE_STRIDE + 2 * self.draw * sessions as u64;
        let old = Xid(self.next().0.saturating_sub(in_use.min(window.capacity() as u64 / 4)));
        if old > window.lo() && window.get(window.lo()) == Status::Spare {
            self.void_left(visibility, old);
        }
    }

    /// Returns the next xid and the running transactions, which were read after it. No xid below it will be used later,
    /// because sessions lose what they have drawn.
    pub(crate) fn for_checkpoint(&self, visibility: &Visibility) -> (Xid, Vec<Active>) {
        // The next xid before the slots: see `ActiveSlots`.
        let next = self.next();
        (next, self.void_left(visibility, next))
    }

    /// Returns how losers of a restart are waited for.
    pub(crate) const fn losers(&self) -> &LoserWaits {
        &self.losers
    }

    /// Returns the running transactions, by session.
    pub(crate) const fn active(&self) -> &ActiveSlots {
        &self.active
    }

    /// Records that the first record of a session's transaction is about to be appended.
    pub(crate) fn note_first_record(&self, index: usize) {
        if !mutant("txn: checkpoints overlook the first record") {
            self.active.note_first_record(index, || self.log.next_group());
        }
    }

    /// Returns the running transaction with an xid whose log is the oldest. Transactions without a record come last,
    /// the oldest xid first.
    #[must_use]
    pub fn oldest_transaction(&self) -> Option<OldestTransaction> {
        let by_log = |&(_, active): &(usize, Active)| (active.first_group.is_none(), active.first_group, active.xid);
        let (index, Active { xid, first_group }) = self.active.all().min_by_key(by_log)?;
        let (label, age) = self.locks.running(index)?;
        let (log_bytes, versions) =
            (first_group.map_or(0, |group| self.log.bytes_since(group)), self.active.versions(index));
        Some(OldestTransaction { xid, first_group, label, age, log_bytes, versions })
    }

    /// Adds the oldest transaction's label to an error of a full disk, if only that transaction keeps log from being
    /// truncated.
    #[cold]
    pub(crate) fn name_log_holder(&self, error: Error) -> Error {
        let Error::DiskFull { path, held_by: None } = error else { return error };
        let keeps = |oldest: &OldestTransaction| {
            let kept = oldest.first_group.map(|group| self.log.truncatable(group));
            kept.is_some_and(|kept| self.log.truncatable(self.log.next_group()) > kept)
        };
        Error::DiskFull { path, held_by: self.oldest_transaction().filter(keeps).map(|oldest| oldest.label) }
    }

    /// Returns the first log group that a running transaction keeps from being truncated.
    #[must_use]
    pub fn oldest_group(&self) -> Option<GroupNo> {
        self.active.all().filter_map(|(_, active)| active.first_group).min()
    }
}

impl std::fmt::Debug for Xids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Xids").field("source", &self.source).finish_non_exhaustive()
    }
}

/// Returns how many xids a session draws at once. It is a power of two, so that the window moves at the first xid of a
/// block. Unused blocks of all sessions take at most an eighth of the window.
fn most_drawn(capacity: usize, sessions: usize) -> u64 {
    let most = (capacity / (8 * sessions)).clamp(1, MOST_DRAWN);
    1 << most.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_sessions_take_an_eighth_of_the_window() {
        for (capacity, sessions, drawn) in [(16, 64, 1), (1 << 10, 64, 2), (1 << 10, 3, 32), (1 << 20, 1024, 64)] {
            assert_eq!(most_drawn(capacity, sessions), drawn, "{capacity} words, {sessions} sessions");
            assert!(drawn == 1 || drawn as usize * sessions <= capacity / 8);
        }
    }
}
