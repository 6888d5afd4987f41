//! Promise: no page is lost or stale, under every policy and any interleaving of threads that fix, change, evict and
//! write pages. Six threads, three frames, eight pages, and a disk that fails reads now and then.

use foreshore_base::codec::u64_at;
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, PageId, Result, TableId, Uuid};
use foreshore_buffer::format::{PAGE_HEADER, blank_page, page_checksum};
use foreshore_buffer::{AccessPattern, Change, DoublewriteKind, PageMut, Pool, PoolOptions, change, change_cost};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::{File, Fs, Mem};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::{Dep, Log, LogOptions, Session};
use std::io;
use std::path::Path;
use std::sync::Arc;

const THREADS: u64 = 6;
pub(crate) const FRAMES: usize = 3;
pub(crate) const PAGES: u64 = 8;
const ROUNDS: u64 = 4;
pub(crate) const SCHEDULES: usize = 150;

const AT_OWN_ID: usize = PAGE_HEADER;
pub(crate) const AT_COUNT: usize = PAGE_HEADER + 8;
/// Offset of a second copy of the count, far from the first: a page of two states has two counts.
pub(crate) const AT_TAIL: usize = PAGE_SIZE - 8;

/// Pages in memory; other threads run before and after every access, and in the middle of a write.
#[derive(Debug)]
struct Disk {
    pages: Mutex<Vec<Vec<u8>>>,
    reads: AtomicU64,
}

impl Disk {
    fn new() -> Self {
        let page = |number| {
            let mut page = blank_page(PageId(number)).to_vec();
            page[AT_OWN_ID..AT_OWN_ID + 8].copy_from_slice(&number.to_le_bytes());
            let checksum = page_checksum(&page).to_le_bytes();
            page[..checksum.len()].copy_from_slice(&checksum);
            page
        };
        Self { pages: Mutex::new(LockRank::Leaf, (0..=PAGES).map(page).collect()), reads: AtomicU64::new(0) }
    }
}

impl File for Disk {
    fn path(&self) -> &Path {
        Path::new("pages")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        thread::yield_now();
        // ORDERING: a count.
        if self.reads.fetch_add(1, Ordering::Relaxed) % 7 == 6 {
            return Err(Error::io("read", self.path().to_owned(), io::ErrorKind::TimedOut.into()));
        }
        let (mut len, pages) = (0, buf.len() / PAGE_SIZE);
        for (number, page) in (offset / PAGE_SIZE as u64..=PAGES).zip(buf.chunks_exact_mut(PAGE_SIZE)) {
            page.copy_from_slice(&self.pages.lock()[number as usize]);
            len += page.len();
            // The image is old by the time it is used, those of several pages more so.
            (0..if pages == 1 { 1 } else { 6 }).for_each(|_| thread::yield_now());
        }
        Ok(len)
    }

    fn read_many(&self, parts: &mut [(&mut [u8], u64)]) -> Vec<Result<usize>> {
        parts.iter_mut().map(|(buf, offset)| self.read_at(buf, *offset)).collect()
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        for (number, page) in (offset / PAGE_SIZE as u64..).zip(buf.chunks_exact(PAGE_SIZE)) {
            thread::yield_now();
            self.pages.lock()[number as usize].copy_from_slice(page);
        }
        Ok(())
    }

    fn write_durable(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.write_at(buf, offset)
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
        Ok((PAGES + 1) * PAGE_SIZE as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        unreachable!("a pool does not grow files")
    }

    fn allocate(&self, _: u64, _: u64) -> Result<()> {
        unreachable!("a pool does not grow files")
    }
}

/// Checks that the page is `pid`, of one state, and returns its count.
pub(crate) fn check(page: &[u8], pid: PageId) -> u64 {
    assert_eq!(u64_at(page, AT_OWN_ID), pid.0, "page {pid} holds another page");
    let count = u64_at(page, AT_COUNT);
    assert_eq!(u64_at(page, AT_TAIL), count, "page {pid} is of two states");
    count
}

/// Repeats a call that failed for lack of a frame or by the disk, as a caller may.
pub(crate) fn insist<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(Error::OutOfFrames { .. }) => {}
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::TimedOut => {}
            Err(e) => panic!("{e:?}"),
        }
        thread::yield_now();
    }
}

