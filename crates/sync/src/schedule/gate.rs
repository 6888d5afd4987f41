//! Gates: each task waits at its own until the scheduler sends it a command.

use std::cell::Cell;
use std::sync::PoisonError;

std::thread_local! {
    /// Scheduling points left in the time slice of the calling task.
    pub(super) static POINTS_LEFT: Cell<u32> = const { Cell::new(0) };
}

/// A command to a task at its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Run, for that many scheduling points.
    Run(u32),
    /// Add its stack to the report of the run, and wait again.
    ReportStack,
}

/// A mailbox for one command, at which a task waits.
#[derive(Debug)]
pub(super) struct Gate {
    command: std::sync::Mutex<Option<Command>>,
    changed: std::sync::Condvar,
}

impl Gate {
    pub(super) const fn new() -> Self {
        Self { command: std::sync::Mutex::new(None), changed: std::sync::Condvar::new() }
    }

    /// Sends a command. The task has taken the one before.
    pub(super) fn send(&self, command: Command) {
        let before = self.command.lock().unwrap_or_else(PoisonError::into_inner).replace(command);
        debug_assert_eq!(before, None, "a task that has not taken its command gets {command:?}");
        self.changed.notify_one();
    }

    /// Waits for a command to the task, and returns it.
    pub(super) fn receive(&self) -> Command {
        let mut sent = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(command) = sent.take() {
                return command;
            }
            // WAIT: park - until a command is sent.
            sent = self.changed.wait(sent).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
