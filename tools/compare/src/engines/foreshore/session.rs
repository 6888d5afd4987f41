//! The calls of the workloads.

use super::{
    Own, PART, failed,
    generic::{Reading, Stop, Writing},
    lost,
};
use crate::{
    engine::{Calls, Reader, Session, Writer},
    error::Result,
    workload::{HISTORY, QUEUE, ROWS, Table, Transfer, add, first_word, row, values::Seen},
};
use foreshore::{CommitTicket, ReadOptions, RowLock, Transaction};
use std::ops::Range;

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let engine = self.engine;
        let is_whole = self.write(|tx| {
            for (table, key) in transfer.balances() {
                let table = tx.open(engine.table(table))?;
                let Some(mut row) = table.get_for_update(key)? else { return Ok(false) };
                add(&mut row, transfer.delta);
                table.put(key, &row[..])?;
            }
            tx.open(engine.table(HISTORY))?.put(transfer.history, &transfer.history_row()[..])?;
            Ok(true)
        })?;
        if is_whole { Ok(()) } else { Err(lost()) }
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        keys.iter().try_fold(0, |sum, key| {
            let word = table.get_with(key, first_word).map_err(failed("get"))?;
            Ok(sum ^ word.ok_or_else(lost)?)
        })
    }

    fn get_many(&mut self, keys: &[u64]) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut sum = Some(0);
        let add = |_, row: Option<&[u8]>| sum = sum.zip(row.map(first_word)).map(|(sum, word)| sum ^ word);
        table.get_many_with(keys, add).map_err(failed("get many"))?;
        sum.ok_or_else(lost)
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut range = table.range(first..);
        (0..rows).try_fold(0, |sum, _| {
            let word = range.next_with(|_, row| first_word(row)).map_err(failed("range"))?;
            Ok(sum ^ word.unwrap_or(0))
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(table))?;
            (first..first + rows).try_for_each(|key| table.put(key, &row(key, key)[..]))
        })
    }

    fn push(&mut self, key: u64) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(QUEUE))?.put(key, &row(key, key)[..]))
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(QUEUE))?;
            let lock = RowLock::update().skip_locked();
            let first = table.range_locked(.., lock).next().transpose()?;
            let Some((key, _)) = first else { return Ok(None) };
            table.remove(key)?;
            Ok(Some(key))
        })
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(ROWS))?.put(key, value))
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let tx = self.engine.db.read();
        let table = tx.open(self.engine.table(ROWS)).map_err(failed("open a table"))?;
        let mut reader = table.get_reader(key).map_err(failed("get"))?.ok_or_else(lost)?;
        self.part.resize(PART.min(reader.len() as usize), 0);
        let (mut seen, mut at) = (None::<Seen>, 0);
        while at < reader.len() {
            let len = reader.read_at(at, &mut self.part).map_err(failed("read a part"))?;
            let part = Seen::of(&self.part[..len]);
            seen = Some(seen.map_or(part, |seen| seen.then(part)));
            at += len as u64;
        }
        seen.ok_or_else(lost)
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| {
            let table = tx.open(engine.table(ROWS))?;
            old.iter().try_for_each(|key| table.remove(key).map(drop))?;
            new.iter().try_for_each(|key| table.put(key, &row(*key, *key)[..]))
        })
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let engine = self.engine;
        self.write(|tx| tx.open(engine.table(ROWS))?.remove_range(&range)).map(drop)
    }

    fn read_only(&mut self, _: Calls, work: &mut dyn FnMut(&mut dyn Reader) -> Result<()>) -> Result<()> {
        let options = if self.engine.durable { ReadOptions::new() } else { ReadOptions::new().latest() };
        work(&mut Reading::new(self.engine, &self.engine.db.read_with(options)))
    }

    fn read_write(&mut self, work: &mut dyn FnMut(&mut dyn Writer) -> Result<bool>) -> Result<()> {
        let engine = self.engine;
        let run = |tx: &Transaction| work(&mut Writing::new(engine, tx)).map(drop).map_err(Stop);
        if engine.in_flight == 1 {
            return engine.db.run_with(engine.options, run).map_err(|Stop(error)| error);
        }
        let ran = engine.db.run_pipelined_with(engine.options, run);
        let ((), ticket) = ran.map_err(|Stop(error)| error)?;
        self.tickets.push_back(ticket);
        Ok(())
    }

    fn pending(&mut self) -> Result<usize> {
        if self.tickets.len() >= self.engine.in_flight
            && let Some(oldest) = self.tickets.pop_front()
        {
            oldest.wait().map_err(failed("wait"))?;
        }
        while self.tickets.front().is_some_and(CommitTicket::is_durable) {
            self.tickets.pop_front();
        }
        Ok(self.tickets.len())
    }

    fn drain(&mut self) -> Result<()> {
        self.tickets.drain(..).try_for_each(|ticket| ticket.wait()).map_err(failed("wait"))
    }
}
