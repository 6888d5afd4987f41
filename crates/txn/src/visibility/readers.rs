//! The snapshots in use: an array that readers write and collectors look through.
//!
//! A reader publishes in its slot, in this order:
//!
//! 1. Which xids are frozen is read from the status window.
//! 2. A **bound**, what is durable at this moment, is stored; `SeqCst` fence.
//! 3. The snapshot `s` is read: what is durable, or the clock of commits if that is greater. So `s >= bound`.
//! 4. `hi`, the next xid, is read.
//! 5. `hi`, then `s` in the bound's place, is stored.
//!
//! A collector is a thread that moves the status window on
//! ([`StatusWindow::slide`](super::status::StatusWindow::slide)) or computes a [`View`](super::view::View). It reads
//! what it judges by, commit numbers or what is durable and the clock; `SeqCst` fence; then the slots. Of the two
//! fences one is first. Either the collector finds the reader's bound, or the reader's `s` is at or above all that the
//! collector has judged by. Then nothing of it is older than what that reader sees.
//!
//! An xid at or above `hi` belongs to a commit above `s`. Had its number been drawn by the time `s` was read, the draw
//! of the xid, which came before in that transaction, would have been visible at step 4.
//!
//! **Operations.** A cancelled reader may be in the middle of an operation, and finds out at its end. What that
//! operation may still come to, such as the pages of a dropped table, is used otherwise only after it.
//!
//! | reader | collector |
//! |---|---|
//! | counts its operation; `SeqCst` fence; reads if it is not cancelled | finds it cancelled; `SeqCst` fence; looks at the count |
//!
//! So the collector finds the operation, or the reader finds itself cancelled.

use super::slots::Slots;
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use foreshore_sync::{LockRank, Mutex, Nanos, rmw, thread_index};
use std::time::Duration;

// The state of a slot.
//
//   bits 0..2   0 free | 1 bound | 2 taken | 3 cancelled
//   bits 2..64  CSN, if bound or taken
//
// 1. 0 -> 1, 1 -> 2, and to 0 from whatever it is: the reader, which alone knows that it has the slot.
// 2. 2 -> 3: any thread, by an exchange. Only the reader's end leaves 3.
// 3. `hi` and `lo` are those of the reader if the state says "taken", stored before it. A thread that reads them late
//    may read those of the slot's next reader, which came after its fence and needs nothing of it.
const FREE: u64 = 0;
const BOUND: u64 = 1;
const TAKEN: u64 = 2;
const CANCELLED: u64 = 3;

#[derive(Debug)]
struct Slot {
    /// Contract above.
    state: AtomicU64,
    hi: AtomicU64,
    /// Operations of the reader that are under way.
    operations: AtomicUsize,
    about: Mutex<(About, SnapshotCost)>,
}

/// What a snapshot may cost before it is cancelled, though there is space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Time.
    pub max_age: Duration,
    /// Bytes that are kept for it alone, while it is the oldest.
    pub max_bytes: u64,
}

impl SnapshotLimits {
    /// Whatever it takes.
    pub const NONE: Self = Self { max_age: Duration::MAX, max_bytes: u64::MAX };
}

/// What is told of a reader that others wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) label: &'static str,
    pub(crate) since: Nanos,
    pub(crate) limits: SnapshotLimits,
}

impl About {
    /// A reader without limits.
    pub(crate) const fn new(label: &'static str, since: Nanos) -> Self {
        Self { label, since, limits: SnapshotLimits::NONE }
    }
}

/// What a snapshot cost its database when it was cancelled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotCost {
    /// Time.
    pub(crate) age: Duration,
    /// Bytes of versions that no other reader needed.
    pub(crate) bytes: u64,
}

/// Xids that were frozen at one moment: their transactions had ended, and their fate was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrozenXids {
    /// Those below it.
    pub(crate) below: Xid,
    /// Those above it that are below `lo`.
    pub(crate) above: Xid,
    /// The start of the status window.
    pub(crate) lo: Xid,
}

impl FrozenXids {
    /// Returns whether `xid` is one of them.
    pub(crate) fn has(&self, xid: Xid) -> bool {
        xid < self.below || (self.above < xid && xid < self.lo)
    }
}

