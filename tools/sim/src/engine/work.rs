//! What a session does in its transactions.

use super::device;
use super::history::{Level, NEVER, Outcome, Row, Step, TABLES, Txn};
use super::plan::{one_in, one_of};
use super::rows::{key, key_number, value, value_number};
use super::session::Session;
use super::shared::Stop;
use super::tables::{INDEXED, INDEXES, definition};
use foreshore::{
    Csn, Error, Locked, ReadOptions, ReadTransaction, RowLock, Savepoint, Table, Transaction, ValueReader,
};
use std::time::Duration;

/// A choice of [`Session::write`].
const REMOVE: u64 = 7;
/// A choice of [`Session::look`].
const GET: u64 = 8;

/// A name that no table has between two transactions.
const SPARE: &str = "spare";

pub(super) type RawTable<'tx> = Table<'tx, &'static [u8], &'static [u8]>;

impl Session<'_> {
    /// The steps of a transaction.
    pub(super) fn work(&mut self, tx: &Transaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let mut savepoints: Vec<(Savepoint, usize)> = Vec::new();
        let operations = 1 + self.random().below(7) as u32;
        let after = self.random().clone();
        for operation in 0..operations {
            let place = self.action().part(operation);
            if !self.parts().has(&place) {
                continue;
            }
            *self.random() = self.parts().random(&place);
            match self.random().below(40) {
                0 if one_in(self.random(), 4) => {
                    // The next open of the table builds it again.
                    tx.drop_index(TABLES[usize::from(INDEXED)], one_of(self.random(), &INDEXES))?;
                }
                0 if one_in(self.random(), 2) => self.rename(tx, steps)?,
                0 => {
                    let table = self.random().below(3) as u8;
                    let name = TABLES[usize::from(table)];
                    let end = if one_in(self.random(), 2) { Transaction::drop_table } else { Transaction::clear_table };
                    if end(tx, name)? {
                        steps.push(Step::Drop { table });
                    }
                }
                1..=4 => savepoints.push((tx.savepoint()?, changes(steps))),
                5..=7 if !savepoints.is_empty() => {
                    let to = self.random().below(savepoints.len() as u64) as usize;
                    savepoints.truncate(to + 1);
                    let (savepoint, changes) = &savepoints[to];
                    tx.rollback_to(savepoint)?;
                    steps.push(Step::Back { changes: *changes });
                }
                8 if one_in(self.random(), 3) => self.sweep(tx, steps)?,
                10 if one_in(self.random(), 2) => self.load(tx, steps)?,
                11..=12 => self.number(tx)?,
                9 => device::pause(Duration::from_micros(self.random().below(3_000))),
                _ => self.operate(tx, steps)?,
            }
        }
        *self.random() = after;
        Ok(())
    }

    /// Gives a table another name. Then it gets its own back, or is dropped by the other one.
    fn rename(&mut self, tx: &Transaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let table = self.random().below(3) as u8;
        let (name, savepoint) = (TABLES[usize::from(table)], tx.savepoint()?);
        if !tx.rename_table(name, SPARE)? {
            return Ok(());
        }
        match self.random().below(3) {
            0 => tx.rollback_to(&savepoint)?,
            1 => drop(tx.rename_table(SPARE, name)?),
            _ => {
                tx.drop_table(SPARE)?;
                steps.push(Step::Drop { table });
            }
        }
        Ok(())
    }

    fn operate(&mut self, tx: &Transaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let table = if one_in(self.random(), 8) { 3 } else { self.random().below(3) as u8 };
        let open = tx.open(definition(table))?;
        let keys = if table == 3 { self.shared().big_keys } else { self.shared().keys };
        let row = (table, self.random().below(u64::from(keys)) as u16);
        match self.random().below(24) {
            choice @ 0..=7 => self.write(&open, row, choice, steps),
            choice @ 8..=10 => self.look(&open, row, choice, steps),
            11 => {
                let is_backward = one_in(self.random(), 2);
                let found = if is_backward { open.last()? } else { open.first()? };
                let rows = found.map(|(key, value)| pair(&key, &value)).transpose()?.into_iter().collect::<Vec<_>>();
                let is_whole = rows.is_empty();
                steps.push(Step::Scan { table, keys: 0..u16::MAX, rows, is_backward, is_whole, skips: false });
                Ok(())
            }
            12..=19 => self.combine(&open, row, keys, steps),
            20 if one_in(self.random(), 4) => open.lock_against_writes().map_err(Stop::from),
            _ => self.scan(&open, table, keys, steps),
        }
    }

    /// Removes a row.
    pub(super) fn remove(&self, open: &RawTable<'_>, row: Row, steps: &mut Vec<Step>) -> Result<(), Stop> {
        self.write(open, row, REMOVE, steps)
    }

    /// Sets a row, adds one, or removes one.
    fn write(&self, open: &RawTable<'_>, row: Row, choice: u64, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let bytes = key(row.1);
        let (found, value) = match choice {
            0..=4 => {
                let number = self.shared().moment();
                (decoded(open.insert(&bytes[..], &value(number)[..])?)?, Some(number))
            }
            5 => {
                let number = self.shared().moment();
                match open.insert_new(&bytes[..], &value(number)[..]) {
                    Ok(()) => (None, Some(number)),
                    Err(Error::KeyExists { .. }) => {
                        steps.push(Step::Presence { row, is_there: true });
                        return Ok(());
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            _ => (decoded(open.remove(&bytes[..])?)?, None),
        };
        steps.push(Step::Read { row, found, is_locked: true });
        // A transaction that finds nothing to remove has only read.
        if found.is_some() || value.is_some() {
            steps.push(Step::Write { row, value });
        }
        Ok(())
    }

    /// Reads a row, with a lock or without.
    fn look(&mut self, open: &RawTable<'_>, row: Row, choice: u64, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let bytes = key(row.1);
        let is_locked = choice == 10;
        let found = if !is_locked {
            match self.random().below(3) {
                0 => self.in_parts(open.get_reader(&bytes[..])?)?,
                _ => open.get(&bytes[..])?,
            }
        } else {
            match self.random().below(4) {
                0 => open.get_for_update(&bytes[..])?,
                1 => open.get_for_share(&bytes[..])?,
                2 => match open.get_locked(&bytes[..], RowLock::update().no_wait())? {
                    Locked::Row(found) => Some(found),
                    Locked::Absent | Locked::Skipped => return Ok(()),
                },
                _ => match open.get_locked(&bytes[..], RowLock::update().skip_locked())? {
                    Locked::Row(found) => Some(found),
                    // Of a row that is absent nothing is locked.
                    Locked::Absent | Locked::Skipped => return Ok(()),
                },
            }
        };
        steps.push(Step::Read { row, found: decoded(found)?, is_locked });
        Ok(())
    }

    /// Reads a value in parts, with pauses in which others may replace it.
    fn in_parts(&mut self, reader: Option<ValueReader<'_>>) -> Result<Option<Vec<u8>>, Stop> {
        let Some(mut reader) = reader else { return Ok(None) };
        let mut bytes = Vec::new();
        loop {
            let mut part = vec![0; 1 + self.random().below(20_000) as usize];
            let read = reader.read_at(bytes.len() as u64, &mut part)?;
            if read == 0 {
                return Ok(Some(bytes));
            }
            bytes.extend_from_slice(&part[..read]);
            device::pause(Duration::from_micros(self.random().below(300)));
        }
    }

    fn scan(&mut self, open: &RawTable<'_>, table: u8, most: u16, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let start = self.random().below(u64::from(most)) as u16;
        let end = start + 1 + self.random().below(u64::from(most - start)) as u16;
        let (lower, upper) = (key(start), key(end));
        let (is_backward, skips) = (one_in(self.random(), 2), one_in(self.random(), 5));
        let mut range = if skips {
            let lock = one_of(self.random(), &[RowLock::update(), RowLock::share()]).skip_locked();
            open.range_locked(&lower[..]..&upper[..], lock)
        } else {
            open.range(&lower[..]..&upper[..])
        };
        let limit = if one_in(self.random(), 3) { 1 + self.random().below(4) } else { u64::MAX };
        let (mut rows, mut is_whole) = (Vec::new(), false);
        while (rows.len() as u64) < limit {
            let next = if is_backward { range.next_back() } else { range.next() };
            match next.transpose()? {
                Some((key, value)) => rows.push(pair(&key, &value)?),
                None => {
                    is_whole = true;
                    break;
                }
            }
        }
        steps.push(Step::Scan { table, keys: start..end, rows, is_backward, is_whole, skips });
        Ok(())
    }

    /// Everything up to a commit that a snapshot of what is durable has seen is durable.
    fn note_durable(&self, csn: Csn) {
        let now = self.shared().moment();
        let is_seen = |txn: &&mut Txn| matches!(txn.outcome, Outcome::Committed(own) if own <= csn.0);
        self.shared().txns.lock().iter_mut().filter(is_seen).for_each(|txn| txn.durable = txn.durable.min(now));
    }

    /// Removes the rows of a part of a table, so that leaves go, or reads them one by one, which takes lock memory.
    fn sweep(&mut self, tx: &Transaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let table = if one_in(self.random(), 2) { 3 } else { self.random().below(3) as u8 };
        let open = tx.open(definition(table))?;
        let keys = if table == 3 { self.shared().big_keys } else { self.shared().keys };
        let start = self.random().below(u64::from(keys)) as u16;
        let end = (start + 1 + self.random().below(300) as u16).min(keys);
        if one_in(self.random(), 2) {
            return (start..end).try_for_each(|key| self.look(&open, (table, key), GET, steps));
        }
        (start..end).try_for_each(|key| self.write(&open, (table, key), REMOVE, steps))
    }

    /// Reads by a snapshot of what is durable.
    pub(super) fn read(&mut self) -> Result<(), Stop> {
        let begin = self.shared().moment();
        let options = ReadOptions::new().label("reader");
        let is_latest = one_in(self.random(), 4);
        let (options, level) = if is_latest { (options.latest(), Level::Snapshot) } else { (options, Level::Durable) };
        let tx = self.shared().db.read_with(options);
        let mut steps = Vec::new();
        let read = self.read_rows(&tx, &mut steps);
        let ended = self.shared().moment();
        let outcome = Outcome::Aborted;
        let (answered, durable) = (NEVER, NEVER);
        self.shared().txns.lock().push(Txn { level, begin, ended, answered, durable, outcome, record: None, steps });
        read?;
        let ticket = tx.finish()?;
        let waited = ticket.wait();
        if waited.is_ok() && !is_latest {
            self.note_durable(ticket.csn());
        }
        waited.map_err(Stop::from)
    }

    fn read_rows(&mut self, tx: &ReadTransaction, steps: &mut Vec<Step>) -> Result<(), Stop> {
        // One in three stays long enough for others to replace and purge what it sees, and to drop the tables.
        let rounds = if one_in(self.random(), 3) { 4 + self.random().below(20) } else { 1 + self.random().below(4) };
        for round in 0..rounds {
            if round > 3 {
                device::pause(Duration::from_micros(self.random().below(10_000)));
            }
            let table = self.random().below(4) as u8;
            let open = match tx.open(definition(table)) {
                Ok(open) => open,
                Err(Error::NoTable { .. }) => {
                    let (keys, rows) = (0..u16::MAX, Vec::new());
                    steps.push(Step::Scan { table, keys, rows, is_backward: false, is_whole: true, skips: false });
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if table != 3 && one_in(self.random(), 2) {
                let rows = open.iter().map(|row| row.map_err(Stop::from).and_then(|row| Ok(pair(&row.0, &row.1)?)));
                let rows = rows.collect::<Result<Vec<_>, Stop>>()?;
                steps.push(Step::Scan {
                    table,
                    keys: 0..u16::MAX,
                    rows,
                    is_backward: false,
                    is_whole: true,
                    skips: false,
                });
            } else {
                let keys = if table == 3 { self.shared().big_keys } else { self.shared().keys };
                let number = self.random().below(u64::from(keys)) as u16;
                let found = match self.random().below(3) {
                    0 => self.in_parts(open.get_reader(&key(number)[..])?)?,
                    _ => open.get(&key(number)[..])?,
                };
                steps.push(Step::Read { row: (table, number), found: decoded(found)?, is_locked: false });
            }
        }
        Ok(())
    }
}

/// Changes that these steps have made so far.
fn changes(steps: &[Step]) -> usize {
    steps.iter().fold(0, |count, step| match step {
        Step::Write { .. } | Step::Drop { .. } => count + 1,
        Step::Back { changes } => *changes,
        Step::Read { .. } | Step::Presence { .. } | Step::Scan { .. } => count,
    })
}

pub(super) fn decoded(found: Option<Vec<u8>>) -> Result<Option<u64>, String> {
    found.map(|bytes| value_number(&bytes)).transpose()
}

pub(super) fn pair(key: &[u8], value: &[u8]) -> Result<(u16, u64), String> {
    Ok((key_number(key)?, value_number(value)?))
}
