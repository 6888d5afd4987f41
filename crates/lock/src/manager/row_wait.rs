//! Waiting for a row whose tuple header names a live transaction.
//!
//! After a few pauses waiters of a row park in one FIFO queue by the row's hash, whichever transaction holds the row.
//! A transaction that ends wakes **one** waiter per row and lets it race. To wake all would have them collide again.
//! To hand the row over would make every later holder wait for a context switch.
//!
//! **No waiter is forgotten.** A *wake-up obligation* is a row in the list of a running transaction: it will wake one
//! waiter of the row when it ends. For each row with a parked thread, one of these holds:
//!
//! - the row is the obligation of a transaction that has not ended; or
//! - a wake-up of the row is on its way to a thread that has not acted on it yet.
//!
//! 1. *Parking.* A waiter enters the row into the holder's list under the lock of the holder's slot, where the xid
//!    still stands. It parks only if the holder is live when it validates in the park table. The holder makes its
//!    status final, takes its list under the same lock, and unparks then. So either the list held the row, or the
//!    waiter found the xid gone and did not park; and an unpark between entering and parking is met by the validation.
//! 2. *Waking.* A wake-up consumes an obligation. If the receiver's own holder has ended, it at once makes the row its
//!    own obligation, or, if it only reads, wakes the next waiter. It does so before it takes the row, finds that
//!    another was faster, or gives up. Its obligation is paid when its transaction ends. If its own holder is live,
//!    the row is that one's obligation by 1 and nothing is lost. Readers cannot wake each other for ever, because only
//!    those whose holder has ended pass it on. A writer that was woken and goes on *without* the row, because there is
//!    none, wakes the next waiter then ([`LockManager::pass_on`]): no waiter has to wait for the writer's end.
//! 3. *Giving up* without having been woken (time, cycle) consumes nothing.
//! 4. *Equal hashes* share a queue: a wake-up may reach a waiter of the other row, and 2 holds for it as for any.
//!
//! 5. *Hiding.* A transaction whose rollback is parked stays live and holds its rows, and its waiters are not to wait
//!    for it. It takes its xid out of its slot, under the slot's lock, and wakes one waiter of each row in its list
//!    then. The rows stay in the list: if it is shown again before a woken waiter has looked, that waiter finds its
//!    holder live and relies on the obligation by 2.
//!
//! An obligation may be paid where no waiter is, or a second time: the waiter looks again and parks again. The edge of
//! a parked thread may name a transaction that has ended, because its row has a new holder by barging. Any walk for
//! deadlocks that meets it makes the thread look again, so that no cycle hides behind a stale edge.

use super::LockManager;
use super::owner::Owner;
use crate::hash::RowHash;
use crate::target::{LockName, Target};
use crate::waits::WaitTime;
use foreshore_base::{Result, TableId, Xid};
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use std::time::Duration;

/// The time that one operation has for all its waits, whatever they are for. It counts from the first of them.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    timeout: Duration,
    /// When the first wait began.
    since: Option<Nanos>,
    /// The row waited for last, and the times of that wait: its holders may change.
    last: Option<(RowHash, WaitTime)>,
}

impl Patience {
    /// The time of an operation whose waits last for at most so long together.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, since: None, last: None }
    }

    /// Whether there was a wait.
    #[must_use]
    pub const fn has_waited(&self) -> bool {
        self.since.is_some()
    }

    /// What is left for a wait that begins at `now`.
    pub fn left(&mut self, now: Nanos) -> Duration {
        let since = *self.since.get_or_insert(now);
        if self.timeout == Duration::MAX { Duration::MAX } else { self.timeout.saturating_sub(now.since(since)) }
    }

    fn time_for(&mut self, row: RowHash, now: Nanos) -> &mut WaitTime {
        let left = self.left(now);
        let last = self.last.filter(|&(last, _)| last == row);
        &mut self.last.insert(last.unwrap_or_else(|| (row, WaitTime::new(now, left)))).1
    }
}

impl LockManager {
    /// Waits because the row's header names `holder`, a live transaction; returns when there is reason to look again.
    ///
    /// `is_live` tells whether the holder's status is still open. It is called under a lock of the park table: it loads
    /// atomics and nothing else. The caller holds no latch.
    ///
    /// # Errors
    /// [`Deadlock`](foreshore_base::Error::Deadlock), [`LockTimeout`](foreshore_base::Error::LockTimeout).
    pub fn wait_xid(
        &self,
        owner: &mut Owner,
        table: TableId,
        key: &[u8],
        holder: Xid,
        is_live: &dyn Fn() -> bool,
        patience: &mut Patience,
    ) -> Result<()> {
        let held = &owner.held;
        assert!(held.turn().is_none(), "a turn ends before its writer waits for another transaction");
        let target = Target::row(table, key);
        let (row, name) = (self.keys.hash(target), LockName::row(target));
        let time = patience.time_for(row, self.waits.now());
        self.waits.noted(&name, || {
            if self.waits.ends_soon(is_live) {
                return Ok(());
            }
            let Some((slot, edge)) = self.slots.oblige(holder, row) else { return Ok(()) };
            // A holder that is hidden is waited for no longer.
            let is_held = || is_live() && (slot.shows(holder) || mutant("parked: a waiter stays with a hidden holder"));
            if !is_held() {
                return Ok(());
            }
            let reads = held.has_point(row) || self.keys.ranges().covers(held, target);
            let woken = || {
                // What a waiter owes for a wake-up: see the head of the file.
                if is_held() {
                } else if reads {
                    self.slots.wake_row(row);
                } else if !mutant("hand-off: woken waiter owes nothing") {
                    self.slots.get(held.owner()).oblige(row);
                }
            };
            self.waits.for_holder(self.graph(), (held.owner(), edge), time, &name, &is_held, woken)
        })
    }

    /// Wakes one waiter of a row that the caller has waited for and does not take. Its own obligation stays, as it may
    /// be for a row with the same hash.
    pub fn pass_on(&self, table: TableId, key: &[u8]) {
        if !mutant("hand-off: a waiter that goes on without the row keeps it") {
            self.slots.wake_row(self.keys.hash(Target::row(table, key)));
        }
    }

    /// Hides the running transaction of the owner with this number (see [`Owner::index`]) from the waiters for its
    /// rows. Each of them looks again, and its caller decides by other means what becomes of the wait.
    /// [`Owner::set_xid`] shows it again.
    pub fn hide(&self, owner: usize) {
        let slot = self.slots.get(u32::try_from(owner).expect("owners are numbered in 32 bits"));
        slot.hide().into_iter().for_each(|row| self.slots.wake_row(row));
    }
}
