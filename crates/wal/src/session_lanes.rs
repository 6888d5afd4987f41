//! The assignment of lanes of the buffer to sessions.
//!
//! A session with a slot below the number of own lanes has the lane of that number. The others take a shared lane for a
//! reservation, and release it with [`crate::Session::release`]. So the memory of `lanes` does not grow with the number
//! of sessions.
//!
//! **Invariant:** a thread that waits here has no lane. A thread with a lane waits only for pages, for the disk, and
//! for free space in the lane, which a leader makes without a lane. It does not wait for locks and latches that other
//! sessions hold during a reservation.

use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_sync::{EventCount, LockRank, Mutex};
use std::time::Duration;

/// The lanes of a log.
#[derive(Debug)]
pub(crate) struct SessionLanes {
    /// The number of lanes that belong to slots.
    own: usize,
    /// Shared lanes that no session has, the last used on top.
    free: Mutex<Vec<usize>>,
    released: EventCount,
}

impl SessionLanes {
    /// Creates `own` lanes for as many slots, and `shared` lanes behind them. Without shared lanes each slot has its
    /// lane.
    pub(crate) fn new(own: usize, shared: usize) -> Self {
        let free = Mutex::new(LockRank::Leaf, (own..own + shared).rev().collect());
        Self { own, free, released: EventCount::new() }
    }

    /// Returns the lane of a slot; `None` if its session takes shared ones.
    pub(crate) fn of_slot(&self, slot: usize) -> Option<usize> {
        (slot < self.own).then_some(slot)
    }

    /// Takes a shared lane, and waits while all are taken. `check` fails when the log has stopped. `left` returns the
    /// time that is left for the wait, or an error when it is over.
    pub(crate) fn take(
        &self,
        check: impl Fn() -> Result<()>,
        left: impl Fn() -> Result<Option<Duration>>,
    ) -> Result<usize> {
        // A thread that ends its wait without a lane may have consumed a notification, and passes it on.
        let pass_on = || {
            if !mutant("lanes: a session gives up without a notification") {
                self.released.notify_one();
            }
        };
        loop {
            let key = self.released.prepare();
            // Checked after `prepare`: a stop that this check misses ends the wait below.
            if let Err(stopped) = check() {
                self.released.cancel(key);
                pass_on();
                return Err(stopped);
            }
            if let Some(lane) = self.free.lock().pop() {
                self.released.cancel(key);
                return Ok(lane);
            }
            match left() {
                // WAIT: park - for a session that releases its lane: at the end of its operation, or before it waits
                // for a lock.
                Ok(most) => drop(self.released.wait(key, most)),
                Err(over) => {
                    self.released.cancel(key);
                    pass_on();
                    return Err(over);
                }
            }
        }
    }

    /// Makes all waiting sessions check again, because the log has stopped.
    pub(crate) fn stop(&self) {
        if !mutant("lanes: a stop wakes no waiter") {
            self.released.notify_all();
        }
    }

    /// Releases a shared lane.
    pub(crate) fn release(&self, lane: usize) {
        let mut free = self.free.lock();
        assert!(lane >= self.own, "lane {lane} belongs to its session, of {}", self.own);
        debug_assert!(!free.contains(&lane), "lane {lane} is released twice");
        free.push(lane);
        drop(free);
        if !mutant("lanes: a lane is released without a notification") {
            self.released.notify_one();
        }
    }
}
