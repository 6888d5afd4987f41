//! Models of the word of a frame and of the page table, under a latch: fix, evict, load and write-back. The bytes of
//! the frame are a cell that loom watches, so an access that races with another fails.

use foreshore_base::{GroupNo, PageId};
use foreshore_buffer::model::{Frame, Kept, PageTable};
use foreshore_sync::ParkTable;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

const ONE: PageId = PageId(1);
const TWO: PageId = PageId(2);

/// One frame, and the homes of the pages on disk, which hold their ids times a hundred at first.
struct Store {
    frames: [Frame; 2],
    bytes: [UnsafeCell<u64>; 2],
    table: PageTable,
    parks: ParkTable,
    homes: [AtomicU64; 3],
    /// Changes made to page 1.
    made: AtomicU64,
}

// SAFETY: `bytes` are touched under the latches of their frames; that this suffices is what the models check.
unsafe impl Sync for Store {}
// SAFETY: as above.
unsafe impl Send for Store {}

fn table() -> PageTable {
    let table = PageTable::new();
    table.prepare(ONE).expect("memory");
    table
}

impl Store {
    /// Page 1 is in frame 0; frame 1 is free.
    fn new() -> Arc<Self> {
        let store = Self {
            frames: [Frame::new(), Frame::new()],
            bytes: [UnsafeCell::new(0), UnsafeCell::new(0)],
            table: table(),
            parks: ParkTable::new(),
            homes: [AtomicU64::new(0), AtomicU64::new(100), AtomicU64::new(200)],
            made: AtomicU64::new(0),
        };
        store.frames[0].latch().lock_exclusive(&store.parks);
        assert!(store.load(ONE, 0), "no other thread is there");
        Arc::new(store)
    }

    /// Loads a page into a frame whose exclusive latch is held, and releases the latch.
    fn load(&self, pid: PageId, no: usize) -> bool {
        let frame = &self.frames[no];
        frame.set_pid(pid);
        let entered = self.table.insert(pid, no as u32);
        if entered {
            // ORDERING: Acquire, the disk gives what was written last.
            let home = self.homes[pid.0 as usize].load(Ordering::Acquire);
            // SAFETY: the latch is held exclusively.
            self.bytes[no].with_mut(|bytes| unsafe { *bytes = home });
        } else {
            frame.set_pid(PageId::ZERO);
        }
        frame.latch().unlock_exclusive(&self.parks);
        entered
    }

    /// Evicts the page of frame 0; its exclusive latch is held afterwards.
    fn evict(&self) -> Result<(), Kept> {
        let pid = self.frames[0].try_vacate(&self.parks)?;
        self.table.remove(pid, 0);
        Ok(())
    }

    /// Latches page 1 shared, if it is in memory.
    fn shared(&self) -> Option<usize> {
        let no = self.table.get(ONE)? as usize;
        let frame = &self.frames[no];
        frame.latch().lock_shared(&self.parks);
        if frame.pid() == ONE {
            return Some(no);
        }
        frame.latch().unlock_shared(&self.parks);
        None
    }

    fn read(&self, no: usize) -> u64 {
        // SAFETY: the latch is held.
        self.bytes[no].with(|bytes| unsafe { *bytes })
    }
}

