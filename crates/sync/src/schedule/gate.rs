//! Gates of tasks: where a task waits until it is its turn.

use std::cell::Cell;
use std::sync::PoisonError;

std::thread_local! {
    /// Scheduling points left in the time slice.
    pub(super) static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// What a task at its gate is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Run, for that many scheduling points.
    Run(u32),
    /// Print its stack, and wait again.
    Show,
}

/// Where a task waits.
#[derive(Debug)]
pub(super) struct Gate {
    told: std::sync::Mutex<Option<Told>>,
    changed: std::sync::Condvar,
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self { told: std::sync::Mutex::new(None), changed: std::sync::Condvar::new() }
    }

    pub(super) fn tell(&self, what: Told) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        self.changed.notify_one();
    }

    /// Waits for a message to the task, and returns it.
    pub(super) fn told(&self) -> Told {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(what) = told.take() {
                return what;
            }
            // WAIT: park - until another task opens the gate.
            told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
