//! The seat of a transaction: where its state lies between two operations.
//!
//! A transaction has its state to itself, unless it may become too old while it is idle. Then it shares the state with the thread
//! that ends old transactions. The mutex is held to exchange the state only:
//!
//! | state | the owner | the thread that ends old transactions |
//! |---|---|---|
//! | `Live` | takes it for an operation, and leaves `Busy`; ends it, and leaves `Over` | takes it, leaves `Failed`, and rolls back |
//! | `Busy` | runs an operation, and puts back what has become of it | leaves it alone, and looks again |
//! | `Failed` | is told | leaves it alone |
//! | `Over` | has ended it | leaves it alone |
//!
//! **Invariant:** at any time one thread at most has the running transaction in hand.

use super::Live;
use foreshore_base::{Csn, Error};
use foreshore_sync::{LockRank, Mutex, Nanos};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{fmt, mem};

/// Where a transaction stands.
pub(crate) enum State {
    /// It runs.
    Live(Box<Live>),
    /// An operation of it is under way.
    Busy,
    /// It never began, or was rolled back by this error.
    Failed {
        error: Error,
        /// Commits that the error rests on.
        watermark: Csn,
        /// Whether it ran before, so that the caller has had the error.
        has_begun: bool,
    },
    /// Committed or rolled back by the owner, which has given up the transaction with it.
    Over,
}

/// Where the state of a transaction lies.
pub(crate) enum Seat {
    /// With the transaction alone.
    Own(RefCell<State>),
    /// With the thread that ends old transactions, too.
    Shared(Arc<Aging>),
}

/// A transaction that may become too old.
pub(crate) struct Aging {
    pub(crate) label: &'static str,
    pub(crate) began: Nanos,
    state: Mutex<State>,
}

/// The state of a transaction for the time of an operation. Dropped, it goes back.
pub(crate) struct Taken<'a> {
    aging: &'a Aging,
    state: State,
}

impl Seat {
    pub(crate) fn own(state: State) -> Self {
        Self::Own(RefCell::new(state))
    }

    /// Exchanges the state. Not during an operation.
    pub(super) fn replace(&self, state: State) -> State {
        match self {
            Self::Own(own) => own.replace(state),
            Self::Shared(aging) => mem::replace(&mut *aging.state.lock(), state),
        }
    }

    /// The error that ended the transaction, if one did.
    pub(super) fn failure(&self) -> Option<Error> {
        self.look(|state| match state {
            State::Failed { error, .. } => Some(error.clone()),
            State::Live(_) | State::Busy | State::Over => None,
        })
    }

    /// Gives a buffer back for the next lookup.
    pub(super) fn give_back(&self, buffer: Vec<u8>) {
        self.look(|state| {
            if let State::Live(live) = state {
                live.found = buffer;
            }
        });
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        match self {
            Self::Own(own) => look(&mut own.borrow_mut()),
            Self::Shared(aging) => look(&mut aging.state.lock()),
        }
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.look(|state| match state {
            State::Live(_) | State::Busy => "live",
            State::Failed { .. } => "rolled back",
            State::Over => "over",
        }))
    }
}

/// What the thread that ends old transactions finds.
pub(crate) enum Found {
    /// The transaction, which is the caller's to roll back.
    Idle(Box<Live>),
    /// An operation is under way.
    Busy,
    /// It has ended.
    Ended,
}

impl Aging {
    pub(crate) fn new(label: &'static str, began: Nanos, state: State) -> Arc<Self> {
        Arc::new(Self { label, began, state: Mutex::new(LockRank::Leaf, state) })
    }

    /// Takes the state for an operation. By the owner.
    pub(crate) fn take(&self) -> Taken<'_> {
        let state = mem::replace(&mut *self.state.lock(), State::Busy);
        Taken { aging: self, state }
    }

    /// Takes the transaction away from its owner, which is told `error`, unless an operation is under way.
    pub(crate) fn end(&self, error: Error) -> Found {
        let mut state = self.state.lock();
        let watermark = match &*state {
            State::Live(live) => live.txn.observed(),
            State::Busy => return Found::Busy,
            State::Failed { .. } | State::Over => return Found::Ended,
        };
        match mem::replace(&mut *state, State::Failed { error, watermark, has_begun: false }) {
            State::Live(live) => Found::Idle(live),
            _ => unreachable!("it was live under the same lock"),
        }
    }
}

impl Deref for Taken<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Taken<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.aging.state.lock() = mem::replace(&mut self.state, State::Over);
    }
}
