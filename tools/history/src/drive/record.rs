//! Notes invocations and completions in the order in which they happen.

use super::config::Config;
use crate::{History, NEVER, Op, Outcome, Txn};
use foreshore::Csn;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A history in the making, shared by all sessions.
#[derive(Debug)]
pub(super) struct Recorder {
    /// Values so far.
    values: AtomicU64,
    notes: Mutex<Notes>,
}

#[derive(Debug)]
struct Notes {
    history: History,
    /// Moments so far.
    moment: u64,
    /// The place of a transaction in the order of commits.
    commits: BTreeMap<Csn, usize>,
}

impl Notes {
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }
}

impl Recorder {
    pub(super) fn new(config: &Config) -> Self {
        let history = History::new(config.kind, config.sessions);
        let notes = Mutex::new(Notes { history, moment: 0, commits: BTreeMap::new() });
        Self { values: AtomicU64::new(0), notes }
    }

    /// Returns a value that no other write has.
    pub(super) fn new_value(&self) -> u64 {
        // ORDERING: relaxed - the read-modify-write alone makes values distinct.
        1 + self.values.fetch_add(1, Ordering::Relaxed)
    }

    fn with<T>(&self, note: impl FnOnce(&mut Notes) -> T) -> T {
        note(&mut self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A transaction is about to begin. Returns its number.
    pub(super) fn invoke(&self, process: u64, ops: Vec<Op>) -> usize {
        self.with(|notes| {
            let begin = notes.moment();
            notes.history.txns.push(Txn { process, ops, outcome: Outcome::Info, begin, end: NEVER, settled: NEVER });
            notes.history.txns.len() - 1
        })
    }

    /// A transaction has committed, and its session has been told, be it after a loss of power.
    pub(super) fn ok(&self, number: usize, ops: Vec<Op>, csn: Csn) {
        self.with(|notes| {
            let moment = notes.moment();
            let txn = &mut notes.history.txns[number];
            (txn.end, txn.settled) = (moment, moment);
            (txn.ops, txn.outcome) = (ops, Outcome::Ok);
            if txn.writes().next().is_some() {
                notes.commits.insert(csn, number);
            }
        });
    }

    /// A transaction has no effect.
    pub(super) fn fail(&self, number: usize) {
        self.with(|notes| {
            let moment = notes.moment();
            let txn = &mut notes.history.txns[number];
            (txn.end, txn.settled) = (moment, moment);
            txn.outcome = Outcome::Fail;
        });
    }

    /// A transaction was asked to commit, and there was no answer.
    pub(super) fn info(&self, number: usize) {
        self.with(|notes| {
            let moment = notes.moment();
            notes.history.txns[number].end = moment;
        });
    }

    /// The database has been opened: what was in flight is there by now or never will be, but for what `is_prepared`.
    pub(super) fn recovered(&self, is_prepared: impl Fn(usize) -> bool) {
        self.with(|notes| {
            let moment = notes.moment();
            for (number, txn) in notes.history.txns.iter_mut().enumerate() {
                if txn.settled == NEVER && !is_prepared(number) {
                    txn.settled = moment;
                }
            }
        });
    }

    /// The history, with the order of versions as the order of commits tells it.
    pub(super) fn finish(self) -> History {
        let Notes { mut history, commits, .. } = self.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        for number in commits.into_values() {
            for (key, value) in history.txns[number].writes() {
                history.orders.entry(key).or_default().push(value);
            }
        }
        history
    }
}
