//! What each transaction wrote and saw, and what no level allows: values from nowhere, from aborted transactions, from
//! the middle of others, and own writes not seen.

use super::violation::{Anomaly, Violation};
use crate::json::committed;
use crate::{History, Kind, Op, Outcome};
use std::collections::HashMap;

/// A write of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) txn: usize,
    /// Its number among the writes of its transaction to the key.
    nth: usize,
    /// The last one of its transaction to the key: the version that others may see.
    pub(super) is_final: bool,
}

/// A read of what others wrote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read<'h> {
    pub(super) txn: usize,
    pub(super) key: u64,
    pub(super) by_scan: bool,
    /// The elements of others, or their version.
    pub(super) found: &'h [u64],
}

impl Read<'_> {
    /// The version that was read; `None` if nothing had been written.
    pub(super) fn version(&self) -> Option<u64> {
        self.found.last().copied()
    }
}

/// What was written and seen.
pub(super) struct Observed<'h> {
    pub(super) history: &'h History,
    /// By key and value: the write of it.
    pub(super) writes: HashMap<(u64, u64), Write>,
    /// Which transactions have committed, the indeterminate ones that others have read from included.
    pub(super) committed: Vec<bool>,
    /// Reads of committed transactions.
    pub(super) reads: Vec<Read<'h>>,
}

impl<'h> Observed<'h> {
    pub(super) fn of(history: &'h History) -> Result<Self, Violation> {
        let writes = writes(history)?;
        let mut observed = Self { history, writes, committed: committed(history), reads: Vec::new() };
        for at in 0..history.txns.len() {
            if history.txns[at].outcome == Outcome::Ok {
                observed.replay(at)?;
            }
        }
        Ok(observed)
    }

    pub(super) fn violation(&self, anomaly: Anomaly, what: &str, txns: &[usize]) -> Violation {
        Violation::of(self.history, anomaly, what, txns)
    }

    /// The final writes of committed transactions, by key and then by transaction.
    pub(super) fn final_writes(&self) -> Vec<(u64, usize, u64)> {
        let is_final = |write: &Write| write.is_final && self.committed[write.txn];
        let writes = self.writes.iter().filter(|(_, write)| is_final(write));
        let mut writes: Vec<_> = writes.map(|(&(key, value), write)| (key, write.txn, value)).collect();
        writes.sort_unstable();
        writes
    }

    /// Goes through what transaction `at` did, tells own writes from those of others, and notes what was read of these.
    fn replay(&mut self, at: usize) -> Result<(), Violation> {
        let history = self.history;
        let mut own: HashMap<u64, Vec<u64>> = HashMap::new();
        for op in &history.txns[at].ops {
            match op {
                Op::Write { key, value } => own.entry(*key).or_default().push(*value),
                Op::Read { key, found } => {
                    let Some(found) = found else { return Err(self.unread(at)) };
                    self.read(at, *key, found, false, own.get(key))?;
                }
                Op::Scan { keys, found } => {
                    let Some(found) = found else { return Err(self.unread(at)) };
                    let mut rows = found.iter().peekable();
                    for key in keys.clone() {
                        let found = rows.next_if(|row| row.0 == key).map_or(&[][..], |row| &row.1);
                        self.read(at, key, found, true, own.get(&key))?;
                    }
                    if let Some((key, _)) = rows.next() {
                        let what = format!("a scan of {keys:?} has key {key} out of its range or order");
                        return Err(self.violation(Anomaly::UnknownValue, &what, &[at]));
                    }
                }
            }
        }
        Ok(())
    }

    fn unread(&self, at: usize) -> Violation {
        self.violation(Anomaly::Internal, "a committed transaction has a read without an answer", &[at])
    }

    fn read(
        &mut self,
        at: usize,
        key: u64,
        found: &'h [u64],
        by_scan: bool,
        own: Option<&Vec<u64>>,
    ) -> Result<(), Violation> {
        let own = own.map_or(&[][..], Vec::as_slice);
        let others = match self.history.kind {
            Kind::Append => found.strip_suffix(own),
            Kind::Register if own.is_empty() => Some(found),
            Kind::Register if found == &own[own.len() - 1..] => return Ok(()),
            Kind::Register => None,
        };
        let Some(others) = others else {
            let what = format!("key {key} is {found:?} after own writes of {own:?}");
            return Err(self.violation(Anomaly::Internal, &what, &[at]));
        };
        if self.history.kind == Kind::Register && others.len() > 1 {
            return Err(self.violation(Anomaly::UnknownValue, &format!("register {key} is {found:?}"), &[at]));
        }
        // The elements before the last one are looked at once for each key.
        if let Some(&last) = others.last() {
            let write = self.origin(key, last, at)?;
            if !write.is_final {
                let what = format!("key {key} is {last}, which T{} has written over", write.txn);
                return Err(self.violation(Anomaly::G1b, &what, &[at, write.txn]));
            }
        }
        self.reads.push(Read { txn: at, key, by_scan, found: others });
        Ok(())
    }

    /// Returns the write that transaction `reader` has seen.
    pub(super) fn origin(&self, key: u64, value: u64, reader: usize) -> Result<Write, Violation> {
        let Some(&write) = self.writes.get(&(key, value)) else {
            let what = format!("nobody wrote {value} to key {key}");
            return Err(self.violation(Anomaly::UnknownValue, &what, &[reader]));
        };
        if write.txn == reader {
            let what = format!("key {key} has {value} before its own transaction wrote that");
            return Err(self.violation(Anomaly::Internal, &what, &[reader]));
        }
        if !self.committed[write.txn] {
            let what = format!("key {key} has {value} of an aborted transaction");
            return Err(self.violation(Anomaly::G1a, &what, &[reader, write.txn]));
        }
        Ok(write)
    }

    /// Looks at the longest list of a key: all elements known, of committed transactions, once each and in the order in
    /// which each transaction appended them.
    pub(super) fn check_list(&self, read: &Read<'_>) -> Result<(), Violation> {
        let mut appended: HashMap<usize, usize> = HashMap::new();
        for &value in read.found {
            let write = self.origin(read.key, value, read.txn)?;
            let expected = appended.entry(write.txn).or_default();
            if write.nth != *expected {
                let what = format!(
                    "key {} has {value} twice, or before or without what T{} appended first",
                    read.key, write.txn
                );
                return Err(self.violation(Anomaly::IncompatibleOrder, &what, &[read.txn, write.txn]));
            }
            *expected += 1;
        }
        Ok(())
    }
}

/// All writes by key and value.
fn writes(history: &History) -> Result<HashMap<(u64, u64), Write>, Violation> {
    let mut writes: HashMap<(u64, u64), Write> = HashMap::new();
    let mut latest: HashMap<u64, (u64, usize)> = HashMap::new();
    for (at, txn) in history.txns.iter().enumerate() {
        latest.clear();
        for (key, value) in txn.writes() {
            let nth = match latest.get(&key) {
                Some(&(before, nth)) => {
                    writes.get_mut(&(key, before)).expect("just added").is_final = false;
                    nth + 1
                }
                None => 0,
            };
            latest.insert(key, (value, nth));
            if let Some(other) = writes.insert((key, value), Write { txn: at, nth, is_final: true }) {
                let what = format!("{value} was written to key {key} twice");
                return Err(Violation::of(history, Anomaly::DuplicateWrite, &what, &[at, other.txn]));
            }
        }
    }
    Ok(writes)
}
