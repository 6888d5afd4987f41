//! Values that are written and read in parts.

use crate::open::{AnyTable, Slot, ended, on};
use crate::system::Process;
use crate::{Result, Table};
use std::io::{self, Read};
use std::sync::Arc;

/// A reader of the program. A child process that it has forked, and in which it returns, is aborted.
struct OfProgram<R>(R);

impl<R: Read> Read for OfProgram<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let process = Process::of_call();
        let read = self.0.read(buffer);
        process.must_be_present();
        read
    }
}

/// A reader of one value, which stays as it was when the reader was made.
pub struct ValueReader {
    slot: Arc<Slot>,
    number: u64,
    len: u64,
}

impl ValueReader {
    /// Returns the length of the value in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the value has no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills `buffer` with the bytes from `at` on, as far as the value goes. Returns how many there were.
    ///
    /// # Errors
    /// Those of the engine. `Ended` if the transaction has ended.
    pub fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        self.slot.shared.with(|open| {
            let reader = open.readers.get_mut(&self.number).ok_or_else(ended)?;
            Ok(reader.read_at(at, buffer)?)
        })
    }
}

impl Drop for ValueReader {
    fn drop(&mut self) {
        self.slot.shared.forget(|open| drop(open.readers.remove(&self.number)));
    }
}

impl Table {
    /// Sets the value of `key` to the bytes of `reader`: `len` of them, or up to its end. Returns how many there were.
    /// `reader` must not use the transaction: its calls return `InUse`.
    ///
    /// # Errors
    /// `ReaderFailed`, after which the row is unchanged, and those of the engine.
    pub fn put_reader(&self, key: &[u8], reader: impl Read, len: Option<u64>) -> Result<u64> {
        self.write(|table| table.insert_reader(key, OfProgram(reader), len))
    }

    /// Returns a reader of the encoded value of `key`, if there is a row.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn reader(&self, key: &[u8]) -> Result<Option<ValueReader>> {
        let slot = self.slot();
        slot.shared.with(|open| {
            let Some(reader) = on!(slot.of(open)?, table => table.get_reader(key))? else { return Ok(None) };
            let (number, len) = (open.number(), reader.len());
            open.readers.insert(number, reader);
            Ok(Some(ValueReader { slot: Arc::clone(slot), number, len }))
        })
    }
}
