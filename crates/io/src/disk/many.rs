//! Batches of reads and writes, side by side.

use super::handle::Handle;
use crate::retry;
use crate::worker_pool::WorkerPool;
use std::{io, slice};

/// Threads that work beside the one that brings a batch. The device is then as busy as its queue makes it; more would
/// find no processor.
const WORKERS: usize = 15;

/// The threads that do the batches of a file system.
pub(super) type Workers = WorkerPool<Part>;

/// What is done with the bytes of a part.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Read,
    Write,
    /// Whole or not at all; the result is 0 if that is refused.
    WriteWhole,
}

/// One part of a batch.
pub(super) struct Part {
    file: *const Handle,
    op: Op,
    /// Bytes that a read may change, and a write does not.
    bytes: *mut u8,
    len: usize,
    offset: u64,
    /// Where its result goes.
    done: *mut io::Result<usize>,
}

// SAFETY: a file is shared between threads by nature. The bytes are lent to this part: shared for a write, alone for a
// read. The result is this part's alone until its batch has ended. See `run`.
unsafe impl Send for Part {}

/// Ends the process when it is dropped: others still use what its owner is about to free.
struct Lent;

impl Drop for Lent {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub(super) fn workers() -> Workers {
    WorkerPool::new(WORKERS, |part: Part| {
        // A thread that unwinds from here leaves its batch without an end.
        let lent = Lent;
        // SAFETY: `run` does not return before this part is done, and gives each part a result of its own.
        let (file, done) = unsafe { (&*part.file, &mut *part.done) };
        *done = match part.op {
            // SAFETY: as above; the bytes are lent to this read alone.
            Op::Read => file.read_full(unsafe { slice::from_raw_parts_mut(part.bytes, part.len) }, part.offset),
            op => {
                // SAFETY: as above; the bytes do not change while they are lent.
                let buf = unsafe { slice::from_raw_parts(part.bytes, part.len) };
                match op {
                    Op::WriteWhole => retry::write_whole(&file.own, buf, part.offset).map(usize::from),
                    _ => retry::write_full(&file.own, buf, part.offset, false).map(|()| part.len),
                }
            }
        };
        std::mem::forget(lent);
    })
}

/// Reads all parts from `file`. Returns the result of each.
pub(super) fn read(workers: &Workers, file: &Handle, parts: &mut [(&mut [u8], u64)]) -> Vec<io::Result<usize>> {
    let parts = parts.iter_mut().map(|(buf, offset)| (buf.as_mut_ptr(), buf.len(), *offset));
    run(workers, file, Op::Read, parts)
}

/// Writes all parts to `file` by `op`. Returns the result of each.
pub(super) fn write(workers: &Workers, file: &Handle, op: Op, parts: &[(&[u8], u64)]) -> Vec<io::Result<usize>> {
    let parts = parts.iter().map(|&(buf, offset)| (buf.as_ptr().cast_mut(), buf.len(), offset));
    run(workers, file, op, parts)
}

/// Does all `parts`, each of which is the address and the number of bytes that the caller lends, and an offset.
fn run(
    workers: &Workers,
    file: &Handle,
    op: Op,
    parts: impl ExactSizeIterator<Item = (*mut u8, usize, u64)>,
) -> Vec<io::Result<usize>> {
    let mut done: Vec<io::Result<usize>> = (0..parts.len()).map(|_| Ok(0)).collect();
    // No worker uses what is lent, the results included, any more when `run` returns.
    let lent = Lent;
    let parts = parts.zip(&mut done);
    workers.run(parts.map(|((bytes, len, offset), done)| Part { file, op, bytes, len, offset, done }));
    std::mem::forget(lent);
    done
}
