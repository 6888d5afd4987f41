//! Histories in a short notation, for tests.
//!
//! A line is a transaction: `outcome begin-end step step …`. Steps: `w1=5` writes 5 to key 1, `r1=5,6` reads it, `r1=`
//! finds nothing, `s1-3:1=5;2=6,7` scans keys 1 and 2. A line `order 1=5,6` tells the order of versions of a key.

use foreshore_history::{Found, History, Kind, NEVER, Op, Outcome, Txn};

/// Reads a history. The sessions are as many as the lines.
pub(crate) fn history(kind: Kind, text: &str) -> History {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut history = History::new(kind, lines.len() as u64);
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap();
        if word == "order" {
            let (key, versions) = row(rest);
            history.orders.insert(key, versions);
            continue;
        }
        let (moments, steps) = rest.split_once(' ').unwrap();
        let (begin, end) = moments.split_once('-').unwrap();
        let outcome = match word {
            "ok" => Outcome::Ok,
            "fail" => Outcome::Fail,
            "info" => Outcome::Info,
            _ => panic!("{line}"),
        };
        let end = number(end);
        let settled = if outcome == Outcome::Info { NEVER } else { end };
        let process = history.txns.len() as u64;
        let ops = steps.split(' ').map(op).collect();
        history.txns.push(Txn { process, ops, outcome, begin: number(begin), end, settled });
    }
    history
}

fn op(step: &str) -> Op {
    let (what, rest) = step.split_at(1);
    match what {
        "w" => {
            let (key, value) = rest.split_once('=').unwrap();
            Op::Write { key: number(key), value: number(value) }
        }
        "r" => {
            let (key, found) = row(rest);
            Op::Read { key, found: Some(found) }
        }
        "s" => {
            let (range, rows) = rest.split_once(':').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let rows = rows.split(';').filter(|row| !row.is_empty()).map(row).collect();
            Op::Scan { keys: number(from)..number(to), found: Some(rows) }
        }
        _ => panic!("{step}"),
    }
}

fn row(text: &str) -> (u64, Found) {
    let (key, values) = text.split_once('=').unwrap();
    (number(key), values.split(',').filter(|value| !value.is_empty()).map(number).collect())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
}
