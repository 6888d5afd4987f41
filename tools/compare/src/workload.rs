//! The workloads: tables, rows, and the inputs of transactions. Every key is a `u64`.
//!
//! | workload | tables | transaction |
//! |---|---|---|
//! | `tpcb` | accounts, tellers, branches, history | balance of an account, a teller and a branch, one history row |
//! | `read` | one of `scale` rows | reads in one of the [`Shape`]s |
//! | `insert` | one a thread, empty at first | 1,000 rows, keys ascending |
//! | `queue` | one of `backlog` rows | insert at the tail, or claim and delete the first row that is free |
//! | `values` | one of `scale` MiB of [`values`] | a value is replaced, or read and its bytes summed |
//! | `bulk` | one a thread, empty at first | `scale` rows in all, keys ascending, once |
//! | `churn` | one of `scale` rows | the oldest rows of the thread go, as many come, keys in no order |
//! | `scan` | one of `scale` rows | all rows in key order |
//! | `delete-range` | one of `scale` rows | [`DELETED_ROWS`] neighbours are deleted; nine of ten ranges, each once |
//! | `tatp` | five, of `scale` subscribers | one of seven kinds: `crate::tatp` |
//! | `ycsb-a` to `ycsb-f` | one of `scale` records | one operation: `crate::ycsb` |
//!
//! A row has 100 bytes: eight that mean something, and filler that does not compress. History rows have 50.

mod bytes;
mod shape;
pub(crate) mod values;

use crate::{
    error::{Error, Result},
    random::Random,
};
use bytes::filled;
pub(crate) use bytes::{first_word, put_word, word};
use serde::{Deserialize, Serialize};
pub(crate) use shape::Shape;
use std::ops::{Deref, Range};

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
/// Rows of a transaction of `churn` that go, and that come.
pub(crate) const CHURNED_ROWS: u64 = 10;
/// Rows of a transaction of `delete-range`.
pub(crate) const DELETED_ROWS: u64 = if cfg!(test) { 50 } else { 10_000 };
/// Of how many ranges of `delete-range` one stays.
const KEPT_RANGES: u64 = 10;
/// Largest amount that a transfer moves.
const MAX_DELTA: u64 = 999_999;
/// The last key of a table that has them all: SQLite's keys have 63 bits.
pub(crate) const LAST_KEY: u64 = i64::MAX as u64;
/// Bits of a key that count the rows of a thread; the thread's number is above.
const SEQUENCE_BITS: u32 = 40;

/// A table of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Table(pub(crate) u16);

pub(crate) const ACCOUNTS: Table = Table(0);
pub(crate) const TELLERS: Table = Table(1);
pub(crate) const BRANCHES: Table = Table(2);
pub(crate) const HISTORY: Table = Table(3);
/// The table of `read`, `values`, `churn`, `scan`, `delete-range` and `ycsb-a` to `ycsb-f`.
pub(crate) const ROWS: Table = Table(0);
/// Number of the tables of `tatp`.
pub(crate) const TATP_TABLES: u16 = 5;
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
    Values,
    Bulk,
    Churn,
    Scan,
    DeleteRange,
    Tatp,
    YcsbA,
    YcsbB,
    YcsbC,
    YcsbD,
    YcsbE,
    YcsbF,
}

