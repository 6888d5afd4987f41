//! The homes of pages: their bytes in the data file.

use crate::engine::Engine;
use foreshore_base::limits::MAX_PAGES;
use foreshore_base::{Error, PageId, Place, Result};
use foreshore_buffer::Stamps;
use foreshore_buffer::format::{Flaw, verify_page};
use foreshore_io::AlignedBuf;

/// Checks the home of one page. Other threads may be writing the page, or may have freed it since it was found in a
/// tree.
pub(super) fn check_home(engine: &Engine, pid: PageId, buffers: &mut [AlignedBuf; 2]) -> Result<()> {
    let [buffer, before] = buffers;
    let mut len_before = None;
    if pid.0 >= MAX_PAGES {
        let why = "no data file is long enough for the page";
        return Err(Error::corrupted(&engine.storage.files().data, Place::Page(pid), why));
    }
    loop {
        // Before the read: the page may be written again at any time.
        let least = engine.storage.pool().stamps().least(pid, engine.storage.log().durable());
        let len = engine.storage.data().read_at(buffer, pid.offset())?;
        // The log is asked after the read: a page is written only once its changes are durable.
        let flaw = match verify_page(&buffer[..len], pid, engine.storage.log().durable()) {
            Err(flaw) => flaw,
            Ok(()) if Stamps::is_stale(buffer, least) => Flaw::Stale,
            Ok(()) => return Ok(()),
        };
        if !engine.storage.space().is_in_use(pid)? {
            return Ok(());
        }
        // A torn read of a write in progress differs from the next read. Equal bytes twice are damage.
        if len_before == Some(len) && buffer[..len] == before[..len] {
            return Err(Error::corrupted(&engine.storage.files().data, Place::Page(pid), flaw.why()));
        }
        std::mem::swap(buffer, before);
        len_before = Some(len);
        // Waits for a write in progress, and writes a page that is in use again.
        engine.storage.pool().flush_all()?;
    }
}
