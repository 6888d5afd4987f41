//! How a reader asks for rows: how strongly they are locked, and what happens where others have them.

use crate::manager::{LockManager, What};
use crate::mode::TableMode;
use crate::owner::Owner;
use crate::target::Target;
use foreshore_base::{Error, TableId, Xid};

/// How strongly a row is locked for who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strength {
    /// Nobody changes it.
    Share,
    /// Nobody else locks it.
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
    /// It does as if the row were not there.
    SkipLocked,
}

/// How a reader locks rows: [`share`](Self::share) or [`update`](Self::update), and whether it waits for them.
///
/// Who fails where it would wait does so for the table too, which somebody else may have locked as a whole, to drop it or to
/// read all of it. Who passes over rows waits for that: a whole table is none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowLock {
    strength: Strength,
    on_conflict: LockWait,
}

impl RowLock {
    /// Others may read the rows, and lock them in the same way; nobody changes them.
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

impl LockManager {
    /// The error for who does not wait for `target`, which the transaction `holder` has by its header, or, without one, others
    /// by shared locks or as writers that wait for such.
    #[must_use]
    pub fn refusal(&self, owner: &Owner, target: Target<'_>, holder: Option<Xid>) -> Error {
        let holder = match holder {
            Some(xid) => self.slots.find(xid).map(|(_, shown)| shown.label),
            None => self.other_at(owner, target).map(|index| self.label_of(index)),
        };
        refused(&What::Row(target), holder)
    }

    /// The error for who does not wait for `table`.
    #[must_use]
    pub fn table_refusal(&self, owner: &Owner, table: TableId, mode: TableMode) -> Error {
        refused(&What::Table(table), self.other_on(owner, table, mode).map(|index| self.label_of(index)))
    }
}

/// Whoever it was may have ended since.
fn refused(what: &What<'_>, holder: Option<&'static str>) -> Error {
    Error::RowLocked { what: what.named(), holder: holder.unwrap_or_default() }
}
