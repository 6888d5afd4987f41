//! Scans of tables.

use crate::index_def::by_index;
use crate::open::{AnyTable, Open, Scan, Slot, on};
use crate::{Bounds, Direction, Fault, IndexDef, Result};
use std::ops::Bound;
use std::sync::Arc;

/// Rows of a scan that are read in one operation, at most. The first operation reads one.
const MAX_AHEAD: usize = 64;
/// Bytes of keys and values after which an operation reads no further row.
const MAX_AHEAD_BYTES: usize = 256 << 10;

/// A scan of a table. It reads several rows in one operation, and reads them again after a write of the transaction. A
/// scan by an index reads one row at a time, and an error ends it: the next call returns the same error.
pub struct Cursor {
    table: Arc<Slot>,
    /// What is left to hand out.
    bounds: Bounds,
    direction: Direction,
    /// The number of the engine's scan. None before the first row, and after a write.
    scan: Option<u64>,
    /// Keys and values at hand, one behind the other.
    bytes: Vec<u8>,
    /// The ends of the keys and of the values in them.
    ends: Vec<(usize, usize)>,
    /// How many of them were handed out.
    taken: usize,
    /// The transaction's writes when they were read.
    writes: u64,
    ahead: usize,
    /// The index by which it goes.
    index: Option<IndexDef>,
    /// The error that has ended a scan by an index.
    failed: Option<Fault>,
    /// Whether no row is left to read.
    is_over: bool,
    /// Whether the caller knows it.
    is_told: bool,
}

impl Cursor {
    pub(crate) fn new(table: Arc<Slot>, bounds: Bounds, direction: Direction, index: Option<IndexDef>) -> Self {
        let is_over = bounds.are_empty();
        let (bytes, ends, scan, failed) = (Vec::new(), Vec::new(), None, None);
        let (taken, writes, ahead, is_told) = (0, 0, 1, false);
        Self { table, bounds, direction, scan, bytes, ends, taken, writes, ahead, index, failed, is_over, is_told }
    }

    /// Returns the next key and its value, which stay until the next call. `None` at the end.
    ///
    /// # Errors
    /// Those of the engine. `Ended` if the transaction has ended.
    pub fn next_row(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.read()?;
        Ok(self.take_row())
    }

    /// Returns whether [`read`](Self::read) would read, and so might wait.
    ///
    /// # Errors
    /// `Ended` if the transaction has ended.
    pub fn has_to_read(&self) -> Result<bool> {
        self.table.shared.with(|open| {
            open.running()?;
            Ok(self.index.is_none() && open.writes != self.writes || self.at_hand() == 0 && !self.is_over)
        })
    }

    /// Reads rows if none is at hand, or if the transaction has written since they were read.
    ///
    /// # Errors
    /// Those of the engine. `Ended` if the transaction has ended.
    pub fn read(&mut self) -> Result<()> {
        let table = Arc::clone(&self.table);
        table.shared.with(|open| {
            open.running()?;
            if let Some(def) = self.index {
                return if self.at_hand() == 0 && !self.is_over { self.read_by(open, def) } else { Ok(()) };
            }
            if open.writes != self.writes {
                self.rewind(open);
            }
            if self.at_hand() == 0 && !self.is_over {
                self.read_ahead(open)?;
            }
            Ok(())
        })
    }

    /// Returns the next row at hand. After [`read`](Self::read), `None` is the end.
    pub fn take_row(&mut self) -> Option<(&[u8], &[u8])> {
        let Some(&(key, end)) = self.ends.get(self.taken) else {
            self.is_told = true;
            return None;
        };
        let start = self.taken.checked_sub(1).map_or(0, |before| self.ends[before].1);
        self.taken += 1;
        Some((&self.bytes[start..key], &self.bytes[key..end]))
    }

    /// Returns how many rows are at hand.
    const fn at_hand(&self) -> usize {
        self.ends.len() - self.taken
    }

