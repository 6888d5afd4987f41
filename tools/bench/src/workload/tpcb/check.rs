//! The checks: does the money add up, and is every commit there?

use super::tables::{
    ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, Bytes, HISTORY, HISTORY_BYTES, HistoryKey, TELLERS, TELLERS_PER_BRANCH,
    balance, word,
};
use foreshore::{Db, Result, TableDef, Transaction};

/// What a scan of all tables found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Balances {
    /// Rows of history.
    pub(super) history_rows: u64,
    /// One above the largest run in a history key.
    pub(super) next_run: u64,
    accounts: Sums,
    tellers: Sums,
    branches: Sums,
    history: Sums,
}

/// Sums of one table, by branch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sums {
    by_branch: Vec<i64>,
    rows: u64,
    /// Whether every row had the key and the bytes that it should.
    is_sound: bool,
}

impl Sums {
    fn new(scale: u64) -> Self {
        Self { by_branch: vec![0; scale as usize], rows: 0, is_sound: true }
    }

    /// Adds a row of `branch`; `None` is one that cannot be read.
    fn add(&mut self, branch: u64, amount: Option<i64>) {
        self.rows += 1;
        let sum = usize::try_from(branch).ok().and_then(|branch| self.by_branch.get_mut(branch));
        match (sum, amount) {
            (Some(sum), Some(amount)) => *sum += amount,
            _ => self.is_sound = false,
        }
    }

    fn total(&self) -> i64 {
        self.by_branch.iter().sum()
    }
}

impl Balances {
    /// Whether the sums of accounts, tellers, branches and history agree, and those of tellers, branch and history
    /// branch by branch, with no row missing, doubled or broken.
    pub(super) fn sums_agree(&self) -> bool {
        let all = [&self.accounts, &self.tellers, &self.branches, &self.history];
        let scale = self.branches.by_branch.len() as u64;
        all.iter().all(|sums| sums.is_sound && sums.total() == self.accounts.total())
            && self.tellers.by_branch == self.branches.by_branch
            && self.history.by_branch == self.branches.by_branch
            && self.accounts.rows == scale * ACCOUNTS_PER_BRANCH
            && self.tellers.rows == scale * TELLERS_PER_BRANCH
            && self.branches.rows == scale
    }
}

/// Scans all tables of a quiet database at `scale`, in one transaction and in memory that does not grow with them.
///
/// # Errors
/// What the engine gives.
pub(super) fn audit(db: &Db, scale: u64) -> Result<Balances> {
    let tx = db.begin();
    let accounts = balances(&tx, ACCOUNTS, scale, ACCOUNTS_PER_BRANCH)?;
    let tellers = balances(&tx, TELLERS, scale, TELLERS_PER_BRANCH)?;
    let branches = balances(&tx, BRANCHES, scale, 1)?;
    let mut history = Sums::new(scale);
    let mut next_run = 0;
    let table = tx.open(HISTORY)?;
    table.lock_against_writes()?;
    for entry in table.iter() {
        let (key, row): (HistoryKey, _) = entry?;
        next_run = next_run.max(key.0 + 1);
        let teller = word(&row, 0).map(u64::from_le_bytes);
        let delta = word(&row, 24).map(i64::from_le_bytes).filter(|_| row.len() == HISTORY_BYTES);
        history.add(teller.map_or(u64::MAX, |teller| teller / TELLERS_PER_BRANCH), delta);
    }
    tx.rollback()?;
    Ok(Balances { history_rows: history.rows, next_run, accounts, tellers, branches, history })
}

/// Reads what transfers change, but for the history.
///
/// # Errors
/// What the engine gives.
pub(super) fn read_in(db: &Db) -> Result<()> {
    let tx = db.read();
    for table in [ACCOUNTS, TELLERS, BRANCHES] {
        for entry in tx.open(table)?.iter() {
            entry?;
        }
    }
    Ok(())
}

fn balances(tx: &Transaction, table: TableDef<'_, u64, Bytes>, scale: u64, per_branch: u64) -> Result<Sums> {
    let mut sums = Sums::new(scale);
    let table = tx.open(table)?;
    table.lock_against_writes()?;
    for entry in table.iter() {
        let (key, row) = entry?;
        sums.add(key / per_branch, balance(&row));
    }
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(by_branch: &[i64], rows: u64) -> Sums {
        Sums { by_branch: by_branch.to_vec(), rows, is_sound: true }
    }

    fn sound() -> Balances {
        Balances {
            history_rows: 3,
            next_run: 1,
            accounts: sums(&[4, 1], 200_000),
            tellers: sums(&[2, 3], 20),
            branches: sums(&[2, 3], 2),
            history: sums(&[2, 3], 3),
        }
    }

    #[test]
    fn a_sound_bank_passes_and_every_flaw_is_seen() {
        assert!(sound().sums_agree());
        let flaws: [fn(&mut Balances); 8] = [
            |audit| audit.accounts.by_branch[0] += 1,
            |audit| audit.tellers.by_branch[1] -= 1,
            |audit| audit.branches.by_branch = vec![3, 2],
            |audit| audit.history.by_branch = vec![3, 2],
            |audit| audit.accounts.rows -= 1,
            |audit| audit.tellers.rows += 1,
            |audit| audit.branches.rows += 1,
            |audit| audit.history.is_sound = false,
        ];
        for (i, flaw) in flaws.iter().enumerate() {
            let mut audit = sound();
            flaw(&mut audit);
            assert!(!audit.sums_agree(), "flaw {i}");
        }
    }

    #[test]
    fn rows_that_fit_no_branch_are_not_sound() {
        let mut sums = Sums::new(2);
        sums.add(1, Some(5));
        assert!(sums.is_sound && sums.total() == 5);
        sums.add(2, Some(5));
        assert!(!sums.is_sound);
        let mut sums = Sums::new(2);
        sums.add(0, None);
        assert!(!sums.is_sound);
    }
}
