//! Promise: a fix finds the newest state of its page, for any number of threads and frames.

use crate::common::{Event, Rng, Watched, check, count, create, init, open, open_with, pool_options};
use foreshore_base::limits::PAGE_SIZE;
use foreshore_base::{Error, InvalidOption, PageId};
use foreshore_buffer::format::{PAGE_HEADER, page_lsn};
use foreshore_buffer::{AccessPattern, DoublewriteKind, PageMut, PoolOptions, PoolStats};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::{Fs, Mem};
use foreshore_sync::EventCount;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const PAGES: u64 = 100;

fn mem(pages: u64) -> Arc<dyn Fs> {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    create(&fs, pages).expect("an empty store");
    fs
}

fn stress(options: &PoolOptions) {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 400;
    let fs = mem(PAGES);
    {
        // The file checks the write-ahead rule at each write.
        let bed = open_with(&fs, options, |log, inner| {
            let log = log.clone();
            let watch = Box::new(move |event: Event<'_>| {
                if let Event::Write(bytes, _) = event {
                    let newest = bytes.chunks_exact(PAGE_SIZE).map(page_lsn).max().expect("whole pages");
                    assert!(newest <= log.durable(), "a page went home ahead of the log");
                }
            });
            Arc::new(Watched { inner, watch })
        })
        .expect("open");
        let mut session = bed.log.session().expect("a session");
        for pid in 1..PAGES {
            init(&bed.pool, &mut session, PageId(pid)).expect("init");
        }
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let bed = &bed;
                scope.spawn(move || {
                    let mut session = bed.log.session().expect("a session");
                    let mut rng = Rng(seed);
                    for round in 0..ROUNDS {
                        count(&bed.pool, &mut session, PageId(1 + rng.below(PAGES - 1))).expect("count");
                        let pid = PageId(1 + rng.below(PAGES - 1));
                        match round % 3 {
                            0 => drop(check(&bed.pool.shared(pid).expect("shared"), pid)),
                            1 => drop(check(&bed.pool.pin(pid).expect("pin").shared(), pid)),
                            _ => {
                                let mut copy = [0; PAGE_SIZE];
                                let guard = bed.pool.optimistic(pid, AccessPattern::Random).expect("optimistic");
                                guard.copy_to(0..PAGE_SIZE, &mut copy);
                                if guard.validate() {
                                    check(&copy, pid);
                                }
                            }
                        }
                        if seed == 0 && round % 100 == 50 {
                            let group = bed.log.next_group();
                            bed.pool.flush_older_than(group, |_| Ok(())).expect("flush");
                        }
                    }
                });
            }
        });
        let sum: u64 = (1..PAGES).map(|pid| check(&bed.pool.shared(PageId(pid)).expect("shared"), PageId(pid))).sum();
        assert_eq!(sum, THREADS * ROUNDS, "counts were lost or made up");
        assert!(bed.pool.stats().evictions > PAGES, "the script evicts");
        bed.pool.flush_all().expect("flush");
        assert_eq!(bed.pool.min_rec_group(), None);
        assert_eq!(bed.pool.stats().pages_dirty, 0);
    }
    // From disk alone: nothing of the log is redone.
    let bed = open(&fs, options).expect("reopen");
    let sum: u64 = (1..PAGES).map(|pid| check(&bed.pool.shared(PageId(pid)).expect("shared"), PageId(pid))).sum();
    assert_eq!(sum, THREADS * ROUNDS, "the pages on disk are stale");
}

#[test]
fn no_count_is_lost_with_sixteen_frames_and_a_hundred_pages_whatever_the_policy() {
    for replacement in ReplacementKind::ALL {
        stress(&PoolOptions { replacement: replacement.maker(), ..pool_options(16) });
    }
}

#[test]
fn no_count_is_lost_with_a_background_thread_whatever_the_policy() {
    for replacement in ReplacementKind::ALL {
        stress(&PoolOptions { frames: 48, replacement: replacement.maker(), ..PoolOptions::default() });
    }
}

#[test]
fn no_count_is_lost_without_doublewrite() {
    stress(&PoolOptions { doublewrite: DoublewriteKind::Off, ..pool_options(24) });
}

