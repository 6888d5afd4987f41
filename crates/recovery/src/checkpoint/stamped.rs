//! The stamps of pages: written before the superblock that needs them. See [`Stamps`](foreshore_buffer::Stamps).

use foreshore_base::Result;
use foreshore_buffer::Pool;
use foreshore_io::File;
use foreshore_space::SuperBlock;
use foreshore_sync::pause;

/// Writes the superblock after `next`, and before it the stamps of the images whose changes redo from there would not
/// repeat.
pub(super) fn write_superblock(pool: &Pool, data: &dyn File, next: &SuperBlock) -> Result<SuperBlock> {
    data.sync()?;
    pause::point("checkpoint: the data file is synced");
    pool.stamps().write(next.redo_start, next.seq + 1);
    pause::point("checkpoint: the stamps are durable");
    next.write_synced(data)
}
