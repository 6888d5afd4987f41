//! Lanes that sessions take turns in.
//!
//! A session with a slot below the number of own lanes has the lane of that number. The others take a shared lane when they
//! reserve, and leave it with [`crate::Session::release`]. So what `lanes` takes in memory does not grow with the sessions.
//!
//! A thread that waits here holds no lane. A thread that has one waits for room in it, which a leader makes without a lane, for pages and for the
//! disk; locks and latches that others hold over a reservation it does not wait for, as with the space of a ring.

use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_sync::{EventCount, LockRank, Mutex};
use std::time::Duration;

/// The lanes of a log.
#[derive(Debug)]
pub(crate) struct SharedLanes {
    /// Lanes that belong to slots.
    own: usize,
    /// Shared lanes that no session has, the last used on top.
    free: Mutex<Vec<usize>>,
    left: EventCount,
}

impl SharedLanes {
    /// `own` lanes for as many slots, and `shared` behind them. With none of those each slot has its lane.
    pub(crate) fn new(own: usize, shared: usize) -> Self {
        let free = Mutex::new(LockRank::Leaf, (own..own + shared).rev().collect());
        Self { own, free, left: EventCount::new() }
    }

    /// The lane of a slot; `None` if its session takes shared ones.
    pub(crate) fn of_slot(&self, slot: usize) -> Option<usize> {
        (slot < self.own).then_some(slot)
    }

    /// Takes a lane; waits while all are taken. `check` says whether to go on, and `left` for how long to wait, or not at all.
    pub(crate) fn take(
        &self,
        check: impl Fn() -> Result<()>,
        left: impl Fn() -> Result<Option<Duration>>,
    ) -> Result<usize> {
        // A thread that gives up may have been woken in the place of another.
        let pass_on = || {
            if !mutant("lanes: one gives up without a word") {
                self.left.notify_one();
            }
        };
        loop {
            check().inspect_err(|_| pass_on())?;
            let key = self.left.prepare();
            if let Some(lane) = self.free.lock().pop() {
                self.left.cancel(key);
                return Ok(lane);
            }
            match left() {
                // WAIT: park - for one that leaves its lane: at the end of its operation, or before it waits for a lock.
                Ok(most) => drop(self.left.wait(key, most)),
                Err(over) => {
                    self.left.cancel(key);
                    pass_on();
                    return Err(over);
                }
            }
        }
    }

    /// The log has stopped: all that wait look again.
    pub(crate) fn stop(&self) {
        if !mutant("lanes: a stop wakes no waiter") {
            self.left.notify_all();
        }
    }

    /// Leaves a lane to others.
    pub(crate) fn leave(&self, lane: usize) {
        let mut free = self.free.lock();
        assert!(lane >= self.own, "lane {lane} belongs to its session, of {}", self.own);
        debug_assert!(!free.contains(&lane), "lane {lane} is left twice");
        free.push(lane);
        drop(free);
        if !mutant("lanes: one leaves without a word") {
            self.left.notify_one();
        }
    }
}
