//! Histories as EDN: one map a line, one line an event, in real-time order. Checkers that read operations of the form
//! `[:append k v]` and `[:r k [v …]]`, or `[:w k v]` and `[:r k v]` for registers, read it.

use crate::{Found, History, Kind, Op, Outcome};
use std::fmt::Write as _;

/// The history as EDN. A scan is a read of each key of its range.
#[must_use]
pub fn edn(history: &History) -> String {
    let mut out = String::new();
    for (index, (_, txn, ends)) in history.events().into_iter().enumerate() {
        let txn = &history.txns[txn];
        let (kind, is_known) = match txn.outcome {
            _ if !ends => (":invoke", false),
            Outcome::Ok => (":ok", true),
            Outcome::Fail => (":fail", false),
            Outcome::Info => (":info", false),
        };
        let _ = write!(out, "{{:index {index} :type {kind} :process {} :f :txn :value [", txn.process);
        let mut space = "";
        for op in &txn.ops {
            for_each_step(op, is_known, |key, step| {
                let _ = write!(out, "{space}{}", shown(history.kind, key, step));
                space = " ";
            });
        }
        out.push_str("]}\n");
    }
    out
}

/// A step of one key.
enum Step<'a> {
    Write(u64),
    Read(Option<&'a Found>),
}

fn for_each_step(op: &Op, is_known: bool, mut each: impl FnMut(u64, Step<'_>)) {
    match op {
        Op::Write { key, value } => each(*key, Step::Write(*value)),
        Op::Read { key, found } => each(*key, Step::Read(found.as_ref().filter(|_| is_known))),
        Op::Scan { keys, found } => {
            let found = found.as_ref().filter(|_| is_known);
            let nothing = Found::new();
            for key in keys.clone() {
                let there = found.map(|found| {
                    let at = found.binary_search_by_key(&key, |row| row.0);
                    at.map_or(&nothing, |at| &found[at].1)
                });
                each(key, Step::Read(there));
            }
        }
    }
}

fn shown(kind: Kind, key: u64, step: Step<'_>) -> String {
    match (kind, step) {
        (Kind::Append, Step::Write(value)) => format!("[:append {key} {value}]"),
        (Kind::Register, Step::Write(value)) => format!("[:w {key} {value}]"),
        (_, Step::Read(None)) => format!("[:r {key} nil]"),
        (Kind::Append, Step::Read(Some(found))) => {
            let elements: Vec<String> = found.iter().map(u64::to_string).collect();
            format!("[:r {key} [{}]]", elements.join(" "))
        }
        (Kind::Register, Step::Read(Some(found))) => {
            format!("[:r {key} {}]", found.last().map_or("nil".to_owned(), u64::to_string))
        }
    }
}
