//! A salvage of a crashed and damaged database copies what was committed last. What a prepared transaction or a loser
//! has changed is no part of it, also if damage keeps a restart from undoing the change.

use crate::salvage::{Target, damage, pages};
use crate::support::{Dir, close, options};
use foreshore::{Db, Error, TableDef, Transaction};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;

/// Long keys, so that few rows make several levels.
const DEEP: TableDef<&str, u64> = TableDef::new("deep");
const LARGE: TableDef<u64, &[u8]> = TableDef::new("large");
const DEEP_ROWS: u64 = 600;
const LARGE_ROWS: u64 = 30;
/// The root of the engine's table of large values.
const CHAINS: u64 = 4;
const TREE: u8 = 3;

type Rows = BTreeMap<String, Vec<u8>>;

fn name(n: u64) -> String {
    format!("{n:0900}")
}

/// Small values and large ones.
fn value(n: u64) -> Vec<u8> {
    (0..100_usize << (n % 9)).map(|at| (at as u64 * 31 + n) as u8).collect()
}

/// Changes, removes and adds rows. Transactions with another `of` change others.
fn change(tx: &Transaction, of: u64) -> Result<(), Error> {
    let (deep, large) = (tx.open(DEEP)?, tx.open(LARGE)?);
    for n in (of..DEEP_ROWS).step_by(24) {
        deep.put(&*name(2 * n), 1_000_000 + n)?;
        deep.remove(&*name(2 * (n + 8)))?;
        deep.put(&*name(2 * n + 1), 1_000_000 + n)?;
    }
    for n in (of..LARGE_ROWS).step_by(8) {
        large.put(n, &value(n + 1000)[..])?;
        large.remove(n + 4)?;
        large.put(n + 100, &value(n)[..])?;
    }
    Ok(())
}

/// A database that crashed beside two prepared transactions and two losers, whose changes are in the data file.
fn crashed(test: &str) -> Dir {
    let live = Dir::new(&format!("{test}-live"));
    let db = live.open();
    db.run(|tx| {
        (0..DEEP_ROWS).try_for_each(|n| tx.open(DEEP)?.put(&*name(2 * n), n))?;
        (0..LARGE_ROWS).try_for_each(|n| tx.open(LARGE)?.put(n, &value(n)[..]))
    })
    .unwrap();
    for (of, name) in ["order 7", "order 8"].into_iter().enumerate() {
        let tx = db.begin();
        change(&tx, of as u64).unwrap();
        tx.prepare(name).unwrap();
    }
    let losers = [2, 3].map(|of| {
        let tx = db.begin();
        change(&tx, of).unwrap();
        tx
    });
    db.checkpoint().unwrap();
    let crashed = live.copy(test);
    drop(losers);
    close(db);
    crashed
}

/// What was committed, as the report of a salvage prints the keys.
fn committed() -> [(&'static str, Rows); 2] {
    let deep = (0..DEEP_ROWS).map(|n| (name(2 * n), n.to_le_bytes().to_vec()));
    let large = (0..LARGE_ROWS).map(|n| (n.to_string(), value(n)));
    [("deep", deep.collect()), ("large", large.collect())]
}

fn found(db: &Db, table: &str) -> Rows {
    let reader = db.read();
    match table {
        "deep" => reader
            .open(DEEP)
            .unwrap()
            .iter()
            .map(Result::unwrap)
            .map(|(key, value)| (key, value.to_le_bytes().to_vec()))
            .collect(),
        _ => reader
            .open(LARGE)
            .unwrap()
            .iter()
            .map(Result::unwrap)
            .map(|(key, value)| (key.to_string(), value))
            .collect(),
    }
}

/// Whether the report says that the row of `key` may be missing. Keys of one table are in the order of `is_before`.
fn is_told(table: &Json, key: &str) -> bool {
    let text = |key: &Json| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
    let is_before = |one: &str, other: &str| (one.len(), one) < (other.len(), other);
    table["missing"].as_array().unwrap().iter().any(|gap| match &gap["key"] {
        Json::Null => {
            let (after, before) = (&gap["after"], &gap["before"]);
            (after.is_null() || is_before(&text(after), key)) && (before.is_null() || is_before(key, &text(before)))
        }
        one => text(one) == key,
    })
}

/// Salvages `dir` and compares the new database with what was committed. Returns how many rows are there and missing.
fn check(dir: &Dir, to: &Target, what: &str) -> [usize; 2] {
    let report = to.report(dir, 1);
    assert_eq!(report["prepared"], json!(["order 7", "order 8"]), "{what}");
    let (db, mut counts) = (options().open_existing(&to.1).unwrap(), [0, 0]);
    for (table, rows) in committed() {
        let Some(told) = report["tables"].as_array().unwrap().iter().find(|told| told["name"] == table) else {
            assert!(report["hidden"] != json!([]), "{what}: {table} is lost in silence");
            continue;
        };
        let found = found(&db, table);
        for (key, value) in &found {
            assert!(rows.get(key) == Some(value), "{what}: {table} has a row of {key} that was not committed");
        }
        for key in rows.keys().filter(|&key| !found.contains_key(key)) {
            assert!(is_told(told, key), "{what}: {table}: {key} is lost in silence: {told}");
            counts[1] += 1;
        }
        counts[0] += found.len();
    }
    close(db);
    counts
}

#[test]
fn prepared_transactions_and_losers_leave_what_was_committed() {
    let crashed = crashed("salvage-doubt");
    let counts = check(&crashed, &Target::new("salvage-doubt-out"), "no damage");
    assert_eq!(counts, [(DEEP_ROWS + LARGE_ROWS) as usize, 0]);
}

#[test]
fn no_damage_makes_what_was_not_committed_come_back() {
    let crashed = crashed("salvage-drawn");
    // Neither the superblocks, nor the root of the catalogue, without which no table is known.
    let all = pages(&crashed, |page| page[4] != 0);
    let all: Vec<u64> = all.into_iter().filter(|&page| page > 3).collect();
    let inner = pages(&crashed, |page| page[4] == TREE && page[5] > 0);
    let mut sums = [0, 0];
    for seed in 0..std::env::var("FORESHORE_DAMAGED").map_or(20, |text| text.parse().unwrap()) {
        let mut state = seed;
        let mut draw = |of: &[u64]| {
            state = (state + 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(27);
            of[(state % of.len() as u64) as usize]
        };
        let mut hurt: Vec<u64> = (0..seed % 4).map(|_| draw(&all)).collect();
        hurt.extend((0..=seed % 3).map(|_| draw(&inner)));
        hurt.extend((seed % 5 == 0).then_some(CHAINS));
        hurt.sort_unstable();
        hurt.dedup();
        let copy = crashed.copy("salvage-drawn-copy");
        damage(&copy, &hurt);
        let to = Target::new("salvage-drawn-out");
        let counts = check(&copy, &to, &format!("seed {seed}, {hurt:?}"));
        (sums[0], sums[1]) = (sums[0] + counts[0], sums[1] + counts[1]);
    }
    assert!(sums[0] > 1000 && sums[1] > 100, "{sums:?}");
}
