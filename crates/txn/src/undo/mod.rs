//! Undo: what a running transaction would have to take back, and what others may still have to read.
//!
//! An entry holds the very bytes that the log record of its change holds, so that a rollback at run time, from here, and
//! one at restart, from the log, run the same code. A crash needs none of this memory.
//!
//! It also holds the row as it was before the change, whose transaction's entry, if there was one, is the next older
//! version of the row. If no transaction sees that version the entry leads past it, and keeps it for a rollback alone (see
//! [`versions`]). Where a transaction locks a row and enters nothing before it changes the row, the change takes the place
//! of the lock: a row that is changed has one entry then, as if it had not been locked before.
//!
//! Entries outlive their transactions for as long as a transaction may look for one (see [`arena`]).
//! Where memory is spent they go to a temporary file (see [`spill`] and [`fetch`]).

mod arena;
mod back;
mod change;
mod copies;
mod entry;
mod fetch;
mod fit;
mod queue;
mod spill;
mod versions;

pub(crate) use arena::{Arena, Open};
pub(crate) use change::Link;
pub use change::{Before, MAX_STRUCTURE, UndoEntry, Undoable};
pub use fetch::Fetched;
pub(crate) use queue::Queued;
pub use spill::SpillFile;
pub(crate) use versions::Older;

use copies::Copies;
use entry::Entry;

use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::{model::mutant, pause};
use queue::{Holder, Shelf};
use std::{collections::HashMap, sync::Arc};

/// Where an entry lies, in the 48 bits that a tuple header has for it: a word of the arena, or null. It means something only
/// to those that cannot see what the transaction whose xid stands beside it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UndoPtr(u64);

impl UndoPtr {
    /// Leads nowhere.
    pub const NULL: Self = Self(0);

    /// A pointer from 48 bits of a tuple header.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << 48) - 1))
    }

    /// The 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The chunk that it points to.
    const fn chunk(self) -> usize {
        self.0 as usize / arena::CHUNK_WORDS
    }
}

/// Full chunks of a transaction that are let go together.
const MANY: usize = 8;

/// Words of memory that is asked for before it is written: those of an entry of a small row.
const AHEAD: usize = 32;

/// So many of the chunks last left to others are looked through for one that has come back.
const SOON: usize = 4;

/// The undo entries of one transaction at a time, and the chunks that its session fills.
#[derive(Debug)]
pub(crate) struct Undo {
    arena: Arc<Arena>,
    holder: Arc<Holder>,
    /// Where entries go: those that go soon, and those that old readers keep.
    open: [Option<Open>; 2],
    /// The next one: room is reserved before it is known how much is needed.
    spare: Option<Open>,
    /// Chunks that the transaction has filled.
    full: Vec<Open>,
    /// Chunks with entries of the transaction that were left to others.
    lent: Vec<usize>,
    /// Full chunks that may be moved to the file, or were, and how often each was left.
    agreed: HashMap<usize, u64>,
    newest: UndoPtr,
    /// How many entries the transaction has.
    entries: u64,
    /// Words of these entries.
    words: usize,
    /// The most words that the transaction has asked for at once.
    most: usize,
    /// Bytes of the newest entry's body, as it is taken back.
    body: Vec<u8>,
    /// Of the chunks that are taken back and may be moved. Not kept by a transaction that waits, parked or prepared.
    copies: Copies,
}

/// A place among the entries of a transaction, and what it had of chunks there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The newest entry.
    pub(crate) newest: UndoPtr,
    /// How many chunks it had filled.
    full: usize,
    /// How often it had left one to others.
    lent: usize,
    /// The chunks with entries of it that it held and had not filled. The first chunk, which is never used, where there was none.
    open: [usize; 2],
}

#[cfg(test)]
impl Place {
    /// With nothing in chunks.
    pub(crate) const fn at(newest: UndoPtr) -> Self {
        Self { newest, full: 0, lent: 0, open: [0; 2] }
    }
}

