//! Reading large values.
//!
//! Pages are read one by one, each under a shared latch, as by a scan that does not need them again. So a large value
//! does not push other pages out of memory. The pages that come next are requested ahead.
//!
//! A reader holds what keeps the chain: a snapshot in use, or a lock of the row. It checks its snapshot afterwards.

use crate::chain::ChainPage;
use crate::format::{CHAIN_BYTES, CHAIN_DATA, CHAIN_IDS, CHAIN_INDEX, CHAIN_ROOT, ChainId, DIRECT, OVERFLOW, Stub};
use crate::node::Damage;
use crate::tree::Tree;
use foreshore_base::{PageId, Result, crc32c_append};
use foreshore_buffer::AccessPattern;
use foreshore_txn::{Snapshot, Txn};
use std::ops::Range;

/// Pages that are requested ahead at once.
const AHEAD: usize = 32;

impl Tree {
    /// Replaces a stub by the value that it leads to.
    pub(crate) fn load(&self, value: &mut Vec<u8>) -> Result<()> {
        let stub = self.stub(value)?;
        value.clear();
        // A stub may lie about the length: memory is taken as pages are read.
        let mut crc = 0;
        self.read_chain(&stub, 0..stub.len, &mut |_| Ok(()), &mut |bytes| {
            crc = crc32c_append(crc, bytes);
            value.extend_from_slice(bytes);
        })?;
        self.check_crc(&stub, crc)
    }

    /// Replaces what a row with these flags holds by its value.
    #[inline]
    pub(crate) fn load_by(&self, flags: u16, value: &mut Vec<u8>) -> Result<()> {
        if flags & OVERFLOW == 0 { Ok(()) } else { self.load(value) }
    }

    /// Compares the checksum of a whole large value.
    pub(super) fn check_crc(&self, stub: &Stub, crc: u32) -> Result<()> {
        if crc == stub.crc {
            return Ok(());
        }
        Err(self.corrupted(stub.chain.head, "the checksum of a large value does not fit"))
    }

    /// Does the same for a row that `snapshot` sees, outside of an operation of that snapshot.
    pub(crate) fn load_at(&self, txn: &mut Txn, snapshot: &Snapshot, value: &mut Vec<u8>) -> Result<()> {
        let _operation = self.begin_read(txn, snapshot)?;
        self.load_checked(txn, snapshot, value).map_err(|error| self.judge(txn, snapshot, error))
    }

    /// Does the same within an operation of `snapshot`.
    pub(crate) fn load_checked(&self, txn: &mut Txn, snapshot: &Snapshot, value: &mut Vec<u8>) -> Result<()> {
        self.load(value)?;
        // Pages of a chain that a cancelled snapshot needs may have been used again.
        txn.check_snapshot(snapshot)
    }

    /// Calls `take` with the bytes `range` of a large value, piece by piece, and `met` before each page is read.
    pub(crate) fn read_chain(
        &self,
        stub: &Stub,
        range: Range<u64>,
        met: &mut dyn FnMut(PageId) -> Result<()>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        assert!(range.start <= range.end && range.end <= stub.len, "bytes {range:?} of a value of {}", stub.len);
        let per_page = CHAIN_BYTES as u64;
        let pages = stub.len.div_ceil(per_page) as usize;
        let index = (usize::MAX, Vec::new());
        let mut reader = ChainReader { tree: self, chain: stub.chain, met, root: Vec::new(), index };
        if pages > 1 {
            reader.root = reader.ids(stub.chain.head, CHAIN_ROOT, 0)?;
            let indexes = pages.saturating_sub(DIRECT).div_ceil(CHAIN_IDS);
            if reader.root.len() != pages.min(DIRECT) + indexes {
                return Err(self.corrupted(stub.chain.head, "a large value does not have the pages of its length"));
            }
        }
        let mut at = range.start;
        while at < range.end {
            let place = (at / per_page) as usize;
            let pid = if pages > 1 { reader.page(place)? } else { stub.chain.head };
            let len = (stub.len - place as u64 * per_page).min(per_page) as usize;
            let from = (at % per_page) as usize;
            let upto = len.min((range.end - place as u64 * per_page) as usize);
            reader.read(pid, place, len, |data| take(&data[from..upto]))?;
            at += (upto - from) as u64;
        }
        Ok(())
    }
}

struct ChainReader<'t, 'm> {
    tree: &'t Tree,
    chain: ChainId,
    met: &'m mut dyn FnMut(PageId) -> Result<()>,
    /// Ids of the root.
    root: Vec<PageId>,
    /// The index page that was read last: its number, and its ids.
    index: (usize, Vec<PageId>),
}

impl ChainReader<'_, '_> {
    /// Returns the id of a data page, and requests those that follow.
    fn page(&mut self, place: usize) -> Result<PageId> {
        const MISSING: Damage = "a page of a large value is missing";
        let ids = if place < DIRECT {
            &self.root[place.min(self.root.len())..self.root.len().min(DIRECT)]
        } else {
            let number = (place - DIRECT) / CHAIN_IDS;
            if self.index.0 != number {
                let first = DIRECT + number * CHAIN_IDS;
                let pid = self.root.get(DIRECT + number).copied();
                let pid = pid.ok_or_else(|| self.tree.corrupted(self.chain.head, MISSING))?;
                self.index = (number, self.ids(pid, CHAIN_INDEX, first)?);
            }
            let ids = &self.index.1;
            &ids[((place - DIRECT) % CHAIN_IDS).min(ids.len())..]
        };
        let &first = ids.first().ok_or_else(|| self.tree.corrupted(self.chain.head, MISSING))?;
        if place.is_multiple_of(AHEAD) {
            self.tree.pool().prefetch(&ids[..ids.len().min(AHEAD)]);
        }
        Ok(first)
    }

    /// Returns the ids of an index page.
    fn ids(&mut self, pid: PageId, level: u8, place: usize) -> Result<Vec<PageId>> {
        (self.met)(pid)?;
        let page = self.tree.named(self.tree.pool().shared_as(pid, AccessPattern::Scan))?;
        let ids = ChainPage::parse(&page, self.chain).and_then(|page| {
            if page.level != level || page.place as usize != place {
                return Err("a page of a large value is in the wrong place");
            }
            page.ids()
        });
        ids.map_err(|why| self.tree.corrupted(pid, why))
    }

    /// Calls `take` with the content of a data page.
    fn read(&mut self, pid: PageId, place: usize, len: usize, take: impl FnOnce(&[u8])) -> Result<()> {
        (self.met)(pid)?;
        let page = self.tree.named(self.tree.pool().shared_as(pid, AccessPattern::Scan))?;
        let data = ChainPage::parse(&page, self.chain).and_then(|page| {
            if page.level != CHAIN_DATA || page.place as usize != place || page.len() != len {
                return Err("a page of a large value is in the wrong place");
            }
            Ok(page.data())
        });
        take(data.map_err(|why| self.tree.corrupted(pid, why))?);
        Ok(())
    }
}
