//! Reading large values.
//!
//! Pages are read one by one, each under a shared latch, as by a scan that does not need them again. So a large value
//! does not push other pages out of memory. The pages that come next are requested ahead.
//!
//! A reader holds what keeps the chain: a snapshot in use, or a lock of the row. It checks its snapshot afterwards.

use crate::chain::ChainPage;
use crate::format::{CHAIN_BYTES, CHAIN_DATA, CHAIN_IDS, CHAIN_INDEX, CHAIN_ROOT, DIRECT, OVERFLOW, Stub};
use crate::node::Damage;
use crate::tree::Tree;
use foreshore_base::{PageId, Result, crc32c_append};
use foreshore_buffer::AccessPattern;
use foreshore_buffer::format::page_table;
use foreshore_txn::{Snapshot, Txn};
use std::ops::Range;

/// Pages that are requested ahead at once.
const AHEAD: usize = 32;
const PER_PAGE: u64 = CHAIN_BYTES as u64;

impl Tree {
    /// Replaces a stub by the value that it leads to.
    pub(crate) fn load(&self, value: &mut Vec<u8>) -> Result<()> {
        let stub = self.stub(value)?;
        value.clear();
        // A stub may lie about the length: memory is taken as pages are read.
        let mut crc = 0;
        self.read_chain(&stub, &mut |_| Ok(()), &mut |bytes| {
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

    /// Calls `take` with a whole large value, piece by piece, and `met` before each page is read.
    pub(super) fn read_chain(
        &self,
        stub: &Stub,
        met: &mut dyn FnMut(PageId) -> Result<()>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        ChainReader::new(*stub).read(self, 0..stub.len, met, take)
    }
}

/// A large value that is read, with the ids that were read of its pages.
#[derive(Debug)]
pub(super) struct ChainReader {
    stub: Stub,
    /// Ids of the root. Empty if it was not read, or is the only page.
    root: Vec<PageId>,
    /// The index page that was read last: its number, and its ids.
    index: (usize, Vec<PageId>),
    /// The end of the range that was read last.
    end: u64,
}

impl ChainReader {
    pub(super) const fn new(stub: Stub) -> Self {
        Self { stub, root: Vec::new(), index: (usize::MAX, Vec::new()), end: 0 }
    }

    /// Returns the length of the value.
    pub(super) const fn len(&self) -> u64 {
        self.stub.len
    }

    /// Calls `take` with the bytes `range` of the value, piece by piece, and `met` before each page is read.
    pub(super) fn read(
        &mut self,
        tree: &Tree,
        range: Range<u64>,
        met: &mut dyn FnMut(PageId) -> Result<()>,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let Stub { chain, len, .. } = self.stub;
        assert!(range.start <= range.end && range.end <= len, "bytes {range:?} of a value of {len}");
        // A range behind the last one is a part of a longer read.
        let is_sequential = range.start == std::mem::replace(&mut self.end, range.end);
        let pages = len.div_ceil(PER_PAGE) as usize;
        if pages > 1 && self.root.is_empty() {
            self.root = self.ids(tree, chain.head, CHAIN_ROOT, 0, met)?;
            let indexes = pages.saturating_sub(DIRECT).div_ceil(CHAIN_IDS);
            if self.root.len() != pages.min(DIRECT) + indexes {
                return Err(tree.corrupted(chain.head, "a large value does not have the pages of its length"));
            }
        }
        let first = (range.start / PER_PAGE) as usize;
        let mut at = range.start;
        while at < range.end {
            let place = (at / PER_PAGE) as usize;
            let ahead = match is_sequential {
                true if place.is_multiple_of(AHEAD) => AHEAD,
                false if (place - first).is_multiple_of(AHEAD) => {
                    AHEAD.min(range.end.div_ceil(PER_PAGE) as usize - place)
                }
                _ => 0,
            };
            let pid = if pages > 1 { self.page(tree, place, ahead, met)? } else { chain.head };
            let start = place as u64 * PER_PAGE;
            let page_len = (len - start).min(PER_PAGE) as usize;
            let (from, upto) = ((at - start) as usize, page_len.min((range.end - start) as usize));
            met(pid)?;
            self.read_page(tree, pid, (place, page_len), |data| take(&data[from..upto]))?;
            at = start + upto as u64;
        }
        assert_eq!(at, range.end, "the end of bytes {range:?} of a large value");
        Ok(())
    }

    /// Returns the id of a data page, and requests `ahead` pages from it on, if that is more than one.
    fn page(
        &mut self,
        tree: &Tree,
        place: usize,
        ahead: usize,
        met: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<PageId> {
        const MISSING: Damage = "a page of a large value is missing";
        let head = self.stub.chain.head;
        let ids = if place < DIRECT {
            &self.root[place.min(self.root.len())..self.root.len().min(DIRECT)]
        } else {
            let number = (place - DIRECT) / CHAIN_IDS;
            if self.index.0 != number {
                let first = DIRECT + number * CHAIN_IDS;
                let pid = self.root.get(DIRECT + number).copied();
                let pid = pid.ok_or_else(|| tree.corrupted(head, MISSING))?;
                self.index = (number, self.ids(tree, pid, CHAIN_INDEX, first, met)?);
            }
            let ids = &self.index.1;
            &ids[((place - DIRECT) % CHAIN_IDS).min(ids.len())..]
        };
        let &first = ids.first().ok_or_else(|| tree.corrupted(head, MISSING))?;
        if ahead > 1 {
            tree.pool().prefetch(&ids[..ids.len().min(ahead)]);
        }
        Ok(first)
    }

    /// Returns the ids of an index page.
    fn ids(
        &self,
        tree: &Tree,
        pid: PageId,
        level: u8,
        place: usize,
        met: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<Vec<PageId>> {
        met(pid)?;
        let page = tree.named(tree.pool().shared_as(pid, AccessPattern::Scan))?;
        let ids = of_table(tree, &page).and_then(|()| ChainPage::parse(&page, self.stub.chain)).and_then(|page| {
            if page.level != level || page.place as usize != place {
                return Err("a page of a large value is in the wrong place");
            }
            page.ids()
        });
        ids.map_err(|why| tree.corrupted(pid, why))
    }

    /// Calls `take` with the content of data page `place`, which has `len` bytes.
    fn read_page(
        &self,
        tree: &Tree,
        pid: PageId,
        (place, len): (usize, usize),
        take: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let page = tree.named(tree.pool().shared_as(pid, AccessPattern::Scan))?;
        let data = of_table(tree, &page).and_then(|()| ChainPage::parse(&page, self.stub.chain)).and_then(|page| {
            if page.level != CHAIN_DATA || page.place as usize != place || page.len() != len {
                return Err("a page of a large value is in the wrong place");
            }
            Ok(page.data())
        });
        take(data.map_err(|why| tree.corrupted(pid, why))?);
        Ok(())
    }
}

/// Refuses a page of a large value of another table.
fn of_table(tree: &Tree, page: &[u8]) -> std::result::Result<(), Damage> {
    if page_table(page) == tree.table() { Ok(()) } else { Err("a page of a large value of another table") }
}
