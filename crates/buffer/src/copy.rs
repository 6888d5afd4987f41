//! Copies of pages as they would be written home.

use crate::Pool;
use crate::format::{page_id, page_lsn, seal_page};
use crate::scan_ring::AccessPattern;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Lsn, PageId, Result};

impl Pool {
    /// Copies a page into `out`, from memory or from its home, with its checksum. Returns its LSN, which may not be
    /// durable yet. It is zero for a page that was handed out and that no record has initialised.
    ///
    /// A page is in memory while it is written home. So this succeeds where a read of the home is torn.
    ///
    /// # Errors
    /// Those of reads, see [`Pool`].
    ///
    /// # Panics
    /// If `out` is no page long.
    pub fn copy_page(&self, pid: PageId, out: &mut [u8]) -> Result<Lsn> {
        assert_eq!(out.len(), PAGE_SIZE, "a page is copied");
        out.copy_from_slice(&self.shared_as(pid, AccessPattern::Scan)?);
        assert_eq!(page_id(out), pid, "a page carries its own id");
        seal_page(out);
        Ok(page_lsn(out))
    }
}
