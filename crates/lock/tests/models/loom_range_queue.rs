//! Models of a scan against a writer that queues on a key of its interval. At least one of the two sees the other, and
//! a writer whose key is free again is woken. A lost wake-up shows as a deadlock of the model.

use foreshore_base::TableId;
use foreshore_lock::{Interval, LockManager, LockOptions, Owner, Target};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(1);
const KEY: &[u8] = b"k";
const EVER: Duration = Duration::MAX;

struct Gap {
    locks: Arc<LockManager>,
    /// Whether the scan has locked the key.
    is_locked: AtomicBool,
}

impl Gap {
    /// Locks the key unless a writer goes first.
    fn cover(&self, scanner: &mut Owner) {
        if self.locks.try_cover(scanner, TABLE, &Interval::of_key(KEY)).is_some() {
            self.is_locked.store(true, Ordering::Relaxed);
        }
    }

    fn end(&self, scanner: &mut Owner) {
        self.is_locked.store(false, Ordering::Relaxed);
        self.locks.finish(scanner, None);
    }

    /// Waits for the turn of a writer, and returns whether the scan has the key locked then.
    fn write(&self, writer: &mut Owner) -> bool {
        self.locks.wait_exclusive(writer, Target::row(TABLE, KEY), EVER).expect("no cycle");
        let is_locked = self.is_locked.load(Ordering::Relaxed);
        self.locks.finish(writer, None);
        is_locked
    }
}

fn gap() -> (Arc<Gap>, [Owner; 2]) {
    let options = LockOptions { max_owners: 2, share_slots: 1, memory_units: 8, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let owners = ["scanner", "writer"].map(|label| locks.lease(label).expect("a slot"));
    (Arc::new(Gap { locks, is_locked: AtomicBool::new(false) }), owners)
}

/// A scan locks the key while a writer queues on it. If `is_first`, the scan has locked it before. No owner is dropped,
/// because a model that deadlocks ends its threads where no lock works any more.
fn scan_and_queue(is_first: bool) {
    let (gap, owners) = gap();
    let [mut scanner, mut writer] = owners.map(ManuallyDrop::new);
    if is_first {
        gap.cover(&mut scanner);
    }
    let scan = thread::spawn({
        let gap = gap.clone();
        move || {
            if !is_first {
                gap.cover(&mut scanner);
            }
            gap.end(&mut scanner);
        }
    });
    let write = thread::spawn(move || gap.write(&mut writer));
    scan.join().expect("the scan ends");
    let is_locked = write.join().expect("the writer ends");
    assert!(!is_locked, "a writer has its turn in a locked interval");
}

#[test]
fn a_scan_sees_a_queued_writer_or_the_writer_waits_for_it() {
    check(|| scan_and_queue(false));
}

#[test]
fn a_writer_gets_its_turn_when_the_scan_ends() {
    check(|| scan_and_queue(true));
}

#[test]
#[should_panic(expected = "a writer has its turn in a locked interval")]
fn a_scan_fences_before_it_looks_for_writers() {
    mutated("range: no fence after extending", || scan_and_queue(false));
}

#[test]
#[should_panic(expected = "a writer has its turn in a locked interval")]
fn a_writer_fences_before_it_looks_for_scans() {
    mutated("range: no fence after queueing", || scan_and_queue(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_scan_that_takes_back_wakes_the_writer() {
    mutated("range: an addition is taken back without a wake", || scan_and_queue(false));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_scan_that_ends_wakes_the_writer() {
    mutated("range: a removal wakes no writer", || scan_and_queue(true));
}
