//! Models of snapshots: one that is taken while the status window passes a commit, while a view of the readers is made,
//! and while old versions are freed.

use crate::visibility::past::Past;
use crate::visibility::pins::Pins;
use crate::visibility::readers::{About, Mark, Readers, SnapshotCost};
use crate::visibility::status::StatusWindow;
use crate::visibility::view::View;
use foreshore_base::{Csn, Xid};
use foreshore_sync::Nanos;
use foreshore_sync::model::{check, mutant, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;

/// What a database has of all this.
struct World {
    window: StatusWindow,
    readers: Readers,
    pins: Pins,
    next: AtomicU64,
    clock: AtomicU64,
    durable: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Self::of(1)
    }

    /// Xid 1 runs, and the window has passed it: it is pinned.
    fn with_pinned() -> Arc<Self> {
        let world = Self::of(2);
        world.window.enter(Xid(1));
        world.next.store(2, Ordering::Release);
        world.slide();
        assert_eq!(world.window.pinned(), 1);
        world
    }

    fn of(words: usize) -> Arc<Self> {
        Arc::new(Self {
            window: StatusWindow::new(words, 1, Xid(1)).expect("memory"),
            readers: Readers::new(1),
            pins: Pins::new(1),
            next: AtomicU64::new(1),
            clock: AtomicU64::new(10),
            durable: AtomicU64::new(10),
        })
    }

    /// A snapshot was shared before. The chunk is made then, as in `with_extra`.
    fn with_sharer() -> Arc<Self> {
        let world = Self::new();
        let mark = world.take(false);
        world.readers.release(&world.readers.share(&mark));
        world.readers.release(&mark);
        world
    }

    /// Whether no reader has a slot, and the next one that gets one is not cancelled and shares it with none.
    fn is_unused(&self) -> bool {
        let is_free = self.readers.all().next().is_none();
        let mark = self.take(false);
        let may_read = self.readers.begin_operation(&mark);
        self.readers.end_operation(&mark);
        self.readers.release(&mark);
        is_free && may_read && self.readers.all().next().is_none()
    }

    fn durable(&self) -> Csn {
        Csn(self.durable.load(Ordering::Acquire))
    }

    fn take(&self, latest: bool) -> Mark {
        let about = About::new("", Nanos::ZERO);
        let clock = latest.then_some(|| Csn(self.clock.load(Ordering::Acquire)));
        let next = || Xid(self.next.load(Ordering::Acquire));
        self.readers.take(about, || self.window.frozen(), || self.durable(), clock, next)
    }

    /// A killed reader has the only fixed slot, so the next one gets an extra slot.
    fn with_extra() -> Arc<Self> {
        let world = Self::of(1);
        world.take(false);
        assert_eq!(world.readers.cancel_each(|_, _| Some(SnapshotCost::default())), 1);
        // The chunk is made here: the model does not know what `OnceLock` orders.
        world.readers.release(&world.take(false));
        world
    }

    /// Draws xid 1, unless it runs already, commits it and makes the commit durable.
    fn commit(&self) -> Csn {
        let xid = Xid(1);
        if self.window.pinned() == 0 {
            assert_eq!(self.next.fetch_add(1, Ordering::AcqRel), 1);
            self.window.enter(xid);
        }
        self.window.begin_commit(xid);
        let csn = Csn(self.clock.fetch_add(1, Ordering::AcqRel) + 1);
        let csn = self.window.commit(xid, csn, |least| {
            self.clock.fetch_max(least.0, Ordering::AcqRel);
            least
        });
        self.durable.store(csn.0, Ordering::Release);
        csn
    }

    fn slide(&self) {
        self.window.slide(Xid(self.next.load(Ordering::Acquire)), self.durable(), 1, &self.readers);
    }
}

