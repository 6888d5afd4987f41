//! Values that are written and read in parts, so that no whole one is in memory.

use super::Table;
use super::kept::{Write, Writer};
use crate::live::Scratch;
use crate::{Error, Result, Transaction};
use foreshore_base::key::{Key, Value};
use foreshore_base::limits::MAX_VALUE;
use foreshore_btree::{OpenValue, Tree};
use foreshore_txn::Txn;
use std::borrow::Borrow;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::ops::{Bound, RangeBounds};
use std::{fmt, sync::Arc};

/// Bytes that are taken from a reader before they are written: the data of 16 pages.
const PIECE: usize = 16 * 8136;

/// Value types that are stored as their bytes: `&[u8]` and `Vec<u8>`. Values of these types can be written from a
/// reader.
pub trait ByteValue: Value + sealed::Sealed {}

impl ByteValue for &[u8] {}
impl ByteValue for Vec<u8> {}

mod sealed {
    pub trait Sealed {}
    impl Sealed for &[u8] {}
    impl Sealed for Vec<u8> {}
}

impl<'tx, K: Key, V: ByteValue> Table<'tx, K, V> {
    /// Sets the value of `key` to the bytes of `reader`, and returns how many there were. No whole value is in memory:
    /// the pages of a large one are written as they are read.
    ///
    /// With `len`, exactly that many bytes are read, and it is an error if there are fewer. Without, the value goes up
    /// to the end of the reader. A row that exists is locked before the first byte is read. It changes after the last.
    /// `reader` may use the transaction. The previous value is not read.
    ///
    /// If the table has indexes, their functions need the whole value and the previous one. So both are in memory, and
    /// the row is locked after the last byte is read.
    ///
    /// # Errors
    /// - `ReaderFailed` if the reader fails or ends before `len` bytes, and `ValueTooLarge` over
    ///   [`MAX_VALUE`](crate::limits::MAX_VALUE). The row is unchanged, and the transaction can go on.
    /// - If the reader fails with an error of Foreshore, as a [`ValueReader`] does, that error is returned as it is.
    /// - Those of every method, and `KeyTooLarge`.
    ///
    /// After an error the pages that were written become free.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # use std::io::Read;
    /// # let db = Db::in_memory()?;
    /// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
    /// db.run(|tx| {
    ///     let files = tx.open(FILES)?;
    ///     assert_eq!(files.insert_reader("zeros", std::io::repeat(0).take(1 << 20), None)?, 1 << 20);
    ///     // The reader has fewer bytes than were announced.
    ///     let refused = files.insert_reader("cut short", &b"some"[..], Some(100));
    ///     assert!(matches!(refused, Err(Error::ReaderFailed { .. })));
    ///     Ok::<_, Error>(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn insert_reader<'k>(
        &self,
        key: impl Borrow<K::Ref<'k>>,
        mut reader: impl Read,
        len: Option<u64>,
    ) -> Result<u64> {
        let mut encoded = Vec::new();
        K::encode_key(key.borrow(), &mut encoded);
        if let Some(len) = len.filter(|&len| len > MAX_VALUE as u64) {
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            let table = Some(self.tree.table().into());
            return self.tx.with(|_, _| Err(Error::ValueTooLarge { table, len, max: MAX_VALUE }));
        }
        let has_indexes = self.tx.with(|engine, live| {
            let (txn, Scratch { indexes, dropped, inserted, .. }) = live.parts();
            self.has_indexes(&mut Writer { engine, txn, indexes, dropped, inserted })
        })?;
        if has_indexes {
            return self.insert_whole(&encoded, reader, len);
        }
        let mut writer = self.tx.with(|_, live| Ok(self.tree.begin_value(&mut live.txn, &encoded)?))?;
        let mut left = len.unwrap_or(u64::MAX);
        let mut piece = vec![0; usize::try_from(left).map_or(PIECE, |left| left.min(PIECE))];
        let mut total = 0;
        loop {
            // Nothing is borrowed while the reader runs, so that it may use the transaction.
            let wanted = usize::try_from(left).map_or(piece.len(), |left| left.min(piece.len()));
            let (count, failed) = fill(&mut reader, &mut piece[..wanted]);
            left -= count as u64;
            total += count as u64;
            let is_over = count < wanted || left == 0;
            let failed = match len {
                Some(_) if failed.is_none() && count < wanted => Some(ErrorKind::UnexpectedEof.into()),
                _ => failed,
            };
            if let Some(failed) = failed {
                // If the reader has ended the transaction, the pages are freed after it.
                let _ = self.tx.with(|_, live| {
                    writer.discard(&mut live.txn);
                    Ok(())
                });
                return self.reader_failed(&encoded, failed);
            }
            self.tx.with(|_, live| Ok(writer.write(&mut live.txn, &piece[..count])?))?;
            if is_over {
                break;
            }
        }
        self.tx.with(|engine, live| {
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            let finish = |txn: &mut Txn| Ok(writer.finish(txn, &encoded, found)?);
            self.store_plain(&mut Writer { engine, txn, indexes, dropped, inserted }, finish)?;
            Ok(total)
        })
    }

    /// Sets a value of a table with indexes, whose functions need the whole value.
    fn insert_whole(&self, key: &[u8], reader: impl Read, len: Option<u64>) -> Result<u64> {
        let mut bytes = Vec::new();
        let read = reader.take(len.unwrap_or(MAX_VALUE as u64 + 1)).read_to_end(&mut bytes);
        let failed = match read {
            Ok(count) if len.is_some_and(|len| (count as u64) < len) => Some(ErrorKind::UnexpectedEof.into()),
            Ok(_) => None,
            Err(failed) => Some(failed),
        };
        if let Some(failed) = failed {
            return self.reader_failed(key, failed);
        }
        self.tx.with(|engine, live| {
            let (txn, Scratch { found, indexes, dropped, inserted, .. }) = live.parts();
            self.store(&mut Writer { engine, txn, indexes, dropped, inserted }, Write::put(key, &bytes), found)
        })?;
        Ok(bytes.len() as u64)
    }

    /// Returns the error of Foreshore that a reader failed with. Wraps any other error in `ReaderFailed`.
    fn reader_failed<T>(&self, key: &[u8], failed: io::Error) -> Result<T> {
        let inner = failed.get_ref().and_then(|inner| inner.downcast_ref::<Error>()).cloned();
        let error = match inner {
            // This error may have ended the transaction already. Then every later call returns `RolledBack`.
            Some(error) if self.tx.failure().is_some() => return Err(error),
            Some(error) => error,
            None => Error::ReaderFailed { table: self.tree.table().into(), key: key.into(), source: Arc::new(failed) },
        };
        self.tx.with(|_, _| Err(error))
    }
}

