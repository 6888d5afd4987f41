//! Batches of reads and writes, side by side.

use super::handle::Handle;
use crate::{crew::Crew, retry};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use std::{io, slice};

/// Threads that work beside the one that brings a batch. The device is then as busy as its queue makes it; more would
/// find no processor.
const HANDS: usize = 15;

/// The threads that do the batches of a file system.
pub(super) type Workers = Crew<Part>;

/// One part of a batch.
pub(super) enum Part {
    Read(Read),
    Write(Write),
}

/// One read.
pub(super) struct Read {
    file: *const Handle,
    buf: *mut [u8],
    offset: u64,
    /// Where its result goes.
    done: *mut io::Result<usize>,
}

/// One write.
pub(super) struct Write {
    file: *const Handle,
    buf: *const [u8],
    offset: u64,
    /// Set if the write is to be whole or not at all, and is refused.
    refused: Option<*const AtomicBool>,
}

// SAFETY: a file is shared between threads, and the buffer and the result are this part's alone until its batch has
// ended. See `read`.
unsafe impl Send for Read {}
// SAFETY: what the pointers lead to is shared between threads by nature: a file and bytes that do not change. See
// `write`.
unsafe impl Send for Write {}

/// Ends the process when it is dropped: others still use what its owner is about to free.
struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub(super) fn workers() -> Workers {
    Crew::new(HANDS, |part: Part| {
        // A thread that unwinds from here leaves its batch without an end.
        let lent = Lent;
        let done = match part {
            Part::Read(part) => {
                read_one(&part);
                Ok(())
            }
            Part::Write(part) => write_one(&part),
        };
        std::mem::forget(lent);
        done
    })
}

fn read_one(part: &Read) {
    // SAFETY: `read` does not return before this part is done, and gives each part a buffer and a result of its own.
    let (file, buf, done) = unsafe { (&*part.file, &mut *part.buf, &mut *part.done) };
    *done = file.read_full(buf, part.offset);
}

fn write_one(part: &Write) -> io::Result<()> {
    // SAFETY: `write` does not return before this part is done.
    let (file, buf) = unsafe { (&*part.file, slice::from_raw_parts(part.buf.cast::<u8>(), part.buf.len())) };
    let Some(refused) = part.refused else { return retry::write_full(file, buf, part.offset, false) };
    if !retry::write_whole(file, buf, part.offset)? {
        // SAFETY: as above.
        // ORDERING: Relaxed, the end of the batch orders it before the load.
        unsafe { &*refused }.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads all parts from `file`.
pub(super) fn read(workers: &Workers, file: &Handle, parts: &mut [(&mut [u8], u64)]) -> Vec<io::Result<usize>> {
    let mut done: Vec<io::Result<usize>> = parts.iter().map(|_| Ok(0)).collect();
    // The parts point to what the caller lends, and to the results; no worker uses them any more when `run` returns.
    let lent = Lent;
    let reads = parts.iter_mut().zip(&mut done);
    let ended = workers
        .run(reads.map(|((buf, offset), done)| Part::Read(Read { file, buf: &raw mut **buf, offset: *offset, done })));
    std::mem::forget(lent);
    debug_assert!(ended.is_ok(), "a read keeps its error");
    done
}

/// Writes all parts to `file`.
pub(super) fn write(workers: &Workers, file: &Handle, parts: &[(&[u8], u64)]) -> io::Result<()> {
    // The parts point to what the caller lends; nobody is at them any more when `run` returns.
    let lent = Lent;
    let written =
        workers.run(parts.iter().map(|&(buf, offset)| Part::Write(Write { file, buf, offset, refused: None })));
    std::mem::forget(lent);
    written
}

/// Writes all parts to `file`, each whole or not at all. False if that was refused for some.
pub(super) fn write_whole(workers: &Workers, file: &Handle, parts: &[(&[u8], u64)]) -> io::Result<bool> {
    let refused = AtomicBool::new(false);
    let flag = Some(&raw const refused);
    // As above, and the flag is lent, too.
    let lent = Lent;
    let written =
        workers.run(parts.iter().map(|&(buf, offset)| Part::Write(Write { file, buf, offset, refused: flag })));
    std::mem::forget(lent);
    // ORDERING: Relaxed, see the store.
    written.map(|()| !refused.load(Ordering::Relaxed))
}
