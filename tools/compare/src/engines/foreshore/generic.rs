//! Transactions of the workloads that are written once for all engines.

use super::{Bytes, Foreshore, failed};
use crate::{
    engine::{Reader, Writer},
    error::{Error, Result},
    workload::Table,
};
use foreshore::{ReadTransaction, Transaction};
use std::ops::RangeInclusive;

/// A transaction of [`foreshore::Db::read`].
pub(super) struct Reading<'a> {
    engine: &'a Foreshore,
    tx: &'a ReadTransaction,
}

/// A transaction that writes.
pub(super) struct Writing<'a> {
    engine: &'a Foreshore,
    tx: &'a Transaction,
}

impl<'a> Reading<'a> {
    pub(super) const fn new(engine: &'a Foreshore, tx: &'a ReadTransaction) -> Self {
        Self { engine, tx }
    }
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.tx.open(self.engine.table(table)).map_err(failed("open a table"))?;
        Ok(table.get_with(key, read).map_err(failed("get"))?.is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let table = self.tx.open(self.engine.table(table)).map_err(failed("open a table"))?;
        visit(table.range(keys), read)
    }
}

impl<'a> Writing<'a> {
    pub(super) const fn new(engine: &'a Foreshore, tx: &'a Transaction) -> Self {
        Self { engine, tx }
    }

    fn open(&self, table: Table) -> Result<foreshore::Table<'a, u64, Bytes>> {
        self.tx.open(self.engine.table(table)).map_err(failed("open a table"))
    }
}

impl Reader for Writing<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.open(table)?.get_with(key, read).map_err(failed("get"))?.is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(self.open(table)?.range(keys), read)
    }
}

impl Writer for Writing<'_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let changed = self.open(table)?.update_with(key, |row| {
            let mut row = row?;
            change(&mut row);
            Some(row)
        });
        Ok(changed.map_err(failed("update"))?.is_some())
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        match self.open(table)?.insert_new(key, row) {
            Ok(()) => Ok(true),
            Err(foreshore::Error::KeyExists { .. }) => Ok(false),
            Err(error) => Err(failed("insert")(error)),
        }
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        Ok(self.open(table)?.remove(key).map_err(failed("remove"))?.is_some())
    }
}

fn visit(mut rows: foreshore::Range<'_, u64, Bytes>, read: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<()> {
    while rows.next_with(&mut *read).map_err(failed("range"))? == Some(true) {}
    Ok(())
}

/// The error of a closure of `Db::run`, which tells by the transaction itself whether it runs again.
pub(super) struct Stop(pub(super) Error);

impl From<foreshore::Error> for Stop {
    fn from(error: foreshore::Error) -> Self {
        Self(failed("transaction")(error))
    }
}
