//! Loads of many rows.

use crate::open::AnyTable;
use crate::system::Process;
use crate::{Fault, Status, Table};
use foreshore::LoadOptions;
use std::{cell::RefCell, iter};

impl Table {
    /// Inserts the rows of `next` up to its first `None`, and returns how many there were. Their keys ascend, and are
    /// above all keys of the table. `next` must not use the transaction: its calls return `InUse`.
    ///
    /// # Errors
    /// That of `next`, `LoadOrder`, `Invalid` of the options, and those of the engine. No row is loaded then.
    pub fn load<E: From<Fault>>(
        &self,
        options: LoadOptions,
        mut next: impl FnMut() -> Result<Option<(Vec<u8>, Vec<u8>)>, E>,
    ) -> Result<u64, E> {
        let failed = RefCell::new(None);
        let rows = iter::from_fn(|| {
            let process = Process::of_call();
            let row = next();
            process.must_be_present();
            row.unwrap_or_else(|error| {
                failed.replace(Some(error));
                None
            })
        });
        let loaded = self.slot().shared.with(|open| {
            let tx = open.writing()?;
            open.writes += 1;
            let AnyTable::Write(table) = self.slot().of(open)? else {
                return Err(Fault::new(Status::ReadOnly, "the transaction only reads"));
            };
            let before = tx.savepoint()?;
            let count = table.load_owned(options, rows)?;
            if failed.borrow().is_some() {
                // The rows before the error are in the table.
                tx.rollback_to(&before)?;
            }
            Ok(count)
        });
        match failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(loaded?),
        }
    }
}
