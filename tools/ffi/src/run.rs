//! Transactions as functions.

use crate::db::fs_db;
use crate::guard::{guard, null, object};
use crate::options::{self, fs_tx_options};
use crate::tx::fs_tx;
use foreshore_handles::{Fault, Status, Transaction};
use std::ffi::{c_int, c_void};

/// A transaction as a function: it returns zero to commit, and anything else to roll back.
pub type fs_body = Option<unsafe extern "C" fn(tx: *mut fs_tx, arg: *mut c_void) -> c_int>;

/// Why a run ends without a commit.
enum Ended {
    Fault(Fault),
    Body(c_int),
}

impl From<Fault> for Ended {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Runs `body` in a transaction and commits it, durably unless it is relaxed. `body` is called again, whatever it has
/// returned, if a deadlock or a conflict with other transactions has ended its transaction. So it must leave nothing
/// behind but rows.
///
/// If `body` returns another number than zero, this rolls back and returns `FS_ABORTED`, and `result`, unless it is
/// null, gets the number. The transaction belongs to the run: `body` does not end it and does not free it.
///
/// The runs are at most 100, and none begins after `deadline_ms`, or without it after the time of three lock timeouts.
/// One that `FS_TRANSACTION_TOO_OLD` has ended is the last, and so is one that `FS_LOCK_TIMEOUT` has ended without a
/// deadline. If `body` forks, the child has to exit or to call `exec` in it: where it returns from it, it is aborted.
///
/// # Safety
/// Each pointer is null or of its type. `body` may be called with `arg`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_run(
    db: *const fs_db,
    options: *const fs_tx_options,
    body: fs_body,
    arg: *mut c_void,
    result: *mut c_int,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, options) = unsafe { (object(db, "db")?, options::transaction(options)?) };
        let body = body.ok_or_else(|| null("body"))?;
        let ran = Transaction::run(&db.inner, options, |tx| {
            let mut tx = fs_tx { inner: tx.clone() };
            // SAFETY: as the caller promises.
            match unsafe { body(&raw mut tx, arg) } {
                0 => Ok(()),
                other => Err(Ended::Body(other)),
            }
        });
        let number = match ran {
            Ok(()) => 0,
            Err(Ended::Body(number)) => number,
            Err(Ended::Fault(fault)) => return Err(fault),
        };
        // SAFETY: as the caller promises.
        if let Some(result) = unsafe { result.as_mut() } {
            *result = number;
        }
        if number == 0 {
            return Ok(());
        }
        Err(Fault::new(Status::Aborted, format!("the function of the run has returned {number}")))
    })
}
