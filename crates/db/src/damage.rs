//! Damaged pages that an open database knows of. Recovery quarantined them, in this start or an earlier one, or an
//! operation or a check has met them since.
//!
//! The list only informs. Each damaged page is refused by itself where it is read.

use crate::engine::Engine;
use crate::{Error, Result};
use foreshore_base::{Error as Storage, PageId, Place, TableId, TableRef};
use foreshore_buffer::Pool;
use foreshore_space::{MAX_LISTED, Space, can_be_lost};
use foreshore_sync::{LockRank, Mutex};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;

/// Pages that are remembered. A database with more of them has lost more than pages.
const MAX_KNOWN: usize = 4096;
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
pub(crate) struct Damage {
    pages: Mutex<Known>,
    /// The error that hides tables, if the catalogue could not be read as a whole.
    hidden: OnceLock<Error>,
}

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
        Ok(Self { pages: Mutex::new(LockRank::Leaf, known), hidden: OnceLock::new() })
    }

    /// Notes the damaged page that `error` names, if it names one.
    pub(crate) fn note(&self, error: &Error) {
        let Error::Corrupted { table, place: Place::Page(page), why, .. } = error else { return };
        let mut pages = self.pages.lock();
        if pages.len() < MAX_KNOWN {
            pages.entry(*page).or_insert((table.as_ref().map(|table| table.id), *why));
        }
    }

    /// Notes that `error` hides tables.
    pub(crate) fn hide_tables(&self, error: Error) {
        self.note(&error);
        let _ = self.hidden.set(error);
    }

    /// Returns an error if the catalogue may hide tables. Then no name is known to be free, and no id to be new.
    pub(crate) fn check_tables(&self) -> Result<()> {
        self.hidden.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Engine {
    pub(crate) fn damage_stats(&self) -> DamageStats {
        let (pages, first) = {
            let known = self.damage.pages.lock();
            (known.len() as u64, known.iter().take(FIRST).map(|(&page, &found)| (page, found)).collect::<Vec<_>>())
        };
        let first = first.into_iter().map(|(page, (table, why))| self.damaged_page(page, table, why)).collect();
        DamageStats { pages, first }
    }

    /// Returns a damaged page with the name of its table.
    pub(crate) fn damaged_page(&self, page: PageId, table: Option<TableId>, why: &'static str) -> DamagedPage {
        let table = table
            .map(|id| TableRef { name: self.tables.by_id(id).map(|info| info.name.clone()), ..TableRef::from(id) });
        DamagedPage { page, table, why }
    }
}
