//! Settings and calls that all workloads share.

use crate::error::{Error, Result};
use rusqlite::{CachedStatement, Connection};

pub(super) const NAME: &str = "sqlite";

/// Bytes of log before a checkpoint.
pub(super) const CHECKPOINT_BYTES: u32 = 256 << 20;
/// Bytes of a page: the default.
pub(super) const PAGE: u32 = 4096;
/// Statements that the writing connection keeps.
pub(super) const STATEMENTS: usize = 1024;

pub(super) fn failed(call: &'static str) -> impl FnOnce(rusqlite::Error) -> Error {
    Error::failed(NAME, call)
}

/// Returns the value of `PRAGMA synchronous` of a variant.
pub(super) fn synchronous(variant: &str) -> &'static str {
    match variant {
        "normal" => "NORMAL",
        "off" => "OFF",
        _ => "FULL",
    }
}

/// Returns the pragmas of a connection that reads for one of `threads` threads, which share the cache's bytes.
pub(super) fn read_pragmas(cache: u64, threads: usize) -> String {
    let share = cache / 1024 / threads as u64;
    format!("PRAGMA mmap_size={cache}; PRAGMA cache_size=-{share}; PRAGMA query_only=ON;")
}

pub(super) fn cached<'a>(connection: &'a Connection, sql: &str) -> Result<CachedStatement<'a>> {
    connection.prepare_cached(sql).map_err(failed("prepare"))
}

/// Runs `work` between `BEGIN IMMEDIATE` and `COMMIT`.
pub(super) fn transaction<T>(connection: &Connection, work: impl FnOnce() -> Result<T>) -> Result<T> {
    cached(connection, "BEGIN IMMEDIATE")?.execute([]).map_err(failed("begin"))?;
    let value = work()?;
    cached(connection, "COMMIT")?.execute([]).map_err(failed("commit"))?;
    Ok(value)
}
