//! Acknowledgements of commits.

use crate::Result;
use foreshore_base::{Csn, Lsn};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A commit on its way to disk: wait for it, poll it, or await it on any runtime. It resolves when the commit, and
/// every commit that the transaction has read from, are durable. The ticket of a [relaxed](crate::Durability::Relaxed)
/// transaction resolves at once, unless it is [hardened](Self::harden).
///
/// A thread that waits may write the group itself. A future never does: it relies on the flusher, or on threads that
/// wait. A ticket may be dropped at any time. A forgotten one leaves an entry that is removed when the commit is
/// durable.
///
/// ```
/// # use foreshore::{Db, Error, TableDef};
/// # use std::{sync::mpsc, time::Duration};
/// # let db = Db::in_memory()?;
/// const STOCK: TableDef<u64, i64> = TableDef::new("stock");
/// let put = |n| db.run_pipelined(|tx| tx.open(STOCK)?.put(n, 10)).map(|((), ticket)| ticket);
/// let ticket = put(1)?;
/// while !ticket.wait_timeout(Duration::from_secs(1))? {}
/// assert!(ticket.is_durable() && ticket.csn().lsn() >= ticket.record_lsn());
///
/// let (durable, answer) = mpsc::channel();
/// put(2)?.on_durable(move |result| durable.send(result).unwrap());
/// answer.recv().unwrap()?;
/// // Resolves at once; hardened, when the commit is durable.
/// put(3)?.relax().harden().wait()?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a commit is acknowledged only when its ticket says so"]
pub struct CommitTicket(pub(crate) foreshore_wal::CommitTicket);

impl CommitTicket {
    /// Returns the LSN of the commit record.
    #[must_use]
    pub const fn record_lsn(&self) -> Lsn {
        self.0.record_lsn()
    }

    /// Returns the commit number, which orders commits. It lies in the number space of LSNs, at or above
    /// [`record_lsn`](Self::record_lsn).
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.0.csn()
    }

    /// Makes the ticket resolve at once, for a caller that only needs the place in the order of commits. The commit
    /// becomes durable later. [`harden`](Self::harden) makes the ticket wait for that again.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub fn relax(self) -> Self {
        Self(self.0.relax())
    }

    /// Makes a relaxed ticket wait for durability, and requests the write at once: `ticket.harden().wait()` or
    /// `ticket.harden().await`. Does nothing if the commit is durable.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub fn harden(self) -> Self {
        Self(self.0.harden())
    }

    /// Returns whether the commit is durable. Once true, it stays true.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.0.is_durable()
    }

    /// Waits for the acknowledgement.
    ///
    /// # Errors
    /// `Poisoned`: the commit may or may not survive.
    pub fn wait(&self) -> Result<()> {
        // WAIT: park - as the ticket of the log waits.
        Ok(self.0.wait()?)
    }

    /// Waits for at most `timeout` and returns whether the commit is acknowledged. A group that this thread writes
    /// itself is written to its end.
    ///
    /// # Errors
    /// Those of [`CommitTicket::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        // WAIT: park - as the ticket of the log waits.
        Ok(self.0.wait_timeout(timeout)?)
    }

    /// Calls `function` once when the commit is durable, relaxed or not, or with `Poisoned` or `Closed` if it cannot
    /// become durable. No extra thread is needed. The caller is a flusher, a thread that has waited for a ticket or
    /// committed, or this thread if the answer is known. None of them holds a lock of the engine then. So `function`
    /// may take a checkpoint, close or reopen the database, or drop its last handle.
    ///
    /// - It should be short, because it delays the next group and other callbacks.
    /// - It must not wait for a commit that the flusher has to make durable.
    /// - It must not wait for a lock without a limit: its thread may have another transaction open.
    /// - A panic in it is caught and counted.
    /// - If the database is dropped before, so is `function`. A handle inside of it keeps the database open until then.
    pub fn on_durable(self, function: impl FnOnce(Result<()>) + Send + 'static) {
        self.0.on_durable(|durable| function(durable.map_err(Into::into)));
    }
}

impl Future for CommitTicket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(ready!(Pin::new(&mut self.0).poll(context))?))
    }
}
