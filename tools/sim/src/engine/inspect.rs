//! What an open database shows to the one that checks it.

use super::history::{Rows, TABLES};
use super::rows::{key_number, value_number};
use super::tables;
use foreshore::{Db, Error, ReadOptions, TableDef};
use foreshore_sync::schedule;
use std::collections::BTreeSet;
use std::time::Duration;

/// Checks that may wait in vain.
const CHECKS: u32 = 20;

/// All rows, by a snapshot of what is durable.
pub(super) fn read(db: &Db) -> Result<Rows, String> {
    let options = ReadOptions::new().label("compare").snapshot_max_age(Duration::MAX).snapshot_max_bytes(u64::MAX);
    let tx = db.read_with(options);
    let mut rows = Rows::new();
    for (table, name) in TABLES.iter().enumerate() {
        let open = match tx.open(TableDef::<&[u8], &[u8]>::new(name)) {
            Ok(open) => open,
            Err(Error::NoTable { .. }) => continue,
            Err(error) => return Err(format!("open {name} to compare: {error} ({error:?})")),
        };
        for row in open.iter() {
            schedule::progress();
            let (key, value) = row.map_err(|error| format!("read {name} to compare: {error} ({error:?})"))?;
            rows.insert((table as u8, key_number(&key)?), value_number(&value)?);
        }
    }
    tables::compare(&tx)?;
    Ok(rows)
}

/// Checks the whole database. Background work may be so slow that a wait for it is over sooner.
pub(super) fn checked(db: &Db) -> Result<(), String> {
    for _ in 0..CHECKS {
        match db.check() {
            Err(Error::LockTimeout { .. }) => schedule::progress(),
            Err(error) => return Err(format!("check: {error} ({error:?})")),
            Ok(_) => return Ok(()),
        }
    }
    Err("no check gets its locks".to_owned())
}

pub(super) fn names(db: &Db) -> Result<BTreeSet<String>, String> {
    let listed = db.prepared().map_err(|error| format!("list what is prepared: {error}"))?;
    Ok(listed.into_iter().map(|prepared| prepared.name).collect())
}

/// Checks that no part uses more memory than its share.
pub(super) fn within_limits(db: &Db) -> Result<(), String> {
    let stats = db.stats();
    let (used, share) = (stats.memory_use, stats.memory);
    let parts = [
        ("log", used.log, share.log_buffer),
        ("undo", used.undo, share.undo),
        ("status", used.status, share.status),
        ("locks", used.locks, share.locks),
        ("pool", used.pool, share.pool),
    ];
    match parts.iter().find(|(_, used, share)| used > share) {
        Some((part, used, share)) => Err(format!("{part} uses {used} bytes of {share}")),
        None => Ok(()),
    }
}
