//! Histories of the engine that pass do not pass once something in them is changed that no level allows.

use crate::engine::config;
use foreshore_history::{Base, Found, History, Kind, Level, Op, Outcome, check, drive};
use foreshore_sim::Random;

const HISTORIES: u64 = 24;
/// How often each change is made in each history, at other places.
const TIMES: u64 = 8;
const LEVELS: [Level; 3] =
    [Level::READ_COMMITTED.in_real_time(), Level::SNAPSHOT.in_real_time(), Level::STRICT_SERIALIZABLE];

/// Changes a history, and says whether there was anything to change.
type Change = fn(&mut History, &mut Random) -> bool;

const LISTS: [(&str, Change); 7] = [
    ("two elements are swapped", swap_elements),
    ("a write is taken out", drop_write),
    ("an element is lost", lose_element),
    ("an aborted value is read", read_aborted),
    ("an aborted append commits unseen", commit_aborted),
    ("an observed transaction aborts", abort_observed),
    ("the last element is not seen", miss_last),
];

const REGISTERS: [(&str, Change); 5] = [
    ("two observed versions are swapped", swap_versions),
    ("a write is taken out", drop_write),
    ("an aborted value is read", read_aborted),
    ("an observed transaction aborts", abort_observed),
    ("two versions are told in the wrong order", swap_order),
];

#[test]
fn a_changed_list_is_refused() {
    refused(Kind::Append, &LISTS);
}

#[test]
fn a_changed_register_is_refused() {
    refused(Kind::Register, &REGISTERS);
}

fn refused(kind: Kind, changes: &[(&str, Change)]) {
    let mut made = vec![0; changes.len()];
    for seed in 1..=HISTORIES {
        let history = drive(&foreshore_history::Config { kind, ..config(Base::Serializable, seed) }).unwrap();
        LEVELS.iter().for_each(|level| check(&history, *level).unwrap());
        let mut random = Random::new(seed);
        for (at, (name, change)) in changes.iter().enumerate() {
            for _ in 0..TIMES {
                let mut changed = history.clone();
                if change(&mut changed, &mut random) {
                    made[at] += 1;
                    for level in LEVELS {
                        assert!(
                            check(&changed, level).is_err(),
                            "seed {seed}, {kind:?}, {level}: {name}, and it passes"
                        );
                    }
                }
            }
        }
    }
    for ((name, _), made) in changes.iter().zip(made) {
        assert!(made > HISTORIES * TIMES / 4, "{name}: {made} times only");
    }
}

/// Where a committed transaction reads one key.
struct Place {
    txn: usize,
    op: usize,
    key: u64,
}

fn reads(history: &History) -> Vec<Place> {
    let mut places = Vec::new();
    for (at, txn) in history.txns.iter().enumerate().filter(|(_, txn)| txn.outcome == Outcome::Ok) {
        for (op, step) in txn.ops.iter().enumerate() {
            if let Op::Read { key, .. } = step {
                places.push(Place { txn: at, op, key: *key });
            }
        }
    }
    places
}

fn found<'h>(history: &'h mut History, place: &Place) -> &'h mut Found {
    let Op::Read { found: Some(found), .. } = &mut history.txns[place.txn].ops[place.op] else {
        unreachable!("a committed transaction has read here");
    };
    found
}

fn choose<T>(mut from: Vec<T>, random: &mut Random) -> Option<T> {
    let count = from.len() as u64;
    (count > 0).then(|| from.swap_remove(random.below(count) as usize))
}

/// Every value of a key that a committed transaction has read, scans included.
fn observed(history: &History) -> Vec<(u64, u64, usize)> {
    let mut observed = Vec::new();
    for (at, txn) in history.txns.iter().enumerate().filter(|(_, txn)| txn.outcome == Outcome::Ok) {
        for op in &txn.ops {
            match op {
                Op::Read { key, found: Some(found) } => observed.extend(found.iter().map(|value| (*key, *value, at))),
                Op::Scan { found: Some(rows), .. } => {
                    observed.extend(rows.iter().flat_map(|(key, found)| found.iter().map(|value| (*key, *value, at))));
                }
                _ => {}
            }
        }
    }
    observed
}

/// Committed and failed writes: transaction, step, key, value.
fn writes(history: &History, outcome: Outcome) -> Vec<(usize, usize, u64, u64)> {
    let mut writes = Vec::new();
    for (at, txn) in history.txns.iter().enumerate().filter(|(_, txn)| txn.outcome == outcome) {
        for (op, step) in txn.ops.iter().enumerate() {
            if let Op::Write { key, value } = step {
                writes.push((at, op, *key, *value));
            }
        }
    }
    writes
}

/// The final read sees the two elements in the order that they have.
fn swap_elements(history: &mut History, random: &mut Random) -> bool {
    let mut places = reads(history);
    places.retain(|place| found(history, place).len() > 1);
    let Some(place) = choose(places, random) else { return false };
    let list = found(history, &place);
    let last = list.len() - 1;
    list.swap(last - 1, last);
    true
}

fn drop_write(history: &mut History, random: &mut Random) -> bool {
    let observed = observed(history);
    let mut writes = writes(history, Outcome::Ok);
    let by_another = |txn: usize, key: u64, value: u64| {
        observed.iter().any(|&(of, seen, reader)| (of, seen) == (key, value) && reader != txn)
    };
    writes.retain(|&(txn, _, key, value)| by_another(txn, key, value));
    let Some((txn, op, ..)) = choose(writes, random) else { return false };
    history.txns[txn].ops.remove(op);
    true
}

