//! The contract between a log and its buffer.

use super::staging::Staging;
use crate::record::Record;
use crate::slots::Slots;
use foreshore_base::{Lsn, Result};
use std::sync::Arc;
use std::{fmt, io};

/// The most bytes of a group on disk.
pub const MAX_GROUP: usize = crate::format::MAX_GROUP;

/// A buffer between the sessions and the one leader. It knows stamps and cuts, but no places in a file.
///
/// A session is identified by its slot, a number below the count of slots. For lanes it is the number of the lane that
/// the session has at the time. One thread at a time calls on behalf of a slot. Between [`LogBuffer::admit`] and the
/// append that uses the admitted bytes, the slot stays leased by the same session.
///
/// The contract:
///
/// 1. **Stamps.** The LSN of a record is greater than its dependency, than every earlier LSN of its slot, and than the
///    floor that the buffer was made with.
/// 2. **Cuts.** When a drain returns the cut `S`, every record with an LSN up to `S` has been copied by it or by an
///    earlier drain. Cuts never fall. Records above the cut may have been copied, too: they are provisional until a
///    later cut.
/// 3. **Copies.** Each record is copied once, whole, and after the earlier records of its slot.
/// 4. **No waits for the disk.** `append` neither fails nor waits for a drain, because `admit` has reserved the memory.
///    A panic in `append` must not keep other sessions from appending.
pub trait LogBuffer: Send + Sync {
    /// Admits `bytes` more for the session in `slot`. Returns the admitted bytes, which may be more. Returns `None`
    /// without waiting if too little is free now; a drain frees more.
    fn admit(&self, slot: usize, bytes: u64) -> Option<u64>;

    /// Returns whether the session in `slot` should lead to free space before it runs out. A hint; false by default.
    fn is_short(&self, slot: usize) -> bool {
        let _ = slot;
        false
    }

    /// Returns `bytes` that were admitted for `slot` and not used. The result says whether other sessions may use them;
    /// the caller then notifies those.
    fn give_back(&self, slot: usize, bytes: u64) -> bool;

    /// Appends a record that the session was admitted for, and returns its LSN.
    fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn;

    /// Returns an upper bound of the LSNs assigned so far.
    fn current(&self) -> Lsn;

    /// Returns whether LSNs up to `lsn` may have been assigned. Called for every commit, so it should be cheaper than
    /// [`LogBuffer::current`], which may read every slot.
    fn reaches(&self, lsn: Lsn) -> bool {
        lsn <= self.current()
    }

    /// Returns the commit clock: a stamp at or above that of every record with [`flags::COMMIT`](crate::flags::COMMIT)
    /// whose append happened before this call. Only read-modify-writes change the clock. So a reader of the clock sees
    /// all that happened before the append of every commit up to its value.
    fn commit_clock(&self) -> Lsn;

    /// Raises the commit clock to `to`, so that a later cut may reach it without a record of that stamp. Returns false
    /// and changes nothing if stamps are positions of records: then a record has to be appended instead.
    fn raise_commit_clock(&self, to: Lsn) -> bool;

    /// Copies publishable records into `staging`, as many whole ones as fit, and frees their space. `prev` is the last
    /// cut. One caller at a time; `staging` is empty.
    ///
    /// # Errors
    /// If the buffer can no longer tell what a cut may cover. The log then stops.
    fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained>;

    /// Drains for a session that needs free space. It is enough to free some for `slot`, and the cut need not rise. The
    /// default is [`LogBuffer::drain`].
    ///
    /// # Errors
    /// Those of [`LogBuffer::drain`].
    fn drain_for(&self, slot: usize, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let _ = slot;
        self.drain(prev, staging)
    }
}

/// A maker of log buffers other than lanes, for [`LogOptions::buffer`](crate::LogOptions::buffer).
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
    /// The error of the system for the request of memory.
    fn make(&self, new: &NewLogBuffer<'_>) -> io::Result<Arc<dyn LogBuffer>>;
}

/// The parameters of a new log buffer.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct NewLogBuffer<'a> {
    /// Bytes of memory: [`LogOptions::ring_bytes`](crate::LogOptions::ring_bytes). A session takes at most a quarter.
    pub bytes: usize,
    /// All LSNs of the buffer are greater than this.
    pub floor: Lsn,
    /// The slots of all sessions, with their count and the count of those used.
    pub slots: &'a Arc<Slots>,
}

/// The result of a call of [`LogBuffer::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Every record with an LSN up to here has been copied by this call or an earlier one. Never below the last cut.
    pub cut: Lsn,
    /// Whether publishable records are left for the next call. The cut may stay the same meanwhile.
    pub more: bool,
}
