//! The consolidation array: threads that find the insert lock taken join their requests, and one draws for all of them
//! (Aether, Algorithms 2 and 5, appendix A.2).
//!
//! The array has a few places; each names the slot that threads join there. The first thread in a slot leads its
//! group. It takes the insert lock, puts a fresh slot of the pool into the place and closes its own slot. Then it draws
//! for the group and tells the members their region. Each member copies its record behind those that joined before it.
//! The last one to end its copy releases the region of the group.
//!
//! Corrections of the paper, and what it leaves open:
//!
//! - *A slot may be reused between a joiner's read of it and its CAS* (Algorithm 5, lines 4 to 12). The state has the
//!   old value again, and the joiner joins the slot's next group. That is harmless, unless the leader replaces the
//!   slot at the place where it found it. By then the slot may be at another place, which would keep pointing at a
//!   closed slot. The fresh slot that was here would be lost with its members. So a slot knows its place, and the
//!   leader reads it under the insert lock.
//! - *A record larger than a group* would search for space forever. It bypasses the array, and waits for the lock
//!   instead.
//! - *All slots may be full*, and a joiner probes without end. Here, after one round, it waits for the next slot that
//!   is put into the array; the leaders of the full ones are about to do that.
//! - *The pool may be empty*, and the leader probes without end while it holds the insert lock. Here it waits for a
//!   slot to be freed, which needs no lock.

use super::super::{Ring, RingBuffer};
use super::node::Node;
use super::{Front, Holder, Own, Region, Shape, Waits};
use foreshore_base::Lsn;
use foreshore_sync::CachePadded;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::rmw;
use foreshore_wal::log_buffer::Checksummed;

// The state of a slot: Figure 10 of the paper.
//
//   n >= 0        OPEN      in the array; members have joined with n bytes     joiner: n -> n + its bytes (CAS)
//   PENDING       closed    the leader draws; also a slot in use without a group  leader: n -> PENDING (swap)
//   DONE - n      COPYING   members copy; n bytes are not copied yet           leader: PENDING -> DONE - n
//   DONE          copied    the last member, or its delegate, releases         member: + its bytes (fetch_add)
//   FREE          in the pool                                                  releaser: DONE -> FREE
//                                                                              lock holder: FREE -> PENDING -> 0
//
// 1. A joiner's bytes are its right to that part of the region, and n before its CAS is its offset. A joiner at 0
//    leads.
// 2. `start` and `end` are written by the leader before COPYING and read by members before they leave.
// 3. `place` is written and read under the insert lock.
// 4. CASes, swap and additions are read-modify-writes, so each carries on what the earlier ones have released: the
//    leader sees what led to every join (the credit), and the member that reaches DONE sees every copy.
const PENDING: i64 = -1;
const FREE: i64 = -2;
const DONE: i64 = -4;

#[derive(Debug)]
struct Slot {
    state: AtomicI64,
    start: AtomicU64,
    end: AtomicU64,
    place: AtomicUsize,
    /// The slot's place in the release queue of `delegated`: on the same cache line, since the releaser changes both.
    node: Node,
}

/// The part of a buffer with a consolidation array that surrounds the copies.
pub(super) trait Consolidated: Send + Sync {
    fn shared(&self) -> &Shared;

    /// Draws `bytes` for `session`, under the lock of `holder`, and releases the lock unless it covers the copies. The
    /// result says which thread releases the region.
    fn acquire(&self, session: usize, holder: Holder, bytes: u64) -> Region;

    /// Releases `region`, whose last copy `session` has ended.
    fn release(&self, session: usize, region: Region);

    /// As [`RingBuffer::published`].
    fn released(&self) -> u64;
}

impl<B: Consolidated> RingBuffer for B {
    fn ring(&self) -> &Ring {
        &self.shared().ring
    }

    fn insert(&self, session: usize, record: &Checksummed<'_>) -> Lsn {
        insert(self, session, record)
    }

    fn tail(&self) -> u64 {
        self.shared().front.tail()
    }

    fn published(&self) -> u64 {
        self.released()
    }
}

/// The common parts of those buffers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ring: Ring,
    pub(super) front: Front,
    pub(super) array: Array,
    /// By session.
    pub(super) own: Box<[CachePadded<Own>]>,
}

impl Shared {
    pub(super) fn new(ring: Ring, shape: &Shape) -> Self {
        let first = ring.first();
        let own = (0..shape.sessions).map(|session| CachePadded::new(Own::new(session))).collect();
        Self { ring, front: Front::new(first, shape), array: Array::new(shape), own }
    }

