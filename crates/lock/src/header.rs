//! Waiting for a row whose tuple header names a live transaction.
//!
//! After a few pauses waiters of a row park in one FIFO queue by the row's hash, whoever holds the row. Whoever ends wakes
//! **one** waiter per row and lets it race: waking all would have them collide again, and handing the row over would make every
//! later holder wait for a context switch.
//!
//! **No waiter is forgotten.** A *debt* is a row in the list of a running transaction: it will wake one waiter of the row
//! when it ends. Claim: whenever a thread is parked for a row, the row is the debt of a transaction that has not ended, or
//! a wake-up of that row is on its way to a thread that has not acted on it yet.
//!
//! 1. *Parking.* A waiter enters the row into the holder's list under the lock of the holder's slot, where the xid still
//!    stands, and parks only if the holder is live when it validates in the park table. The holder makes its status final,
//!    takes its list under the same lock, and unparks then. So either the list held the row, or the waiter found the xid
//!    gone and did not park; and an unpark between entering and parking is met by the validation.
//! 2. *Waking.* A wake-up consumes a debt. If the receiver's own holder has ended, it at once makes the row its own debt,
//!    or, if it only reads, wakes the next waiter; so it does before it takes the row, finds that another was faster, or
//!    gives up: its debt is paid when its transaction ends. If its own holder is live, the row is that one's debt by 1 and
//!    nothing is lost. Readers cannot wake each other for ever, because only those whose holder has ended pass it on.
//!    A writer that was woken and goes on *without* the row, because there is none, wakes the next one then
//!    ([`LockManager::pass_on`]): nobody has to wait for its end.
//! 3. *Giving up* without having been woken (time, cycle) consumes nothing.
//! 4. *Equal hashes* share a queue: a wake-up may reach a waiter of the other row, and 2 holds for it as for any.
//!
//! 5. *Hiding.* A transaction whose rollback is parked stays live and holds its rows, and its waiters are not to wait
//!    for it. It takes its xid out of its slot, under the slot's lock, and wakes one waiter of each row in its list
//!    then. The rows stay in the list: if it is shown again before a woken waiter has looked, that waiter finds its
//!    holder live and relies on the debt by 2.
//!
//! A debt may be paid to nobody, or a second time: the waiter looks again and parks again. A parked thread whose edge names a
//! transaction that has ended (its row has a new holder by barging) is made to look again by any walk for deadlocks that
//! meets it, so that no cycle hides behind a stale edge.

use crate::hash::RowHash;
use crate::manager::{LockManager, What};
use crate::owner::{Owner, Wait};
use crate::target::Target;
use crate::wait_time::WaitTime;
use foreshore_base::{Result, TableId, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{Nanos, ParkOutcome};
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
        assert!(owner.turn.is_none(), "a turn ends before its writer waits for another transaction");
        let target = Target::row(table, key);
        let (row, what) = (self.hash(target), What::Row(target));
        let time = patience.time_for(row, self.now());
        self.noted(&what, || {
            if self.ends_soon(is_live) {
                return Ok(());
            }
            let Some((index, edge)) = self.enter_debt(holder, row) else { return Ok(()) };
            // ORDERING: Acquire, pairs with `hide`: a holder that is hidden is waited for no longer.
            let is_shown = || self.slots.get(index).xid.load(Ordering::Acquire) == holder.0;
            let is_held = || is_live() && (is_shown() || mutant("parked: a waiter stays with a hidden holder"));
            if !is_held() {
                return Ok(());
            }
            let reads = owner.shares.has(row) || self.covers_itself(owner, target);
            let seen = self.signal_of(owner.index);
            let has_signal = || self.signal_of(owner.index) != seen;
            let is_unchanged = || is_held() && (!has_signal() || mutant("deadlock: a waiter for a row has no signal"));
            let outcome = self
                .publish(owner, edge, &what)
                .and_then(|()| self.park_within(owner, row.park_key(), time, edge, &what, &is_unchanged))
                .map(|outcome| self.note_woken(owner, (row, reads), outcome, &is_held));
            // It has not got the row: if it is a victim, it ends.
            let verdict = self.end_ungranted(owner);
            outcome.and(verdict)
        })
    }

    /// Whether the holder ends while one can wait for it without a park, which takes as long as a short transaction.
    fn ends_soon(&self, is_live: &dyn Fn() -> bool) -> bool {
        let mut spin = self.row_spins.begin();
        // WAIT: window - as bounded as the budget.
        while spin.spin() {
            if !is_live() {
                spin.end();
                return true;
            }
        }
        false
    }

    /// What a waiter owes for a wake-up: see the head of the file.
    fn note_woken(
        &self,
        owner: &Owner,
        (row, reads): (RowHash, bool),
        outcome: ParkOutcome,
        is_held: &dyn Fn() -> bool,
    ) {
        match outcome {
            ParkOutcome::Unparked(_) if !is_held() => {
                if reads {
                    self.park.unpark_one(row.park_key(), 0);
                } else if !mutant("hand-off: woken waiter owes nothing") {
                    owe(&mut owner.slot().shown().rows, row);
                }
            }
            _ => {}
        }
    }

    /// Wakes one waiter of a row that the caller has waited for and does not take. Its own debt stays, as it may be for a row
    /// with the same hash.
    pub fn pass_on(&self, table: TableId, key: &[u8]) {
        if !mutant("hand-off: a waiter that goes on without the row keeps it") {
            self.park.unpark_one(self.hash(Target::row(table, key)).park_key(), 0);
        }
    }

    /// Hides the running transaction of the owner with this number (see [`Owner::index`]) from the waiters for its
    /// rows: each of them looks again, and its caller decides by other means what becomes of the wait.
    /// [`Owner::set_xid`] shows it again.
    pub fn hide(&self, owner: usize) {
        let slot = self.slots.get(u32::try_from(owner).expect("owners are numbered in 32 bits"));
        let rows = {
            let mut shown = slot.shown();
            // ORDERING: publish, pairs with `Slots::find` and with the validation of a waiter that is about to park.
            slot.xid.store(0, Ordering::Release);
            // They stay its debts: a waiter that is woken when it is shown again rests on that.
            match mutant("parked: a hidden holder forgets its debts") {
                true => std::mem::take(&mut shown.rows),
                false => shown.rows.clone(),
            }
        };
        for row in rows {
            self.park.unpark_one(row.park_key(), 0);
        }
    }

    /// Makes the row a debt of `holder` and returns its slot and the edge to it; `None` when it has ended, or is
    /// hidden.
    fn enter_debt(&self, holder: Xid, row: RowHash) -> Option<(u32, Wait)> {
        let (index, mut shown) = self.slots.find(holder)?;
        if !mutant("hand-off: row not entered with the holder") {
            owe(&mut shown.rows, row);
        }
        Some((index, Wait::Holder { index, term: shown.term, row }))
    }
}

/// One debt per row is enough.
fn owe(rows: &mut Vec<RowHash>, row: RowHash) {
    if !rows.contains(&row) {
        rows.push(row);
    }
}
