//! The options of a locking read: how strongly rows are locked, and what happens if another transaction has them.

/// The strength with which a reader locks a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strength {
    /// No other transaction may change the row.
    Share,
    /// No other transaction may lock the row.
    Update,
}

/// The reaction of a request to a row that another transaction has locked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockWait {
    /// Waits, up to the transaction's lock timeout.
    #[default]
    Wait,
    /// Fails with [`RowLocked`](foreshore_base::Error::RowLocked). The transaction continues, because nothing has
    /// changed.
    NoWait,
    /// Skips the row, as if it did not exist.
    SkipLocked,
}

/// A locking mode for reads: [`share`](Self::share) or [`update`](Self::update), and the reaction to locked rows.
///
/// Another transaction may have locked the whole table, to drop it or to read all of it. Then a `no_wait` reader fails.
/// A `skip_locked` reader waits, because it skips only rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLock {
    strength: Strength,
    on_conflict: LockWait,
}

impl RowLock {
    /// Locks rows shared. Other transactions may read them and lock them shared, but not change them.
    #[must_use]
    pub const fn share() -> Self {
        Self { strength: Strength::Share, on_conflict: LockWait::Wait }
    }

    /// Locks rows as a write does.
    #[must_use]
    pub const fn update() -> Self {
        Self { strength: Strength::Update, on_conflict: LockWait::Wait }
    }

    /// Fails instead of waiting.
    #[must_use]
    pub const fn no_wait(self) -> Self {
        Self { on_conflict: LockWait::NoWait, ..self }
    }

    /// Skips rows instead of waiting for them.
    #[must_use]
    pub const fn skip_locked(self) -> Self {
        Self { on_conflict: LockWait::SkipLocked, ..self }
    }

    /// Returns the strength of the lock.
    #[must_use]
    pub const fn strength(self) -> Strength {
        self.strength
    }

    /// Returns the reaction to a row that another transaction has locked.
    #[must_use]
    pub const fn on_conflict(self) -> LockWait {
        self.on_conflict
    }
}

/// The result of a request for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked<T> {
    /// The row exists and is now locked.
    Row(T),
    /// The row does not exist.
    Absent,
    /// Another transaction has the row, so it was skipped. Whether it exists is not known.
    Skipped,
}

impl<T> Locked<T> {
    /// Applies `map` to the row, if there is one.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Locked<U> {
        match self {
            Self::Row(row) => Locked::Row(map(row)),
            Self::Absent => Locked::Absent,
            Self::Skipped => Locked::Skipped,
        }
    }
}