impl From<Xid> for FrozenXids {
    /// All below the start of the window: none is pinned.
    fn from(lo: Xid) -> Self {
        Self { below: lo, above: Xid::ZERO, lo }
    }
}

/// Xids below the start of the status window whose fate size alone does not tell, ascending. They are late commits,
/// each with its number, and pinned xids, which have none yet.
pub(crate) type LateXids = Box<[(Xid, Option<Csn>)]>;

/// A slot that a reader has: its snapshot. Given back by [`Readers::release`].
#[derive(Debug)]
pub(crate) struct Mark {
    slot: usize,
    pub(crate) csn: Csn,
    /// These xids belong to commits at or below `csn`, or to transactions that were rolled back.
    pub(crate) frozen: FrozenXids,
    /// Xids from here on belong to commits above `csn`.
    pub(crate) hi: Xid,
}

/// A reader as a collector finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Its snapshot; at or below it, if `hi` is missing.
    pub(crate) csn: Csn,
    pub(crate) hi: Option<Xid>,
}

impl Reader {
    /// Returns whether it may need to know, and cannot tell by the xid, that the commit `csn` of `xid` is above its
    /// snapshot.
    pub(crate) fn asks_for(&self, xid: Xid, csn: Csn) -> bool {
        self.csn < csn && self.hi.is_none_or(|hi| xid < hi)
    }
}

/// The slots of all readers.
#[derive(Debug)]
pub(crate) struct Readers {
    slots: Slots<Slot>,
    /// Slots of the fixed part from here on were never used.
    used: AtomicUsize,
    /// Whether a reader has ever had limits.
    limited: AtomicBool,
}

impl Readers {
    /// With a fixed part of `count` slots.
    pub(crate) fn new(count: usize) -> Self {
        let slot = || {
            let about = (About::new("", Nanos::ZERO), SnapshotCost::default());
            let (state, hi) = (AtomicU64::new(FREE), AtomicU64::new(0));
            let operations = AtomicUsize::new(0);
            Slot { state, hi, operations, about: Mutex::new(LockRank::Leaf, about) }
        };
        Self { slots: Slots::new(count, slot), used: AtomicUsize::new(0), limited: AtomicBool::new(false) }
    }

    /// All slots that may be in use, with their numbers.
    fn in_use(&self) -> impl Iterator<Item = (usize, &Slot)> {
        // ORDERING: Relaxed, ordered by the fence of `all`; elsewhere a hint.
        let used = self.used.load(Ordering::Relaxed);
        let fixed = self.slots.fixed()[..used].iter().map(|slot| &**slot).enumerate();
        fixed.chain(self.slots.extra_in_use())
    }

    /// Takes a snapshot. `frozen`, `durable` and `next` are read as the head of this file says, and so is `clock`, if
    /// the snapshot is to be the latest.
    pub(crate) fn take(
        &self,
        about: About,
        frozen: impl FnOnce() -> FrozenXids,
        durable: impl Fn() -> Csn,
        clock: Option<impl FnOnce() -> Csn>,
        next: impl FnOnce() -> Xid,
    ) -> Mark {
        let frozen = frozen();
        let bound = durable();
        let (at, slot) = self.claim(bound);
        if !mutant("readers: no fence behind the bound") {
            // ORDERING: store, fence, look: step 2; pairs with the fence of `all`.
            fence(Ordering::SeqCst);
        }
        // What is durable can be beyond the clock where records that are no commits have stamps of their own.
        let csn = durable().max(clock.map_or(Csn::ZERO, |clock| clock()));
        let hi = next();
        assert!(bound <= csn, "a snapshot at {csn} was shown as one from {bound} on");
        slot.about.lock().0 = about;
        // ORDERING: Relaxed, published by the state. The first one with limits sets it for good.
        if about.limits != SnapshotLimits::NONE && !self.limited.load(Ordering::Relaxed) {
            // ORDERING: as above.
            self.limited.store(true, Ordering::Relaxed);
        }
        // ORDERING: Relaxed, published by the state.
        slot.hi.store(hi.0, Ordering::Relaxed);
        // ORDERING: publish, pairs with `all`.
        slot.state.store(csn.0 << 2 | TAKEN, Ordering::Release);
        Mark { slot: at, csn, frozen, hi }
    }

