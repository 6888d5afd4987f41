//! RocksDB's `TransactionDB`, the library of the system, through its C header.
//!
//! | variant | setting |
//! |---|---|
//! | `default` | one write queue |
//! | `pipelined` | `enable_pipelined_write` |
//! | `two-queues` | `two_write_queues` |
//! | `plain` | no transactions: [`plain`] | `bulk` and `delete-range`, which `TransactionDB` has no fast calls for |
//!
//! Each is measured durable (`WriteOptions::sync`) and lazy. All tables are in one column family, with the table's
//! number before the key, as MyRocks does it. A quarter of the cache is for memtables. No transfer can deadlock, since
//! all take rows in the order account, teller, branch: deadlock detection stays off, as is the default.

mod ffi;
mod own;
mod plain;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{BATCH, Rows, Table, Workload},
};
use own::Own;
use plain::Plain;
use std::{
    ffi::{CStr, CString, c_char},
    os::unix::ffi::OsStrExt,
    ptr,
    sync::atomic::{AtomicBool, Ordering},
};

const NAME: &str = "rocksdb";

pub(super) const KIND: Kind = Kind {
    name: NAME,
    version: || env!("COMPARE_ROCKSDB").to_owned(),
    variants,
    has_get_many: true,
    open: |setup| match setup.variant {
        PLAIN => Ok(Box::new(Plain::open(setup)?)),
        _ => Ok(Box::new(Rocks::open(setup)?)),
    },
};

/// The variant without transactions.
const PLAIN: &str = "plain";
/// Values from which on they lie in blob files: RocksDB's "BlobDB" documentation.
const BLOB_BYTES: u32 = 4096;

fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    const LOSES: &str = "a crash of the machine loses the newest commits; a crash of the process loses nothing";
    if workload == Workload::Bulk {
        return match durable {
            true => vec![Variant::durable(PLAIN, "one SstFileWriter file, ingested")],
            false => Vec::new(),
        };
    }
    if workload == Workload::DeleteRange {
        return vec![match durable {
            true => Variant::durable(PLAIN, "DeleteRange, sync=1, no transactions"),
            false => Variant::lazy(PLAIN, "DeleteRange, sync=0, no transactions", LOSES),
        }];
    }
    if !writes {
        return vec![Variant::durable("default", "bloom filter 10 bits, compacted, no compression")];
    }
    let settings = [
        ("default", "sync=1, one write queue", "sync=0, one write queue"),
        ("pipelined", "sync=1, enable_pipelined_write", "sync=0, enable_pipelined_write"),
        ("two-queues", "sync=1, two_write_queues", "sync=0, two_write_queues"),
    ];
    let variant = |(name, synced, lazy)| {
        if durable { Variant::durable(name, synced) } else { Variant::lazy(name, lazy, LOSES) }
    };
    settings.into_iter().map(variant).collect()
}

/// Returns the options of the database in RocksDB's own notation.
fn options(setup: &Setup<'_>) -> String {
    let (memtables, cores) = (setup.cache / 4, crate::proc::cores());
    let queues = match setup.variant {
        "pipelined" => "enable_pipelined_write=true",
        "two-queues" => "two_write_queues=true",
        _ => "enable_pipelined_write=false",
    };
    let blobs = match setup.purpose.workload {
        Workload::Values => {
            format!(";enable_blob_files=true;min_blob_size={BLOB_BYTES};enable_blob_garbage_collection=true")
        }
        _ => String::new(),
    };
    format!(
        "create_if_missing=true;{queues};compression=kNoCompression;bottommost_compression=kNoCompression;\
         write_buffer_size={};max_write_buffer_number=4;max_background_jobs={};max_open_files=-1;\
         block_based_table_factory={{block_cache={};filter_policy=bloomfilter:10:false;\
         data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.75}}",
        memtables / 4,
        cores.max(2),
        setup.cache - memtables,
    ) + &blobs
}

/// Returns the path of a database.
fn path_of(setup: &Setup<'_>) -> Result<CString> {
    CString::new(setup.dir.as_os_str().as_bytes()).map_err(Error::failed(NAME, "open"))
}

/// Options of a database, destroyed when they are dropped.
struct ParsedOptions(*mut ffi::Options);

impl ParsedOptions {
    fn new(setup: &Setup<'_>) -> Result<Self> {
        let text = CString::new(options(setup)).map_err(Error::failed(NAME, "parse options"))?;
        // SAFETY: both options are new, and the text ends with a zero.
        unsafe {
            let (base, parsed) = (ffi::rocksdb_options_create(), Self(ffi::rocksdb_options_create()));
            let made = call("parse options", |error| {
                ffi::rocksdb_get_options_from_string(base, text.as_ptr(), parsed.0, error);
            });
            ffi::rocksdb_options_destroy(base);
            made.map(|()| parsed)
        }
    }
}

