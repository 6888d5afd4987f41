//! Loading, and telling a loaded database from any other.

use super::{ACCOUNTS, ACCOUNTS_PER_BRANCH, BENCH, BRANCHES, Bytes, HISTORY, TELLERS, TELLERS_PER_BRANCH, row};
use crate::Progress;
use foreshore::{Db, Durability, TableDef, TxnOptions};
use foreshore_base::{Error, Result};
use std::path::Path;

/// Rows of a loading transaction.
const BATCH: u64 = 500;

/// The row of the table `bench` that says what a database holds. It is the last that a load writes.
const NAME: &str = "tpcb";

/// Fills an empty database at `scale`, in key order. Durable when it returns.
///
/// # Errors
/// What the engine gives.
pub fn load(db: &Db, scale: u64, progress: &dyn Progress) -> Result<()> {
    let accounts = scale * ACCOUNTS_PER_BRANCH;
    progress.phase("loading accounts", accounts);
    fill(db, BRANCHES, scale, |branch| branch, &|_| {})?;
    fill(db, TELLERS, scale * TELLERS_PER_BRANCH, |teller| teller / TELLERS_PER_BRANCH, &|_| {})?;
    fill(db, ACCOUNTS, accounts, |account| account / ACCOUNTS_PER_BRANCH, &|done| progress.at(done))?;
    let tx = db.begin();
    tx.open(HISTORY)?;
    tx.open(BENCH)?.insert(NAME, scale)?;
    // Durable, and every earlier commit with it.
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
    // A crash of a load loses nothing worth keeping, so batches need not be durable one by one.
    let options = TxnOptions::new().label("load").durability(Durability::Relaxed);
    for first in (0..rows).step_by(BATCH as usize) {
        let tx = db.begin_with(options);
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

/// Whether the database in `dir` holds this workload at `scale`.
///
/// # Errors
/// `InvalidOption` if it holds it at another scale; `Foreign` if it holds anything else, or a load that did not end.
pub fn is_loaded(db: &Db, dir: &Path, scale: u64) -> Result<()> {
    let tx = db.begin();
    let found = tx.open(BENCH).and_then(|bench| bench.get(NAME));
    // Opening a table that is missing creates it: nothing of this look stays.
    tx.rollback()?;
    match found {
        Ok(Some(loaded)) if loaded == scale => Ok(()),
        Ok(Some(loaded)) => Err(Error::InvalidOption {
            name: "scale",
            value: scale.to_string(),
            expected: format!("{loaded}, which {} is loaded at", dir.display()),
        }),
        Ok(None) | Err(Error::TableTypes { .. }) => {
            Err(Error::Foreign { path: dir.to_owned(), why: "the database holds no finished load of tpcb" })
        }
        Err(e) => Err(e),
    }
}
