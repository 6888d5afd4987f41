//! Redo after a restart, page by page, and what checkpoints have to know of it.

use super::Pool;
use crate::frame::Frame;
use crate::page_redo::PageRedo;
use foreshore_base::{GroupNo, PageId, Result};
use foreshore_sync::model::mutant;
use std::path::Path;
use std::sync::Arc;

impl Pool {
    /// Has the changes that wait for a page applied when the page comes into memory. Called at most once, before the
    /// first page does.
    pub fn set_redo(&self, redo: Arc<dyn PageRedo>) {
        self.loader.set_redo(redo);
    }

    /// Applies the changes that wait for a page, which is read if it is not in memory.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`]; those of [`PageRedo::redo`].
    pub fn redo(&self, pid: PageId) -> Result<()> {
        let page = self.exclusive(pid)?;
        // On a miss there are none any more.
        self.loader.redo(page).map(drop)
    }

    /// Applies the changes that wait for a page if it is in memory.
    ///
    /// # Errors
    /// Those of [`Pool::redo`].
    pub fn redo_resident(&self, pid: PageId) -> Result<()> {
        match self.exclusive_resident(pid)? {
            Some(page) => self.loader.redo(page).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the path of the data file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.loader.path()
    }

    /// Returns a group before which no page lacks a change that waits for it; `None` if none waits.
    #[must_use]
    pub fn pending_from(&self) -> Option<GroupNo> {
        if mutant("sabotage: a checkpoint forgets the pages that wait for their redo") {
            return None;
        }
        self.loader.page_redo().and_then(PageRedo::oldest_group)
    }

    /// Returns the oldest group that a page needs, be it dirty or not redone yet; `None` if none does.
    #[must_use]
    pub fn min_rec_group(&self) -> Option<GroupNo> {
        let dirty = || self.residency.memory().frames().iter().filter_map(Frame::rec_group).min();
        if mutant("pool: dirty pages are listed before those that wait for their redo") {
            return dirty().into_iter().chain(self.pending_from()).min();
        }
        // First: a page is dirty before its changes no longer wait.
        let pending = self.pending_from();
        dirty().into_iter().chain(pending).min()
    }

    /// Returns the largest id of a page that is in memory or waits for its redo; zero if there is none.
    #[must_use]
    pub fn last_page(&self) -> PageId {
        let pending = self.loader.page_redo().map(PageRedo::last_page);
        self.residency.memory().frames().iter().map(Frame::pid).chain(pending).max().unwrap_or_default()
    }
}