    /// Finds a free slot, near those that this thread had before, and shows the bound in it.
    fn claim(&self, bound: Csn) -> (usize, &Slot) {
        let shown = if mutant("readers: bound shown late") { FREE | (1 << 62) } else { bound.0 << 2 | BOUND };
        let fixed = self.slots.fixed();
        let first = thread_index() % fixed.len();
        let mut order = (first..fixed.len()).chain(0..first);
        let free = order.find(|&at| {
            let state = &fixed[at].state;
            // ORDERING: hint, the exchange decides.
            if state.load(Ordering::Relaxed) != FREE {
                return false;
            }
            // ORDERING: Relaxed, before the claim: ordered as the claim is by the caller's fence.
            if self.used.load(Ordering::Relaxed) <= at {
                // ORDERING: as above.
                self.used.fetch_max(at + 1, Ordering::Relaxed);
            }
            rmw::contended(1);
            // ORDERING: Acquire, claim: what the last reader stored here came before. Otherwise ordered by the caller's
            // fence.
            state.compare_exchange(FREE, shown, Ordering::Acquire, Ordering::Relaxed).is_ok()
        });
        free.map_or_else(
            // ORDERING: Relaxed, as the exchange; the last reader's stores come before by the lock.
            || self.slots.claim_extra(|slot| slot.state.store(shown, Ordering::Relaxed)),
            |at| (at, &*fixed[at]),
        )
    }

    /// The slot that a reader has.
    fn slot_of(&self, mark: &Mark) -> &Slot {
        self.slots.slot(mark.slot).expect("a reader has its slot")
    }

    /// The reader has ended.
    pub(crate) fn release(&self, mark: &Mark) {
        let state = &self.slot_of(mark).state;
        // ORDERING: Relaxed, none but the reader makes it free.
        let before = state.load(Ordering::Relaxed);
        assert!(before != FREE, "the reader at {} gives back slot {} twice", mark.csn, mark.slot);
        // ORDERING: Release, what it has read was read before; pairs with `all` and the next claim.
        state.store(FREE, Ordering::Release);
        self.slots.release(mark.slot);
    }

    /// Returns whether the snapshot was cancelled. Asked after a read, before what was read is handed out.
    pub(crate) fn is_cancelled(&self, mark: &Mark) -> bool {
        // ORDERING: Acquire orders the reads before it, if they end in an Acquire fence: the writer over what was read
        // came after the cancellation.
        self.slot_of(mark).state.load(Ordering::Acquire) == CANCELLED
    }

    /// Returns what it cost, if it was cancelled.
    pub(crate) fn cost(&self, mark: &Mark) -> Option<SnapshotCost> {
        self.is_cancelled(mark).then(|| self.slot_of(mark).about.lock().1)
    }

    /// Counts an operation of the reader, and says whether it may read. [`leave`](Self::leave) ends the operation,
    /// either way.
    pub(crate) fn enter(&self, mark: &Mark) -> bool {
        // ORDERING: Relaxed, ordered by the fence.
        self.slot_of(mark).operations.fetch_add(1, Ordering::Relaxed);
        if !mutant("readers: no fence behind the count of an operation") {
            // ORDERING: store, fence, look: pairs with the fence of `is_any_cancelled_at_work`.
            fence(Ordering::SeqCst);
        }
        !self.is_cancelled(mark)
    }

    /// Ends an operation of the reader.
    pub(crate) fn leave(&self, mark: &Mark) {
        // ORDERING: Release, what the operation has read was read before; pairs with `is_any_cancelled_at_work`.
        let before = self.slot_of(mark).operations.fetch_sub(1, Ordering::Release);
        assert!(before > 0, "an operation of the reader at {} ends and none has begun", mark.csn);
    }

    /// Returns whether an operation is under way of a reader that the caller has found cancelled, or has not found for
    /// that reason.
    pub(crate) fn is_any_cancelled_at_work(&self) -> bool {
        if !mutant("readers: no fence before the look at operations") {
            // ORDERING: store, fence, look: pairs with the fence of `enter`.
            fence(Ordering::SeqCst);
        }
        self.in_use().any(|(_, slot)| {
            // ORDERING: Acquire, pairs with `leave`, and with `release` where another reader has the slot by now.
            let state = slot.state.load(Ordering::Acquire);
            // ORDERING: as above.
            state == CANCELLED && slot.operations.load(Ordering::Acquire) > 0
        })
    }

