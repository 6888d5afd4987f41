//! The xids of transactions: where they come from, and which transactions run under them.
//!
//! | part | knows |
//! |---|---|
//! | `ceiling` | the next xid, and how far xids may go before a higher ceiling is durable |
//! | `active` | the xid of each running transaction, and what each session has drawn for later |
//!
//! 1. A session draws a block of xids below the limit, and sets their status words aside.
//! 2. A transaction that changes or locks its first row takes the next xid of its session's block.
//! 3. A session that finds no xid raises the limit: it logs a higher ceiling, or moves the status window. It does both
//!    ahead of need.

mod active;
mod ceiling;

pub(crate) use active::{Active, ActiveSlots};

use crate::visibility::Visibility;
use crate::visibility::status::Status;
use ceiling::{Bound, RAISE_COST, XidSource};
use foreshore_base::{Error, GroupNo, Result, Xid};
use foreshore_lock::LockManager;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_wal::{Log, Session};
use std::sync::Arc;
use std::time::Duration;

/// Most xids that a session draws at once. Their status words are lines of their own.
const MOST_DRAWN: usize = 64;
/// Xids drawn between two moves of the status window.
const SLIDE_STRIDE: u64 = 4096;
/// A session has at least so many moves of the window to use what it has drawn.
const STRIDES: u64 = 4;

/// The running transaction whose log is the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestTransaction {
    /// Its xid.
    pub xid: Xid,
    /// The first log group that it keeps from being truncated; `None` if the log has no record of it.
    pub first_group: Option<GroupNo>,
    /// Its label.
    pub label: &'static str,
    /// How long it has run. One that was prepared before the last restart has run since then.
    pub age: Duration,
    /// About how many bytes of log are kept for it.
    pub log_bytes: u64,
    /// Versions of rows that are kept for its rollback.
    pub versions: u64,
}

/// The source of xids, and the transactions that have one. Sessions are named by the numbers of their lock owners.
pub struct Xids {
    log: Log,
    locks: Arc<LockManager>,
    source: XidSource,
    active: ActiveSlots,
    /// Most xids that a session draws at once here.
    draw: u64,
}

impl Xids {
    /// Returns the xids from `first` on, `block` of them to a ceiling, for at most so many `sessions` beside a status
    /// window of `capacity` words.
    pub(crate) fn new(
        log: Log,
        locks: Arc<LockManager>,
        first: Xid,
        block: u64,
        sessions: usize,
        capacity: usize,
    ) -> Self {
        let (source, active) = (XidSource::new(first, block), ActiveSlots::new(sessions));
        Self { log, locks, source, active, draw: most_drawn(capacity, sessions) }
    }

    /// Returns the first xid that was not drawn.
    pub(crate) fn next(&self) -> Xid {
        self.source.next()
    }

    /// Returns the newest ceiling in the log. No xid at or above it was handed out.
    pub(crate) fn ceiling(&self) -> Xid {
        self.source.ceiling()
    }

    /// Draws an xid for the transaction of a session, and shows it to checkpoints; `None` if none is left below the
    /// limit. `logged`: the xid that the log has a transaction of the run before under, and the group of its first
    /// record.
    pub(crate) fn draw(&self, visibility: &Visibility, index: usize, logged: Option<(Xid, GroupNo)>) -> Option<Xid> {
        let (logged_as, first_group) = logged.unzip();
        let window = visibility.window();
        let draw = || {
            let block = self.source.draw(self.draw)?;
            window.set_aside(block.clone());
            Some(block)
        };
        self.active.enter(index, first_group, draw, |xid| window.begin(xid), logged_as)
    }

    /// Raises the limit that has refused the next xid. `kept_back`: with log space for rollbacks, if need be.
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

    /// Returns what stops the next xid after the limit was raised as far as it may be.
    fn bound(&self, visibility: &Visibility) -> Bound {
        self.source.raise_limit(&self.log, || visibility.window().cleared())
    }

    fn slide(&self, visibility: &Visibility, most: u64) -> u64 {
        visibility.slide(self.next(), most)
    }

    /// Returns whether running transactions hold the window: as many as it can pin, and one more. One that has only
    /// just committed keeps it until that is durable.
    fn is_window_held(&self, visibility: &Visibility) -> bool {
        let window = visibility.window();
        let lo = window.lo();
        if window.get(lo) == Status::Spare {
            self.void_left(visibility, self.next());
        }
        self.slide(visibility, u64::MAX) == 0 && window.lo() == lo && window.get(lo) == Status::Live
    }

    /// Moves window and ceiling on ahead of need, by the session that drew `xid`. `sessions` counts the sessions that
    /// draw.
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
            // Faster than xids are drawn, so that it catches up after an old transaction has ended.
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

    /// Takes away what sessions have drawn and not used, where it starts below `below`, so that the window can move
    /// over it. Returns the transactions that run. No status table is told: no row has such an xid.
    fn void_left(&self, visibility: &Visibility, below: Xid) -> Vec<Active> {
        self.active.take_left(below, |left| left.for_each(|xid| visibility.window().void(Xid(xid))))
    }

    /// Takes away what holds the window and was drawn long ago. A session that goes on drawing has used it by then, and
    /// is not made to draw anew: it may draw two blocks in a few strides. Never more than a quarter of the window.
    fn void_old(&self, visibility: &Visibility, sessions: usize) {
        let window = visibility.window();
        let in_use = STRIDES * SLIDE_STRIDE + 2 * self.draw * sessions as u64;
        let old = Xid(self.next().0.saturating_sub(in_use.min(window.capacity() as u64 / 4)));
        if old > window.lo() && window.get(window.lo()) == Status::Spare {
            self.void_left(visibility, old);
        }
    }

    /// Returns the next xid, which was read before, and the transactions that run. No xid below the next one is still
    /// to be used: sessions lose what they have drawn for later.
    pub(crate) fn for_checkpoint(&self, visibility: &Visibility) -> (Xid, Vec<Active>) {
        // The next xid before the slots: see `ActiveSlots`.
        let next = self.next();
        (next, self.void_left(visibility, next))
    }

    /// Returns the transactions that run, by session.
    pub(crate) const fn active(&self) -> &ActiveSlots {
        &self.active
    }

    /// Notes that the first record of a session's transaction is about to be appended.
    pub(crate) fn note_first_record(&self, index: usize) {
        if !mutant("txn: checkpoints overlook the first record") {
            self.active.note_first_record(index, || self.log.next_group());
        }
    }

    /// Returns the running transaction whose log is the oldest, of those that have an xid. Those without a record come
    /// last, the one with the oldest xid first.
    #[must_use]
    pub fn oldest_transaction(&self) -> Option<OldestTransaction> {
        let by_log = |&(_, active): &(usize, Active)| (active.first_group.is_none(), active.first_group, active.xid);
        let (index, Active { xid, first_group }) = self.active.all().min_by_key(by_log)?;
        let (label, age) = self.locks.running(index)?;
        let (log_bytes, versions) =
            (first_group.map_or(0, |group| self.log.bytes_since(group)), self.active.versions(index));
        Some(OldestTransaction { xid, first_group, label, age, log_bytes, versions })
    }

    /// Names the oldest transaction in an error that says that the disk is full, if log could be truncated but for that
    /// one.
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

/// Returns how many xids a session draws at once: a power of two, so that the window moves at the first of a block.
/// What all sessions have drawn and not used is an eighth of the window at most.
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
