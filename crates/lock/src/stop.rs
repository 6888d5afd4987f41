//! The end of all waits, when the database has stopped.
//!
//! `stop` sets the reason, then wakes every waiter. A waiter of a queue looks at the reason before it parks, and parks only while its
//! signal, which `stop` raises, stands still. A waiter of a row is validated by its caller's `is_live`, which has to be false from before
//! `stop`, and publishes its edge before it parks. So each waiter is woken or does not park.

use crate::manager::LockManager;
use crate::owner::Wait;
use foreshore_base::Error;
use foreshore_sync::model::mutant;

impl LockManager {
    /// Ends all waits for locks, those that begin later too. Waits in queues end with `cause`; waits for holders of rows return, and the
    /// caller knows why. The first cause stays.
    pub fn stop(&self, cause: &Error) {
        // No thread waits for the outcome: another thread may have been faster, with the same effect.
        let _ = self.stopped.set(cause.clone());
        for index in 0..self.slots.used().len() as u32 {
            let edge = self.slots.get(index).shown().wait;
            if let Wait::Holder { row, .. } = edge
                && !mutant("lock: a stop wakes no waiter of a row")
            {
                self.park.unpark_all(row.park_key(), 0);
            }
            if !mutant("lock: a stop wakes no waiter of a queue") {
                self.wake(&[index]);
            }
        }
    }

    /// Why all waits have ended.
    #[must_use]
    pub fn stopped(&self) -> Option<&Error> {
        self.stopped.get()
    }
}
