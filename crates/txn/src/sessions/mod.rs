//! The leases of transactions, and the waits for a lease.
//!
//! | part | does |
//! |---|---|
//! | `lease` | the resources of a transaction |
//! | `running` | the state of a transaction, a part of its lease |
//! | `pool` | idle leases, in shards by thread |
//! | `queue` | the order of transactions that wait for a lease |
//!
//! A transaction that begins takes, in this order:
//!
//! 1. an idle lease of its thread's shard;
//! 2. an idle lease of another shard, if there are many leases;
//! 3. a new lease, up to the maximum;
//! 4. the lease of a commit that holds its locks until it is durable; the new transaction makes that commit durable;
//! 5. the lease of a transaction that ends, after a wait in the queue. System transactions do not wait.
//!
//! **Held commits.** Without early release of all locks, a commit returns its lease when it is acknowledged, in
//! whichever thread that happens. There can be as many such commits as leases. The next transaction then makes them
//! durable, and is not refused. It may begin in a callback of a ticket, on the thread that acknowledges those very
//! commits. That works because the thread returns all leases before it calls a callback.
//!
//! **Invariant:** no returned lease is missed. A waiter joins the queue, registers with `returned` and searches all
//! shards, each under its lock. A thread that returns a lease puts it into a shard under that lock, and then checks the
//! queue. The one that has locked the shard last sees what the other did before.

mod lease;
mod pool;
mod queue;
mod running;

pub(crate) use lease::Lease;
pub use lease::RowPosition;
pub(crate) use running::{Reads, Running};

use crate::halt::Halt;
use crate::undo::{Arena, Undo};
use crate::visibility::Visibility;
use foreshore_base::{Csn, Error, Result};
use foreshore_lock::LockManager;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{Ordering, fence};
use foreshore_sync::{Clock, EventCount, SystemClock, pause};
use foreshore_wal::Log;
use lease::LastRows;
use pool::Pool;
use queue::Queue;
use std::sync::Arc;
use std::time::Duration;

/// All leases of a transaction manager.
pub(crate) struct Sessions {
    log: Log,
    locks: Arc<LockManager>,
    halt: Arc<Halt>,
    visibility: Arc<Visibility>,
    arena: Arc<Arena>,
    /// The leases of ordinary transactions, and those of system transactions.
    pools: [Pool<Box<Lease>>; 2],
    queue: Queue,
    /// The event on which threads wait for a lease to be returned.
    returned: Arc<EventCount>,
    time: SystemClock,
    /// Most ordinary transactions that run at once.
    max: usize,
}

impl Sessions {
    /// Returns the leases of at most `max` ordinary and `system` system transactions at once. `returned` is notified
    /// also when transactions stop.
    pub(crate) fn new(
        halt: Arc<Halt>,
        log: Log,
        locks: Arc<LockManager>,
        visibility: Arc<Visibility>,
        arena: Arc<Arena>,
        returned: Arc<EventCount>,
        (max, system): (usize, usize),
    ) -> Self {
        let (pools, queue, time) = ([max, system].map(Pool::new), Queue::default(), SystemClock::new());
        Self { log, locks, halt, visibility, arena, pools, queue, returned, time, max }
    }

    const fn pool(&self, is_system: bool) -> &Pool<Box<Lease>> {
        &self.pools[is_system as usize]
    }

    /// Takes a lease for a transaction. `most` returns how long the caller may wait in the queue, if it has to.
    ///
    /// # Errors
    /// `TooManyTransactions` when all leases are in use; `Poisoned`.
    pub(crate) fn take(&self, is_system: bool, most: impl FnOnce() -> Duration) -> Result<Box<Lease>> {
        // Both times the caller yields to the threads in the queue.
        let is_first = || is_system || !self.queue.is_any();
        let idle = if is_first() { self.pool(is_system).take() } else { None };
        if let Some(lease) = self.checked(is_system, idle)? {
            return Ok(lease);
        }
        match if is_first() { self.free(is_system)? } else { None } {
            Some(lease) => Ok(lease),
            None if is_system => Err(self.refusal()),
            None => self.take_in_turn(most()),
        }
    }

    /// Returns `lease`, which was just taken, if the log has not stopped. The lease of a failed rollback is returned
    /// when the log has stopped, and is not used again. A lease that is missing then may be lost.
    fn checked(&self, is_system: bool, lease: Option<Box<Lease>>) -> Result<Option<Box<Lease>>> {
        let Some(error) = self.log.poisoned() else { return Ok(lease) };
        lease.into_iter().for_each(|lease| self.pool(is_system).give_back(lease.shard, lease));
        Err(error)
    }

    /// Returns an idle or a new lease; `None` if running transactions have all leases.
    fn free(&self, is_system: bool) -> Result<Option<Box<Lease>>> {
        let pool = self.pool(is_system);
        let idle = match pool.take_elsewhere() {
            None if pool.may_make_one() => {
                let failed = |_: &_| {
                    pool.not_made();
                    // ORDERING: store, fence, look: a waiter announces itself, fences and looks for a lease.
                    fence(Ordering::SeqCst);
                    self.notify_queue();
                };
                return self.make(is_system).inspect_err(failed).map(Some);
            }
            None => self.take_held(pool)?,
            found => found,
        };
        let moved = |mut lease: Box<Lease>| {
            lease.shard = pool.home();
            lease
        };
        self.checked(is_system, idle.map(moved))
    }

