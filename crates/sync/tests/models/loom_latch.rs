//! Models of the latch's exclusion and of its version protocol. No thread waits here; `loom_latch_wait` models that.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{Arc, UnsafeCell, thread};
use foreshore_sync::{HybridLatch, ParkTable};

struct Page {
    latch: HybridLatch,
    table: ParkTable,
    words: [AtomicU64; 2],
    plain: UnsafeCell<u64>,
}

// SAFETY: `plain` is touched only under the latch; that this suffices is what the models check.
unsafe impl Sync for Page {}

fn page() -> Arc<Page> {
    Arc::new(Page {
        latch: HybridLatch::new(),
        table: ParkTable::new(),
        words: [AtomicU64::new(0), AtomicU64::new(0)],
        plain: UnsafeCell::new(0),
    })
}

fn run(page: &Arc<Page>, actors: &[fn(&Page)]) {
    let spawn = |&actor: &fn(&Page)| {
        let page = page.clone();
        thread::spawn(move || actor(&page))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

fn write_both(page: &Page) {
    if page.latch.try_lock_exclusive() {
        let next = page.words[0].load(Ordering::Relaxed) + 1;
        page.words[0].store(next, Ordering::Relaxed);
        page.words[1].store(next, Ordering::Relaxed);
        page.latch.unlock_exclusive(&page.table);
    }
}

fn read_both(page: &Page) {
    if let Some(version) = page.latch.optimistic_version() {
        let words = [0, 1].map(|at| page.words[at].load(Ordering::Relaxed));
        if page.latch.validate(version) {
            assert_eq!(words[0], words[1], "a validated read saw half a write");
        }
    }
}

fn one_writer() {
    run(&page(), &[write_both, read_both]);
}

fn two_writers() {
    run(&page(), &[write_both, write_both, read_both]);
}

#[test]
fn a_validated_read_is_whole() {
    check(one_writer);
    check(two_writers);
}

#[test]
#[should_panic(expected = "half a write")]
fn the_version_model_needs_the_writers_fence() {
    mutated("latch: no fence after entry", one_writer);
}

#[test]
#[should_panic(expected = "half a write")]
fn the_version_model_needs_the_readers_fence() {
    mutated("latch: no fence before validation", one_writer);
}

#[test]
#[should_panic(expected = "half a write")]
fn the_version_model_needs_the_release() {
    mutated("latch: relaxed release", one_writer);
}

fn write_plain(page: &Page) {
    if page.latch.try_lock_exclusive() {
        // SAFETY: the latch is held exclusively, which is what loom checks here.
        page.plain.with_mut(|plain| unsafe { *plain += 1 });
        page.latch.unlock_exclusive(&page.table);
    }
}

fn write_then_read_plain(page: &Page) {
    if page.latch.try_lock_exclusive() {
        // SAFETY: as above.
        page.plain.with_mut(|plain| unsafe { *plain += 1 });
        page.latch.downgrade(&page.table);
        // SAFETY: the latch is held shared.
        let first = page.plain.with(|plain| unsafe { *plain });
        // SAFETY: as above.
        assert_eq!(first, page.plain.with(|plain| unsafe { *plain }), "a writer came in");
        page.latch.unlock_shared(&page.table);
    }
}

fn read_plain(page: &Page) {
    if page.latch.try_lock_shared() {
        // SAFETY: the latch is held shared.
        page.plain.with(|plain| unsafe { *plain });
        page.latch.unlock_shared(&page.table);
    }
}

fn holders() {
    run(&page(), &[write_plain, write_then_read_plain, read_plain]);
}

#[test]
fn holders_exclude_each_other() {
    check(holders);
    check(|| run(&page(), &[write_plain, read_plain, read_plain]));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn the_holders_model_needs_the_release() {
    mutated("latch: relaxed release", holders);
}

fn count_by_upgrade(page: &Page) {
    if let Some(version) = page.latch.optimistic_version() {
        let seen = page.words[0].load(Ordering::Relaxed);
        if page.latch.try_upgrade(version) {
            page.words[0].store(seen + 1, Ordering::Relaxed);
            page.words[1].fetch_add(1, Ordering::Relaxed);
            page.latch.unlock_exclusive(&page.table);
        }
    }
}

fn upgraders() {
    let page = page();
    run(&page, &[count_by_upgrade, count_by_upgrade]);
    let [sum, successes] = [0, 1].map(|at| page.words[at].load(Ordering::Relaxed));
    assert_eq!(sum, successes, "an upgrade overwrote another");
    assert!(successes >= 1, "no upgrade got through");
}

#[test]
fn an_upgrade_keeps_what_was_read() {
    check(upgraders);
}

#[test]
#[should_panic(expected = "an upgrade overwrote another")]
fn the_upgrade_model_needs_the_version() {
    mutated("latch: upgrade ignores the version", upgraders);
}
