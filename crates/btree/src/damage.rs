//! Recovery and scans beside damaged pages.
//!
//! **A change that is to be taken back, in a row that is out of reach.** A restart quarantines the page in the way, durably before the
//! end of the transaction is. Readers come to rows by the same way, from the root, so no reader reads that row any more, and
//! its change is passed over for good: the log names it where older changes are taken back, and the transaction ends. Not so where
//! a page beside the way is damaged: then the row is read, and the rollback is parked. A rollback at run time quarantines nothing and is
//! parked, too, unless the page in the way is quarantined already, as for a transaction that was prepared before the restart.
//!
//! **A scan over a damaged page** fails there. It can go on behind what the page had, which the node above it knows.

use crate::descend::{Access, ReadGuard, Restarts};
use crate::format::MAX_LEVEL;
use crate::node::{Damage, Goal, NodeView};
use crate::tree::Tree;
use foreshore_base::{Error, Result};
use foreshore_buffer::PageRead;
use foreshore_wal::Session;

/// What recovery does about a row that it has failed to come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// It tries again: the damaged page is quarantined now.
    TryAgain,
    /// It leaves the row alone, which no operation can reach.
    Lost,
}

impl Tree {
    /// Decides about the row of `key`, in whose way `error` was met. `quarantines`: at a restart.
    ///
    /// # Errors
    /// `error` where it is not damage of a page, or readers come to the row; what [`foreshore_space::Space::quarantine`] fails with.
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
                self.trees.space().quarantine(pid, self.table, session)?;
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

    /// The smallest key behind `key` at which another leaf, or a subtree whose nodes are lost, begins, as the lowest sound node above
    /// the leaf of `key` has it; `None` if that is the last one. Where a scan goes on that a damaged page has ended.
    ///
    /// # Errors
    /// `Corrupted` if the root is damaged; what a read can fail with.
    pub fn beyond_damage(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut damage = None;
        for level in 1..=MAX_LEVEL {
            match self.separator_behind(key, level) {
                Ok(found) => return Ok(found),
                // A level above the root is damage too, and the first error tells more.
                Err(error @ Error::Corrupted { .. }) => drop(damage.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Err(damage.unwrap_or_else(|| self.corrupted(self.root, "the root is too high")))
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
        true => node.copy_key(at)?,
        false if node.has_high() => node.copy_high()?,
        false => return Ok(None),
    };
    // The search may have been led by a head that is not that of its key.
    if found.as_slice() > key { Ok(Some(found)) } else { Err("a separator is not above the keys before it") }
}
