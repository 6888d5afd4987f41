//! A descriptor of an open file: reads and writes, one system call at a time.

#[cfg(feature = "uring")]
use super::uring::Ring;
use crate::retry::RawFile;
#[cfg(feature = "uring")]
use rustix::fd::AsFd;
use rustix::{fd::OwnedFd, fs, io::ReadWriteFlags};
use std::io::{self, IoSlice};
#[cfg(feature = "uring")]
use std::sync::Arc;

/// `RWF_ATOMIC`, of Linux 6.11: the write is on the device whole or not at all. Needs direct I/O.
const WHOLE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// A descriptor, opened for direct I/O or not.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) fd: OwnedFd,
    pub(super) direct: bool,
    /// The ring for durable writes, instead of `pwritev2`.
    #[cfg(feature = "uring")]
    pub(super) ring: Option<Arc<Ring>>,
}

impl Descriptor {
    pub(super) fn new(fd: OwnedFd, direct: bool) -> Self {
        Self {
            fd,
            direct,
            #[cfg(feature = "uring")]
            ring: None,
        }
    }
}

impl RawFile for Descriptor {
    fn aligned(&self) -> bool {
        self.direct
    }

    fn read_once(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.fd, buf, offset)?)
    }

    fn write_once(&self, buf: &[u8], offset: u64, durable: bool) -> io::Result<usize> {
        #[cfg(feature = "uring")]
        if let Some(ring) = &self.ring
            && durable
            && let Some(n) = ring.write_durable(self.fd.as_fd(), buf, offset)?
        {
            return Ok(n);
        }
        if durable {
            Ok(rustix::io::pwritev2(&self.fd, &[IoSlice::new(buf)], offset, ReadWriteFlags::DSYNC)?)
        } else {
            Ok(rustix::io::pwrite(&self.fd, buf, offset)?)
        }
    }

    fn write_whole_once(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev2(&self.fd, &[IoSlice::new(buf)], offset, WHOLE)?)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(&self.fd)?.st_size).unwrap_or(0))
    }
}