/// A snapshot sees a commit if and only if the commit is not above it, whenever it asks, though the window passes the
/// commit.
fn snapshot_and_slider(world: Arc<World>, latest: bool) {
    let commits = world.clone();
    let writer = thread::spawn(move || {
        let csn = commits.commit();
        commits.slide();
        csn
    });
    let reader = thread::spawn(move || {
        let mark = world.take(latest);
        let past = Past::new(&mark);
        let looks = [(); 2].map(|()| past.sees(&world.window, &mark, Xid(1)));
        (mark.csn, looks)
    });
    let csn = writer.join().expect("the writer ends");
    let (snapshot, looks) = reader.join().expect("the reader ends");
    for look in looks {
        let seen = look.is_some();
        assert_eq!(seen, csn <= snapshot, "a snapshot at {snapshot:?} and the commit {csn:?}");
    }
}

/// What a view calls dead is what no reader sees that it does not know.
fn view_and_snapshot(world: Arc<World>) {
    let (collects, reads) = (world.clone(), world.clone());
    let writer = thread::spawn(move || world.durable.store(20, Ordering::Release));
    let reader = thread::spawn(move || reads.take(false).csn);
    let collector =
        thread::spawn(move || View::of(&collects.readers, &collects.pins, (Xid(1), [].into()), || collects.durable()));
    writer.join().expect("the writer ends");
    let snapshot = reader.join().expect("the reader ends");
    let view = collector.join().expect("the collector ends");
    let seen = Csn(5) <= snapshot && snapshot < Csn(15);
    assert!(!(seen && view.is_dead(Csn(5), Csn(15))), "a version in use is dead");
    assert!(view.horizon() <= snapshot, "a reader is below the horizon");
}

/// The number that a view gives for a commit that the window has passed is above a snapshot if and only if the commit
/// is.
fn view_of_the_past(world: Arc<World>) {
    let (collects, reads) = (world.clone(), world.clone());
    let writer = thread::spawn(move || {
        let csn = world.commit();
        world.slide();
        csn
    });
    let reader = thread::spawn(move || reads.take(true).csn);
    let collector = thread::spawn(move || {
        let early = mutant("view: floor read before the window").then(|| collects.durable());
        let past = collects.window.late();
        View::of(&collects.readers, &collects.pins, past, || early.unwrap_or_else(|| collects.durable()))
    });
    let csn = writer.join().expect("the writer ends");
    let snapshot = reader.join().expect("the reader ends");
    let view = collector.join().expect("the collector ends");
    if let Some(stands) = view.csn_of_frozen(Xid(1)) {
        assert_eq!(stands <= snapshot, csn <= snapshot, "{stands:?} stands for {csn:?} at {snapshot:?}");
    }
}

/// What was replaced at 15 is not freed while a writer that found the horizon at 10 looks at it.
fn pin_and_collector() {
    let pins = Arc::new(Pins::new(1));
    let freed = Arc::new(AtomicU64::new(0));
    let (collects, frees) = (pins.clone(), freed.clone());
    let collector = thread::spawn(move || {
        if Csn(15) <= collects.announce(Csn(20)) {
            frees.store(1, Ordering::Relaxed);
        }
    });
    let writer = thread::spawn(move || {
        if Csn(15) > pins.pin(0, Csn(10)) {
            assert_eq!(freed.load(Ordering::Relaxed), 0, "what is touched was freed");
        }
        pins.unpin(0);
    });
    collector.join().expect("the collector ends");
    writer.join().expect("the writer ends");
}

/// What only the cancelled reader could come to is used otherwise when its operation is over.
fn operation_and_collector() {
    let world = World::new();
    let mark = world.take(false);
    world.durable.store(20, Ordering::Release);
    let used_again = Arc::new(AtomicU64::new(0));
    let (cancels, collects, uses) = (world.clone(), world.clone(), used_again.clone());
    let canceller = thread::spawn(move || cancels.readers.cancel_each(|_, _| Some(SnapshotCost::default())));
    let collector = thread::spawn(move || {
        let is_needed = collects.readers.all().any(|reader| reader.csn < Csn(15));
        let is_at_work = collects.readers.is_any_cancelled_at_work();
        if !is_needed && (!is_at_work || mutant("readers: operations are not looked for")) {
            uses.store(1, Ordering::Relaxed);
        }
    });
    let reader = thread::spawn(move || {
        if world.readers.begin_operation(&mark) {
            assert_eq!(used_again.load(Ordering::Relaxed), 0, "a page in use was freed");
        }
        world.readers.end_operation(&mark);
    });
    canceller.join().expect("the canceller ends");
    collector.join().expect("the collector ends");
    reader.join().expect("the reader ends");
}

