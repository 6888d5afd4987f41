//! The undo of one session: the entries of its current transaction, and the chunks that it fills.
//!
//! | chunks | are |
//! |---|---|
//! | `open` | not full; between two transactions they are on the shelf (see [`Holder`]) |
//! | `full` | filled by the current transaction, and held |
//! | `shared` | donated, with entries of the current transaction |
//! | `spillable` | full chunks that may be moved to the spill file; the transaction only reads them |
//!
//! **Protocol of a change:**
//!
//! 1. [`reserve`](Undo::reserve) space, which may fail.
//! 2. [`push`](Undo::push) the entry, which cannot fail.
//! 3. [`stamp_newest`](Undo::stamp_newest) with the LSN of the log record.
//!
//! **Invariant:** only the session writes entries into the chunks that it holds.

mod back;
mod several;

pub use self::several::SeveralUndo;

use super::arena::{Arena, Copies, Queued};
use super::change::{Link, Undoable};
use super::chunk::Open;
use super::entry;
use super::holder::{Holder, KEPT, SPARE, Shelf, YOUNG};
use super::pointer::{CHUNK_WORDS, UndoPtr};
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::{model::mutant, pause};
use std::{collections::HashMap, sync::Arc};

/// A transaction with this many full chunks makes them spillable, even if memory is not short.
const MANY: usize = 8;

/// The words that are prefetched before they are written. An entry of a small row takes as many.
const AHEAD: usize = 32;

/// How many of the last shared chunks are searched for a chunk that is donated again.
const SOON: usize = 4;

/// The undo entries of the session's current transaction, and the chunks that the session fills.
#[derive(Debug)]
pub(crate) struct Undo {
    arena: Arc<Arena>,
    holder: Arc<Holder>,
    /// The chunks that are not full.
    open: Shelf,
    /// The chunks that the transaction has filled.
    full: Vec<Open>,
    /// The chunks with entries of the transaction that it does not hold.
    shared: Vec<usize>,
    /// The full chunks that are spillable, and how often the transaction shares each of them.
    spillable: HashMap<usize, u64>,
    newest: UndoPtr,
    /// The number of entries of the transaction.
    entries: u64,
    /// The words of these entries.
    words: usize,
    /// The words of the largest entry for which the transaction has asked for space.
    most: usize,
    /// The body of the entry that is being undone.
    body: Vec<u8>,
    /// Copies of the spillable chunks through which a rollback goes. A transaction that waits, parked or prepared,
    /// keeps none.
    copies: Copies,
}

/// A position among the entries of a transaction, and the chunks that the transaction had there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The newest entry.
    pub(crate) newest: UndoPtr,
    /// How many chunks were full.
    full: usize,
    /// How many chunks were shared.
    shared: usize,
    /// The chunks that it held, with entries of its own, and that were not full. Zero, the chunk that is never used,
    /// stands for none.
    open: [usize; 2],
}

#[cfg(test)]
impl Place {
    /// Returns a place at which the transaction has no chunks.
    pub(crate) const fn at(newest: UndoPtr) -> Self {
        Self { newest, full: 0, shared: 0, open: [0; 2] }
    }
}

