//! Transactions of the workloads that are written once for all engines.

use super::{
    Lmdb, Own,
    txn::{Cursor, Txn},
};
use crate::{
    engine::{Reader, Writer},
    error::Result,
    workload::Table,
};
use lmdb_master_sys as ffi;
use std::ops::RangeInclusive;

/// The renewed read transaction of a session.
pub(super) struct Reading<'a, 'e>(&'a mut Own<'e>);

/// A transaction that writes.
pub(super) struct Writing<'a> {
    engine: &'a Lmdb,
    txn: &'a mut Txn,
}

impl<'a, 'e> Reading<'a, 'e> {
    pub(super) const fn new(own: &'a mut Own<'e>) -> Self {
        Self(own)
    }
}

impl<'a> Writing<'a> {
    pub(super) const fn new(engine: &'a Lmdb, txn: &'a mut Txn) -> Self {
        Self { engine, txn }
    }
}

impl Reader for Reading<'_, '_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.0.reader.find(self.0.engine.table(table), key)?.map(read).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(self.0.renewed(table)?, keys, read)
    }
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.txn.find(self.engine.table(table), key)?.map(read).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(&mut self.txn.cursor(self.engine.table(table))?, keys, read)
    }
}

impl Writer for Writing<'_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let table = self.engine.table(table);
        let Some(row) = self.txn.find(table, key)? else { return Ok(false) };
        let mut row = row.to_vec();
        change(&mut row);
        self.txn.put(table, key, &row, 0)
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        self.txn.put(self.engine.table(table), key, row, ffi::MDB_NOOVERWRITE)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        self.txn.remove(self.engine.table(table), key)
    }
}

fn visit(cursor: &mut Cursor, keys: RangeInclusive<u64>, read: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<()> {
    let mut step = ffi::MDB_SET_RANGE;
    while let Some((key, row)) = cursor.step(*keys.start(), step)?
        && key <= *keys.end()
        && read(key, row)
    {
        step = ffi::MDB_NEXT;
    }
    Ok(())
}
