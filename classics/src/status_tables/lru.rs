//! Pages of two bits an xid in a file, a few of them in memory, found by a linear search under a lock.
//!
//! PostgreSQL's commit log over its simple LRU buffers: lookups share the lock, and misses and changes take it
//! exclusively. A miss first writes the page that it evicts, then reads, all under the lock. The newest page is not
//! evicted.

use super::bits::{ABORTED, COMMITTED};
use foreshore_base::{Result, Xid};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{LockRank, RwLock, rmw};
use foreshore_txn::StatusTable;
use std::sync::Arc;

/// Bytes of a page.
const PAGE: usize = 8192;
/// Xids to a page.
const PER_PAGE: u64 = 4 * PAGE as u64;
/// Pages to a bank.
pub(super) const BANK: usize = 16;
/// Most pages in memory.
pub(super) const MAX_BUFFERS: usize = 1 << 16;
/// The number of no page.
const NONE: u64 = u64::MAX;

#[derive(Debug)]
struct Buffer {
    page: u64,
    dirty: bool,
    /// When it was last used, by the bank's count.
    used: AtomicU64,
    bytes: AlignedBuf,
}

#[derive(Debug)]
struct Bank {
    buffers: Vec<Buffer>,
    uses: AtomicU64,
    newest: u64,
}

/// The table.
#[derive(Debug)]
pub struct Lru {
    /// Page p lies in bank p modulo their count, a power of two.
    banks: Box<[RwLock<Bank>]>,
    file: Arc<dyn File>,
    first: Xid,
}

impl Lru {
    /// Makes a table that begins at `first` with an empty `file`, and `buffers` pages in memory, in banks or under one
    /// lock.
    #[must_use]
    pub fn new(first: Xid, buffers: usize, banks: bool, file: Arc<dyn File>) -> Self {
        let in_bank = if banks { BANK.min(buffers) } else { buffers };
        assert!(in_bank > 0 && buffers.is_multiple_of(in_bank), "whole banks");
        let buffer = |_| Buffer { page: NONE, dirty: false, used: AtomicU64::new(0), bytes: AlignedBuf::new(PAGE) };
        let bank = |_| {
            let buffers = (0..in_bank).map(buffer).collect();
            RwLock::new(LockRank::StatusTable, Bank { buffers, uses: AtomicU64::new(0), newest: 0 })
        };
        Self { banks: (0..buffers / in_bank).map(bank).collect(), file, first }
    }

    /// Returns page, its bank, byte and shift of an xid. Pages are counted from the beginning of the table.
    fn place(&self, xid: Xid) -> (u64, &RwLock<Bank>, usize, u32) {
        let number = xid.0 - self.first.0;
        let page = number / PER_PAGE;
        let bank = &self.banks[(page % self.banks.len() as u64) as usize];
        (page, bank, (number % PER_PAGE / 4) as usize, 2 * (number % 4) as u32)
    }
}

impl Buffer {
    fn last_used(&self) -> u64 {
        // ORDERING: Relaxed, as in `find`.
        self.used.load(Ordering::Relaxed)
    }
}

impl Bank {
    fn find(&self, page: u64) -> Option<usize> {
        let at = self.buffers.iter().position(|buffer| buffer.page == page)?;
        // ORDERING: Relaxed on both, how recently something was used need not be exact.
        let now = self.uses.fetch_add(1, Ordering::Relaxed) + 1;
        self.buffers[at].used.store(now, Ordering::Relaxed);
        Some(at)
    }

    /// Brings `page` into memory, in place of the least recently used one.
    fn load(&mut self, page: u64, file: &dyn File) -> Result<usize> {
        if let Some(at) = self.find(page) {
            return Ok(at);
        }
        let newest = self.newest;
        // The newest last, since all need it.
        let order = |buffer: &&mut Buffer| (buffer.page == newest, buffer.last_used());
        let buffer = self.buffers.iter_mut().min_by_key(order).expect("a bank has buffers");
        if buffer.dirty {
            file.write_at(&buffer.bytes, buffer.page * PAGE as u64)?;
            buffer.dirty = false;
        }
        buffer.page = NONE;
        let read = file.read_at(&mut buffer.bytes, page * PAGE as u64)?;
        // What was never written is behind the end of the file.
        buffer.bytes[read..].fill(0);
        buffer.page = page;
        self.newest = newest.max(page);
        Ok(self.find(page).expect("it was loaded"))
    }
}

impl StatusTable for Lru {
    fn prepare(&self, _xid: Xid) -> Result<()> {
        // Nothing is prepared: the first thread that needs a page pays for it, as in PostgreSQL.
        Ok(())
    }

    fn set(&self, xid: Xid, committed: bool) -> Result<()> {
        let (page, bank, byte, shift) = self.place(xid);
        rmw::contended(1);
        let mut bank = bank.write();
        let at = bank.load(page, &*self.file)?;
        let buffer = &mut bank.buffers[at];
        assert_eq!(buffer.bytes[byte] >> shift & 3, 0, "the status of {xid} is set once");
        buffer.bytes[byte] |= if committed { COMMITTED } else { ABORTED } << shift;
        buffer.dirty = true;
        Ok(())
    }

    fn has_committed(&self, xid: Xid) -> Result<bool> {
        if xid < self.first {
            return Ok(true);
        }
        let (page, bank, byte, shift) = self.place(xid);
        rmw::contended(2);
        let bits = |buffer: &Buffer| buffer.bytes[byte] >> shift & 3 == COMMITTED;
        {
            let bank = bank.read();
            if let Some(at) = bank.find(page) {
                return Ok(bits(&bank.buffers[at]));
            }
        }
        let mut bank = bank.write();
        let at = bank.load(page, &*self.file)?;
        Ok(bits(&bank.buffers[at]))
    }
}
