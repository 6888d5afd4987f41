//! A descriptor of an open file: reads and writes, one system call at a time.

#[cfg(feature = "uring")]
use super::uring::Ring;
use crate::{os, retry::RawFile};
#[cfg(feature = "uring")]
use rustix::fd::AsFd;
use rustix::{fd::OwnedFd, fs};
use std::io;
#[cfg(feature = "uring")]
use std::sync::Arc;

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
            Ok(os::write_durable(&self.fd, buf, offset)?)
        } else {
            Ok(rustix::io::pwrite(&self.fd, buf, offset)?)
        }
    }

    fn write_whole_once(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        Ok(os::write_whole(&self.fd, buf, offset)?)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(fs::fstat(&self.fd)?.st_size).unwrap_or(0))
    }
}
