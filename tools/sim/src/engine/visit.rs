//! Short uses of the database behind a start, before the other rows are read: their pages wait for their redo
//! meanwhile. At the end of each power is lost, and the next start may be followed by another one.

use super::numbers;
use super::plan::{one_in, one_of};
use super::rows::{large_value, value, value_number};
use crate::Random;
use foreshore::{Db, Error, ReadOptions, TableDef};
use foreshore_io::Sim;
use foreshore_sync::schedule;
use std::collections::BTreeMap;
use std::time::Duration;

/// A table that nothing else changes.
const VISITED: TableDef<u64, &[u8]> = TableDef::new("visited");
/// Its rows at most, in several leaves.
const ROWS: u64 = 60;
/// Transactions of a use, at most.
const TXNS: u64 = 120;

/// What the rows of the table may be.
#[derive(Debug, Default)]
pub(super) struct Visits {
    /// Whether the table is there.
    is_created: bool,
    rows: BTreeMap<u64, u64>,
    /// The changes whose commits were not answered and that no later one has replaced.
    doubtful: Vec<(u64, u64)>,
    /// That of the last change. It decides the value.
    number: u64,
}

impl Visits {
    /// Creates the table, durably, unless it is there.
    pub(super) fn create(&mut self, db: &Db) -> Result<(), String> {
        numbers::created(db, VISITED)?;
        self.is_created = true;
        Ok(())
    }

    /// Returns whether the table is there.
    pub(super) const fn is_created(&self) -> bool {
        self.is_created
    }

    /// Changes rows of some part of the table, one after the other, until power is lost. There may be a checkpoint
    /// before, and the end may come behind the next one.
    pub(super) fn run(&mut self, db: &Db, disk: &Sim, random: &mut Random) -> Result<(), String> {
        let (checkpoints, first) = (one_in(random, 2), random.below(ROWS));
        let (count, txns) = (one_of(random, &[1, ROWS]), random.below(TXNS));
        let mut outcome = if checkpoints { db.checkpoint() } else { Ok(()) };
        let (ends_soon, before) = (!one_in(random, 4), db.stats().checkpoint.checkpoints);
        for _ in 0..txns {
            schedule::progress();
            match outcome {
                Ok(()) => {}
                Err(_) if disk.is_off() => return Ok(()),
                // The time of transactions may be short.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(format!("a use behind a start: {error} ({error:?})")),
            }
            if ends_soon && db.stats().checkpoint.checkpoints > before {
                return Ok(());
            }
            self.number = large_value(self.number + 1);
            let (row, number) = ((first + random.below(count)) % ROWS, self.number);
            outcome = db.run(|tx| tx.open(VISITED)?.insert(row, &value(number)[..]).map(drop));
            if outcome.is_ok() {
                self.doubtful.retain(|(doubtful, _)| *doubtful != row);
                self.rows.insert(row, number);
            } else {
                self.doubtful.push((row, number));
            }
        }
        Ok(())
    }

    /// Checks the rows, from which the next use goes on.
    pub(super) fn check(&mut self, db: &Db) -> Result<(), String> {
        let options = ReadOptions::new().label("visited").snapshot_max_age(Duration::MAX).snapshot_max_bytes(u64::MAX);
        let read = || match db.read_with(options).open(VISITED) {
            Err(Error::NoTable { .. }) if !self.is_created => Ok(Vec::new()),
            open => open.and_then(|open| open.iter().collect()),
        };
        let found = read().map_err(|error| format!("visited rows: {error} ({error:?})"))?;
        let numbers = found.into_iter().map(|(row, bytes)| Ok((row, value_number(&bytes)?)));
        let numbers = numbers.collect::<Result<BTreeMap<_, _>, String>>()?;
        let mut rows = std::mem::take(&mut self.rows);
        rows.extend(self.doubtful.drain(..).filter(|(row, number)| numbers.get(row) == Some(number)));
        if numbers != rows {
            return Err(format!("the visited rows are {numbers:?}, and not {rows:?}"));
        }
        self.rows = rows;
        Ok(())
    }
}