    /// All readers. What the caller judges by was read before, and the bounds that it finds are not missed by that.
    pub(crate) fn all(&self) -> impl Iterator<Item = Reader> {
        if !mutant("readers: no fence before the look") {
            // ORDERING: store, fence, look: pairs with the fence of `take`.
            fence(Ordering::SeqCst);
        }
        self.in_use().filter_map(|(_, slot)| {
            // ORDERING: Acquire, `hi` is that of the state; pairs with `take`.
            let state = slot.state.load(Ordering::Acquire);
            let csn = Csn(state >> 2);
            match state & 3 {
                BOUND => Some(Reader { csn, hi: None }),
                // ORDERING: Relaxed, see the state's contract.
                TAKEN => Some(Reader { csn, hi: Some(Xid(slot.hi.load(Ordering::Relaxed))) }),
                _ => None,
            }
        })
    }

    /// Returns whether a reader that has no snapshot yet may get one below `csn`.
    pub(crate) fn is_any_taking_below(&self, csn: Csn) -> bool {
        self.all().any(|reader| reader.hi.is_none() && reader.csn < csn)
    }

    /// The oldest snapshot, if there is one.
    pub(crate) fn oldest(&self) -> Option<(Csn, About)> {
        self.taken().min_by_key(|&(csn, at, _)| (csn, at)).map(|(csn, _, slot)| (csn, slot.about.lock().0))
    }

    /// Cancels the oldest snapshot, if `judge` gives a cost for it: it counts no more. Returns what it was.
    pub(crate) fn cancel_oldest(
        &self,
        judge: impl Fn(Csn, &About) -> Option<SnapshotCost>,
    ) -> Option<(Csn, About, SnapshotCost)> {
        while let Some((csn, _, slot)) = self.taken().min_by_key(|&(csn, at, _)| (csn, at)) {
            let about = slot.about.lock().0;
            let cost = judge(csn, &about)?;
            if slot.cancel(csn, &about, cost) {
                return Some((csn, about, cost));
            }
            // It has ended by itself, and another is the oldest.
        }
        None
    }

    /// Cancels all snapshots for which `judge` gives a cost, and returns how many. One that is taken meanwhile may be
    /// missed.
    pub(crate) fn cancel_each(&self, judge: impl Fn(Csn, &About) -> Option<SnapshotCost>) -> usize {
        let doomed = self.taken().filter(|&(csn, _, slot)| {
            let about = slot.about.lock().0;
            judge(csn, &about).is_some_and(|cost| slot.cancel(csn, &about, cost))
        });
        doomed.count()
    }

    /// Returns whether a reader may have limits.
    pub(crate) fn is_any_limited(&self) -> bool {
        // ORDERING: hint; a thread that misses it looks the next time.
        self.limited.load(Ordering::Relaxed)
    }

    /// The snapshots in use, each with its slot. A hint, as all of this: the cancellation checks.
    fn taken(&self) -> impl Iterator<Item = (Csn, usize, &Slot)> {
        self.in_use().filter_map(|(at, slot)| {
            // ORDERING: hint.
            let state = slot.state.load(Ordering::Relaxed);
            (state & 3 == TAKEN).then_some((Csn(state >> 2), at, slot))
        })
    }
}

impl Slot {
    /// Cancels the snapshot `csn` of the reader in this slot, if it is still the one that `about` tells of.
    fn cancel(&self, csn: Csn, about: &About, cost: SnapshotCost) -> bool {
        // Locked, so that a thread that finds it cancelled finds the cost.
        let mut told = self.about.lock();
        // Another may have the slot by now, with the same snapshot. The next reader is told of only after the exchange.
        if told.0 != *about {
            return false;
        }
        // ORDERING: AcqRel, pairs with `is_cancelled`: what is written over comes after.
        let cancelled = self.state.compare_exchange(csn.0 << 2 | TAKEN, CANCELLED, Ordering::AcqRel, Ordering::Relaxed);
        if cancelled.is_ok() {
            told.1 = cost;
        }
        cancelled.is_ok()
    }
}
