//! The durable writes in flight on a simulated machine.

use super::{
    fault::{FaultKind, OpNo},
    media::Effect,
};
use rustix::io::Errno;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A durable write that has been issued and has not landed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flight {
    /// The number of the operation that issued it.
    pub no: OpNo,
    /// The file, by the path of its handle.
    pub path: PathBuf,
    /// Where it writes.
    pub offset: u64,
    /// How many bytes it writes.
    pub len: usize,
}

/// A flight, what it does, and its result once it has landed.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) flight: Flight,
    pub(super) effect: Effect,
    pub(super) fault: Option<FaultKind>,
    pub(super) result: Option<Result<usize, Errno>>,
}

/// Whether durable writes to a file are held.
pub(super) type Filter = dyn Fn(&Path) -> bool + Send + Sync;

/// The writes that are held, and which ones will be.
#[derive(Clone, Default)]
pub(super) struct Flights {
    filter: Option<Arc<Filter>>,
    held: Vec<Held>,
}

impl Flights {
    /// Holds later writes that the filter selects.
    pub(super) fn hold(&mut self, filter: Option<Arc<Filter>>) {
        self.filter = filter;
    }

    /// Whether any later write is held.
    pub(super) fn is_holding(&self) -> bool {
        self.filter.is_some()
    }

    /// Whether a durable write to the file that was opened as `path` is held.
    pub(super) fn holds(&self, path: &Path) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter(path))
    }

    pub(super) fn issue(&mut self, held: Held) {
        self.held.push(held);
    }

    /// Returns the writes that have not landed, in the order of their issue.
    pub(super) fn up(&self) -> impl Iterator<Item = &Flight> {
        self.held.iter().filter(|held| held.result.is_none()).map(|held| &held.flight)
    }

    pub(super) fn find(&mut self, no: OpNo) -> &mut Held {
        let held = self.held.iter_mut().find(|held| held.flight.no == no && held.result.is_none());
        held.expect("no write of this number is in flight")
    }

    /// Removes a write that has landed and returns its result. If power `is_lost`, removes it without a result.
    pub(super) fn take(&mut self, no: OpNo, is_lost: bool) -> Option<Option<Result<usize, Errno>>> {
        let at = self.held.iter().position(|held| held.flight.no == no);
        let at = at.expect("a held write stays until its thread takes its result");
        let is_over = is_lost || self.held[at].result.is_some();
        is_over.then(|| self.held.remove(at).result)
    }
}

impl fmt::Debug for Flights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.up()).finish()
    }
}
