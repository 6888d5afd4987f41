//! Models of waiting for a latch. A lost wake-up shows as a deadlock, hence a test binary of its own. The actors share
//! std's `Arc`: dropping loom's is a step of the model, and a deadlock found inside a destructor aborts.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::{UnsafeCell, thread};
use foreshore_sync::{HybridLatch, ParkTable};
use std::sync::Arc;

struct Page {
    latch: HybridLatch,
    table: ParkTable,
    plain: UnsafeCell<u64>,
}

// SAFETY: `plain` is touched only under the latch; that this suffices is what the models check.
unsafe impl Sync for Page {}

fn run(actors: &[fn(&Page)]) {
    let page = Arc::new(Page { latch: HybridLatch::new(), table: ParkTable::new(), plain: UnsafeCell::new(0) });
    let spawn = |&actor: &fn(&Page)| {
        let page = page.clone();
        thread::spawn(move || actor(&page))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

fn write(page: &Page) {
    page.latch.lock_exclusive(&page.table);
    // SAFETY: the latch is held exclusively, which is what loom checks here.
    page.plain.with_mut(|plain| unsafe { *plain += 1 });
    page.latch.unlock_exclusive(&page.table);
}

fn write_twice(page: &Page) {
    write(page);
    write(page);
}

fn read(page: &Page) {
    page.latch.lock_shared(&page.table);
    // SAFETY: the latch is held shared.
    page.plain.with(|plain| unsafe { *plain });
    page.latch.unlock_shared(&page.table);
}

fn write_then_read(page: &Page) {
    page.latch.lock_exclusive(&page.table);
    page.latch.downgrade(&page.table);
    // SAFETY: the latch is held shared.
    page.plain.with(|plain| unsafe { *plain });
    page.latch.unlock_shared(&page.table);
}

fn two_writers() {
    run(&[write, write]);
}

fn overtaken_writer() {
    run(&[write_twice, write]);
}

#[test]
fn two_writers_both_get_in() {
    check(two_writers);
}

#[test]
fn an_overtaken_waiter_gets_in() {
    check(overtaken_writer);
    check(|| run(&[write_twice, write, read]));
}

#[test]
fn readers_and_a_writer_all_get_in() {
    check(|| run(&[read, write, read]));
}

#[test]
fn writers_and_a_reader_all_get_in() {
    check(|| run(&[write, write, read]));
}

#[test]
fn a_downgrade_wakes_the_waiters_that_it_must() {
    check(|| run(&[write_then_read, write, read]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_mark() {
    mutated("latch: queue without a mark", two_writers);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_way_in_for_the_woken() {
    mutated("latch: woken threads obey FAIR", overtaken_writer);
}
