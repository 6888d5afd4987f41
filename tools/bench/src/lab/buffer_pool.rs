//! The pool that `buffer-*` drive: that of the engine or that of Nb-GCLOCK. It lies over a file that answers every id
//! with a sound page, without a disk, or over one whose reads are counted.

use foreshore_base::{Error, PageId, Result, Uuid, codec::u64_at, limits::PAGE_SIZE};
use foreshore_buffer::{
    DoublewriteKind, Pool, PoolOptions,
    format::{blank_page, page_checksum},
};
use foreshore_classics::{
    nbgclock,
    replacement::{ReplacementKind, Weights},
};
use foreshore_io::{File, FileLayer, Fs, Mem};
use foreshore_wal::{Log, LogOptions};
use std::{cell::Cell, fmt, io, path::Path, sync::Arc};

/// Four reads in five go to a fifth of the pages.
pub(super) const SKEW: f64 = 0.86;
/// Has no divisor in common with the numbers of pages: scatters ranks over the pages.
pub(super) const SCATTER: u64 = 7_368_787;

thread_local! {
    static READS: Cell<u64> = const { Cell::new(0) };
}

/// Pages that this thread has read.
pub(super) fn reads() -> u64 {
    READS.get()
}

/// Which pool is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    /// The engine's, with a policy.
    Engine(ReplacementKind),
    /// That of Nb-GCLOCK.
    NbGClock,
}

impl PoolKind {
    pub(super) const ALL: [Self; 8] = [
        Self::Engine(ReplacementKind::Lru),
        Self::Engine(ReplacementKind::TwoQ),
        Self::Engine(ReplacementKind::BpLru),
        Self::Engine(ReplacementKind::BpTwoQ),
        Self::Engine(ReplacementKind::Clock),
        Self::Engine(ReplacementKind::GCLOCK),
        Self::NbGClock,
        Self::Engine(ReplacementKind::S3c),
    ];

    /// A pool with nothing in it, whose pages are all clean.
    ///
    /// Nothing but a miss empties frames, one at a time, and it reads one page, so that hits are those of the policy.
    pub(super) fn open(self, frames: usize) -> Result<TestPool> {
        self.open_with(Arc::new(Blank), frames, false)
    }

    /// A pool over `data` that runs as in production. Its pages are all clean too.
    pub(super) fn open_on(self, data: Arc<dyn File>, frames: usize) -> Result<TestPool> {
        self.open_with(data, frames, true)
    }

    fn open_with(self, data: Arc<dyn File>, frames: usize, production: bool) -> Result<TestPool> {
        let Self::Engine(policy) = self else {
            let pool = nbgclock::Pool::open(data, Weights::DEFAULT, frames)?;
            return Ok(TestPool::NbGClock(Box::new(pool)));
        };
        let (replacement, doublewrite) = (policy.maker(), DoublewriteKind::Off);
        let options = PoolOptions { frames, background: production, replacement, doublewrite, read_around: production };
        open(data, &options).map(TestPool::Engine)
    }
}

impl fmt::Display for PoolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(policy) => policy.fmt(f),
            Self::NbGClock => f.write_str("nbgclock"),
        }
    }
}

/// A pool that is driven.
#[derive(Debug)]
pub(super) enum TestPool {
    Engine(Pool),
    NbGClock(Box<nbgclock::Pool>),
}

impl TestPool {
    /// Fixes the page and reads its last bytes.
    pub(super) fn read(&self, pid: PageId) -> Result<u64> {
        let at = PAGE_SIZE - 8;
        Ok(match self {
            Self::Engine(pool) => {
                let guard = pool.shared(pid)?;
                assert_eq!(guard.pid(), pid, "the page asked for");
                u64_at(&guard, at)
            }
            Self::NbGClock(pool) => {
                let guard = pool.fix(pid)?;
                assert_eq!(guard.pid(), pid, "the page asked for");
                guard.read_u64(at)
            }
        })
    }

    /// Pages read from the file, and pages that came into frames. Ends the threads of the pool first: then the counters
    /// belong together.
    pub(super) fn close(&self) -> (u64, u64) {
        match self {
            Self::Engine(pool) => {
                pool.close();
                let stats = pool.stats();
                (stats.pages_read, stats.evictions + stats.frames - stats.frames_free)
            }
            Self::NbGClock(pool) => (pool.stats().pages_read, pool.stats().pages_entered),
        }
    }
}

fn open(data: Arc<dyn File>, options: &PoolOptions) -> Result<Pool> {
    let log = Log::discarding(&LogOptions { background: false, max_sessions: 1, ..LogOptions::default() })?;
    let doublewrite = Mem::null().create(Path::new("doublewrite"))?;
    let uuid = Uuid([1; 16]);
    Pool::create_files(&*doublewrite, uuid)?;
    Pool::open(data, doublewrite, uuid, log, options)
}

/// A page id that a lab asked for: ids of pages start at 1.
pub(super) fn page(number: u64) -> PageId {
    PageId(1 + number)
}

/// A file in which every page is blank but for its id and checksum.
#[derive(Debug)]
struct Blank;

impl Blank {
    fn refuse<T>(&self) -> Result<T> {
        Err(Error::io("write", self.path().to_owned(), io::ErrorKind::ReadOnlyFilesystem.into()))
    }
}

impl File for Blank {
    fn path(&self) -> &Path {
        Path::new("blank pages")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        READS.set(READS.get() + 1);
        for (n, out) in (0..).zip(buf.chunks_exact_mut(PAGE_SIZE)) {
            out.copy_from_slice(&blank_page(PageId(offset / PAGE_SIZE as u64 + n)));
            // The checksum comes first on a page.
            let checksum = page_checksum(out).to_le_bytes();
            out[..checksum.len()].copy_from_slice(&checksum);
        }
        Ok(buf.len())
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        parts.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        self.refuse()
    }

    fn write_durable(&self, _: &[u8], _: u64) -> Result<()> {
        self.refuse()
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        parts.iter().try_for_each(|&(buf, offset)| self.write_at(buf, offset))
    }

    fn writes_whole(&self, _: usize) -> bool {
        false
    }

    fn write_whole(&self, _: &[(&[u8], u64)]) -> Result<bool> {
        Ok(false)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn read_past_cache(&self) -> Result<()> {
        Ok(())
    }

    fn read_cached(&self) {}

    fn len(&self) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        self.refuse()
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        self.refuse()
    }
}

/// A file whose reads are counted by thread.
#[derive(Debug)]
pub(super) struct Counting(pub(super) Arc<dyn File>);

impl FileLayer for Counting {
    fn below(&self) -> &dyn File {
        &*self.0
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        READS.set(READS.get() + 1);
        self.0.read_at(buf, offset)
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        self.0.write_many(parts)
    }
}

/// To a hundredth of a point.
pub(super) fn ratio(hits: u64, of: u64) -> f64 {
    (hits as f64 / of.max(1) as f64 * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_page_is_there_and_is_read_once() {
        for kind in PoolKind::ALL {
            let pool = kind.open(16).unwrap();
            let before = reads();
            for number in [0, 7, 1 << 30, 7, 0] {
                assert_eq!(pool.read(page(number)).unwrap(), 0);
            }
            assert_eq!((reads() - before, pool.close()), (3, (3, 3)), "{kind}");
        }
    }
}
