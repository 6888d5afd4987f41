//! The calls of the workloads.

use super::{
    super::{code::check, ffi},
    Own, ended, generic, lost, step,
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::Result,
    workload::{HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use std::ops::Range;

impl Session for Own {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        self.write(|own| {
            for (table, key) in transfer.balances() {
                let mut row: [u8; ROW_BYTES] = own.get_row(table, key)?.try_into().map_err(|_| lost())?;
                add(&mut row, transfer.delta);
                // SAFETY: the cursor stands on the row, and the new one lives through the call.
                let code = unsafe { ffi::shim_update(own.session, table.index(), row.as_ptr().cast(), row.len()) };
                step("update", code)?;
            }
            own.insert_row(HISTORY, transfer.history, &transfer.history_row())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        if let &[key] = keys {
            let word = self.get_row(ROWS, key).map(first_word).map_err(ended)?;
            // SAFETY: the session is open. The reset ends the read's implicit transaction.
            check("reset", unsafe { ffi::shim_reset(self.session, ROWS.index()) })?;
            return Ok(word);
        }
        self.read(|own| keys.iter().try_fold(0, |sum, &key| Ok(sum ^ first_word(own.get_row(ROWS, key)?))))
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        self.read(|own| {
            let Some((_, row)) = own.seek(ROWS, first)? else { return Ok(0) };
            let mut sum = first_word(row);
            for _ in 1..rows {
                let Some((_, row)) = own.next(ROWS)? else { break };
                sum ^= first_word(row);
            }
            Ok(sum)
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        self.write(|own| (first..first + rows).try_for_each(|key| own.insert_row(table, key, &row(key, key))))
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.write(|own| own.insert_row(ROWS, key, value))
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let seen = self.get_row(ROWS, key).map(Seen::of).map_err(ended)?;
        // SAFETY: the session is open. The reset ends the read's implicit transaction.
        check("reset", unsafe { ffi::shim_reset(self.session, ROWS.index()) })?;
        Ok(seen)
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        self.write(|own| {
            for &key in old {
                // SAFETY: the session is open.
                step("remove", unsafe { ffi::shim_remove_key(own.session, ROWS.index(), key) })?;
            }
            new.iter().try_for_each(|&key| own.insert_row(ROWS, key, &row(key, key)))
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        self.write(|own| {
            // SAFETY: the session is open.
            let code = unsafe { ffi::shim_truncate(own.session, ROWS.index(), range.start, range.end - 1) };
            step("truncate", code)
        })
    }

    fn read_only(&mut self, calls: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        generic::read_only(self, calls, work)
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        generic::read_write(self, work)
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let hint = std::mem::take(&mut self.hint);
        let claimed = self.write(|own| {
            let mut found = own.seek(QUEUE, hint)?.map(|(key, _)| key);
            if found.is_none() && hint > 0 {
                // A producer may have committed a smaller key after a larger one.
                found = own.seek(QUEUE, 0)?.map(|(key, _)| key);
            }
            if found.is_some() {
                // SAFETY: the cursor stands on the row.
                step("remove", unsafe { ffi::shim_remove(own.session, QUEUE.index()) })?;
            }
            Ok(found)
        })?;
        self.hint = claimed.map_or(0, |key| key + 1);
        Ok(claimed)
    }
}
