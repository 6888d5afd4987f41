//! WiredTiger, the library of the system, through a shim in C.
//!
//! | variant | settings | rows |
//! |---|---|---|
//! | `fsync` | log, `transaction_sync=(enabled=true,method=fsync)` | durable; `read` |
//! | `dsync` | log, `transaction_sync=(enabled=true,method=dsync)` | durable |
//! | `log` | log, written to the kernel by commits in groups, not synced | lazy |
//! | `nolog` | no log, checkpoints only | lazy |
//!
//! A thread keeps one session with one cursor a table, as the documentation recommends. Writers run at snapshot
//! isolation, which is the only one that refuses lost updates. WiredTiger answers a conflict at once, by `WT_ROLLBACK`,
//! and the transaction runs again after the pauses that MongoDB makes (`logAndBackoff`).

mod ffi;

use crate::{
    engine::{Engine, Kind, Rows, Session, Setup, Variant},
    error::{Error, Result},
    workload::{BATCH, HISTORY, QUEUE, ROW_BYTES, ROWS, Table, Transfer, Workload, add, first_word, row},
};
use std::{
    ffi::{CStr, CString, c_char, c_int},
    os::unix::ffi::OsStrExt,
    ptr,
    time::Duration,
};

const NAME: &str = "wiredtiger";

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

