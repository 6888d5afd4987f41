//! Undo in memory: what a running transaction would have to take back.
//!
//! An entry holds the very bytes that the log record of its change holds, so that a rollback at run time, from here, and
//! one at restart, from the log, run the same code. A crash needs none of this memory.

use foreshore_base::codec::Decoder;
use foreshore_base::{Error, Lsn, Result, TableId};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::rmw;
use std::sync::Arc;

/// Bytes of a chunk. An entry lies in one chunk.
const CHUNK: usize = 64 << 10;
/// Bytes in front of an entry's body: lsn u64, table u32, previous entry's offset u32, length u16, kind u8, one spare.
const HEADER: usize = 20;
/// The largest body.
const MAX_BODY: usize = CHUNK - HEADER;
/// No earlier entry.
const NONE: u32 = u32::MAX;

/// A change that can be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoEntry<'a> {
    /// LSN of its record; zero for a change that is not logged, such as a lock in a tuple header.
    pub lsn: Lsn,
    /// The kind of its record, or one of the resource manager's own for what is not logged.
    pub kind: u8,
    /// The table changed.
    pub table: TableId,
    /// The body of its record.
    pub body: &'a [u8],
}

/// Where an entry lies, in the 48 bits that a tuple header has for it: session in the upper 16, offset in the lower 32. It
/// means something only while the transaction whose xid stands beside it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UndoPtr(u64);

impl UndoPtr {
    fn new(session: usize, offset: u32) -> Self {
        let session = u16::try_from(session).expect("sessions are numbered in 16 bits");
        Self(u64::from(session) << 32 | u64::from(offset))
    }

