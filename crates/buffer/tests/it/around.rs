//! Promise: a pool that was just opened reads a run of eight pages with one read. That never costs another page its
//! frame, and causes no error and no stale byte.

use crate::common::{Bed, DATA, Event, Watched, check, count, init, open, open_with, pool_options, store};
use foreshore_base::{Error, PageId};
use foreshore_buffer::{AccessPattern, PoolOptions};
use foreshore_classics::replacement::ReplacementKind;
use foreshore_io::Fs;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const PAGES: u64 = 128;
const RUN: u64 = 8;

/// Creates an empty pool, and a counter of its reads of the disk.
fn cold(fs: &Arc<dyn Fs>, options: &PoolOptions) -> (Bed, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let watch = Box::new(move |event: Event<'_>| {
        if let Event::Read = event {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let bed = open_with(fs, options, |_, inner| Arc::new(Watched { inner, watch })).expect("open");
    (bed, reads)
}

fn read(bed: &Bed, pids: Range<u64>) {
    for pid in pids.map(PageId) {
        assert_eq!(check(&bed.pool.shared(pid).expect("shared"), pid), 0);
    }
}

#[test]
fn a_cold_pool_reads_eight_pages_at_a_time_and_a_full_one_reads_one() {
    let (_, fs, _) = store(1, PAGES);
    for replacement in ReplacementKind::ALL {
        let (bed, reads) =
            cold(&fs, &PoolOptions { replacement: replacement.maker(), ..pool_options(2 * PAGES as usize) });
        read(&bed, 1..PAGES);
        let stats = bed.pool.stats();
        let expected = PAGES / RUN;
        assert_eq!(reads.load(Ordering::Relaxed), expected, "{replacement}");
        assert_eq!((stats.misses, stats.pages_ahead), (expected, PAGES - 1 - expected), "{replacement}");
        assert_eq!((stats.pages_read, stats.evictions), (PAGES - 1, 0), "{replacement}");
    }
    // Three quarters of the frames are filled by runs. After that no page is evicted for one that was not requested.
    let (bed, reads) = cold(&fs, &pool_options(64));
    read(&bed, 1..PAGES);
    let stats = bed.pool.stats();
    assert_eq!(reads.load(Ordering::Relaxed), 48 / RUN + PAGES - 48, "runs, then single pages");
    assert_eq!((stats.pages_read, stats.evictions), (PAGES - 1, PAGES - 1 - 64));
}

#[test]
fn scans_and_pools_that_are_told_so_read_single_pages() {
    let (_, fs, _) = store(1, PAGES);
    let (bed, reads) = cold(&fs, &pool_options(256));
    for pid in (1..PAGES).map(PageId) {
        drop(bed.pool.shared_as(pid, AccessPattern::Scan).expect("shared"));
    }
    assert_eq!((reads.load(Ordering::Relaxed), bed.pool.stats().pages_ahead), (PAGES - 1, 0));
    let (bed, reads) = cold(&fs, &PoolOptions { read_around: false, ..pool_options(256) });
    read(&bed, 1..PAGES);
    assert_eq!((reads.load(Ordering::Relaxed), bed.pool.stats().pages_ahead), (PAGES - 1, 0));
}

#[test]
fn the_last_run_of_the_file_comes_as_far_as_it_goes() {
    let (_, fs, _) = store(1, PAGES - 3);
    let (bed, reads) = cold(&fs, &pool_options(256));
    read(&bed, PAGES - 5..PAGES - 3);
    let stats = bed.pool.stats();
    assert_eq!((reads.load(Ordering::Relaxed), stats.pages_ahead, stats.frames_free), (1, 4, 256 - 5));
    let beyond = bed.pool.shared(PageId(PAGES - 3));
    assert!(matches!(beyond, Err(Error::Corrupted { why: "the file ends before the page", .. })), "{beyond:?}");
}

#[test]
fn a_torn_neighbour_is_no_error_until_it_is_fixed() {
    let (sim, _, _) = store(1, PAGES);
    sim.patch(Path::new(DATA), PageId(20).offset() + 512, &[0; 512]).expect("patch");
    let fs: Arc<dyn Fs> = Arc::new(sim);
    let (bed, reads) = cold(&fs, &pool_options(256));
    read(&bed, 18..20);
    read(&bed, 21..24);
    assert_eq!((reads.load(Ordering::Relaxed), bed.pool.stats().pages_ahead), (1, 6));
    for _ in 0..2 {
        let torn = bed.pool.shared(PageId(20));
        let why = "the checksum of the page does not fit";
        assert!(matches!(torn, Err(Error::Corrupted { why: own, .. }) if own == why), "{torn:?}");
    }
    assert_eq!(bed.pool.stats().frames_free, 256 - 7, "its frame went back");
}

#[test]
fn a_run_that_cannot_be_read_is_no_error_of_the_page() {
    let (sim, fs, _) = store(1, PAGES);
    let bed = open(&fs, &pool_options(256)).expect("open");
    sim.inject_read_error(sim.reads(), false);
    read(&bed, 20..21);
    let stats = bed.pool.stats();
    assert_eq!((stats.pages_ahead, stats.frames_free), (0, 255), "it was read alone");
    sim.inject_read_error(sim.reads(), true);
    assert!(matches!(bed.pool.shared(PageId(30)), Err(Error::Io { op: "read", .. })));
    assert_eq!(bed.pool.stats().frames_free, 255);
}

#[test]
fn neighbours_in_memory_stay_as_they_are() {
    let (_, fs, _) = store(1, PAGES);
    let (bed, reads) = cold(&fs, &pool_options(256));
    let mut session = bed.log.session().expect("a session");
    // A new page, so that no run was read for it.
    let lsn = init(&bed.pool, &mut session, PageId(21)).expect("init");
    assert_eq!(count(&bed.pool, &mut session, PageId(17)).expect("count").0, 1);
    assert_eq!((reads.load(Ordering::Relaxed), bed.pool.stats().pages_ahead), (1, 4), "16 to 20 have come");
    read(&bed, 22..24);
    assert_eq!((reads.load(Ordering::Relaxed), bed.pool.stats().pages_read), (2, 7), "and now 22 and 23");
    assert_eq!(check(&bed.pool.shared(PageId(17)).expect("shared"), PageId(17)), 1, "a change that is not yet home");
    assert_eq!((bed.pool.shared(PageId(21)).expect("shared").lsn(), bed.pool.stats().pages_dirty), (lsn, 2));
}

#[test]
fn each_page_of_a_run_is_read_once_however_many_threads_want_them() {
    const THREADS: u64 = 8;
    let (_, fs, _) = store(1, PAGES);
    let (bed, reads) = cold(&fs, &pool_options(256));
    thread::scope(|scope| {
        for own in 0..THREADS {
            let bed = &bed;
            scope.spawn(move || (1..PAGES / RUN).for_each(|run| read(bed, run * RUN + own..run * RUN + own + 1)));
        }
    });
    let (reads, stats) = (reads.load(Ordering::Relaxed), bed.pool.stats());
    // Several threads may begin at once, and each load a part of the run.
    assert_eq!((stats.pages_read, stats.frames_free), (PAGES - RUN, 256 + RUN - PAGES));
    assert!(reads <= stats.misses, "{reads} reads, {stats:?}");
}
