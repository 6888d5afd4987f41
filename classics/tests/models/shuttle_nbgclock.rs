//! Promise: a thread reads the page that it asks for, and no frame is lost, however the steps of threads that fix,
//! read and evict pages interleave. Four threads, three frames, six pages, and a disk that sometimes fails reads.

use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result};
use foreshore_buffer::format::{blank_page, page_checksum};
use foreshore_classics::nbgclock::{Guard, Pool};
use foreshore_classics::replacement::Weights;
use foreshore_io::{File, FileLayer, Fs, Mem};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::io;
use std::path::Path;
use std::sync::Arc;

const THREADS: u64 = 4;
const FRAMES: usize = 3;
const PAGES: u64 = 6;
const ROUNDS: u64 = 6;
const SCHEDULES: usize = 2000;

/// Sound pages whose last bytes are their id; other threads run before each read, and some reads fail.
#[derive(Debug)]
struct Disk {
    pages: Arc<dyn File>,
    reads: AtomicU64,
}

impl Disk {
    fn new() -> Self {
        let pages = Mem::null().create(Path::new("pages")).expect("memory");
        for pid in (1..=PAGES).map(PageId) {
            let mut page = blank_page(pid);
            page[PAGE_SIZE - 8..].copy_from_slice(&pid.0.to_le_bytes());
            let checksum = page_checksum(&page).to_le_bytes();
            page[..checksum.len()].copy_from_slice(&checksum);
            pages.write_at(&page, pid.offset()).expect("memory");
        }
        Self { pages, reads: AtomicU64::new(0) }
    }
}

impl FileLayer for Disk {
    fn below(&self) -> &dyn File {
        &*self.pages
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        thread::yield_now();
        // ORDERING: a count.
        if self.reads.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
            return Err(Error::io("read", self.path().to_owned(), io::ErrorKind::TimedOut.into()));
        }
        self.pages.read_at(buf, offset)
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        self.pages.write_many(parts)
    }
}

/// Fixes a page, and retries while the disk fails.
fn fix(pool: &Pool, number: u64) -> Guard<'_> {
    loop {
        match pool.fix(PageId(number)) {
            Err(Error::Io { .. }) => {}
            fixed => return fixed.expect("no frame is lost"),
        }
    }
}

fn work(pool: &Pool, own: u64) {
    for round in 0..ROUNDS {
        let number = 1 + (own + 5 * round * (own + 1)) % PAGES;
        let guard = fix(pool, number);
        assert_eq!((guard.pid(), guard.read_u64(8)), (PageId(number), number), "another page");
        thread::yield_now();
        assert_eq!((guard.pid(), guard.read_u64(PAGE_SIZE - 8)), (PageId(number), number), "another page");
    }
}

fn storm() {
    let pool = Arc::new(Pool::open(Arc::new(Disk::new()), Weights::DEFAULT, FRAMES).expect("a pool"));
    let spawn = |own| {
        let pool = pool.clone();
        thread::spawn(move || work(&pool, own))
    };
    let threads: Vec<_> = (0..THREADS).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    // Every frame gives up its page for another one.
    for first in [1, 1 + FRAMES as u64] {
        drop((first..first + FRAMES as u64).map(|number| fix(&pool, number)).collect::<Vec<_>>());
    }
    let stats = pool.stats();
    assert!(stats.pages_entered > PAGES, "the script evicts: {stats:?}");
}

#[test]
fn a_thread_reads_the_page_that_it_asks_for() {
    shuttle(SCHEDULES, storm);
}

#[test]
#[should_panic]
fn an_eviction_of_a_fixed_page_is_noticed() {
    shuttle_mutated("nbgclock: evict a fixed page", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn pages_without_turns_are_noticed() {
    shuttle_mutated("nbgclock: pages without turns", SCHEDULES, storm);
}

#[test]
#[should_panic]
fn a_withdrawn_frame_that_stays_fixed_is_noticed() {
    shuttle_mutated("nbgclock: a withdrawn frame stays fixed", SCHEDULES, storm);
}
