//! Batches of writes, side by side.

use super::file::DiskFile;
use crate::{crew::Crew, retry};
use std::{io, slice};

/// Threads that write beside the one that brings a batch. The device is then as busy as its queue makes it; more would find
/// no processor.
const HANDS: usize = 15;

/// Who writes the batches of a file system.
pub(super) type Writers = Crew<Part>;

/// One write.
pub(super) struct Part {
    file: *const DiskFile,
    buf: *const [u8],
    offset: u64,
}

// SAFETY: what the pointers lead to is shared between threads by nature: a file and bytes that nobody changes. See `write`.
unsafe impl Send for Part {}

/// Ends the process when it is dropped: others still use what its owner is about to free.
struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub(super) fn writers() -> Writers {
    Crew::new(HANDS, |part: Part| {
        // A thread that unwinds from here leaves its batch without an end.
        let lent = Lent;
        // SAFETY: `write` does not return before this part is done.
        let (file, buf) = unsafe { (&*part.file, slice::from_raw_parts(part.buf.cast::<u8>(), part.buf.len())) };
        let written = retry::write_full(file, buf, part.offset, false);
        std::mem::forget(lent);
        written
    })
}

/// Writes all parts to `file`.
pub(super) fn write(writers: &Writers, file: &DiskFile, parts: &[(&[u8], u64)]) -> io::Result<()> {
    // The parts point to what the caller lends; nobody is at them any more when `run` returns.
    let lent = Lent;
    let written = writers.run(parts.iter().map(|&(buf, offset)| Part { file, buf, offset }));
    std::mem::forget(lent);
    written
}
