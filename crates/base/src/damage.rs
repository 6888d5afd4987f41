//! Damage: where it is, and whose.

use crate::{Error, PageId, Place, TableId, TableRef};
use std::fmt;
use std::path::{Path, PathBuf};

impl Error {
    /// Corruption of `file` at `place`.
    pub fn corrupted(file: impl Into<PathBuf>, place: Place, why: &'static str) -> Self {
        Self::Corrupted { table: None, file: file.into(), place, why }
    }

    /// Notes that a damaged page is one of table `id`, unless a table is named already.
    #[must_use]
    pub fn in_table(mut self, id: TableId) -> Self {
        if let Self::Corrupted { table, place: Place::Page(_), .. } = &mut self {
            table.get_or_insert(id.into());
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

/// The text of [`Error::Corrupted`].
pub(crate) fn write_damage(
    f: &mut fmt::Formatter<'_>,
    table: Option<&TableRef>,
    file: &Path,
    place: Place,
    why: &str,
) -> fmt::Result {
    match (table, place) {
        (Some(table), _) => write!(f, "table {table} is damaged at {place} of {}: {why}", file.display()),
        (None, Place::File) => write!(f, "{} is corrupted: {why}", file.display()),
        (None, _) => write!(f, "{} is corrupted at {place}: {why}", file.display()),
    }
}
