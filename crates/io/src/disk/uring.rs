//! Durable writes through one io_uring for a file system.
//!
//! A durable write is one submission with `RWF_DSYNC`. The writing thread submits it and waits for its completion.
//! There are no linked submissions: a short write would break the chain, and its remainder would land after the linked
//! sync. The loops of [`crate::retry`] issue the remainder as a durable write of its own.
//!
//! A thread submits its own entries only. The kernel completes an operation in the context of the thread that submitted
//! it, and cancels the operations of a thread that ends.

use crate::reap::{Completions, Places};
use foreshore_sync::{LockRank, Mutex, Parker};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::{
    fd::{AsRawFd, BorrowedFd},
    io::{Errno, ReadWriteFlags},
};
use std::{fmt, io, time::Duration};

/// Writes in flight at once. Further threads wait for a place.
const PLACES: usize = 64;
/// The most bytes of one submission. A longer write is a short one.
const LONGEST: usize = 1 << 30;
/// `IORING_ENTER_GETEVENTS`: wait for completions.
const GETEVENTS: u32 = 1;
/// How long the reaper sleeps if the kernel refuses to wait for completions.
const PATIENCE: Duration = Duration::from_millis(1);

/// A ring and the places of its operations.
pub(super) struct Ring {
    ring: IoUring,
    /// Whether the ring is in use: not any more after a refused submission. The lock guards the submission queue.
    submitting: Mutex<bool>,
    places: Places,
}

/// A guard that aborts the process when it is dropped by an unwinding thread: the kernel still reads a buffer that its
/// owner would free.
struct InKernel;

impl Drop for InKernel {
    fn drop(&mut self) {
        std::process::abort();
    }
}

impl Ring {
    /// Creates a ring, if the kernel grants one that can write.
    ///
    /// # Errors
    /// The reason of the kernel.
    pub(super) fn new() -> Result<Self, &'static str> {
        let ring = IoUring::new(PLACES as u32).map_err(|e| why_not(&e))?;
        let mut probe = Probe::new();
        let probed = ring.submitter().register_probe(&mut probe);
        if probed.is_err() || !probe.is_supported(opcode::Write::CODE) {
            return Err("the kernel's io_uring has no plain write, as before Linux 5.6");
        }
        // There are at most as many places as the completion queue holds, so it never overflows.
        debug_assert!(ring.params().cq_entries() as usize >= PLACES);
        Ok(Self { ring, submitting: Mutex::new(LockRank::File, true), places: Places::new(PLACES) })
    }

    /// Does one durable write, which may be short. Returns `None` if the ring refused it; nothing is written then.
    pub(super) fn write_durable(&self, fd: BorrowedFd<'_>, buf: &[u8], offset: u64) -> io::Result<Option<usize>> {
        let parker = Parker::current();
        let place = self.places.enter(&parker);
        let len = buf.len().min(LONGEST) as u32;
        let write = opcode::Write::new(types::Fd(fd.as_raw_fd()), buf.as_ptr(), len)
            .offset(offset)
            .rw_flags(ReadWriteFlags::DSYNC.bits() as i32)
            .build()
            .user_data(place as u64);
        let in_kernel = InKernel;
        if !self.submit(&write) {
            std::mem::forget(in_kernel);
            self.places.cancel(place);
            return Ok(None);
        }
        // WAIT: park - until this write has completed: in the kernel as the reaper, or for the reaper.
        let result = self.places.wait(place, &parker, self);
        std::mem::forget(in_kernel);
        match usize::try_from(result) {
            Ok(n) => Ok(Some(n)),
            // Not started: the kernel could not go on without blocking, or cancelled the operation.
            Err(_) if [Errno::AGAIN, Errno::CANCELED].map(Errno::raw_os_error).contains(&-result) => Ok(None),
            Err(_) => Err(io::Error::from_raw_os_error(-result)),
        }
    }

    /// Submits one entry to the kernel. Returns false if it was refused; the kernel never sees it then.
    fn submit(&self, entry: &squeue::Entry) -> bool {
        let mut usable = self.submitting.lock();
        if !*usable {
            return false;
        }
        // SAFETY: the queue is accessed under this lock only. The buffer and the file of the entry live until its
        // completion, since the caller waits for it and aborts instead of unwinding.
        let pushed = unsafe { self.ring.submission_shared().push(entry) }.is_ok();
        // An entry that stayed in the queue would be submitted by a later call, when its buffer is gone. So the ring is
        // not used again.
        *usable = pushed && matches!(self.enter(1, 0, 0), Ok(1));
        *usable
    }

    /// Calls `io_uring_enter`, and again if a signal interrupts it before it did anything.
    fn enter(&self, to_submit: u32, min_complete: u32, flags: u32) -> io::Result<usize> {
        // SAFETY: no argument is passed, and the entries were checked when they were pushed.
        crate::retry::uninterrupted(|| unsafe {
            self.ring.submitter().enter::<()>(to_submit, min_complete, flags, None)
        })
    }
}

