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

/// The ticket of a commit that becomes durable: wait for it, poll it, or await it on any runtime.
///
/// The ticket resolves when the commit, and every commit that the transaction has observed, are durable. A
/// [relaxed](Self::relax) ticket resolves at once, unless it is [hardened](Self::harden) again.
///
/// A thread that waits may write the group itself. A future never does: it relies on the flusher, or on threads that
/// wait. A ticket may be dropped at any time. A forgotten one leaves an entry that is removed when the commit is
/// durable.
#[must_use = "a commit is acknowledged only when its ticket says so"]
pub struct CommitTicket {
    /// A reference counted by the session, so that a commit writes no counter that other threads write.
    core: BiasedRef<Arc<Core>>,
    record: Lsn,
    csn: Csn,
    target: Lsn,
    /// The slot with the shard of the acknowledgement: that of the session, or any other.
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

    /// Returns the LSN of the commit record.
    #[must_use]
    pub const fn record_lsn(&self) -> Lsn {
        self.record
    }

    /// Returns the stamp of the commit.
    #[must_use]
    pub const fn csn(&self) -> Csn {
        self.csn
    }

    /// Makes the ticket resolve at once, for a caller that only needs the place in the order of commits. The commit
    /// becomes durable later. [`harden`](Self::harden) makes the ticket wait for that again.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub const fn relax(mut self) -> Self {
        self.is_relaxed = true;
        self
    }

    /// Makes a relaxed ticket wait for durability again, and requests the write at once: `ticket.harden().wait()` or
    /// `ticket.harden().await`. Does nothing if the commit is durable.
    #[must_use = "a commit is acknowledged only when its ticket says so"]
    pub fn harden(mut self) -> Self {
        self.is_relaxed = false;
        self.core.pipeline.request(self.target);
        self
    }

    /// Whether the commit is durable. Once true, it stays true.
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
    /// Those of [`CommitTicket::wait`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<bool> {
        if self.is_relaxed {
            return Ok(true);
        }
        self.force(Some(timeout))
    }

    fn force(&self, timeout: Option<Duration>) -> Result<bool> {
        let is_durable = self.core.force(self.target, Calls::Here, timeout);
        // The caller holds no lock of the log here.
        self.core.pipeline.acks().acknowledge_all();
        is_durable
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
    /// - If the log is dropped before, so is `function`. A `Log` inside of it keeps the log alive until then.
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
