//! The calls of the workloads.

use super::{
    super::{
        calls::{KEY_BYTES, NAME, encoded, lost, take},
        ffi,
    },
    Own,
    generic::{Reading, Writing},
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::{Error, Result},
    workload::{HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use std::{ffi::c_char, ops::Range, ptr};

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        self.write(|own| {
            for (table, key) in transfer.balances() {
                let old = own.get_for_update(table, key)?.ok_or_else(lost)?;
                let mut row: [u8; ROW_BYTES] = old.bytes().try_into().map_err(|_| lost())?;
                drop(old);
                add(&mut row, transfer.delta);
                own.put(table, key, &row)?;
            }
            own.put(HISTORY, transfer.history, &transfer.history_row())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        if let &[key] = keys {
            return Ok(first_word(self.get_by(self.read, key)?.bytes()));
        }
        self.at_snapshot(|own, options| {
            keys.iter().try_fold(0, |sum, &key| Ok(sum ^ first_word(own.get_by(options, key)?.bytes())))
        })
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<u64> {
        let encoded: Vec<[u8; KEY_BYTES]> = keys.iter().map(|&key| encoded(ROWS, key)).collect();
        let pointers: Vec<*const c_char> = encoded.iter().map(|key| key.as_ptr().cast()).collect();
        let lens = vec![KEY_BYTES; keys.len()];
        let mut values = vec![ptr::null_mut::<c_char>(); keys.len()];
        let (mut value_lens, mut errors) = (vec![0; keys.len()], vec![ptr::null_mut(); keys.len()]);
        // SAFETY: the five lists have an entry for each key, and the lists live through the call.
        unsafe {
            ffi::rocksdb_transactiondb_multi_get(
                self.database.get(),
                self.read,
                keys.len(),
                pointers.as_ptr(),
                lens.as_ptr(),
                values.as_mut_ptr(),
                value_lens.as_mut_ptr(),
                errors.as_mut_ptr(),
            );
        }
        let (mut sum, mut failed) = (0, None);
        for ((value, len), error) in values.into_iter().zip(value_lens).zip(errors) {
            if let Some(cause) = take(error) {
                failed = Some(Error::Failed { engine: NAME, call: "multi get", cause });
            } else if value.is_null() {
                failed = Some(lost());
            } else {
                // SAFETY: the library allocated the value and gives it to the caller.
                unsafe {
                    sum ^= first_word(std::slice::from_raw_parts(value.cast(), len));
                    ffi::rocksdb_free(value.cast());
                }
            }
        }
        failed.map_or(Ok(sum), Err)
    }

    fn range(&mut self, first: u64, count: u64) -> Result<u64> {
        let (mut sum, mut rows) = (0, self.iterate(ROWS, first));
        for at in 0..count {
            if at > 0 {
                rows.step();
            }
            let Some((_, row)) = rows.here()? else { break };
            sum ^= first_word(row);
        }
        Ok(sum)
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        self.write(|own| (first..first + rows).try_for_each(|key| own.put(table, key, &row(key, key))))
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        self.write(|own| own.put(ROWS, key, value))
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        Ok(Seen::of(self.get_by(self.read, key)?.bytes()))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        self.write(|own| {
            old.iter().try_for_each(|&key| own.delete(ROWS, key))?;
            new.iter().try_for_each(|&key| own.put(ROWS, key, &row(key, key)))
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        self.write(|own| range.clone().try_for_each(|key| own.delete(ROWS, key)))
    }

    fn read_only(&mut self, calls: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        match calls {
            Calls::One => work(&mut Reading::new(self, self.read)),
            Calls::Several => self.at_snapshot(|own, options| work(&mut Reading::new(own, options))),
        }
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        self.write_or_not(|own| work(&mut Writing::new(own)))
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let mut claimed = self.claim(self.hint)?;
        if claimed.is_none() && self.hint > 0 {
            // A row before the hint was claimed by a transaction that rolled back, or committed late.
            claimed = self.claim(0)?;
        }
        self.hint = claimed.map_or(0, |key| key + 1);
        Ok(claimed)
    }
}
