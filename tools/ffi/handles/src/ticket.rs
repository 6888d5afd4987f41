//! Commits on their way to disk.

use crate::system::Process;
use crate::{Fault, Result};
use foreshore::{CommitTicket, Error};
use std::time::Duration;

/// A commit on its way to disk, of the process that has made it.
pub struct Ticket {
    inner: CommitTicket,
    process: Process,
}

impl Ticket {
    pub(crate) const fn new(inner: CommitTicket, process: Process) -> Self {
        Self { inner, process }
    }

    /// Returns the number of the commit.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.inner.csn().0
    }

    /// Returns the LSN of the commit record: a restore up to it has this commit.
    #[must_use]
    pub const fn record_lsn(&self) -> u64 {
        self.inner.record_lsn().0
    }

    /// Makes the ticket of a relaxed commit wait for the disk, too.
    #[must_use]
    pub fn harden(self) -> Self {
        if self.process.is_present() { Self { inner: self.inner.harden(), ..self } } else { self }
    }

    /// Returns whether the commit is durable.
    ///
    /// # Errors
    /// `Forked`.
    pub fn is_durable(&self) -> Result<bool> {
        self.process.check()?;
        Ok(self.inner.is_durable())
    }

    /// Waits for the acknowledgement, at most for `limit`, and returns whether it has come.
    ///
    /// # Errors
    /// `Forked`, `Poisoned`.
    pub fn wait(&self, limit: Option<Duration>) -> Result<bool> {
        self.process.check()?;
        Ok(match limit {
            None => self.inner.wait().map(|()| true)?,
            Some(limit) => self.inner.wait_timeout(limit)?,
        })
    }

    /// Calls `function` when the commit is durable or cannot be: once in any case, on any thread. A child process that
    /// `function` has forked, and in which it returns, is aborted.
    ///
    /// # Errors
    /// `Forked`: `function` is not called.
    pub fn when_durable(self, function: impl FnOnce(Result<()>) + Send + 'static) -> Result<()> {
        let process = self.process;
        process.check()?;
        let once = Once(Some(function));
        self.inner.on_durable(move |durable| {
            once.call(durable.map_err(Fault::from));
            process.must_be_present();
        });
        Ok(())
    }
}

/// A function that is called once: with the outcome of a commit, or when the database is dropped before.
struct Once<F: FnOnce(Result<()>)>(Option<F>);

impl<F: FnOnce(Result<()>)> Once<F> {
    fn call(mut self, outcome: Result<()>) {
        if let Some(function) = self.0.take() {
            function(outcome);
        }
    }
}

impl<F: FnOnce(Result<()>)> Drop for Once<F> {
    fn drop(&mut self) {
        if let Some(function) = self.0.take() {
            function(Err(Error::Closed.into()));
        }
    }
}
