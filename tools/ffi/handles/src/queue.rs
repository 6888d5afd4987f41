//! Completed commits behind one file descriptor.

use crate::system::{Process, new_eventfd};
use crate::{Result, Ticket};
use foreshore::Error;
use std::fs::File;
use std::io::{Read, Write};
use std::mem;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// A completed commit: the tag that it was added with, and whether it is durable.
pub type Done<T> = (T, Result<()>);

/// Commits that were not waited for, and have completed. Its descriptor is readable while there are any.
///
/// The first commit of a group wakes the reader of the descriptor. The others are there when it looks.
///
/// A child of the process that has made it shares the descriptor. So it gets `Forked`, and takes no wake-up of its
/// parent.
pub struct Queue<T> {
    inner: Arc<Inner<T>>,
    process: Process,
}

struct Inner<T> {
    /// An eventfd.
    signal: File,
    done: Mutex<Vec<Done<T>>>,
}

impl<T: Send + 'static> Queue<T> {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// `Io` if the system grants no descriptor.
    pub fn new() -> Result<Self> {
        let process = Process::present()?;
        let signal = new_eventfd().map_err(|error| Error::io("make", "an eventfd", error))?;
        Ok(Self { inner: Arc::new(Inner { signal, done: Mutex::new(Vec::new()) }), process })
    }

    /// Returns the descriptor, for `poll` and its kin. The queue owns it and reads from it.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.inner.signal.as_raw_fd()
    }

    /// Returns an error unless this is the process that has made the queue.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check(&self) -> Result<()> {
        self.process.check()
    }

    /// Adds `tag` to the queue when the commit of `ticket` is durable, or cannot be.
    ///
    /// # Errors
    /// `Forked`.
    pub fn add(&self, ticket: Ticket, tag: T) -> Result<()> {
        self.check()?;
        let inner = Arc::clone(&self.inner);
        ticket.when_durable(move |durable| inner.push((tag, durable)))
    }

    /// Adds `tag` to the queue now.
    pub fn push(&self, done: Done<T>) {
        self.inner.push(done);
    }

    /// Takes what has completed, at most `max`, oldest first.
    ///
    /// # Errors
    /// `Forked`.
    pub fn take(&self, max: usize) -> Result<Vec<Done<T>>> {
        self.check()?;
        // Before the look: a commit that is pushed after it sets the signal again, or is taken now.
        let _ = (&self.inner.signal).read(&mut [0; 8]);
        let mut done = self.inner.lock();
        if done.len() <= max {
            return Ok(mem::take(&mut done));
        }
        let rest = done.split_off(max);
        let taken = mem::replace(&mut *done, rest);
        self.inner.notify();
        Ok(taken)
    }
}

impl<T> Inner<T> {
    fn push(&self, done: Done<T>) {
        let mut queue = self.lock();
        let is_first = queue.is_empty();
        queue.push(done);
        drop(queue);
        if is_first {
            self.notify();
        }
    }

    fn notify(&self) {
        // It fails only if the counter is full, and then it is readable anyway.
        let _ = (&self.signal).write(&1_u64.to_ne_bytes());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Done<T>>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner), process: self.process }
    }
}
