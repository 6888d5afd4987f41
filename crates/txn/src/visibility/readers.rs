//! The snapshots in use: an array of slots that readers write and collectors read.
//!
//! A reader publishes its snapshot in a slot, in this order:
//!
//! 1. It reads from the status window which xids are frozen.
//! 2. It stores a **bound**, the present durable CSN; `SeqCst` fence.
//! 3. It reads the snapshot `s`: the durable CSN, or the commit clock if that is greater. So `s >= bound`.
//! 4. It reads `hi`, the next xid.
//! 5. It stores `hi`, and then `s` in place of the bound.
//!
//! A collector is a thread that moves the status window on
//! ([`StatusWindow::slide`](super::status::StatusWindow::slide)) or computes a [`View`](super::view::View). It first
//! reads its inputs: commit numbers, or the durable CSN and the clock. Then comes a `SeqCst` fence, and then it reads
//! the slots.
//!
//! One of the two fences is first. So either the collector finds the reader's bound, or the reader's `s` is at or above
//! all inputs of the collector. In the second case the collector removes no version that this reader sees.
//!
//! An xid at or above `hi` belongs to a commit above `s`. Proof: the transaction draws its xid before its commit
//! number. If the number had been drawn before the read of `s`, the draw of the xid would have been visible at step 4.

mod about;
mod operations;

pub use about::SnapshotLimits;
pub(crate) use about::{About, SnapshotCost};

use super::slots::Slots;
use foreshore_base::{Csn, Xid};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use foreshore_sync::{BiasedMutex, CachePadded, LockRank, Nanos, SparingFence, thread_index};

// The state of a slot.
//
//   bits 0..2   0 free | 1 bound | 2 taken | 3 cancelled
//   bits 2..64  CSN, if bound or taken
//
// 1. 0 -> 1, 1 -> 2, and any state -> 0: by the reader that has the slot.
// 2. 2 -> 3: by any thread, with an exchange. The reader ends state 3 by its release.
// 3. `hi` is stored before the state "taken". A collector that reads `hi` late may get that of the slot's next reader.
//    That is harmless: the next reader came after the collector's fence, so the collector need not consider it.
const FREE: u64 = 0;
const BOUND: u64 = 1;
const TAKEN: u64 = 2;
const CANCELLED: u64 = 3;

#[derive(Debug)]
struct Slot {
    /// Contract above.
    state: AtomicU64,
    hi: AtomicU64,
    /// Operations of the first reader that are in progress: see [`operations`]. Alone on its line, because sharers read
    /// the rest.
    operations: CachePadded<AtomicUsize>,
    /// How many readers but one have the slot.
    sharers: AtomicUsize,
    about: BiasedMutex<(About, SnapshotCost)>,
}

/// A reader by the snapshot of another one.
#[derive(Debug, Default)]
struct Sharer {
    /// The slot of the snapshot. Stays when the reader has ended.
    slot: AtomicUsize,
    /// As in a slot.
    operations: AtomicUsize,
}

/// Xids that were frozen at one moment: their transactions had ended, and the outcome was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrozenXids {
    /// Xids below this are frozen.
    pub(crate) below: Xid,
    /// Xids above this and below `lo` are frozen.
    pub(crate) above: Xid,
    /// The start of the status window.
    pub(crate) lo: Xid,
}

impl FrozenXids {
    /// Returns whether `xid` is frozen.
    pub(crate) fn has(&self, xid: Xid) -> bool {
        xid < self.below || (self.above < xid && xid < self.lo)
    }
}

impl From<Xid> for FrozenXids {
    /// Freezes all xids below the start of the window: none is pinned.
    fn from(lo: Xid) -> Self {
        Self { below: lo, above: Xid::ZERO, lo }
    }
}

/// Xids below the start of the status window whose status the bounds alone do not tell, ascending. They are late
/// commits, with their commit numbers, and pinned xids, which have no number yet.
pub(crate) type LateXids = Box<[(Xid, Option<Csn>)]>;

