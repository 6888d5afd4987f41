//! A simulated disk whose log takes its time, so that commits are under way while others read what they wrote.

use foreshore_base::Result;
use foreshore_io::{File, FileLayer, Fs, FsLayer, Sim};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A durable write takes less than so many extra microseconds, in which other threads run. They are measured by time,
/// not by yields: on a machine with other work a yield may take milliseconds.
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

impl FsLayer for SlowDisk {
    fn below(&self) -> &dyn Fs {
        &self.below
    }

    fn wrap(&self, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { below, writes: Arc::clone(&self.writes) })
    }
}
