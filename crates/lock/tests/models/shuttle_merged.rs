//! A reader that has waited for a writer's turn has its new lock merged into an interval at once. Until it takes its
//! edge back, a writer that meets the interval must not see a cycle: the reader waits for no owner, and the writer for
//! the reader alone.

use foreshore_base::TableId;
use foreshore_lock::{LockManager, LockOptions, Target};
use foreshore_sync::model::shuttle;
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

fn merged_reader() {
    let options = LockOptions { max_owners: 3, share_slots: 64, memory_units: 2, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let table = TableId(1);
    let target = move |key: &'static [u8]| Target::row(table, key);
    let [mut reader, mut first, mut second] =
        ["reader", "first", "second"].map(|label| locks.lease(label).expect("a slot"));
    assert!(locks.try_share(&mut reader, target(b"a")).is_some());
    // A writer has its turn at the key: as between `wait_exclusive` and the latch.
    locks.wait_exclusive(&mut first, target(b"k"), Duration::MAX).expect("no other owner is there");
    let read = thread::spawn({
        let locks = locks.clone();
        move || {
            locks.share(&mut reader, target(b"k"), Duration::MAX).expect("no owner waits for the reader yet");
            reader
        }
    });
    let write = thread::spawn({
        let locks = locks.clone();
        move || {
            // As a writer under its latch.
            if locks.shared_by_other(&second, target(b"k")) {
                let granted = locks.wait_exclusive(&mut second, target(b"k"), Duration::MAX);
                granted.expect("the reader waits for no owner");
                locks.end_exclusive(&mut second);
            }
            second
        }
    });
    locks.end_exclusive(&mut first);
    let mut reader = read.join().expect("a reader");
    locks.finish(&mut reader, None);
    drop(write.join().expect("a writer"));
    drop((reader, first));
}

#[test]
fn a_reader_whose_lock_was_merged_waits_for_no_owner() {
    shuttle(20_000, merged_reader);
}
