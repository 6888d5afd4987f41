//! Waits for log space that other sessions give back.
//!
//! What sessions were granted for compensations comes back when their transactions end. A session that the full disk
//! has refused, and that the owner of the log cannot help either, waits for that:
//!
//! 1. It gives back what it has not charged, and registers.
//! 2. It tries again.
//! 3. It parks if some session holds space and is not parked here, or another one is just trying: what that counts for
//!    a moment may be what was missing. Otherwise no space would come back, and it is refused, which notifies the
//!    others, as any failure of its try does. Its transaction is then rolled back as a rule, and gives back what it
//!    holds.
//! 4. A session that gives space back, and the preparer that has made some, notify. A session that holds nothing any
//!    more says so after that, and notifies again.
//! 5. Without a notification for [`CHECK`] it goes on with step 1 if others have logged anything meanwhile. Otherwise
//!    it is refused: a transaction whose owner keeps it open returns nothing.
//!
//! **Invariant:** not all sessions that hold space are parked here, so of those that wait for each other the last one
//! is refused at once. A cycle that goes over locks ends with the time that each has for all its waits.

use foreshore_sync::model::mutant;
use foreshore_sync::primitive::MODEL;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::{EventCount, EventKey, LockRank, Mutex};
use std::time::Duration;

/// How long a session waits for a notification while no other session logs anything. A holder that reads from a slow
/// disk does not.
const CHECK: Duration = Duration::from_millis(100);

/// The sessions that wait for space to come back.
#[derive(Debug)]
pub struct Returns {
    event: EventCount,
    /// How many try, or are parked.
    registered: AtomicUsize,
    parked: Mutex<Parked>,
}

/// Those that are parked.
#[derive(Debug, Default)]
struct Parked {
    all: usize,
    /// Those that hold space themselves.
    holders: usize,
}

/// A registration, which ends when it is dropped.
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
    /// Registers a session. What is given back from here on ends its wait. It tries again after this.
    pub fn register(&self) -> Registered<'_> {
        // ORDERING: Relaxed, a hint for `is_waited_for`.
        self.registered.fetch_add(1, Ordering::Relaxed);
        Registered { returns: self, key: Some(self.event.prepare()) }
    }

    /// Whether sessions wait: what comes back is not kept for later.
    pub fn is_waited_for(&self) -> bool {
        // ORDERING: Relaxed, a hint: a session that keeps its share for later is asked for it.
        self.registered.load(Ordering::Relaxed) > 0
    }

    /// Space has come back. After it has.
    pub fn notify(&self) {
        if !mutant("returns: space comes back without a notification") {
            self.event.notify_all();
        }
    }
}

impl Registered<'_> {
    /// Waits until space comes back, or until no other session has been at work for a while, and for `most` at most.
    /// False if space will not come. `holds`: the session itself holds some. `holders` counts the sessions that do.
    /// `work` grows with what other sessions do.
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
            // ORDERING: Relaxed, changed before the lock was taken by all that have parked, and by the others it is
            // read again.
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
            // WAIT: park - for no time, to see whether there was a notification.
            // What came back since the registration may have been all that others held.
            if returns.event.wait(key, Some(Duration::ZERO)) && !most.is_zero() {
                return true;
            }
            self.give_up();
            return false;
        }
        // In models notifications alone have to do.
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

    /// Ends the attempt without space: sessions that have parked because of it check again.
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