fn variants(workload: Workload, durable: bool) -> Vec<Variant> {
    match (workload, durable) {
        (Workload::Read, _) => vec![Variant::durable("fsync", "row store, no compression, session a thread")],
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
}

// SAFETY: WiredTiger lets all threads use a connection.
unsafe impl Sync for WiredTiger {}

fn is_rollback(code: c_int) -> bool {
    // SAFETY: the function compares numbers.
    unsafe { ffi::shim_is_rollback(code) != 0 }
}

fn is_not_found(code: c_int) -> bool {
    // SAFETY: the function compares numbers.
    unsafe { ffi::shim_is_not_found(code) != 0 }
}

fn check(call: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library returns a string that lives as long as the process.
    let cause = unsafe { CStr::from_ptr(ffi::shim_error(code)) };
    Err(Error::Failed { engine: NAME, call, cause: cause.to_string_lossy().into_owned() })
}

fn lost() -> Error {
    Error::Lost { engine: NAME, what: "a row that was loaded is missing".to_owned() }
}

impl WiredTiger {
    fn open(setup: &Setup<'_>) -> Result<Self> {
        let text = |text: &[u8]| CString::new(text).map_err(Error::failed(NAME, "open"));
        let (home, config) = (text(setup.dir.as_os_str().as_bytes())?, text(config(setup).as_bytes())?);
        let uris: Result<Vec<CString>> =
            setup.tables().map(|table| text(format!("table:{}", table.name()).as_bytes())).collect();
        let mut this = Self { connection: ptr::null_mut(), uris: uris? };
        // SAFETY: the strings end with a zero and live through the call.
        check("open", unsafe { ffi::shim_open(home.as_ptr(), config.as_ptr(), &mut this.connection) })?;
        for uri in &this.uris {
            let kind = c"key_format=Q,value_format=u";
            // SAFETY: the connection is open, and the strings end with a zero.
            check("create a table", unsafe { ffi::shim_create(this.connection, uri.as_ptr(), kind.as_ptr()) })?;
        }
        Ok(this)
    }

    fn own(&self) -> Result<Own> {
        let uris: Vec<*const c_char> = self.uris.iter().map(|uri| uri.as_ptr()).collect();
        let mut session = ptr::null_mut();
        // SAFETY: the connection is open, and the list has as many strings as it says.
        let code = unsafe { ffi::shim_session_open(self.connection, uris.as_ptr(), uris.len(), &mut session) };
        check("open a session", code)?;
        Ok(Own { session, hint: 0 })
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

    fn settle(&self) -> Result<()> {
        let own = self.own()?;
        // SAFETY: the session is open.
        check("checkpoint", unsafe { ffi::shim_checkpoint(own.session) })
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

/// Why a transaction did not go on.
enum Stop {
    /// A conflict: it may run again.
    Rollback,
    Error(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The error of a read, which meets no conflict.
fn ended(stop: Stop) -> Error {
    match stop {
        Stop::Error(error) => error,
        Stop::Rollback => Error::Failed { engine: NAME, call: "read", cause: "rolled back".to_owned() },
    }
}

type Step<T> = std::result::Result<T, Stop>;

fn step(call: &'static str, code: c_int) -> Step<()> {
    if is_rollback(code) { Err(Stop::Rollback) } else { Ok(check(call, code)?) }
}

/// As [`step`], where a row may be missing.
fn found(call: &'static str, code: c_int) -> Step<bool> {
    if is_not_found(code) { Ok(false) } else { step(call, code).map(|()| true) }
}

/// Waits before the next attempt.
fn back_off(attempt: u32) {
    match attempt {
        ..4 => std::thread::yield_now(),
        4..10 => std::thread::sleep(Duration::from_millis(1)),
        10..100 => std::thread::sleep(Duration::from_millis(5)),
        _ => std::thread::sleep(Duration::from_millis(10)),
    }
}

/// The session of a thread, with its cursors.
struct Own {
    session: *mut ffi::Session,
    /// Where the consumer looks for the next row: the deleted ones before it need not be skipped again.
    hint: u64,
}

impl Own {
    /// Runs a transaction, again after a conflict.
    fn write<T>(&mut self, mut work: impl FnMut(&mut Self) -> Step<T>) -> Result<T> {
        for attempt in 1_u32.. {
            // SAFETY: the session is open, and no transaction runs.
            check("begin", unsafe { ffi::shim_begin(self.session) })?;
            let stop = match work(self) {
                // SAFETY: the transaction runs. It is over after this call, also where that fails.
                Ok(value) => match step("commit", unsafe { ffi::shim_commit(self.session) }) {
                    Ok(()) => return Ok(value),
                    Err(stop) => stop,
                },
                Err(stop) => {
                    // SAFETY: the transaction runs.
                    check("roll back", unsafe { ffi::shim_rollback(self.session) })?;
                    stop
                }
            };
            match stop {
                Stop::Rollback => back_off(attempt),
                Stop::Error(error) => return Err(error),
            }
        }
        unreachable!("only success and errors end the attempts")
    }

    /// Runs `work` in a transaction that only reads.
    fn read<T>(&mut self, work: impl FnOnce(&mut Self) -> Step<T>) -> Result<T> {
        // SAFETY: the session is open, and no transaction runs.
        check("begin", unsafe { ffi::shim_begin(self.session) })?;
        let value = work(self).map_err(ended);
        // SAFETY: the transaction runs.
        check("end a read", unsafe { ffi::shim_commit(self.session) })?;
        value
    }

    fn get_row(&mut self, table: Table, key: u64) -> Step<&[u8]> {
        let (mut value, mut len) = (ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_get(self.session, table.index(), key, &mut value, &mut len) };
        if !found("search", code)? {
            return Err(lost().into());
        }
        // SAFETY: the value is valid until the cursor moves, which needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(value.cast(), len) })
    }

    fn insert_row(&mut self, table: Table, key: u64, row: &[u8]) -> Step<()> {
        // SAFETY: the session is open, and the row lives through the call.
        let code = unsafe { ffi::shim_insert(self.session, table.index(), key, row.as_ptr().cast(), row.len()) };
        step("insert", code)
    }

    /// Returns the row at `code`, what a call that moved the cursor returned.
    fn row_at(code: c_int, key: u64, value: *const std::ffi::c_void, len: usize) -> Step<Option<(u64, &'static [u8])>> {
        if !found("move a cursor", code)? {
            return Ok(None);
        }
        // SAFETY: the callers shorten the lifetime to the time until the cursor moves.
        Ok(Some((key, unsafe { std::slice::from_raw_parts(value.cast(), len) })))
    }

    fn seek(&mut self, table: Table, from: u64) -> Step<Option<(u64, &[u8])>> {
        let (mut key, mut value, mut len) = (0, ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_seek(self.session, table.index(), from, &mut key, &mut value, &mut len) };
        Self::row_at(code, key, value, len)
    }

    fn next(&mut self, table: Table) -> Step<Option<(u64, &[u8])>> {
        let (mut key, mut value, mut len) = (0, ptr::null(), 0);
        // SAFETY: the session is open.
        let code = unsafe { ffi::shim_next(self.session, table.index(), &mut key, &mut value, &mut len) };
        Self::row_at(code, key, value, len)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: the session is not used again; closing it closes its cursors, and rolls back what runs.
        unsafe { ffi::shim_session_close(self.session) };
    }
}

impl Session for Own {
    fn transfer(&mut self, transfer: &Transfer) -> Result<()> {
        self.write(|own| {
            for (table, key) in transfer.balances() {
                let mut row: [u8; ROW_BYTES] = own.get_row(table, key)?.try_into().map_err(|_| lost())?;
                add(&mut row, transfer.delta);
                // SAFETY: the cursor stands on the row, and the new one lives through the call.
                let code = unsafe { ffi::shim_update(own.session, table.index(), row.as_ptr().cast(), row.len()) };
                step("update", code)?;
            }
            own.insert_row(HISTORY, transfer.history, &transfer.history_row())
        })
    }

    fn get(&mut self, keys: &[u64]) -> Result<u64> {
        if let &[key] = keys {
            let word = self.get_row(ROWS, key).map(first_word).map_err(ended)?;
            // SAFETY: the session is open. The reset ends the read's implicit transaction.
            check("reset", unsafe { ffi::shim_reset(self.session, ROWS.index()) })?;
            return Ok(word);
        }
        self.read(|own| keys.iter().try_fold(0, |sum, &key| Ok(sum ^ first_word(own.get_row(ROWS, key)?))))
    }

    fn range(&mut self, first: u64, rows: u64) -> Result<u64> {
        self.read(|own| {
            let Some((_, row)) = own.seek(ROWS, first)? else { return Ok(0) };
            let mut sum = first_word(row);
            for _ in 1..rows {
                let Some((_, row)) = own.next(ROWS)? else { break };
                sum ^= first_word(row);
            }
            Ok(sum)
        })
    }

    fn insert(&mut self, table: Table, first: u64, rows: u64) -> Result<()> {
        self.write(|own| (first..first + rows).try_for_each(|key| own.insert_row(table, key, &row(key, key))))
    }

    fn push(&mut self, key: u64) -> Result<()> {
        self.insert(QUEUE, key, 1)
    }

    fn pop(&mut self) -> Result<Option<u64>> {
        let hint = std::mem::take(&mut self.hint);
        let claimed = self.write(|own| {
            let mut found = own.seek(QUEUE, hint)?.map(|(key, _)| key);
            if found.is_none() && hint > 0 {
                // A producer may have committed a smaller key after a larger one.
                found = own.seek(QUEUE, 0)?.map(|(key, _)| key);
            }
            if found.is_some() {
                // SAFETY: the cursor stands on the row.
                step("remove", unsafe { ffi::shim_remove(own.session, QUEUE.index()) })?;
            }
            Ok(found)
        })?;
        self.hint = claimed.map_or(0, |key| key + 1);
        Ok(claimed)
    }
}