    /// The 48 bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// The memory that all arenas together may take beyond their first chunks.
#[derive(Debug)]
pub(crate) struct UndoBudget {
    used: AtomicUsize,
    limit: usize,
}

impl UndoBudget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { used: AtomicUsize::new(0), limit }
    }

    pub(crate) fn used(&self) -> usize {
        // ORDERING: hint, for statistics.
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<()> {
        let fits = |used: usize| used.checked_add(bytes).filter(|&used| used <= self.limit);
        rmw::contended(1);
        // ORDERING: Relaxed, a sum that orders nothing.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| Error::TransactionTooLarge { max: self.limit })
    }

    fn give(&self, bytes: usize) {
        rmw::contended(1);
        // ORDERING: Relaxed, as in `take`.
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The undo entries of one transaction at a time, newest last.
#[derive(Debug)]
pub(crate) struct UndoArena {
    /// The first chunk stays for the next transaction; the others are in the budget.
    chunks: Vec<Vec<u8>>,
    budget: Arc<UndoBudget>,
    session: usize,
    newest: u32,
    /// Entries that stand.
    count: usize,
}

impl UndoArena {
    pub(crate) fn new(budget: Arc<UndoBudget>, session: usize) -> Self {
        Self { chunks: vec![Vec::new()], budget, session, newest: NONE, count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Makes sure that one entry with a body of `body` bytes fits. After it [`push`](Self::push) cannot fail.
    pub(crate) fn reserve(&mut self, body: usize) -> Result<()> {
        if body > MAX_BODY {
            return Err(Error::TransactionTooLarge { max: MAX_BODY });
        }
        let last = self.chunks.last_mut().expect("there is always a chunk");
        if last.len() + HEADER + body <= CHUNK {
            return Ok(());
        }
        if self.chunks.len() >= NONE as usize / CHUNK {
            return Err(Error::TransactionTooLarge { max: NONE as usize });
        }
        self.budget.take(CHUNK)?;
        self.chunks.push(Vec::with_capacity(CHUNK));
        Ok(())
    }

    /// Enters an entry, whose LSN comes later. Room for it was reserved.
    pub(crate) fn push(&mut self, kind: u8, table: TableId, body: &[&[u8]]) -> UndoPtr {
        let len: usize = body.iter().map(|part| part.len()).sum();
        let base = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut().expect("there is always a chunk");
        assert!(chunk.len() + HEADER + len <= CHUNK, "an undo entry of {len} bytes was not reserved");
        let offset = u32::try_from(base + chunk.len()).expect("an arena is below 4 GiB");
        chunk.extend_from_slice(&[0; 8]);
        chunk.extend_from_slice(&table.0.to_le_bytes());
        chunk.extend_from_slice(&self.newest.to_le_bytes());
        chunk.extend_from_slice(&(len as u16).to_le_bytes());
        chunk.extend_from_slice(&[kind, 0]);
        body.iter().for_each(|part| chunk.extend_from_slice(part));
        self.newest = offset;
        self.count += 1;
        UndoPtr::new(self.session, offset)
    }

    /// Gives the newest entry the LSN of its record.
    pub(crate) fn stamp_newest(&mut self, lsn: Lsn) {
        assert!(!self.is_empty(), "an undoable change has an undo entry before it is logged");
        let (chunk, at) = split(self.newest);
        let field = &mut self.chunks[chunk][at..at + 8];
        assert!(field == [0; 8], "an undo entry is stamped once");
        field.copy_from_slice(&lsn.0.to_le_bytes());
    }

    /// The newest entry that stands.
    pub(crate) fn newest(&self) -> Option<UndoEntry<'_>> {
        (!self.is_empty()).then(|| self.read(self.newest).0)
    }

    /// Drops the newest entry: it has been taken back.
    pub(crate) fn pop(&mut self) {
        assert!(!self.is_empty(), "an entry that is dropped exists");
        self.newest = self.read(self.newest).1;
        self.count -= 1;
    }

    /// Forgets everything and gives the memory back.
    pub(crate) fn clear(&mut self) {
        self.budget.give((self.chunks.len() - 1) * CHUNK);
        self.chunks.truncate(1);
        self.chunks[0].clear();
        (self.newest, self.count) = (NONE, 0);
    }

    /// The entry at an offset of ours, and the one before it.
    fn read(&self, offset: u32) -> (UndoEntry<'_>, u32) {
        let (chunk, at) = split(offset);
        let mut from = Decoder::new(&self.chunks[chunk][at..]);
        let mut fields = || {
            let (lsn, table, before) = (Lsn(from.u64()?), TableId(from.u32()?), from.u32()?);
            let (len, kind, _spare) = (from.u16()?, from.u8()?, from.u8()?);
            Ok::<_, foreshore_base::codec::Short>((
                UndoEntry { lsn, kind, table, body: from.bytes(usize::from(len))? },
                before,
            ))
        };
        fields().expect("an arena holds whole entries")
    }
}

impl Drop for UndoArena {
    fn drop(&mut self) {
        self.clear();
    }
}

const fn split(offset: u32) -> (usize, usize) {
    (offset as usize / CHUNK, offset as usize % CHUNK)
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests {
    use super::*;

    fn arena(limit: usize) -> UndoArena {
        UndoArena::new(Arc::new(UndoBudget::new(limit)), 3)
    }

    #[test]
    fn entries_come_back_newest_first_across_chunks() {
        let mut arena = arena(1 << 20);
        for n in 0..40_u64 {
            let body = vec![n as u8; 5000 + n as usize];
            arena.reserve(body.len()).expect("fits");
            let pointer = arena.push(7, TableId(n as u32), &[&body[..100], &body[100..]]);
            assert_eq!(pointer.bits() >> 32, 3);
            if n % 2 == 0 {
                arena.stamp_newest(Lsn(n + 1));
            }
        }
        assert!(arena.budget.used() >= 2 * CHUNK);
        for n in (0..40_u64).rev() {
            let entry = arena.newest().expect("an entry");
            let lsn = if n % 2 == 0 { Lsn(n + 1) } else { Lsn::ZERO };
            assert_eq!((entry.lsn, entry.kind, entry.table), (lsn, 7, TableId(n as u32)));
            assert_eq!(entry.body, vec![n as u8; 5000 + n as usize]);
            arena.pop();
        }
        assert!(arena.newest().is_none());
        arena.clear();
        assert_eq!(arena.budget.used(), 0);
    }

    #[test]
    fn the_budget_is_shared_and_refuses_before_anything_is_entered() {
        let budget = Arc::new(UndoBudget::new(CHUNK));
        let mut first = UndoArena::new(budget.clone(), 0);
        let mut second = UndoArena::new(budget, 1);
        let body = [0; CHUNK / 2];
        first.reserve(body.len()).expect("the first chunk is free");
        first.push(1, TableId(1), &[&body]);
        first.reserve(body.len()).expect("one more chunk");
        second.reserve(body.len()).expect("the first chunk is free");
        second.push(1, TableId(1), &[&body]);
        assert!(matches!(second.reserve(body.len()), Err(Error::TransactionTooLarge { .. })));
        drop(first);
        second.reserve(body.len()).expect("given back");
    }
}
