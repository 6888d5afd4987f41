//! What a walk of a table finds of large values.

use foreshore_base::{Error, PageId, Result};
use foreshore_btree::{ChainRef, Tree};
use std::collections::HashSet;

/// What a walk has found of chains.
#[derive(Default)]
pub(super) struct ChainPages {
    pages: HashSet<PageId>,
    damage: Vec<Error>,
}

impl ChainPages {
    /// Notes a page.
    pub(super) fn note(&mut self, pid: PageId) {
        self.pages.insert(pid);
    }

    /// Returns the pages and the damage.
    pub(super) fn into_parts(self) -> (HashSet<PageId>, Vec<Error>) {
        (self.pages, self.damage)
    }

    /// Walks the chain that a row of `tree` refers to.
    pub(super) fn add(
        &mut self,
        tree: &Tree,
        found: &ChainRef<'_>,
        in_use: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<()> {
        let pages = &mut self.pages;
        let walked = tree.verify_chain(found, &mut |pid| {
            in_use(pid)?;
            pages.insert(pid);
            Ok(())
        });
        match walked {
            Err(error @ Error::Corrupted { .. }) => self.damage.push(error),
            walked => walked?,
        }
        Ok(())
    }
}
