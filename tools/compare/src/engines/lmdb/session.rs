//! The calls of the workloads.

use super::{
    Own,
    generic::{Reading, Writing},
    txn::{check, lost},
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::Result,
    workload::{HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use lmdb_master_sys as ffi;
use std::ops::Range;

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        for (table, key) in transfer.balances() {
            let table = self.engine.table(table);
            let mut row: [u8; ROW_BYTES] = txn.get(table, key)?.try_into().map_err(|_| lost())?;
            add(&mut row, transfer.delta);
            txn.put(table, key, &row, 0)?;
        }
        txn.put(self.engine.table(HISTORY), transfer.history, &transfer.history_row(), 0)?;
        txn.commit()
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let table = self.engine.table(ROWS);
        self.read(|own| keys.iter().try_fold(0, |sum, &key| Ok(sum ^ first_word(own.reader.get(table, key)?))))
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        self.read(|own| {
            let cursor = own.renewed(ROWS)?;
            let (mut sum, mut step) = (0, ffi::MDB_SET_RANGE);
            for _ in 0..rows {
                let Some((_, row)) = cursor.step(first, step)? else { break };
                sum ^= first_word(row);
                step = ffi::MDB_NEXT;
            }
            Ok(sum)
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        let table = self.engine.table(table);
        for key in first..first + rows {
            txn.put(table, key, &row(key, key), ffi::MDB_APPEND)?;
        }
        txn.commit()
    }

    fn push(&mut self, key: u64) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        txn.put(self.engine.table(QUEUE), key, &row(key, key), 0)?;
        txn.commit()
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        txn.put(self.engine.table(ROWS), key, value, 0)?;
        txn.commit()
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let table = self.engine.table(ROWS);
        self.read(|own| Ok(Seen::of(own.reader.get(table, key)?)))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        let table = self.engine.table(ROWS);
        old.iter().try_for_each(|&key| txn.remove(table, key).map(drop))?;
        new.iter().try_for_each(|&key| txn.put(table, key, &row(key, key), 0).map(drop))?;
        txn.commit()
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let txn = self.engine.begin(0)?;
        let mut cursor = txn.cursor(self.engine.table(ROWS))?;
        let mut key = cursor.step(range.start, ffi::MDB_SET_RANGE)?.map(|(key, _)| key);
        while key.is_some_and(|key| key < range.end) {
            // SAFETY: the cursor stands on a row of the write transaction.
            check("delete", unsafe { ffi::mdb_cursor_del(cursor.0, 0) })?;
            // The cursor stands on the row behind the deleted one, and this step stays there.
            key = cursor.step(0, ffi::MDB_NEXT)?.map(|(key, _)| key);
        }
        drop(cursor);
        txn.commit()
    }

    fn read_only(&mut self, _: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        self.read(|own| work(&mut Reading::new(own)))
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        work(&mut Writing::new(self.engine, &mut txn))?;
        txn.commit()
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let txn = self.engine.begin(0)?;
        let mut cursor = txn.cursor(self.engine.table(QUEUE))?;
        let first = cursor.step(0, ffi::MDB_FIRST)?.map(|(key, _)| key);
        if first.is_some() {
            // SAFETY: the cursor stands on a row of the write transaction.
            check("delete", unsafe { ffi::mdb_cursor_del(cursor.0, 0) })?;
        }
        drop(cursor);
        txn.commit()?;
        Ok(first)
    }
}
