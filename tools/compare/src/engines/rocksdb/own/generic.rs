//! Transactions of the workloads that are written once for all engines.

use super::{
    super::{
        calls::{call, encoded},
        ffi,
    },
    Iterate, Own, Pinned,
};
use crate::{
    engine::{Reader, Writer},
    error::Result,
    workload::Table,
};
use std::ops::RangeInclusive;

/// Reads outside of transactions: of a snapshot, if the options name one.
pub(super) struct Reading<'a, 'd> {
    own: &'a Own<'d>,
    options: *const ffi::ReadOptions,
}

/// A transaction that has begun.
pub(super) struct Writing<'a, 'd>(&'a mut Own<'d>);

impl<'a, 'd> Reading<'a, 'd> {
    pub(super) const fn new(own: &'a Own<'d>, options: *const ffi::ReadOptions) -> Self {
        Self { own, options }
    }
}

impl<'a, 'd> Writing<'a, 'd> {
    pub(super) const fn new(own: &'a mut Own<'d>) -> Self {
        Self(own)
    }
}

impl Reader for Reading<'_, '_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.own.find(self.options, table, key)?.map(|row| read(row.bytes())).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(self.own.iterate_by(self.options, table, *keys.start()), *keys.end(), read)
    }
}

impl Reader for Writing<'_, '_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (own, key) = (&*self.0, encoded(table, key));
        // SAFETY: the transaction has begun, and the key lives through the call.
        let found = call("get", |error| unsafe {
            ffi::rocksdb_transaction_get_pinned(own.txn, own.read, key.as_ptr().cast(), key.len(), error)
        })?;
        Ok(Pinned::new(found).map(|row| read(row.bytes())).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        // SAFETY: the transaction has begun, and outlives the iterator.
        let iterator = unsafe { ffi::rocksdb_transaction_create_iterator(self.0.txn, self.0.read) };
        visit(Iterate::from(iterator, table, *keys.start()), *keys.end(), read)
    }
}

impl Writer for Writing<'_, '_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let Some(old) = self.0.get_for_update(table, key)? else { return Ok(false) };
        let mut row = old.bytes().to_vec();
        drop(old);
        change(&mut row);
        self.0.put(table, key, &row).map(|()| true)
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        if self.0.get_for_update(table, key)?.is_some() {
            return Ok(false);
        }
        self.0.put(table, key, row).map(|()| true)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        if self.0.get_for_update(table, key)?.is_none() {
            return Ok(false);
        }
        self.0.delete(table, key).map(|()| true)
    }
}

fn visit(mut rows: Iterate, last: u64, read: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<()> {
    while let Some((key, row)) = rows.here()?
        && key <= last
        && read(key, row)
    {
        rows.step();
    }
    Ok(())
}
