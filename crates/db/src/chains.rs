//! Freeing of large values that no row refers to any more.
//!
//! The table of chains has a row for each of them, and one for each that is being built (see
//! [`foreshore_btree::Trees::free_chains`]). A pass visits all of its leaves, one in each step, and frees what nothing
//! needs. If a chain has to stay, because of a snapshot or a running transaction, another pass follows after a pause
//! (see [`crate::passes`]).

use crate::TxnOptions;
use crate::admission::Admission;
use crate::passes::Passes;
use foreshore_base::{Error, Result};
use foreshore_btree::Trees;
use foreshore_sync::{Clock, LockRank, Mutex, SystemClock};
use foreshore_wal::Log;
use std::time::Duration;

/// Log records of one step: each frees up to 512 pages.
const PIECE: usize = 32;
/// Label of the transactions that free chains.
const LABEL: &str = "reclaim";

/// The number of times that a step which other transactions made fail is repeated at once.
const RETRIES: u32 = 3;

/// Bounded retries of steps that a caller waits for.
pub(crate) struct Retries {
    left: u32,
}

impl Retries {
    pub(crate) const fn new() -> Self {
        Self { left: RETRIES }
    }

    /// Returns whether the step that ended with `error` is repeated. One that has waited for a lock in vain is not.
    pub(crate) fn again(&mut self, error: &Error) -> bool {
        let again = !matches!(error, Error::LockTimeout { .. }) && crate::Error::is_retryable_below(error);
        let has_left = again && self.left > 0;
        self.left -= u32::from(has_left);
        has_left
    }
}

/// Frees large values that no row refers to.
pub(crate) struct ChainReclaimer {
    /// Taken by the step that runs.
    passes: Mutex<Option<Passes>>,
    log: Log,
    clock: SystemClock,
    /// Whether threads do the work. Without them nothing depends on time.
    has_threads: bool,
}

impl ChainReclaimer {
    pub(crate) fn new(log: Log, has_threads: bool) -> Self {
        let passes = Mutex::new(LockRank::Leaf, Some(Passes::new()));
        Self { passes, log, clock: SystemClock::new(), has_threads }
    }

    /// Runs one step of a pass, if it is time. Returns the time until the next step; `None` if there is nothing to do.
    pub(crate) fn free_some(&self, admission: &Admission, trees: &Trees) -> Result<Option<Duration>> {
        let Some(mut passes) = self.passes.lock().take() else { return Ok(None) };
        let stepped = self.step(&mut passes, admission, trees);
        let next = passes.next(self.clock.now());
        *self.passes.lock() = Some(passes);
        stepped.map(|()| next)
    }

    fn step(&self, passes: &mut Passes, admission: &Admission, trees: &Trees) -> Result<()> {
        if trees.take_chain_note() {
            passes.want(self.clock.now());
        }
        match passes.next(self.clock.now()) {
            None => return Ok(()),
            Some(pause) if self.has_threads && !pause.is_zero() => return Ok(()),
            Some(_) => {}
        }
        // A damaged root is damage that the pass finds.
        if matches!(trees.has_chains(), Ok(false)) {
            passes.end();
            return Ok(());
        }
        let mut txn = admission.begin_own(TxnOptions::new().label(LABEL))?;
        let found = trees.free_chains(&mut txn, passes.begin_step(), PIECE);
        // The rollback undoes nothing: it only gives the session back.
        let ended = txn.rollback();
        passes.end_step(self.clock.now(), found)?;
        ended.map(drop)
    }

    /// Frees all chains that nothing needs. A damaged one does not keep others from being freed.
    pub(crate) fn free_all(&self, admission: &Admission, trees: &Trees) -> Result<()> {
        // WAIT: help - or park behind the leader: before its commit is durable, a replaced value is still needed.
        self.log.force(self.log.current())?;
        let (mut from, mut damage, mut retries) = (Vec::new(), None::<Error>, Retries::new());
        loop {
            let mut txn = admission.begin(TxnOptions::new().label(LABEL))?;
            let found = trees.free_chains(&mut txn, &from, PIECE);
            let ended = txn.rollback();
            admission.transaction_ended();
            let found = match ended.and(found) {
                Err(error) if retries.again(&error) => continue,
                found => found?,
            };
            (damage, retries) = (damage.or(found.damage), Retries::new());
            match found.next {
                Some(next) => from = next,
                None => return damage.map_or(Ok(()), Err),
            }
        }
    }
}
