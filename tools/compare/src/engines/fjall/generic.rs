//! Transactions of the workloads that are written once for all engines.

use super::{Fjall, failed, key_of};
use crate::{
    engine::{Reader, Writer},
    error::Result,
    workload::Table,
};
use fjall::{Iter, Readable, SingleWriterWriteTx, Snapshot};
use std::ops::RangeInclusive;

/// Reads of a snapshot, or of the newest state.
pub(super) struct Reading<'a> {
    engine: &'a Fjall,
    snapshot: Option<Snapshot>,
}

/// The transaction that writes.
pub(super) struct Writing<'a, 't> {
    engine: &'a Fjall,
    tx: &'a mut SingleWriterWriteTx<'t>,
}

impl<'a> Reading<'a> {
    pub(super) const fn new(engine: &'a Fjall, snapshot: Option<Snapshot>) -> Self {
        Self { engine, snapshot }
    }
}

impl<'a, 't> Writing<'a, 't> {
    pub(super) const fn new(engine: &'a Fjall, tx: &'a mut SingleWriterWriteTx<'t>) -> Self {
        Self { engine, tx }
    }
}

fn bytes(keys: &RangeInclusive<u64>) -> RangeInclusive<[u8; 8]> {
    keys.start().to_be_bytes()..=keys.end().to_be_bytes()
}

impl Reader for Reading<'_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let (table, key) = (self.engine.keyspace(table), key.to_be_bytes());
        let row = self.snapshot.as_ref().map_or_else(|| table.get(key), |snapshot| snapshot.get(table, key));
        Ok(row.map_err(failed("get"))?.map(|row| read(&row)).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        let (table, keys) = (self.engine.keyspace(table), bytes(&keys));
        match &self.snapshot {
            Some(snapshot) => visit(snapshot.range(table, keys), read),
            None => visit(table.range(keys), read),
        }
    }
}

impl Reader for Writing<'_, '_> {
    fn get(&mut self, table: Table, key: u64, read: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let row = self.tx.get(self.engine.table(table), key.to_be_bytes()).map_err(failed("get"))?;
        Ok(row.map(|row| read(&row)).is_some())
    }

    fn range(
        &mut self,
        table: Table,
        keys: RangeInclusive<u64>,
        read: &mut dyn FnMut(u64, &[u8]) -> bool,
    ) -> Result<()> {
        visit(self.tx.range(self.engine.table(table), bytes(&keys)), read)
    }
}

impl Writer for Writing<'_, '_> {
    fn update(&mut self, table: Table, key: u64, change: &mut dyn FnMut(&mut [u8])) -> Result<bool> {
        let old = self.tx.fetch_update(self.engine.table(table), key.to_be_bytes(), |old| {
            let mut row = old?.to_vec();
            change(&mut row);
            Some(row.into())
        });
        Ok(old.map_err(failed("update"))?.is_some())
    }

    fn insert(&mut self, table: Table, key: u64, row: &[u8]) -> Result<bool> {
        let (table, key) = (self.engine.table(table), key.to_be_bytes());
        let is_new = !self.tx.contains_key(table, key).map_err(failed("get"))?;
        if is_new {
            self.tx.insert(table, key, row);
        }
        Ok(is_new)
    }

    fn delete(&mut self, table: Table, key: u64) -> Result<bool> {
        let old = self.tx.take(self.engine.table(table), key.to_be_bytes());
        Ok(old.map_err(failed("remove"))?.is_some())
    }
}

fn visit(rows: Iter, read: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<()> {
    for entry in rows {
        let (key, row) = entry.into_inner().map_err(failed("range"))?;
        if !read(key_of(&key), &row) {
            break;
        }
    }
    Ok(())
}
