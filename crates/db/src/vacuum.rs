//! Returning free pages to the file system.

use crate::engine::Engine;
use crate::{Result, TxnOptions};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_space::Spare;
use foreshore_sync::pause;

/// Frees the pages of dropped tables and large values that no snapshot reads, and truncates the end of the file.
/// Returns by how many bytes. Damage of a table is reported when everything else is done.
pub(crate) fn vacuum(engine: &Engine) -> Result<u64> {
    let reclaimed = free_unneeded(engine);
    let gone = cut_end(engine, Spare::Growth)?;
    reclaimed.map(|()| gone)
}

/// Frees the pages of dropped tables and large values that no snapshot reads.
pub(crate) fn free_unneeded(engine: &Engine) -> Result<()> {
    let reclaimed = engine.reclaimer.reclaim_all(&engine.admission, &engine.catalogue);
    Ok(reclaimed.and(engine.reclaimer.chains().free_all(&engine.admission, engine.catalogue.trees()))?)
}

/// Truncates the end of the file except for `spare` free pages. Returns by how many bytes.
pub(crate) fn cut_end(engine: &Engine, spare: Spare) -> Result<u64> {
    let (storage, admission) = (&engine.storage, &engine.admission);
    let cut = {
        let mut txn = admission.begin(TxnOptions::new().label("vacuum"))?;
        let cut = storage.space().start_cut(txn.session(), spare);
        // It holds no lock and has changed nothing; only its session was needed.
        let ended = txn.rollback();
        admission.transaction_ended();
        ended.and(cut)?
    };
    let Some(cut) = cut else { return Ok(0) };
    pause::point("db: the end of the file is to be cut");
    // Every record that changes a page beyond the new end is in a group before this one.
    storage.sync()?;
    let group = storage.log().next_group();
    let pages = if storage.checkpointer().settle(group)? { cut.finish()? } else { 0 };
    Ok(pages * PAGE_SIZE as u64)
}