    /// Gives up the rows at hand: the next ones are read behind the last row that was handed out.
    fn rewind(&mut self, open: &mut Open) {
        self.narrow();
        // The engine's scan is ahead, or is over although rows may have been added.
        if self.at_hand() > 0 || self.is_over && !self.is_told {
            self.is_over = self.bounds.are_empty();
            if let Some(scan) = self.scan.take() {
                open.scans.remove(&scan);
            }
        }
        self.clear();
        self.ahead = 1;
        self.writes = open.writes;
    }

    /// Moves the bound behind the last row that was handed out.
    fn narrow(&mut self) {
        let Some(last) = self.taken.checked_sub(1) else { return };
        let start = last.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let bound = Bound::Excluded(self.bytes[start..self.ends[last].0].to_vec());
        match self.direction {
            Direction::Forward => self.bounds.lower = bound,
            Direction::Backward => self.bounds.upper = bound,
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.taken = 0;
    }

    fn read_ahead(&mut self, open: &mut Open) -> Result<()> {
        // For a rewind before the first of the next rows.
        self.narrow();
        self.clear();
        let number = match self.scan {
            Some(number) => number,
            None => self.begin(open)?,
        };
        let scan = open.scans.get_mut(&number).expect("it stays until the transaction ends");
        while self.ends.len() < self.ahead && self.bytes.len() < MAX_AHEAD_BYTES {
            match step(scan, self.direction, &mut self.bytes) {
                Ok(Some(ends)) => self.ends.push(ends),
                Ok(None) => {
                    self.is_over = true;
                    break;
                }
                // The scan ends with the error, and the next call begins another one: behind the last row that was
                // handed out, and in a transaction that the error may have ended.
                Err(error) => {
                    self.clear();
                    self.ahead = 1;
                    self.scan = None;
                    open.scans.remove(&number);
                    return Err(error.into());
                }
            }
        }
        self.ahead = (2 * self.ahead).min(MAX_AHEAD);
        Ok(())
    }

    /// Reads the next row of a scan by an index. The engine's scan sees what the transaction writes meanwhile.
    fn read_by(&mut self, open: &mut Open, def: IndexDef) -> Result<()> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        self.clear();
        self.step_by(open, def).inspect_err(|fault| self.failed = Some(fault.clone()))
    }

    fn step_by(&mut self, open: &mut Open, def: IndexDef) -> Result<()> {
        let number = match self.scan {
            Some(number) => number,
            None => {
                let scan = by_index(self.table.of(open)?, def)?.range(self.bounds.borrowed());
                let number = open.number();
                open.index_scans.insert(number, scan);
                *self.scan.insert(number)
            }
        };
        let scan = open.index_scans.get_mut(&number).expect("it stays until the transaction ends");
        let row = match self.direction {
            Direction::Forward => scan.next(),
            Direction::Backward => scan.next_back(),
        };
        match row.transpose()? {
            Some((key, value)) => {
                self.bytes.extend_from_slice(&key);
                self.bytes.extend_from_slice(&value);
                self.ends.push((key.len(), self.bytes.len()));
            }
            None => self.is_over = true,
        }
        Ok(())
    }

    fn begin(&mut self, open: &mut Open) -> Result<u64> {
        let table = self.table.of(open)?;
        let scan = on!(table, table => table.range(self.bounds.borrowed()));
        let number = open.number();
        open.scans.insert(number, scan);
        self.scan = Some(number);
        self.writes = open.writes;
        Ok(number)
    }
}

/// Appends the next key and its value to `bytes`, and returns their ends.
fn step(scan: &mut Scan, direction: Direction, bytes: &mut Vec<u8>) -> foreshore::Result<Option<(usize, usize)>> {
    let mut append = |key: &[u8], value: &[u8]| {
        bytes.extend_from_slice(key);
        let end = bytes.len();
        bytes.extend_from_slice(value);
        (end, bytes.len())
    };
    match direction {
        Direction::Forward => scan.next_encoded_with(append),
        Direction::Backward => Ok(scan.next_back().transpose()?.map(|(key, value)| append(&key, &value))),
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(number) = self.scan.take() {
            self.table.shared.forget(|open| {
                drop((open.scans.remove(&number), open.index_scans.remove(&number)));
            });
        }
    }
}
