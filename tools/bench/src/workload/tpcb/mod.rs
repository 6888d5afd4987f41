//! TPC-B: accounts, tellers and branches of a bank, and the history of what moved.
//!
//! | table | key | value | rows at scale X |
//! |---|---|---|---|
//! | `accounts` | number | 100 bytes: balance, branch, filler | 100,000 X |
//! | `tellers` | number | 100 bytes: balance, branch, filler | 10 X |
//! | `branches` | number | 100 bytes: balance, branch, filler | X |
//! | `history` | run, thread, sequence | 50 bytes: teller, branch, account, delta, filler | one a commit |
//! | `bench` | workload | scale | 1 |
//!
//! Numbers are little-endian. Account `a` belongs to branch `a / 100,000`, teller `t` to branch `t / 10`. All balances
//! begin at zero. The run in a history key is one above the largest that the table held when the run began, so keys
//! never meet, however often a database is used again.
//!
//! Source: TPC Benchmark B, Standard Specification, revision 2.0, clauses 1.2, 3.2 and 5.3.

mod check;
mod load;
mod tables;

use super::{Audit, End, Transactions, Work, Worker, mark};
use crate::random::{Keys, Random};
use crate::{Config, Progress};
use foreshore::{Db, Error, Result, Table, Transaction};
use std::path::Path;
use tables::{
    ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, Bytes, HISTORY, HISTORY_BYTES, HistoryKey, TELLERS, TELLERS_PER_BRANCH,
    balance,
};

/// Largest amount that a transaction moves.
const MAX_DELTA: u64 = 999_999;
/// Of a hundred accounts, how many belong to the teller's branch.
const HOME_PERCENT: u64 = 85;
/// The input of one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transfer {
    account: u64,
    teller: u64,
    delta: i64,
}

impl Transfer {
    fn branch(&self) -> u64 {
        self.teller / TELLERS_PER_BRANCH
    }

    fn history(&self) -> [u8; HISTORY_BYTES] {
        let mut row = [b'.'; HISTORY_BYTES];
        row[..8].copy_from_slice(&self.teller.to_le_bytes());
        row[8..16].copy_from_slice(&self.branch().to_le_bytes());
        row[16..24].copy_from_slice(&self.account.to_le_bytes());
        row[24..32].copy_from_slice(&self.delta.to_le_bytes());
        row
    }

    /// Adds the delta to account, teller and branch, and writes history under `key`.
    ///
    /// # Errors
    /// What the engine gives; `Foreign` if the database lacks a row of the workload.
    fn apply(&self, tx: &Transaction, key: HistoryKey) -> Result<()> {
        add(&tx.open(ACCOUNTS)?, "accounts", self.account, self.delta)?;
        add(&tx.open(TELLERS)?, "tellers", self.teller, self.delta)?;
        add(&tx.open(BRANCHES)?, "branches", self.branch(), self.delta)?;
        tx.open(HISTORY)?.insert(key, &self.history()[..])?;
        Ok(())
    }
}

fn add(table: &Table<'_, u64, Bytes>, name: &str, key: u64, delta: i64) -> Result<()> {
    let foreign = || Error::Foreign { path: name.into(), why: "not the rows that TPC-B loads" };
    let mut row = table.get_for_update(key)?.ok_or_else(foreign)?;
    let sum = balance(&row).ok_or_else(foreign)? + delta;
    row[..8].copy_from_slice(&sum.to_le_bytes());
    table.insert(key, &row[..])?;
    Ok(())
}

/// Draws the inputs of one thread.
#[derive(Clone, Debug)]
struct Draw {
    random: Random,
    scale: u64,
    skewed: Option<Keys>,
}

impl Draw {
    /// Inputs for `stream` of a run with `seed` at `scale`. With `skew` zero accounts are drawn as the specification
    /// says: 85 % from the teller's branch, the others from another branch. Else by Zipf's distribution with that
    /// exponent over all accounts, ranks spread over the branches.
    fn new(seed: u64, stream: u64, scale: u64, skew: f64) -> Self {
        let skewed = (skew > 0.0).then(|| Keys::new(scale * ACCOUNTS_PER_BRANCH, skew));
        Self { random: Random::new(seed, stream), scale, skewed }
    }

    /// The next input.
    fn transfer(&mut self) -> Transfer {
        let teller = self.random.below(self.scale * TELLERS_PER_BRANCH);
        let account = match &self.skewed {
            None => self.account_near(teller / TELLERS_PER_BRANCH),
            Some(keys) => keys.draw(&mut self.random),
        };
        let delta = self.random.below(2 * MAX_DELTA + 1) as i64 - MAX_DELTA as i64;
        Transfer { account, teller, delta }
    }

    fn account_near(&mut self, home: u64) -> u64 {
        let stays = self.scale == 1 || self.random.below(100) < HOME_PERCENT;
        let branch = if stays {
            home
        } else {
            // One of the others, each as likely.
            (home + 1 + self.random.below(self.scale - 1)) % self.scale
        };
        branch * ACCOUNTS_PER_BRANCH + self.random.below(ACCOUNTS_PER_BRANCH)
    }
}

const NAME: &str = "tpcb";

/// The workload at its scale.
#[derive(Debug)]
pub(crate) struct Tpcb {
    seed: u64,
    skew: f64,
    /// Branches.
    scale: u64,
}

impl Tpcb {
    pub(crate) fn new(config: &Config) -> Self {
        Self { seed: config.seed, skew: config.records.skew, scale: config.scale }
    }
}

impl Work for Tpcb {
    fn checks(&self) -> [&'static str; 2] {
        ["sums", "history"]
    }

    fn load(&self, db: &Db, progress: &dyn Progress) -> Result<()> {
        load::load(db, self.scale, progress)?;
        mark::set(db, NAME, self.scale)
    }

    fn resume(&self, db: &Db, dir: &Path) -> Result<()> {
        mark::check(db, dir, NAME, ("scale", self.scale))
    }

    fn read_in(&self, db: &Db) -> Result<()> {
        check::read_in(db)
    }

    fn audit(&self, db: &Db) -> Result<Audit> {
        let bank = check::audit(db, self.scale)?;
        Ok(Audit { is_sound: bank.sums_agree(), count: bank.history_rows, next_run: bank.next_run })
    }

    fn count_after(&self, before: u64, commits: u64) -> u64 {
        before + commits
    }

    fn transactions(&self, worker: Worker) -> Box<dyn Transactions + Send> {
        let draw = Draw::new(self.seed, worker.stream(), self.scale, self.skew);
        Box::new(Transfers { draw, next: None, key: (worker.run, worker.thread, 0) })
    }
}

struct Transfers {
    draw: Draw,
    next: Option<Transfer>,
    /// Of the history row of the next transfer.
    key: HistoryKey,
}

impl Transactions for Transfers {
    fn draw(&mut self) {
        self.next = Some(self.draw.transfer());
        self.key.2 += 1;
    }

    fn apply(&mut self, tx: &Transaction) -> Result<End> {
        self.next.expect("a transfer is drawn before it is applied").apply(tx, self.key)?;
        Ok(End::Commit)
    }
}

#[cfg(test)]
mod tests;
