//! Batches of reads and writes that a worker pool does concurrently.

use super::handle::Handle;
use crate::retry;
use crate::worker_pool::WorkerPool;
use std::{io, slice};

/// Workers beside the caller of a batch. They keep the queue of the device full; more would find no processor.
const WORKERS: usize = 15;

/// The worker pool for the batches of a file system.
pub(super) type Workers = WorkerPool<Part>;

/// The operation on the bytes of a part.
#[derive(Clone, Copy)]
pub(super) enum Op {
    Read,
    Write,
    /// Writes whole or not at all; the result is 0 if that is refused.
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
    /// The place for its result.
    done: *mut io::Result<usize>,
}

// SAFETY: a file may be shared between threads. The bytes are borrowed by this part: shared for a write, exclusively
// for a read. The result belongs to this part alone until its batch has ended. See `run`.
unsafe impl Send for Part {}

/// A guard that aborts the process when it is dropped by an unwinding thread: other threads still use memory that its
/// owner would free.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

pub(super) fn workers() -> Workers {
    WorkerPool::new(WORKERS, |part: Part| {
        // If a thread unwound from here, its batch would never end.
        let guard = AbortOnUnwind;
        // SAFETY: `run` does not return before this part is done, and gives each part a result of its own.
        let (file, done) = unsafe { (&*part.file, &mut *part.done) };
        *done = match part.op {
            // SAFETY: as above; this read alone borrows the bytes.
            Op::Read => file.read_full(unsafe { slice::from_raw_parts_mut(part.bytes, part.len) }, part.offset),
            op => {
                // SAFETY: as above; the bytes do not change while they are borrowed.
                let buf = unsafe { slice::from_raw_parts(part.bytes, part.len) };
                match op {
                    Op::WriteWhole => retry::write_whole(&file.own, buf, part.offset).map(usize::from),
                    _ => retry::write_full(&file.own, buf, part.offset, false).map(|()| part.len),
                }
            }
        };
        std::mem::forget(guard);
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

/// Does all `parts`. Each is an address and a number of bytes, borrowed from the caller, and an offset.
fn run(
    workers: &Workers,
    file: &Handle,
    op: Op,
    parts: impl ExactSizeIterator<Item = (*mut u8, usize, u64)>,
) -> Vec<io::Result<usize>> {
    let mut done: Vec<io::Result<usize>> = (0..parts.len()).map(|_| Ok(0)).collect();
    // When `run` returns, no worker uses the borrowed bytes or the results any more.
    let guard = AbortOnUnwind;
    let parts = parts.zip(&mut done);
    workers.run(parts.map(|((bytes, len, offset), done)| Part { file, op, bytes, len, offset, done }));
    std::mem::forget(guard);
    done
}
