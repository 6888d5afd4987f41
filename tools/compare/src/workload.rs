//! The workloads: tables, rows, and the inputs of transactions. Every key is a `u64`.
//!
//! | workload | tables | transaction |
//! |---|---|---|
//! | `tpcb` | accounts, tellers, branches, history | balance of an account, a teller and a branch, one history row |
//! | `read` | one of `scale` rows | reads in one of the [`Shape`]s |
//! | `insert` | one a thread, empty at first | 1,000 rows, keys ascending |
//! | `queue` | one of `backlog` rows | insert at the tail, or claim and delete the first row that is free |
//!
//! A row has 100 bytes: eight that mean something, and filler that does not compress. History rows have 50.

use crate::{
    error::{Error, Result},
    random::{Random, mix},
};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 100;
/// Bytes of a row of history.
pub(crate) const HISTORY_BYTES: usize = 50;
/// Accounts of a branch.
pub(crate) const ACCOUNTS_PER_BRANCH: u64 = if cfg!(test) { 1_000 } else { 100_000 };
/// Tellers of a branch.
pub(crate) const TELLERS_PER_BRANCH: u64 = 10;
/// Rows of a transaction of `insert`.
pub(crate) const BATCH: u64 = 1_000;
/// Largest amount that a transfer moves.
const MAX_DELTA: u64 = 999_999;
/// Bits of a key that count the rows of a thread; the thread's number is above.
const SEQUENCE_BITS: u32 = 40;

/// A table of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table(pub(crate) u16);

pub(crate) const ACCOUNTS: Table = Table(0);
pub(crate) const TELLERS: Table = Table(1);
pub(crate) const BRANCHES: Table = Table(2);
pub(crate) const HISTORY: Table = Table(3);
/// The table of `read`.
pub(crate) const ROWS: Table = Table(0);
/// The table of `queue`.
pub(crate) const QUEUE: Table = Table(0);

impl Table {
    /// Returns its place among the tables of the workload.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns its name in an engine that names tables.
    pub(crate) fn name(self) -> String {
        format!("table{}", self.0)
    }
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    Tpcb,
    Read,
    Insert,
    Queue,
}

impl Workload {
    const ALL: [(&str, Self); 4] =
        [("tpcb", Self::Tpcb), ("read", Self::Read), ("insert", Self::Insert), ("queue", Self::Queue)];

    /// Returns the names of all workloads.
    pub(crate) fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|&(name, _)| name).collect()
    }

    /// Returns the workload of that name.
    ///
    /// # Errors
    /// `Workload` for a name that is not built.
    pub(crate) fn named(name: &str) -> Result<Self> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|&(_, workload)| workload).ok_or_else(|| Error::Workload { name: name.to_owned() })
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload)| *workload == self).map_or("", |&(name, _)| name)
    }

    /// Returns the number of its tables for `threads` workers.
    pub(crate) const fn tables(self, threads: usize) -> usize {
        match self {
            Self::Tpcb => 4,
            Self::Read | Self::Queue => 1,
            Self::Insert => threads,
        }
    }

    /// Whether its transactions write.
    pub(crate) const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Returns the scale that is used if none is asked for.
    pub(crate) const fn default_scale(self) -> u64 {
        match self {
            Self::Tpcb => 10,
            Self::Read => 1_000_000,
            Self::Insert | Self::Queue => 1,
        }
    }
}

/// What a transaction of `read` reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// One row.
    #[value(name = "get-1")]
    #[serde(rename = "get-1")]
    Get1,
    /// A hundred rows, one call each.
    #[value(name = "get-100")]
    #[serde(rename = "get-100")]
    Get100,
    /// A hundred rows by one call, where the engine has one.
    #[value(name = "get-many-100")]
    #[serde(rename = "get-many-100")]
    GetMany100,
    /// Ten rows in key order from a random key on.
    #[value(name = "range-10")]
    #[serde(rename = "range-10")]
    Range10,
}

impl Shape {
    pub(crate) const ALL: [Self; 4] = [Self::Get1, Self::Get100, Self::GetMany100, Self::Range10];

    /// Returns the name that `--shapes` takes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get1 => "get-1",
            Self::Get100 => "get-100",
            Self::GetMany100 => "get-many-100",
            Self::Range10 => "range-10",
        }
    }

    /// Returns the operations of one transaction: keys that are looked up, or one range.
    pub(crate) const fn operations(self) -> u64 {
        match self {
            Self::Get1 | Self::Range10 => 1,
            Self::Get100 | Self::GetMany100 => 100,
        }
    }
}

/// Rows of one range.
pub(crate) const RANGE_ROWS: u64 = 10;

/// The input of a transaction of TPC-B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) account: u64,
    pub(crate) teller: u64,
    pub(crate) delta: i64,
    /// Key of the history row.
    pub(crate) history: u64,
}

impl Transfer {
    /// Draws a transfer among `branches`, with the history key `history`.
    pub(crate) fn draw(random: &mut Random, branches: u64, history: u64) -> Self {
        let account = random.below(branches * ACCOUNTS_PER_BRANCH);
        let teller = random.below(branches * TELLERS_PER_BRANCH);
        let delta = random.below(2 * MAX_DELTA + 1) as i64 - MAX_DELTA as i64;
        Self { account, teller, delta, history }
    }