/// A second reader shares a snapshot while the first one runs an operation, and while a collector cancels the snapshot.
fn shared_operations_and_collector() {
    let world = World::with_sharer();
    let mark = Arc::new(world.take(false));
    world.durable.store(20, Ordering::Release);
    let used_again = Arc::new(AtomicU64::new(0));
    let (collects, uses, first, firsts) = (world.clone(), used_again.clone(), world.clone(), mark.clone());
    let collector = thread::spawn(move || {
        collects.readers.cancel_each(|_, _| Some(SnapshotCost::default()));
        let is_needed = collects.readers.all().any(|reader| reader.csn < Csn(15));
        if !is_needed && !collects.readers.is_any_cancelled_at_work() {
            uses.store(1, Ordering::Relaxed);
        }
    });
    let reader = thread::spawn(move || {
        first.readers.begin_operation(&firsts);
        first.readers.end_operation(&firsts);
    });
    let (second, firsts) = (world.clone(), mark.clone());
    let sharer = thread::spawn(move || {
        let mark = second.readers.share(&firsts);
        if second.readers.begin_operation(&mark) {
            assert_eq!(used_again.load(Ordering::Relaxed), 0, "a page in use was freed");
        }
        second.readers.end_operation(&mark);
        second.readers.release(&mark);
    });
    collector.join().expect("the collector ends");
    reader.join().expect("the reader ends");
    sharer.join().expect("the sharer ends");
    world.readers.release(&mark);
    assert!(world.is_unused(), "a slot stays taken");
}

/// Two readers of one snapshot end at once. A collector finds the snapshot until both have read.
fn two_ends_and_collector() {
    let world = World::with_sharer();
    let mark = world.take(false);
    let marks = [world.readers.share(&mark), mark];
    world.durable.store(20, Ordering::Release);
    let freed = Arc::new(AtomicU64::new(0));
    let readers = marks.map(|mark| {
        let (world, freed) = (world.clone(), freed.clone());
        thread::spawn(move || {
            assert_eq!(freed.load(Ordering::Relaxed), 0, "a version in use was freed");
            world.readers.release(&mark);
        })
    });
    let collects = world.clone();
    let collector = thread::spawn(move || {
        if collects.readers.all().all(|reader| reader.csn >= Csn(15)) {
            freed.store(1, Ordering::Relaxed);
        }
    });
    readers.into_iter().for_each(|reader| reader.join().expect("the reader ends"));
    collector.join().expect("the collector ends");
    assert!(world.is_unused(), "a slot stays taken");
}

#[test]
fn nothing_is_freed_under_an_operation_of_a_reader_that_shares_its_snapshot() {
    check(shared_operations_and_collector);
}