impl Completions for Ring {
    fn wait(&self) {
        // WAIT: park - in the kernel, until one of the operations in flight has completed.
        if self.enter(0, 1, GETEVENTS).is_err() {
            // No thread unparks this parker. The operations go on; the queue shows which have completed.
            Parker::new().park_timeout(PATIENCE); // WAIT: park - for a moment, as the kernel sends no wake-up.
        }
    }

    fn take(&self, each: &mut dyn FnMut(usize, i32)) {
        // SAFETY: called under the lock of the places: one thread at a time.
        let completions = unsafe { self.ring.completion_shared() };
        completions.for_each(|entry: cqueue::Entry| each(entry.user_data() as usize, entry.result()));
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("places", &self.places).finish_non_exhaustive()
    }
}

/// Returns the reason why the kernel grants no ring.
fn why_not(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSYS) => "the kernel has no io_uring",
        Some(Errno::PERM | Errno::ACCESS) => {
            "io_uring is forbidden here, by kernel.io_uring_disabled or a seccomp filter"
        }
        Some(Errno::NOMEM) => "io_uring may lock no more memory, see ulimit -l",
        Some(Errno::MFILE | Errno::NFILE) => "there are too many open files for an io_uring",
        _ => "the kernel refuses io_uring_setup",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::place::no_uring;
    use crate::{AlignedBuf, Disk, Fs};
    use foreshore_base::{Error, InvalidOption, limits::BLOCK};
    use rustix::fd::AsFd;
    use std::path::PathBuf;

    /// A ring, or the reason why this test has nothing to do.
    fn ring() -> Option<Ring> {
        Ring::new().inspect_err(|e| eprintln!("io_uring is not tested: {e:?}")).ok()
    }

    /// A file of this test, removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("foreshore-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn writes_and_errors_come_back_through_the_ring() {
        let Some(ring) = ring() else { return };
        let path = Scratch::new("ring");
        let file = std::fs::File::create(&path.0).unwrap();
        let block = [7; BLOCK];
        assert_eq!(ring.write_durable(file.as_fd(), &block, 100).unwrap(), Some(BLOCK));
        let bytes = std::fs::read(&path.0).unwrap();
        assert!(bytes.len() == BLOCK + 100 && bytes[100..] == block);
        let reader = std::fs::File::open(&path.0).unwrap();
        let refused = ring.write_durable(reader.as_fd(), &block, 0).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::BADF.raw_os_error()));
        assert_eq!(ring.write_durable(file.as_fd(), &block, 0).unwrap(), Some(BLOCK), "its place is free again");
    }

    #[test]
    fn a_ring_that_refused_once_takes_nothing_and_the_file_goes_on() {
        let Some(ring) = ring() else { return };
        let path = Scratch::new("refused");
        let file = std::fs::File::create(&path.0).unwrap();
        *ring.submitting.lock() = false;
        for _ in 0..2 * PLACES {
            assert_eq!(ring.write_durable(file.as_fd(), &[7; 10], 0).unwrap(), None);
        }
        assert!(std::fs::read(&path.0).unwrap().is_empty());

        let Ok(disk) = Disk::uring(&std::env::temp_dir()) else { return };
        let path = Scratch::new("goes-on");
        let file = disk.create(&path.0).unwrap();
        *disk.ring.as_ref().expect("a ring").submitting.lock() = false;
        let mut block = AlignedBuf::new(BLOCK);
        block.fill(9);
        file.write_durable(&block, 0).unwrap();
        assert_eq!(std::fs::read(&path.0).unwrap(), *block);
    }

    #[test]
    fn a_refusal_says_why() {
        let reasons = [
            (Errno::NOSYS, "no io_uring"),
            (Errno::PERM, "forbidden"),
            (Errno::NOMEM, "ulimit"),
            (Errno::INVAL, "setup"),
        ];
        for (errno, reason) in reasons {
            match no_uring(why_not(&errno.into())) {
                Error::InvalidOption(InvalidOption { name: "device", value, expected }) => {
                    assert!(value == "uring" && expected.contains(reason), "{expected}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
