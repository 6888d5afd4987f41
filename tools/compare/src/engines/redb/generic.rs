//! Transactions of the workloads that are written once for all engines.

use super::{Redb, failed};
use crate::{
    engine::{Reader, Writer},
    error::Result,
    workload::Table,
};
use redb::{ReadTransaction, ReadableTable, WriteTransaction};
use std::ops::RangeInclusive;

/// A transaction that only reads.
pub(super) struct Reading<'a> {
    engine: &'a Redb,
    tx: &'a ReadTransaction,
}

/// A transaction that writes.
pub(super) struct Writing<'a> {
    engine: &'a Redb,
    tx: &'a WriteTransaction,
}

impl<'a> Reading<'a> {
    pub(super) const fn new(engine: &'a Redb, tx: &'a ReadTransaction) -> Self {
        Self { engine, tx }
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.tx.open_table(self.engine.table(table)).map_err(failed("open a table"))?;
        get(&table, key, read)
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let table = self.tx.open_table(self.engine.table(table)).map_err(failed("open a table"))?;
        visit(&table, keys, read)
    }
}

impl<'a> Writing<'a> {
    pub(super) const fn new(engine: &'a Redb, tx: &'a WriteTransaction) -> Self {
        Self { engine, tx }
    }

    fn open(&self, table: Table) -> Result<redb::Table<'a, u64, &'static [u8]>> {
        self.tx.open_table(self.engine.table(table)).map_err(failed("open a table"))
    }
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        get(&self.open(table)?, key, read)
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(&self.open(table)?, keys, read)
    }
}

impl Writer for Writing<'_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let mut table = self.open(table)?;
        let Some(mut guard) = table.get_mut(key).map_err(failed("get"))? else { return Ok(false) };
        let mut row = guard.value().to_vec();
        change(&mut row);
        guard.insert(&row[..]).map_err(failed("update"))?;
        Ok(true)
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        let mut table = self.open(table)?;
        let is_new = table.get(key).map_err(failed("get"))?.is_none();
        if is_new {
            table.insert(key, row).map_err(failed("insert"))?;
        }
        Ok(is_new)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        Ok(self.open(table)?.remove(key).map_err(failed("remove"))?.is_some())
    }
}

fn get(table: &impl ReadableTable<u64, &'static [u8]>, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
    Ok(table.get(key).map_err(failed("get"))?.map(|row| read(row.value())).is_some())
}

fn visit(
    table: &impl ReadableTable<u64, &'static [u8]>,
    keys: RangeInclusive<u64>,
    read: &mut dyn FnMut(u64, &[u8]) -> bool,
) -> Result<()> {
    for entry in table.range(keys).map_err(failed("range"))? {
        let (key, row) = entry.map_err(failed("range"))?;
        if !read(key.value(), row.value()) {
            break;
        }
    }
    Ok(())
}
