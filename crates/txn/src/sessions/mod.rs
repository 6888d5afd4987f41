//! The leases of transactions, and the waits for one.
//!
//! | part | does |
//! |---|---|
//! | `lease` | what a transaction has for its time |
//! | `running` | what a transaction knows of itself, a part of its lease |
//! | `pool` | idle leases, in shards by thread |
//! | `queue` | the order of transactions that wait for a lease |
//!
//! A transaction that begins takes, in this order:
//!
//! 1. an idle lease of its thread's shard;
//! 2. an idle lease of another shard, once there are many;
//! 3. a new lease, as long as there may be more;
//! 4. the lease of a commit that holds its locks until it is durable, which it makes durable;
//! 5. the lease of a transaction that ends, after a wait in the queue. System transactions do not wait.
//!
//! **Held commits.** Without early release of all locks a commit returns its lease when it is acknowledged, in whatever
//! thread that happens. Such commits can be as many as there are leases: the next transaction makes them durable then,
//! and is not refused. It may begin in a callback of a ticket, on the thread that acknowledges those very commits:
//! leases come back before any callback is called there.
//!
//! **Invariant:** no returned lease is missed. A waiter registers with `returned`, fences and searches. A thread that
//! returns a lease puts it into its shard, fences and looks for waiters. One of the two sees the other.

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
use lease::LastRow;
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
    /// Those of ordinary transactions, and of system transactions.
    pools: [Pool<Box<Lease>>; 2],
    queue: Queue,
    /// Where threads wait for a lease to come back.
    returned: Arc<EventCount>,
    time: SystemClock,
    /// Ordinary transactions at once.
    max: usize,
}

impl Sessions {
    /// Returns the leases of at most `max` ordinary transactions and `system` system transactions at once. `returned`
    /// is notified when transactions stop, too.
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

    /// Leases what a transaction needs. `most` tells how long it may wait in the queue, if it has to.
    ///
    /// # Errors
    /// `TooManyTransactions` when all leases are in use; `Poisoned`.
    pub(crate) fn take(&self, is_system: bool, most: impl FnOnce() -> Duration) -> Result<Box<Lease>> {
        // Behind the threads in the queue, at either look.
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

    /// Returns `lease`, which was just taken, if the log goes on. The lease of a rollback that failed comes back when
    /// the log has stopped, and is not used again; one that is missing then may be lost.
    fn checked(&self, is_system: bool, lease: Option<Box<Lease>>) -> Result<Option<Box<Lease>>> {
        let Some(error) = self.log.poisoned() else { return Ok(lease) };
        lease.into_iter().for_each(|lease| self.pool(is_system).give_back(lease.shard, lease));
        Err(error)
    }

    /// Returns a lease that is idle or new; `None` if running transactions have all.
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
            last_row: LastRow::default(),
            buffer: Vec::new(),
            kept: None,
            is_system,
            shard: self.pool(is_system).home(),
        }))
    }

    /// Returns a lease, after a wait if a commit that is not durable has one; `None` if running transactions have all.
    fn take_held(&self, pool: &Pool<Box<Lease>>) -> Result<Option<Box<Lease>>> {
        loop {
            let key = self.returned.prepare();
            // Before the look: one that is not counted any more is idle, or another transaction has it.
            let before = pool.held();
            pause::point("txn: counted the commits that hold locks");
            let lease = pool.take_any();
            // And after it: another may have committed with the one that came back, and have taken that one's place.
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

    /// Returns a lease after a wait in the queue, for `most` at most.
    fn take_in_turn(&self, most: Duration) -> Result<Box<Lease>> {
        if most.is_zero() {
            return Err(self.refusal());
        }
        let until = self.time.now() + most;
        // WAIT: park - for those in front, for no longer than the transaction waits.
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

    /// Takes the lease of a transaction that has ended with commit number `csn`; zero if it was rolled back.
    pub(crate) fn give_back(&self, mut lease: Box<Lease>, csn: Csn) {
        let entries = lease.undo.entries();
        assert!(
            csn > Csn::ZERO || entries == 0,
            "a transaction ends without a commit and keeps {entries} undo entries"
        );
        lease.run.end();
        lease.undo.end(csn);
        lease.session.end_undo_log();
        lease.session.release();
        lease.session.set_frees(false);
        lease.undo.put_on_shelf();
        self.pool(lease.is_system).give_back(lease.shard, lease);
        // Passes a full fence, for both.
        self.arena.tell();
        self.notify_queue();
    }

    /// Notifies the first in the queue that a lease has come back. Behind a full fence.
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

    /// Ends a hold after the lease has come back, or is lost by a panic: waiters look again.
    pub(crate) fn end_hold(&self, is_system: bool) {
        self.pool(is_system).end_hold();
        if !mutant("leases: one comes back without a word") {
            // All: a waiter that finds it taken again may have nothing left to wait for.
            self.returned.notify_all();
        }
    }

    /// Returns whether a commit holds its undo until it is durable.
    pub(crate) fn is_any_held(&self) -> bool {
        self.pools.iter().any(|pool| pool.held().now > 0)
    }

    /// Returns how many leases there are.
    pub(crate) fn made(&self) -> usize {
        self.pools.iter().map(Pool::made).sum()
    }

    /// Takes the log space that idle sessions keep for the rollbacks of their next transactions, and returns it in
    /// blocks.
    pub(crate) fn take_idle_undo_log(&self) -> u64 {
        let mut blocks = 0;
        self.pools.iter().for_each(|pool| pool.each_idle(|idle| blocks += idle.session.take_idle_undo_log()));
        blocks
    }
}
