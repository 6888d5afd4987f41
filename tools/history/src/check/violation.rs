//! What a check found.

use crate::{History, Op};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// What is wrong with a history. The names are those of Adya and of Berenson et al. ("A Critique of ANSI SQL Isolation
/// Levels", 1995) where they have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// Two transactions wrote the same value: the history itself is of no use.
    DuplicateWrite,
    /// A read returned a value that no transaction wrote.
    UnknownValue,
    /// A transaction did not see its own writes as it made them.
    Internal,
    /// A list has an element twice, or lists of one key do not agree.
    IncompatibleOrder,
    /// Read of what was rolled back.
    G1a,
    /// Read of what its writer then wrote over.
    G1b,
    /// Cycle of writes over writes.
    G0,
    /// Cycle of writes over writes and reads of writes.
    G1c,
    /// Two transactions have read the same version and both written over it.
    LostUpdate,
    /// A read misses what was answered before its transaction began.
    StaleRead,
    /// Cycle with one read that was overwritten.
    GSingle,
    /// Cycle with several reads that were overwritten, no two of them in a row.
    GNonadjacent,
    /// Cycle with two reads in a row that were overwritten, each of a key.
    G2Item,
    /// The same, with a scan among the reads.
    G2,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DuplicateWrite => "duplicate write",
            Self::UnknownValue => "unknown value",
            Self::Internal => "internal",
            Self::IncompatibleOrder => "incompatible order",
            Self::G1a => "G1a, aborted read",
            Self::G1b => "G1b, intermediate read",
            Self::G0 => "G0, dirty write",
            Self::G1c => "G1c, circular information flow",
            Self::LostUpdate => "lost update",
            Self::StaleRead => "stale read",
            Self::GSingle => "G-single, read skew",
            Self::GNonadjacent => "G-nonadjacent, long fork",
            Self::G2Item => "G2-item, write skew",
            Self::G2 => "G2, write skew by a scan",
        })
    }
}

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dependency {
    /// The other wrote the next version.
    Ww,
    /// The other read its version.
    Wr,
    /// The other wrote over what it read.
    Rw {
        /// It read with a scan.
        by_scan: bool,
    },
    /// It had been answered before the other began.
    Time,
}

/// A dependency between two transactions, by their places in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The transaction that comes before.
    pub from: usize,
    /// The transaction that comes after.
    pub to: usize,
    /// Why.
    pub dependency: Dependency,
    /// The key of it; nothing for time.
    pub key: u64,
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, dependency, key } = self;
        match dependency {
            Dependency::Ww => write!(f, "T{to} wrote key {key} after T{from}"),
            Dependency::Wr => write!(f, "T{to} read key {key} as T{from} left it"),
            Dependency::Rw { by_scan: false } => write!(f, "T{from} read key {key} as it was before T{to}"),
            Dependency::Rw { by_scan: true } => write!(f, "T{from} scanned key {key} as it was before T{to}"),
            Dependency::Time => write!(f, "T{to} began when T{from} had been answered"),
        }
    }
}

/// Why a history is not allowed.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Its name.
    pub anomaly: Anomaly,
    /// The cycle, if it is one: each edge begins where the one before ends.
    pub cycle: Vec<Edge>,
    /// All of it in words, with the transactions.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.anomaly, self.message)
    }
}

impl Violation {
    /// Something that is wrong with these transactions by themselves.
    pub(super) fn of(history: &History, anomaly: Anomaly, what: &str, txns: &[usize]) -> Self {
        let message = format!("{what}{}", described(history, txns.iter().copied()));
        Self { anomaly, cycle: Vec::new(), message }
    }

    pub(super) fn cycle(history: &History, (anomaly, cycle): (Anomaly, Vec<Edge>)) -> Self {
        let mut message = format!("a cycle of {}", cycle.len());
        for edge in &cycle {
            let _ = write!(message, "\n  {edge}");
        }
        message += &described(history, cycle.iter().map(|edge| edge.from));
        Self { anomaly, cycle, message }
    }
}

/// The transactions, one a line.
fn described(history: &History, txns: impl Iterator<Item = usize>) -> String {
    let mut text = String::new();
    for at in txns.collect::<BTreeSet<_>>() {
        let txn = &history.txns[at];
        let ops: Vec<String> = txn.ops.iter().map(shown).collect();
        let (process, begin, end) = (txn.process, txn.begin, txn.end);
        let _ = write!(
            text,
            "\n  T{at} is {:?}, of process {process}, from {begin} to {end}: {}",
            txn.outcome,
            ops.join(", ")
        );
    }
    text
}

fn shown(op: &Op) -> String {
    match op {
        Op::Write { key, value } => format!("write {key} = {value}"),
        Op::Read { key, found: Some(found) } => format!("read {key} = {found:?}"),
        Op::Read { key, found: None } => format!("read {key}"),
        Op::Scan { keys, found: Some(found) } => format!("scan {keys:?} = {found:?}"),
        Op::Scan { keys, found: None } => format!("scan {keys:?}"),
    }
}
