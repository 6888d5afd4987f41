//! Loading.

use super::tables::{ACCOUNTS, ACCOUNTS_PER_BRANCH, BRANCHES, Bytes, HISTORY, TELLERS, TELLERS_PER_BRANCH, row};
use crate::Progress;
use crate::workload::tables::{BATCH, LOADING};
use foreshore::{Db, Result, TableDef};

/// Fills an empty database at `scale`, in key order.
///
/// # Errors
/// What the engine gives.
pub(super) fn load(db: &Db, scale: u64, progress: &dyn Progress) -> Result<()> {
    let accounts = scale * ACCOUNTS_PER_BRANCH;
    progress.phase("loading accounts", accounts);
    fill(db, BRANCHES, scale, |branch| branch, &|_| {})?;
    fill(db, TELLERS, scale * TELLERS_PER_BRANCH, |teller| teller / TELLERS_PER_BRANCH, &|_| {})?;
    fill(db, ACCOUNTS, accounts, |account| account / ACCOUNTS_PER_BRANCH, &|done| progress.at(done))?;
    let tx = db.begin();
    tx.open(HISTORY)?;
    tx.commit()?;
    Ok(())
}

fn fill(
    db: &Db,
    table: TableDef<'_, u64, Bytes>,
    rows: u64,
    branch_of: impl Fn(u64) -> u64,
    at: &dyn Fn(u64),
) -> Result<()> {
    for first in (0..rows).step_by(BATCH as usize) {
        let tx = db.begin_with(LOADING);
        let open = tx.open(table)?;
        let end = rows.min(first + BATCH);
        for key in first..end {
            open.insert(key, &row(0, branch_of(key))[..])?;
        }
        drop(open);
        tx.commit()?;
        at(end);
    }
    Ok(())
}
