//! Numbers for new rows, of a table that is cleared and renamed, and never dropped. None comes twice in a run.

use foreshore::{Db, Error, Key, TableDef, Value};
use foreshore_sync::schedule;
use std::collections::BTreeSet;

pub(super) const NAME: &str = "numbered";
pub(super) const NUMBERED: TableDef<u64, u64> = TableDef::new(NAME);

/// Attempts to create the table. A transaction may become too old, and time may jump past its wait for a lock.
const CREATIONS: u32 = 20;

/// The numbers that were handed out.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Calls that begin from now on get larger ones.
    floor: u64,
    /// Those of this life.
    taken: BTreeSet<u64>,
}

impl Numbers {
    /// After a restart only larger numbers are handed out.
    pub(super) fn restarted(self) -> Self {
        Self { floor: self.last(), taken: BTreeSet::new() }
    }

    /// Returns a number that is not below any of them.
    pub(super) fn last(&self) -> u64 {
        self.taken.last().map_or(self.floor, |&last| self.floor.max(last))
    }

    /// Returns what a call that begins now gets a number above.
    pub(super) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Notes that numbers up to `last` are skipped.
    pub(super) fn skip(&mut self, last: u64) {
        self.floor = self.floor.max(last);
    }

    /// Notes a number. All up to `above` had been handed out or skipped when its call began.
    pub(super) fn take(&mut self, number: u64, above: u64) -> Result<(), String> {
        if number <= above {
            return Err(format!("number {number} is handed out, and {above} was before"));
        }
        self.taken.insert(number).then_some(()).ok_or_else(|| format!("number {number} is handed out twice"))
    }
}

/// Creates the table, durably, unless it is there.
pub(super) fn create(db: &Db) -> Result<(), String> {
    created(db, NUMBERED)
}

/// Creates a table, durably, unless it is there.
pub(super) fn created<K: Key, V: Value>(db: &Db, table: TableDef<'_, K, V>) -> Result<(), String> {
    let name = table.name();
    for _ in 0..CREATIONS {
        match db.run(|tx| tx.open(table).map(drop)) {
            Err(Error::TransactionTooOld { .. } | Error::LockTimeout { .. }) => schedule::progress(),
            created => return created.map_err(|error| format!("create {name}: {error} ({error:?})")),
        }
    }
    Err(format!("{name} is created by no transaction"))
}

/// Checks that a restored database hands out no number of a committed row.
pub(super) fn check_restored(db: &Db) -> Result<(), String> {
    let last = || match db.read().open(NUMBERED) {
        Err(Error::NoTable { .. }) => Ok(None),
        open => open.and_then(|open| open.last()),
    };
    let next = || db.run(|tx| tx.next_id(&tx.open(NUMBERED)?));
    let wrong = |error: Error| format!("numbers of what was restored: {error} ({error:?})");
    let (last, next) = (last().map_err(wrong)?, next().map_err(wrong)?);
    match last.filter(|&(last, _)| last >= next) {
        Some((last, _)) => Err(format!("number {next} is handed out, and {last} has a row")),
        None => Ok(()),
    }
}
