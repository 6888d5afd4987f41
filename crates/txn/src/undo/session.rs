//! The undo of one session: the entries of its transaction, and the chunks that it fills.

mod back;

use super::arena::{Arena, Copies, Queued};
use super::change::{Link, Undoable};
use super::chunk::Open;
use super::entry;
use super::holder::{Holder, KEPT, SPARE, Shelf, YOUNG};
use super::pointer::{CHUNK_WORDS, UndoPtr};
use foreshore_base::{Csn, Error, Lsn, Result};
use foreshore_sync::{model::mutant, pause};
use std::{collections::HashMap, sync::Arc};

/// Full chunks of a transaction that are made spillable together.
const MANY: usize = 8;

/// Words of memory that is asked for before it is written: those of an entry of a small row.
const AHEAD: usize = 32;

/// So many of the chunks donated last are looked through for one that has come back.
const SOON: usize = 4;

/// The undo entries of one transaction at a time, and the chunks that its session fills.
#[derive(Debug)]
pub(crate) struct Undo {
    arena: Arc<Arena>,
    holder: Arc<Holder>,
    /// The chunks that it fills.
    open: Shelf,
    /// Chunks that the transaction has filled.
    full: Vec<Open>,
    /// Chunks with entries of the transaction that it does not hold.
    shared: Vec<usize>,
    /// Full chunks that are spillable, and how often each is shared.
    spillable: HashMap<usize, u64>,
    newest: UndoPtr,
    /// How many entries the transaction has.
    entries: u64,
    /// Words of these entries.
    words: usize,
    /// The most words that the transaction has asked for at once.
    most: usize,
    /// Bytes of the newest entry's body, as it is undone.
    body: Vec<u8>,
    /// Copies of the spillable chunks through which a rollback goes. Not kept by a transaction that waits, parked or
    /// prepared.
    copies: Copies,
}

/// A place among the entries of a transaction, and what it had of chunks there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The newest entry.
    pub(crate) newest: UndoPtr,
    /// How many chunks it had filled.
    full: usize,
    /// How many it shared.
    shared: usize,
    /// The chunks with entries of it that it held and had not filled. The first chunk, which is never used, where there
    /// was none.
    open: [usize; 2],
}

#[cfg(test)]
impl Place {
    /// With nothing in chunks.
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

    /// Makes sure that one entry with `bytes` of body and image fits. After it [`push`](Self::push) cannot fail.
    /// `horizon` tells what no transaction needs any more, if more memory has to be found. `kept`: there are old
    /// readers.
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
            // Apart from the others lies of what readers keep only what there is space for.
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

    /// Enters a change, whose LSN comes later. Space for it was reserved.
    pub(crate) fn push(&mut self, change: &Undoable<'_>, link: &Link) -> UndoPtr {
        let rest = change.before.map_or(0, |before| before.front.len() + before.back.len());
        let words = entry::words(change.body.len() + rest);
        let lacks = |open: &Option<Open>| open.as_ref().is_none_or(|open| open.capacity() < words);
        // An entry to be kept lies among the others where no space was reserved for it, because the reader has come
        // since.
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
        // Whether or not there are old readers; beside them chunks are used again after so long that no cache has them.
        let next = UndoPtr::to(open.chunk, open.at);
        self.arena.prefetch_words(next, open.capacity().min(AHEAD));
        self.newest = pointer;
        self.entries += 1;
        self.words += len;
        pointer
    }

    /// Gives the newest entry the LSN of its record, and returns the length of its body.
    pub(crate) fn stamp_newest(&mut self, lsn: Lsn) -> usize {
        let entry = self.arena.entry(self.newest).expect("an undoable change has an undo entry before it is logged");
        assert!(entry.lsn() == Lsn::ZERO, "an undo entry is stamped once");
        entry.set_lsn(lsn);
        entry.body_len()
    }

    /// The newest entry. What is entered from now on lies behind it.
    pub(crate) const fn newest(&self) -> UndoPtr {
        self.newest
    }

    /// Returns how many entries the transaction has: as many versions of rows it keeps.
    pub(crate) const fn entries(&self) -> u64 {
        self.entries
    }

