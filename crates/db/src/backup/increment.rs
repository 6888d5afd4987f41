//! The file `increment`: the pages that an incremental backup has, in packs behind the superblock slots.
//!
//! Packs are written one after the other, pages in ascending order. Each is bound to its increment and to its place by
//! the checksum of its header, and its pages by their checksums in the header. All are full but the last.

use crate::format::backups::{BackupHeader, FIRST_PACK, PACK_PAGES, Token, decode_pack, encode_pack};
use foreshore_base::codec::u32_at;
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, PageId, Place, Result};
use foreshore_buffer::format::verify_page;
use foreshore_io::{AlignedBuf, File};
use foreshore_wal::REQUEST;
use std::sync::Arc;

/// The first page that is none of a superblock.
const FIRST: PageId = PageId(2);

/// Bytes of a pack of so many pages.
const fn pack_bytes(pages: usize) -> usize {
    BLOCK + pages * PAGE_SIZE
}

/// A writer of the pages of an increment.
pub(super) struct IncrementWriter<'f> {
    file: &'f dyn File,
    token: Token,
    /// The pack that is filled.
    buf: AlignedBuf,
    pages: Vec<(PageId, u32)>,
    /// Of that pack.
    number: u64,
    offset: u64,
}

impl<'f> IncrementWriter<'f> {
    pub(super) fn new(file: &'f dyn File, token: Token) -> Self {
        let buf = AlignedBuf::new(pack_bytes(PACK_PAGES));
        Self { file, token, buf, pages: Vec::with_capacity(PACK_PAGES), number: 0, offset: FIRST_PACK }
    }

    /// Appends a page, behind those with lower ids.
    pub(super) fn push(&mut self, pid: PageId, page: &[u8]) -> Result<()> {
        assert!(self.pages.last().is_none_or(|&(last, _)| last < pid), "page {pid} comes late into its pack");
        let at = pack_bytes(self.pages.len());
        self.buf[at..at + PAGE_SIZE].copy_from_slice(page);
        self.pages.push((pid, u32_at(page, 0)));
        if self.pages.len() == PACK_PAGES { self.flush() } else { Ok(()) }
    }

    /// Writes the last pack. The file is not synced.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.pages.is_empty() { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<()> {
        let len = pack_bytes(self.pages.len());
        encode_pack(&mut self.buf, self.token, self.number, &self.pages);
        for piece in self.buf[..len].chunks(REQUEST) {
            self.file.write_at(piece, self.offset)?;
            self.offset += piece.len() as u64;
        }
        self.pages.clear();
        self.number += 1;
        Ok(())
    }
}

/// A reader of the pages of an increment, in ascending order. It checks each.
pub(crate) struct IncrementReader {
    file: Arc<dyn File>,
    header: BackupHeader,
    /// The pack that was read last.
    buf: AlignedBuf,
    pages: Vec<(PageId, u32)>,
    /// Place in it of the next page.
    at: usize,
    /// Of the next pack.
    number: u64,
    offset: u64,
    /// Pages in the packs that are left.
    left: u64,
}

impl IncrementReader {
    /// Returns a reader of the increment with this header.
    pub(crate) fn new(file: &Arc<dyn File>, header: BackupHeader) -> Self {
        let (file, buf) = (Arc::clone(file), AlignedBuf::new(pack_bytes(PACK_PAGES)));
        Self { file, header, buf, pages: Vec::new(), at: 0, number: 0, offset: FIRST_PACK, left: header.stored }
    }

    /// Puts the pages of the increment into `run`, which begins with `first`. Runs follow each other from page 0 on.
    pub(crate) fn overlay(&mut self, run: &mut [u8], first: PageId) -> Result<()> {
        let end = first.0 + (run.len() / PAGE_SIZE) as u64;
        while let Some(pid) = self.next()?.filter(|pid| pid.0 < end) {
            let (to, from) = ((pid.0 - first.0) as usize * PAGE_SIZE, pack_bytes(self.at));
            run[to..to + PAGE_SIZE].copy_from_slice(&self.buf[from..from + PAGE_SIZE]);
            self.at += 1;
        }
        Ok(())
    }

    /// Checks the pages that are left: the last increment has a shorter data file.
    pub(crate) fn finish(mut self) -> Result<()> {
        while self.next()?.is_some() {
            self.at = self.pages.len();
        }
        Ok(())
    }

    /// Returns the id of the next page.
    fn next(&mut self) -> Result<Option<PageId>> {
        if self.at == self.pages.len() && self.left > 0 {
            self.read_pack()?;
        }
        Ok(self.pages.get(self.at).map(|&(pid, _)| pid))
    }

    fn read_pack(&mut self) -> Result<()> {
        let count = self.left.min(PACK_PAGES as u64) as usize;
        let damaged = |why| Error::corrupted(self.file.path(), Place::Offset(self.offset), why);
        let bytes = &mut self.buf[..pack_bytes(count)];
        if self.file.read_at(bytes, self.offset)? < bytes.len() {
            return Err(damaged("the increment ends before all of its pages"));
        }
        let pages = decode_pack(bytes, self.header.token, self.number).filter(|pages| pages.len() == count);
        let Some(pages) = pages else { return Err(damaged("a pack of pages is damaged, or of another increment")) };
        let mut least = self.pages.last().map_or(FIRST, |&(last, _)| PageId(last.0 + 1));
        for (&(pid, crc), page) in pages.iter().zip(bytes[BLOCK..].chunks_exact(PAGE_SIZE)) {
            if pid < least || pid.0 >= self.header.pages || u32_at(page, 0) != crc {
                return Err(damaged("a page is not that of its pack"));
            }
            verify_page(page, pid, self.header.end)
                .map_err(|flaw| Error::corrupted(self.file.path(), Place::Page(pid), flaw.why()))?;
            least = PageId(pid.0 + 1);
        }
        self.offset += bytes.len() as u64;
        (self.pages, self.at, self.number, self.left) = (pages, 0, self.number + 1, self.left - count as u64);
        Ok(())
    }
}