/// The slot of a reader, with its snapshot. [`Readers::release`] frees the slot.
#[derive(Debug)]
pub(crate) struct Mark {
    slot: usize,
    /// The place of a reader that shares the snapshot of the first one.
    sharer: Option<usize>,
    pub(crate) csn: Csn,
    /// These xids belong to commits at or below `csn`, or to transactions that were rolled back.
    pub(crate) frozen: FrozenXids,
    /// Xids from here on belong to commits above `csn`.
    pub(crate) hi: Xid,
}

/// A reader as a collector finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reader {
    /// Its snapshot. If `hi` is missing, a lower bound of the snapshot.
    pub(crate) csn: Csn,
    pub(crate) hi: Option<Xid>,
}

impl Reader {
    /// Returns whether the reader needs the status of `xid`: its commit `csn` is above the snapshot, and the xid alone
    /// does not tell that.
    pub(crate) fn needs_status_of(&self, xid: Xid, csn: Csn) -> bool {
        self.csn < csn && self.hi.is_none_or(|hi| xid < hi)
    }
}

/// The slots of all readers.
#[derive(Debug)]
pub(crate) struct Readers {
    slots: Slots<Slot>,
    /// Further readers of snapshots.
    sharers: Slots<Sharer>,
    /// The index from which slots of the fixed part were never used.
    used: AtomicUsize,
    /// Whether a reader has ever had limits.
    limited: AtomicBool,
    /// Operations of readers are the light side, collectors the heavy one.
    operations: SparingFence,
}

impl Readers {
    /// Creates a fixed part of `count` slots.
    pub(crate) fn new(count: usize) -> Self {
        let slot = || {
            let about = (About::new("", Nanos::ZERO), SnapshotCost::default());
            let (state, hi) = (AtomicU64::new(FREE), AtomicU64::new(0));
            let (operations, sharers) = (CachePadded::default(), AtomicUsize::new(0));
            Slot { state, hi, operations, sharers, about: BiasedMutex::new(LockRank::Leaf, about) }
        };
        let (used, limited) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (slots, sharers) = (Slots::new(count, slot), Slots::new(1, Sharer::default));
        Self { slots, sharers, used, limited, operations: SparingFence::new() }
    }

    /// Returns all slots that may be in use, with their numbers.
    fn in_use(&self) -> impl Iterator<Item = (usize, &Slot)> {
        // ORDERING: Relaxed, ordered by the fence of `all`; elsewhere a hint.
        let used = self.used.load(Ordering::Relaxed);
        let fixed = self.slots.fixed()[..used].iter().map(|slot| &**slot).enumerate();
        fixed.chain(self.slots.extra_in_use())
    }