impl Undo {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        let holder = arena.enter();
        Self {
            arena,
            holder,
            open: [None, None],
            spare: None,
            full: Vec::new(),
            lent: Vec::new(),
            agreed: HashMap::new(),
            newest: UndoPtr::NULL,
            entries: 0,
            words: 0,
            most: 0,
            body: Vec::new(),
            copies: Copies::default(),
        }
    }

    /// Makes sure that one entry with `bytes` of body and image fits. After it [`push`](Self::push) cannot fail.
    /// `horizon` tells what no transaction needs any more, if more memory has to be found. `kept`: there are old readers.
    pub(crate) fn reserve(&mut self, bytes: usize, kept: bool, horizon: impl FnOnce() -> Csn) -> Result<()> {
        let words = entry::words(bytes);
        self.most = self.most.max(words);
        if !self.has_open() {
            self.take_from_shelf();
        }
        let fits = |open: &Option<Open>| open.as_ref().is_some_and(|open| open.room() >= words);
        if fits(&self.spare) || (fits(&self.open[0]) && (!kept || fits(&self.open[1]))) {
            self.holder.set(true);
            return Ok(());
        }
        assert!(words <= arena::CHUNK_WORDS, "a chunk has room for the undo of a row of any size");
        let Some(spare) = self.arena.take(words, horizon, &self.holder) else {
            // Apart from what is kept for readers lies only what there is room for.
            if !fits(&self.open[0]) {
                return Err(Error::TransactionTooLarge { max: self.arena.limit_bytes() });
            }
            self.holder.set(true);
            return Ok(());
        };
        pause::point("undo: a chunk is in hand");
        self.holder.set(true);
        self.full.extend(self.spare.replace(spare));
        Ok(())
    }

    /// Enters a change, whose LSN comes later. Room for it was reserved.
    pub(crate) fn push(&mut self, change: &Undoable<'_>, link: &Link) -> UndoPtr {
        let rest = change.before.map_or(0, |before| before.front.len() + before.back.len());
        let words = entry::words(change.body.len() + rest);
        let lacks = |open: &Option<Open>| open.as_ref().is_none_or(|open| open.room() < words);
        // Where no room was reserved for an entry to be kept, because the reader has come since, it lies among the others.
        let apart = link.kept && (!lacks(&self.spare) || !lacks(&self.open[1]));
        let place = &mut self.open[usize::from(apart)];
        if lacks(place) {
            let full = std::mem::replace(place, self.spare.take());
            self.full.extend(full);
        }
        let open = place.as_mut().filter(|open| open.room() >= words);
        let open = open.expect("room for an undo entry was reserved");
        let pointer = UndoPtr((open.chunk * arena::CHUNK_WORDS + open.at) as u64);
        let place = self.arena.words(pointer).expect("a chunk of the arena");
        let len = entry::write(place, change, link, self.newest);
        assert_eq!(len, words, "words of an undo entry that were written, and that were reserved");
        open.at += len;
        open.entries += 1;
        open.mine = true;
        open.kept &= apart;
        // Whether or not there are old readers; beside them chunks are used again after so long that no cache has them.
        let next = UndoPtr((open.chunk * arena::CHUNK_WORDS + open.at) as u64);
        self.arena.prefetch_words(next, open.room().min(AHEAD));
        self.newest = pointer;
        self.entries += 1;
        self.words += len;
        pointer
    }

    /// Gives the newest entry the LSN of its record, and returns the length of its body.
    pub(crate) fn stamp_newest(&mut self, lsn: Lsn) -> usize {
        let entry =
            Entry::at(&self.arena, self.newest).expect("an undoable change has an undo entry before it is logged");
        assert!(entry.lsn() == Lsn::ZERO, "an undo entry is stamped once");
        entry.set_lsn(lsn);
        entry.body_len()
    }

    /// The newest entry. What is entered from now on lies behind it.
    pub(crate) const fn newest(&self) -> UndoPtr {
        self.newest
    }

    /// How many entries the transaction has: as many versions of rows it keeps.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// The place that the transaction has reached.
    pub(crate) fn place(&self) -> Place {
        let open = [0, 1].map(|at| self.open[at].as_ref().filter(|open| open.mine).map_or(0, |open| open.chunk));
        Place { newest: self.newest, full: self.full.len(), lent: self.lent.len(), open }
    }

    /// Lets full chunks be moved to the file. The transaction can go back to no [`Place`], so it changes nothing of what it has
    /// entered until it takes back all. Whether there were any.
    pub(crate) fn agree_to_move(&mut self) -> bool {
        self.arena.can_spill() && self.arena.agree(&mut self.full, &mut self.lent, &mut self.agreed)
    }

    /// Names the lock owner of the session.
    pub(crate) fn set_owner(&self, index: usize) {
        self.holder.set_owner(index);
    }

    /// Takes back the chunks that the transaction before has filled in part, if no search has taken them.
    fn take_from_shelf(&mut self) {
        if let Some([young, kept, spare]) = self.holder.take_from_shelf() {
            (self.open, self.spare) = ([young, kept], spare);
        }
    }

    /// The transaction has ended: what is not full is for the next one of the session, and for every search before that.
    pub(crate) fn put_on_shelf(&mut self) {
        if mutant("undo: a session holds nothing before its chunks are on the shelf") {
            self.holder.set(false);
        }
        pause::point("txn: a lease is about to be idle");
        if self.has_open() {
            let chunks = self.take_open();
            self.holder.put_on_shelf(chunks);
        }
        self.holder.set(false);
    }

    /// The session waits for memory from now on, until [`leave_queue`](Self::leave_queue).
    pub(crate) fn join_queue(&self) {
        self.arena.join_queue(&self.holder);
    }

    /// See [`join_queue`](Self::join_queue).
    pub(crate) fn leave_queue(&self) {
        self.arena.leave_queue(&self.holder);
    }

    /// Begins a look for room for an entry of `bytes` by a session in the queue.
    pub(crate) fn begin_look(&self, bytes: usize) -> Queued {
        self.arena.begin_look(&self.holder, bytes)
    }

    /// Ends a look of the first in the queue, which has found nothing.
    pub(crate) fn end_look(&self) {
        self.arena.end_look();
    }

    /// What the session finds that waits for an entry of `bytes`.
    pub(crate) fn queued(&self, bytes: usize) -> Queued {
        self.arena.queued(&self.holder, bytes)
    }

    /// Memory is spent: nothing is kept from others, and what was left with little room is full, and may be moved as well if
    /// `may_agree`.
    pub(crate) fn fill_up(&mut self, may_agree: bool) {
        self.release(false);
        if self.arena.can_spill() {
            self.arena.close_partial();
        }
        if may_agree {
            self.agree_to_move();
        }
    }

    /// All entries behind `place` have been dropped or kept. Gives up chunks that have none left of this transaction, though others
    /// have some there, so that a thread that goes back again and again needs no more memory each time.
    pub(crate) fn give_back(&mut self, place: &Place) {
        let Self { arena, full, lent, open, .. } = self;
        // With those that were full or left before: they have no newer entries, or got newer ones in another of these ways.
        let (mut mine, mut next) = (place.open.to_vec(), self.newest);
        while next != place.newest {
            mine.push(next.chunk());
            next = Entry::at(arena, next).expect("an arena holds whole entries").previous();
        }
        mine.sort_unstable();
        let is_mine = |chunk: usize| mine.binary_search(&chunk).is_ok();
        let others =
            full.extract_if(place.full.., |open| !is_mine(open.chunk)).map(|open| Open { mine: false, ..open });
        let others: Vec<Open> = others.collect();
        if !others.is_empty() {
            arena.leave(others.into_iter());
        }
        lent.extract_if(place.lent.., |chunk| !is_mine(*chunk)).for_each(|chunk| arena.ended(chunk, Csn::ZERO));
        open.iter_mut().flatten().for_each(|open| open.mine &= is_mine(open.chunk));
        arena.tell();
    }

    /// An operation is over: where memory is short, others may have what it does not need. `may_agree`: the transaction can go back
    /// to no [`Place`], so full chunks may be moved to the file, though it may not come back soon.
    pub(crate) fn release(&mut self, may_agree: bool) {
        self.copies = Copies::default();
        let is_short = self.arena.is_short();
        if mutant("undo: a session gives its chunk up after it is counted") {
            self.holder.set(false);
        }
        pause::point("undo: a chunk is in hand");
        let mut tells = is_short && self.leave();
        if may_agree && (is_short || self.full.len() >= MANY) {
            tells |= self.agree_to_move();
        }
        if !self.has_any() {
            self.holder.set(false);
        }
        if tells {
            self.arena.tell();
        }
    }

    /// The chunks that are not full.
    fn take_open(&mut self) -> Shelf {
        let [young, kept] = &mut self.open;
        [young, kept, &mut self.spare].map(Option::take)
    }

    /// Leaves the chunks on the shelves of all sessions to all.
    pub(crate) fn clear_shelves(&self) {
        self.arena.clear_shelves();
    }

    /// Leaves what has room to others. Whether there was any.
    fn leave(&mut self) -> bool {
        let mut chunks = self.take_open();
        for open in chunks.iter_mut().flatten().filter(|open| open.mine) {
            // One that comes back soon is counted once.
            if self.lent.iter().rev().take(SOON).any(|&chunk| chunk == open.chunk) {
                open.mine = false;
            } else {
                self.lent.push(open.chunk);
            }
        }
        let any = chunks.iter().any(Option::is_some);
        if any {
            self.arena.leave(chunks.into_iter().flatten());
        }
        any
    }

    /// Whether it has chunks that are not full.
    fn has_open(&self) -> bool {
        self.spare.is_some() || self.open.iter().any(Option::is_some)
    }

    /// Whether it has anything that others may wait for.
    fn has_any(&self) -> bool {
        self.has_open() || !(self.full.is_empty() && self.lent.is_empty() && self.agreed.is_empty())
    }

    /// The transaction has ended with this commit number, zero if all its entries were dropped. The caller calls [`Arena::tell`] once the
    /// lease is idle.
    pub(crate) fn end(&mut self, csn: Csn) {
        assert!(self.entries > 0 || self.words == 0, "no undo entry is left, and {} words of them", self.words);
        let full = self.full.drain(..).map(|open| Open { newest: open.newest.max(csn), ..open });
        self.arena.close(full);
        self.lent.drain(..).for_each(|chunk| self.arena.ended(chunk, csn));
        self.arena.take_leave(&mut self.agreed, csn);
        self.copies = Copies::default();
        for open in self.open.iter_mut().flatten().filter(|open| open.mine) {
            (open.newest, open.mine) = (open.newest.max(csn), false);
        }
        (self.newest, self.entries, self.words, self.most) = (UndoPtr::NULL, 0, 0, 0);
        if self.arena.is_short() {
            self.leave();
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.leave();
        self.arena.exit(&self.holder);
        self.arena.leave(self.holder.clear_shelf().into_iter().flatten());
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
