//! The contract between a log and its buffer.

use super::staging::Staging;
use crate::record::Record;
use crate::slots::Slots;
use foreshore_base::{Lsn, Result};
use std::sync::Arc;
use std::{fmt, io};

/// Most bytes of a group on disk.
pub const MAX_GROUP: usize = crate::format::MAX_GROUP;

/// A buffer between the sessions and the one leader. It speaks of stamps and cuts, never of places in a file.
///
/// A session is known by its slot, a number below the count of slots. In lanes the number is that of the lane that the
/// session has for a time. One thread at a time calls on behalf of a slot. Between [`LogBuffer::admit`] and the append
/// that uses what was admitted, the slot stays leased by the same session.
///
/// The contract:
///
/// 1. **Stamps.** The LSN of a record is greater than its dependency, than every LSN that its slot was given before,
///    and than the floor that the buffer was made with.
/// 2. **Cuts.** When a drain returns the cut `S`, every record with an LSN up to `S` has been copied by it or by an
///    earlier drain. Cuts never fall. Records above the cut may have been copied, too: they are provisional until a
///    later cut.
/// 3. **Copies.** Each record is copied once, whole, and behind the records that its slot appended before.
/// 4. **No waits for the disk.** `append` neither fails nor waits for a drain: `admit` has set the memory aside. A
///    panic in `append` must not keep other sessions from appending.
pub trait LogBuffer: Send + Sync {
    /// Admits `bytes` more for the session in `slot` and returns what was admitted, at least as much. Returns `None`
    /// without waiting if too little is free now; a drain frees more.
    fn admit(&self, slot: usize, bytes: u64) -> Option<u64>;

    /// Returns whether the session in `slot` should have space freed before it runs out. A hint; false by default.
    fn is_short(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// Takes back `bytes` that were admitted for `slot` and not used. Returns whether another session may use them,
    /// which then is told.
    fn give_back(&self, slot: usize, bytes: u64) -> bool;

    /// Appends a record that the session was admitted for, and returns its LSN. See the contract of the trait.
    fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn;

    /// Returns an upper bound of the LSNs handed out so far.
    fn current(&self) -> Lsn;

    /// Returns whether LSNs up to `lsn` may have been handed out. Called for every commit, where [`LogBuffer::current`]
    /// may have to read every slot.
    fn reaches(&self, lsn: Lsn) -> bool {
        lsn <= self.current()
    }

    /// Returns the clock of commits: a stamp at or above that of every record with
    /// [`flags::COMMIT`](crate::flags::COMMIT) whose append happened before this call. The clock is changed by
    /// read-modify-writes alone, so a reader of a value sees what came before the append of every commit up to it.
    fn commit_clock(&self) -> Lsn;

    /// Raises the clock of commits to `to`, so that a later cut may reach it without a record of that stamp. Returns
    /// false, and changes nothing, where a stamp is the position of a record: there a record has to be appended
    /// instead.
    fn raise_commit_clock(&self, to: Lsn) -> bool;

    /// Copies publishable records into `staging`, as many whole ones as fit, and frees their space. `prev` is the last
    /// cut. One caller at a time; `staging` is empty.
    ///
    /// # Errors
    /// If it cannot be known any more what a cut may cover. The log then stops.
    fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained>;

    /// Drains for a session that needs free space: what frees some for `slot` is enough, and the cut need not rise. By
    /// default [`LogBuffer::drain`].
    ///
    /// # Errors
    /// Those of [`LogBuffer::drain`].
    fn drain_for(&self, slot: usize, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let _ = slot;
        self.drain(prev, staging)
    }
}

/// Makes a log buffer in place of lanes, for [`LogOptions::buffer`](crate::LogOptions::buffer).
///
/// All buffers write the same format, so each opening of a log may choose another one.
pub trait MakeLogBuffer: fmt::Debug + Send + Sync {
    /// Returns whether large records reach the buffer as fragments. Then a record takes at most an eighth of the
    /// buffer, and a larger one is appended in several. Otherwise a record takes at most a quarter, and a larger one is
    /// refused.
    fn fragments(&self) -> bool;

    /// Makes the buffer of one log.
    ///
    /// # Errors
    /// What the system answered to the request for memory.
    fn make(&self, new: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>>;
}

/// What a log buffer is made for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewLogBuffer<'a> {
    /// Bytes of memory: [`LogOptions::ring_bytes`](crate::LogOptions::ring_bytes). A session takes at most a quarter.
    pub bytes: usize,
    /// The first LSN is greater.
    pub floor: Lsn,
    /// The slots of all sessions: how many there are, and how many have been used.
    pub slots: &'a Arc<Slots>,
}

/// What a call of [`LogBuffer::drain`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every record with an LSN up to here has been copied by this call or an earlier one. Never below the last cut.
    pub cut: Lsn,
    /// Not everything publishable fitted: the next call goes on. The cut may stand still meanwhile.
    pub more: bool,
}
