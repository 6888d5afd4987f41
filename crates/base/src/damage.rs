//! Damage: where it is, and whose.

use crate::{Error, PageId, Place, TableId};
use std::path::PathBuf;

impl Error {
    /// Corruption of `file` at `place`.
    pub fn corrupted(file: impl Into<PathBuf>, place: Place, why: &'static str) -> Self {
        Self::Corrupted { table: None, file: file.into(), place, why }
    }

    /// Notes that a damaged page is one of table `id`, unless a table is named already.
    #[must_use]
    pub fn in_table(mut self, id: TableId) -> Self {
        if let Self::Corrupted { table, place: Place::Page(_), .. } = &mut self {
            table.get_or_insert(id);
        }
        self
    }

    /// The page that [`Error::Corrupted`] names; none for damage of another kind.
    #[must_use]
    pub const fn damaged_page(&self) -> Option<PageId> {
        match self {
            Self::Corrupted { place: Place::Page(page), .. } => Some(*page),
            _ => None,
        }
    }
}
