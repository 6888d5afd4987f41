//! Redo of pages as they come into memory.
//!
//! A restart opens the database before all of the log is redone. The changes that a page may lack wait in memory, by
//! page, and are applied when the page is read. The loader and the owner of the changes share one rule:
//!
//! **Invariant:** the changes of a page are taken by the holder of its exclusive latch, and are on the page before that
//! latch is released. So a thread that sees the page sees it redone.
//!
//! The type of [`PageRedo::redo`] keeps the first half: it takes the guard. [`Unredone`] keeps the second: a page of
//! which the redo ends early leaves memory, and no other thread sees it.
//!
//! 1. The missing page is entered in the page table, under the latch of its frame, before the read begins. From then on
//!    no other thread takes its changes.
//! 2. Its first change says what becomes of a page that is not sound ([`IfDamaged`]). A page that the log initialises
//!    needs no sound image.
//! 3. The page is read, checked with its stamp, and brought up to date.
//! 4. If it is quarantined now, and the database is open, it goes home as such before the latch is released. What is
//!    logged about it from here on must find it quarantined at the next restart, too.
//!
//! A page that is to be initialised anew, and of which changes wait, is read and redone, too. It is dirty then. So the
//! log of its earlier use is kept until the page goes home.

use crate::cleaner::Cleaner;
use crate::guard::ExclusiveGuard;
use crate::stamps::Stamps;
use foreshore_base::{Error, GroupNo, PageId, Place, Result};
use foreshore_sync::model::mutant;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// The fate of a page that is not sound, by the first change that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfDamaged {
    /// The change initialises the page, so it comes in blank.
    Blank,
    /// It is quarantined.
    Quarantine,
    /// The read fails: the database cannot do without the page.
    Fail,
}

/// Changes of the log that wait for their pages.
pub trait PageRedo: Send + Sync {
    /// Returns what to do if a page is not sound; `None` if no change waits for it. The caller holds the exclusive
    /// latch.
    fn pending(&self, pid: PageId) -> Option<IfDamaged>;

    /// Applies the changes that wait for a page, in log order, and marks the page dirty with the groups of those that
    /// it lacked. Then none waits for it. Returns whether the page must be home, if it is quarantined now, before
    /// another thread sees it.
    ///
    /// # Errors
    /// `Corrupted` for a record that does not fit, unless that quarantines the page. `Corrupted` for a page that is
    /// ahead of the recovered log. `Poisoned` if an earlier redo of the page has failed.
    fn redo(&self, page: &mut ExclusiveGuard<'_>, stamps: &Stamps) -> Result<bool>;

    /// Notes that a page with waiting changes could not be read or redone.
    fn failed(&self, error: &Error);

    /// Returns a group before which no waiting change lies; `None` if none waits. A page whose changes no longer wait
    /// is already marked dirty.
    fn oldest_group(&self) -> Option<GroupNo>;

    /// Returns the largest id of a page with waiting changes; zero if there is none.
    fn last_page(&self) -> PageId;
}

/// A page whose redo has not ended. On drop it leaves memory, unwritten.
pub(crate) struct Unredone<'a> {
    cleaner: &'a Cleaner,
    redo: &'a dyn PageRedo,
    /// Path of the data file.
    path: &'a Path,
    page: Option<ExclusiveGuard<'a>>,
}

impl<'a> Unredone<'a> {
    pub(crate) fn new(cleaner: &'a Cleaner, redo: &'a dyn PageRedo, path: &'a Path, page: ExclusiveGuard<'a>) -> Self {
        Self { cleaner, redo, path, page: Some(page) }
    }

    /// Ends the redo.
    pub(crate) fn done(mut self) -> ExclusiveGuard<'a> {
        self.page.take().expect("the page is there until the end")
    }
}

impl<'a> Deref for Unredone<'a> {
    type Target = ExclusiveGuard<'a>;

    fn deref(&self) -> &ExclusiveGuard<'a> {
        self.page.as_ref().expect("the page is there until the end")
    }
}

impl DerefMut for Unredone<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.page.as_mut().expect("the page is there until the end")
    }
}

impl Drop for Unredone<'_> {
    fn drop(&mut self) {
        let Some(page) = self.page.take() else { return };
        if mutant("sabotage: a page goes home with half of a change") {
            return;
        }
        // Before the page leaves memory: a thread that waits for it must not read it again.
        let why = "its redo has ended early";
        self.redo.failed(&Error::corrupted(self.path, Place::Page(page.pid()), why));
        self.cleaner.discard(page);
    }
}
