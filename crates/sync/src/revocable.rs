//! A value that its owner uses piece by piece, and that another thread may revoke between two uses.
//!
//! The mutex is held only to exchange the state, never during a use:
//!
//! | state | the owner | the thread that revokes |
//! |---|---|---|
//! | [`Live`](Custody::Live) | takes the value to use it, and leaves `Busy`; ends it, and leaves `Over` | takes the value, and leaves `Failed` |
//! | [`Busy`](Custody::Busy) | uses the value, and puts its new state back | leaves it alone, and tries again |
//! | [`Failed`](Custody::Failed) | gets the reason | leaves it alone |
//! | [`Over`](Custody::Over) | has ended it | leaves it alone |
//!
//! **Invariant:** at any time at most one thread uses the value, and one thread ends it.

use crate::model::mutant;
use crate::{LockRank, Mutex};
use std::mem;
use std::ops::{Deref, DerefMut};

/// State of a shared value.
#[derive(Debug)]
pub enum Custody<T, F> {
    /// The owner may take it, and another thread may revoke it.
    Live(T),
    /// The owner uses it.
    Busy,
    /// It was revoked, for this reason.
    Failed(F),
    /// The owner has ended it.
    Over,
}

/// What a thread finds when it revokes a value.
#[derive(Debug)]
pub enum Revoked<T> {
    /// The value, which is now the caller's to end.
    Idle(T),
    /// The owner uses it.
    Busy,
    /// It has ended.
    Ended,
}

/// A value that its owner shares with a thread that may revoke it.
#[derive(Debug)]
pub struct Revocable<T, F> {
    state: Mutex<Custody<T, F>>,
}

/// The state of a value during a use by its owner. Dropping it puts the state back.
#[derive(Debug)]
pub struct InUse<'a, T, F> {
    home: &'a Revocable<T, F>,
    state: Custody<T, F>,
}

impl<T, F> Revocable<T, F> {
    /// Makes a value in that state, exchanged under a lock of `rank`.
    pub fn new(rank: LockRank, state: Custody<T, F>) -> Self {
        Self { state: Mutex::new(rank, state) }
    }

    /// Takes the state for a use. By the owner.
    pub fn take(&self) -> InUse<'_, T, F> {
        InUse { home: self, state: self.replace(Custody::Busy) }
    }

    /// Exchanges the state. By the owner, while it does not use the value.
    pub fn replace(&self, state: Custody<T, F>) -> Custody<T, F> {
        mem::replace(&mut *self.state.lock(), state)
    }

    /// Reads the state, under the lock.
    pub fn look<R>(&self, look: impl FnOnce(&mut Custody<T, F>) -> R) -> R {
        look(&mut self.state.lock())
    }

    /// Takes the value away from its owner, which gets the reason from `why`, unless the owner uses it.
    pub fn revoke(&self, why: impl FnOnce(&T) -> F) -> Revoked<T> {
        let mut state = self.state.lock();
        let why = match &*state {
            Custody::Live(value) => why(value),
            Custody::Busy => return Revoked::Busy,
            Custody::Failed(_) | Custody::Over => return Revoked::Ended,
        };
        if mutant("revocable: looks and takes in two steps") {
            drop(state);
            state = self.state.lock();
        }
        match mem::replace(&mut *state, Custody::Failed(why)) {
            Custody::Live(value) => Revoked::Idle(value),
            _ => unreachable!("it was live under the same lock"),
        }
    }
}

impl<T, F> Deref for InUse<'_, T, F> {
    type Target = Custody<T, F>;

    fn deref(&self) -> &Custody<T, F> {
        &self.state
    }
}

impl<T, F> DerefMut for InUse<'_, T, F> {
    fn deref_mut(&mut self) -> &mut Custody<T, F> {
        &mut self.state
    }
}

impl<T, F> Drop for InUse<'_, T, F> {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.state, Custody::Over);
        if mutant("revocable: work that ended the value puts nothing back") && !matches!(state, Custody::Live(_)) {
            return;
        }
        let busy = self.home.replace(state);
        debug_assert!(matches!(busy, Custody::Busy), "nothing replaces what is in use");
    }
}
