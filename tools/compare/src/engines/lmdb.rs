//! LMDB, through `lmdb-master-sys`: the library that `heed` is built on, at the same version.
//!
//! The calls are bound here and not through `heed`, which cannot renew a read transaction. LMDB's documentation
//! recommends `mdb_txn_reset` and `mdb_txn_renew` for readers, and `MDB_INTEGERKEY` for keys that are native integers.
//!
//! | variant | flags | rows |
//! |---|---|---|
//! | `default` | `MDB_NOMEMINIT` | durable; `read` |
//! | `writemap` | `MDB_WRITEMAP` | durable |
//! | `nosync` | `MDB_NOSYNC`, `MDB_NOMEMINIT` | lazy |
//! | `mapasync` | `MDB_WRITEMAP`, `MDB_MAPASYNC` | lazy |
//!
//! LMDB has no cache of its own: pages are the kernel's. `cache` is therefore not used.

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{HISTORY, QUEUE, ROWS, Rows, Table, Transfer, add, first_word, row, values::Seen},
};
use lmdb_master_sys as ffi;
use std::{ffi::CStr, ffi::CString, ops::Range, os::unix::ffi::OsStrExt, ptr};

const NAME: &str = "lmdb";

pub(super) const KIND: Kind =
    Kind { name: NAME, version, variants, has_get_many: false, open: |setup| Ok(Box::new(Lmdb::open(setup)?)) };

/// Address space for the database. Pages are allocated as they are used.
const MAP_BYTES: usize = 1 << 36;
/// Reader slots beside those of the workers.
const SPARE_READERS: usize = 16;

fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the three pointers are valid for the call.
    unsafe { ffi::mdb_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

fn variants(Purpose { writes, durable, .. }: Purpose) -> Vec<Variant> {
    match (writes, durable) {
        (false, _) => vec![Variant::durable("default", "INTEGERKEY; reader renewed")],
        (_, true) => vec![
            Variant::durable("default", "INTEGERKEY, NOMEMINIT"),
            Variant::durable("writemap", "INTEGERKEY, WRITEMAP"),
        ],
        (_, false) => {
            let loses = "a crash of the machine may corrupt the database; a crash of the process loses nothing";
            vec![
                Variant::lazy("nosync", "INTEGERKEY, NOMEMINIT, NOSYNC", loses),
                Variant::lazy("mapasync", "INTEGERKEY, WRITEMAP, MAPASYNC", loses),
            ]
        }
    }
}

struct Lmdb {
    env: *mut ffi::MDB_env,
    tables: Vec<ffi::MDB_dbi>,
}

// SAFETY: LMDB lets all threads of a process use an environment and its database handles.
unsafe impl Sync for Lmdb {}

fn check(call: &'static str, code: libc::c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the process.
    let cause = unsafe { CStr::from_ptr(ffi::mdb_strerror(code)) };
    Err(Error::Failed { engine: NAME, call, cause: cause.to_string_lossy().into_owned() })
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

fn value_of(bytes: &[u8]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

/// The bytes of a value that the library returned.
///
/// # Safety
/// The transaction that returned the value is alive, and has not written since.
unsafe fn bytes_of<'a>(value: &ffi::MDB_val) -> &'a [u8] {
    // SAFETY: the library returned address and length, and the caller keeps the page.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

fn key_of(value: &ffi::MDB_val) -> u64 {
    // SAFETY: a key is copied before the transaction goes on.
    first_native(unsafe { bytes_of(value) })
}

fn first_native(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

impl Lmdb {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let flags = match setup.variant {
            "writemap" => ffi::MDB_WRITEMAP,
            "nosync" => ffi::MDB_NOSYNC | ffi::MDB_NOMEMINIT,
            "mapasync" => ffi::MDB_WRITEMAP | ffi::MDB_MAPASYNC,
            _ => ffi::MDB_NOMEMINIT,
        };
        let path = CString::new(setup.dir.as_os_str().as_bytes()).map_err(Error::failed(NAME, "open"))?;
        let mut this = Self { env: ptr::null_mut(), tables: Vec::new() };
        // SAFETY: `env` receives a new handle, and the calls before `mdb_env_open` come in the documented order.
        unsafe {
            check("create", ffi::mdb_env_create(&mut this.env))?;
            check("set_mapsize", ffi::mdb_env_set_mapsize(this.env, MAP_BYTES))?;
            check("set_maxreaders", ffi::mdb_env_set_maxreaders(this.env, (setup.threads + SPARE_READERS) as u32))?;
            check("set_maxdbs", ffi::mdb_env_set_maxdbs(this.env, setup.tables as u32))?;
            check("open", ffi::mdb_env_open(this.env, path.as_ptr(), flags, 0o644))?;
        }
        let txn = this.begin(0)?;
        for table in setup.tables() {
            let name = CString::new(table.name()).map_err(Error::failed(NAME, "open a table"))?;
            let mut dbi = 0;
            // SAFETY: the transaction is alive, and the name ends with a zero.
            let code =
                unsafe { ffi::mdb_dbi_open(txn.0, name.as_ptr(), ffi::MDB_CREATE | ffi::MDB_INTEGERKEY, &mut dbi) };
            check("open a table", code)?;
            this.tables.push(dbi);
        }
        txn.commit()?;
        Ok(this)
    }

    fn begin(&self, flags: u32) -> Result<Txn> {
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open.
        check("begin", unsafe { ffi::mdb_txn_begin(self.env, ptr::null_mut(), flags, &mut txn) })?;
        Ok(Txn(txn))
    }

    fn table(&self, table: Table) -> ffi::MDB_dbi {
        self.tables[table.index()]
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        // SAFETY: no session outlives the engine.
        unsafe { ffi::mdb_env_close(self.env) };
    }
}

/// A transaction, aborted when it is dropped.
struct Txn(*mut ffi::MDB_txn);

impl Txn {
    fn commit(self) -> Result<()> {
        let txn = self.0;
        std::mem::forget(self);
        // SAFETY: the transaction is alive, and this call ends it.
        check("commit", unsafe { ffi::mdb_txn_commit(txn) })
    }

    /// Returns a value, which is valid until the transaction writes or ends.
    fn get(&self, table: ffi::MDB_dbi, key: u64) -> Result<&[u8]> {
        let key = key.to_ne_bytes();
        let mut found = value_of(&[]);
        // SAFETY: the transaction is alive, and the key lives through the call.
        match unsafe { ffi::mdb_get(self.0, table, &mut value_of(&key), &mut found) } {
            ffi::MDB_NOTFOUND => Err(lost()),
            code => {
                check("get", code)?;
                // SAFETY: a write needs `&mut self`, the end needs `self`.
                Ok(unsafe { bytes_of(&found) })
            }
        }
    }

    fn put(&mut self, table: ffi::MDB_dbi, key: u64, row: &[u8], flags: u32) -> Result<()> {
        let key = key.to_ne_bytes();
        // SAFETY: the transaction is alive, and the library copies key and row.
        check("put", unsafe { ffi::mdb_put(self.0, table, &mut value_of(&key), &mut value_of(row), flags) })
    }

    /// Deletes a row, which is there.
    fn remove(&mut self, table: ffi::MDB_dbi, key: u64) -> Result<()> {
        let key = key.to_ne_bytes();
        // SAFETY: the transaction is alive, and the key lives through the call.
        check("delete", unsafe { ffi::mdb_del(self.0, table, &mut value_of(&key), ptr::null_mut()) })
    }

    fn cursor(&self, table: ffi::MDB_dbi) -> Result<Cursor> {
        let mut cursor = ptr::null_mut();
        // SAFETY: the transaction is alive.
        check("open a cursor", unsafe { ffi::mdb_cursor_open(self.0, table, &mut cursor) })?;
        Ok(Cursor(cursor))
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        // SAFETY: `commit` forgets the transaction that it ends, so this one is alive.
        unsafe { ffi::mdb_txn_abort(self.0) };
    }
}

/// A cursor, closed when it is dropped, before its transaction ends.
struct Cursor(*mut ffi::MDB_cursor);

impl Cursor {
    /// Moves as `step` says, and returns the row there.
    fn step(&mut self, from: u64, step: ffi::MDB_cursor_op) -> Result<Option<(u64, &[u8])>> {
        let from = from.to_ne_bytes();
        let (mut key, mut found) = (value_of(&from), value_of(&[]));
        // SAFETY: cursor and transaction are alive.
        match unsafe { ffi::mdb_cursor_get(self.0, &mut key, &mut found, step) } {
            ffi::MDB_NOTFOUND => Ok(None),
            code => {
                check("move a cursor", code)?;
                // SAFETY: the row is valid until the cursor moves or the transaction writes.
                Ok(Some((key_of(&key), unsafe { bytes_of(&found) })))
            }
        }
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: its transaction is alive, or is one of a reader, which LMDB allows to end first.
        unsafe { ffi::mdb_cursor_close(self.0) };
    }
}

impl Engine for Lmdb {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut txn = self.begin(0)?;
        for (key, row) in rows {
            txn.put(self.table(table), key, &row, ffi::MDB_APPEND)?;
        }
        txn.commit()
    }

    fn settle(&self) -> Result<()> {
        // SAFETY: the environment is open.
        check("sync", unsafe { ffi::mdb_env_sync(self.env, 1) })
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        let reader = self.begin(ffi::MDB_RDONLY)?;
        let cursor = reader.cursor(self.tables[0])?;
        // SAFETY: the transaction is alive; it is renewed before it is used.
        unsafe { ffi::mdb_txn_reset(reader.0) };
        work(&mut Own { engine: self, cursor, reader })
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let txn = self.begin(ffi::MDB_RDONLY)?;
        let mut cursor = txn.cursor(self.table(table))?;
        let mut step = ffi::MDB_FIRST;
        while let Some((key, row)) = cursor.step(0, step)? {
            visit(key, row);
            step = ffi::MDB_NEXT;
        }
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.settle()
    }
}

struct Own<'a> {
    engine: &'a Lmdb,
    /// Dropped before the reader.
    cursor: Cursor,
    /// The thread's read transaction, reset between uses.
    reader: Txn,
}

impl Own<'_> {
    /// Runs `work` in the renewed read transaction.
    fn read<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // SAFETY: the transaction was reset.
        check("renew", unsafe { ffi::mdb_txn_renew(self.reader.0) })?;
        let done = work(self);
        // SAFETY: the transaction is alive, and nothing read by it is kept.
        unsafe { ffi::mdb_txn_reset(self.reader.0) };
        done
    }
}

