//! Transactions.

use crate::buffer::fs_buffer;
use crate::db::fs_db;
use crate::guard::{free, guard, hand_out, object, object_mut, store, text};
use crate::options::{self, fs_tx_options};
use foreshore_handles::{Status, Transaction};
use std::ffi::c_char;

/// A transaction. One thread at a time may use it with its tables and cursors: a second one gets `FS_IN_USE`.
pub struct fs_tx {
    pub(crate) inner: Transaction,
}

/// Begins a transaction that reads and writes. `options` may be null. Free it with `fs_tx_free`, also after its end.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_begin(db: *const fs_db, options: *const fs_tx_options, tx: *mut *mut fs_tx) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, options, out) = unsafe { (object(db, "db")?, options::transaction(options)?, object_mut(tx, "tx")?) };
        hand_out(out, fs_tx { inner: Transaction::begin(&db.inner, options)? });
        Ok(())
    })
}

/// Begins a transaction that reads a snapshot and waits for no writer. Of `options`, which may be null, `label`,
/// `latest`, `snapshot_max_age_ms` and `snapshot_max_bytes` count.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_begin_read(db: *const fs_db, options: *const fs_tx_options, tx: *mut *mut fs_tx) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, options, out) = unsafe { (object(db, "db")?, options::reader(options)?, object_mut(tx, "tx")?) };
        hand_out(out, fs_tx { inner: Transaction::read(&db.inner, options)? });
        Ok(())
    })
}

/// Rolls a transaction back and waits until what it has read is durable. Its handle stays until `fs_tx_free`. One that
/// an error has rolled back, or in which a call has panicked, is no error here. The transaction has ended, also if this
/// returns an error. The exceptions are those of `fs_commit`.
///
/// # Safety
/// `tx` is null or a transaction that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_rollback(tx: *const fs_tx) -> Status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { object(tx, "tx") }?.inner.rollback())
}

/// Frees a transaction, and rolls it back first if it has not ended. Tables and cursors of it may be freed later; they
/// return `FS_ENDED`. Null is allowed. In the child of a fork nothing is rolled back.
///
/// # Safety
/// `tx` is null or a transaction that was not freed, and no other thread is in a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_tx_free(tx: *mut fs_tx) {
    // SAFETY: as the caller promises.
    if let Some(tx) = unsafe { tx.as_ref() } {
        // Its tables and cursors would keep it otherwise.
        let _ = guard(|| {
            tx.inner.abandon();
            Ok(())
        });
    }
    // SAFETY: as the caller promises.
    unsafe { free(tx) };
}

/// Marks a point to which `fs_rollback_to` can roll back, and stores its number.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_savepoint(tx: *const fs_tx, savepoint: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, out) = unsafe { (object(tx, "tx")?, object_mut(savepoint, "savepoint")?) };
        *out = tx.inner.savepoint()?;
        Ok(())
    })
}

/// Rolls back what was changed since a savepoint. The savepoint stays, and later ones are gone.
///
/// # Safety
/// `tx` is null or a transaction that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_rollback_to(tx: *const fs_tx, savepoint: u64) -> Status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { object(tx, "tx") }?.inner.rollback_to(savepoint))
}

/// Gives up a savepoint and those after it. What was changed since stays.
///
/// # Safety
/// `tx` is null or a transaction that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_release(tx: *const fs_tx, savepoint: u64) -> Status {
    // SAFETY: as the caller promises.
    guard(|| unsafe { object(tx, "tx") }?.inner.release(savepoint))
}

/// Lists the tables. Stores in `names` three texts for each, with a zero byte behind each of them: its name, the type
/// of its keys and that of its values. Stores the number of tables, unless `count` is null.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_tables(tx: *const fs_tx, names: *mut fs_buffer, count: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, names) = unsafe { (object(tx, "tx")?, object_mut(names, "names")?) };
        let tables = tx.inner.tables()?;
        names.set_texts(tables.iter().flat_map(|(name, key_type, value_type)| [&**name, key_type, value_type]));
        // SAFETY: as the caller promises.
        unsafe { store(count, tables.len() as u64) };
        Ok(())
    })
}

/// Drops the table `name` with all its rows. `FS_NOT_FOUND` if there is none.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_drop_table(tx: *const fs_tx, name: *const c_char) -> Status {
    crate::guard::guard_status(|| {
        // SAFETY: as the caller promises.
        let (tx, name) = unsafe { (object(tx, "tx")?, text(name, "name")?) };
        Ok(crate::guard::found(tx.inner.drop_table(name)?))
    })
}

/// Renames the table `name` with its rows, its indexes and its numbers. `FS_NOT_FOUND` if there is none, and
/// `FS_TABLE_EXISTS` if another table has the new name; then the transaction goes on.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_rename_table(tx: *const fs_tx, name: *const c_char, new_name: *const c_char) -> Status {
    crate::guard::guard_status(|| {
        // SAFETY: as the caller promises.
        let (tx, name, new_name) = unsafe { (object(tx, "tx")?, text(name, "name")?, text(new_name, "new_name")?) };
        Ok(crate::guard::found(tx.inner.rename_table(name, new_name)?))
    })
}

/// Removes all rows of the table `name`, in a time that does not depend on their number. `FS_NOT_FOUND` if there is no
/// such table. Open the table again afterwards: one that was opened before is that of the removed rows.
///
/// # Safety
/// Each pointer is null or of its type; texts end with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_clear_table(tx: *const fs_tx, name: *const c_char) -> Status {
    crate::guard::guard_status(|| {
        // SAFETY: as the caller promises.
        let (tx, name) = unsafe { (object(tx, "tx")?, text(name, "name")?) };
        Ok(crate::guard::found(tx.inner.clear_table(name)?))
    })
}
