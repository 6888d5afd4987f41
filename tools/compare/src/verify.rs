//! The invariants: money adds up, no row is missing, doubled or changed, the queue keeps its order.

use crate::{
    drive::Tally,
    engine::Engine,
    error::Result,
    spec::Spec,
    tatp,
    workload::{
        ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, HISTORY, HISTORY_BYTES, QUEUE, ROWS, TELLERS, TELLERS_PER_BRANCH,
        Table, Workload, churned, deleted, first_word, row,
        values::{Pool, Seen},
        word,
    },
    ycsb,
};
use std::collections::BTreeMap;

/// Names and outcomes of checks.
pub(crate) type Checks = BTreeMap<String, bool>;

/// Checks the quiet database against what the workers have done. Names end with `when`.
///
/// # Errors
/// What the engine gives.
pub(crate) fn verify(engine: &dyn Engine, spec: &Spec, tally: &Tally, when: &str) -> Result<Checks> {
    let mut checks = Checks::new();
    let mut note = |name: &str, holds: bool| {
        checks.insert(format!("{name}_{when}"), holds);
    };
    match spec.workload {
        Workload::Tpcb => {
            let bank = Bank::read(engine, spec.scale)?;
            note("sums", bank.sums_agree());
            note("history", bank.history.rows == tally.commits);
        }
        Workload::Read => {
            let found = own_rows(engine, ROWS)?;
            note("rows", found.is_sound && found.is_dense_from(0) && found.rows == spec.scale);
            note("reads", tally.wrong_reads == 0);
        }
        Workload::Insert | Workload::Bulk => {
            let mut is_sound = true;
            for thread in 0..spec.threads as u16 {
                let found = own_rows(engine, Table(thread))?;
                let expected = tally.inserted.get(&thread).copied().unwrap_or(0);
                is_sound &= found.is_sound && found.is_dense_from(0) && found.rows == expected;
            }
            note("rows", is_sound);
        }
        Workload::Scan => {
            let found = own_rows(engine, ROWS)?;
            note("rows", found.is_sound && found.is_dense_from(0) && found.rows == spec.scale);
            note("scans", tally.wrong_reads == 0);
        }
        Workload::Values => {
            note("values", values_are_right(engine, spec, tally)?);
            note("sums", tally.wrong_reads == 0);
        }
        Workload::Churn => {
            let found = own_rows(engine, ROWS)?;
            let loaded = (0..spec.scale).fold(0, |sum, number| sum ^ churned(number));
            note("rows", found.is_sound && found.rows == spec.scale);
            note("sums", found.sum == loaded ^ tally.churned_sum);
        }
        Workload::DeleteRange => {
            let found = own_rows(engine, ROWS)?;
            let loaded = (0..spec.scale).fold(0, |sum, key| sum ^ key);
            note("rows", found.is_sound && found.rows + tally.deleted == spec.scale);
            note("sums", found.sum == loaded ^ tally.deleted_sum);
            let due: u64 = deleted(spec.scale).map(|range| range.end - range.start).sum();
            note("whole", tally.deleted == due);
        }
        Workload::Queue => {
            let found = own_rows(engine, QUEUE)?;
            let loaded = (0..spec.backlog).fold(0, |sum, key| sum ^ key);
            note("rows", found.is_sound && found.rows + tally.queued.popped == spec.backlog + tally.queued.pushed);
            note("sums", found.sum == loaded ^ tally.queued.pushed_sum ^ tally.queued.popped_sum);
            note("order", tally.queued.out_of_order == 0);
        }
        Workload::Tatp => {
            let done = (tally.change, &tally.kinds[..]);
            tatp::verify(engine, (spec.seed, spec.subscribers()), done, &mut note)?;
        }
        Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbD | Workload::YcsbE | Workload::YcsbF => {
            ycsb::verify(engine, spec.scale, &tally.kinds, &mut note)?;
            note("reads", tally.wrong_reads == 0);
        }
    }
    Ok(checks)
}

/// Rows whose first word is their key.
struct OwnRows {
    rows: u64,
    /// Exclusive or of the keys.
    sum: u64,
    first: Option<u64>,
    last: Option<u64>,
    /// Whether keys ascend and each row has the bytes of its key.
    is_sound: bool,
}

impl OwnRows {
    fn is_dense_from(&self, first: u64) -> bool {
        self.rows == 0 || self.first == Some(first) && self.last == Some(first + self.rows - 1)
    }
}

fn own_rows(engine: &dyn Engine, table: Table) -> Result<OwnRows> {
    let mut found = OwnRows { rows: 0, sum: 0, first: None, last: None, is_sound: true };
    engine.scan(table, &mut |key, bytes| {
        found.rows += 1;
        found.sum ^= key;
        found.is_sound &= found.last.is_none_or(|last| last < key) && bytes == row(key, key);
        found.first.get_or_insert(key);
        found.last = Some(key);
    })?;
    Ok(found)
}