impl Session for Own<'_> {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        for (table, key) in transfer.balances() {
            let table = self.engine.table(table);
            let mut row: [u8; crate::workload::ROW_BYTES] = txn.get(table, key)?.try_into().map_err(|_| lost())?;
            add(&mut row, transfer.delta);
            txn.put(table, key, &row, 0)?;
        }
        txn.put(self.engine.table(HISTORY), transfer.history, &transfer.history_row(), 0)?;
        txn.commit()
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        let table = self.engine.table(ROWS);
        self.read(|own| keys.iter().try_fold(0, |sum, &key| Ok(sum ^ first_word(own.reader.get(table, key)?))))
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        self.read(|own| {
            // SAFETY: the cursor belongs to a table of the renewed transaction.
            check("renew a cursor", unsafe { ffi::mdb_cursor_renew(own.reader.0, own.cursor.0) })?;
            let (mut sum, mut step) = (0, ffi::MDB_SET_RANGE);
            for _ in 0..rows {
                let Some((_, row)) = own.cursor.step(first, step)? else { break };
                sum ^= first_word(row);
                step = ffi::MDB_NEXT;
            }
            Ok(sum)
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        let table = self.engine.table(table);
        for key in first..first + rows {
            txn.put(table, key, &row(key, key), ffi::MDB_APPEND)?;
        }
        txn.commit()
    }

    fn push(&mut self, key: u64) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        txn.put(self.engine.table(QUEUE), key, &row(key, key), 0)?;
        txn.commit()
    }

    fn put_value(&mut self, key: u64, value: &[u8]) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        txn.put(self.engine.table(ROWS), key, value, 0)?;
        txn.commit()
    }

    fn sum_value(&mut self, key: u64) -> Result<Seen> {
        let table = self.engine.table(ROWS);
        self.read(|own| Ok(Seen::of(own.reader.get(table, key)?)))
    }

    fn churn(&mut self, old: &[u64], new: &[u64]) -> Result<()> {
        let mut txn = self.engine.begin(0)?;
        let table = self.engine.table(ROWS);
        old.iter().try_for_each(|&key| txn.remove(table, key))?;
        new.iter().try_for_each(|&key| txn.put(table, key, &row(key, key), 0))?;
        txn.commit()
    }

    fn delete_range(&mut self, range: Range<u64>) -> Result<()> {
        let txn = self.engine.begin(0)?;
        let mut cursor = txn.cursor(self.engine.table(ROWS))?;
        let mut key = cursor.step(range.start, ffi::MDB_SET_RANGE)?.map(|(key, _)| key);
        while key.is_some_and(|key| key < range.end) {
            // SAFETY: the cursor stands on a row of the write transaction.
            check("delete", unsafe { ffi::mdb_cursor_del(cursor.0, 0) })?;
            // The cursor stands on the row behind the deleted one, and this step stays there.
            key = cursor.step(0, ffi::MDB_NEXT)?.map(|(key, _)| key);
        }
        drop(cursor);
        txn.commit()
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let txn = self.engine.begin(0)?;
        let mut cursor = txn.cursor(self.engine.table(QUEUE))?;
        let first = cursor.step(0, ffi::MDB_FIRST)?.map(|(key, _)| key);
        if first.is_some() {
            // SAFETY: the cursor stands on a row of the write transaction.
            check("delete", unsafe { ffi::mdb_cursor_del(cursor.0, 0) })?;
        }
        drop(cursor);
        txn.commit()?;
        Ok(first)
    }
}
