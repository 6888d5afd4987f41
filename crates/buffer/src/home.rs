//! The writing of pages to their homes: the data file, the doublewrite file, and the write-ahead rule.

use crate::doublewrite::Doublewrite;
use crate::format::Batch;
use crate::options::DoublewriteKind;
use crate::rounds::Round;
use crate::stamps::Stamps;
use crate::stats::PageWrites;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, Lsn, Result};
use foreshore_io::File;
use foreshore_sync::model::mutant;
use foreshore_sync::{ShardedCounter, pause};
use foreshore_wal::Log;
use std::io;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Home {
    data: Arc<dyn File>,
    doublewrite: Doublewrite,
    log: Log,
    stamps: Arc<Stamps>,
    /// Whether the device was found to write pages whole.
    offers_whole: bool,
    kind: DoublewriteKind,
    batches: ShardedCounter,
    doublewrite_batches: ShardedCounter,
    pages_written: ShardedCounter,
    syncs: ShardedCounter,
}

impl Home {
    pub(crate) fn new(
        data: Arc<dyn File>,
        doublewrite: Doublewrite,
        log: Log,
        stamps: Arc<Stamps>,
        kind: DoublewriteKind,
    ) -> Self {
        Self {
            offers_whole: data.writes_whole(PAGE_SIZE),
            data,
            doublewrite,
            log,
            stamps,
            kind,
            batches: ShardedCounter::new(),
            doublewrite_batches: ShardedCounter::new(),
            pages_written: ShardedCounter::new(),
            syncs: ShardedCounter::new(),
        }
    }

    pub(crate) const fn stamps(&self) -> &Arc<Stamps> {
        &self.stamps
    }

    /// Notes the pages of a round as durable at home.
    pub(crate) fn note(&self, round: &Round<'_>) {
        self.stamps.note(round.copies().iter().map(|copied| (copied.entry.pid, copied.entry.lsn, copied.group)));
    }

    /// Returns the sequence number of the newest batch in the doublewrite file, and its area.
    pub(crate) fn newest_batch(&self) -> (u64, usize) {
        self.doublewrite.newest()
    }

    /// Returns the counts of batches, of batches with images, of pages written, and of syncs.
    pub(crate) fn counts(&self) -> [u64; 4] {
        [&self.batches, &self.doublewrite_batches, &self.pages_written, &self.syncs].map(ShardedCounter::sum)
    }

    pub(crate) fn offers_whole(&self) -> bool {
        self.offers_whole
    }

    /// Returns how pages are written where the device does not write them whole.
    pub(crate) fn torn_writes(&self) -> PageWrites {
        if self.kind == DoublewriteKind::Off { PageWrites::Plain } else { PageWrites::Doublewrite }
    }

    /// Returns how pages are written at first.
    pub(crate) fn writes(&self) -> PageWrites {
        let is_whole = self.offers_whole && self.kind != DoublewriteKind::On;
        if is_whole { PageWrites::Whole } else { self.torn_writes() }
    }

    /// Restores torn pages from the doublewrite file and returns how many. The recovered log ends at `durable`.
    pub(crate) fn restore(&self, durable: Lsn) -> Result<usize> {
        let restored = self.doublewrite.restore(&*self.data, durable)?;
        if self.writes() != PageWrites::Doublewrite {
            // Later writes do not go through the images, and an old image must not replace a newer page.
            self.doublewrite.invalidate()?;
        }
        Ok(restored)
    }

    /// Begins a batch by the write-ahead rule: no page reaches any file before the log holds every change on it.
    pub(crate) fn write_ahead(&self, round: &Round<'_>) -> Result<()> {
        self.batches.add(1);
        if mutant("sabotage: a page goes home before its log") {
            return Ok(());
        }
        let lsn = round.copies().iter().map(|copied| copied.entry.lsn).max().unwrap_or_default();
        if lsn > self.log.durable() {
            self.log.force(lsn)?;
        }
        assert!(lsn <= self.log.durable(), "page lsn {lsn} is ahead of the log");
        self.check_runs()
    }

    /// Writes the pages of a round home, each whole or not at all. Returns false if the device refuses that for some.
    pub(crate) fn write_whole(&self, round: &Round<'_>) -> Result<bool> {
        let is_whole = self.fatal(self.data.write_whole(&round.pages()))?;
        if is_whole {
            self.pages_written.add(round.copies().len() as u64);
        }
        Ok(is_whole)
    }

    /// Writes the images of a round to its doublewrite area, and makes them durable.
    pub(crate) fn write_images(&self, round: &mut Round<'_>, sequence: u64) -> Result<()> {
        let area = if mutant("cleaner: both rounds use one area") { 0 } else { round.area() };
        let batch = Batch { sequence, entries: round.copies().iter().map(|copied| copied.entry).collect() };
        self.fatal(self.doublewrite.write(area, &batch, round.buf()))?;
        self.doublewrite_batches.add(1);
        pause::point("pool: images are durable");
        self.pages_written.add(batch.entries.len() as u64);
        Ok(())
    }

    /// Writes the pages of a round home, all at once.
    pub(crate) fn write(&self, round: &Round<'_>) -> Result<()> {
        // The space was allocated with the pages. So even a full disk here is a broken promise of the file system.
        self.fatal(self.data.write_many(&round.runs()))?;
        pause::point("pool: pages are written");
        self.pages_written.add(round.copies().len() as u64);
        Ok(())
    }

    /// Makes the pages that were written home durable.
    pub(crate) fn sync(&self) -> Result<()> {
        if !mutant("cleaner: a round ends before its sync") {
            self.syncs.add(1);
            self.fatal(self.data.sync())?;
            pause::point("pool: pages are synced");
        }
        // A failed sync of the other round may have been the one that reported lost pages of this round.
        self.check_runs()
    }

    /// Stops the log because a round unwinds: its pages may be torn at home, so their images must not be overwritten.
    pub(crate) fn stop(&self) {
        let why = io::Error::other("a round of the cleaner unwinds");
        self.log.poison(&Error::io("write pages to", self.data.path(), why));
    }

    /// Fails if the log has stopped.
    fn check_runs(&self) -> Result<()> {
        self.log.poisoned().map_or(Ok(()), |cause| Err(Error::poisoned(&cause)))
    }

    /// Returns `result`. An error of a file stops the log first, because a page may be marked clean and lost.
    fn fatal<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|e| self.log.poison(e))
    }
}