    fn make(&self, is_system: bool) -> Result<Box<Lease>> {
        let owner = self.locks.lease("")?;
        let session = self.log.session()?;
        let undo = Undo::new(self.arena.clone());
        undo.set_owner(owner.index());
        Ok(Box::new(Lease {
            session,
            run: Running::idle(),
            owner,
            undo,
            view: self.visibility.newest_view(),
            last_rows: LastRows::default(),
            buffer: Vec::new(),
            kept: None,
            is_system,
            shard: self.pool(is_system).home(),
        }))
    }

    /// Returns a lease, after a wait if a commit that is not durable has one; `None` if running transactions have all
    /// leases.
    fn take_held(&self, pool: &Pool<Box<Lease>>) -> Result<Option<Box<Lease>>> {
        loop {
            let key = self.returned.prepare();
            // Counted before the search. A commit that is no longer counted has returned its lease, which is idle or
            // taken again.
            let before = pool.held();
            pause::point("txn: counted the commits that hold locks");
            let lease = pool.take_any();
            // Counted again after the search. Another transaction may have taken a returned lease, committed, and
            // become held.
            let none_since = pool.held().ever == before.ever || mutant("leases: held commits are counted once");
            if lease.is_some() || (before.now == 0 && none_since) {
                self.returned.cancel(key);
                return Ok(lease);
            }
            // WAIT: help - or park behind the leader: the commit has only its durability to wait for.
            let durable = self.halt.check().and_then(|()| self.log.force(self.log.current()));
            if let Err(error) = durable {
                self.returned.cancel(key);
                return Err(error);
            }
            // WAIT: park - for the thread that acknowledges the commit, which is durable, and returns its lease.
            self.returned.wait(key, None);
        }
    }

    /// Returns a lease after a wait in the queue of at most `most`.
    fn take_in_turn(&self, most: Duration) -> Result<Box<Lease>> {
        if most.is_zero() {
            return Err(self.refusal());
        }
        let until = self.time.now() + most;
        // WAIT: park - for the threads ahead in the queue, up to the transaction's limit.
        let Some(_turn) = self.queue.join(&self.time, most) else { return Err(self.refusal()) };
        loop {
            let key = self.returned.prepare();
            pause::point("txn: first in the queue for a session");
            let found = self.halt.check().and_then(|()| self.free(false));
            let left = until.since(self.time.now());
            if !matches!(found, Ok(None)) || left.is_zero() {
                self.returned.cancel(key);
                return found.and_then(|lease| lease.ok_or_else(|| self.refusal()));
            }
            // WAIT: park - for a transaction that ends and returns its lease.
            self.returned.wait(key, (most < Duration::MAX).then_some(left));
        }
    }

    fn refusal(&self) -> Error {
        let oldest = self.locks.oldest().map_or("", |(label, _)| label);
        Error::TooManyTransactions { max: self.max, oldest }
    }

    /// Takes back the lease of a transaction that has ended with commit number `csn`; zero if it was rolled back.
    pub(crate) fn give_back(&self, mut lease: Box<Lease>, csn: Csn) {
        let entries = lease.undo.entries();
        assert!(
            csn > Csn::ZERO || entries == 0,
            "a transaction ends without a commit and keeps {entries} undo entries"
        );
        lease.run.end();
        let has_undo = !lease.undo.is_untouched();
        if has_undo {
            lease.undo.end(csn);
        }
        lease.session.end_undo_log();
        lease.session.release();
        lease.session.set_frees(false);
        if has_undo {
            lease.undo.put_on_shelf();
        }
        self.pool(lease.is_system).give_back(lease.shard, lease);
        self.arena.tell();
        self.notify_queue();
    }

    /// Notifies the first thread in the queue that a lease was returned. The caller has put it into a shard, or has
    /// passed a full fence.
    #[inline]
    fn notify_queue(&self) {
        if self.queue.is_any() && !mutant("queue: a session comes back without a word") {
            self.returned.notify_all();
        }
    }

    /// Counts a commit that holds its locks and its lease until it is durable. [`end_hold`](Self::end_hold) ends that.
    pub(crate) fn begin_hold(&self, is_system: bool) {
        self.pool(is_system).begin_hold();
    }

    /// Ends a hold after the lease was returned, or lost by a panic. Waiters then search again.
    pub(crate) fn end_hold(&self, is_system: bool) {
        self.pool(is_system).end_hold();
        if !mutant("leases: one comes back without a word") {
            // All waiters: one that finds the lease taken again may have nothing left to wait for.
            self.returned.notify_all();
        }
    }

    /// Returns whether a commit holds its undo until it is durable.
    pub(crate) fn has_held_commit(&self) -> bool {
        self.pools.iter().any(|pool| pool.held().now > 0)
    }

    /// Returns the number of leases.
    pub(crate) fn made(&self) -> usize {
        self.pools.iter().map(Pool::made).sum()
    }

    /// Takes the log space that idle sessions keep for the rollbacks of their next transactions. Returns it in blocks.
    pub(crate) fn take_idle_undo_log(&self) -> u64 {
        let mut blocks = 0;
        self.pools.iter().for_each(|pool| pool.each_idle(|idle| blocks += idle.session.take_idle_undo_log()));
        blocks
    }
}
