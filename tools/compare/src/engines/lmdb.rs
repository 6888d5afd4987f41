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

mod generic;
mod session;
mod txn;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{Rows, Table},
};
use lmdb_master_sys as ffi;
use std::{ffi::CString, os::unix::ffi::OsStrExt, ptr};
use txn::{Cursor, NAME, Txn, check};

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
        let cursors = self.tables.iter().map(|&table| reader.cursor(table)).collect::<Result<Vec<Cursor>>>()?;
        // SAFETY: the transaction is alive; it is renewed before it is used.
        unsafe { ffi::mdb_txn_reset(reader.0) };
        work(&mut Own { engine: self, cursors, reader })
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
    /// A cursor of the reader for each table. Dropped before it.
    cursors: Vec<Cursor>,
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

    /// Returns the cursor of a table, in the renewed read transaction.
    fn renewed(&mut self, table: Table) -> Result<&mut Cursor> {
        let cursor = &mut self.cursors[table.index()];
        // SAFETY: the cursor belongs to a table of the renewed transaction.
        check("renew a cursor", unsafe { ffi::mdb_cursor_renew(self.reader.0, cursor.0) })?;
        Ok(cursor)
    }
}
