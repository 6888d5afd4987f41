//! The ring of systems without io_uring: there is none.

use rustix::fd::BorrowedFd;
use std::io;

/// A ring, which no code can make.
#[derive(Debug)]
pub(super) enum Ring {}

impl Ring {
    /// Refuses, with the reason.
    pub(super) fn new() -> Result<Self, &'static str> {
        Err("this system has no io_uring, which is of Linux")
    }

    /// Is never called.
    pub(super) fn write_durable(&self, _: BorrowedFd<'_>, _: &[u8], _: u64) -> io::Result<Option<usize>> {
        match *self {}
    }
}
