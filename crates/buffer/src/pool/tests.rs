//! Tests of the parts of a pool.

use super::*;
use crate::frame::Frame;
use crate::frame::FrameNo;
use crate::guard::LatchGuard;
use crate::options::PoolOptions;
use crate::page::PageMut;
use foreshore_base::Uuid;
use foreshore_io::{Fs, Mem};
use foreshore_sync::primitive::thread;
use foreshore_wal::LogOptions;
use std::path::Path;
use std::time::Duration;

/// Creates a pool without threads over files without pages.
fn empty_pool(frames: usize) -> Pool {
    let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
    let [data, doublewrite] = ["data", "dw"].map(|name| Mem::null().create(Path::new(name)).expect("memory"));
    Pool::create_files(&*doublewrite, Uuid([1; 16])).expect("memory");
    let options = PoolOptions { frames, background: false, ..PoolOptions::default() };
    Pool::open(data, doublewrite, Uuid([1; 16]), log, &options).expect("a pool")
}

/// Returns the frame of a page in memory.
fn frame_of(pool: &Pool, pid: PageId) -> &Frame {
    let guard: SharedGuard<'_> = pool.residency.fix(pid, AccessPattern::Scan).expect("in memory");
    guard.slot().frame()
}

#[test]
fn a_page_that_has_changed_or_gone_is_not_returned_to() {
    let pool = empty_pool(64);
    let mut guard = pool.create(PageId(1)).unwrap();
    guard.mark_dirty();
    let position = guard.position();
    drop(guard);
    let again = pool.exclusive_at(position).expect("as it was left");
    assert_eq!(again.pid(), PageId(1));
    assert!(pool.exclusive_at(position).is_none(), "it is latched");
    drop(again);
    let mut again = pool.exclusive_at(position).expect("the latch alone is no change");
    again.write(100, &[1]);
    drop(again);
    assert!(pool.exclusive_at(position).is_none(), "it has changed");
}

#[test]
fn a_scan_leaves_no_trace_on_a_page_in_memory() {
    let pool = empty_pool(128);
    let (pid, scan) = (PageId(1), AccessPattern::Scan);
    drop(pool.pin_unread(pid).expect("a frame"));
    let frame = frame_of(&pool, pid);
    let before = frame.uses();
    drop(pool.shared_as(pid, scan).expect("in memory"));
    drop(pool.try_shared(pid, scan).expect("in memory"));
    assert!(pool.optimistic(pid, scan).expect("in memory").validate(), "one thread");
    let guard = pool.try_optimistic(pid, scan).expect("in memory");
    assert!(guard.is_some_and(|guard| guard.validate()), "one thread");
    drop(pool.pin_as(pid, scan).expect("in memory"));
    assert_eq!((frame.uses(), frame.is_in_ring()), (before, false));
}

#[test]
fn reading_a_page_ahead_is_no_use_of_it() {
    let pool = empty_pool(128);
    drop(pool.pin_unread(PageId(1)).expect("a frame"));
    let frame = frame_of(&pool, PageId(1));
    let before = frame.uses();
    pool.prefetch(&[PageId(1)]);
    assert!(!pool.loader.read_ahead(), "it is in memory");
    pool.loader.ahead().request([PageId(1)].into_iter());
    assert!(pool.loader.read_ahead() && !pool.loader.read_ahead());
    assert_eq!((frame.uses(), pool.stats().pages_ahead), (before, 0), "it has come in meanwhile");
}

#[test]
fn a_thread_that_is_notified_of_free_frames_again_and_again_waits_on() {
    let pool = empty_pool(16);
    let pins: Vec<_> = (1..=16).map(|pid| pool.pin_unread(PageId(pid)).expect("a frame")).collect();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.pin_unread(PageId(17)).map(drop));
        // Frames that others take each time, more often than a thread waits for frames that stay in use.
        while pool.stats().evictions_inline < 400 && !waiter.is_finished() {
            pool.residency.freed().notify_one();
            thread::yield_now();
        }
        drop(pins);
        waiter.join().expect("no panic").expect("a frame came free");
    });
}

#[test]
fn the_reclaimer_does_not_notify_itself_when_it_has_found_nothing_to_write() {
    let pool = empty_pool(16);
    let guards: Vec<_> = (1..=16)
        .map(|pid| {
            let mut guard = pool.create(PageId(pid)).expect("a frame");
            guard.mark_dirty();
            guard
        })
        .collect();
    let is_notified = || pool.residency.low().wait(Some(Duration::ZERO));
    is_notified();
    // Every page is dirty, latched, and under way in no round.
    assert_eq!(pool.reclaim_step().expect("no page to write"), NextWake::OnSignal);
    assert!(!is_notified(), "it would come back at once, for ever");
    // The round of another thread may have kept the reclaimer from cleaning, so its end notifies.
    let mut frames: Vec<FrameNo> = (0..16).collect();
    assert!(pool.cleaner.try_clean(&mut frames, false).expect("no page to write"), "no thread cleans");
    assert!(is_notified());
    drop(guards);
}
