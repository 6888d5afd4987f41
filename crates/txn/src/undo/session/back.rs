//! The walk over the entries of a transaction, from the newest to the oldest.

use super::Undo;
use crate::undo::change::{Before, Link, UndoEntry};
use crate::undo::chunk::Open;
use crate::undo::entry::Entry;
use crate::undo::holder::{KEPT, SPARE};
use crate::undo::pointer::UndoPtr;
use foreshore_base::{Lsn, Result, TableId, Xid};

/// The number of entries between two positions that [`Undo::logged`] notes on its way to the oldest entry.
const NOTED: usize = 512;

/// The position of a rollback.
#[derive(Debug)]
pub(crate) struct Back {
    /// The entry that is undone next; null after the oldest.
    pub(crate) at: UndoPtr,
    /// The last entry that was kept, which points to `at`. Null if all newer entries were dropped.
    pub(super) stays: UndoPtr,
}

impl Undo {
    /// Passes the kind, table and body of each entry whose LSN is zero to `each`, the newest first.
    ///
    /// # Errors
    /// `Io`; `Corrupted` if the spill file does not hold what was written.
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

    /// Passes the LSN, kind, table and body of each other entry to `each`, the oldest first. An undone entry has no
    /// LSN, so it is left out.
    ///
    /// # Errors
    /// Errors of `each`; those of [`unlogged`](Self::unlogged).
    pub(crate) fn logged(&mut self, mut each: impl FnMut(Lsn, u8, TableId, &[u8]) -> Result<()>) -> Result<()> {
        // Entries point to older ones only. So the first walk notes every `NOTED`-th entry, and the second lists the
        // entries from one noted entry to the next.
        let (mut noted, mut some, mut body) = (Vec::new(), Vec::with_capacity(NOTED), Vec::new());
        let (mut next, mut count) = (self.newest, 0_usize);
        while next != UndoPtr::NULL {
            if count.is_multiple_of(NOTED) {
                noted.push(next);
            }
            count += 1;
            next = self.previous(next)?;
        }
        for newest in noted.into_iter().rev() {
            let mut next = newest;
            while next != UndoPtr::NULL && some.len() < NOTED {
                some.push(next);
                next = self.previous(next)?;
            }
            for at in some.drain(..).rev() {
                self.get_ready(at)?;
                let entry = self.read(at);
                if entry.lsn() > Lsn::ZERO {
                    body.clear();
                    entry.append_body(&mut body);
                    each(entry.lsn(), entry.kind(), entry.table(), &body)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the bytes of the bodies that [`logged`](Self::logged) passes on, with `more` added for each.
    ///
    /// # Errors
    /// Those of [`unlogged`](Self::unlogged).
    pub(crate) fn logged_bytes(&mut self, more: usize) -> Result<u64> {
        let (mut next, mut bytes) = (self.newest, 0);
        while next != UndoPtr::NULL {
            self.get_ready(next)?;
            let entry = self.read(next);
            if entry.lsn() > Lsn::ZERO {
                bytes += (entry.body_len() + more) as u64;
            }
            next = entry.previous();
        }
        Ok(bytes)
    }

    /// Returns the previous entry.
    fn previous(&mut self, at: UndoPtr) -> Result<UndoPtr> {
        self.get_ready(at)?;
        Ok(self.read(at).previous())
    }

    /// Returns the position of a rollback at the newest entry.
    pub(crate) const fn back(&self) -> Back {
        Back { at: self.newest, stays: UndoPtr::NULL }
    }

    /// Returns the entry at the position `back`, and the xid that its row had before the change.
    ///
    /// # Errors
    /// Those of [`unlogged`](Self::unlogged).
    pub(crate) fn entry(&mut self, back: &Back) -> Result<(UndoEntry<'_>, Xid)> {
        self.get_ready(back.at)?;
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        let entry = self.read(back.at);
        entry.append_body(&mut body);
        let (lsn, kind, table, next, holder) =
            (entry.lsn(), entry.kind(), entry.table(), entry.behind(), entry.holder());
        let is_undone = entry.is_undone();
        self.body = body;
        Ok((UndoEntry { lsn, is_undone, kind, table, body: &self.body, next, keep: None }, holder))
    }

    /// Prepares an entry of the transaction for [`read`](Self::read). A spillable chunk may be moved to the file at any
    /// time, so the entry is read from a copy.
    fn get_ready(&mut self, at: UndoPtr) -> Result<()> {
        if self.spillable.contains_key(&at.chunk()) { self.arena.copy(at.chunk(), &mut self.copies) } else { Ok(()) }
    }

    /// Returns an entry of the transaction, from memory or from the copy of its spillable chunk.
    fn read(&self, at: UndoPtr) -> Entry<'_> {
        let entry = if self.spillable.contains_key(&at.chunk()) { self.copies.entry(at) } else { self.arena.entry(at) };
        entry.expect("an arena holds whole entries")
    }

    /// Drops the entry at the position `back`, which is undone completely.
    pub(crate) fn drop_at(&mut self, back: &mut Back) {
        let entry = self.read(back.at);
        let (previous, len) = (entry.previous(), entry.len());
        self.arena.drop_entry(back.at);
        let (entries, words) = (self.entries, self.words);
        assert!(entries > 0 && len <= words, "an entry of {len} words goes, of {entries} with {words}");
        self.entries -= 1;
        self.words -= len;
        // So a transaction that rolls back to a savepoint again and again writes to the same memory.
        if let Some(place) = self.ends_with(back.at, len) {
            self.open[place].as_mut().expect("it was found").at -= len;
        }
        match self.arena.entry(back.stays) {
            Some(newer) => newer.set_previous(previous),
            None => self.newest = previous,
        }
        back.at = previous;
    }

    /// Returns which chunk of the session ends with the entry `at`, which has `len` words.
    fn ends_with(&self, at: UndoPtr, len: usize) -> Option<usize> {
        let end = at.word() + len;
        let is_last = |open: &Open| open.chunk == at.chunk() && open.at == end;
        self.open[..SPARE].iter().position(|open| open.as_ref().is_some_and(is_last))
    }

    /// Returns the header of a row before it was locked, if a change may replace the entry `lock`. That entry has to be
    /// the newest, the last of its chunk, and only the lock of a row that existed.
    pub(crate) fn before_lock(&self, lock: UndoPtr) -> Option<Before<'static>> {
        if lock != self.newest {
            return None;
        }
        let entry = self.arena.entry(lock)?;
        self.ends_with(lock, entry.len())?;
        let is_lock = entry.lsn() == Lsn::ZERO && !entry.is_undone();
        let flags = entry.flags().filter(|_| is_lock)?;
        Some(Before { xid: entry.holder(), flags, undo: entry.behind(), lock, ..Before::default() })
    }

    /// Removes the entry `lock`, and returns the link with which the next entry, the change of the row, replaces it.
    /// Called under the latch of the row's leaf. So a reader that followed a pointer to the lock finds that the leaf
    /// has changed.
    pub(crate) fn take_lock(&mut self, lock: UndoPtr) -> Link {
        assert!(lock == self.newest, "nothing was entered since the row was locked");
        let entry = self.arena.entry(lock).expect("an arena holds whole entries");
        let place = self.ends_with(lock, entry.len()).expect("the lock ends a chunk");
        let (link, previous, len) = (entry.link(place == KEPT), entry.previous(), entry.len());
        let open = self.open[place].as_mut().expect("it was found");
        assert!(open.entries > 0 && self.entries > 0, "a lock is the newest of {} entries in its chunk", open.entries);
        open.at -= len;
        open.entries -= 1;
        (self.newest, self.entries, self.words) = (previous, self.entries - 1, self.words - len);
        link
    }

    /// Keeps the entry at the position `back` as the lock of its row.
    pub(crate) fn keep_at(&mut self, back: &mut Back) {
        debug_assert!(!self.spillable.contains_key(&back.at.chunk()), "what may be moved is not changed");
        let entry = self.arena.entry(back.at).expect("an entry that is kept exists");
        entry.turn_into_lock();
        *back = Back { at: entry.previous(), stays: back.at };
    }
}
