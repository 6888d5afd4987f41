//! Releases in the order of positions, each by its own thread (Aether, Algorithm 3, lines 8 to 14).
//!
//! Where the paper is silent: a thread that sleeps until its turn has to be woken for it, and until it runs nobody behind it
//! has a turn either. Soon every record waits for a thread that was just woken, which is a thousand times slower than
//! the copy. So who goes to sleep leaves its region in a list, and whoever raises the position to the start of that region
//! raises it to the end as well, before it wakes the sleeper. An insert still returns only when its region is released, and
//! a copy that is under way still holds up everybody behind it.

use super::{Region, Released, Waits};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering, fence};
use foreshore_sync::primitive::{MODEL, thread};
use foreshore_sync::{CachePadded, LockRank, Mutex, Parker, SpinWait, Unparker, WaitMode, WakeQueue};
use std::collections::BTreeMap;

/// The order of releases.
///
/// 1. The region that starts at the released position belongs to its own thread, if that is awake, and to the holder of the list's
///    lock, if it is in the list. Only who it belongs to raises the position.
/// 2. A thread enters its region under the lock, after it has counted itself and found that its turn has not come; who raises
///    the position looks at the count after. One of the two sees the other.
/// 3. Sleepers are put into the queue of those to wake, which any of them may empty, when their wait is over and not before: who
///    is woken sooner sleeps again and is woken by nobody. In one critical section with the raise, which each sleeper passes
///    through before it helps to wake others: see [`WakeQueue`].
#[derive(Debug)]
pub(super) struct Ordered {
    released: Released,
    /// Regions in the list, and threads that look whether they must enter theirs.
    sleepers: CachePadded<AtomicUsize>,
    list: Mutex<BTreeMap<u64, Sleeper>>,
    woken: WakeQueue,
}

/// A region that is copied, by its start.
#[derive(Debug)]
struct Sleeper {
    region: Region,
    unparker: Unparker,
}

impl Ordered {
    pub(super) fn new(first: u64) -> Self {
        Self {
            released: Released::new(first),
            sleepers: CachePadded::new(AtomicUsize::new(0)),
            list: Mutex::new(LockRank::LogWaiters, BTreeMap::new()),
            // In models one wake-up for each start, so that the others are left to those who were woken.
            woken: WakeQueue::new(if MODEL { 1 } else { 4 }),
        }
    }

    /// Returns when `region` is released, as are those before it. Its copies are done.
    pub(super) fn release(&self, waits: &Waits, region: Region) {
        let mut spin = SpinWait::new();
        while self.released.get() != region.start && !mutant("ordered: release out of turn") {
            if spin.spin() {
                continue;
            }
            match waits.mode {
                // WAIT: window - without a bound, as the options say; the yield lets those ahead run.
                WaitMode::Spin => thread::yield_now(),
                WaitMode::Park => {
                    if self.sleep(region) {
                        return;
                    }
                }
            }
        }
        self.released.raise(region.start, region.end);
        if waits.mode == WaitMode::Park {
            self.raise_sleepers();
        }
    }

    /// Leaves `region` in the list and sleeps until it is released; false if its turn has come.
    fn sleep(&self, region: Region) -> bool {
        let parker = Parker::current();
        {
            let mut list = self.list.lock();
            // ORDERING: store, fence, look (rule 2): count, then look; pairs with `raise_sleepers`.
            self.sleepers.fetch_add(1, Ordering::Relaxed);
            if !mutant("ordered: no fence before sleeping") {
                fence(Ordering::SeqCst);
            }
            if self.released.get() == region.start {
                // ORDERING: Relaxed, a count read too high only costs the lock.
                self.sleepers.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
            let before = list.insert(region.start, Sleeper { region, unparker: parker.unparker() });
            assert!(before.is_none(), "two sleepers wait to release {region:?}");
        }
        while self.released.get() < region.end {
            // WAIT: park - the copies of those ahead.
            parker.park();
        }
        // Through the lock (rule 3): behind the critical section that raised the position, so behind its put.
        if !mutant("ordered: help without the lock") {
            drop(self.list.lock());
        }
        self.woken.help();
        true
    }

    /// Releases the regions of sleepers whose turn has come, and wakes them.
    fn raise_sleepers(&self) {
        // ORDERING: store, fence, look (rule 2): the position is raised; pairs with `sleep`.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut done = Vec::new();
        {
            let mut list = self.list.lock();
            let start = self.released.get();
            let mut end = start;
            while let Some(sleeper) = list.remove(&end) {
                end = sleeper.region.end;
                done.push(sleeper.unparker);
            }
            if done.is_empty() {
                return;
            }
            // ORDERING: Relaxed, as in `sleep`.
            let sleepers = self.sleepers.fetch_sub(done.len(), Ordering::Relaxed);
            assert!(sleepers >= done.len(), "{} sleepers are woken of {sleepers}", done.len());
            if mutant("ordered: put before the raise") {
                self.woken.put(std::mem::take(&mut done));
                thread::yield_now();
            }
            // Rule 3: sleepers that an earlier one may wake from now on find their wait over.
            self.released.raise(start, end);
            self.woken.put(done);
        }
        self.woken.start();
    }

    pub(super) fn released(&self) -> u64 {
        self.released.get()
    }
}
