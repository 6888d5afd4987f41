//! Rows that say what a database holds. They are the last that a load writes.

use foreshore::{Db, Error, Result, TableDef};
use std::path::Path;

const BENCH: TableDef<'_, &'static str, u64> = TableDef::new("bench");
/// The name of the number of runs.
const RUNS: &str = "runs";

/// Notes a number under a name. Durable when it returns, and every earlier commit with it.
pub(super) fn set(db: &Db, name: &str, number: u64) -> Result<()> {
    let tx = db.begin();
    tx.open(BENCH)?.insert(name, number)?;
    tx.commit()?;
    Ok(())
}

/// Returns the number of the next run, whose draws no earlier run has.
pub(crate) fn next_run(db: &Db) -> Result<u64> {
    Ok(get(db, RUNS)?.unwrap_or(0))
}

/// Notes that a run begins, before it draws anything: it may be killed.
pub(crate) fn begin_run(db: &Db, run: u64) -> Result<()> {
    set(db, RUNS, run + 1)
}

/// The number under a name, if there is one.
pub(super) fn get(db: &Db, name: &str) -> Result<Option<u64>> {
    let tx = db.begin();
    let found = tx.open(BENCH).and_then(|bench| bench.get(name));
    // Opening a table that is missing creates it: nothing of this look stays.
    tx.rollback()?;
    match found {
        Err(Error::TableTypes { .. }) => Ok(None),
        found => found,
    }
}

/// Refuses a database in `dir` that was not loaded with `workload` with that option.
pub(super) fn check(db: &Db, dir: &Path, workload: &str, (option, value): (&'static str, u64)) -> Result<()> {
    match get(db, workload)? {
        Some(loaded) if loaded == value => Ok(()),
        Some(loaded) => Err(Error::InvalidOption {
            name: option,
            value: value.to_string(),
            expected: format!("{loaded}, which {} is loaded at", dir.display()),
        }),
        None => {
            Err(Error::Foreign { path: dir.to_owned(), why: "the database holds no finished load of this workload" })
        }
    }
}
