//! Undo in memory: what a running transaction would have to take back, and what others may still have to read.
//!
//! An entry holds the very bytes that the log record of its change holds, so that a rollback at run time, from here, and
//! one at restart, from the log, run the same code. A crash needs none of this memory.
//!
//! It also holds the row as it was before the change, whose transaction's entry, if there was one, is the next older
//! version of the row. Entries outlive their transactions for as long as somebody may look for one (see [`arena`]).

mod arena;
mod entry;
mod versions;

pub(crate) use arena::{Arena, Open};
pub(crate) use versions::Older;

use entry::Entry;
use foreshore_base::{Csn, Error, Lsn, Result, TableId, Xid};
use std::sync::Arc;

/// A change that can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoEntry<'a> {
    /// LSN of its record. Zero for what is only the lock of a row, in its tuple header.
    pub lsn: Lsn,
    /// Whether it is only a lock because the change is taken back and the lock was kept: the kind and the body are still those of
    /// the change.
    pub is_taken_back: bool,
    /// The kind of its record, or one of the resource manager's own for what is not logged.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its record.
    pub body: &'a [u8],
    /// The undo pointer that the tuple header gets back. Null at restart, where nobody follows one.
    pub next: UndoPtr,
    /// The entry itself, if the transaction goes on and keeps the row locked: the tuple header then keeps its xid, and this as
    /// its undo pointer.
    pub keep: Option<UndoPtr>,
}

/// Where an entry lies, in the 48 bits that a tuple header has for it: a word of the arena, or null. It means something only
/// to those who cannot see what the transaction whose xid stands beside it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
}

/// A change as it is entered.
#[derive(Clone, Copy, Debug)]
pub struct Undoable<'a> {
    /// See [`UndoEntry`].
    pub kind: u8,
    /// See [`UndoEntry`].
    pub table: TableId,
    /// See [`UndoEntry`].
    pub body: &'a [u8],
    /// The row before, if there was one.
    pub before: Option<Before<'a>>,
}

/// A row before a change: its header, and its value in three parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before<'a> {
    /// The xid in its header.
    pub xid: Xid,
    /// The flags beside the xid. They mean what the resource manager means by them.
    pub flags: u16,
    /// The undo pointer in its header.
    pub undo: UndoPtr,
    /// The first part of the value.
    pub front: &'a [u8],
    /// Where the second part is in the body of the change, and its length.
    pub middle: (u16, u16),
    /// The last part.
    pub back: &'a [u8],
}

/// How an entry is linked to the version before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    /// Since which commit the row has been as it is.
    pub(crate) since: Csn,
    /// The entry of who made it so.
    pub(crate) next: UndoPtr,
    /// See [`Arena::clear`].
    pub(crate) countdown: u32,
    /// Whether an old reader sees what the change replaces. Such entries lie apart: they stay, while those that were made
    /// beside them go soon.
    pub(crate) kept: bool,
}

/// The undo entries of one transaction at a time, and the chunks that its session fills.
#[derive(Debug)]
pub(crate) struct Undo {
    arena: Arc<Arena>,
    /// Where entries go: those that go soon, and those that old readers keep.
    open: [Option<Open>; 2],
    /// The next one: room is reserved before it is known how much is needed.
    spare: Option<Open>,
    /// Chunks that the transaction has filled.
    full: Vec<Open>,
    /// Chunks with entries of the transaction that were left to others.
    lent: Vec<usize>,
    newest: UndoPtr,
    /// Bytes of the newest entry's body, as it is taken back.
    body: Vec<u8>,
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

/// How far a rollback has come.
#[derive(Debug)]
pub(crate) struct Back {
    /// The entry that is next; null behind the oldest.
    pub(crate) at: UndoPtr,
    /// The last one that was kept, which leads to it; null if all newer ones were dropped.
    stays: UndoPtr,
}

impl Undo {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        arena.enter();
        Self {
            arena,
            open: [None, None],
            spare: None,
            full: Vec::new(),
            lent: Vec::new(),
            newest: UndoPtr::NULL,
            body: Vec::new(),
        }
    }

    /// Makes sure that one entry with `bytes` of body and image fits. After it [`push`](Self::push) cannot fail.
    /// `horizon` tells what nobody needs any more, if more memory has to be found. `kept`: there are old readers.
    pub(crate) fn reserve(&mut self, bytes: usize, kept: bool, horizon: impl FnOnce() -> Csn) -> Result<()> {
        let words = entry::words(bytes);
        let fits = |open: &Option<Open>| open.as_ref().is_some_and(|open| open.room() >= words);
        if fits(&self.spare) || (fits(&self.open[0]) && (!kept || fits(&self.open[1]))) {
            return Ok(());
        }
        assert!(words <= arena::CHUNK_WORDS, "a chunk has room for the undo of a row of any size");
        let spare = self.arena.take(words, horizon);
        let small = self.spare.replace(spare.ok_or(Error::TransactionTooLarge { max: self.arena.limit_bytes() })?);
        self.full.extend(small);
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
        open.at += entry::write(place, change, link, self.newest);
        open.entries += 1;
        open.mine = true;
        self.newest = pointer;
        pointer
    }

