//! Models of Nb-GCLOCK: fix against evict, threads that help, and threads that read the same page.

use foreshore_base::PageId;
use foreshore_classics::nbgclock::model::{Entry, Frame, PageTable};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;

const ONE: PageId = PageId(1);
const TWO: PageId = PageId(2);
const CAP: u8 = 2;

/// One frame with page 1, unused and not loaded.
struct Store {
    frame: Frame,
    bytes: AtomicU64,
    table: PageTable,
}

impl Store {
    fn new() -> Arc<Self> {
        let store = Self { frame: Frame::new(), bytes: AtomicU64::new(0), table: PageTable::new() };
        store.table.make_room(ONE).expect("memory");
        assert!(store.frame.try_evict(), "a new frame");
        store.enter(ONE);
        Arc::new(store)
    }

    /// Gives the frame, which belongs to the caller, to a page that is in no frame.
    fn enter(&self, pid: PageId) {
        let entry = Entry { no: 0, turn: self.frame.enter(pid, 0) };
        assert!(self.table.insert(pid, entry), "the only frame");
        self.frame.unfix();
    }

    /// What the guard of a page reads; `None` if it is not in memory.
    fn fix(&self, pid: PageId) -> Option<u64> {
        let entry = self.table.get(pid)?;
        if !self.frame.fix(entry, CAP) {
            self.table.remove(pid, entry);
            return None;
        }
        assert_eq!(self.frame.page(), pid, "a frame that holds another page was fixed");
        if self.frame.is_loading() {
            // ORDERING: as the words of a page.
            self.bytes.store(100 * pid.0, Ordering::Relaxed);
            let _is_first = self.frame.loaded();
        }
        // ORDERING: as above.
        let read = self.bytes.load(Ordering::Relaxed);
        assert_eq!((self.frame.page(), read), (pid, 100 * pid.0), "a frame that holds another page was read");
        self.frame.unfix();
        Some(read)
    }

    fn evict(&self) -> bool {
        let _is_spared = (0..=CAP).all(|_| self.frame.age());
        if !self.frame.try_evict() {
            return false;
        }
        self.table.remove(self.frame.page(), Entry { no: 0, turn: self.frame.turn() });
        true
    }
}

fn run(actors: &[fn(&Store)]) {
    let store = Store::new();
    let spawn = |&actor: &fn(&Store)| {
        let store = store.clone();
        thread::spawn(move || actor(&store))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
    // No thread is left, so one more round finds everything in order.
    for pid in [ONE, TWO] {
        let is_there = store.fix(pid).is_some();
        assert_eq!(is_there, store.frame.page() == pid, "the table and the frame disagree");
    }
}

fn fix_one(store: &Store) {
    store.fix(ONE);
}

fn swap_pages(store: &Store) {
    if store.evict() {
        store.enter(TWO);
        store.fix(TWO);
    }
}

fn fix_and_swap(store: &Store) {
    fix_one(store);
    swap_pages(store);
}

/// The page leaves and comes back to the same frame.
fn evict_and_return(store: &Store) {
    if store.evict() {
        store.enter(ONE);
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
fn a_page_that_several_threads_load_is_there_for_all() {
    check(|| run(&[fix_one, fix_one]));
    check(|| run(&[fix_one, fix_and_swap]));
}

#[test]
fn a_helper_leaves_the_page_alone_that_has_come_back() {
    check(help_against_return);
}

#[test]
#[should_panic(expected = "the frame belongs to the thread that enters")]
fn an_eviction_of_a_fixed_page_is_noticed() {
    mutated("nbgclock: evict a fixed page", fix_against_evict);
}

#[test]
#[should_panic(expected = "a frame that holds another page was")]
fn a_fix_of_an_evicted_page_is_noticed() {
    mutated("nbgclock: fix an evicted page", fix_against_evict);
}

#[test]
#[should_panic(expected = "the table and the frame disagree")]
fn a_helper_that_takes_an_old_entry_for_a_new_one_is_noticed() {
    mutated("nbgclock: pages without turns", help_against_return);
}
