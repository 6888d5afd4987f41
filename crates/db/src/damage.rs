//! Damaged pages that an open database knows of. Recovery quarantined them, in this start or an earlier one, or an
//! operation or a check has met them since.
//!
//! The list only informs. Each damaged page is refused by itself where it is read.

use crate::catalogue::Catalogue;
use crate::{Error, Result, trace};
use foreshore_base::{Error as Storage, PageId, Place, TableId, TableRef};
use foreshore_buffer::Pool;
use foreshore_space::{MAX_LISTED, Space, can_be_lost};
use foreshore_sync::{LockRank, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::{fmt, sync::Arc};

/// Pages that are remembered. A database with more of them has lost more than pages.
pub(crate) const MAX_KNOWN: usize = 4096;
/// Pages that [`Stats`](crate::Stats) lists.
const FIRST: usize = 8;

/// A page whose contents are lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedPage {
    /// Number of the page.
    pub page: PageId,
    /// Table of the page, if known. Maps of pages belong to none.
    pub table: Option<TableRef>,
    /// Reason why the page is refused.
    pub why: &'static str,
}

impl DamagedPage {
    /// Returns a damaged page with the name of its table.
    pub(crate) fn new(catalogue: &Catalogue, page: PageId, table: Option<TableId>, why: &'static str) -> Self {
        let name = |id| catalogue.by_id(id).map(|info| Arc::clone(&info.name));
        Self { page, table: table.map(|id| TableRef { name: name(id), ..TableRef::from(id) }), why }
    }
}

impl fmt::Display for DamagedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, table, why } = self;
        match table {
            Some(table) => write!(f, "table {table} page {page}: {why}"),
            None => write!(f, "page {page}: {why}"),
        }
    }
}

/// Damage as [`Stats`](crate::Stats) shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamageStats {
    /// Number of known damaged pages. [`Db::examine`](crate::Db::examine) finds all of them.
    pub pages: u64,
    /// The first of these pages, at most eight.
    pub first: Vec<DamagedPage>,
}

type Known = BTreeMap<PageId, (Option<TableId>, &'static str)>;

/// Damage known to an engine.
pub(crate) struct Damage(Mutex<Known>);

impl Damage {
    /// Finds the damaged pages among `suspects` and those that this start has quarantined by log records. Leaves in
    /// `suspects` those that the superblock has to list.
    pub(crate) fn found(pool: &Pool, space: &Space, suspects: &mut Vec<PageId>) -> Result<Self, Storage> {
        suspects.extend(space.quarantined());
        let mut known = Known::new();
        for pid in suspects.drain(..).filter(|&pid| can_be_lost(pid)).collect::<BTreeSet<_>>() {
            match pool.quarantined(pid) {
                Ok(None) => {}
                Ok(Some((table, why))) => drop(known.insert(pid, (Some(table), why))),
                Err(Storage::Corrupted { why, .. }) => drop(known.insert(pid, (None, why))),
                Err(error) => return Err(error),
            }
        }
        suspects.extend(known.keys().take(MAX_LISTED));
        Ok(Self(Mutex::new(LockRank::Leaf, known)))
    }

    /// Notes the pages that redo has quarantined since the start.
    pub(crate) fn note_redone(&self, pool: &Pool, quarantined: &[PageId]) {
        for &pid in quarantined {
            let is_known = |known: &Known| known.len() >= MAX_KNOWN || known.contains_key(&pid);
            if !is_known(&self.0.lock())
                && let Ok(Some((table, why))) = pool.quarantined(pid)
            {
                self.0.lock().insert(pid, (Some(table), why));
            }
        }
    }

    /// Notes the damaged page that `error` names, if it names one.
    pub(crate) fn note(&self, error: &Error) {
        let Error::Corrupted { table, place: Place::Page(page), why, .. } = error else { return };
        let mut pages = self.0.lock();
        if pages.len() < MAX_KNOWN && !pages.contains_key(page) {
            pages.insert(*page, (table.as_ref().map(|table| table.id), *why));
            // A subscriber runs code of users.
            drop(pages);
            trace::damaged(error);
        }
    }

    pub(crate) fn stats(&self, catalogue: &Catalogue) -> DamageStats {
        let (pages, first) = {
            let known = self.0.lock();
            (known.len() as u64, known.iter().take(FIRST).map(|(&page, &found)| (page, found)).collect::<Vec<_>>())
        };
        let first =
            first.into_iter().map(|(page, (table, why))| DamagedPage::new(catalogue, page, table, why)).collect();
        DamageStats { pages, first }
    }
}
