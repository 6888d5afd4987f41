//! WiredTiger, the library of the system, through a shim in C.
//!
//! | variant | settings | rows |
//! |---|---|---|
//! | `fsync` | log, `transaction_sync=(enabled=true,method=fsync)` | durable; rows that only read |
//! | `dsync` | log, `transaction_sync=(enabled=true,method=dsync)` | durable |
//! | `log` | log, written to the kernel by commits in groups, not synced | lazy |
//! | `nolog` | no log, checkpoints only | lazy |
//! | `bulk` | a bulk cursor, which is not logged, then a checkpoint | `bulk` |
//!
//! In `tatp` and `ycsb-a` to `ycsb-f` cursors have `overwrite=false`, so an insert or a delete tells whether there was
//! a row. Values are kept out of overflow pages by MongoDB's `leaf_value_max`. A range is deleted by
//! `WT_SESSION::truncate`.
//!
//! A thread keeps one session with one cursor a table, as the documentation recommends. Writers run at snapshot
//! isolation, which is the only one that refuses lost updates. WiredTiger answers a conflict at once, by `WT_ROLLBACK`,
//! and the transaction runs again after the pauses that MongoDB makes (`logAndBackoff`).

mod code;
mod ffi;
mod own;

use crate::{
    engine::{Engine, Kind, Purpose, Session, Setup, Variant},
    error::{Error, Result},
    workload::{BATCH, Rows, Table, Workload},
};
use code::{NAME, check};
use own::{Own, ended};
use std::{
    ffi::{CStr, CString, c_char},
    os::unix::ffi::OsStrExt,
    ptr,
};

pub(super) const KIND: Kind =
    Kind { name: NAME, version, variants, has_get_many: false, open: |setup| Ok(Box::new(WiredTiger::open(setup)?)) };

/// Sessions of WiredTiger's own threads.
const OWN_SESSIONS: usize = 64;

fn version() -> String {
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the three pointers are valid for the call.
    unsafe { ffi::shim_version(&mut major, &mut minor, &mut patch) };
    format!("{major}.{minor}.{patch}")
}

fn variants(Purpose { workload, writes, durable }: Purpose) -> Vec<Variant> {
    match (workload, durable) {
        (Workload::Bulk, true) => vec![Variant::durable("bulk", "bulk cursor, checkpoint after it")],
        _ if !writes => vec![Variant::durable("fsync", "row store, no compression, session a thread")],
        (_, true) => vec![
            Variant::durable("fsync", "log, transaction_sync=(enabled,method=fsync), snapshot isolation"),
            Variant::durable("dsync", "log, transaction_sync=(enabled,method=dsync), snapshot isolation"),
        ],
        (_, false) => vec![
            Variant::lazy(
                "log",
                "log, transaction_sync=(enabled=false), snapshot isolation",
                "a crash of process or machine loses the newest commits",
            ),
            Variant::lazy(
                "nolog",
                "no log, snapshot isolation",
                "a crash of process or machine loses all commits since the last checkpoint",
            ),
        ],
    }
}

/// Returns the configuration of a connection.
fn config(setup: &Setup<'_>) -> String {
    let log = match setup.variant {
        "nolog" => "log=(enabled=false)",
        "log" => "log=(enabled=true),transaction_sync=(enabled=false)",
        "dsync" => "log=(enabled=true),transaction_sync=(enabled=true,method=dsync)",
        _ => "log=(enabled=true),transaction_sync=(enabled=true,method=fsync)",
    };
    // `checkpoint=(log_size)` needs a log.
    let checkpoint = if setup.variant == "nolog" { "wait=60" } else { "wait=60,log_size=512MB" };
    let sessions = setup.threads + OWN_SESSIONS;
    format!("create,cache_size={},session_max={sessions},checkpoint=({checkpoint}),{log}", setup.cache)
}

struct WiredTiger {
    connection: *mut ffi::Connection,
    uris: Vec<CString>,
    /// Configuration of the cursors.
    cursors: &'static CStr,
}

