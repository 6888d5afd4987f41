//! Histories as JSON: sessions of transactions of reads and writes of versions. Checkers of registers read it.

use crate::{History, Op, Outcome};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The history as JSON. Of a list, the version is its last element, and an append writes the next one. An indeterminate
/// transaction counts as committed if a committed one has read from it: whether others committed makes no difference to
/// any other transaction.
#[must_use]
pub fn json(history: &History) -> String {
    let committed = committed(history);
    let mut sessions = vec![Vec::new(); usize::try_from(history.sessions).unwrap_or(0)];
    for (at, txn) in history.txns.iter().enumerate() {
        let events: Vec<String> = txn.ops.iter().flat_map(events).collect();
        let session = (txn.process % history.sessions) as usize;
        sessions[session].push(format!(r#"{{"events":[{}],"committed":{}}}"#, events.join(","), committed[at]));
    }
    let mut out = String::from("[");
    for (at, transactions) in sessions.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let _ = write!(out, "{comma}\n[{}]", transactions.join(",\n "));
    }
    out + "\n]\n"
}

/// Returns which transactions count as committed: those that are, and the indeterminate ones that another one read
/// from.
pub(crate) fn committed(history: &History) -> Vec<bool> {
    let writers: HashMap<(u64, u64), usize> =
        (history.txns.iter().enumerate()).flat_map(|(at, txn)| txn.writes().map(move |write| (write, at))).collect();
    let mut committed: Vec<bool> = history.txns.iter().map(|txn| txn.outcome == Outcome::Ok).collect();
    let mut observe = |key: u64, found: &[u64]| {
        for &value in found {
            if let Some(&writer) = writers.get(&(key, value)) {
                committed[writer] |= history.txns[writer].outcome == Outcome::Info;
            }
        }
    };
    // Reads of indeterminate transactions are not known, so one pass is all.
    for txn in history.txns.iter().filter(|txn| txn.outcome == Outcome::Ok) {
        for op in &txn.ops {
            match op {
                Op::Read { key, found: Some(found) } => observe(*key, found),
                Op::Scan { found: Some(found), .. } => found.iter().for_each(|(key, found)| observe(*key, found)),
                Op::Write { .. } | Op::Read { .. } | Op::Scan { .. } => {}
            }
        }
    }
    committed
}

fn events(op: &Op) -> Vec<String> {
    let read = |key: u64, version: Option<&u64>| {
        let version = version.map_or("null".to_owned(), u64::to_string);
        format!(r#"{{"Read":{{"variable":{key},"version":{version}}}}}"#)
    };
    match op {
        Op::Write { key, value } => vec![format!(r#"{{"Write":{{"variable":{key},"version":{value}}}}}"#)],
        Op::Read { key, found: Some(found) } => vec![read(*key, found.last())],
        Op::Scan { keys, found: Some(found) } => {
            let there: HashMap<u64, u64> =
                found.iter().filter_map(|(key, found)| Some((*key, *found.last()?))).collect();
            keys.clone().map(|key| read(key, there.get(&key))).collect()
        }
        // What a transaction saw that did not commit is not recorded.
        Op::Read { found: None, .. } | Op::Scan { found: None, .. } => Vec::new(),
    }
}
