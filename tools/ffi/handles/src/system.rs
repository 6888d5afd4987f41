//! What the standard library has no name for: forks and eventfd.

use crate::{Fault, Result, Status};
use foreshore::Error;
use std::ffi::{c_int, c_uint};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// `EFD_CLOEXEC | EFD_NONBLOCK`, the same on every architecture of Linux that Rust has, but for three old ones.
const FLAGS: c_int = 0o2_000_000 | 0o4_000;

/// A function that the system calls around a fork.
type Handler = Option<extern "C" fn()>;

unsafe extern "C" {
    // SAFETY: it takes numbers only, and returns a descriptor that nothing else owns, or -1.
    safe fn eventfd(count: c_uint, flags: c_int) -> c_int;
    // SAFETY: it keeps pointers to functions, which live as long as the library is loaded.
    safe fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// How many forks lie between the first process and this one, since the first database was opened.
static FORKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn note_fork() {
    // ORDERING: counter. The child has one thread.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Opens a counter that polls as readable while it is not zero.
pub(crate) fn new_eventfd() -> io::Result<File> {
    match eventfd(0, FLAGS) {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the call has succeeded, so the descriptor is open, and only this value owns it.
        fd => Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) })),
    }
}

/// Ends the process, with a last word.
fn abort(why: &str) -> ! {
    // Another thread of the parent may have held the lock of the standard library's `stderr`.
    // SAFETY: nothing closes the descriptor here. If the program has closed it, the write fails.
    let stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let _ = (&*stderr).write_all(why.as_bytes());
    std::process::abort()
}

/// The process in which something was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u64);

impl Process {
    /// Returns the present process, and begins to count its forks.
    ///
    /// # Errors
    /// `Io` if the system has no memory for it.
    pub(crate) fn present() -> Result<Self> {
        static REGISTERED: OnceLock<c_int> = OnceLock::new();
        match *REGISTERED.get_or_init(|| pthread_atfork(None, None, Some(note_fork))) {
            0 => Ok(Self(forks())),
            error => Err(Error::io("watch", "forks", io::Error::from_raw_os_error(error)).into()),
        }
    }

    /// Returns the process in which a call of the engine runs: one that has opened a database.
    pub(crate) fn of_call() -> Self {
        Self(forks())
    }

    /// Returns whether this is still that process.
    pub(crate) fn is_present(self) -> bool {
        self.0 == forks()
    }

    /// Ends a child of that process in which a function of the caller returned to the engine, which might go on to
    /// write to the log of the parent.
    pub(crate) fn must_be_present(self) {
        if !self.is_present() {
            abort(
                "foreshore: a process that was forked inside a function of the program has to exit or call exec there\n",
            );
        }
    }

    /// Returns an error if this process is a child of that one.
    pub(crate) fn check(self) -> Result<()> {
        if self.is_present() {
            return Ok(());
        }
        let why = "this was made before a fork, in the parent process: open the database in this one, when the parent \
                   has closed it";
        Err(Fault::new(Status::Forked, why))
    }
}

fn forks() -> u64 {
    // ORDERING: counter. A child sees what its parent's thread saw, and the handler ran in the child.
    FORKS.load(Ordering::Relaxed)
}