// SAFETY: WiredTiger lets all threads use a connection.
unsafe impl Sync for WiredTiger {}

impl WiredTiger {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let text = |text: &[u8]| CString::new(text).map_err(Error::failed(NAME, "open"));
        let (home, config) = (text(setup.dir.as_os_str().as_bytes())?, text(config(setup).as_bytes())?);
        let uris: Result<Vec<CString>> =
            setup.tables().map(|table| text(format!("table:{}", table.name()).as_bytes())).collect();
        let cursors = if setup.purpose.workload.is_generic() { c"overwrite=false" } else { c"overwrite=true" };
        let mut this = Self { connection: ptr::null_mut(), uris: uris?, cursors };
        // SAFETY: the strings end with a zero and live through the call.
        check("open", unsafe { ffi::shim_open(home.as_ptr(), config.as_ptr(), &mut this.connection) })?;
        for uri in &this.uris {
            let kind = match setup.purpose.workload {
                Workload::Values => c"key_format=Q,value_format=u,leaf_value_max=64MB",
                _ => c"key_format=Q,value_format=u",
            };
            // SAFETY: the connection is open, and the strings end with a zero.
            check("create a table", unsafe { ffi::shim_create(this.connection, uri.as_ptr(), kind.as_ptr()) })?;
        }
        Ok(this)
    }

    /// Opens a session with a cursor for each table.
    fn own(&self) -> Result<Own> {
        self.own_of(&self.uris)
    }

    fn own_of(&self, uris: &[CString]) -> Result<Own> {
        let uris: Vec<*const c_char> = uris.iter().map(|uri| uri.as_ptr()).collect();
        let (cursors, mut session) = (self.cursors.as_ptr(), ptr::null_mut());
        // SAFETY: the connection is open, and the list has as many strings as it says.
        let code = unsafe { ffi::shim_session_open(self.connection, uris.as_ptr(), uris.len(), cursors, &mut session) };
        check("open a session", code)?;
        Ok(Own::new(session))
    }

    fn shut(&mut self) -> Result<()> {
        let connection = std::mem::replace(&mut self.connection, ptr::null_mut());
        if connection.is_null() {
            return Ok(());
        }
        // SAFETY: no session outlives the engine, and the pointer is not used again.
        check("close", unsafe { ffi::shim_close(connection) })
    }
}

impl Drop for WiredTiger {
    fn drop(&mut self) {
        // An engine that is dropped without `close` has failed already.
        let _ = self.shut();
    }
}

impl Engine for WiredTiger {
    fn load(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let mut own = self.own()?;
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let batch: Vec<_> = rows.by_ref().take(BATCH as usize).collect();
            own.write(|own| batch.iter().try_for_each(|(key, row)| own.insert_row(table, *key, row)))?;
        }
        Ok(())
    }

    fn bulk(&self, table: Table, rows: &mut Rows<'_>) -> Result<()> {
        let (uri, mut session) = (&self.uris[table.index()], ptr::null_mut());
        // SAFETY: the connection is open, and the name ends with a zero.
        check("open a bulk cursor", unsafe { ffi::shim_bulk_open(self.connection, uri.as_ptr(), &mut session) })?;
        let mut own = Own::new(session);
        for (key, row) in rows {
            // The only cursor of the session.
            own.insert_row(Table(0), key, &row).map_err(ended)?;
        }
        own.end_bulk()?;
        self.settle()
    }

    fn settle(&self) -> Result<()> {
        // Another thread may have a bulk cursor, beside which no cursor of its table can be opened.
        self.own_of(&[])?.checkpoint()
    }

    fn session(&self, work: &mut dyn FnMut(&mut dyn Session) -> Result<()>) -> Result<()> {
        work(&mut self.own()?)
    }

    fn scan(&self, table: Table, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let mut own = self.own()?;
        while let Some((key, value)) = own.next(table).map_err(ended)? {
            visit(key, value);
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<()> {
        self.shut()
    }
}
