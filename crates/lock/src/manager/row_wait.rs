//! Waits for a row whose tuple header names a live transaction.
//!
//! A waiter spins briefly, then parks in a FIFO queue that belongs to the row's hash, whichever transaction holds the
//! row. A transaction that ends wakes **one** waiter per row, and that waiter competes for the row. Waking all of them
//! would make them collide again. Handing the row over would make every later holder wait for a context switch.
//!
//! **No waiter is forgotten.** A *wake-up obligation* is a row in the list of a running transaction. The transaction
//! wakes one waiter of the row when it ends.
//!
//! **Invariant:** for each row with a parked thread, one of these holds:
//!
//! - The row is an obligation of a transaction that has not ended.
//! - A wake-up of the row is on its way to a thread that has not acted on it yet.
//!
//! 1. *Parking.* A waiter adds the row to the holder's list, under the lock of the holder's slot, and only while the
//!    slot publishes the holder's xid. It parks only if the holder is still live when the park table validates. The
//!    holder makes its status final, takes its list under the same lock, and then unparks. So either the list held the
//!    row, or the waiter found the xid gone and did not park. The validation also catches an unpark between the two
//!    steps.
//! 2. *Waking.* A wake-up consumes an obligation. If the receiver's own holder has ended, the receiver at once makes
//!    the row its own obligation. If it only reads, it wakes the next waiter instead. It does so before it takes the
//!    row, finds the row taken, or gives up. Its obligation is paid when its transaction ends. If the receiver's own
//!    holder is live, the row is that holder's obligation by 1, and nothing is lost. Readers cannot wake each other for
//!    ever, because only those whose holder has ended pass the wake-up on. A woken writer may continue *without* the
//!    row, because the row is gone. It then wakes the next waiter at once ([`LockManager::pass_on`]), so that no waiter
//!    has to wait for the writer's end.
//! 3. *Giving up.* A waiter that ends by timeout or as a victim, without having been woken, consumes nothing.
//! 4. *Equal hashes* share a queue. A wake-up may reach a waiter of the other row, and 2 applies to it as to any.
//!
//! 5. *Hiding.* A transaction whose rollback is parked stays live and holds its rows, but its waiters must not wait for
//!    it. It removes its xid from its slot, under the slot's lock, and wakes one waiter of each row in its list. The
//!    rows stay in the list. If the xid is published again before a woken waiter has checked, that waiter finds its
//!    holder live and relies on the obligation by 2.
//!
//! An obligation may be paid when there is no waiter, or twice. A waiter that is woken for nothing checks and parks
//! again. The edge of a parked thread may name a transaction that has ended, because another transaction took the row
//! first. A walk for deadlocks that meets such an edge makes the thread check again, so that no cycle hides behind a
//! stale edge.

use super::LockManager;
use super::owner::Owner;
use crate::hash::RowHash;
use crate::target::{LockName, Target};
use crate::waits::WaitTime;
use foreshore_base::{Result, TableId, Xid};
use foreshore_sync::Nanos;
use foreshore_sync::model::mutant;
use std::time::Duration;

/// The time limit of one operation for all its waits together. The time runs from the start of its first wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    timeout: Duration,
    /// The time when the first wait began.
    since: Option<Nanos>,
    /// The row waited for last, and the times of that wait. The row's holder may have changed meanwhile.
    last: Option<(RowHash, WaitTime)>,
    /// Whether a wait for a row checks from time to time whether there is still reason to wait.
    looks: bool,
}

impl Patience {
    /// Returns the limit of an operation whose waits together last at most `timeout`.
    #[must_use]
    pub const fn new(timeout: Duration) -> Self {
        Self { timeout, since: None, last: None, looks: false }
    }

    /// Returns whether the operation has waited.
    #[must_use]
    pub const fn has_waited(&self) -> bool {
        self.since.is_some()
    }

    /// Returns the time that is left for a wait that begins at `now`.
    pub fn left(&mut self, now: Nanos) -> Duration {
        let since = *self.since.get_or_insert(now);
        if self.timeout == Duration::MAX { Duration::MAX } else { self.timeout.saturating_sub(now.since(since)) }
    }

    /// Makes later waits for rows check from time to time whether there is still reason to wait, even if no end of a
    /// transaction wakes them.
    pub const fn look_around(&mut self) {
        self.looks = true;
    }

    fn time_for(&mut self, row: RowHash, now: Nanos) -> &mut WaitTime {
        let left = self.left(now);
        let last = self.last.filter(|&(last, _)| last == row);
        let (_, time) = self.last.insert(last.unwrap_or_else(|| (row, WaitTime::new(now, left))));
        if self.looks {
            time.look_around();
        }
        time
    }
}

impl LockManager {
    /// Waits because the row's header names `holder`, a live transaction. Returns when there is reason to check again.
    ///
    /// `is_live` returns whether the holder's status is still open. It is called under a lock of the park table, so it
    /// loads atomics and does nothing else. The caller holds no latch.
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
            // A hidden holder is not waited for any longer.
            let is_held = || is_live() && (slot.shows(holder) || mutant("parked: a waiter stays with a hidden holder"));
            if !is_held() {
                return Ok(());
            }
            let reads = held.has_point(row) || self.keys.ranges().covers(held, target);
            let woken = || {
                // The duties of a woken waiter: rule 2 of the module head.
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

    /// Wakes one waiter of a row that the caller has waited for and does not take. The caller's own obligation stays,
    /// because it may be for a row with the same hash.
    pub fn pass_on(&self, table: TableId, key: &[u8]) {
        if !mutant("hand-off: a waiter that goes on without the row keeps it") {
            self.slots.wake_row(self.keys.hash(Target::row(table, key)));
        }
    }

    /// Hides the running transaction of the owner with this number (see [`Owner::index`]) from the waiters for its
    /// rows. Each of them checks again, and its caller decides by other means how to proceed. [`Owner::set_xid`]
    /// publishes the transaction again.
    pub fn hide(&self, owner: usize) {
        let slot = self.slots.get(u32::try_from(owner).expect("owners are numbered in 32 bits"));
        slot.hide().into_iter().for_each(|row| self.slots.wake_row(row));
    }
}
