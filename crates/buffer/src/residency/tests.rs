use super::*;
use crate::format::blank_page;
use crate::guard::SharedGuard;
use crate::replacement::{Frames, S3c};
use crate::replacer::HAND_OVERS;
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex};
use foreshore_wal::LogOptions;

const FRAMES: usize = 128;

fn residency(policy: Box<dyn ReplacementPolicy>) -> Residency {
    let log = Log::discarding(&LogOptions { background: false, ..LogOptions::default() }).expect("a log");
    Residency::new(FRAMES, policy, log).expect("memory")
}

/// A free frame in which page `pid` is entered.
fn loading(residency: &Residency, pid: PageId) -> Vacant<'_> {
    let frame = residency.take_free().expect("a free frame");
    residency.prepare(pid).expect("memory");
    assert!(frame.enter(pid), "it is not in memory");
    frame
}

#[test]
fn waiting_for_a_page_to_be_read_is_no_use_of_it() {
    let (residency, pid) = (residency(Box::new(S3c::new(FRAMES).expect("memory"))), PageId(1));
    let vacant = loading(&residency, pid);
    let slot = vacant.slot;
    let before = slot.frame().uses();
    let fix = || residency.fix::<SharedGuard<'_>>(pid, AccessPattern::Random).expect("on its way");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(fix()));
        while !slot.parks().has_waiters(std::ptr::from_ref(slot.frame().latch()) as u64) {
            thread::yield_now();
        }
        drop(vacant.fill(&blank_page(pid), AccessPattern::Random));
        waiter.join().expect("no panic");
    });
    assert_eq!(slot.frame().uses(), before, "the thread that waited for the read has not used the page");
    drop(fix());
    assert_eq!(slot.frame().uses(), before + 1);
}

/// Names each page that it knows once, in the order of arrival.
#[derive(Debug)]
struct Fifo(Mutex<Vec<FrameNo>>);

impl ReplacementPolicy for Fifo {
    fn on_load(&self, _: Frames<'_>, no: FrameNo, _: PageId) {
        self.0.lock().push(no);
    }

    fn sweep(&self, _: Frames<'_>, consider: &mut dyn FnMut(FrameNo) -> ControlFlow<()>) -> ControlFlow<()> {
        let known = self.0.lock().clone();
        known.into_iter().try_for_each(consider)
    }
}

#[test]
fn a_sweep_asks_the_policy_after_a_bounded_number_of_ring_pages_that_stay() {
    let residency = residency(Box::new(Fifo(Mutex::new(LockRank::Leaf, Vec::new()))));
    let load = |pid, pattern| {
        let guard = loading(&residency, pid).fill(&blank_page(pid), pattern);
        guard.slot()
    };
    let own = load(PageId(1000), AccessPattern::Random).no();
    for pid in (1..=100).map(PageId) {
        load(pid, AccessPattern::Scan).frame().count_use(1);
    }
    let in_ring = || residency.memory().frames().iter().filter(|frame| frame.is_in_ring()).count();
    let mut first = None;
    let _ = residency.sweep(&mut |no| {
        first = Some(no);
        ControlFlow::Break(())
    });
    assert_eq!(first, Some(own), "the policy knows it for longest");
    assert_eq!(in_ring(), 100 - HAND_OVERS);
    let mut named = 0;
    let _ = residency.sweep(&mut |_| {
        named += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(named, 1 + 2 * HAND_OVERS, "its own page, and those that two sweeps have moved to it");
    assert_eq!(in_ring(), 0, "the end of a sweep moves all the others");
}