/// Whether each value is there, in the version that was put last, with the sum of its bytes.
fn values_are_right(engine: &dyn Engine, spec: &Spec, tally: &Tally) -> Result<bool> {
    let (pool, mut next, mut is_right) = (Pool::new(), 0, true);
    engine.scan(ROWS, &mut |key, value| {
        let word = tally.words.get(&key).copied().unwrap_or(key);
        is_right &= key == next && Seen::of(value) == pool.expected(word, spec.value_bytes);
        next += 1;
    })?;
    Ok(is_right && next == spec.value_rows())
}

/// Sums of one table of `tpcb`, by branch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sums {
    by_branch: Vec<i64>,
    rows: u64,
    is_sound: bool,
}

impl Sums {
    fn new(scale: u64) -> Self {
        Self { by_branch: vec![0; scale as usize], rows: 0, is_sound: true }
    }

    fn add(&mut self, branch: u64, amount: i64, is_sound: bool) {
        self.rows += 1;
        match self.by_branch.get_mut(branch as usize) {
            Some(sum) => *sum = sum.wrapping_add(amount),
            None => self.is_sound = false,
        }
        self.is_sound &= is_sound;
    }

    fn total(&self) -> i64 {
        self.by_branch.iter().fold(0, |sum, &branch| sum.wrapping_add(branch))
    }
}

/// What a scan of the tables of `tpcb` found.
#[derive(Clone, Debug)]
struct Bank {
    accounts: Sums,
    tellers: Sums,
    branches: Sums,
    history: Sums,
}

impl Bank {
    fn read(engine: &dyn Engine, scale: u64) -> Result<Self> {
        let mut history = Sums::new(scale);
        engine.scan(HISTORY, &mut |_, bytes| {
            history.add(word(bytes, 8) / TELLERS_PER_BRANCH, word(bytes, 0) as i64, bytes.len() == HISTORY_BYTES);
        })?;
        Ok(Self {
            accounts: balances(engine, ACCOUNTS, scale, ACCOUNTS_PER_BRANCH)?,
            tellers: balances(engine, TELLERS, scale, TELLERS_PER_BRANCH)?,
            branches: balances(engine, BRANCHES, scale, 1)?,
            history,
        })
    }

    /// Whether all four sums agree, those of tellers, branches and history by branch, and no row is missing or changed.
    fn sums_agree(&self) -> bool {
        let scale = self.branches.by_branch.len() as u64;
        let all = [&self.accounts, &self.tellers, &self.branches, &self.history];
        all.iter().all(|sums| sums.is_sound && sums.total() == self.accounts.total())
            && self.tellers.by_branch == self.branches.by_branch
            && self.history.by_branch == self.branches.by_branch
            && self.accounts.rows == scale * ACCOUNTS_PER_BRANCH
            && self.tellers.rows == scale * TELLERS_PER_BRANCH
            && self.branches.rows == scale
    }
}

fn balances(engine: &dyn Engine, table: Table, scale: u64, per_branch: u64) -> Result<Sums> {
    let mut sums = Sums::new(scale);
    engine.scan(table, &mut |key, bytes| {
        let balance = first_word(bytes);
        sums.add(key / per_branch, balance as i64, bytes == row(key, balance));
    })?;
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(by_branch: &[i64], rows: u64) -> Sums {
        Sums { by_branch: by_branch.to_vec(), rows, is_sound: true }
    }

    #[test]
    fn every_flaw_of_a_bank_is_seen() {
        let sound = Bank {
            accounts: sums(&[4, 1], 2 * ACCOUNTS_PER_BRANCH),
            tellers: sums(&[2, 3], 20),
            branches: sums(&[2, 3], 2),
            history: sums(&[2, 3], 3),
        };
        assert!(sound.sums_agree());
        let flaws: [fn(&mut Bank); 7] = [
            |bank| bank.accounts.by_branch[0] += 1,
            |bank| bank.tellers.by_branch = vec![3, 2],
            |bank| bank.branches.by_branch[1] -= 1,
            |bank| bank.history.by_branch = vec![3, 2],
            |bank| bank.accounts.rows -= 1,
            |bank| bank.tellers.is_sound = false,
            |bank| bank.history.add(2, 0, true),
        ];
        for (i, flaw) in flaws.iter().enumerate() {
            let mut bank = sound.clone();
            flaw(&mut bank);
            assert!(!bank.sums_agree(), "flaw {i}");
        }
    }
}
