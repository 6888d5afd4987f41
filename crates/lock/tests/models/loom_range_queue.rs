//! Models of scans against a writer that queues on a key of their intervals. A scan sees the writer or the writer sees
//! it, and a writer whose key is free again is woken. A lost wake-up shows as a deadlock of the model.

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
    /// Whether each scan has locked the key.
    is_locked: [AtomicBool; 2],
}

impl Gap {
    /// Locks the key unless a writer goes first.
    fn cover(&self, scanner: &mut Owner) {
        if self.locks.try_cover(scanner, TABLE, &Interval::of_key(KEY)).is_some() {
            self.is_locked[scanner.index() as usize].store(true, Ordering::Relaxed);
        }
    }

    /// Locks the key, behind a writer that goes first.
    fn cover_in_turn(&self, scanner: &mut Owner) {
        let key = Interval::of_key(KEY);
        while self.locks.try_cover(scanner, TABLE, &key).is_none() {
            self.locks.wait_to_cover(scanner, TABLE, &key, EVER).expect("no cycle");
        }
    }

    fn end(&self, scanner: &mut Owner) {
        self.is_locked[scanner.index() as usize].store(false, Ordering::Relaxed);
        self.locks.finish(scanner, None);
    }

    /// Writes as a tree does: a writer that finds the key locked in its turn waits again, and keeps its place.
    fn write_checked(&self, writer: &mut Owner) {
        let target = Target::row(TABLE, KEY);
        self.locks.wait_exclusive(writer, target, EVER).expect("no cycle");
        while self.locks.shared_by_other(writer, target) {
            self.locks.wait_exclusive(writer, target, EVER).expect("no cycle");
        }
        self.locks.finish(writer, None);
    }

    /// Waits for the turn of a writer, and returns whether a scan has the key locked then.
    fn write(&self, writer: &mut Owner) -> bool {
        self.locks.wait_exclusive(writer, Target::row(TABLE, KEY), EVER).expect("no cycle");
        let is_locked = self.is_locked.iter().any(|is_locked| is_locked.load(Ordering::Relaxed));
        self.locks.finish(writer, None);
        is_locked
    }
}

/// Returns the owners with these labels; the scans come first.
fn gap<const N: usize>(labels: [&'static str; N]) -> (Arc<Gap>, [Owner; N]) {
    let options = LockOptions { max_owners: N, share_slots: 1, memory_units: 4 * N, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let owners = labels.map(|label| locks.lease(label).expect("a slot"));
    (Arc::new(Gap { locks, is_locked: Default::default() }), owners)
}

/// A scan locks the key while a writer queues on it. If `is_first`, the scan has locked it before. No owner is dropped,
/// because a model that deadlocks ends its threads where no lock works any more.
fn scan_and_queue(is_first: bool) {
    let (gap, owners) = gap(["scanner", "writer"]);
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

/// A writer waits for two scans, whose intervals lie in two stripes, and which end at once.
fn two_ends() {
    let (gap, owners) = gap(["scanner", "other", "writer"]);
    let [mut scanner, mut other, mut writer] = owners.map(ManuallyDrop::new);
    assert_ne!(scanner.index() % 2, other.index() % 2, "two stripes");
    gap.cover(&mut scanner);
    gap.cover(&mut other);
    let end = thread::spawn({
        let gap = gap.clone();
        move || gap.end(&mut other)
    });
    let write = thread::spawn({
        let gap = gap.clone();
        move || gap.write(&mut writer)
    });
    gap.end(&mut scanner);
    end.join().expect("the scan ends");
    let is_locked = write.join().expect("the writer ends");
    assert!(!is_locked, "a writer has its turn in a locked interval");
}

/// Of two scans in two stripes, one ends while the other locks the key too, or takes it back.
fn end_and_take_back() {
    let (gap, owners) = gap(["scanner", "other", "writer"]);
    let [mut scanner, mut other, mut writer] = owners.map(ManuallyDrop::new);
    gap.cover(&mut scanner);
    let scan = thread::spawn({
        let gap = gap.clone();
        move || {
            gap.cover(&mut other);
            gap.end(&mut other);
        }
    });
    let write = thread::spawn({
        let gap = gap.clone();
        move || gap.write(&mut writer)
    });
    gap.end(&mut scanner);
    scan.join().expect("the scan ends");
    let is_locked = write.join().expect("the writer ends");
    assert!(!is_locked, "a writer has its turn in a locked interval");
}

/// A scan that is refused waits for the writer, and a writer that finds the key locked in its turn waits again.
fn scan_and_write() {
    let (gap, owners) = gap(["scanner", "writer"]);
    let [mut scanner, mut writer] = owners.map(ManuallyDrop::new);
    let scan = thread::spawn({
        let gap = gap.clone();
        move || {
            gap.cover_in_turn(&mut scanner);
            gap.end(&mut scanner);
        }
    });
    gap.write_checked(&mut writer);
    scan.join().expect("the scan ends");
}

#[test]
fn a_writer_gets_its_turn_when_a_scan_ends_and_another_takes_back() {
    check(end_and_take_back);
}

#[test]
fn a_refused_scan_and_a_writer_both_go_on() {
    check(scan_and_write);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_scan_is_listed_before_it_reads_the_writers() {
    mutated("range: a scan reads the writers before it is listed", scan_and_write);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_writer_that_keeps_its_place_is_woken_by_what_is_taken_back() {
    mutated("range: an addition is taken back without a wake", scan_and_write);
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
fn a_writer_gets_its_turn_when_scans_in_two_stripes_end_at_once() {
    check(two_ends);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_scan_looks_for_other_scans_after_it_has_ended() {
    mutated("range: a release looks for other owners before it removes", two_ends);
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
