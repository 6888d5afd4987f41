//! Acknowledgements of commits.

use crate::log_core::Core;
use crate::pipeline::{Calls, Key};
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::BiasedRef;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A commit on its way to disk: wait for it, poll it, or await it on any runtime. It resolves when the commit is
/// acknowledged: when it and everything that the transaction has seen are durable, or at once if the ticket is
/// [relaxed](Self::relax), until it is [hardened](Self::harden).
///
/// A thread that waits may write the group itself. A future never does: it relies on the flusher, or on threads that
/// wait. Dropped at any time, it leaves nothing behind; forgotten, no more than an entry that goes when the commit is
/// durable.
#[must_use = "a commit is acknowledged only when its ticket says so"]
pub struct CommitTicket {
    /// Handed out by the session, so that a commit touches no word that others count in.
    core: BiasedRef<Arc<Core>>,
    record: Lsn,
    csn: Csn,
    target: Lsn,
    /// The session's slot, or any other: where the acknowledgement is kept.
    slot: usize,
    /// Whether the commit is acknowledged though it is not durable.
    is_relaxed: bool,
    /// The waker's place among the waiters.
    registered: Option<Key>,
}

impl fmt::Debug for CommitTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { record, csn, target, .. } = self;
        f.debug_struct("CommitTicket").field("record", record).field("csn", csn).field("target", target).finish()
    }
}

impl CommitTicket {
    pub(crate) fn new(core: BiasedRef<Arc<Core>>, slot: usize, record: Lsn, csn: Csn, target: Lsn) -> Self {
        assert!(record <= target && csn.lsn() <= target, "a commit is acknowledged only when it is durable itself");
        core.check_target(target);
        Self { core, record, csn, target, slot, is_relaxed: false, registered: None }
    }

    /// LSN of the commit record.
    #[must_use]
    pub const fn record_lsn(&self) -> Lsn {
        self.record
    }

    /// Stamp of the commit.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.csn
    }

    /// Lets the ticket resolve at once, for a caller that only needs the place in the order of commits. The disk
    /// follows when it does; [`harden`](Self::harden) makes the ticket wait for it again.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub const fn relax(mut self) -> Self {
        self.is_relaxed = true;
        self
    }

    /// Makes a relaxed ticket wait for durability, blocking or awaited, and asks for the disk at once:
    /// `ticket.harden().wait()` or `ticket.harden().await`. The ticket of a durable commit stays what it is.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub fn harden(mut self) -> Self {
        self.is_relaxed = false;
        self.core.pipeline.ask(self.target);
        self
    }

    /// Whether the commit is durable. Never goes back.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.core.pipeline.progress().durable() >= self.target
    }

    /// Waits for the acknowledgement.
    ///
    /// # Errors
    /// `Poisoned`: the commit may or may not survive.
    pub fn wait(&self) -> Result<()> {
        if self.is_relaxed {
            return Ok(());
        }
        self.force(None).map(drop)
    }

    /// Waits for at most `timeout` and returns whether the commit is acknowledged. A group that this thread writes
    /// itself is written to its end.
    ///
    /// # Errors
    /// As [`CommitTicket::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        if self.is_relaxed {
            return Ok(true);
        }
        self.force(Some(timeout))
    }

    fn force(&self, timeout: Option<Duration>) -> Result<bool> {
        let is_durable = self.core.force(self.target, Calls::Here, timeout);
        // The caller has left the log, and what it waited for has released its locks.
        self.core.pipeline.acks().acknowledge_all();
        is_durable
    }

    /// Calls `function` once when the commit is durable, relaxed or not, or with `Poisoned` or `Closed` when it cannot
    /// be. Costs no thread: it is called by a flusher, by a thread that has waited for a ticket or committed, or by
    /// this thread if the answer is known. None of them holds a lock of the engine then. So `function` may take a
    /// checkpoint, close or reopen the database, or drop its last handle.
    ///
    /// It should be short, for it delays the next group and other callbacks, and must not wait for a commit that the
    /// flusher is to make durable. Nor for a lock, unless with a limit: the thread that calls it may have another
    /// transaction open. A panic in it is counted and goes no further. If the log is dropped before, so is `function`;
    /// a `Log` inside of it keeps the log alive until then.
    pub fn on_durable(self, function: impl FnOnce(Result<()>) + Send + 'static) {
        let weak = Arc::downgrade(&self.core);
        let target = self.target;
        let function = move |durable| {
            let error = || {
                let stopped = weak.upgrade().and_then(|core| core.pipeline.progress().stop_error());
                stopped.unwrap_or_else(|| Error::poisoned(&Error::Closed))
            };
            function(if durable { Ok(()) } else { Err(error()) });
        };
        self.core.pipeline.call_when_durable(self.slot, target, Box::new(function));
    }
}

impl Future for CommitTicket {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.is_relaxed {
            return Poll::Ready(Ok(()));
        }
        loop {
            if let Some(answer) = self.core.pipeline.progress().answer(self.target) {
                return Poll::Ready(answer);
            }
            let old = self.registered.take();
            self.registered = self.core.pipeline.register_waker(self.slot, self.target, old, context.waker());
            if self.registered.is_some() {
                return Poll::Pending;
            }
        }
    }
}

impl Drop for CommitTicket {
    fn drop(&mut self) {
        if let Some(key) = self.registered.take() {
            self.core.pipeline.acks().unwatch(key);
        }
    }
}