    /// Returns the slot that `region` was drawn for to the pool.
    pub(super) fn free(&self, region: Region) {
        if let Holder::Slot(slot) = region.holder {
            self.array.free(&self.front.waits, slot);
        }
    }
}

/// Algorithm 2.
fn insert<B: Consolidated>(buffer: &B, session: usize, record: &Checksummed<'_>) -> Lsn {
    let Shared { ring, front, array, own } = buffer.shared();
    let own: &Own = &own[session];
    let size = record.size() as u64;
    let alone = Holder::Session(session);
    let small = size <= array.group;
    if !small {
        // WAIT: park - a draw, or the copies of a group.
        front.lock(alone);
    }
    if !small || front.try_lock(alone) {
        let region = buffer.acquire(session, alone, size);
        // SAFETY: the region was drawn for this record.
        let lsn = unsafe { ring.fill(region.start, record) };
        buffer.release(session, region);
        return lsn;
    }
    let (slot, offset) = array.join(&front.waits, own.random(session, array.places.len() as u32) as usize, size);
    let region = if offset == 0 {
        let leader = Holder::Slot(slot);
        // WAIT: park - as above. Others join meanwhile.
        front.lock(leader);
        let bytes = array.close(&front.waits, own, slot);
        let region = buffer.acquire(session, leader, bytes);
        array.notify(&front.waits, slot, region);
        region
    } else {
        // WAIT: park - until the leader has drawn.
        array.await_region(&front.waits, slot)
    };
    // SAFETY: the region was drawn for the group, and this part of it belongs to this member (rule 1).
    let lsn = unsafe { ring.fill(region.start + offset, record) };
    if array.leave(slot, size) {
        buffer.release(session, region);
    }
    lsn
}

/// The array and its pool of slots.
#[derive(Debug)]
pub(super) struct Array {
    places: Box<[CachePadded<AtomicUsize>]>,
    slots: Box<[CachePadded<Slot>]>,
    /// Most bytes of a group.
    group: u64,
}

impl Array {
    fn new(shape: &Shape) -> Self {
        assert!(shape.slots < shape.pool, "a slot of the array that closes needs a fresh one");
        let slot = |index: usize| {
            let state = AtomicI64::new(if index < shape.slots { 0 } else { FREE });
            let place = AtomicUsize::new(index);
            CachePadded::new(Slot { state, start: AtomicU64::new(0), end: AtomicU64::new(0), place, node: Node::new() })
        };
        Self {
            places: (0..shape.slots).map(|place| CachePadded::new(AtomicUsize::new(place))).collect(),
            slots: (0..shape.pool).map(slot).collect(),
            group: shape.group,
        }
    }

    /// Joins the group of a slot, tried from place `from` on, and returns slot and offset.
    fn join(&self, waits: &Waits, from: usize, size: u64) -> (usize, u64) {
        loop {
            for i in 0..self.places.len() {
                let place = &self.places[(from + i) % self.places.len()];
                // ORDERING: publish, the slot is open or has been; pairs with `close`.
                let slot = place.load(Ordering::Acquire);
                if let Some(offset) = self.try_join(slot, size) {
                    return (slot, offset);
                }
            }
            let room = || self.places.iter().any(|place| self.has_room(place, size));
            // WAIT: park - the leaders of full slots replace them.
            waits.until(&self.places, room);
        }
    }

    fn try_join(&self, slot: usize, size: u64) -> Option<u64> {
        let state = &self.slots[slot].state;
        // ORDERING: Relaxed, a guess that the CAS checks.
        let mut seen = state.load(Ordering::Relaxed);
        while (0..=(self.group - size) as i64).contains(&seen) {
            rmw::contended(1);
            // ORDERING: Release, this session's credit is behind the draw (rule 4), pairs with `close`. Acquire, a
            // leader sees the slot as it was put into the array. A failure has learnt only the state.
            let order = if mutant("c-array: join without order") { Ordering::Relaxed } else { Ordering::AcqRel };
            match state.compare_exchange_weak(seen, seen + size as i64, order, Ordering::Relaxed) {
                Ok(_) => return Some(seen as u64),
                Err(now) => seen = now,
            }
        }
        None
    }

