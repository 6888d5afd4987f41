//! Which thread grows the data file, and by how much.

use foreshore_base::InvalidOption;
use foreshore_space::Growth;
use std::fmt;
use std::str::FromStr;

/// Which thread grows the data file, and by how much.
///
/// | name | the file is grown | from |
/// |---|---|---|
/// | `inline` | by the thread that needs a page, by that page | PostgreSQL before 9.6 |
/// | `ahead` | by a background thread before a page is missing, by extents of 64 to 4096 pages: the engine's own | PostgreSQL 9.6 and later extend by several pages |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrowthKind {
    /// A page at a time, by the thread that needs it.
    Inline,
    /// Ahead of need.
    #[default]
    Ahead,
}

impl GrowthKind {
    /// Returns the rule by which the engine grows the file.
    #[must_use]
    pub fn rule(self) -> Growth {
        match self {
            Self::Inline => Growth { is_ahead: false, inline_pages: 1, magazine_pages: 1 },
            Self::Ahead => Growth::AHEAD,
        }
    }
}

impl fmt::Display for GrowthKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Inline => "inline",
            Self::Ahead => "ahead",
        })
    }
}

impl FromStr for GrowthKind {
    type Err = InvalidOption;

    fn from_str(name: &str) -> Result<Self, InvalidOption> {
        match name {
            "inline" => Ok(Self::Inline),
            "ahead" => Ok(Self::Ahead),
            _ => Err(InvalidOption { name: "growth", value: name.to_owned(), expected: "inline or ahead".to_owned() }),
        }
    }
}
