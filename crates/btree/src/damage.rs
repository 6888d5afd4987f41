//! The handling of damaged pages by recovery and scans.
//!
//! **Undo of a change whose row cannot be reached.** There are two cases:
//!
//! - *Restart.* The restart quarantines the damaged page on the path to the row, durably before the transaction ends.
//!   Readers descend the same path from the root, so no reader can reach that row any more. Its change is skipped for
//!   good: the log says so before older changes are undone, and the transaction ends. If a damaged page elsewhere stops
//!   the undo, the row is still readable, and the rollback is parked.
//! - *Run time.* A rollback quarantines nothing and is parked too. It skips the change only if the page is quarantined
//!   already, as for a transaction prepared before the restart.
//!
//! **A scan over a damaged page** fails there. The caller can continue after the keys of that page, which the parent
//! knows.

use crate::access::{Access, ReadGuard};
use crate::descend::Restarts;
use crate::format::MAX_LEVEL;
use crate::node::{Damage, Goal, NodeView};
use crate::tree::Tree;
use foreshore_base::{Error, Result};
use foreshore_buffer::PageRead;
use foreshore_wal::Session;

/// The decision about a row that an undo cannot reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// Retry, because the damaged page is now quarantined.
    TryAgain,
    /// Skip the row, because no operation can reach it.
    Lost,
}

impl Tree {
    /// Decides about the row of `key`, whose descent failed with `error`. `quarantines` is true at a restart.
    ///
    /// # Errors
    /// `error` if it is not damage of a page, or readers can reach the row; errors of
    /// [`foreshore_space::Space::quarantine`].
    pub(crate) fn meet_damage(
        &self,
        session: &mut Session,
        key: &[u8],
        mut error: Error,
        quarantines: bool,
    ) -> Result<Row> {
        loop {
            let Some(pid) = error.damaged_page() else { return Err(error) };
            let is_quarantined = match self.pool().quarantined(pid) {
                Ok(found) => found.is_some(),
                Err(Error::Corrupted { .. }) => false,
                Err(other) => return Err(other),
            };
            if !is_quarantined && !quarantines {
                return Err(error);
            }
            if !is_quarantined {
                self.trees().space().quarantine(pid, self.table(), session)?;
                return Ok(Row::TryAgain);
            }
            let way = self.descend::<ReadGuard<'_>>(Goal::At(key), 0, false, &mut Restarts::default());
            match way.map(drop) {
                Ok(()) => return Err(error),
                Err(met) if met.damaged_page() == Some(pid) => return Ok(Row::Lost),
                Err(met) => error = met,
            }
        }
    }

    /// Returns the key at which a scan continues after a damaged page. It is the smallest key after `key` at which
    /// another leaf or lost subtree begins, according to the lowest sound node above the leaf of `key`. `None` if there
    /// is none.
    ///
    /// # Errors
    /// `Corrupted` if the root is damaged; errors of a read.
    pub fn beyond_damage(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut damage = None;
        for level in 1..=MAX_LEVEL {
            match self.separator_behind(key, level) {
                Ok(found) => return Ok(found),
                // A level above the root is damage too, and the first error says more.
                Err(error @ Error::Corrupted { .. }) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Err(damage.unwrap_or_else(|| self.corrupted(self.root(), "the root is too high")))
    }

    fn separator_behind(&self, key: &[u8], level: u8) -> Result<Option<Vec<u8>>> {
        let mut restarts = Restarts::default();
        loop {
            let Ok(guard) = self.descend::<ReadGuard<'_>>(Goal::At(key), level, false, &mut restarts)? else {
                continue;
            };
            let found = NodeView::view(guard.page()).and_then(|node| match node.level() {
                found if found == level => next_separator(&node, key),
                _ => Err("a level above the root is referred to"),
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