fn run(actors: &[fn(&Store)]) -> Arc<Store> {
    let store = Store::new();
    let spawn = |&actor: &fn(&Store)| {
        let store = store.clone();
        thread::spawn(move || actor(&store))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
    store
}

fn swap_pages(store: &Store) {
    if store.evict().is_ok() {
        assert!(store.load(TWO, 0), "no other thread wants it");
    }
}

fn pin(store: &Store) {
    let Some(no) = store.shared() else { return };
    store.frames[no].pin();
    store.frames[no].latch().unlock_shared(&store.parks);
    // Without a latch, but pinned.
    store.frames[no].latch().lock_shared(&store.parks);
    assert_eq!((store.frames[no].pid(), store.read(no)), (ONE, 100), "a pinned page left");
    store.frames[no].latch().unlock_shared(&store.parks);
    store.frames[no].unpin();
}

fn pins() {
    run(&[swap_pages, pin]);
}

#[test]
fn a_pinned_page_stays_and_a_latched_one_is_read_whole() {
    check(pins);
    check(|| drop(run(&[swap_pages, pin, pin])));
}

#[test]
#[should_panic(expected = "a pinned page left")]
fn an_eviction_that_does_not_check_pins_under_the_latch_is_noticed() {
    mutated("frame: pins are not asked for under the latch", pins);
}

/// Loads page 2 in place of page 1, and pins it.
fn swap_and_pin(store: &Store) {
    swap_pages(store);
    let frame = &store.frames[0];
    frame.latch().lock_shared(&store.parks);
    frame.pin();
    frame.latch().unlock_shared(&store.parks);
}

/// Reads page 1 by a stale frame number.
fn pin_again(store: &Store) {
    let frame = &store.frames[0];
    if frame.pin_again() {
        if frame.pid() == ONE {
            frame.latch().lock_shared(&store.parks);
            assert_eq!(frame.pid(), ONE, "a shared pin is of another page");
            frame.latch().unlock_shared(&store.parks);
        }
        frame.unpin();
    }
}

fn shared_pins() {
    run(&[swap_and_pin, pin_again]);
}

#[test]
fn a_shared_pin_shows_the_page_that_it_keeps() {
    check(shared_pins);
}

#[test]
#[should_panic(expected = "a shared pin is of another page")]
fn a_pin_that_does_not_publish_the_page_is_noticed() {
    mutated("frame: relaxed pin", shared_pins);
}

#[test]
#[should_panic(expected = "a shared pin is of another page")]
fn a_first_pin_without_a_latch_is_noticed() {
    mutated("frame: pin without a latch", shared_pins);
}

fn change(store: &Store) {
    let Some(no) = store.table.get(ONE) else { return };
    let frame = &store.frames[no as usize];
    frame.latch().lock_exclusive(&store.parks);
    if frame.pid() == ONE {
        if !frame.is_dirty() {
            frame.set_dirty(GroupNo(7));
        }
        // SAFETY: the latch is held exclusively.
        store.bytes[no as usize].with_mut(|bytes| unsafe { *bytes += 1 });
        // ORDERING: read when all threads have ended.
        store.made.store(1, Ordering::Relaxed);
    }
    frame.latch().unlock_exclusive(&store.parks);
}

/// Writes page 1 home as the cleaner does, without a latch while it writes.
fn clean(store: &Store) {
    let Some(no) = store.shared() else { return };
    let frame = &store.frames[no];
    let (copy, version, dirty) = (store.read(no), frame.latch().optimistic_version(), frame.is_dirty());
    assert!(!dirty || frame.rec_group() == Some(GroupNo(7)), "dirty, and since when is not known");
    frame.latch().unlock_shared(&store.parks);
    if !dirty {
        return;
    }
    // ORDERING: Release, pairs with the read of the home.
    store.homes[1].store(copy, Ordering::Release);
    frame.latch().lock_shared(&store.parks);
    assert_eq!(frame.pid(), ONE, "a dirty page left its frame");
    if frame.latch().optimistic_version() == version {
        frame.set_clean();
    }
    frame.latch().unlock_shared(&store.parks);
}

fn clean_and_swap(store: &Store) {
    clean(store);
    swap_pages(store);
}

/// Every change is in memory or at home, and at home if the page is not in memory or clean.
fn changes() {
    let store = run(&[change, clean_and_swap]);
    // ORDERING: all threads have ended.
    let (home, made) = (store.homes[1].load(Ordering::Acquire), store.made.load(Ordering::Acquire));
    let memory = store.shared().map(|no| (store.read(no), store.frames[no].is_dirty()));
    let (newest, dirty) = memory.unwrap_or((home, false));
    assert!(newest == 100 + made && (dirty || home == newest), "{made} changes, {home} at home, {memory:?} in memory");
}

#[test]
fn a_page_goes_home_before_its_eviction() {
    check(changes);
}

#[test]
#[should_panic(expected = "1 changes, 100 at home")]
fn an_eviction_that_does_not_check_dirt_under_the_latch_is_noticed() {
    mutated("frame: dirt is not asked for under the latch", changes);
}

/// Page 1 is evicted from frame 0, and two threads load it again, one in each frame.
fn return_to_first(store: &Store) {
    if store.evict().is_ok() {
        store.load(ONE, 0);
    }
}

fn return_to_second(store: &Store) {
    if store.table.get(ONE).is_none() {
        store.frames[1].latch().lock_exclusive(&store.parks);
        store.load(ONE, 1);
    }
}

fn inserts() {
    let store = run(&[return_to_first, return_to_second]);
    let holders = store.frames.iter().filter(|frame| frame.pid() == ONE).count();
    let no = store.shared().expect("a thread has brought it back");
    assert!(holders == 1 && store.read(no) == 100, "page 1 is in {holders} frames");
}

#[test]
fn a_page_is_in_one_frame_whichever_thread_loads_it() {
    check(inserts);
}

#[test]
#[should_panic(expected = "page 1 is in 2 frames")]
fn an_entry_that_overwrites_another_is_noticed() {
    mutated("table: insert without a look", inserts);
}