    fn has_room(&self, place: &AtomicUsize, size: u64) -> bool {
        // ORDERING: Acquire, as in `join`.
        let slot = place.load(Ordering::Acquire);
        // ORDERING: Acquire, `Waits` asks for it.
        (0..=(self.group - size) as i64).contains(&self.slots[slot].state.load(Ordering::Acquire))
    }

    /// Replaces the slot in the array, ends joining and returns the bytes of the group. Called by the leader, under
    /// the insert lock.
    fn close(&self, waits: &Waits, own: &Own, slot: usize) -> u64 {
        let fresh = self.take(waits, own);
        // ORDERING: Relaxed, written and read under the insert lock.
        let place = self.slots[slot].place.load(Ordering::Relaxed);
        self.slots[fresh].place.store(place, Ordering::Relaxed);
        // ORDERING: Release, a joiner sees what the slot's last user did; pairs with `try_join`.
        self.slots[fresh].state.store(0, Ordering::Release);
        // ORDERING: publish, pairs with `join`.
        self.places[place].store(fresh, Ordering::Release);
        waits.wake(&self.places);
        rmw::contended(1);
        // ORDERING: AcqRel, rule 4; pairs with `try_join`.
        let bytes = self.slots[slot].state.swap(PENDING, Ordering::AcqRel);
        assert!(bytes > 0, "a group is closed once, by its leader: {bytes}");
        bytes as u64
    }

    /// Takes a slot from the pool for the session that `own` belongs to, under the insert lock.
    ///
    /// The paper takes the slots in turn, each of which was last used long ago on some other processor. Here the
    /// search begins at the session's last slot, which is probably in its cache.
    pub(super) fn take(&self, waits: &Waits, own: &Own) -> usize {
        let pool = self.slots.len();
        // ORDERING: Relaxed, the session's own word.
        let from = own.slot.load(Ordering::Relaxed);
        loop {
            // ORDERING: consume slot, its last user is done; pairs with `free`.
            let free = |slot: usize| self.slots[slot].state.load(Ordering::Acquire) == FREE;
            if let Some(slot) = (from..from + pool).map(|at| at % pool).find(|&slot| free(slot)) {
                // ORDERING: Relaxed on both. The session's own word; no other thread looks for a slot or joins this
                // one.
                own.slot.store(slot, Ordering::Relaxed);
                self.slots[slot].state.store(PENDING, Ordering::Relaxed);
                return slot;
            }
            // WAIT: park - the copies of groups that hold slots.
            waits.until(&self.slots, || (0..pool).any(free));
        }
    }

    /// Tells the members their region.
    fn notify(&self, waits: &Waits, index: usize, region: Region) {
        let slot = &self.slots[index];
        // ORDERING: Relaxed on both, published by the state (rule 2).
        slot.start.store(region.start, Ordering::Relaxed);
        slot.end.store(region.end, Ordering::Relaxed);
        // ORDERING: publish, pairs with `await_region`; what led to the draw is behind the copies.
        slot.state.store(DONE - (region.end - region.start) as i64, Ordering::Release);
        waits.wake(slot);
    }

    /// Waits for the region of the group. Called by a member that does not lead.
    fn await_region(&self, waits: &Waits, index: usize) -> Region {
        let slot = &self.slots[index];
        // ORDERING: publish, pairs with `notify`.
        waits.until(slot, || slot.state.load(Ordering::Acquire) < DONE);
        // ORDERING: Relaxed, published by the state (rule 2).
        let (start, end) = (slot.start.load(Ordering::Relaxed), slot.end.load(Ordering::Relaxed));
        Region { holder: Holder::Slot(index), start, end }
    }

    /// Ends the copy of `size` bytes; returns whether it was the last of the group.
    fn leave(&self, slot: usize, size: u64) -> bool {
        rmw::contended(1);
        // ORDERING: AcqRel, the last one sees every copy (rule 4).
        let order = if mutant("c-array: leave without order") { Ordering::Relaxed } else { Ordering::AcqRel };
        self.slots[slot].state.fetch_add(size as i64, order) + size as i64 == DONE
    }

    /// Returns the place of a slot in the release queue.
    pub(super) fn node(&self, slot: usize) -> &Node {
        &self.slots[slot].node
    }

    /// Returns an unused slot to the pool.
    pub(super) fn free(&self, waits: &Waits, slot: usize) {
        // ORDERING: consume slot, pairs with `take`.
        self.slots[slot].state.store(FREE, Ordering::Release);
        waits.wake(&self.slots);
    }
}