#[test]
fn a_shared_snapshot_is_in_use_until_its_last_reader_ends() {
    check(two_ends_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_collector_looks_for_operations_of_sharers() {
    mutated("readers: operations of sharers are not looked for", shared_operations_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_sharer_fences_behind_the_count_of_its_operation() {
    mutated("readers: no fence behind the count of an operation", shared_operations_and_collector);
}

#[test]
#[should_panic(expected = "none has begun")]
fn each_sharer_counts_its_operations_by_itself() {
    mutated("readers: sharers count their operations in one place", shared_operations_and_collector);
}

#[test]
#[should_panic(expected = "gives back slot 0 twice")]
fn the_last_of_two_readers_frees_the_slot() {
    mutated("readers: each reader frees a shared slot", two_ends_and_collector);
}

#[test]
#[should_panic(expected = "a slot stays taken")]
fn two_readers_that_end_at_once_leave_no_slot() {
    mutated("readers: looks for sharers and ends in two steps", two_ends_and_collector);
}

#[test]
fn a_durable_snapshot_sees_the_same_when_the_window_has_moved() {
    check(|| snapshot_and_slider(World::new(), false));
}

#[test]
fn a_latest_snapshot_sees_the_same_when_the_window_has_moved() {
    check(|| snapshot_and_slider(World::new(), true));
}

#[test]
fn nothing_that_a_reader_sees_is_dead() {
    check(|| view_and_snapshot(World::new()));
}

#[test]
fn a_forgotten_commit_is_above_the_same_snapshots() {
    check(|| view_of_the_past(World::new()));
}

#[test]
fn nothing_is_freed_under_a_pin() {
    check(pin_and_collector);
}

#[test]
fn nothing_is_freed_under_an_operation_of_a_cancelled_reader() {
    check(operation_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_collector_looks_for_operations_of_cancelled_readers() {
    mutated("readers: operations are not looked for", operation_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_reader_fences_behind_the_count_of_its_operation() {
    mutated("readers: no fence behind the count of an operation", operation_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_collector_fences_before_it_looks_at_operations() {
    mutated("readers: no fence before the look at operations", operation_and_collector);
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_reader_shows_a_bound_before_it_takes_its_snapshot() {
    mutated("readers: bound shown late", || snapshot_and_slider(World::new(), false));
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_reader_fences_behind_its_bound() {
    mutated("readers: no fence behind the bound", || snapshot_and_slider(World::new(), true));
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_slider_fences_before_it_looks_at_the_readers() {
    mutated("readers: no fence before the look", || snapshot_and_slider(World::new(), true));
}

#[test]
#[should_panic(expected = "and the commit")]
fn late_commits_are_noted_before_the_window_moves() {
    mutated("status: late after the window moves", || snapshot_and_slider(World::new(), false));
}

#[test]
#[should_panic(expected = "a version in use is dead")]
fn a_view_reads_its_floor_first() {
    mutated("view: floor read after the readers", || view_and_snapshot(World::new()));
}

#[test]
#[should_panic(expected = "stands for")]
fn a_view_reads_the_window_before_its_floor() {
    mutated("view: floor read before the window", || view_of_the_past(World::new()));
}

#[test]
#[should_panic(expected = "was freed")]
fn a_writer_looks_behind_its_pin() {
    mutated("pins: no look behind the pin", pin_and_collector);
}

#[test]
#[should_panic(expected = "was freed")]
fn a_collector_fences_behind_its_announcement() {
    mutated("pins: no fence behind the announcement", pin_and_collector);
}

#[test]
fn a_durable_snapshot_sees_the_same_when_a_commit_is_unpinned() {
    check(|| snapshot_and_slider(World::with_pinned(), false));
}

#[test]
fn a_latest_snapshot_sees_the_same_when_a_commit_is_unpinned() {
    check(|| snapshot_and_slider(World::with_pinned(), true));
}

#[test]
fn an_unpinned_commit_is_above_the_same_snapshots() {
    check(|| view_of_the_past(World::with_pinned()));
}

#[test]
#[should_panic(expected = "and the commit")]
fn an_unpinned_commit_is_noted_first() {
    mutated("status: unpinned without a note", || snapshot_and_slider(World::with_pinned(), false));
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_snapshot_takes_no_pinned_xid_for_a_frozen_one() {
    mutated("status: pinned xids count as frozen", || snapshot_and_slider(World::with_pinned(), false));
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_late_commit_is_noted_before_it_is_unpinned() {
    mutated("status: late after the window moves", || snapshot_and_slider(World::with_pinned(), false));
}

#[test]
fn nothing_that_a_reader_in_an_extra_slot_sees_is_dead() {
    check(|| view_and_snapshot(World::with_extra()));
}

#[test]
fn a_snapshot_in_an_extra_slot_sees_the_same_when_the_window_has_moved() {
    check(|| snapshot_and_slider(World::with_extra(), true));
}

#[test]
#[should_panic(expected = "is dead")]
fn an_extra_slot_is_counted_before_its_reader_fences() {
    mutated("readers: an extra slot is not counted", || view_and_snapshot(World::with_extra()));
}

#[test]
#[should_panic(expected = "and the commit")]
fn a_reader_in_an_extra_slot_fences_behind_its_bound() {
    mutated("readers: no fence behind the bound", || snapshot_and_slider(World::with_extra(), true));
}
