//! Compaction: packs leaves, moves pages to the front of the file, and truncates its end, while all other work
//! continues. See [`passes`] for how.

mod options;
mod passes;

use crate::{Db, Result, trace};
pub use options::{CompactOptions, Compaction};
use passes::Compactor;
use std::ops::ControlFlow;

impl Db {
    /// Makes the data file as short as its rows allow, while others read and write. Returns what was done.
    ///
    /// Rows of sparse pages are brought together in full ones, pages at the end of the file move to free ones near its
    /// front, and the end is truncated. Log files that are kept for later log are removed. Pages that deleted rows,
    /// dropped tables and replaced values need for a snapshot or a running transaction stay. So do roots of tables, and
    /// the file cannot end before the last of them.
    ///
    /// Compacted pages are full. The next rows that are inserted between others split them again, so compact after
    /// large removals, not regularly. Every page that changes is logged once or twice.
    ///
    /// ```
    /// # use foreshore::{Db, Error, TableDef};
    /// # let db = Db::in_memory()?;
    /// const EVENTS: TableDef<u64, [u8; 100]> = TableDef::new("events");
    /// db.run(|tx| (0..5000).try_for_each(|id| tx.open(EVENTS)?.insert(id, [7; 100]).map(drop)))?;
    /// db.run(|tx| (0..5000).filter(|id| id % 10 > 0).try_for_each(|id| tx.open(EVENTS)?.remove(id).map(drop)))?;
    /// let done = db.compact()?;
    /// assert!(done.is_complete);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// `ReadOnly`. `LockTimeout` if another transaction that creates or drops a table does not end; otherwise those of
    /// a transaction. What was done before an error stays done.
    pub fn compact(&self) -> Result<Compaction> {
        self.compact_with(CompactOptions::new(), |_| ControlFlow::Continue(()))
    }

    /// Does the same as [`compact`](Self::compact) with options. `progress` is called between two steps and may stop
    /// the compaction. A step visits a few pages, copies one large value, frees what is no longer needed, or truncates
    /// the file. Nothing is locked meanwhile, so it may wait.
    /// It must not compact the same database.
    ///
    /// ```
    /// use foreshore::CompactOptions;
    /// use std::ops::ControlFlow;
    /// # use foreshore::{Db, Error};
    /// # let db = Db::in_memory()?;
    /// // A quarter of a thread's time, and at most a thousand steps.
    /// let mut steps = 0;
    /// let done = db.compact_with(CompactOptions::new().share(25), |_so_far| {
    ///     steps += 1;
    ///     if steps < 1000 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    /// })?;
    /// println!("{} bytes shorter", done.truncated);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`compact`](Self::compact), and `InvalidOption`.
    pub fn compact_with(
        &self,
        options: CompactOptions,
        mut progress: impl FnMut(&Compaction) -> ControlFlow<()>,
    ) -> Result<Compaction> {
        let share = options.percent()?;
        let engine = &**self.engine();
        engine.admission.check_open()?;
        if engine.storage.directory().is_read_only() {
            return Err(crate::Error::ReadOnly);
        }
        // WAIT: park - for the compaction that runs.
        let _turn = engine.queues.take_compaction();
        let done = Compactor::new(self, share, &mut progress).run();
        trace::ended("compact", &done);
        done
    }
}
