//! Freeing of large values that no row refers to any more.
//!
//! The table of chains has a row for each of them, and one for each that is being built (see
//! [`foreshore_btree::Trees::free_chains`]). A pass visits all of its leaves, one in each step, and frees what nothing
//! needs. If a chain has to stay, because of a snapshot or a running transaction, another pass follows after a pause
//! (see [`crate::passes`]).

use crate::TxnOptions;
use crate::admission::Admission;
use crate::maintenance::{both, retried};
use crate::passes::Passes;
use foreshore_base::Result;
use foreshore_btree::Trees;
use foreshore_sync::{Clock, LockRank, Mutex, SystemClock};
use foreshore_wal::Log;
use std::time::Duration;

/// Log records of one step: each frees up to 512 pages.
const PIECE: usize = 32;
/// Label of the transactions that free chains.
const LABEL: &str = "reclaim";

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
    pub(crate) fn free_all(&self, admission: &Admission, trees: &Trees) -> crate::Result<()> {
        // WAIT: help - or park behind the leader: before its commit is durable, a replaced value is still needed.
        self.log.force(self.log.current())?;
        let (mut from, mut outcome) = (Vec::new(), Ok(()));
        loop {
            let found = retried(|| {
                let mut txn = admission.begin(TxnOptions::new().label(LABEL))?;
                let found = trees.free_chains(&mut txn, &from, PIECE);
                let ended = txn.rollback();
                admission.transaction_ended();
                ended.and(found)
            });
            let (next, freed) = match found {
                Ok(found) => (found.next, found.damage.map_or(Ok(()), |damage| Err(damage.into()))),
                Err(error) => (None, Err(error)),
            };
            outcome = both(outcome, freed);
            match next {
                Some(next) => from = next,
                None => return outcome,
            }
        }
    }
}
