//! Restores and repairs.

use crate::errors::detached;
use crate::options::path_of;
use foreshore::{Lsn, Timestamp, Until};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Position, commit number, end of the backup, time in nanoseconds, pages, bytes of log, pages set aside.
type Restored = (u64, u64, u64, Option<i128>, u64, u64, u64);

/// Number and table of a damaged page, and why it stays so.
type Damaged = (u64, Option<String>, String);

/// Restores to `target`, or verifies if there is none.
#[pyfunction]
#[pyo3(signature = (backup, target, increments, archive, until_lsn, until_ns))]
pub(crate) fn restore(
    py: Python<'_>,
    backup: &Bound<'_, PyAny>,
    target: Option<&Bound<'_, PyAny>>,
    increments: Vec<Bound<'_, PyAny>>,
    archive: Option<&Bound<'_, PyAny>>,
    until_lsn: Option<u64>,
    until_ns: Option<u64>,
) -> PyResult<Restored> {
    let until = match (until_lsn, until_ns) {
        (None, None) => Until::End,
        (Some(lsn), None) => Until::Lsn(Lsn(lsn)),
        (None, Some(ns)) => Until::Time(timestamp(ns)?),
        (Some(_), Some(_)) => return Err(PyValueError::new_err("a restore ends at a position or at a time")),
    };
    let to = target.map(path_of).transpose()?;
    let mut work = foreshore::restore(path_of(backup)?, to.as_deref().unwrap_or_default()).until(until);
    for increment in &increments {
        work = work.increment(path_of(increment)?);
    }
    if let Some(archive) = archive {
        work = work.archive(path_of(archive)?);
    }
    let done = detached(py, || Ok(if to.is_some() { work.run() } else { work.verify() }?))?;
    let time = done.time.map(|time| i128::from(time.secs()) * 1_000_000_000 + i128::from(time.nanos()));
    Ok((done.lsn.0, done.csn.0, done.backup_lsn.0, time, done.pages, done.log_bytes, done.quarantined))
}

fn timestamp(ns: u64) -> PyResult<Timestamp> {
    let time = Timestamp::new((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32);
    time.ok_or_else(|| PyValueError::new_err(format!("no time is {ns} nanoseconds after 1970")))
}

/// Repairs, or says what a repair would do. Returns the pages, those that were repaired, and those that were not.
#[pyfunction]
#[pyo3(signature = (path, backup, archive, dry_run))]
pub(crate) fn repair(
    py: Python<'_>,
    path: &Bound<'_, PyAny>,
    backup: &Bound<'_, PyAny>,
    archive: Option<&Bound<'_, PyAny>>,
    dry_run: bool,
) -> PyResult<(u64, Vec<Damaged>, Vec<Damaged>)> {
    let mut work = foreshore::repair(path_of(path)?, path_of(backup)?);
    if let Some(archive) = archive {
        work = work.archive(path_of(archive)?);
    }
    let done = detached(py, || Ok(if dry_run { work.dry_run() } else { work.run() }?))?;
    let table = |table: Option<foreshore::TableRef>| table.map(|table| table.to_string());
    let repaired = done.repaired.into_iter().map(|page| (page.page.0, table(page.table), page.damage.to_owned()));
    let left = done.unrepaired.into_iter().map(|page| (page.page.0, table(page.table), page.why.to_string()));
    Ok((done.pages, repaired.collect(), left.collect()))
}
