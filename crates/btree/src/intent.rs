//! The purpose of a write, and its outcome.

use crate::row::{New, Stored};

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent<'a> {
    /// Lock it.
    Lock,
    /// Lock it if it exists, for a scan that has met it. The scan itself locks a missing row.
    Take,
    /// Give it a value, whether it exists or not.
    Put(Stored<'a>),
    /// Give it a value if it does not exist; lock it if it does.
    Insert(Stored<'a>),
    /// Give it a value if it exists.
    Update(Stored<'a>),
    /// Delete it.
    Remove,
}

/// When a row gets a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Store {
    Put,
    Insert,
    Update,
}

impl Store {
    /// Returns the intent to store a value.
    pub(crate) const fn of(self, value: Stored<'_>) -> Intent<'_> {
        match self {
            Self::Put => Intent::Put(value),
            Self::Insert => Intent::Insert(value),
            Self::Update => Intent::Update(value),
        }
    }
}

impl<'a> Intent<'a> {
    /// Returns the value that an existing row gets.
    pub(crate) const fn value(self) -> Option<Stored<'a>> {
        match self {
            Self::Put(value) | Self::Update(value) => Some(value),
            Self::Lock | Self::Take | Self::Insert(_) | Self::Remove => None,
        }
    }

    /// Returns the new state of an existing row or `ghost`; `None` if it stays as it is.
    pub(crate) fn change(self, ghost: bool) -> Option<New<'a>> {
        match (ghost, self) {
            (true, _) => self.new_row().map(New::Value),
            (false, Self::Remove) => Some(New::Ghost),
            (false, _) => self.value().map(New::Value),
        }
    }

    /// Returns the value that a missing row gets.
    pub(crate) const fn new_row(self) -> Option<Stored<'a>> {
        match self {
            Self::Put(value) | Self::Insert(value) => Some(value),
            Self::Lock | Self::Take | Self::Update(_) | Self::Remove => None,
        }
    }

    /// Returns whether it changes a row that exists, or inserts one that is missing.
    pub(crate) const fn writes(self, exists: bool) -> bool {
        if exists { matches!(self, Self::Put(_) | Self::Update(_) | Self::Remove) } else { self.new_row().is_some() }
    }
}

/// What a write has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// A row; its value is where the caller wants it.
    Row,
    /// A row with a large value; its stub is there.
    Large,
    /// None.
    Absent,
    /// A row that is skipped.
    Skipped,
}

impl Done {
    /// Returns whether there was a row.
    pub(crate) const fn is_row(self) -> bool {
        matches!(self, Self::Row | Self::Large)
    }
}
