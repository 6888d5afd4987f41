//! The calls of the workloads.

use super::{
    Own, failed,
    generic::{Reading, Writing},
    key_of, lost,
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::Result,
    workload::{HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use fjall::Readable;
use std::ops::Range;

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            for (table, key) in transfer.balances() {
                let was = tx.fetch_update(engine.table(table), key.to_be_bytes(), |old| {
                    let mut row: [u8; ROW_BYTES] = old?[..].try_into().ok()?;
                    add(&mut row, transfer.delta);
                    Some(row.into())
                });
                was.map_err(failed("update"))?.ok_or_else(lost)?;
            }
            tx.insert(engine.table(HISTORY), transfer.history.to_be_bytes(), transfer.history_row());
            Ok(())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let table = self.engine.keyspace(ROWS);
        if let &[key] = keys {
            let row = table.get(key.to_be_bytes()).map_err(failed("get"))?;
            return Ok(first_word(&row.ok_or_else(lost)?));
        }
        let snapshot = self.engine.db.read_tx();
        keys.iter().try_fold(0, |sum, key| {
            let row = snapshot.get(table, key.to_be_bytes()).map_err(failed("get"))?.ok_or_else(lost)?;
            Ok(sum ^ first_word(&row))
        })
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let range = self.engine.keyspace(ROWS).range(first.to_be_bytes()..);
        range.take(rows as usize).try_fold(0, |sum, entry| {
            let row = entry.value().map_err(failed("range"))?;
            Ok(sum ^ first_word(&row))
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            (first..first + rows).for_each(|key| tx.insert(engine.table(table), key.to_be_bytes(), row(key, key)));
            Ok(())
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            tx.insert(engine.table(ROWS), key.to_be_bytes(), value);
            Ok(())
        })
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let value = self.engine.keyspace(ROWS).get(key.to_be_bytes()).map_err(failed("get"))?;
        Ok(Seen::of(&value.ok_or_else(lost)?))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            let table = engine.table(ROWS);
            old.iter().for_each(|key| tx.remove(table, key.to_be_bytes()));
            new.iter().for_each(|&key| tx.insert(table, key.to_be_bytes(), row(key, key)));
            Ok(())
        })
    }

    fn delete_range(&mut self, mut range: Range<u64>) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| {
            range.try_for_each(|key| {
                tx.remove(engine.table(ROWS), key.to_be_bytes());
                Ok(())
            })
        })
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let (engine, hint) = (self.engine, std::mem::take(&mut self.hint));
        let claimed = engine.write(|tx| {
            let table = engine.table(QUEUE);
            let mut first = tx.range(table, hint.to_be_bytes()..).next();
            if first.is_none() && hint > 0 {
                // A producer may have committed a smaller key after a larger one.
                first = tx.first_key_value(table);
            }
            let Some(first) = first else { return Ok(None) };
            let key = first.key().map_err(failed("pop"))?;
            let number = key_of(&key);
            tx.remove(table, key);
            Ok(Some(number))
        })?;
        self.hint = claimed.map_or(0, |key| key + 1);
        Ok(claimed)
    }

    fn read_only(&mut self, calls: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        let snapshot = (calls == Calls::Several).then(|| self.engine.db.read_tx());
        work(&mut Reading::new(self.engine, snapshot))
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        let engine = self.engine;
        engine.write(|tx| work(&mut Writing::new(engine, tx))).map(drop)
    }
}