pub(crate) fn count(pool: &Pool, session: &mut Session, pid: PageId) -> u64 {
    session.reserve(change_cost(1, 8)).expect("log space");
    let mut page = insist(|| pool.exclusive(pid));
    let next = (check(&page, pid) + 1).to_le_bytes();
    page.write(AT_COUNT, &next);
    page.write(AT_TAIL, &next);
    let what = Change { kind: 34, flags: 0, init_mask: 0, table: TableId(1), body: &[&next] };
    change(session, Dep::none(), 1, &what, &mut [&mut page]);
    u64::from_le_bytes(next)
}

pub(crate) fn read(pool: &Pool, pid: PageId, how: u64) -> Option<u64> {
    match how {
        0 => Some(check(&insist(|| pool.shared(pid)), pid)),
        1 => Some(check(&insist(|| pool.pin(pid)).shared(), pid)),
        2 => insist(|| pool.try_shared(pid, AccessPattern::Random)).map(|page| check(&page, pid)),
        3 => Some(check(&insist(|| pool.shared_as(pid, AccessPattern::Scan)), pid)),
        _ => {
            let mut copy = vec![0; PAGE_SIZE];
            let pattern = if how == 4 { AccessPattern::Scan } else { AccessPattern::Random };
            let guard = insist(|| pool.optimistic(pid, pattern));
            guard.copy_to(0..PAGE_SIZE, &mut copy);
            guard.validate().then(|| check(&copy, pid))
        }
    }
}

fn work(pool: &Pool, log: &Log, own: u64) {
    let mut session = log.session().expect("a session");
    // What this thread has seen of each page: counts never fall.
    let mut seen = [0; PAGES as usize + 1];
    for round in 0..ROUNDS {
        let number = 1 + (3 * own + round * (1 + own % 3)) % PAGES;
        let counted = count(pool, &mut session, PageId(number));
        assert!(counted > seen[number as usize], "page {number} is stale");
        seen[number as usize] = counted;
        let number = 1 + (own + 5 * round) % PAGES;
        if let Some(count) = read(pool, PageId(number), (own + round) % 6) {
            assert!(count >= seen[number as usize], "page {number} is stale");
            seen[number as usize] = count;
        }
        if own == 0 && round % 2 == 1 {
            pool.clean_step().expect("nothing but reads fails");
        }
        if own == 1 {
            // A page that other threads change, and that may not be in memory.
            pool.prefetch(&[PageId(1 + 3 * round % PAGES)]);
            let _ = insist(|| pool.reclaim_step());
        }
    }
}

/// A pool without threads of its own, and its log.
pub(crate) fn pool(frames: usize, replacement: ReplacementKind) -> (Pool, Log) {
    let options = LogOptions { ring_bytes: 64 << 10, max_sessions: 8, background: false, ..LogOptions::default() };
    let log = Log::discarding(&options).expect("a log");
    let doublewrite = Mem::null().create(Path::new("doublewrite")).expect("memory");
    let uuid = Uuid([1; 16]);
    Pool::create_files(&*doublewrite, uuid).expect("memory");
    let doublewrite_kind = DoublewriteKind::Off;
    let replacement = replacement.maker();
    let options =
        PoolOptions { frames, background: false, replacement, doublewrite: doublewrite_kind, read_around: true };
    (Pool::open(Arc::new(Disk::new()), doublewrite, uuid, log.clone(), &options).expect("a pool"), log)
}

fn storm(replacement: ReplacementKind) {
    let (pool, log) = pool(FRAMES, replacement);
    let spawn = |own| {
        let (pool, log) = (pool.clone(), log.clone());
        thread::spawn(move || work(&pool, &log, own))
    };
    let threads: Vec<_> = (0..THREADS).map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    let sum: u64 = (1..=PAGES).map(|number| read(&pool, PageId(number), 0).expect("shared")).sum();
    assert_eq!(sum, THREADS * ROUNDS, "changes were lost");
    assert!(pool.stats().evictions > 0, "the script evicts");
    // Every frame gives up its page for another one.
    for first in [1, 1 + FRAMES as u64] {
        let pin = |number| loop {
            match pool.pin(PageId(number)) {
                Err(Error::Io { .. }) => {}
                pinned => break pinned.expect("no frame is lost"),
            }
        };
        drop((first..first + FRAMES as u64).map(pin).collect::<Vec<_>>());
    }
}

fn every_policy() {
    ReplacementKind::ALL.into_iter().for_each(storm);
}