/// Hides an element from all transactions but its own, although the final read comes later.
fn lose_element(history: &mut History, random: &mut Random) -> bool {
    let Some((txn, _, key, value)) = choose(writes(history, Outcome::Ok), random) else { return false };
    let others = history.txns.iter_mut().enumerate().filter(|(at, _)| *at != txn);
    for op in others.flat_map(|(_, other)| &mut other.ops) {
        match op {
            Op::Read { key: read, found: Some(found) } if *read == key => found.retain(|seen| *seen != value),
            Op::Scan { found: Some(rows), .. } => {
                let lists = rows.iter_mut().filter(|(read, _)| *read == key);
                lists.for_each(|(_, found)| found.retain(|seen| *seen != value));
            }
            _ => {}
        }
    }
    true
}

fn read_aborted(history: &mut History, random: &mut Random) -> bool {
    let places = reads(history);
    let mut writes = writes(history, Outcome::Fail);
    writes.retain(|&(_, _, key, _)| places.iter().any(|place| place.key == key));
    let Some((_, _, key, value)) = choose(writes, random) else { return false };
    let of_key = places.into_iter().filter(|place| place.key == key).collect();
    let Some(place) = choose(of_key, random) else { return false };
    let kind = history.kind;
    let found = found(history, &place);
    if kind == Kind::Register {
        found.clear();
    }
    found.push(value);
    true
}

fn commit_aborted(history: &mut History, random: &mut Random) -> bool {
    let Some((txn, ..)) = choose(writes(history, Outcome::Fail), random) else { return false };
    let txn = &mut history.txns[txn];
    txn.outcome = Outcome::Ok;
    txn.ops.retain(|op| matches!(op, Op::Write { .. }));
    true
}

fn abort_observed(history: &mut History, random: &mut Random) -> bool {
    let observed = observed(history);
    let mut writes = writes(history, Outcome::Ok);
    let by_another = |txn: usize, key: u64, value: u64| {
        observed.iter().any(|&(of, seen, reader)| (of, seen) == (key, value) && reader != txn)
    };
    writes.retain(|&(txn, _, key, value)| by_another(txn, key, value));
    let Some((txn, ..)) = choose(writes, random) else { return false };
    history.txns[txn].outcome = Outcome::Fail;
    true
}

/// The last element had been acknowledged before the reader began.
fn miss_last(history: &mut History, random: &mut Random) -> bool {
    let writers = writes(history, Outcome::Ok);
    let mut places = reads(history);
    places.retain(|place| {
        let begin = history.txns[place.txn].begin;
        let last = found(history, place).last().copied();
        let writer = writers.iter().find(|(_, _, key, value)| *key == place.key && Some(*value) == last);
        writer.is_some_and(|(txn, ..)| history.txns[*txn].settled < begin)
    });
    let Some(place) = choose(places, random) else { return false };
    found(history, &place).pop();
    true
}

/// One reader had been answered before the other began, which has read a later version.
fn swap_versions(history: &mut History, random: &mut Random) -> bool {
    let places = reads(history);
    let mut pairs = Vec::new();
    for (at, one) in places.iter().enumerate() {
        let version = found(history, one).first().copied();
        let order = history.orders.get(&one.key).cloned().unwrap_or_default();
        let rank = |version: Option<u64>| order.iter().position(|told| Some(*told) == version);
        for (other_at, other) in places.iter().enumerate().filter(|(_, other)| other.key == one.key) {
            let later = found(history, other).first().copied();
            let in_time = history.txns[one.txn].settled < history.txns[other.txn].begin;
            if in_time
                && rank(later).is_some()
                && (version.is_none() || rank(version).is_some())
                && rank(version) < rank(later)
            {
                pairs.push((at, other_at));
            }
        }
    }
    let Some((one, other)) = choose(pairs, random) else { return false };
    let (first, second) = (found(history, &places[one]).clone(), found(history, &places[other]).clone());
    *found(history, &places[one]) = second;
    *found(history, &places[other]) = first;
    true
}

/// The writer of one had been answered before that of the other began.
fn swap_order(history: &mut History, random: &mut Random) -> bool {
    let writers = writes(history, Outcome::Ok);
    let mut pairs = Vec::new();
    for (key, order) in &history.orders {
        let writer =
            |at: usize| writers.iter().find(|write| write.2 == *key && write.3 == order[at]).map(|write| write.0);
        for at in 1..order.len() {
            if let (Some(one), Some(other)) = (writer(at - 1), writer(at))
                && history.txns[one].settled < history.txns[other].begin
                && is_final(history, one, *key, order[at - 1])
                && is_final(history, other, *key, order[at])
            {
                pairs.push((*key, at));
            }
        }
    }
    let Some((key, at)) = choose(pairs, random) else { return false };
    history.orders.get_mut(&key).expect("it has an order").swap(at - 1, at);
    true
}

fn is_final(history: &History, txn: usize, key: u64, value: u64) -> bool {
    history.txns[txn].writes().filter(|write| write.0 == key).last() == Some((key, value))
}
