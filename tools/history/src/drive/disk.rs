//! A simulated disk whose log takes its time, so that commits are under way while others read what they wrote.

use foreshore::Result;
use foreshore_io::{Backend, DirLock, File, FileLayer, Fs, Kind, Sim};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A durable write takes less than so many microseconds longer, in which it lets others run. By time, not by turns: on a
/// machine with other work a turn may take milliseconds.
const MAX_MICROS: u64 = 200;

/// The disk.
#[derive(Debug)]
pub(super) struct SlowDisk {
    below: Sim,
    writes: Arc<AtomicU64>,
}

impl SlowDisk {
    pub(super) fn new(below: &Sim) -> Self {
        Self { below: below.clone(), writes: Arc::default() }
    }

    fn layer(&self, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { below, writes: Arc::clone(&self.writes) })
    }
}

/// A file of it.
#[derive(Debug)]
struct SlowFile {
    below: Arc<dyn File>,
    writes: Arc<AtomicU64>,
}

impl FileLayer for SlowFile {
    fn below(&self) -> &dyn File {
        &*self.below
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        // ORDERING: relaxed - a number to choose by, which publishes nothing.
        let number = self.writes.fetch_add(1, Ordering::Relaxed);
        // The multiplier spreads the times of one write and the next.
        let time = Duration::from_micros((number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % MAX_MICROS);
        let begin = Instant::now();
        while begin.elapsed() < time {
            thread::yield_now();
        }
        self.below.write_durable(buf, offset)
    }
}

impl Fs for SlowDisk {
    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.below.create_dir(dir)
    }

    fn kind(&self, path: &Path) -> Result<Option<Kind>> {
        self.below.kind(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.below.open(path).map(|file| self.layer(file))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.below.create(path).map(|file| self.layer(file))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.below.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.below.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.below.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.below.sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn DirLock>> {
        self.below.lock(path)
    }

    fn backend(&self) -> Backend {
        self.below.backend()
    }
}