#[test]
fn no_page_is_lost_or_stale_whatever_the_policy() {
    shuttle(SCHEDULES, every_policy);
}

#[test]
#[should_panic]
fn an_eviction_that_does_not_check_dirt_under_the_latch_is_noticed() {
    shuttle_mutated("frame: dirt is not asked for under the latch", SCHEDULES, || storm(ReplacementKind::Clock));
}

#[test]
#[should_panic]
fn an_entry_that_overwrites_another_is_noticed() {
    shuttle_mutated("table: insert without a look", SCHEDULES, || storm(ReplacementKind::S3c));
}

#[test]
#[should_panic]
fn an_image_that_overtakes_another_on_its_way_home_is_noticed() {
    shuttle_mutated("cleaner: a page may be in two rounds", SCHEDULES, || storm(ReplacementKind::Clock));
}

#[test]
#[should_panic]
fn a_page_of_the_scan_ring_without_an_entry_is_noticed() {
    shuttle_mutated("scan ring: an entry whose page stays is dropped", SCHEDULES, || storm(ReplacementKind::Lru));
}

/// One thread has page 1 latched and then latches page 2. Another loads page 3 in place of page 2 and then latches page
/// 1. They deadlock only if the first thread waits for page 3.
fn meet_in_a_frame(replacement: ReplacementKind) {
    const TURNS: usize = 8;
    let (pool, _log) = pool(2, replacement);
    let [first, second, third] = [1, 2, 3].map(PageId);
    let down = {
        let pool = pool.clone();
        move || {
            for turn in 0..TURNS {
                drop(insist(|| pool.shared(second)));
                let above = insist(|| pool.exclusive(first));
                match turn % 2 {
                    0 => drop(insist(|| pool.try_exclusive(second))),
                    _ => drop(insist(|| pool.try_shared(second, AccessPattern::Random))),
                }
                drop(above);
            }
        }
    };
    let up = move || {
        for _ in 0..TURNS {
            let below = insist(|| pool.exclusive(third));
            drop(insist(|| pool.shared(first)));
            drop(below);
        }
    };
    let threads = [thread::spawn(down), thread::spawn(up)];
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
}

#[test]
fn a_waiter_with_a_latch_waits_for_the_page_that_was_meant() {
    shuttle(SCHEDULES, || ReplacementKind::ALL.into_iter().for_each(meet_in_a_frame));
}

#[test]
#[should_panic]
fn a_wait_with_a_latch_for_whatever_is_in_a_frame_is_noticed() {
    let name = "pool: wait beside a latch for whatever is in the frame";
    // Few schedules meet in the one frame.
    shuttle_mutated(name, 10 * SCHEDULES, || meet_in_a_frame(ReplacementKind::Clock));
}

/// Pages 2 and 3 are in one run. While one thread reads page 2, the other loads page 3, changes it, and evicts it.
fn neighbours(replacement: ReplacementKind) {
    const TURNS: u64 = 4;
    let (pool, log) = pool(FRAMES, replacement);
    let reader = {
        let pool = pool.clone();
        move || {
            for number in [2, 4, 2, 6, 2, 4, 2] {
                drop(insist(|| pool.shared(PageId(number))));
                insist(|| pool.reclaim_step());
            }
        }
    };
    let writer = {
        let pool = pool.clone();
        move || {
            let mut session = log.session().expect("a session");
            for turn in 1..=TURNS {
                assert_eq!(count(&pool, &mut session, PageId(3)), turn, "page 3 is stale");
                pool.clean_step().expect("nothing but reads fails");
                insist(|| pool.reclaim_step());
            }
        }
    };
    let threads = [thread::spawn(reader), thread::spawn(writer)];
    threads.into_iter().for_each(|thread| thread.join().expect("a thread ends"));
    assert_eq!(read(&pool, PageId(3), 0), Some(TURNS), "page 3 is stale");
}

#[test]
fn a_neighbour_is_loaded_as_it_is_though_another_thread_changes_it() {
    shuttle(SCHEDULES, || ReplacementKind::ALL.into_iter().for_each(neighbours));
}

#[test]
#[should_panic]
fn neighbours_that_are_entered_after_the_read_are_noticed() {
    let name = "pool: neighbours are entered after the read";
    shuttle_mutated(name, SCHEDULES, || neighbours(ReplacementKind::Clock));
}
