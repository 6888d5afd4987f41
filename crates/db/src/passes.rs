//! The pace of the passes over the table of chains.

use foreshore_base::Result;
use foreshore_btree::FreedChains;
use foreshore_sync::Nanos;
use std::time::Duration;

/// Shortest and longest pause between two passes. The first is a few flushes of the log; the last leaves an idle
/// machine alone.
const PAUSES: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// The state between two steps.
#[derive(Debug)]
pub(crate) struct Passes {
    /// The key at which the running pass continues; `None` between two passes.
    from: Option<Vec<u8>>,
    /// Chains that the running pass has left.
    left: usize,
    /// Chains that it has freed.
    freed: usize,
    /// Whether a pass has to follow.
    is_wanted: bool,
    pause: Duration,
    due: Nanos,
}

impl Passes {
    pub(crate) const fn new() -> Self {
        Self { from: None, left: 0, freed: 0, is_wanted: false, pause: PAUSES[0], due: Nanos::ZERO }
    }

    /// Notes that a chain may have to be freed.
    pub(crate) fn want(&mut self, now: Nanos) {
        (self.is_wanted, self.pause) = (true, PAUSES[0]);
        self.due = self.due.min(now + PAUSES[0]);
    }

    /// Ends the pass: there is no chain.
    pub(crate) fn end(&mut self) {
        (self.from, self.is_wanted, self.left, self.freed) = (None, false, 0, 0);
    }

    /// Begins a step, and returns the key at which it continues.
    pub(crate) fn begin_step(&mut self) -> &[u8] {
        if self.from.is_none() {
            self.is_wanted = false;
        }
        self.from.as_deref().unwrap_or_default()
    }

    /// Notes the result of a step. A failed one is repeated.
    pub(crate) fn end_step(&mut self, now: Nanos, found: Result<FreedChains>) -> Result<()> {
        let found = found.inspect_err(|_| self.is_wanted = true)?;
        self.left += found.left;
        self.freed += found.freed;
        self.from = found.next;
        if self.from.is_some() {
            return Ok(());
        }
        self.is_wanted |= self.left > 0;
        self.pause = if self.freed > 0 { PAUSES[0] } else { (2 * self.pause).clamp(PAUSES[0], PAUSES[1]) };
        self.due = now + self.pause;
        (self.left, self.freed) = (0, 0);
        Ok(())
    }

    /// Returns the time until the next step; `None` if there is nothing to do.
    pub(crate) fn next(&self, now: Nanos) -> Option<Duration> {
        match &self.from {
            Some(_) => Some(Duration::ZERO),
            None => self.is_wanted.then(|| self.due.since(now)),
        }
    }
}
