//! The functions of `shim.c`.

use std::ffi::{c_char, c_int, c_void};

/// A connection to a database.
#[repr(C)]
pub(super) struct Connection {
    private: [u8; 0],
}

/// A session with a cursor for each table.
#[repr(C)]
pub(super) struct Session {
    private: [u8; 0],
}

unsafe extern "C" {
    pub(super) fn shim_version(major: *mut c_int, minor: *mut c_int, patch: *mut c_int) -> *const c_char;
    pub(super) fn shim_error(code: c_int) -> *const c_char;
    pub(super) fn shim_is_rollback(code: c_int) -> c_int;
    pub(super) fn shim_is_not_found(code: c_int) -> c_int;
    pub(super) fn shim_is_duplicate(code: c_int) -> c_int;
    pub(super) fn shim_open(home: *const c_char, config: *const c_char, connection: *mut *mut Connection) -> c_int;
    pub(super) fn shim_close(connection: *mut Connection) -> c_int;
    pub(super) fn shim_create(connection: *mut Connection, uri: *const c_char, config: *const c_char) -> c_int;
    pub(super) fn shim_checkpoint(session: *mut Session) -> c_int;
    pub(super) fn shim_session_open(
        connection: *mut Connection,
        uris: *const *const c_char,
        tables: usize,
        cursors: *const c_char,
        session: *mut *mut Session,
    ) -> c_int;
    pub(super) fn shim_session_close(session: *mut Session);
    pub(super) fn shim_begin(session: *mut Session) -> c_int;
    pub(super) fn shim_commit(session: *mut Session) -> c_int;
    pub(super) fn shim_rollback(session: *mut Session) -> c_int;
    pub(super) fn shim_get(
        session: *mut Session,
        table: usize,
        key: u64,
        value: *mut *const c_void,
        len: *mut usize,
    ) -> c_int;
    pub(super) fn shim_update(session: *mut Session, table: usize, value: *const c_void, len: usize) -> c_int;
    pub(super) fn shim_insert(session: *mut Session, table: usize, key: u64, value: *const c_void, len: usize)
    -> c_int;
    pub(super) fn shim_remove(session: *mut Session, table: usize) -> c_int;
    pub(super) fn shim_remove_key(session: *mut Session, table: usize, key: u64) -> c_int;
    pub(super) fn shim_truncate(session: *mut Session, table: usize, first: u64, last: u64) -> c_int;
    pub(super) fn shim_bulk_open(connection: *mut Connection, uri: *const c_char, session: *mut *mut Session) -> c_int;
    pub(super) fn shim_bulk_end(session: *mut Session) -> c_int;
    pub(super) fn shim_reset(session: *mut Session, table: usize) -> c_int;
    pub(super) fn shim_seek(
        session: *mut Session,
        table: usize,
        from: u64,
        key: *mut u64,
        value: *mut *const c_void,
        len: *mut usize,
    ) -> c_int;
    pub(super) fn shim_next(
        session: *mut Session,
        table: usize,
        key: *mut u64,
        value: *mut *const c_void,
        len: *mut usize,
    ) -> c_int;
}
