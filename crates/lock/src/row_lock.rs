//! How a reader asks for rows: how strongly they are locked, and what happens where another transaction has them.

/// How strongly a row is locked for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strength {
    /// No other transaction changes it.
    Share,
    /// No other transaction locks it.
    Update,
}

/// What a request for a row does while another transaction has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockWait {
    /// It waits, for as long as the transaction waits for locks.
    #[default]
    Wait,
    /// It fails with [`RowLocked`](foreshore_base::Error::RowLocked). The transaction goes on: nothing has changed.
    NoWait,
    /// It passes over the row, as if that were not there.
    SkipLocked,
}

/// How a reader locks rows: [`share`](Self::share) or [`update`](Self::update), and whether it waits for them.
///
/// A reader that fails where it would wait does so for the table too. Another transaction may have locked that as a
/// whole, to drop it or to read all of it. A reader that passes over rows waits for that: a whole table is none of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLock {
    strength: Strength,
    on_conflict: LockWait,
}

impl RowLock {
    /// Other transactions may read the rows, and lock them in the same way; none changes them.
    #[must_use]
    pub const fn share() -> Self {
        Self { strength: Strength::Share, on_conflict: LockWait::Wait }
    }

    /// The rows are locked as by a write.
    #[must_use]
    pub const fn update() -> Self {
        Self { strength: Strength::Update, on_conflict: LockWait::Wait }
    }

    /// Fails where it would wait.
    #[must_use]
    pub const fn no_wait(self) -> Self {
        Self { on_conflict: LockWait::NoWait, ..self }
    }

    /// Passes over rows that it would wait for.
    #[must_use]
    pub const fn skip_locked(self) -> Self {
        Self { on_conflict: LockWait::SkipLocked, ..self }
    }

    /// How strong it is.
    #[must_use]
    pub const fn strength(self) -> Strength {
        self.strength
    }

    /// What it does where another transaction has the row.
    #[must_use]
    pub const fn on_conflict(self) -> LockWait {
        self.on_conflict
    }
}

/// What has become of a request for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locked<T> {
    /// It is there and locked.
    Row(T),
    /// It is not there.
    Absent,
    /// Another transaction has it, and it was passed over: whether it is there is not known.
    Skipped,
}

impl<T> Locked<T> {
    /// The same with what `map` makes of the row.
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Locked<U> {
        match self {
            Self::Row(row) => Locked::Row(map(row)),
            Self::Absent => Locked::Absent,
            Self::Skipped => Locked::Skipped,
        }
    }
}
