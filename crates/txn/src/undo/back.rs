//! The way back through the entries of a transaction, from the newest one on.

use super::entry::Entry;
use super::{Open, Undo, UndoEntry, UndoPtr, arena};
use foreshore_base::{Lsn, Result, TableId, Xid};

/// How far a rollback has come.
#[derive(Debug)]
pub(crate) struct Back {
    /// The entry that is next; null behind the oldest.
    pub(crate) at: UndoPtr,
    /// The last one that was kept, which leads to it; null if all newer ones were dropped.
    pub(super) stays: UndoPtr,
}

impl Undo {
    /// Hands out what was not logged, the newest first: kind, table and body of each entry.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the file for old versions does not hold what was written.
    pub(crate) fn unlogged(&mut self, mut each: impl FnMut(u8, TableId, Box<[u8]>)) -> Result<()> {
        let mut next = self.newest;
        while next != UndoPtr::NULL {
            self.get_ready(next)?;
            let entry = self.read(next);
            if entry.lsn() == Lsn::ZERO {
                let mut body = Vec::new();
                entry.append_body(&mut body);
                each(entry.kind(), entry.table(), body.into());
            }
            next = entry.previous();
        }
        Ok(())
    }

    /// A way back through the entries, from the newest one on.
    pub(crate) const fn back(&self) -> Back {
        Back { at: self.newest, stays: UndoPtr::NULL }
    }

    /// The entry at which `back` has arrived, and the xid that its row had before.
    ///
    /// # Errors
    /// As [`unlogged`](Self::unlogged).
    pub(crate) fn entry(&mut self, back: &Back) -> Result<(UndoEntry<'_>, Xid)> {
        self.get_ready(back.at)?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let entry = self.read(back.at);
        entry.append_body(&mut body);
        let (lsn, kind, table, next, holder) = (entry.lsn(), entry.kind(), entry.table(), entry.next(), entry.holder());
        let is_taken_back = entry.is_taken_back();
        self.body = body;
        Ok((UndoEntry { lsn, is_taken_back, kind, table, body: &self.body, next, keep: None }, holder))
    }

    /// Makes sure that an entry of the transaction can be [`read`](Self::read): a chunk may go to the file at any time once that is agreed.
    fn get_ready(&mut self, at: UndoPtr) -> Result<()> {
        if self.agreed.contains_key(&at.chunk()) { self.arena.copy(at.chunk(), &mut self.copies) } else { Ok(()) }
    }

    /// An entry of the transaction that is in memory, or ready.
    fn read(&self, at: UndoPtr) -> Entry<'_> {
        let entry =
            if self.agreed.contains_key(&at.chunk()) { self.copies.entry(at) } else { Entry::at(&self.arena, at) };
        entry.expect("an arena holds whole entries")
    }

    /// Drops the entry at which `back` has arrived: all of it has been taken back.
    pub(crate) fn drop_at(&mut self, back: &mut Back) {
        let entry = self.read(back.at);
        let (previous, len) = (entry.previous(), entry.len());
        self.arena.drop_entry(back.at);
        // Who goes back to a savepoint again and again writes where it wrote before.
        let (chunk, at) = (back.at.chunk(), back.at.bits() as usize % arena::CHUNK_WORDS);
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
        debug_assert!(!self.agreed.contains_key(&back.at.chunk()), "what may be moved is not changed");
        let entry = Entry::at(&self.arena, back.at).expect("an entry that is kept exists");
        entry.leave_as_lock();
        *back = Back { at: entry.previous(), stays: back.at };
    }
}