    /// Returns the rows whose balance changes, in the order of the changes.
    pub(crate) const fn balances(&self) -> [(Table, u64); 3] {
        [(ACCOUNTS, self.account), (TELLERS, self.teller), (BRANCHES, self.teller / TELLERS_PER_BRANCH)]
    }

    /// Returns the history row.
    pub(crate) fn history_row(&self) -> [u8; HISTORY_BYTES] {
        let mut row: [u8; HISTORY_BYTES] = filled(self.history);
        put_word(&mut row, 0, self.delta as u64);
        put_word(&mut row, 8, self.teller);
        put_word(&mut row, 16, self.account);
        row
    }
}

/// Returns a key that no other thread of the row draws.
pub(crate) const fn thread_key(thread: usize, sequence: u64) -> u64 {
    ((thread as u64) << SEQUENCE_BITS) | sequence
}

/// Returns the row of `key` that begins with `word`.
pub(crate) fn row(key: u64, word: u64) -> [u8; ROW_BYTES] {
    let mut row = filled(key);
    put_word(&mut row, 0, word);
    row
}

/// Returns the word that a row begins with: a balance, an amount, or the row's own key. 0 for a row that is too short.
pub(crate) fn first_word(row: &[u8]) -> u64 {
    word(row, 0)
}

/// Returns the word at byte `at`, 0 where the row is too short.
pub(crate) fn word(row: &[u8], at: usize) -> u64 {
    row.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Adds `delta` to the balance of a row.
pub(crate) fn add(row: &mut [u8], delta: i64) {
    let sum = (first_word(row) as i64).wrapping_add(delta);
    put_word(row, 0, sum as u64);
}

fn put_word(row: &mut [u8], at: usize, word: u64) {
    row[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Returns bytes that do not compress, the same ones for the same key.
fn filled<const N: usize>(key: u64) -> [u8; N] {
    let mut row = [0; N];
    for (i, chunk) in row.chunks_mut(8).enumerate() {
        let bytes = mix(key.wrapping_mul(64).wrapping_add(i as u64)).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    row
}

/// A table that is loaded before a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    pub(crate) table: Table,
    /// Number of its rows, with keys from 0 on.
    pub(crate) rows: u64,
    /// Whether rows begin with their key; else with a balance of 0.
    has_keys: bool,
}

impl Loaded {
    const fn balances(table: Table, rows: u64) -> Self {
        Self { table, rows, has_keys: false }
    }

    const fn keys(table: Table, rows: u64) -> Self {
        Self { table, rows, has_keys: true }
    }

    /// Returns its rows in key order.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u64, [u8; ROW_BYTES])> {
        (0..self.rows).map(move |key| (key, row(key, if self.has_keys { key } else { 0 })))
    }
}

/// Returns the tables that are loaded.
pub(crate) fn loaded(workload: Workload, scale: u64, backlog: u64) -> Vec<Loaded> {
    match workload {
        Workload::Tpcb => vec![
            Loaded::balances(ACCOUNTS, scale * ACCOUNTS_PER_BRANCH),
            Loaded::balances(TELLERS, scale * TELLERS_PER_BRANCH),
            Loaded::balances(BRANCHES, scale),
        ],
        Workload::Read => vec![Loaded::keys(ROWS, scale)],
        Workload::Insert => Vec::new(),
        Workload::Queue => vec![Loaded::keys(QUEUE, backlog)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_carry_their_word_and_differ() {
        let row_of_7 = row(7, 9);
        assert_eq!((first_word(&row_of_7), row_of_7.len()), (9, ROW_BYTES));
        assert_ne!(row(7, 0)[8..], row(8, 0)[8..]);
        let mut changed = row(7, 0);
        add(&mut changed, -5);
        assert_eq!(first_word(&changed) as i64, -5);
        assert_eq!(changed[8..], row(7, 0)[8..]);
        assert_eq!(first_word(&[1, 2]), 0);
    }

    #[test]
    fn transfers_stay_within_the_bank() {
        let mut random = Random::new(1, 0);
        for history in 0..1000 {
            let transfer = Transfer::draw(&mut random, 3, history);
            let [(_, account), (_, teller), (_, branch)] = transfer.balances();
            assert!(account < 3 * ACCOUNTS_PER_BRANCH && teller < 30 && branch == teller / 10);
            let row = transfer.history_row();
            assert_eq!((word(&row, 0) as i64, word(&row, 8), word(&row, 16)), (transfer.delta, teller, account));
        }
    }

    #[test]
    fn a_workload_that_is_not_built_is_refused_with_those_that_are() {
        let refused = Workload::named("ycsb").unwrap_err();
        assert_eq!(refused.to_string(), "no workload `ycsb`: there are tpcb, read, insert, queue");
        for name in Workload::names() {
            assert_eq!(Workload::named(name).unwrap().name(), name);
        }
    }
}
