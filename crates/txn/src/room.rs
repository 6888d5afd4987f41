//! Room for undo where memory is short.
//!
//! What transactions that have ended have left in memory goes once its commits are durable and no snapshot is older. Who finds no
//! room looks for the chunk of which that is true first, and does what stands in its way, in this order:
//!
//! | in the way | |
//! |---|---|
//! | a session that is idle has the chunk | it is taken from it |
//! | its commits are not durable | they are made durable |
//! | older snapshots | full chunks are moved to the file for undo, or the oldest snapshot is given up |
//! | a writer that links a version, a reader that takes its snapshot | passes soon |
//!
//! What lies in the file counts as well, for it takes a part of the memory. If there is no such chunk, others have all the memory, and
//! no snapshot is given up, since none is in the way. What running transactions have is moved to the file then. What operations
//! that are under way hold, and commits that keep all they have until they are durable, comes back soon, and is waited for; the
//! caller holds nothing meanwhile that one of those could wait for. Each turn frees a chunk sooner or later; that others
//! take one after the other is borne for so long and no longer.

use crate::manager::TxnManager;
use crate::undo::{Outlook, Undo};
use foreshore_base::{Csn, Error, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::thread::yield_now;
use foreshore_sync::{Clock, Nanos, pause};
use std::time::Duration;

/// How long somebody who has told nobody of what he has given up is waited for.
const MOMENT: Duration = Duration::from_millis(10);

/// A transaction's search for room for one entry.
#[derive(Debug)]
pub(crate) struct Search {
    until: Nanos,
    /// Whether the log has been forced: a commit may keep all that it has entered until it is durable.
    forced: bool,
    /// Why nothing was moved to the file.
    not_moved: Option<Error>,
}

impl Search {
    /// There is no hope, or no time left.
    fn give_up(&mut self) -> Result<bool> {
        self.not_moved.take().map_or(Ok(false), Err)
    }
}

impl TxnManager {
    pub(crate) fn search(&self) -> Search {
        Search { until: self.time.now() + self.undo_patience, forced: false, not_moved: None }
    }

    /// Does something about the lack of room in `undo` for an entry of `bytes`. `false` if there is no hope.
    pub(crate) fn find_room(&self, search: &mut Search, undo: &Undo, bytes: usize) -> Result<bool> {
        pause::point("txn: found no room for undo");
        if self.time.now() >= search.until {
            return search.give_up();
        }
        let calm = self.undo.calm();
        if self.leave_idle_undo(undo) {
            return Ok(true);
        }
        match self.undo.outlook(bytes, calm) {
            Outlook::Soon | Outlook::Never if self.has_moved_undo(search) => {}
            Outlook::Never if search.forced => return search.give_up(),
            Outlook::Soon if search.forced => self.wait_for_the_busy(search, bytes)?,
            Outlook::From(newest) if newest <= self.log.durable().csn() => match self.readers.oldest() {
                Some((csn, _)) if csn < newest && self.has_moved_undo(search) => {}
                Some((csn, _)) if csn < newest || mutant("undo: what passes soon costs one more snapshot") => {
                    // That one and no other: somebody else may give it up meanwhile, which may do for both.
                    let is_it = |oldest| oldest == csn || mutant("undo: two who look for room give up two snapshots");
                    self.kill_oldest_if(|oldest, _| is_it(oldest));
                }
                _ => self.wait_for_what_passes(newest, search.until),
            },
            _ => {
                // WAIT: help - or park behind the leader.
                self.log.force(self.log.current())?;
                search.forced = true;
            }
        }
        Ok(true)
    }

    /// Whether undo was moved to its file, or somebody else has done it, so that there is room in memory.
    fn has_moved_undo(&self, search: &mut Search) -> bool {
        let may_wait = || self.time.now() < search.until;
        let moved = self.undo.spill(self.log.durable().csn(), || self.pins.have_all_been_off(may_wait));
        moved.unwrap_or_else(|error| {
            search.not_moved = Some(error);
            false
        })
    }

    /// Waits for those who are about to give up what they hold. A commit that keeps it until it is durable may have come since the
    /// log was forced.
    fn wait_for_the_busy(&self, search: &Search, bytes: usize) -> Result<()> {
        let lingers = |is_own| self.leases(is_own).lingering.lock().now > 0;
        let is_any = lingers(false) || lingers(true);
        if is_any && !mutant("undo: a commit that lingers is not made durable") {
            // WAIT: help - or park behind the leader.
            self.log.force(self.log.current())?;
        }
        self.undo.wait_for_others(bytes, search.until.since(self.time.now()).min(MOMENT));
        Ok(())
    }

    /// Waits until no writer touches what was replaced by commits below `newest`, and no reader is about to get a snapshot below it.
    fn wait_for_what_passes(&self, newest: Csn, until: Nanos) {
        while self.pins.is_any_below(newest) || self.readers.is_any_taking_below(newest) {
            if self.time.now() >= until {
                return;
            }
            // WAIT: window - a writer links one version, or a reader takes its snapshot; either may have lost its processor.
            yield_now();
        }
    }

    /// Leaves the chunks of idle sessions to others, for those stay with a session that ended while there was enough. Whether
    /// there were any. By who has `undo`.
    fn leave_idle_undo(&self, undo: &Undo) -> bool {
        let mut chunks = Vec::new();
        for is_own in [false, true] {
            self.leases(is_own).each_idle(|lease| {
                if lease.undo.has_open() {
                    // Before others find them gone.
                    if !mutant("undo: idle while it takes from the idle") {
                        undo.set_busy();
                    }
                    chunks.extend(lease.undo.take_open().into_iter().flatten());
                }
            });
        }
        if chunks.is_empty() {
            return false;
        }
        pause::point("undo: a chunk is in hand");
        self.undo.leave(chunks.into_iter());
        undo.set_idle();
        self.undo.tell();
        true
    }
}