    /// Takes a snapshot. `frozen`, `durable` and `next` are called in the order of the steps above. `clock` is given
    /// for the latest snapshot.
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
        // The durable CSN can be beyond the clock if records that are no commits have stamps of their own.
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
        Mark { slot: at, sharer: None, csn, frozen, hi }
    }

    /// Claims a free slot, near those that this thread had before, and stores the bound in it.
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

    /// Returns the slot of a reader.
    fn slot_of(&self, mark: &Mark) -> &Slot {
        self.slots.slot(mark.slot).expect("a reader has its slot")
    }

    /// Ends a reader, and frees its slot unless another reader shares that.
    pub(crate) fn release(&self, mark: &Mark) {
        let Slot { state, sharers, .. } = self.slot_of(mark);
        // ORDERING: Acquire, what other readers of the slot have read was read before it is free.
        if (mark.sharer.is_some() || sharers.load(Ordering::Acquire) > 0) && !self.end_sharer(mark) {
            return;
        }
        // ORDERING: Relaxed, none but the reader makes it free.
        let before = state.load(Ordering::Relaxed);
        assert!(before != FREE, "the reader at {} gives back slot {} twice", mark.csn, mark.slot);
        // ORDERING: Release, what it has read was read before; pairs with `all` and the next claim.
        state.store(FREE, Ordering::Release);
        self.slots.release(mark.slot);
    }

    /// Returns whether the snapshot was cancelled. Called after a read, before the result of the read is returned.
    #[inline]
    pub(crate) fn is_cancelled(&self, mark: &Mark) -> bool {
        self.slot_of(mark).is_cancelled()
    }

    /// Returns the cost of the snapshot, if it was cancelled.
    pub(crate) fn cost(&self, mark: &Mark) -> Option<SnapshotCost> {
        self.is_cancelled(mark).then(|| self.slot_of(mark).about.visit().1)
    }

    /// Returns all readers. The caller, a collector, has read its inputs before.
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

    /// Returns the oldest snapshot, if there is one.
    pub(crate) fn oldest(&self) -> Option<(Csn, About)> {
        self.taken().min_by_key(|&(csn, at, _)| (csn, at)).map(|(csn, _, slot)| (csn, slot.about.visit().0))
    }

    /// Cancels the oldest snapshot, if `judge` returns a cost for it, and returns it. A cancelled snapshot protects no
    /// versions.
    pub(crate) fn cancel_oldest(
        &self,
        judge: impl Fn(Csn, &About) -> Option<SnapshotCost>,
    ) -> Option<(Csn, About, SnapshotCost)> {
        while let Some((csn, _, slot)) = self.taken().min_by_key(|&(csn, at, _)| (csn, at)) {
            let about = slot.about.visit().0;
            let cost = judge(csn, &about)?;
            if slot.cancel(csn, &about, cost) {
                return Some((csn, about, cost));
            }
            // The reader has ended by itself, so another snapshot is the oldest.
        }
        None
    }

    /// Cancels all snapshots for which `judge` returns a cost, and returns how many. A snapshot that is taken meanwhile
    /// may be missed.
    pub(crate) fn cancel_each(&self, judge: impl Fn(Csn, &About) -> Option<SnapshotCost>) -> usize {
        let doomed = self.taken().filter(|&(csn, _, slot)| {
            let about = slot.about.visit().0;
            judge(csn, &about).is_some_and(|cost| slot.cancel(csn, &about, cost))
        });
        doomed.count()
    }

    /// Returns whether a reader may have limits.
    pub(crate) fn is_any_limited(&self) -> bool {
        // ORDERING: hint; a thread that misses it sees it the next time.
        self.limited.load(Ordering::Relaxed)
    }

    /// Returns the snapshots in use, each with its slot. The result is a hint: a cancellation checks again.
    fn taken(&self) -> impl Iterator<Item = (Csn, usize, &Slot)> {
        self.in_use().filter_map(|(at, slot)| {
            // ORDERING: hint.
            let state = slot.state.load(Ordering::Relaxed);
            (state & 3 == TAKEN).then_some((Csn(state >> 2), at, slot))
        })
    }
}

impl Slot {
    fn is_cancelled(&self) -> bool {
        // ORDERING: Acquire orders the reads before it, if they end in an Acquire fence: a writer that reuses the
        // memory came after the cancellation. Also pairs with `release`.
        self.state.load(Ordering::Acquire) == CANCELLED
    }

    /// Cancels the snapshot `csn` of the reader in this slot, if `about` still describes that reader.
    fn cancel(&self, csn: Csn, about: &About, cost: SnapshotCost) -> bool {
        // Locked, so that a thread that sees the cancellation gets the cost.
        let mut told = self.about.visit();
        // Another reader may have the slot by now, with the same snapshot. Under this lock its description cannot
        // change before the exchange.
        if told.0 != *about {
            return false;
        }
        // ORDERING: AcqRel, pairs with `is_cancelled`: the reuse of memory comes after.
        let cancelled = self.state.compare_exchange(csn.0 << 2 | TAKEN, CANCELLED, Ordering::AcqRel, Ordering::Relaxed);
        if cancelled.is_ok() {
            told.1 = cost;
        }
        cancelled.is_ok()
    }
}
