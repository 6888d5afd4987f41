//! Operations of a table that read and write at once, and questions whose answers a scan can check.

use super::device;
use super::history::{Level, Row, Step};
use super::plan::one_in;
use super::rows::{before_merge, key, key_number, value, value_number};
use super::session::Session;
use super::shared::Stop;
use super::work::{RawTable, decoded, pair};
use std::io::{self, Read};
use std::time::Duration;

/// A reader that gives a page at a time.
struct Slow<'a> {
    left: &'a [u8],
    /// The pause before each page, in microseconds.
    pause: u64,
}

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        device::pause(Duration::from_micros(self.pause));
        let most = buffer.len().min(8_000);
        self.left.read(&mut buffer[..most])
    }
}

impl Session<'_> {
    /// Runs one of them on a table, of which `keys` may have rows.
    pub(super) fn combine(
        &mut self,
        open: &RawTable<'_>,
        row: Row,
        keys: u16,
        steps: &mut Vec<Step>,
    ) -> Result<(), Stop> {
        match self.random().below(14) {
            0 | 1 => self.pop(open, row.0, steps),
            2 | 3 => self.update(open, row, steps),
            4..=6 => self.enter(open, row, steps),
            7 => {
                let (number, key) = (self.shared().moment(), key(row.1));
                if one_in(self.random(), 2) {
                    open.put(&key[..], &value(number)[..])?;
                } else {
                    let (bytes, pause) = (value(number), self.random().below(300));
                    open.insert_reader(&key[..], Slow { left: &bytes, pause }, Some(bytes.len() as u64))?;
                }
                steps.push(Step::Write { row, value: Some(number) });
                let is_there = open.contains(&key[..])?;
                steps.push(Step::Presence { row, is_there });
                Ok(())
            }
            8 => self.extract(open, row, keys, steps),
            9 => self.remove_many(open, row, keys, steps),
            10 => self.count(open, row, keys, steps),
            11 | 12 => self.merge(open, row, steps),
            _ => self.walk(open, row, steps),
        }
    }

    /// Takes a row from an end of a table.
    fn pop(&mut self, open: &RawTable<'_>, table: u8, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let is_backward = one_in(self.random(), 2);
        let taken = if is_backward { open.pop_last()? } else { open.pop_first()? };
        let taken = taken.map(|(key, value)| pair(&key, &value)).transpose()?;
        // At read committed it is the first row that was there when it was locked. Others may have come before it.
        let skips = self.level() == Level::ReadCommitted;
        let rows = taken.into_iter().collect::<Vec<_>>();
        let is_whole = rows.is_empty() && !skips;
        steps.push(Step::Scan { table, keys: 0..u16::MAX, rows, is_backward, is_whole, skips });
        if let Some((number, found)) = taken {
            removed(steps, (table, number), found);
        }
        Ok(())
    }

    /// Changes a row as its value says.
    fn update(&mut self, open: &RawTable<'_>, row: Row, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let new = if one_in(self.random(), 4) { None } else { Some(self.shared().moment()) };
        let mut old = None;
        open.update_with(&key(row.1)[..], |found| {
            old = found;
            new.map(value)
        })?;
        let found = decoded(old)?;
        steps.push(Step::Read { row, found, is_locked: true });
        if found.is_some() || new.is_some() {
            steps.push(Step::Write { row, value: new });
        }
        Ok(())
    }

    /// Merges an operand into a row.
    fn merge(&self, open: &RawTable<'_>, row: Row, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let operand = self.shared().moment();
        let merged = value_number(&open.merge(&key(row.1)[..], value(operand))?)?;
        let found = before_merge(merged, operand);
        steps.extend([Step::Read { row, found, is_locked: true }, Step::Write { row, value: Some(merged) }]);
        Ok(())
    }

    /// Locks a row, and then inserts, changes or removes it.
    fn enter(&mut self, open: &RawTable<'_>, row: Row, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let entry = open.entry(&key(row.1)[..])?;
        let found = decoded(entry.get().cloned())?;
        steps.push(Step::Read { row, found, is_locked: true });
        let number = self.shared().moment();
        match self.random().below(3) {
            0 => {
                let is = value_number(&entry.or_insert(value(number))?)?;
                if is == number {
                    steps.push(Step::Write { row, value: Some(number) });
                } else {
                    steps.push(Step::Read { row, found: Some(is), is_locked: true });
                }
            }
            1 => {
                drop(entry.and_modify(|bytes| *bytes = value(number))?);
                steps.extend(found.map(|_| Step::Write { row, value: Some(number) }));
            }
            _ => {
                let is_removed = entry.remove()?.is_some();
                steps.extend(is_removed.then_some(Step::Write { row, value: None }));
            }
        }
        Ok(())
    }

    /// Removes some rows from one on, and returns them.
    fn extract(&mut self, open: &RawTable<'_>, row: Row, keys: u16, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let (lower, upper) = (key(row.1), key(self.range_end(row.1, keys)));
        let (divisor, most) = (1 + self.random().below(3) as u16, 1 + self.random().below(40) as usize);
        let is_wanted = |key: &Vec<u8>| key_number(key).is_ok_and(|number| number % divisor == 0);
        for taken in open.extract_if(&lower[..]..&upper[..], |key, _| is_wanted(key)).take(most) {
            let (key, value) = taken?;
            let (number, found) = pair(&key, &value)?;
            removed(steps, (row.0, number), found);
        }
        Ok(())
    }

    /// Removes the rows of a range, or of the whole table.
    fn remove_many(&mut self, open: &RawTable<'_>, row: Row, keys: u16, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let end = self.range_end(row.1, keys);
        if self.level() == Level::ReadCommitted {
            // How many there are is not known.
            return self.extract(open, row, end, steps);
        }
        let is_all = row.0 != 3 && one_in(self.random(), 4);
        let numbers = if is_all { 0..u16::MAX } else { row.1..end };
        let rows = self.rows(open, row.0, numbers.clone(), steps)?;
        let (lower, upper) = (key(numbers.start), key(numbers.end));
        let count = if is_all { open.clear()? } else { open.remove_range(&lower[..]..&upper[..])? };
        if count != rows.len() as u64 {
            return Err(Stop::Wrong(format!("{count} rows were removed of {}", rows.len())));
        }
        rows.into_iter().for_each(|(number, found)| removed(steps, (row.0, number), found));
        Ok(())
    }

    /// Counts the rows of a range, which a scan has found.
    fn count(&mut self, open: &RawTable<'_>, row: Row, keys: u16, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let end = self.range_end(row.1, keys);
        let rows = self.rows(open, row.0, row.1..end, steps)?;
        if self.level() == Level::ReadCommitted {
            return Ok(());
        }
        let (lower, upper) = (key(row.1), key(end));
        let range = &lower[..]..&upper[..];
        let (count, mut numbers) = (open.count(&range)?, Vec::new());
        for key in open.keys(&range) {
            numbers.push(key_number(&key?)?);
        }
        if count != rows.len() as u64 || !numbers.iter().eq(rows.iter().map(|(number, _)| number)) {
            return Err(Stop::Wrong(format!("{count} rows, {numbers:?}, were counted of {rows:?}")));
        }
        Ok(())
    }

    /// Moves a cursor over some rows, one way and then back over the same.
    fn walk(&mut self, open: &RawTable<'_>, row: Row, steps: &mut Vec<Step>) -> Result<(), Stop> {
        let (from, mut cursor) = (key(row.1), open.cursor());
        let is_backward = one_in(self.random(), 2);
        let mut next = if is_backward { cursor.seek_back(&from[..])? } else { cursor.seek(&from[..])? };
        let (most, mut rows) = (1 + self.random().below(5) as usize, Vec::new());
        while let Some((key, value)) = &next {
            rows.push(pair(key, value)?);
            if rows.len() == most {
                break;
            }
            next = if is_backward { cursor.prev()? } else { cursor.next()? };
        }
        let keys = if is_backward { 0..row.1 + 1 } else { row.1..u16::MAX };
        let is_whole = next.is_none();
        let way = rows.clone();
        steps.push(Step::Scan { table: row.0, keys, rows, is_backward, is_whole, skips: false });
        if self.level() == Level::ReadCommitted || is_whole {
            return Ok(());
        }
        for passed in way.iter().rev().skip(1) {
            let back = if is_backward { cursor.next()? } else { cursor.prev()? };
            let back = back.map(|(key, value)| pair(&key, &value)).transpose()?;
            if back != Some(*passed) {
                return Err(Stop::Wrong(format!("a cursor that met {way:?} came back over {back:?}")));
            }
        }
        Ok(())
    }

    /// Reads the rows of a range.
    fn rows(
        &self,
        open: &RawTable<'_>,
        table: u8,
        keys: std::ops::Range<u16>,
        steps: &mut Vec<Step>,
    ) -> Result<Vec<(u16, u64)>, Stop> {
        let (lower, upper) = (key(keys.start), key(keys.end));
        let mut rows = Vec::new();
        for row in open.range(&lower[..]..&upper[..]) {
            let (key, value) = row?;
            rows.push(pair(&key, &value)?);
        }
        let found = rows.clone();
        steps.push(Step::Scan { table, keys, rows, is_backward: false, is_whole: true, skips: false });
        Ok(found)
    }

    /// Returns the end of a range from `start` on.
    fn range_end(&mut self, start: u16, keys: u16) -> u16 {
        start + 1 + self.random().below(u64::from(keys.saturating_sub(start)).clamp(1, 200)) as u16
    }
}

/// Notes that a row with this value was removed.
fn removed(steps: &mut Vec<Step>, row: Row, found: u64) {
    steps.extend([Step::Read { row, found: Some(found), is_locked: true }, Step::Write { row, value: None }]);
}
