//! Commits.

use crate::guard::{c_message, guard, object, store};
use crate::queue::fs_queue;
use crate::tx::fs_tx;
use foreshore_handles::{Fault, Result, Status};
use std::ffi::{c_char, c_void};

/// Called once when a commit is durable, with `FS_OK`, or cannot be. `message` belongs to the library and ends with the
/// call. It runs on a thread of the library, or in a call of another thread: it must be short and must not wait for a
/// lock or for another commit.
pub type fs_on_durable = Option<unsafe extern "C" fn(arg: *mut c_void, status: Status, message: *const c_char)>;

/// A pointer of the program, which it may use from the thread of the callback.
struct Argument(*mut c_void);

// SAFETY: the library does not use what it points to. The header says that the callback runs on another thread.
unsafe impl Send for Argument {}

/// Commits, and returns when the commit survives power loss, or at once if the transaction is relaxed. Stores the
/// number of the commit, which orders commits, unless `csn` is null.
///
/// The transaction has ended, also if this returns an error. There are three exceptions: `FS_IN_USE`; `FS_FORKED`,
/// after which it goes on in the parent; and `FS_INVALID`, for it is null or that of a run. `FS_ROLLED_BACK` if an
/// error has ended it before, `FS_PANIC` if a call with it has panicked. After `FS_POISONED` the commit may or may not
/// survive.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_commit(tx: *const fs_tx, csn: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let number = unsafe { object(tx, "tx") }?.inner.commit()?;
        // SAFETY: as the caller promises.
        unsafe { store(csn, number) };
        Ok(())
    })
}

/// Commits without a wait for the disk: the order is fixed, the locks are free, and `on_durable` is called when the
/// commit is durable. If this returns an error, `on_durable` is not called; otherwise it is, once, and maybe before
/// this returns. It may be null. The transaction ends as it does by `fs_commit`.
///
/// # Safety
/// Each pointer is null or of its type. `on_durable` may be called with `arg` on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_commit_pipelined(
    tx: *const fs_tx,
    on_durable: fs_on_durable,
    arg: *mut c_void,
    csn: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let ticket = unsafe { object(tx, "tx") }?.inner.commit_pipelined()?;
        // SAFETY: as the caller promises. It is stored first, so that the callback may read it.
        unsafe { store(csn, ticket.number()) };
        let arg = Argument(arg);
        ticket.when_durable(move |durable| {
            let arg = arg;
            // SAFETY: as the caller promises.
            unsafe { call(on_durable, arg.0, durable) };
        })
    })
}

/// Commits without a wait for the disk. The queue gets `tag` when the commit is durable, or cannot be. The transaction
/// ends as it does by `fs_commit`.
///
/// # Safety
/// Each pointer is null or of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fs_commit_queued(tx: *const fs_tx, queue: *const fs_queue, tag: u64, csn: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (tx, queue) = unsafe { (object(tx, "tx")?, object(queue, "queue")?) };
        queue.inner.check()?;
        let ticket = tx.inner.commit_pipelined()?;
        // SAFETY: as the caller promises.
        unsafe { store(csn, ticket.number()) };
        queue.inner.add(ticket, tag)
    })
}

/// # Safety
/// The function may be called with `arg`.
unsafe fn call(function: fs_on_durable, arg: *mut c_void, durable: Result<()>) {
    let Some(function) = function else { return };
    let (status, message) = match durable {
        Ok(()) => (Status::Ok, String::new()),
        Err(Fault { status, message }) => (status, message),
    };
    let message = c_message(&message);
    // SAFETY: as the caller promises.
    unsafe { function(arg, status, message.as_ptr()) };
}
