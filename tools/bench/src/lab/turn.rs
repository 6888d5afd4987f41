//! Turns: of what is compared one at a time has the machine.

use std::sync::{
    Condvar, Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// Which of several may go on.
#[derive(Default)]
pub(super) struct Turn {
    of: AtomicUsize,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Turn {
    /// All threads have it.
    pub(super) const ALL: usize = usize::MAX;

    /// From now on `to` has it.
    pub(super) fn give(&self, to: usize) {
        let _guard = self.lock.lock();
        // ORDERING: Release, with the load in `is`. Under the lock, so that no thread checks before the store and parks
        // after the call below.
        self.of.store(to, Ordering::Release);
        self.changed.notify_all();
    }

    /// Parks while others have it.
    pub(super) fn wait(&self, mine: usize) {
        if !self.is(mine) {
            let guard = self.lock.lock().expect("nobody panics with it");
            // WAIT: park - `give` ends it.
            drop(self.changed.wait_while(guard, |()| !self.is(mine)));
        }
    }

    pub(super) fn is(&self, mine: usize) -> bool {
        // ORDERING: Acquire, with the store in `give`.
        let of = self.of.load(Ordering::Acquire);
        of == mine || of == Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{thread, time::Duration};

    #[test]
    fn a_thread_without_its_turn_waits() {
        let (turn, taken) = (Turn::default(), AtomicUsize::new(0));
        turn.wait(0);
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                turn.wait(1);
                assert_eq!(taken.load(Ordering::Acquire), 1);
            });
            thread::sleep(Duration::from_millis(5));
            assert!(!other.is_finished());
            taken.store(1, Ordering::Release);
            turn.give(1);
        });
        turn.give(Turn::ALL);
        (0..3).for_each(|mine| turn.wait(mine));
    }
}
