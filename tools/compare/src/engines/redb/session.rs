//! The calls of the workloads.

use super::{
    Own, failed,
    generic::{Reading, Writing},
    lost,
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::Result,
    workload::{HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use redb::ReadableDatabase;
use std::ops::Range;

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            for (table, key) in transfer.balances() {
                let mut table = tx.open_table(engine.table(table)).map_err(failed("open a table"))?;
                let mut guard = table.get_mut(key).map_err(failed("get"))?.ok_or_else(lost)?;
                let mut row: [u8; ROW_BYTES] = guard.value().try_into().map_err(|_| lost())?;
                add(&mut row, transfer.delta);
                guard.insert(&row[..]).map_err(failed("update"))?;
            }
            let mut history = tx.open_table(engine.table(HISTORY)).map_err(failed("open a table"))?;
            history.insert(transfer.history, &transfer.history_row()[..]).map_err(failed("insert"))?;
            Ok(())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        keys.iter().try_fold(0, |sum, key| {
            let row = table.get(key).map_err(failed("get"))?.ok_or_else(lost)?;
            Ok(sum ^ first_word(row.value()))
        })
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        table.range(first..).map_err(failed("range"))?.take(rows as usize).try_fold(0, |sum, entry| {
            let (_, row) = entry.map_err(failed("range"))?;
            Ok(sum ^ first_word(row.value()))
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(table)).map_err(failed("open a table"))?;
            for key in first..first + rows {
                table.insert(key, &row(key, key)[..]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            table.insert(key, value).map_err(failed("insert"))?;
            Ok(())
        })
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        let table = tx.open_table(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let value = table.get(key).map_err(failed("get"))?.ok_or_else(lost)?;
        Ok(Seen::of(value.value()))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            for key in old {
                table.remove(key).map_err(failed("remove"))?;
            }
            for &key in new {
                table.insert(key, &row(key, key)[..]).map_err(failed("insert"))?;
            }
            Ok(())
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(ROWS)).map_err(failed("open a table"))?;
            table.retain_in(range, |_, _| false).map_err(failed("retain"))
        })
    }

    fn read_only(&mut self, _: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        let tx = self.engine.db.begin_read().map_err(failed("begin"))?;
        work(&mut Reading::new(self.engine, &tx))
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        let tx = self.engine.begin()?;
        let has_written = work(&mut Writing::new(self.engine, &tx))?;
        // A durable commit syncs even if it changes nothing.
        if has_written { tx.commit().map_err(failed("commit")) } else { tx.abort().map_err(failed("abort")) }
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let engine = self.engine;
        engine.write(|tx| {
            let mut table = tx.open_table(engine.table(QUEUE)).map_err(failed("open a table"))?;
            let first = table.pop_first().map_err(failed("pop"))?;
            Ok(first.map(|(key, _)| key.value()))
        })
    }
}
