//! Truncation of the free pages at the end of the file, while all other work continues.
//!
//! 1. *Withhold.* Free pages at the end, beyond a reserve, are no longer handed out. A thread that needs pages and
//!    finds none ready cancels the truncation and takes them, so no thread waits for it. Map pages of regions that lie
//!    wholly beyond are dropped, by a record each.
//! 2. *Settle.* The log is forced, and `group` is the next group. All records of a page beyond the truncation are in
//!    earlier groups, the record that freed the page last. Two checkpoints are taken. Both superblocks then count at
//!    most the pages before the truncation, and redo of both begins at `group` or later. So no restart applies a record
//!    to a page beyond, and no such page is dirty. Log before the redo start, which an old transaction may retain, is
//!    read for the analysis and for undo. Undo finds rows by their keys, so it meets only pages in use.
//! 3. *Truncate.* Unless the truncation was cancelled, the file gets its new length.
//!
//! **A crash** before the new length is on disk leaves a file that is longer than the superblock says: [`Space::load`]
//! finds free pages at its end. After it, no superblock asks for more, no record for redo names a page beyond, and the
//! maps have all of them free. Later growth reads as zeros, and a new page is used only after a record that
//! initialises it. A new length may be lost, or bring back a page's former bytes. Then redo of that record finds a
//! smaller LSN: the record depends on the map page, which the record that freed the page has changed.
//!
//! **Growth and truncation do not conflict:** a truncation for [`Spare::Growth`] leaves twice the pages that growth
//! keeps ready, and growth starts at half of them. During a truncation for [`Spare::Least`] the file does not grow
//! ahead of need.

use crate::Space;
use crate::purpose::Spare;
use crate::space::MAP_DROP_COST;
use foreshore_base::Result;
use foreshore_sync::model::mutant;
use foreshore_wal::Session;

/// Map pages whose end is reserved for before a truncation: those of 32 GiB.
const RESERVED_DROPS: u64 = 64;

/// A truncation under way. Dropped, it is given up.
#[derive(Debug)]
#[must_use = "a truncation is given up when it is dropped"]
pub struct Truncation<'s> {
    space: &'s Space,
    number: u64,
}

impl Space {
    /// First step of a truncation, which leaves `spare` free pages; the log is to be forced and settled then. `None` if
    /// there is too little to cut.
    ///
    /// # Errors
    /// `Io`, `Corrupted`, `OutOfFrames`, `Poisoned`.
    pub fn start_truncation(&self, session: &mut Session, spare: Spare) -> Result<Option<Truncation<'_>>> {
        // As many as are likely to matter, before others wait for the maps to be dropped: they may hold the log space
        // that this needs. Never none: the first request for space may have to wait for a lane of the log.
        let maps = self.mapped().clamp(1, RESERVED_DROPS);
        let late = mutant("space: a truncation asks for log space while others wait for it");
        let reserve = |session: &mut Session| session.reserve_rollback(maps as usize * MAP_DROP_COST);
        if !late {
            reserve(session)?;
        }
        let started = self.stock().start_truncation(spare, |first_region| {
            if late {
                reserve(session)?;
            }
            self.drop_maps(first_region, session)
        })?;
        Ok(started.map(|number| Truncation { space: self, number }))
    }
}

impl Truncation<'_> {
    /// Last step of a truncation. Returns how many pages the file is shorter: none if the truncation was given up.
    ///
    /// # Errors
    /// `Io`: whether the file is shorter is not known. It is taken to be; what is left of its end the next start finds.
    pub fn finish(self) -> Result<u64> {
        self.space.stock().finish_truncation(self.number)
    }
}

impl Drop for Truncation<'_> {
    fn drop(&mut self) {
        self.space.stock().cancel_truncation(self.number);
    }
}
