use super::*;
use foreshore_buffer::format::{blank_page, page_checksum};
use foreshore_buffer::replacement::MAX_USES;
use foreshore_io::{FileLayer, Fs, Mem};
use foreshore_sync::EventCount;
use foreshore_sync::primitive::thread;
use std::path::Path;

/// Returns a file with pages 1 to `pages`, sound and empty.
fn file(pages: u64) -> Arc<dyn File> {
    let file = Mem::null().create(Path::new("pages")).expect("memory");
    for pid in (1..=pages).map(PageId) {
        let mut page = blank_page(pid);
        let checksum = page_checksum(&page).to_le_bytes();
        page[..checksum.len()].copy_from_slice(&checksum);
        file.write_at(&page, pid.offset()).expect("memory");
    }
    file
}

fn pool(initial: u8, cap: u8, frames: usize) -> Pool {
    Pool::open(file(120), Weights::new(initial, cap).expect("sound weights"), frames).expect("memory")
}

/// Fixes a page for a moment; returns whether it was in memory.
fn hits(pool: &Pool, pid: u64) -> bool {
    let before = pool.stats().pages_read;
    let guard = pool.fix(PageId(pid)).expect("a sound page");
    assert_eq!((guard.pid(), guard.read_u64(8)), (PageId(pid), pid), "the id of the page is its second word");
    pool.stats().pages_read == before
}

#[test]
fn weights_say_how_many_uses_count_and_how_many_a_new_page_has() {
    // Returns how many new pages a used page outlives.
    let outlives = |(initial, cap)| {
        let pool = pool(initial, cap, 2);
        assert!([1, 2].iter().all(|&pid| !hits(&pool, pid)));
        assert!((0..100).all(|_| hits(&pool, 1)));
        let is_there = || pool.table.get(PageId(1)).is_some();
        (3..100).take_while(|&pid| !hits(&pool, pid) && is_there()).count()
    };
    assert_eq!([(1, 5), (1, 9), (3, 9), (2, 4)].map(outlives), [2, 4, 2, 1], "as gclock");
}

#[test]
fn fixed_pages_stay_and_a_pool_of_fixed_pages_says_so() {
    let pool = pool(1, 5, 4);
    let mut guards: Vec<_> = (1..=4).map(|pid| pool.fix(PageId(pid)).expect("a frame")).collect();
    assert!(matches!(pool.fix(PageId(5)), Err(Error::OutOfFrames { frames: 4 })));
    assert!((1..=4).all(|pid| hits(&pool, pid)));
    guards.pop();
    assert!(!hits(&pool, 5) && !hits(&pool, 4) && (1..=3).all(|pid| hits(&pool, pid)));
}

#[test]
fn what_is_no_sound_page_is_refused_and_does_no_harm() {
    let pool = pool(1, 5, 4);
    for pid in [0, 121, 500, u64::MAX] {
        for _ in 0..9 {
            assert!(matches!(pool.fix(PageId(pid)), Err(Error::Corrupted { .. })), "page {pid}");
        }
    }
    (1..=120).for_each(|pid| assert!(!hits(&pool, pid)));
    let torn = file(3);
    torn.write_at(&[1], PageId(2).offset() + 100).expect("memory");
    let pool = Pool::open(torn, Weights::DEFAULT, 4).expect("memory");
    assert!(matches!(pool.fix(PageId(2)), Err(Error::Corrupted { .. })));
    assert!(!hits(&pool, 1) && !hits(&pool, 3));
    assert!(matches!(Pool::open(file(1), Weights::DEFAULT, 0), Err(Error::InvalidOption { .. })));
}

/// Delays each read until enough threads read at once.
#[derive(Debug)]
struct Meeting {
    data: Arc<dyn File>,
    reading: AtomicUsize,
    changed: EventCount,
    threads: usize,
}

impl FileLayer for Meeting {
    fn below(&self) -> &dyn File {
        &*self.data
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.reading.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
        loop {
            let key = self.changed.prepare();
            if self.reading.load(Ordering::SeqCst) >= self.threads {
                self.changed.cancel(key);
                return self.data.read_at(buf, offset);
            }
            // WAIT: park - for the other threads.
            self.changed.wait(key, None);
        }
    }

    fn write_many(&self, parts: &[(&[u8], u64)]) -> Result<()> {
        self.data.write_many(parts)
    }
}

#[test]
fn threads_may_read_the_same_page_and_one_frame_keeps_it() {
    const THREADS: usize = 12;
    let (reading, changed) = (AtomicUsize::new(0), EventCount::new());
    let data = Arc::new(Meeting { data: file(8), reading, changed, threads: THREADS });
    let pool = Pool::open(data, Weights::DEFAULT, 64).expect("memory");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| assert_eq!(pool.fix(PageId(3)).expect("a sound page").read_u64(8), 3));
        }
    });
    let PoolStats { pages_read, pages_entered, reads_redundant } = pool.stats();
    assert_eq!((pages_read, pages_entered, reads_redundant), (THREADS as u64, 1, THREADS as u64 - 1));
    assert!(hits(&pool, 3));
    for frame in &pool.frames {
        let _is_spared = (0..=MAX_USES).all(|_| frame.age());
        assert!(frame.try_evict(), "a pin is left");
    }
}

#[test]
fn threads_read_what_they_ask_for_with_few_frames() {
    let pool = pool(1, 5, 6);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let pool = &pool;
            scope.spawn(move || {
                for n in 0..20_000_u64 {
                    hits_page(pool, 1 + (n * (thread + 3) + n * n / 7) % 12);
                }
            });
        }
    });
    let PoolStats { pages_read, pages_entered, .. } = pool.stats();
    assert!(pages_read >= pages_entered && pages_entered > 1000, "{:?}", pool.stats());
}

fn hits_page(pool: &Pool, pid: u64) {
    let guard = pool.fix(PageId(pid)).expect("a sound page");
    assert_eq!((guard.pid(), guard.read_u64(8)), (PageId(pid), pid), "another page");
}
