//! Loops that complete an operation over single system calls: short counts, interruptions, alignment.
//!
//! [`Disk`](crate::Disk) and [`Sim`](crate::Sim) share these loops. So the faults of the simulation meet the code that
//! runs in production.

use foreshore_base::limits::BLOCK;
use rustix::io::Errno;
use std::io;

/// Calls without a full block of progress after which an aligned transfer fails.
const STUCK: usize = 8;

/// An open file, accessed by single system calls.
pub(crate) trait RawFile {
    /// Whether addresses, offsets and lengths are multiples of [`BLOCK`].
    fn aligned(&self) -> bool;

    /// Reads once. Returns zero at or after the end of the file.
    fn read_once(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes once, and durably if `durable`. May write less than all of `buf`.
    fn write_once(&self, buf: &[u8], offset: u64, durable: bool) -> io::Result<usize>;

    /// Writes once, so that the write is on the medium whole or not at all, even after power loss.
    fn write_whole_once(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Returns the length in bytes.
    fn length(&self) -> io::Result<u64>;
}

/// Repeats a call that a signal interrupts before it did anything.
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Reads until `buf` is full or the file ends. Returns the bytes read.
pub(crate) fn read_full(file: &impl RawFile, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    check_transfer(file, buf, offset)?;
    let mut done = 0;
    let mut stuck = 0;
    while done < buf.len() {
        let n = uninterrupted(|| file.read_once(&mut buf[done..], offset + done as u64))?;
        if n == 0 {
            return Ok(done);
        }
        if !file.aligned() || n.is_multiple_of(BLOCK) {
            done += n;
            continue;
        }
        // A direct read that stops inside a block has met the end of the file, or was short and must start again at
        // that block.
        let end = done + n;
        if offset + end as u64 >= file.length()? {
            return Ok(end);
        }
        stuck = next_stuck(stuck, n, io::ErrorKind::UnexpectedEof)?;
        done += n - n % BLOCK;
    }
    Ok(done)
}

/// Writes all of `buf`.
pub(crate) fn write_full(file: &impl RawFile, buf: &[u8], offset: u64, durable: bool) -> io::Result<()> {
    check_transfer(file, buf, offset)?;
    let mut done = 0;
    let mut stuck = 0;
    while done < buf.len() {
        let n = uninterrupted(|| file.write_once(&buf[done..], offset + done as u64, durable))?;
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if !file.aligned() || n.is_multiple_of(BLOCK) {
            done += n;
            continue;
        }
        // The unfinished block is written again, whole.
        stuck = next_stuck(stuck, n, io::ErrorKind::WriteZero)?;
        done += n - n % BLOCK;
    }
    Ok(())
}

/// Errors by which a kernel or a file system refuses a write that is whole or not at all. Nothing is written then.
///
/// - `EINVAL`: the device cannot write these bytes whole, for their place or length;
/// - `EOPNOTSUPP`: the file system cannot (`pwritev2(2)`, `RWF_ATOMIC`);
/// - `ENOSYS`: the kernel has no `pwritev2`;
/// - `ENOSPC`, `EDQUOT`: the file system writes such bytes elsewhere, and has no space for that. XFS with reflink does
///   so since Linux 6.16 (`xfs_atomic_write_cow_iomap_begin`). A plain write in place needs no space.
const WHOLE_REFUSED: [Errno; 5] = [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS, Errno::NOSPC, Errno::DQUOT];

/// Writes `buf` whole or not at all. Returns false if that is refused.
pub(crate) fn write_whole(file: &impl RawFile, buf: &[u8], offset: u64) -> io::Result<bool> {
    match uninterrupted(|| file.write_whole_once(buf, offset)) {
        Ok(written) if written == buf.len() => Ok(true),
        Ok(_) => Err(io::ErrorKind::WriteZero.into()),
        Err(e) if WHOLE_REFUSED.iter().any(|refusal| e.raw_os_error() == Some(refusal.raw_os_error())) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Counts transfers of less than a block in a row, and fails after [`STUCK`].
fn next_stuck(stuck: usize, n: usize, kind: io::ErrorKind) -> io::Result<usize> {
    if n >= BLOCK {
        return Ok(0);
    }
    if stuck + 1 == STUCK {
        return Err(io::Error::new(kind, "no progress by whole blocks"));
    }
    Ok(stuck + 1)
}

/// Refuses transfers past the largest offset and, where the file needs it, unaligned ones.
fn check_transfer(file: &impl RawFile, buf: &[u8], offset: u64) -> io::Result<()> {
    check_range(offset, buf.len() as u64)?;
    let all = buf.as_ptr().addr() as u64 | buf.len() as u64 | offset;
    if file.aligned() && !buf.is_empty() && !all.is_multiple_of(BLOCK as u64) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "direct I/O needs address, offset and length in multiples of 4096",
        ));
    }
    Ok(())
}

/// Refuses ranges that end past the largest file offset.
pub(crate) fn check_range(offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "range past the largest file offset")),
    }
}

#[cfg(test)]
mod tests;
