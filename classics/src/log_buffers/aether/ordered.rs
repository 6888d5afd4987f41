//! Releases in the order of positions, each by its own thread (Aether, Algorithm 3, lines 8 to 14).
//!
//! A gap in the paper: a thread that sleeps until its turn has to be woken for it, and until it runs no later thread
//! has a turn. Soon every record waits for a thread that was just woken, which is a thousand times slower than the
//! copy. So a thread that sleeps leaves its region in a list. The thread that raises the position to the start of that
//! region also raises it to the end, before it wakes the sleeper. An insert still returns only when its region is
//! released, and a running copy still delays all later ones.

use super::{Region, Released, Waits};
use crate::log_buffers::names::WaitKind;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering, fence};
use foreshore_sync::primitive::{MODEL, thread};
use foreshore_sync::{CachePadded, LockRank, Mutex, Parker, SpinWait, Unparker, WakeQueue};
use std::collections::BTreeMap;

/// The order of releases.
///
/// 1. The region that starts at the released position belongs to its own thread if that is awake. If the region is in
///    the list it belongs to the holder of the list's lock. Only the thread that it belongs to raises the position.
/// 2. A thread lists its region under the lock, after it has incremented the count and found that its turn has not
///    come. The thread that raises the position reads the count afterwards. One of the two sees the other.
/// 3. Sleepers are added to the queue of threads to wake, which any of them may empty, only when their wait is over. A
///    thread woken earlier would sleep again and never be woken. That happens in one critical section with the raise,
///    which each sleeper passes through before it helps to wake others: see [`WakeQueue`].
#[derive(Debug)]
pub(super) struct Ordered {
    released: Released,
    /// Regions in the list, and threads that are checking whether they must list theirs.
    sleepers: CachePadded<AtomicUsize>,
    list: Mutex<BTreeMap<u64, Sleeper>>,
    woken: WakeQueue,
}

/// A copied region, by its start.
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
            // In models one wake-up for each start, so that the others are left to the woken threads.
            woken: WakeQueue::new(if MODEL { 1 } else { 4 }),
        }
    }

    /// Returns when `region` and all before it are released. Its copies are done.
    pub(super) fn release(&self, waits: &Waits, region: Region) {
        let mut spin = SpinWait::new();
        while self.released.get() != region.start && !mutant("ordered: release out of turn") {
            if spin.spin() {
                continue;
            }
            match waits.kind {
                // WAIT: window - without a bound, as the options say; the yield lets those ahead run.
                WaitKind::Spin => thread::yield_now(),
                WaitKind::Park => {
                    if self.sleep(region) {
                        return;
                    }
                }
            }
        }
        self.released.raise(region.start, region.end);
        if waits.kind == WaitKind::Park {
            self.raise_sleepers();
        }
    }

    /// Lists `region` and sleeps until it is released; returns false if its turn has come.
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
