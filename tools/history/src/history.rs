//! Histories: what transactions did, what they saw, and when they began and ended.

use std::collections::BTreeMap;
use std::ops::Range;

/// What a write does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It adds an element to the end of a list, and a read returns the list.
    Append,
    /// It replaces the version of a register, and a read returns that.
    Register,
}

/// What a read returned: every element of a list, or the one version of a register. Empty where nothing was written
/// yet.
pub type Found = Vec<u64>;

/// One step of a transaction. A value is written once in a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Appends or replaces.
    Write {
        /// The key.
        key: u64,
        /// The element or version.
        value: u64,
    },
    /// Reads one key.
    Read {
        /// The key.
        key: u64,
        /// `None` until the transaction has ended well.
        found: Option<Found>,
    },
    /// Reads every key of a range in one scan.
    Scan {
        /// The range.
        keys: Range<u64>,
        /// What was there, in the order of the keys; a key that is missing was not there.
        found: Option<Vec<(u64, Found)>>,
    },
}

/// How a transaction ended, as far as its session knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It committed.
    Ok,
    /// It certainly has no effect.
    Fail,
    /// Its commit was asked for and not answered.
    Info,
}

/// A moment that no event reaches.
pub const NEVER: u64 = u64::MAX;

/// A transaction of a history.
#[derive(Clone, Debug)]
pub struct Txn {
    /// The thread of control. It ends with an indeterminate transaction; its session goes on as another process.
    pub process: u64,
    /// What was done.
    pub ops: Vec<Op>,
    /// How it ended.
    pub outcome: Outcome,
    /// The moment of its invocation.
    pub begin: u64,
    /// The moment of its completion.
    pub end: u64,
    /// From this moment on its effect is there, or never will be: its end if the outcome is known, otherwise the next
    /// recovery, or [`NEVER`].
    pub settled: u64,
}

impl Txn {
    /// The writes in their order.
    pub fn writes(&self) -> impl Iterator<Item = (u64, u64)> {
        self.ops.iter().filter_map(|op| match op {
            &Op::Write { key, value } => Some((key, value)),
            Op::Read { .. } | Op::Scan { .. } => None,
        })
    }
}

/// A recorded history. No two events have the same moment.
#[derive(Clone, Debug)]
pub struct History {
    /// What writes do.
    pub kind: Kind,
    /// Sessions. The session of a process is its number modulo this.
    pub sessions: u64,
    /// The transactions, by invocation.
    pub txns: Vec<Txn>,
    /// The order of versions of a key, as far as the store tells it: some of the versions, oldest first. Registers need
    /// it, since reads reveal little of the order of blind writes. Lists contain their own order.
    pub orders: BTreeMap<u64, Vec<u64>>,
}

impl History {
    /// An empty history.
    #[must_use]
    pub fn new(kind: Kind, sessions: u64) -> Self {
        Self { kind, sessions, txns: Vec::new(), orders: BTreeMap::new() }
    }

    /// Transactions with this outcome.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.txns.iter().filter(|txn| txn.outcome == outcome).count()
    }

    /// The moments of the history in order, each with its transaction and whether that ends there.
    pub(crate) fn events(&self) -> Vec<(u64, usize, bool)> {
        let ends = |(at, txn): (usize, &Txn)| [(txn.begin, at, false), (txn.end, at, true)];
        let mut events: Vec<_> = self.txns.iter().enumerate().flat_map(ends).collect();
        events.sort_unstable();
        events
    }
}