impl Undo {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        let holder = arena.enter();
        Self {
            arena,
            holder,
            open: Shelf::default(),
            full: Vec::new(),
            shared: Vec::new(),
            spillable: HashMap::new(),
            newest: UndoPtr::NULL,
            entries: 0,
            words: 0,
            most: 0,
            body: Vec::new(),
            copies: Copies::default(),
        }
    }

    /// Reserves space for one entry with `bytes` of body and image. Afterwards [`push`](Self::push) of such an entry
    /// cannot fail.
    ///
    /// `horizon` returns the commit up to which replaced versions are not needed, if a chunk has to be found. `kept`:
    /// there are old readers.
    pub(crate) fn reserve(&mut self, bytes: usize, kept: bool, horizon: impl FnOnce() -> Csn) -> Result<()> {
        let words = entry::words(bytes);
        self.most = self.most.max(words);
        if !self.has_open() {
            self.take_from_shelf();
        }
        let fits = |open: &Option<Open>| open.as_ref().is_some_and(|open| open.capacity() >= words);
        if fits(&self.open[SPARE]) || (fits(&self.open[YOUNG]) && (!kept || fits(&self.open[KEPT]))) {
            self.holder.set(true);
            return Ok(());
        }
        assert!(words <= CHUNK_WORDS, "a chunk has space for the undo of a row of any size");
        let Some(spare) = self.arena.take(words, horizon, &self.holder) else {
            // Kept entries are stored apart only if there is space for that.
            if !fits(&self.open[YOUNG]) {
                return Err(Error::TransactionTooLarge { max: self.arena.limit_bytes() });
            }
            self.holder.set(true);
            return Ok(());
        };
        pause::point("undo: a chunk is in hand");
        self.holder.set(true);
        self.full.extend(self.open[SPARE].replace(spare));
        Ok(())
    }

    /// Enters a change, whose LSN is set later. Space for the entry was reserved.
    pub(crate) fn push(&mut self, change: &Undoable<'_>, link: &Link) -> UndoPtr {
        let rest = change.before.map_or(0, |before| before.front.len() + before.back.len());
        let words = entry::words(change.body.len() + rest);
        let lacks = |open: &Option<Open>| open.as_ref().is_none_or(|open| open.capacity() < words);
        // An old reader may have come after the reservation, so no space was reserved apart. Then its entry is stored
        // among the others.
        let [young, old, spare] = &mut self.open;
        let apart = link.kept && (!lacks(spare) || !lacks(old));
        let place = if apart { old } else { young };
        if lacks(place) {
            let full = std::mem::replace(place, spare.take());
            self.full.extend(full);
        }
        let open = place.as_mut().filter(|open| open.capacity() >= words);
        let open = open.expect("space for an undo entry was reserved");
        let pointer = UndoPtr::to(open.chunk, open.at);
        let place = self.arena.words(pointer).expect("a chunk of the arena");
        let len = entry::write(place, change, link, self.newest);
        assert_eq!(len, words, "words of an undo entry that were written, and that were reserved");
        open.at += len;
        open.entries += 1;
        open.mine = true;
        open.kept &= apart;
        // Useful with old readers or without: while they exist, chunks are reused so late that they have left the
        // caches.
        let next = UndoPtr::to(open.chunk, open.at);
        self.arena.prefetch_words(next, open.capacity().min(AHEAD));
        self.newest = pointer;
        self.entries += 1;
        self.words += len;
        pointer
    }

    /// Sets the LSN of the newest entry, and returns the length of its body.
    pub(crate) fn stamp_newest(&mut self, lsn: Lsn) -> usize {
        let entry = self.arena.entry(self.newest).expect("an undoable change has an undo entry before it is logged");
        assert!(entry.lsn() == Lsn::ZERO, "an undo entry is stamped once");
        entry.set_lsn(lsn);
        entry.body_len()
    }

    /// Returns the newest entry of the transaction.
    pub(crate) const fn newest(&self) -> UndoPtr {
        self.newest
    }

    /// Returns how many entries the transaction has. It keeps as many versions of rows.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// Returns the current position of the transaction.
    pub(crate) fn place(&self) -> Place {
        let open = [YOUNG, KEPT].map(|at| self.open[at].as_ref().filter(|open| open.mine).map_or(0, |open| open.chunk));
        Place { newest: self.newest, full: self.full.len(), shared: self.shared.len(), open }
    }

    /// Makes the full chunks spillable. Returns whether there were any.
    ///
    /// The transaction can go back to no [`Place`]. So it does not change its earlier entries before it rolls back all
    /// of them.
    pub(crate) fn let_spill(&mut self) -> bool {
        self.arena.can_spill() && self.arena.make_spillable(&mut self.full, &mut self.shared, &mut self.spillable)
    }

    /// Sets the lock owner of the session.
    pub(crate) fn set_owner(&self, index: usize) {
        self.holder.set_owner(index);
    }

    /// Takes the partly filled chunks of the previous transaction from the shelf, if no search has taken them.
    fn take_from_shelf(&mut self) {
        if let Some(chunks) = self.holder.take_from_shelf() {
            self.open = chunks;
        }
    }

    /// Puts the chunks that are not full on the shelf, after the transaction has ended. The next transaction of the
    /// session takes them, or any search before that.
    pub(crate) fn put_on_shelf(&mut self) {
        if mutant("undo: a session holds nothing before its chunks are on the shelf") {
            self.holder.set(false);
        }
        pause::point("txn: a lease is about to be idle");
        if self.has_open() {
            self.holder.put_on_shelf(std::mem::take(&mut self.open));
        }
        self.holder.set(false);
    }

    /// Puts the session into the queue for memory, until [`leave_queue`](Self::leave_queue).
    pub(crate) fn join_queue(&self) {
        self.arena.join_queue(&self.holder);
    }

    /// Takes the session out of the queue.
    pub(crate) fn leave_queue(&self) {
        self.arena.leave_queue(&self.holder);
    }

    /// Begins a search for space for an entry of `bytes`, by a session in the queue.
    pub(crate) fn begin_search(&self, bytes: usize) -> Queued {
        self.arena.begin_search(&self.holder, bytes)
    }

    /// Ends a search in which the first session of the queue found nothing.
    pub(crate) fn end_search(&self) {
        self.arena.end_search();
    }

    /// Returns the state of the queue for this session, which waits for an entry of `bytes`.
    pub(crate) fn queued(&self, bytes: usize) -> Queued {
        self.arena.queued(&self.holder, bytes)
    }

    /// Returns to others what the session does not need, when memory is spent. Donates its open chunks and closes
    /// donated chunks with little capacity. If `may_spill`, makes its full chunks spillable.
    pub(crate) fn return_unneeded(&mut self, may_spill: bool) {
        self.release(false);
        if self.arena.can_spill() {
            self.arena.close_donated();
        }
        if may_spill {
            self.let_spill();
        }
    }

    /// Returns the chunks that have no entries of this transaction left, after a rollback to `place`. All entries after
    /// `place` have been dropped or kept.
    ///
    /// So a transaction that rolls back to a savepoint again and again needs no more memory each time.
    pub(crate) fn give_back(&mut self, place: &Place) {
        let Self { arena, full, shared, open, .. } = self;
        // The chunks that the transaction keeps: those listed here, and those that were full or shared at `place`. The
        // latter have no newer entries, or are listed here as well.
        let (mut mine, mut next) = (place.open.to_vec(), self.newest);
        while next != place.newest {
            mine.push(next.chunk());
            next = arena.entry(next).expect("an arena holds whole entries").previous();
        }
        mine.sort_unstable();
        let is_mine = |chunk: usize| mine.binary_search(&chunk).is_ok();
        let others =
            full.extract_if(place.full.., |open| !is_mine(open.chunk)).map(|open| Open { mine: false, ..open });
        let others: Vec<Open> = others.collect();
        if !others.is_empty() {
            arena.donate(others.into_iter());
        }
        shared.extract_if(place.shared.., |chunk| !is_mine(*chunk)).for_each(|chunk| arena.unshare(chunk, Csn::ZERO));
        open.iter_mut().flatten().for_each(|open| open.mine &= is_mine(open.chunk));
        arena.tell();
    }

    /// Ends an operation: while memory is short, other sessions may have the chunks that it does not need.
    ///
    /// `may_spill`: the transaction can go back to no [`Place`]. Its full chunks may be moved to the file, since its
    /// next operation may be far away.
    pub(crate) fn release(&mut self, may_spill: bool) {
        self.copies = Copies::default();
        let is_short = self.arena.is_short();
        if mutant("undo: a session gives its chunk up after it is counted") {
            self.holder.set(false);
        }
        pause::point("undo: a chunk is in hand");
        let mut tells = is_short && self.donate();
        if may_spill && (is_short || self.full.len() >= MANY) {
            tells |= self.let_spill();
        }
        if !self.has_any() {
            self.holder.set(false);
        }
        if tells {
            self.arena.tell();
        }
    }

    /// Returns whether the session has no undo memory that the end of an operation returns.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_any() && self.copies.is_empty() && !self.holder.holds()
    }

    /// Returns whether the transaction has requested no space for undo, so that its end has nothing to do.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.most == 0 && self.entries == 0 && self.is_idle()
    }

    /// Donates the chunks on the shelves of all sessions.
    pub(crate) fn clear_shelves(&self) {
        self.arena.clear_shelves();
    }

    /// Donates the chunks that are not full. Returns whether there were any.
    fn donate(&mut self) -> bool {
        let mut chunks = std::mem::take(&mut self.open);
        for open in chunks.iter_mut().flatten().filter(|open| open.mine) {
            // A chunk that is donated again soon is counted as shared only once.
            if self.shared.iter().rev().take(SOON).any(|&chunk| chunk == open.chunk) {
                open.mine = false;
            } else {
                self.shared.push(open.chunk);
            }
        }
        let any = chunks.iter().any(Option::is_some);
        if any {
            self.arena.donate(chunks.into_iter().flatten());
        }
        any
    }

    /// Returns whether the transaction, with the entry that it has just asked for, is sure to fit if no other
    /// transaction enters anything. Only a transaction for which this is false is too large.
    pub(crate) fn fits_alone(&self) -> bool {
        self.words <= self.arena.sure_words(self.most)
    }

    /// Returns whether the session has chunks that are not full.
    fn has_open(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }

    /// Returns whether the session has chunks for which others may wait.
    fn has_any(&self) -> bool {
        self.has_open() || !(self.full.is_empty() && self.shared.is_empty() && self.spillable.is_empty())
    }

    /// Ends the transaction with commit number `csn`, zero if all its entries were dropped. The caller calls
    /// [`Arena::tell`] once the lease is idle.
    pub(crate) fn end(&mut self, csn: Csn) {
        assert!(self.entries > 0 || self.words == 0, "no undo entry is left, and {} words of them", self.words);
        let full = self.full.drain(..).map(|open| Open { newest: open.newest.max(csn), ..open });
        self.arena.close(full);
        self.shared.drain(..).for_each(|chunk| self.arena.unshare(chunk, csn));
        self.arena.end_spillable(&mut self.spillable, csn);
        self.copies = Copies::default();
        for open in self.open.iter_mut().flatten().filter(|open| open.mine) {
            (open.newest, open.mine) = (open.newest.max(csn), false);
        }
        (self.newest, self.entries, self.words, self.most) = (UndoPtr::NULL, 0, 0, 0);
        if self.arena.is_short() {
            self.donate();
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.donate();
        self.arena.exit(&self.holder);
        self.arena.donate(self.holder.clear_shelf().into_iter().flatten());
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
