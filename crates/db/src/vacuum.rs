//! Returning free pages to the file system.

use crate::engine::Engine;
use crate::{Result, TxnOptions};
use foreshore_base::limits::PAGE_SIZE;

impl Engine {
    /// Frees the pages of dropped tables that no older snapshot reads, and truncates the end of the file. Returns by
    /// how many bytes. Damage of a table is reported when everything else is done.
    pub(crate) fn vacuum(&self) -> Result<u64> {
        let reclaimed = self.reclaim_all();
        let gone = self.cut_end()?;
        Ok(reclaimed.map(|()| gone)?)
    }

    fn cut_end(&self) -> Result<u64> {
        let cut = {
            let mut txn = self.begin(TxnOptions::new().label("vacuum"))?;
            let cut = self.space.start_cut(txn.session());
            // It holds no lock and has changed nothing; only its session was needed.
            let ended = txn.rollback();
            self.transaction_ended();
            ended.and(cut)?
        };
        let Some(cut) = cut else { return Ok(0) };
        // Every record that changes a page beyond the new end is in a group before this one.
        self.log.force(self.log.current())?;
        let group = self.log.next_group();
        let pages = if self.checkpointer.settle(group)? { cut.finish()? } else { 0 };
        Ok(pages * PAGE_SIZE as u64)
    }
}
