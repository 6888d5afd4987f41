//! The handling of damaged pages by recovery and scans.
//!
//! **Undo of a change whose row cannot be reached.** There are two cases:
//!
//! - *Restart.* The damaged page on the path to the row is quarantined, durably before the transaction ends. Every
//!   reader descends the same path from the root, so none can reach the row any more. (A salvage goes around damaged
//!   nodes only in a database without quarantined pages.) The log records that the change
//!   is skipped, before older changes are undone. If a damaged page elsewhere stops the undo, readers can still reach
//!   the row. Then the rollback is parked. An undo that skips all rows up to the next sound page quarantines every page
//!   that hides where that page begins.
//! - *Run time.* A rollback quarantines no page. It skips the change if the page is quarantined already, as for a
//!   transaction that was prepared before the restart. Otherwise it is parked.
//!
//! **A scan over a damaged page** fails there. The caller can continue after the keys of that page, which the parent
//! knows.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::MAX_LEVEL;
use crate::node::{Damage, Goal, NodeView};
use crate::tree::Tree;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::PageRead;
use foreshore_wal::Session;

/// The decision about a row that an undo cannot reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreachableRow {
    /// Retry the undo: the damaged page has just been quarantined.
    Retry,
    /// Skip the row: no operation can reach it.
    Lost,
}

impl Tree {
    /// Decides whether an undo retries or skips the row of `key`, to which the descent has failed with `error`.
    /// `quarantines` is true at a restart.
    ///
    /// # Errors
    /// `error` if it is not damage of a page, or readers can reach the row; errors of
    /// [`foreshore_space::Space::quarantine`].
    pub(crate) fn decide_unreachable(
        &self,
        session: &mut Session,
        key: &[u8],
        mut error: Error,
        quarantines: bool,
    ) -> Result<UnreachableRow> {
        loop {
            let Some(pid) = error.damaged_page() else { return Err(error) };
            if self.ensure_quarantined(session, pid, &error, quarantines)? {
                return Ok(UnreachableRow::Retry);
            }
            let descent = self.descend::<ReadGuard<'_>>(Goal::At(key), 0, false, &mut Restarts::default());
            match descent.map(drop) {
                Ok(()) => return Err(error),
                Err(other) if other.damaged_page() == Some(pid) => return Ok(UnreachableRow::Lost),
                Err(other) => error = other,
            }
        }
    }

    /// Returns where an undo continues that has skipped the row of `key`: the smallest key above `key` that may lie
    /// outside the quarantined pages. `None` if there is none. `quarantines` is true at a restart.
    ///
    /// A damaged node whose next separator cannot be read may still lead readers to keys behind `key`. So it is
    /// quarantined before the keys below it are skipped.
    ///
    /// # Errors
    /// `Corrupted` if such a node is not quarantined at run time; errors of a read and of
    /// [`foreshore_space::Space::quarantine`].
    pub(crate) fn next_after_skip(
        &self,
        session: &mut Session,
        key: &[u8],
        quarantines: bool,
    ) -> Result<Option<Vec<u8>>> {
        for level in 1..=MAX_LEVEL {
            let error = match self.next_separator_on(key, level) {
                Err(error @ Error::Corrupted { .. }) => error,
                next => return next,
            };
            let Some(pid) = error.damaged_page() else { return Err(error) };
            self.ensure_quarantined(session, pid, &error, quarantines)?;
            if pid == self.root() {
                return Ok(None);
            }
        }
        Err(self.corrupted(self.root(), "the root is too high"))
    }

    /// Quarantines the damaged page `pid`, unless it is quarantined, and returns whether it did. `quarantines` is true
    /// at a restart.
    ///
    /// # Errors
    /// `cause` if the page is not quarantined at run time; errors of a read and of
    /// [`foreshore_space::Space::quarantine`].
    fn ensure_quarantined(&self, session: &mut Session, pid: PageId, cause: &Error, quarantines: bool) -> Result<bool> {
        match self.pool().quarantined(pid) {
            Ok(Some(_)) => return Ok(false),
            Ok(None) | Err(Error::Corrupted { .. }) => {}
            Err(other) => return Err(other),
        }
        if !quarantines {
            return Err(cause.clone());
        }
        self.trees().space().quarantine(pid, self.table(), session).map(|()| true)
    }

    /// Returns the smallest key above `key` at which a scan can continue: the next separator in the lowest sound node
    /// above the leaf of `key`. `None` if that node has none.
    ///
    /// # Errors
    /// `Corrupted` if the root is damaged, or is a leaf; errors of a read.
    pub fn separator_after_damage(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut damage = None;
        for level in 1..=MAX_LEVEL {
            match self.next_separator_on(key, level) {
                Ok(found) => return Ok(found),
                // A level above the root is damage too, and the first error says more.
                Err(error @ Error::Corrupted { .. }) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Err(damage.expect("each level has failed"))
    }

    /// Returns what [`separator_after_damage`](Self::separator_after_damage) does, and `None` if damage hides the next
    /// leaf, too.
    ///
    /// # Errors
    /// Those of a read.
    pub fn next_after_damage(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.separator_after_damage(key) {
            Err(Error::Corrupted { .. }) => Ok(None),
            next => next,
        }
    }

    pub(crate) fn next_separator_on(&self, key: &[u8], level: u8) -> Result<Option<Vec<u8>>> {
        let mut restarts = Restarts::default();
        loop {
            let descended = self.descend::<ReadGuard<'_>>(Goal::At(key), level, false, &mut restarts)?;
            let guard = descended.unwrap_or_else(|_| unreachable!("open splits are passed"));
            let found = NodeView::view(guard.page()).and_then(|node| match node.level() {
                found if found == level => next_separator(&node, key),
                _ => Err("the tree has no node on this level"),
            });
            if guard.holds() {
                return found.map_err(|why| self.corrupted(guard.pid(), why));
            }
            self.restart(&mut restarts);
        }
    }
}

fn next_separator<P: PageRead>(node: &NodeView<P>, key: &[u8]) -> Result<Option<Vec<u8>>, Damage> {
    let at = node.entries_to(Goal::At(key))?;
    let found = match at < node.len() {
        true => node.copy_key(at, Vec::new())?,
        false if node.has_high() => node.copy_high(Vec::new())?,
        false => return Ok(None),
    };
    // The search may have been misled by a head that is not that of its key.
    if found.as_slice() > key { Ok(Some(found)) } else { Err("a separator is not above the keys before it") }
}
