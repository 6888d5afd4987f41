//! Two-phase commit.

use crate::buffer::fs_buffer;
use crate::db::fs_db;
use crate::guard::{guard, object, object_mut, store, text};
use crate::tx::fs_tx;
use foreshore_handles::Status;
use std::ffi::c_char;

/// Prepares a transaction under `name`: the first phase of a two-phase commit. It is durable when this returns, and
/// keeps its locks until `fs_commit_prepared` or `fs_rollback_prepared`, now or after any number of restarts. `tx` has
/// ended, also if this returns an error, as by `fs_commit`.
///
/// After `FS_PREPARED_EXISTS`, `FS_PREPARED_NAME` and other errors it is rolled back. After `FS_POISONED` it may or may
/// not be prepared: `fs_prepared` tells after the next open.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_prepare(tx: *const fs_tx, name: *const c_char) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, name) = unsafe { (object(tx, "tx")?, text(name, "name")?) };
        tx.inner.prepare(name)
    })
}

/// Stores the names of the prepared transactions in `names`, each with a zero byte behind it, and their number in
/// `count`, which may be null. Transactions that a call is ending are left out.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_prepared(db: *const fs_db, names: *mut fs_buffer, count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, names) = unsafe { (object(db, "db")?, object_mut(names, "names")?) };
        let prepared = db.inner.get()?.prepared()?;
        names.set_texts(prepared.iter().map(|prepared| &*prepared.name));
        // SAFETY: as the caller promises.
        unsafe { store(count, prepared.len() as u64) };
        Ok(())
    })
}

/// Commits the prepared transaction `name`, and returns when the commit survives power loss. Stores its number, unless
/// `csn` is null. `FS_NO_PREPARED` if there is none of this name: if there was one, its end is durable.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_commit_prepared(db: *const fs_db, name: *const c_char, csn: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, name) = unsafe { (object(db, "db")?, text(name, "name")?) };
        let number = db.inner.get()?.commit_prepared(name)?.0;
        // SAFETY: as the caller promises.
        unsafe { store(csn, number) };
        Ok(())
    })
}

/// Rolls the prepared transaction `name` back. The rollback is durable when this returns. `FS_NO_PREPARED` as for
/// `fs_commit_prepared`.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_rollback_prepared(db: *const fs_db, name: *const c_char) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, name) = unsafe { (object(db, "db")?, text(name, "name")?) };
        Ok(db.inner.get()?.rollback_prepared(name)?)
    })
}
