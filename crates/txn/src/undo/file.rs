//! The spill file: its handle, and its slots.

use super::pointer::CHUNK;
use foreshore_base::Result;
use foreshore_io::File;
use foreshore_sync::{LockRank, Mutex, ShardedCounter};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The number of chunks in the file that count as one chunk of memory, for the data about them in memory.
pub(super) const BOOKED: usize = 64;
/// The file is at most this many times as large as the memory. Then the data about its chunks takes half of the memory.
const MOST: usize = BOOKED / 2;

/// Creates the spill file.
type MakeFile = dyn Fn() -> Result<Arc<dyn File>> + Send + Sync;

/// A spill file for undo.
#[derive(Clone)]
pub struct SpillFile {
    make: Arc<MakeFile>,
    limit_bytes: usize,
}

impl SpillFile {
    /// Returns a spill file that `make` creates when undo is moved there for the first time. So the start of a database
    /// needs no disk space for it.
    ///
    /// Only one arena uses the file, and its content is useless afterwards. The file grows with each move, reuses free
    /// slots, and never shrinks. It takes at most `limit_bytes`, and at most 32 times the memory for undo.
    pub fn new(make: impl Fn() -> Result<Arc<dyn File>> + Send + Sync + 'static, limit_bytes: usize) -> Self {
        Self { make: Arc::new(make), limit_bytes }
    }

    /// Returns a spill file that exists already.
    #[must_use]
    pub fn of(file: Arc<dyn File>, limit_bytes: usize) -> Self {
        Self::new(move || Ok(Arc::clone(&file)), limit_bytes)
    }
}

impl fmt::Debug for SpillFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpillFile").field("limit_bytes", &self.limit_bytes).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Spill {
    to: SpillFile,
    /// The open file, once a chunk was moved there. Written under `moved`.
    file: OnceLock<Arc<dyn File>>,
    /// The most chunks that it may hold.
    pub(super) chunks: usize,
    /// The number of moves begun so far, each of one chunk. The thread that moves chunks holds the mutex.
    pub(super) moved: Mutex<u64>,
    /// The number of chunks read back.
    pub(super) read: ShardedCounter,
}

/// The slots of the file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: Vec<u64>,
    /// The first slot that was never used.
    fresh: u64,
}

impl Slots {
    pub(super) fn used(&self) -> usize {
        self.fresh as usize - self.free.len()
    }

    pub(super) fn give_back(&mut self, slot: u64) {
        self.free.push(slot);
    }

    pub(super) fn take(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            self.fresh - 1
        })
    }
}

impl Spill {
    /// Returns the spill file of an arena with `limit` chunks of memory.
    pub(super) fn new(to: SpillFile, limit: usize) -> Self {
        let chunks = (to.limit_bytes / CHUNK).min(MOST * limit);
        let moved = Mutex::new(LockRank::UndoSpill, 0);
        Self { to, file: OnceLock::new(), chunks, moved, read: ShardedCounter::new() }
    }

    /// Returns the file, to which a chunk was moved before.
    pub(super) fn file(&self) -> &dyn File {
        &**self.file.get().expect("a chunk was moved to the file")
    }

    /// Returns the file, and creates it if it does not exist. Called by the thread that moves chunks.
    pub(super) fn made_file(&self) -> Result<&dyn File> {
        if self.file.get().is_none() {
            let made = (self.to.make)()?;
            assert!(self.file.set(made).is_ok(), "one thread at a time moves chunks");
        }
        Ok(self.file())
    }
}
