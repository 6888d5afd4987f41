//! Returning free pages to the file system.

use crate::engine::Engine;
use crate::maintenance::both;
use crate::{Result, TxnOptions, trace};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_space::Spare;
use foreshore_sync::pause;

/// Frees what no snapshot needs, and then truncates the end of the file, even if freeing has failed. Returns the number
/// of bytes cut off. If both fail, the errors are combined by [`both`].
pub(crate) fn vacuum(engine: &Engine) -> Result<u64> {
    let freed = free_unneeded(engine);
    let bytes = truncate_end(engine, Spare::Growth);
    let cut = both(freed, bytes);
    trace::ended("vacuum", &cut);
    cut
}

/// Frees the pages of dropped tables, and of large values that no row refers to, once no snapshot needs them.
pub(crate) fn free_unneeded(engine: &Engine) -> Result<()> {
    let tables = engine.reclaimer.reclaim_all(&engine.admission, &engine.catalogue);
    let values = engine.reclaimer.chains().free_all(&engine.admission, engine.catalogue.trees());
    both(tables, values)
}

/// Truncates the end of the file except for `spare` free pages. Returns by how many bytes.
pub(crate) fn truncate_end(engine: &Engine, spare: Spare) -> Result<u64> {
    let (storage, admission) = (&engine.storage, &engine.admission);
    let cut = {
        let mut txn = admission.begin(TxnOptions::new().label("vacuum"))?;
        let cut = storage.space().start_truncation(txn.session(), spare);
        // The transaction has no lock and no undo: it lends its session. Map pages that the cut has dropped stay
        // dropped.
        let ended = txn.rollback();
        admission.transaction_ended();
        ended.and(cut)?
    };
    let Some(cut) = cut else { return Ok(0) };
    pause::point("db: the end of the file is to be cut");
    storage.sync()?;
    let group = storage.log().next_group();
    // All records of pages beyond the new end are in groups before `group`: the sync above has sealed them. The file
    // gets shorter only if no restart would redo an earlier group.
    let pages = if storage.checkpointer().settle(group)? { cut.finish()? } else { 0 };
    Ok(pages * PAGE_SIZE as u64)
}
