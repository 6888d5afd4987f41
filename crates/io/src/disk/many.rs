//! Batches of writes, side by side.

use super::file::DiskFile;
use crate::{crew::Crew, retry};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
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
    /// Set if the write is to be whole or not at all, and is refused.
    refused: Option<*const AtomicBool>,
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
        let written = match part.refused {
            None => retry::write_full(file, buf, part.offset, false),
            Some(refused) => retry::write_whole(file, buf, part.offset).map(|is_written| {
                if !is_written {
                    // SAFETY: as above.
                    // ORDERING: Relaxed, the end of the batch orders it before the load.
                    unsafe { &*refused }.store(true, Ordering::Relaxed);
                }
            }),
        };
        std::mem::forget(lent);
        written
    })
}

/// Writes all parts to `file`.
pub(super) fn write(writers: &Writers, file: &DiskFile, parts: &[(&[u8], u64)]) -> io::Result<()> {
    // The parts point to what the caller lends; nobody is at them any more when `run` returns.
    let lent = Lent;
    let written = writers.run(parts.iter().map(|&(buf, offset)| Part { file, buf, offset, refused: None }));
    std::mem::forget(lent);
    written
}

/// Writes all parts to `file`, each whole or not at all. False if that was refused for some.
pub(super) fn write_whole(writers: &Writers, file: &DiskFile, parts: &[(&[u8], u64)]) -> io::Result<bool> {
    let refused = AtomicBool::new(false);
    let flag = Some(&raw const refused);
    // As above, and the flag is lent, too.
    let lent = Lent;
    let written = writers.run(parts.iter().map(|&(buf, offset)| Part { file, buf, offset, refused: flag }));
    std::mem::forget(lent);
    // ORDERING: Relaxed, see the store.
    written.map(|()| !refused.load(Ordering::Relaxed))
}