impl Workload {
    const ALL: [(&str, Self); 16] = [
        ("tpcb", Self::Tpcb),
        ("read", Self::Read),
        ("insert", Self::Insert),
        ("queue", Self::Queue),
        ("values", Self::Values),
        ("bulk", Self::Bulk),
        ("churn", Self::Churn),
        ("scan", Self::Scan),
        ("delete-range", Self::DeleteRange),
        ("tatp", Self::Tatp),
        ("ycsb-a", Self::YcsbA),
        ("ycsb-b", Self::YcsbB),
        ("ycsb-c", Self::YcsbC),
        ("ycsb-d", Self::YcsbD),
        ("ycsb-e", Self::YcsbE),
        ("ycsb-f", Self::YcsbF),
    ];

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
        found
            .map(|&(_, workload)| workload)
            .ok_or_else(|| Error::Workload { name: name.to_owned(), known: Self::names() })
    }

    /// Returns its name.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, workload)| *workload == self).map_or("", |&(name, _)| name)
    }

    /// Returns the number of its tables for `threads` workers.
    pub(crate) const fn tables(self, threads: usize) -> usize {
        match self {
            Self::Tpcb => 4,
            Self::Insert | Self::Bulk => threads,
            Self::Tatp => TATP_TABLES as usize,
            _ => 1,
        }
    }

    /// Returns the number of the tables that are loaded before a row is measured: the first ones.
    pub(crate) const fn loaded_tables(self) -> u16 {
        match self {
            Self::Tpcb => 3,
            Self::Insert | Self::Bulk => 0,
            Self::Tatp => TATP_TABLES,
            _ => 1,
        }
    }

    /// Whether its transactions are written once for all engines, by the calls of `Reader` and `Writer`.
    pub(crate) const fn is_generic(self) -> bool {
        matches!(self, Self::Tatp | Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF)
    }

    /// Whether any of its transactions write.
    pub(crate) const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Scan | Self::YcsbC)
    }

    /// Whether a row ends when its work is done, and not after a time.
    pub(crate) const fn is_once(self) -> bool {
        matches!(self, Self::Bulk | Self::DeleteRange)
    }

    /// Returns the scale that is used if none is asked for.
    pub(crate) const fn default_scale(self) -> u64 {
        match self {
            Self::Tpcb => 10,
            Self::Values => 256,
            Self::Bulk => 5_000_000,
            Self::Insert | Self::Queue => 1,
            Self::Tatp => 100_000,
            _ => 1_000_000,
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

/// Returns the key of a row of `churn` that is the `number`th of all. Different numbers below 2^63 have different keys,
/// in no order.
pub(crate) const fn churned(number: u64) -> u64 {
    const BITS: u64 = (1 << 63) - 1;
    // Each step can be undone within 63 bits, which SQLite's keys have.
    let key = number ^ (number >> 31);
    let key = key.wrapping_mul(0x7FB5_D329_728E_A185) & BITS;
    let key = key ^ (key >> 27);
    let key = key.wrapping_mul(0x1B03_7387_12FA_D5C9) & BITS;
    key ^ (key >> 33)
}

/// Returns the ranges that `delete-range` deletes from a table of `rows` rows: all whole ones but one in ten.
pub(crate) fn deleted(rows: u64) -> impl Iterator<Item = Range<u64>> {
    let ranges = (0..rows / DELETED_ROWS).filter(|range| range % KEPT_RANGES != KEPT_RANGES - 1);
    ranges.map(|range| range * DELETED_ROWS..(range + 1) * DELETED_ROWS)
}

/// Returns the row of `key` that begins with `word`.
pub(crate) fn row(key: u64, word: u64) -> [u8; ROW_BYTES] {
    let mut row = filled(key);
    put_word(&mut row, 0, word);
    row
}

/// Adds `delta` to the balance of a row.
pub(crate) fn add(row: &mut [u8], delta: i64) {
    let sum = (first_word(row) as i64).wrapping_add(delta);
    put_word(row, 0, sum as u64);
}

/// The bytes of a row that is loaded.
pub(crate) enum RowBytes {
    Row([u8; ROW_BYTES]),
    Value(Vec<u8>),
}

impl Deref for RowBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Row(row) => row,
            Self::Value(value) => value,
        }
    }
}

/// Rows of a table: keys ascending.
pub(crate) type Rows<'a> = dyn Iterator<Item = (u64, RowBytes)> + 'a;

/// Returns rows that begin with their keys.
pub(crate) fn own_rows(keys: impl Iterator<Item = u64>) -> impl Iterator<Item = (u64, RowBytes)> {
    keys.map(|key| (key, RowBytes::Row(row(key, key))))
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
    fn keys_of_churn_differ() {
        let mut keys: Vec<u64> = (0..50_000).chain((1 << 40)..(1 << 40) + 50_000).map(churned).collect();
        assert!(keys.iter().all(|&key| key < 1 << 63) && !keys.is_sorted());
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 100_000);
    }

    #[test]
    fn nine_of_ten_ranges_are_deleted() {
        let ranges: Vec<_> = deleted(20 * DELETED_ROWS + 1).collect();
        assert_eq!(ranges.len(), 18);
        assert!(!ranges.iter().any(|range| range.contains(&(9 * DELETED_ROWS))));
    }

    #[test]
    fn a_workload_that_is_not_built_is_refused_with_those_that_are() {
        let refused = Workload::named("ycsb").unwrap_err();
        let names = "tpcb, read, insert, queue, values, bulk, churn, scan, delete-range, tatp, ycsb-a, ycsb-b, ycsb-c, \
                     ycsb-d, ycsb-e, ycsb-f";
        assert_eq!(refused.to_string(), format!("no workload `ycsb`: there are {names}"));
        for name in Workload::names() {
            assert_eq!(Workload::named(name).unwrap().name(), name);
        }
    }
}
