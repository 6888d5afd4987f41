//! Repaired images replace the homes of damaged pages, while no pool is open.
//!
//! As after a crash, the images of the doublewrite file go home first: their areas are used again. Then the repaired
//! images are written in batches, each through one of the two areas. So a crash leaves each page as it was or repaired,
//! and the next start, or the next repair, restores what is torn (`doublewrite.rs`).
//!
//! **Stamps** are left alone. A repaired page has at least the LSN of its stamp, which the caller has checked. A lost
//! write of it leaves what was there before, and that is noticed as it was before.

use crate::Pool;
use crate::doublewrite::Doublewrite;
use crate::format::{AREA_BYTES, AREA_PAGES, Batch, Entry, page_lsn, seal_page, verify_page};
use foreshore_base::limits::{BLOCK, PAGE_SIZE};
use foreshore_base::{Error, Lsn, PageId, Place, Result, Uuid};
use foreshore_io::{AlignedBuf, File};
use foreshore_sync::pause;
use std::sync::Arc;

impl Pool {
    /// Replaces the homes of pages in `data`. `image` fills a page with its new content. The log, of which nothing is
    /// written meanwhile, is durable up to `durable`.
    ///
    /// # Errors
    /// `Corrupted` for an image that is that of another page, or ahead of the log; those of a disk, of the doublewrite
    /// file, and of `image`.
    pub fn replace_homes(
        data: &dyn File,
        doublewrite: Arc<dyn File>,
        (uuid, durable): (Uuid, Lsn),
        pages: &[PageId],
        image: &mut dyn FnMut(PageId, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let doublewrite = Doublewrite::open(doublewrite, uuid)?;
        doublewrite.restore(data, durable)?;
        let (mut sequence, mut area) = doublewrite.newest();
        let mut buf = AlignedBuf::new(AREA_BYTES);
        for pages in pages.chunks(AREA_PAGES) {
            (sequence, area) = (sequence + 1, 1 - area);
            let mut entries = Vec::with_capacity(pages.len());
            for (&pid, page) in pages.iter().zip(buf[BLOCK..].chunks_exact_mut(PAGE_SIZE)) {
                image(pid, page)?;
                let entry = Entry { pid, lsn: page_lsn(page), crc: seal_page(page) };
                verify_page(page, pid, durable)
                    .map_err(|flaw| Error::corrupted(data.path(), Place::Page(pid), flaw.why()))?;
                entries.push(entry);
            }
            doublewrite.write(area, &Batch { sequence, entries }, &mut buf)?;
            pause::point("repair: images are durable");
            for (&pid, page) in pages.iter().zip(buf[BLOCK..].chunks_exact(PAGE_SIZE)) {
                data.write_at(page, pid.offset())?;
            }
            data.sync()?;
            pause::point("repair: pages are synced");
        }
        Ok(())
    }
}
