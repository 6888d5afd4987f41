//! The queues of retried transactions, checks and compactions, and the counts of a thread that keep it out of them.

use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{SystemClock, Turn, Turns, thread_index};
use foreshore_wal::Log;
use std::{cell::Cell, sync::Arc, time::Duration};

/// The queues of waiting threads. A stop of the log ends their waits, as it ends those for locks, memory and sessions.
pub(crate) struct Queues(Arc<Shared>);

struct Shared {
    /// The retry queue: transactions that met others often.
    retries: Turns,
    /// The queue of checks: one runs at a time, since one session is reserved for it.
    checks: Turns,
    /// The queue of compactions: one runs at a time, since each would move what another one packs.
    compactions: Turns,
    /// Seed of the pauses of the next transaction that is retried.
    seed: AtomicU64,
}

impl Queues {
    pub(crate) fn new(log: &Log, seed: u64) -> Self {
        let seed = AtomicU64::new(seed);
        let shared = Arc::new(Shared {
            retries: Turns::default(),
            checks: Turns::default(),
            compactions: Turns::default(),
            seed,
        });
        let watched = Self(Arc::clone(&shared));
        log.on_stop(move || watched.close());
        Self(shared)
    }

    /// Returns a seed that no other transaction has.
    pub(crate) fn seed(&self) -> u64 {
        // ORDERING: ticket.
        self.0.seed.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits in the retry queue, for at most `most`.
    pub(crate) fn take_retry(&self, clock: &SystemClock, most: Duration) -> Option<Turn<'_>> {
        self.0.retries.take(clock, most)
    }

    /// Waits for the check that runs. The caller holds no lock, and that check waits for locks within their time limit.
    pub(crate) fn take_check(&self) -> Option<Turn<'_>> {
        self.0.checks.take(&SystemClock::new(), Duration::MAX)
    }

    /// Waits for the compaction that runs. The caller holds no lock.
    pub(crate) fn take_compaction(&self) -> Option<Turn<'_>> {
        self.0.compactions.take(&SystemClock::new(), Duration::MAX)
    }

    /// Ends all waits in the queues.
    pub(crate) fn close(&self) {
        self.0.retries.close();
        self.0.checks.close();
        self.0.compactions.close();
    }
}

std::thread_local! {
    /// Transactions that this thread has begun and that are open.
    static OPEN: Cell<usize> = const { Cell::new(0) };
    /// Transactions that this thread has prepared, or found prepared, and that are not resolved.
    static UNRESOLVED: Arc<AtomicUsize> = Arc::default();
}

/// Counts a transaction as open in the thread that began it, whose number this is. A transaction that is moved to
/// another thread stays counted, because the first thread may wait for it.
pub(crate) struct Begun(usize);

impl Begun {
    pub(crate) fn here() -> Self {
        OPEN.set(OPEN.get() + 1);
        Self(thread_index())
    }

    /// Counts in no thread.
    pub(crate) const fn nowhere() -> Self {
        Self(usize::MAX)
    }

    pub(crate) fn has_open() -> bool {
        OPEN.get() > 0
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // Another thread may end it. Then the count stays one too high, and this thread pauses instead of joining the
        // retry queue.
        if thread_index() == self.0 {
            OPEN.set(OPEN.get().saturating_sub(1));
        }
    }
}

/// Counts a prepared transaction in the thread that prepared it, until any thread resolves it. That thread may be the
/// one that has to.
pub(crate) struct Unresolved(Arc<AtomicUsize>);

impl Unresolved {
    pub(crate) fn here() -> Self {
        // A thread that is about to end runs no more transactions that could wait in the queue.
        let count = UNRESOLVED.try_with(Arc::clone).unwrap_or_default();
        // ORDERING: Relaxed, a counter; `has_any` is a hint.
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }

    pub(crate) fn has_any() -> bool {
        // ORDERING: hint.
        UNRESOLVED.try_with(|count| count.load(Ordering::Relaxed) > 0).unwrap_or(false)
    }
}

impl Drop for Unresolved {
    fn drop(&mut self) {
        // ORDERING: Relaxed, as `here`.
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