/// Twelve threads fix the same missing page. The read is held up until all threads have begun. Also returns the number
/// of reads.
fn meet_at_a_miss(replacement: ReplacementKind) -> (PoolStats, usize) {
    const THREADS: usize = 12;
    let fs = mem(8);
    {
        let bed = open(&fs, &pool_options(16)).expect("open");
        let mut session = bed.log.session().expect("a session");
        init(&bed.pool, &mut session, PageId(3)).expect("init");
        bed.pool.flush_all().expect("flush");
    }
    let (arrived, reads) = (Arc::new((AtomicUsize::new(0), EventCount::new())), Arc::new(AtomicUsize::new(0)));
    let arrive = |arrived: &(AtomicUsize, EventCount)| {
        arrived.0.fetch_add(1, Ordering::SeqCst);
        arrived.1.notify_all();
    };
    let bed = open_with(&fs, &PoolOptions { replacement: replacement.maker(), ..pool_options(64) }, |_, inner| {
        let (arrived, reads) = (arrived.clone(), reads.clone());
        let watch = Box::new(move |event: Event<'_>| {
            let Event::Read = event else { return };
            reads.fetch_add(1, Ordering::Relaxed);
            loop {
                let key = arrived.1.prepare();
                if arrived.0.load(Ordering::SeqCst) == THREADS {
                    return arrived.1.cancel(key);
                }
                arrived.1.wait(key, None);
            }
        });
        Arc::new(Watched { inner, watch })
    })
    .expect("open");
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (bed, arrived) = (&bed, &arrived);
            scope.spawn(move || {
                arrive(arrived);
                match n % 3 {
                    0 => assert_eq!(check(&bed.pool.shared(PageId(3)).expect("shared"), PageId(3)), 0),
                    1 => assert_eq!(check(&bed.pool.exclusive(PageId(3)).expect("exclusive"), PageId(3)), 0),
                    _ => assert_eq!(check(&bed.pool.pin(PageId(3)).expect("pin").shared(), PageId(3)), 0),
                }
            });
        }
    });
    (bed.pool.stats(), reads.load(Ordering::Relaxed))
}

#[test]
fn threads_that_miss_the_same_page_read_it_once() {
    for replacement in ReplacementKind::ALL {
        let (stats, reads) = meet_at_a_miss(replacement);
        // The neighbours were never written.
        assert_eq!((reads, stats.pages_read, stats.pages_ahead), (1, 7, 0), "{replacement}");
        assert_eq!(stats.frames_free, 63, "frames taken in vain went back");
    }
}

#[test]
fn pinned_pages_stay_and_a_pool_full_of_pins_says_so() {
    let fs = mem(PAGES);
    let bed = open(&fs, &pool_options(16)).expect("open");
    let mut session = bed.log.session().expect("a session");
    for pid in 1..40 {
        init(&bed.pool, &mut session, PageId(pid)).expect("init");
    }
    let mut pins: Vec<_> = (1..=15).map(|pid| bed.pool.pin(PageId(pid)).expect("pin")).collect();
    for pid in 16..40 {
        check(&bed.pool.shared(PageId(pid)).expect("one frame is left"), PageId(pid));
    }
    let read = bed.pool.stats().pages_read;
    for pin in &pins {
        assert_eq!(check(&pin.shared(), pin.pid()), 0);
        assert!(pin.try_exclusive().is_some());
    }
    assert_eq!(bed.pool.stats().pages_read, read, "a pinned page is never read again");
    pins.push(bed.pool.pin(PageId(16)).expect("the last frame"));
    assert!(matches!(bed.pool.shared(PageId(17)), Err(Error::OutOfFrames { frames: 16 })));
    pins.pop();
    check(&bed.pool.shared(PageId(17)).expect("a frame came free"), PageId(17));
}

#[test]
fn a_latched_page_is_waited_for_beside_a_latch_only_while_it_is_pinned() {
    let fs = mem(8);
    let bed = open(&fs, &pool_options(16)).expect("open");
    let (pool, pid) = (&bed.pool, PageId(2));
    let held = pool.create(pid).expect("create");
    assert!(
        pool.try_shared(pid, AccessPattern::Random).expect("in range").is_none()
            && pool.try_exclusive(pid).expect("in range").is_none()
    );
    let pin = held.pin();
    let released = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            drop(pool.try_shared(pid, AccessPattern::Random).expect("in range").expect("the page stays"));
            assert!(released.load(Ordering::Acquire));
        });
        let writer = scope.spawn(|| {
            drop(pool.try_exclusive(pid).expect("in range").expect("the page stays"));
            assert!(released.load(Ordering::Acquire));
        });
        for _ in 0..100 {
            thread::yield_now();
        }
        assert!(!reader.is_finished() && !writer.is_finished());
        released.store(true, Ordering::Release);
        drop(held);
    });
    drop(pin);
    drop(pool.try_exclusive(pid).expect("in range").expect("it is not latched"));
    drop(pool.try_shared(pid, AccessPattern::Random).expect("in range").expect("it is not latched"));
    assert!(pool.try_shared(PageId(3), AccessPattern::Random).expect("in range").is_none(), "it is not in memory");
}

