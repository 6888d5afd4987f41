//! Seat of a transaction: the owner of its state between two operations.
//!
//! A transaction owns its state alone, unless it may become too old while it is idle. Then it shares the state, as a
//! [`Revocable`], with the thread that ends old transactions.

use crate::Error;
use crate::live::Live;
use foreshore_base::Csn;
use foreshore_sync::{Custody, InUse, LockRank, Nanos, Revocable, Revoked};
use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// State of a transaction. `Failed`: it never began, or was rolled back. `Over`: its owner has committed it or rolled
/// it back.
pub(crate) type State = Custody<Live, Failure>;

/// Reason why a transaction does not run.
pub(crate) struct Failure {
    pub(crate) error: Error,
    /// The newest commit that the error depends on.
    pub(crate) watermark: Csn,
    /// Whether an operation has returned the error. Later operations then return `RolledBack`. Otherwise each returns
    /// this error.
    pub(crate) is_reported: bool,
}

/// Owner of the state of a transaction.
pub(crate) enum Seat {
    /// The transaction alone.
    Own(RefCell<State>),
    /// The transaction, and the thread that ends old transactions.
    Shared(Arc<Aging>),
}

/// A transaction that may become too old.
pub(crate) struct Aging {
    pub(crate) label: &'static str,
    pub(crate) began: Nanos,
    state: Revocable<Live, Failure>,
}

impl Seat {
    pub(crate) fn own(state: State) -> Self {
        Self::Own(RefCell::new(state))
    }

    /// Takes the state for an operation of the owner. Must not be called during one.
    #[inline]
    pub(crate) fn take(&self) -> Taken<'_> {
        match self {
            Self::Own(own) => Taken::Own(own.borrow_mut()),
            Self::Shared(aging) => Taken::Shared(aging.state.take()),
        }
    }

    /// Returns what the thread shares that ends old transactions, if the transaction may become too old.
    #[inline]
    pub(crate) fn aging(&self) -> Option<&Aging> {
        match self {
            Self::Own(_) => None,
            Self::Shared(aging) => Some(aging),
        }
    }

    /// Exchanges the state. Must not be called during an operation.
    pub(crate) fn replace(&self, state: State) -> State {
        match self {
            Self::Own(own) => own.replace(state),
            Self::Shared(aging) => aging.state.replace(state),
        }
    }

    /// Returns the error that ended the transaction, if one did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.look(|state| match state {
            State::Failed(Failure { error, .. }) => Some(error.clone()),
            State::Live(_) | State::Busy | State::Over => None,
        })
    }

    /// Calls `work` if the transaction runs. Must not be called during an operation.
    #[inline]
    pub(crate) fn if_live<T>(&self, work: impl FnOnce(&mut Live) -> T) -> Option<T> {
        // Taken, and not only looked at: `work` may call code of the user, which runs under no lock of the engine.
        match &mut *self.take() {
            State::Live(live) => Some(work(live)),
            State::Busy | State::Failed(_) | State::Over => None,
        }
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        match self {
            Self::Own(own) => look(&mut own.borrow_mut()),
            Self::Shared(aging) => aging.state.look(look),
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.look(|state| match state {
            State::Live(_) | State::Busy => "live",
            State::Failed(_) => "rolled back",
            State::Over => "over",
        }))
    }
}

/// State of a transaction during an operation. Dropping it puts the state back.
pub(crate) enum Taken<'a> {
    Own(RefMut<'a, State>),
    Shared(InUse<'a, Live, Failure>),
}

impl Deref for Taken<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        match self {
            Self::Own(state) => state,
            Self::Shared(state) => state,
        }
    }
}

impl DerefMut for Taken<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State {
        match self {
            Self::Own(state) => state,
            Self::Shared(state) => state,
        }
    }
}

impl Aging {
    pub(crate) fn new(label: &'static str, began: Nanos, state: State) -> Arc<Self> {
        Arc::new(Self { label, began, state: Revocable::new(LockRank::Leaf, state) })
    }

    /// Takes the transaction from its owner, which then gets `error`, unless an operation is in progress.
    pub(crate) fn end(&self, error: Error) -> Revoked<Live> {
        self.state.revoke(|live| Failure { error, watermark: live.txn.observed(), is_reported: false })
    }
}