/// Reads until `buffer` is full, the reader ends or it fails. Returns how many bytes were read, and the failure.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> (usize, Option<io::Error>) {
    let mut count = 0;
    while count < buffer.len() {
        match reader.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(read) => count += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (count, Some(error)),
        }
    }
    (count, None)
}

impl<'tx, K: Key, V: Value> Table<'tx, K, V> {
    /// Returns a reader of the encoded value of `key`, or `None` if there is no row. The encoding of `&[u8]` and `&str`
    /// is their bytes. Reads and locks as [`get`](Self::get) does, but does not read a large value.
    ///
    /// The reader returns the same bytes until the transaction ends, even if the transaction replaces or removes the
    /// value.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # use std::io::{Read, Seek, SeekFrom};
    /// # let db = Db::in_memory()?;
    /// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
    /// db.run(|tx| tx.open(FILES)?.put("a", &vec![7; 100_000][..]))?;
    /// let tx = db.read();
    /// let mut reader = tx.open(FILES)?.get_reader("a")?.expect("it was put");
    /// assert_eq!(reader.len(), 100_000);
    /// reader.seek(SeekFrom::End(-10)).unwrap();
    /// let mut end = Vec::new();
    /// reader.read_to_end(&mut end).unwrap();
    /// assert_eq!(end, [7; 10]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_reader<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<ValueReader<'tx>>> {
        let value = self.open_value(key)?;
        Ok(value.map(|value| ValueReader { tx: self.tx, tree: Tree::clone(&self.tree), value, at: 0 }))
    }

    /// Returns the bytes of the encoded value of `key` that lie in `range`, or `None` if there is no row. What lies
    /// after the end of the value is left out. Reads and locks as [`get`](Self::get) does, but only the pages with
    /// these bytes.
    ///
    /// # Errors
    /// Those of every method, and `KeyTooLarge`.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
    /// db.run(|tx| tx.open(FILES)?.put("a", b"one, two, three".as_slice()))?;
    /// let tx = db.read();
    /// let files = tx.open(FILES)?;
    /// assert_eq!(files.get_range("a", 5..8)?.as_deref(), Some(&b"two"[..]));
    /// assert_eq!(files.get_range("a", 10..1000)?.as_deref(), Some(&b"three"[..]));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn get_range<'k>(&self, key: impl Borrow<K::Ref<'k>>, range: impl RangeBounds<u64>) -> Result<Option<Vec<u8>>> {
        let Some(mut value) = self.open_value(key)? else { return Ok(None) };
        let len = value.len();
        let start = match range.start_bound() {
            Bound::Included(&at) => at,
            Bound::Excluded(&at) => at.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&at) => at.saturating_add(1),
            Bound::Excluded(&at) => at,
            Bound::Unbounded => len,
        };
        let end = end.min(len);
        let range = start.min(end)..end;
        let mut bytes = Vec::new();
        self.tx.with(|_, live| {
            Ok(self.tree.read_value(&mut live.txn, &mut value, range, &mut |piece| bytes.extend_from_slice(piece))?)
        })?;
        Ok(Some(bytes))
    }

    fn open_value<'k>(&self, key: impl Borrow<K::Ref<'k>>) -> Result<Option<OpenValue>> {
        let key = key.borrow();
        self.tx.with(|_, live| {
            super::encode_key::<K>(key, &mut live.scratch.key);
            let (txn, Scratch { key, .. }) = live.parts();
            Ok(self.tree.open_value(txn, key)?)
        })
    }
}

