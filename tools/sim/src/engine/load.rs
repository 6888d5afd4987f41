//! Loads of sorted rows at the end of a table.

use super::history::{Level, Step};
use super::plan::one_in;
use super::rows::{key, value};
use super::session::Session;
use super::shared::Stop;
use super::tables::definition;
use super::work::pair;
use foreshore::{Error, LoadOptions, Transaction};

/// Rows of a load at most. Some fill several leaves.
const MOST: u64 = 400;

impl Session<'_> {
    /// Loads rows behind the last one of a table. If many lie behind the usual keys, removes these first.
    pub(super) fn load(&mut self, tx: &Transaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let table = if one_in(self.random(), 2) { 3 } else { self.random().below(3) as u8 };
        let open = tx.open(definition(table))?;
        let usual = if table == 3 { self.shared().big_keys } else { self.shared().keys };
        let last = open.last()?.map(|(key, value)| pair(&key, &value)).transpose()?;
        let is_whole = last.is_none();
        let (rows, keys) = (last.into_iter().collect(), 0..u16::MAX);
        steps.push(Step::Scan { table, keys, rows, is_backward: true, is_whole, skips: false });
        let first = last.map_or(0, |(key, _)| key + 1);
        if first > usual.saturating_add(2000) {
            return (usual..first).rev().try_for_each(|key| self.remove(&open, (table, key), steps));
        }
        let most = if one_in(self.random(), 2) { MOST } else { 8 };
        let count = 1 + self.random().below(most) as u16;
        let loaded: Vec<_> = (first..first + count).map(|number| (number, self.shared().moment())).collect();
        let options = LoadOptions::new().fill_percent(50 + self.random().below(51) as u8);
        let encoded = loaded.iter().map(|&(number, of)| (key(number), value(of)));
        match open.load_owned(options, encoded) {
            Ok(_) => {}
            // Others have inserted behind the row that was the last.
            Err(Error::LoadOrder { .. }) if self.level() == Level::ReadCommitted => return Ok(()),
            Err(Error::LoadOrder { row, .. }) => return Err(format!("row {row} of a load is out of order").into()),
            Err(error) => return Err(error.into()),
        }
        for (number, of) in loaded {
            let row = (table, number);
            steps.extend([Step::Read { row, found: None, is_locked: true }, Step::Write { row, value: Some(of) }]);
        }
        Ok(())
    }
}
