//! Models of the state machine of `nbgclock`: fix against evict, those who help, and those who read the same page. The bytes
//! of the frame are a cell that loom watches.

use foreshore_base::PageId;
use foreshore_buffer::model::{Frame, PageTable};
use foreshore_sync::ParkTable;
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use std::sync::Arc;

const ONE: PageId = PageId(1);
const TWO: PageId = PageId(2);
const CAP: u8 = 2;

/// One frame with page 1, unused.
struct Store {
    frame: Frame,
    bytes: UnsafeCell<u64>,
    table: PageTable,
    parks: ParkTable,
}

// SAFETY: `bytes` are written under the exclusive latch before the page is loaded, and read with a pin afterwards; that this
// suffices is what the models check.
unsafe impl Sync for Store {}
// SAFETY: as above.
unsafe impl Send for Store {}

fn table() -> PageTable {
    let table = PageTable::new();
    table.make_room(ONE).expect("memory");
    table
}

impl Store {
    fn new() -> Arc<Self> {
        let store = Self { frame: Frame::new(), bytes: UnsafeCell::new(0), table: table(), parks: ParkTable::new() };
        store.frame.start_evicted();
        store.claim(ONE, 0);
        Arc::new(store)
    }

    /// Gives the free frame to a page that is in no frame.
    fn claim(&self, pid: PageId, uses: u8) {
        self.frame.latch.lock_exclusive(&self.parks);
        self.frame.set_pid(pid);
        assert!(self.table.insert(pid, 0), "the only frame");
        self.frame.enter(uses);
        self.frame.latch.unlock_exclusive(&self.parks);
    }

    /// What the guard of a page reads; `None` if it is not in memory.
    fn fix(&self, pid: PageId) -> Option<u64> {
        self.table.get(pid)?;
        if !self.frame.fix(CAP) {
            self.frame.help_evict(&self.table, &self.parks, pid, 0);
            return None;
        }
        let found = (self.frame.pid() == pid).then(|| {
            if self.frame.is_loading() {
                self.frame.latch.lock_exclusive(&self.parks);
                if self.frame.is_loading() {
                    // SAFETY: the latch is held exclusively, and nobody reads a page that is not loaded.
                    self.bytes.with_mut(|bytes| unsafe { *bytes = 100 * pid.0 });
                    self.frame.loaded();
                }
                self.frame.latch.unlock_exclusive(&self.parks);
            }
            // SAFETY: the page is loaded and pinned.
            let read = self.bytes.with(|bytes| unsafe { *bytes });
            assert_eq!(self.frame.pid(), pid, "a fixed page left");
            read
        });
        self.frame.unpin();
        found
    }

    fn evict(&self) -> bool {
        while self.frame.uses() > 0 && self.frame.cool() {
            if self.frame.is_pinned() {
                return false;
            }
        }
        let Ok(pid) = self.frame.try_evict() else { return false };
        self.table.remove_if(pid, 0);
        self.frame.set_pid(PageId::ZERO);
        true
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
    // Nobody is left, so one more round finds everything in order.
    for pid in [ONE, TWO] {
        assert!(store.fix(pid).is_none_or(|read| read == 100 * pid.0), "page {pid} holds another");
        assert_eq!(store.table.get(pid).is_some(), store.frame.pid() == pid, "the table and the frame disagree");
    }
    store
}

fn fix_one(store: &Store) {
    assert!(store.fix(ONE).is_none_or(|read| read == 100), "page 1 holds another");
}

fn swap_pages(store: &Store) {
    if store.evict() {
        store.claim(TWO, 0);
        assert!(store.fix(TWO).is_none_or(|read| read == 200), "page 2 holds another");
    }
}

fn fix_and_swap(store: &Store) {
    fix_one(store);
    swap_pages(store);
}

/// The page leaves and comes back to the same frame.
fn evict_and_return(store: &Store) {
    if store.evict() {
        store.claim(ONE, 0);
        fix_one(store);
    }
}

fn fix_against_evict() {
    run(&[fix_one, swap_pages]);
}

fn help_against_return() {
    run(&[fix_one, evict_and_return]);
}

#[test]
fn a_fixed_page_stays_until_it_is_unfixed() {
    check(fix_against_evict);
}

#[test]
fn whoever_reads_a_page_first_has_loaded_it_for_all() {
    check(|| drop(run(&[fix_one, fix_one])));
    check(|| drop(run(&[fix_one, fix_and_swap])));
}

#[test]
fn a_helper_leaves_the_page_alone_that_has_come_back() {
    check(help_against_return);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn an_eviction_of_a_fixed_page_is_noticed() {
    mutated("nbgclock: evict a fixed page", fix_against_evict);
}

#[test]
#[should_panic(expected = "holds another")]
fn a_fix_of_an_evicted_page_is_noticed() {
    mutated("nbgclock: fix an evicted page", fix_against_evict);
}

#[test]
#[should_panic(expected = "the table and the frame disagree")]
fn a_helper_that_does_not_look_is_noticed() {
    mutated("nbgclock: help without a look", help_against_return);
}
