//! Waits for log space that other sessions return.
//!
//! The space that a session was granted for compensations is returned when its transaction ends. A session that the
//! full disk has refused, and that a truncation cannot help, waits for that:
//!
//! 1. It returns the space that it has not charged, and registers.
//! 2. It tries again.
//! 3. It parks if a session that is not parked here holds space. It also parks while another session is trying, because
//!    that one counts bytes for a moment that may be the missing ones. Otherwise no space would be returned, and the
//!    session is refused. The refusal notifies the others, like any failed attempt. As a rule its transaction then
//!    rolls back and returns its space.
//! 4. A session that returns space, and the preparer that has made some, notify. A session that holds no space any more
//!    publishes that afterwards, and notifies again.
//! 5. Without a notification for [`CHECK`] the session continues with step 1, if others have logged records meanwhile.
//!    Otherwise it is refused, because a transaction whose owner keeps it open returns no space.
//!
//! **Invariant:** not all sessions that hold space are parked here: of sessions that would wait for each other, the
//! last one is refused at once. A cycle that includes locks ends with the time limit of each session's waits.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{EventCount, EventKey, LockRank, Mutex};
use std::time::Duration;

/// How long a session waits for a notification while no other session logs a record. It is longer than a read from a
/// slow disk, during which a holder logs nothing.
const CHECK: Duration = Duration::from_millis(100);

/// The sessions that wait for space to come back.
#[derive(Debug)]
pub struct Returns {
    event: EventCount,
    /// The count of sessions that try or are parked.
    registered: AtomicUsize,
    parked: Mutex<Parked>,
}

/// The counts of parked sessions.
#[derive(Debug, Default)]
struct Parked {
    all: usize,
    /// Parked sessions that hold space themselves.
    holders: usize,
}

/// A registration. It ends on drop.
#[derive(Debug)]
pub struct Registered<'a> {
    returns: &'a Returns,
    key: Option<EventKey>,
}

impl Default for Returns {
    fn default() -> Self {
        Self {
            event: EventCount::new(),
            registered: AtomicUsize::new(0),
            parked: Mutex::new(LockRank::Leaf, Parked::default()),
        }
    }
}

impl Returns {
    /// Registers a session. Space that is returned afterwards ends its wait. The session tries again after this call.
    pub fn register(&self) -> Registered<'_> {
        // ORDERING: Relaxed, a hint for `is_waited_for`.
        self.registered.fetch_add(1, Ordering::Relaxed);
        Registered { returns: self, key: Some(self.event.prepare()) }
    }

    /// Whether sessions wait, so that no session may keep returned space for later.
    pub fn is_waited_for(&self) -> bool {
        // ORDERING: Relaxed, a hint: a block that a session keeps is taken from it by the refused session.
        self.registered.load(Ordering::Relaxed) > 0
    }

    /// Notifies that space was returned. Called after the return.
    pub fn notify(&self) {
        if !mutant("returns: space comes back without a notification") {
            self.event.notify_all();
        }
    }
}

impl Registered<'_> {
    /// Waits until space is returned, until no other session has logged a record for a while, or for `most`. Returns
    /// false if no space will be returned. `holds`: this session holds space. `holders` counts the sessions that hold
    /// space. `work` counts the records of other sessions.
    pub fn wait(
        mut self,
        holds: bool,
        holders: impl FnOnce() -> usize,
        work: impl Fn() -> u64,
        most: Duration,
    ) -> bool {
        let (returns, own, before) = (self.returns, usize::from(holds), work());
        let comes = {
            let mut parked = returns.parked.lock();
            // ORDERING: Relaxed. Sessions that have parked changed it before they took the lock; the others read it
            // again.
            let tries = returns.registered.load(Ordering::Relaxed) > parked.all + 1;
            let comes = tries || holders() > parked.holders + own || mutant("returns: the last one waits, too");
            let comes = comes && !most.is_zero();
            if comes {
                parked.all += 1;
                parked.holders += own;
            }
            comes
        };
        let key = self.key.take().expect("one wait ends a registration");
        if !comes {
            // WAIT: park - for no time, to check for a notification.
            // The space returned since the registration may have been all that others held.
            if returns.event.wait(key, Some(Duration::ZERO)) && !most.is_zero() {
                return true;
            }
            self.give_up();
            return false;
        }
        // In models there is no timeout: notifications have to suffice.
        let most = (!MODEL).then(|| most.min(CHECK));
        // WAIT: park - for a session that gives space back, or briefly: see the head of the file.
        let is_notified = returns.event.wait(key, most);
        let mut parked = returns.parked.lock();
        let Parked { all, holders } = *parked;
        assert!(all > 0 && holders >= own && all >= holders, "one of {all} waiters ends, {holders} hold some");
        parked.all -= 1;
        parked.holders -= own;
        drop(parked);
        is_notified || work() > before
    }

    /// Ends a failed attempt: sessions that have parked because of it check again.
    pub fn give_up(self) {
        let returns = self.returns;
        drop(self);
        returns.notify();
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.returns.event.cancel(key);
        }
        // ORDERING: Relaxed, as in `register`.
        let before = self.returns.registered.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "a waiter for space ends, and none is registered");
    }
}
