//! Promise: a session that waits for log space of others gets it or is refused, and no cycle of such waits forms.
//!
//! Waits have no timeout here, so a missing notification, or a cycle of waits, shows as a deadlock.

use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_wal::model::Returns;
use std::sync::Arc;
use std::time::Duration;

const SESSIONS: usize = 3;
const TRANSACTIONS: usize = 2;
/// The blocks of the account, and those that a transaction takes, one after the other.
const BLOCKS: u64 = 2;
const SCHEDULES: usize = 2000;

#[derive(Default)]
struct Shared {
    returns: Returns,
    granted: AtomicU64,
    holders: AtomicUsize,
    committed: AtomicUsize,
}

// ORDERING: Relaxed, shuttle takes every access as SeqCst; here and below.
impl Shared {
    /// Granted blocks. As in the log, a request is counted before it is compared.
    fn take(&self) -> bool {
        let fits = self.granted.fetch_add(1, Ordering::Relaxed) < BLOCKS;
        if !fits {
            self.granted.fetch_sub(1, Ordering::Relaxed);
        }
        fits
    }

    /// Takes one more block than the `held` ones. Returns false if it is refused.
    fn take_or_wait(&self, held: u64) -> bool {
        loop {
            let registered = self.returns.register();
            if self.take() {
                self.holders.fetch_add(usize::from(held == 0), Ordering::Relaxed);
                return true;
            }
            let holders = || self.holders.load(Ordering::Relaxed);
            if !registered.wait(held > 0, holders, || 0, Duration::MAX) {
                return false;
            }
        }
    }

    fn transaction(&self) {
        let mut held = 0;
        while held < BLOCKS && self.take_or_wait(held) {
            held += 1;
        }
        self.committed.fetch_add(usize::from(held == BLOCKS), Ordering::Relaxed);
        self.granted.fetch_sub(held, Ordering::Relaxed);
        self.returns.notify();
        self.holders.fetch_sub(usize::from(held > 0), Ordering::Relaxed);
        self.returns.notify();
    }
}

fn storm() {
    let shared = Arc::new(Shared::default());
    let session = |_| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || (0..TRANSACTIONS).for_each(|_| shared.transaction()))
    };
    let sessions: Vec<_> = (0..SESSIONS).map(session).collect();
    sessions.into_iter().for_each(|session| session.join().expect("a session ends"));
    assert!(shared.committed.load(Ordering::Relaxed) > 0, "not all of them are refused");
    assert!(!shared.returns.is_waited_for());
}

#[test]
fn sessions_get_space_or_are_refused_and_one_gets_it() {
    shuttle(SCHEDULES, storm);
}

#[test]
#[should_panic]
fn space_that_comes_back_without_a_notification_is_noticed() {
    shuttle_mutated("returns: space comes back without a notification", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_last_session_that_waits_for_the_others_is_noticed() {
    shuttle_mutated("returns: the last one waits, too", SCHEDULES, storm);
}
