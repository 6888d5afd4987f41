//! RocksDB without transactions, for calls that `TransactionDB` lacks: `SstFileWriter` with `IngestExternalFile`, and
//! `DeleteRange`.

use super::{
    calls::{NAME, call, encoded},
    ffi,
    options::{ParsedOptions, path_of},
    own::Iterate,
};
use crate::{
    engine::{Engine, Session, Setup},
    error::{Error, Result},
    workload::{ROWS, Rows, Table},
};
use std::{ffi::CString, ops::Range, os::unix::ffi::OsStrExt, path::PathBuf};

/// A database that is opened without transactions.
pub(super) struct Plain {
    db: *mut ffi::Db,
    options: ParsedOptions,
    dir: PathBuf,
    durable: bool,
}

// SAFETY: RocksDB lets all threads use a database and its options.
unsafe impl Sync for Plain {}

impl Plain {
    pub(super) fn open(setup: &Setup<'_>) -> Result<Self> {
        let (path, options) = (path_of(setup)?, ParsedOptions::new(setup)?);
        // SAFETY: the options live until the engine is dropped, and the path ends with a zero.
        let db = call("open", |error| unsafe { ffi::rocksdb_open(options.get(), path.as_ptr(), error) })?;
        Ok(Self { db, options, dir: setup.dir.to_owned(), durable: setup.purpose.durable })
    }

    /// Writes a file of the rows.
    fn write_file(&self, name: &CString, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        // SAFETY: writer and options live until the end of the block, name and rows through their calls.
        unsafe {
            let env = ffi::rocksdb_envoptions_create();
            let writer = ffi::rocksdb_sstfilewriter_create(env, self.options.get());
            let write = || {
                call("open a file", |error| ffi::rocksdb_sstfilewriter_open(writer, name.as_ptr(), error))?;
                for (key, row) in rows {
                    let key = encoded(table, key);
                    let (key, len, value) = (key.as_ptr().cast(), key.len(), row.as_ptr().cast());
                    call("put", |error| {
                        ffi::rocksdb_sstfilewriter_put(writer, key, len, value, row.len(), error);
                    })?;
                }
                call("finish a file", |error| ffi::rocksdb_sstfilewriter_finish(writer, error))
            };
            let written = write();
            ffi::rocksdb_sstfilewriter_destroy(writer);
            ffi::rocksdb_envoptions_destroy(env);
            written
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: no session outlives the engine.
        unsafe { ffi::rocksdb_close(self.db) };
    }
}

impl Engine for Plain {
    /// The file is synced by its writer, and its ingestion by the manifest.
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut path = self.dir.clone().into_os_string();
        path.push(format!("-{}.sst", table.name()));
        let name = CString::new(path.as_bytes()).map_err(Error::failed(NAME, "name a file"))?;
        self.write_file(&name, table, rows)?;
        // SAFETY: database, options and name live through the call.
        call("ingest a file", |error| unsafe {
            let options = ffi::rocksdb_ingestexternalfileoptions_create();
            ffi::rocksdb_ingestexternalfileoptions_set_move_files(options, ffi::YES);
            ffi::rocksdb_ingest_external_file(self.db, &name.as_ptr(), 1, options, error);
            ffi::rocksdb_ingestexternalfileoptions_destroy(options);
        })
    }

    /// Nothing is to be done: rows are loaded in files at the lowest level.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        // SAFETY: the options are new, and live as long as the session.
        let write = unsafe {
            let write = ffi::rocksdb_writeoptions_create();
            ffi::rocksdb_writeoptions_set_sync(write, u8::from(self.durable));
            write
        };
        let worked = work(&mut Deleter { engine: self, write });
        // SAFETY: the session has ended.
        unsafe { ffi::rocksdb_writeoptions_destroy(write) };
        worked
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        // SAFETY: the database is open, and the iterator is dropped before its options.
        let (read, mut rows) = unsafe {
            let read = ffi::rocksdb_readoptions_create();
            (read, Iterate::from(ffi::rocksdb_create_iterator(self.db, read), table, 0))
        };
        let mut scan = || {
            while let Some((key, value)) = rows.here()? {
                visit(key, value);
                rows.step();
            }
            Ok(())
        };
        let scanned = scan();
        drop(rows);
        // SAFETY: nothing uses the options any more.
        unsafe { ffi::rocksdb_readoptions_destroy(read) };
        scanned
    }

    fn close(self: Box<Self>) -> Result<()> {
        // SAFETY: the database is open.
        call("sync the log", |error| unsafe { ffi::rocksdb_flush_wal(self.db, ffi::YES, error) })
    }
}

/// A session that only deletes ranges.
struct Deleter<'a> {
    engine: &'a Plain,
    write: *mut ffi::WriteOptions,
}

impl Session for Deleter<'_> {
    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let (start, end) = (encoded(ROWS, range.start), encoded(ROWS, range.end));
        // SAFETY: database and options are alive, and the batch copies the keys.
        call("delete a range", |error| unsafe {
            let batch = ffi::rocksdb_writebatch_create();
            let (first, behind) = (start.as_ptr().cast(), end.as_ptr().cast());
            ffi::rocksdb_writebatch_delete_range(batch, first, start.len(), behind, end.len());
            ffi::rocksdb_write(self.engine.db, self.write, batch, error);
            ffi::rocksdb_writebatch_destroy(batch);
        })
    }
}