    /// Gives the newest entry the LSN of its record.
    pub(crate) fn stamp_newest(&mut self, lsn: Lsn) {
        let entry =
            Entry::at(&self.arena, self.newest).expect("an undoable change has an undo entry before it is logged");
        assert!(entry.lsn() == Lsn::ZERO, "an undo entry is stamped once");
        entry.set_lsn(lsn);
    }

    /// The newest entry. What is entered from now on lies behind it.
    pub(crate) const fn newest(&self) -> UndoPtr {
        self.newest
    }

    /// The place that the transaction has reached.
    pub(crate) fn place(&self) -> Place {
        let open = [0, 1].map(|at| self.open[at].as_ref().filter(|open| open.mine).map_or(0, |open| open.chunk));
        Place { newest: self.newest, full: self.full.len(), lent: self.lent.len(), open }
    }

    /// All entries behind `place` have been dropped or kept. Gives up chunks that have none left of this transaction, whoever
    /// else has some there, so that who goes back again and again needs no more memory each time.
    pub(crate) fn give_back(&mut self, place: &Place) {
        let Self { arena, full, lent, open, .. } = self;
        // With those that were full or left before: they have no newer entries, or got newer ones in another of these ways.
        let (mut mine, mut next) = (place.open.to_vec(), self.newest);
        while next != place.newest {
            mine.push(next.bits() as usize / arena::CHUNK_WORDS);
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
    }

    /// What was not logged, in its order: kind, table and body of each entry.
    pub(crate) fn unlogged(&self) -> Vec<(u8, TableId, Box<[u8]>)> {
        let (mut found, mut next) = (Vec::new(), self.newest);
        while next != UndoPtr::NULL {
            let entry = Entry::at(&self.arena, next).expect("an arena holds whole entries");
            if entry.lsn() == Lsn::ZERO {
                let mut body = Vec::new();
                entry.append_body(&mut body);
                found.push((entry.kind(), entry.table(), body.into()));
            }
            next = entry.previous();
        }
        found.reverse();
        found
    }

    /// A way back through the entries, from the newest one on.
    pub(crate) const fn back(&self) -> Back {
        Back { at: self.newest, stays: UndoPtr::NULL }
    }

    /// The entry at which `back` has arrived, and the xid that its row had before.
    pub(crate) fn entry(&mut self, back: &Back) -> (UndoEntry<'_>, Xid) {
        let entry = Entry::at(&self.arena, back.at).expect("an arena holds whole entries");
        self.body.clear();
        entry.append_body(&mut self.body);
        let (lsn, kind, table, next, holder) = (entry.lsn(), entry.kind(), entry.table(), entry.next(), entry.holder());
        let is_taken_back = entry.is_taken_back();
        (UndoEntry { lsn, is_taken_back, kind, table, body: &self.body, next, keep: None }, holder)
    }

    /// Drops the entry at which `back` has arrived: all of it has been taken back.
    pub(crate) fn drop_at(&mut self, back: &mut Back) {
        let entry = Entry::at(&self.arena, back.at).expect("an entry that is dropped exists");
        let (previous, len) = (entry.previous(), entry.len());
        self.arena.drop_entry(back.at);
        // Who goes back to a savepoint again and again writes where it wrote before.
        let (chunk, at) = (back.at.bits() as usize / arena::CHUNK_WORDS, back.at.bits() as usize % arena::CHUNK_WORDS);
        let is_last = |open: &&mut Open| open.chunk == chunk && open.at == at + len;
        if let Some(open) = self.open.iter_mut().flatten().find(is_last) {
            open.at -= len;
        }
        match Entry::at(&self.arena, back.stays) {
            Some(newer) => newer.set_previous(previous),
            None => self.newest = previous,
        }
        back.at = previous;
    }

    /// Keeps the entry at which `back` has arrived, as the lock of its row.
    pub(crate) fn keep_at(&mut self, back: &mut Back) {
        let entry = Entry::at(&self.arena, back.at).expect("an entry that is kept exists");
        entry.leave_as_lock();
        *back = Back { at: entry.previous(), stays: back.at };
    }

    /// An operation is over: where memory is short, others may have what it does not need.
    pub(crate) fn release(&mut self) {
        if self.arena.is_short() {
            self.leave();
        }
    }

    /// The chunks that are not full. Those of a session that no transaction has may go to [`Arena::leave`].
    pub(crate) fn take_open(&mut self) -> [Option<Open>; 3] {
        let [young, kept] = &mut self.open;
        [young, kept, &mut self.spare].map(Option::take)
    }

    fn leave(&mut self) {
        let chunks = self.take_open();
        self.lent.extend(chunks.iter().flatten().filter(|open| open.mine).map(|open| open.chunk));
        if chunks.iter().any(Option::is_some) {
            self.arena.leave(chunks.into_iter().flatten());
        }
    }

    /// The transaction has ended with this commit number, zero if all its entries were dropped.
    pub(crate) fn end(&mut self, csn: Csn) {
        let full = self.full.drain(..).map(|open| Open { newest: open.newest.max(csn), ..open });
        self.arena.close(full);
        self.lent.drain(..).for_each(|chunk| self.arena.ended(chunk, csn));
        for open in self.open.iter_mut().flatten().filter(|open| open.mine) {
            (open.newest, open.mine) = (open.newest.max(csn), false);
        }
        self.newest = UndoPtr::NULL;
        self.release();
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        self.leave();
        self.arena.exit();
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