/// A reader of one value, made by [`Table::get_reader`]. It keeps no part of the value in memory, so small reads are
/// faster through a [`BufReader`](io::BufReader).
///
/// [`Read`] and [`Seek`] wrap the errors of the transaction in an [`io::Error`]; its `get_ref` leads to the
/// [`Error`]. [`read_at`](Self::read_at) returns them as they are.
pub struct ValueReader<'tx> {
    tx: &'tx Transaction,
    tree: Tree,
    value: OpenValue,
    at: u64,
}

impl ValueReader<'_> {
    /// Returns the length of the value in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.value.len()
    }

    /// Returns whether the value has no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// Fills `buffer` with the bytes from `at` on, as far as the value goes, and returns how many there were. Does not
    /// move the position of [`Read`].
    ///
    /// # Errors
    /// `SnapshotTooOld`, `RolledBack` once an error has ended the transaction, and errors of the engine.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const FILES: TableDef<&str, &[u8]> = TableDef::new("files");
    /// db.run(|tx| tx.open(FILES)?.put("a", &[7; 100_000][..]))?;
    /// let reader = db.read();
    /// let mut file = reader.open(FILES)?.get_reader("a")?.expect("one file");
    /// let mut end = [0; 100];
    /// assert_eq!((file.is_empty(), file.read_at(file.len() - 50, &mut end)?), (false, 50));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let start = at.min(self.len());
        let end = start.saturating_add(buffer.len() as u64).min(self.len());
        let (tree, value) = (&self.tree, &mut self.value);
        let mut filled = 0;
        self.tx.with(|_, live| {
            Ok(tree.read_value(&mut live.txn, value, start..end, &mut |piece| {
                buffer[filled..filled + piece.len()].copy_from_slice(piece);
                filled += piece.len();
            })?)
        })?;
        Ok(filled)
    }
}

impl Read for ValueReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.read_at(self.at, buffer).map_err(io::Error::other)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for ValueReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = at.ok_or(ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

impl fmt::Debug for ValueReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("len", &self.len()).field("at", &self.at).finish_non_exhaustive()
    }
}
