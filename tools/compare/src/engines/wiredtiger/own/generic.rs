//! Transactions of the workloads that are written once for all engines. Cursors do not overwrite: they tell whether a
//! row was there.

use super::{
    super::{code::check, ffi},
    Own, Stop, ended, found, is_duplicate, step,
};
use crate::{
    engine::{Calls, Reader, Writer},
    error::Result,
    workload::Table,
};
use std::ops::RangeInclusive;

/// What a transaction does, with the cursors of the session.
pub(super) struct Transaction<'a> {
    own: &'a mut Own,
    /// Whether a call met a conflict. Its error is then not one of the engine.
    has_conflict: bool,
}

/// Runs a transaction that only reads.
pub(super) fn read_only(
    own: &mut Own,
    calls: Calls,
    work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>,
) -> Result<()> {
    let mut work = |own: &mut Own| work(&mut Transaction { own, has_conflict: false });
    match calls {
        Calls::One => work(own),
        Calls::Several => own.read(|own| Ok(work(own)?)),
    }
}

/// Runs a transaction, again after a conflict.
pub(super) fn read_write(own: &mut Own, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
    own.write(|own| {
        let mut transaction = Transaction { own, has_conflict: false };
        let done = work(&mut transaction);
        if transaction.has_conflict { Err(Stop::Rollback) } else { Ok(done.map(drop)?) }
    })
}

impl Transaction<'_> {
    /// Notes a conflict. The error ends the work that met it.
    fn note<T>(&mut self, done: std::result::Result<T, Stop>) -> Result<T> {
        self.has_conflict |= matches!(done, Err(Stop::Rollback));
        done.map_err(ended)
    }

    /// Ends a call that may have been a transaction of its own. Within one, its end resets the cursors anyway.
    fn reset(&mut self, table: Table) -> Result<()> {
        // SAFETY: the session is open.
        check("reset", unsafe { ffi::shim_reset(self.own.session, table.index()) })
    }
}

impl Reader for Transaction<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.own.find_row(table, key).map(|row| row.map(read).is_some());
        let found = self.note(found)?;
        self.reset(table)?;
        Ok(found)
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let mut read = |row: Option<(u64, &[u8])>| row.is_some_and(|(key, row)| key <= *keys.end() && read(key, row));
        let done = self.own.seek(table, *keys.start()).map(&mut read);
        let mut goes_on = self.note(done)?;
        while goes_on {
            let done = self.own.next(table).map(&mut read);
            goes_on = self.note(done)?;
        }
        self.reset(table)
    }
}

impl Writer for Transaction<'_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let row = self.own.find_row(table, key).map(|row| row.map(<[u8]>::to_vec));
        let Some(mut row) = self.note(row)? else { return Ok(false) };
        change(&mut row);
        // SAFETY: the cursor stands on the row, and the new one lives through the call.
        let code = unsafe { ffi::shim_update(self.own.session, table.index(), row.as_ptr().cast(), row.len()) };
        self.note(step("update", code))?;
        Ok(true)
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        let bytes = row.as_ptr().cast();
        // SAFETY: the session is open, and the row lives through the call.
        let code = unsafe { ffi::shim_insert(self.own.session, table.index(), key, bytes, row.len()) };
        if is_duplicate(code) {
            return Ok(false);
        }
        self.note(step("insert", code))?;
        Ok(true)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_remove_key(self.own.session, table.index(), key) };
        self.note(found("remove", code))
    }
}