    /// The place that the transaction has reached.
    pub(crate) fn place(&self) -> Place {
        let open = [YOUNG, KEPT].map(|at| self.open[at].as_ref().filter(|open| open.mine).map_or(0, |open| open.chunk));
        Place { newest: self.newest, full: self.full.len(), shared: self.shared.len(), open }
    }

    /// Makes full chunks spillable. The transaction can go back to no [`Place`], so it changes nothing of what it has
    /// entered before it rolls back all. Returns whether there were any.
    pub(crate) fn let_spill(&mut self) -> bool {
        self.arena.can_spill() && self.arena.make_spillable(&mut self.full, &mut self.shared, &mut self.spillable)
    }

    /// Names the lock owner of the session.
    pub(crate) fn set_owner(&self, index: usize) {
        self.holder.set_owner(index);
    }

    /// Takes back the chunks that the transaction before has filled in part, if no search has taken them.
    fn take_from_shelf(&mut self) {
        if let Some(chunks) = self.holder.take_from_shelf() {
            self.open = chunks;
        }
    }

    /// The transaction has ended: what is not full is for the next one of the session, and for every search before
    /// that.
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

    /// The session waits for memory from now on, until [`leave_queue`](Self::leave_queue).
    pub(crate) fn join_queue(&self) {
        self.arena.join_queue(&self.holder);
    }

    /// Ends the wait that [`join_queue`](Self::join_queue) began.
    pub(crate) fn leave_queue(&self) {
        self.arena.leave_queue(&self.holder);
    }

    /// Begins a look for space for an entry of `bytes` by a session in the queue.
    pub(crate) fn begin_look(&self, bytes: usize) -> Queued {
        self.arena.begin_look(&self.holder, bytes)
    }

    /// Ends a look of the first in the queue, which has found nothing.
    pub(crate) fn end_look(&self) {
        self.arena.end_look();
    }

    /// Returns what the session finds that waits for an entry of `bytes`.
    pub(crate) fn queued(&self, bytes: usize) -> Queued {
        self.arena.queued(&self.holder, bytes)
    }

    /// Memory is spent: nothing is kept from others, and donated chunks with little capacity are closed, and may be
    /// moved as well if `may_spill`.
    pub(crate) fn fill_up(&mut self, may_spill: bool) {
        self.release(false);
        if self.arena.can_spill() {
            self.arena.close_donated();
        }
        if may_spill {
            self.let_spill();
        }
    }

    /// All entries behind `place` have been dropped or kept. Returns chunks that have none left of this transaction,
    /// though others have some there, so that a thread that goes back again and again needs no more memory each time.
    pub(crate) fn give_back(&mut self, place: &Place) {
        let Self { arena, full, shared, open, .. } = self;
        // With those that were full or donated before: they have no newer entries, or got newer ones in another of
        // these ways.
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

    /// An operation is over: where memory is short, others may have what it does not need. `may_spill`: the transaction
    /// can go back to no [`Place`], so full chunks may be moved to the file, though it may not come back soon.
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

    /// Leaves the chunks on the shelves of all sessions to all.
    pub(crate) fn clear_shelves(&self) {
        self.arena.clear_shelves();
    }

    /// Donates the chunks that are not full. Returns whether there were any.
    fn donate(&mut self) -> bool {
        let mut chunks = std::mem::take(&mut self.open);
        for open in chunks.iter_mut().flatten().filter(|open| open.mine) {
            // One that comes back soon is counted once.
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

    /// Returns whether the transaction, with the entry that it has just asked for, is sure to fit if no other enters
    /// anything: only one that does not is too large.
    pub(crate) fn fits_alone(&self) -> bool {
        self.words <= self.arena.sure_words(self.most)
    }

    /// Returns whether it has chunks that are not full.
    fn has_open(&self) -> bool {
        self.open.iter().any(Option::is_some)
    }

    /// Returns whether it has anything that others may wait for.
    fn has_any(&self) -> bool {
        self.has_open() || !(self.full.is_empty() && self.shared.is_empty() && self.spillable.is_empty())
    }

    /// The transaction has ended with this commit number, zero if all its entries were dropped. The caller calls
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