#[test]
fn an_optimistic_read_that_validates_is_of_one_state() {
    let fs = mem(8);
    let bed = open(&fs, &pool_options(16)).expect("open");
    drop(bed.pool.create(PageId(2)).expect("create"));
    let (stop, valid) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut copy = [0; PAGE_SIZE - PAGE_HEADER];
                while !stop.load(Ordering::Relaxed) || valid.load(Ordering::Relaxed) == 0 {
                    let guard = bed.pool.optimistic(PageId(2), AccessPattern::Random).expect("resident");
                    guard.copy_to(PAGE_HEADER..PAGE_SIZE, &mut copy);
                    let word = guard.read_u64(PAGE_HEADER + 8);
                    if guard.validate() {
                        assert!(copy.iter().all(|&byte| byte == copy[0]), "two states in one read");
                        assert_eq!(word.to_le_bytes(), [copy[0]; 8]);
                        valid.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for round in 0..20_000 {
            bed.pool.exclusive(PageId(2)).expect("resident").fill(PAGE_HEADER..PAGE_SIZE, round as u8);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let before = bed.pool.optimistic(PageId(2), AccessPattern::Random).expect("resident");
    drop(bed.pool.exclusive(PageId(2)).expect("resident"));
    assert!(before.validate(), "a latch that changed nothing disturbs no reader");
    assert_eq!(before.read_u64(PAGE_SIZE - 7), 0, "a read over the end of the page is no panic");
    assert_eq!(before.read_u64(usize::MAX), 0);
    let upgraded = before.try_upgrade().expect("no latch is in the way");
    let stale = upgraded.pid();
    drop(upgraded);
    assert_eq!(stale, PageId(2));
}

#[test]
fn a_page_created_again_is_blank_and_its_stamps_go_on() {
    let fs = mem(8);
    let bed = open(&fs, &pool_options(16)).expect("open");
    let mut session = bed.log.session().expect("a session");
    let first = init(&bed.pool, &mut session, PageId(2)).expect("init");
    let page = bed.pool.create(PageId(2)).expect("create");
    assert_eq!(page.lsn(), first);
    assert!(page.is_dirty(), "the earlier change is still not home");
    assert!(page[PAGE_HEADER..].iter().all(|&byte| byte == 0));
    drop(page);
    assert!(init(&bed.pool, &mut session, PageId(2)).expect("init") > first);
    assert!(matches!(bed.pool.shared(PageId(0)), Err(Error::Corrupted { .. })));
    assert!(matches!(bed.pool.create(PageId(1 << 31)), Err(Error::Corrupted { .. })));
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let fs = mem(8);
    assert!(matches!(
        open(&fs, &pool_options(15)).err(),
        Some(Error::InvalidOption(InvalidOption { name: "frames", .. }))
    ));
    assert!(matches!("fifo".parse::<ReplacementKind>(), Err(InvalidOption { name: "replacement", .. })));
}

#[test]
fn a_slow_disk_is_no_lack_of_frames() {
    const FRAMES: u64 = 16;
    let fs = mem(PAGES);
    let (slow, parked) = (Arc::new(AtomicBool::new(false)), Arc::new(EventCount::new()));
    let bed = open_with(&fs, &pool_options(FRAMES as usize), |_, inner| {
        let (slow, parked) = (slow.clone(), parked.clone());
        let watch = Box::new(move |event: Event<'_>| {
            if matches!(event, Event::Sync) && slow.swap(false, Ordering::Relaxed) {
                // Longer than any thread waits for frames that are in use.
                let key = parked.prepare();
                parked.wait(key, Some(Duration::from_millis(1300)));
            }
        });
        Arc::new(Watched { inner, watch })
    })
    .expect("open");
    let mut session = bed.log.session().expect("a session");
    for pid in 1..=FRAMES {
        init(&bed.pool, &mut session, PageId(pid)).expect("init");
    }
    let stats = bed.pool.stats();
    assert_eq!((stats.frames_free, stats.pages_dirty), (0, FRAMES));
    slow.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| bed.pool.flush_all().expect("flush"));
        while slow.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        init(&bed.pool, &mut session, PageId(FRAMES + 1)).expect("a frame, once the batch is home");
    });
}