impl Drop for ParsedOptions {
    fn drop(&mut self) {
        // SAFETY: a database is closed before its options are dropped.
        unsafe { ffi::rocksdb_options_destroy(self.0) };
    }
}

struct Rocks {
    db: *mut ffi::TransactionDb,
    path: CString,
    options: ParsedOptions,
    durable: bool,
    /// Whether closing compacts: the C header has no call that compacts an open `TransactionDB`.
    compacts: AtomicBool,
}

// SAFETY: RocksDB lets all threads use a database and its options.
unsafe impl Sync for Rocks {}

/// Runs a call that reports its error through a pointer.
fn call<T>(name: &'static str, work: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = ptr::null_mut();
    let value = work(&mut error);
    match take(error) {
        None => Ok(value),
        Some(cause) => Err(Error::Failed { engine: NAME, call: name, cause }),
    }
}

/// Takes the message of an error, if there is one.
fn take(error: *mut c_char) -> Option<String> {
    if error.is_null() {
        return None;
    }
    // SAFETY: the library allocated a string that ends with a zero, and gives it to the caller.
    unsafe {
        let cause = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        Some(cause)
    }
}

/// Whether a transaction lost a wait for a row: RocksDB asks to run it again.
fn is_lock_lost(error: &Error) -> bool {
    matches!(error, Error::Failed { cause, .. }
        if cause.starts_with("Operation timed out") || cause.starts_with("Resource busy"))
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

/// Bytes of a key: the table, then the key, so that rows are in the order of both.
const KEY_BYTES: usize = 10;

fn encoded(table: Table, key: u64) -> [u8; KEY_BYTES] {
    let mut bytes = [0; KEY_BYTES];
    bytes[..2].copy_from_slice(&table.0.to_be_bytes());
    bytes[2..].copy_from_slice(&key.to_be_bytes());
    bytes
}

/// Returns the key of an encoded one, if it is of the table.
fn decoded(table: Table, bytes: &[u8]) -> Option<u64> {
    let (prefix, key) = bytes.split_first_chunk::<2>()?;
    (*prefix == table.0.to_be_bytes()).then(|| Some(u64::from_be_bytes(key.try_into().ok()?)))?
}

impl Rocks {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let path = path_of(setup)?;
        let options = ParsedOptions::new(setup)?;
        let (durable, compacts) = (setup.purpose.durable, AtomicBool::new(false));
        let mut this = Self { db: ptr::null_mut(), path, options, durable, compacts };
        // SAFETY: the options live until the engine is dropped, and the path ends with a zero.
        unsafe {
            let (parsed, transactions) = (this.options.0, ffi::rocksdb_transactiondb_options_create());
            let opened =
                call("open", |error| ffi::rocksdb_transactiondb_open(parsed, transactions, this.path.as_ptr(), error));
            ffi::rocksdb_transactiondb_options_destroy(transactions);
            this.db = opened?;
            Ok(this)
        }
    }

    /// Closes the database, if it is open.
    fn shut(&mut self) {
        let db = std::mem::replace(&mut self.db, ptr::null_mut());
        if !db.is_null() {
            // SAFETY: no session outlives the engine, and the pointer is not used again.
            unsafe { ffi::rocksdb_transactiondb_close(db) };
        }
    }

    /// Compacts the closed database.
    fn compact(&self) -> Result<()> {
        // SAFETY: the database is closed, and a null range is all of it.
        unsafe {
            let db = call("open", |error| ffi::rocksdb_open(self.options.0, self.path.as_ptr(), error))?;
            ffi::rocksdb_compact_range(db, ptr::null(), 0, ptr::null(), 0);
            ffi::rocksdb_close(db);
        }
        Ok(())
    }
}

impl Drop for Rocks {
    fn drop(&mut self) {
        self.shut();
    }
}

impl Engine for Rocks {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut own = Own::new(self, false);
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            own.begin(own.waits);
            for (key, row) in rows.by_ref().take(BATCH as usize) {
                own.put(table, key, &row)?;
            }
            own.commit()?;
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the database is open, and the options live through the call.
        unsafe {
            let options = ffi::rocksdb_flushoptions_create();
            let flushed = call("flush", |error| ffi::rocksdb_transactiondb_flush(self.db, options, error));
            ffi::rocksdb_flushoptions_destroy(options);
            flushed?;
        }
        self.compacts.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut Own::new(self, self.durable))
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let own = Own::new(self, false);
        let mut rows = own.iterate(table, 0);
        while let Some((key, value)) = rows.here()? {
            visit(key, value);
            rows.step();
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        // SAFETY: the database is open.
        call("sync the log", |error| unsafe { ffi::rocksdb_transactiondb_flush_wal(self.db, ffi::YES, error) })?;
        self.shut();
        if self.compacts.load(Ordering::Relaxed) { self.compact() } else { Ok(()) }
    }
}
