//! The file for undo: the handle of it, and its slots.

use super::pointer::CHUNK;
use foreshore_base::Result;
use foreshore_io::File;
use foreshore_sync::{LockRank, Mutex, ShardedCounter};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// So many chunks in the file count as one in memory, for what is kept of them there.
pub(super) const BOOKED: usize = 64;
/// The file is at most so many times as large as memory: what is kept of it takes half of that then.
const MOST: usize = BOOKED / 2;

/// Makes the file for undo.
type MakeFile = dyn Fn() -> Result<Arc<dyn File>> + Send + Sync;

/// A file for undo.
#[derive(Clone)]
pub struct SpillFile {
    make: Arc<MakeFile>,
    limit_bytes: usize,
}

impl SpillFile {
    /// The file that `make` makes when undo is moved there for the first time, so that a start needs no space for it.
    /// The file is used by one arena alone, and what is in it is of no use afterwards. It grows by what is moved at
    /// once, uses free places again, and never shrinks. Of a `limit_bytes` of more than 32 times the memory for undo
    /// the rest is not used.
    pub fn new(make: impl Fn() -> Result<Arc<dyn File>> + Send + Sync + 'static, limit_bytes: usize) -> Self {
        Self { make: Arc::new(make), limit_bytes }
    }

    /// A file that is there.
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
    /// Once something was moved there. Written under `moved`.
    file: OnceLock<Arc<dyn File>>,
    /// How many chunks it may hold.
    pub(super) chunks: usize,
    /// How many chunks were moved. Held by the thread that moves some.
    pub(super) moved: Mutex<u64>,
    /// Chunks read back.
    pub(super) read: ShardedCounter,
}

/// The places in the file.
#[derive(Debug, Default)]
pub(super) struct Slots {
    free: Vec<u64>,
    /// From here on none was ever used.
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
    /// Beside so many chunks in memory.
    pub(super) fn new(to: SpillFile, limit: usize) -> Self {
        let chunks = (to.limit_bytes / CHUNK).min(MOST * limit);
        let moved = Mutex::new(LockRank::UndoSpill, 0);
        Self { to, file: OnceLock::new(), chunks, moved, read: ShardedCounter::new() }
    }

    /// The file, in which something lies.
    pub(super) fn file(&self) -> &dyn File {
        &**self.file.get().expect("a chunk was moved to the file")
    }

    /// The file, made if it is not there. By the thread that moves chunks.
    pub(super) fn made_file(&self) -> Result<&dyn File> {
        if self.file.get().is_none() {
            let made = (self.to.make)()?;
            assert!(self.file.set(made).is_ok(), "one thread at a time moves chunks");
        }
        Ok(self.file())
    }
}
