//! A log buffer with a lane per session and a cut that is closed under dependency. No two sessions write the same word
//! of it, except the commit clock.
//!
//! An LSN is a Lamport stamp. It is greater than the stamps of all that the record depends on, its *dependency*: page
//! LSNs, the last record of the transaction, observed commits. It is greater than the *floor*, which the leader raises
//! with each cut. So independent records of different lanes need no common counter. A leader finds, without stopping a
//! session, a stamp `S` such that all records with LSNs up to `S` have been copied out of the lanes.
//!
//! ```text
//! append (the session that leases the lane)         cut (the leader)
//!  1  copy the payload behind the tail               a  G := greatest stamp seen in clock, floor, lanes
//!  2  seq := last stamp, drawing; light fence        b  floor := G; heavy fence; clock := max(clock, G)
//!  3  m := max(last, dependency, floor)              c  S := G; each lane: v := seq (Acquire);
//!  4  n := m + 1, or drawn from the clock                 drawing: S := min(S, stamp in v); target := tail (Acquire)
//!  5  envelope; tail := end (Release)                d  S := max(S, last S)
//!  6  seq := n (Release)                             e  copy every lane up to its target; the last group says S
//! ```
//!
//! The *window* between 2 and 6 has about a dozen instructions. A session that is stopped outside of it, for example in
//! the copy, delays no thread. A session that is stopped inside holds `S` at its previous stamp. A leader that needs a
//! higher cut then cuts again a little later.
//!
//! **Theorem.** When a cut ends, every record with an LSN up to `S` has been copied by it or an earlier one.
//!
//! *Proof.* Let record `r` of a lane have the LSN `n <= S`, where `S` is that of step c (that of step d is either this
//! or an earlier one, already proved). The leader's load of the lane's `seq` in c reads one of three things.
//! - *A value older than r's step 2.* By the fences one of them sees the other. If c does not see the store of 2, then
//!   3 sees the store of b and reads at least `G`: `n > G >= S`, a contradiction.
//! - *r's step 2*, with the stamp before `r`, less than `n`. Then `S < n`, a contradiction.
//! - *r's step 6 or something later.* It was stored with Release behind r's tail, and so are later steps 2. So the load
//!   of the tail that follows finds `r` below the target, and e copies it. ∎
//!
//! A lane that c does not count is an instance of the first case. Its lease comes before step 2 in the program of its
//! session, so the fences order the lease as they order step 2.
//!
//! If memory is short, sessions share the last lanes, one at a time ([`crate::session_lanes`]). All of these lanes
//! count once a slot without a lane of its own is leased.
//!
//! **The fences** are an [`AsymmetricFence`]. With two equal fences, each append would wait until its copy has left the
//! processor. So while cuts are large an append makes no fence, and the leader asks the system for one in every thread.
//!
//! **Corollary.** LSNs grow along every dependency, so `{LSN <= S}` is closed under dependency, and recovery may stop
//! at `S`. Records above `S` that were copied already are *provisional*. They count when a later `S` covers them. A
//! crash before that drops them, and no acknowledged record depends on them. `S` never falls (step d); otherwise a
//! crash could drop records that an earlier cut has acknowledged.
//!
//! **A cut larger than a group** is resumed. Targets and `S` are kept, and each call fills one group. Only the group
//! that reaches all targets has `S`; the groups before have the last `S`.
//!
//! **Free space.** A session whose lane is full needs no cut. It copies its own lane into a group that has the last
//! `S`, and touches no other lane. So sessions that only append share nothing but the lead, and their bytes stay in the
//! cache of one core. Readers hold provisional records back, so after [`PROVISIONAL`] bytes the next group begins a
//! cut.
//!
//! **Commits** draw from the clock: one fetch-and-add per transaction that writes. So the stamps of commits are unique.
//! Only read-modify-writes change the clock, so a reader of a stamp sees all that happened before it.
//!
//! Related: the GSN of LeanStore's logging, the idle flags of Border-Collie. Unlike those, this buffer writes one log,
//! and one number is the durable LSN.

mod state;

use super::checksummed::{Checksummed, payload_len};
use super::circle::Circle;
use super::contract::{Drained, LogBuffer};
use super::memory::Memory;
use super::staging::Staging;
#[cfg(target_arch = "x86_64")]
use crate::checksum::Instructions;
use crate::checksum::{Crc, Detected};
use crate::format::record_size;
use crate::record::{Record, flags};
use crate::slots::Slots;
use foreshore_base::{Error, Lsn, Result};
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::{MODEL, hint};
use foreshore_sync::{AsymmetricFence, CachePadded, LockRank, Mutex, pause, rmw};
use state::{Cut, Lane};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// How often a leader rereads the word of a lane that is drawing, before it takes the lane's last stamp instead.
const REREADS: usize = if MODEL { 0 } else { 32 };

/// The bytes appended between two cuts, some five hundred short records, from which a system call replaces the fences.
const SPARING: u64 = 64 << 10;

/// The bound of dependencies. It is half of the largest stamp that readers accept; the other half is for further
/// stamps.
const MAX_DEPENDENCY: u64 = crate::format::STAMP_LIMIT / 2;

/// The bytes copied without a cut after which the next group begins one.
const PROVISIONAL: usize = 16 << 20;

/// The log buffer with a lane per session.
#[derive(Debug)]
pub struct Lanes {
    memory: Memory,
    /// Bytes of a lane, a power of two.
    bytes: u64,
    lanes: Box<[CachePadded<Lane>]>,
    /// Lanes that belong to the slots of their numbers. Sessions with higher slots share the others.
    own: usize,
    /// By lane: the position below which all is copied out. Written by the leader.
    drained: Box<[CachePadded<AtomicU64>]>,
    floor: CachePadded<AtomicU64>,
    clock: CachePadded<AtomicU64>,
    fence: AsymmetricFence,
    slots: Arc<Slots>,
    cut: Mutex<Cut>,
}

impl Lanes {
    /// Creates empty lanes of `bytes` each, a power of two. Lanes below the range `shared` belong to slots, and the
    /// last lane is the end of that range. The first LSN is greater than `floor`.
    pub fn new(bytes: usize, shared: Range<usize>, slots: Arc<Slots>, floor: Lsn) -> io::Result<Self> {
        Self::with_fence(bytes, shared, slots, floor, AsymmetricFence::new())
    }

    fn with_fence(
        bytes: usize,
        shared: Range<usize>,
        slots: Arc<Slots>,
        floor: Lsn,
        fence: AsymmetricFence,
    ) -> io::Result<Self> {
        let (own, count) = (shared.start, shared.end);
        let lane = |_| {
            let seq = AtomicU64::new(floor.0 << 1);
            CachePadded::new(Lane { seq, tail: AtomicU64::new(0), admitted: AtomicU64::new(0) })
        };
        Ok(Self {
            memory: Memory::new(bytes * count)?,
            bytes: bytes as u64,
            lanes: (0..count).map(lane).collect(),
            own,
            drained: (0..count).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            floor: CachePadded::new(AtomicU64::new(floor.0)),
            clock: CachePadded::new(AtomicU64::new(floor.0)),
            fence,
            slots,
            cut: Mutex::new(LockRank::Leaf, Cut::default()),
        })
    }

    /// Returns the number of lanes that a session may have used.
    fn used_len(&self) -> usize {
        let used = self.slots.used_len();
        let counts_shared = used > self.own && !mutant("lanes: shared lanes are passed over");
        if counts_shared { self.lanes.len() } else { used.min(self.own) }
    }

    #[inline]
    fn circle(&self, lane: usize) -> Circle<'_> {
        Circle::new(&self.memory, lane * self.bytes as usize, self.bytes)
    }

    /// Does step 4 for a commit: draws a stamp above `m` and above every stamp drawn from the clock before.
    fn draw_commit(&self, m: u64) -> u64 {
        // ORDERING: Relaxed, it only estimates the step; the draw decides.
        let seen = self.clock.load(Ordering::Relaxed);
        let step = (m + 1).saturating_sub(seen).max(1);
        rmw::contended(1);
        // ORDERING: AcqRel, a thread that draws later, or reads the clock, sees what happened before this commit.
        self.clock.fetch_add(step, Ordering::AcqRel) + step
    }

    /// Appends a record, with checksums computed by `how`.
    #[inline(always)]
    fn append_by<C: Crc>(&self, how: C, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn {
        let lane = &self.lanes[slot];
        let (circle, payload) = (self.circle(slot), payload_len(record));
        let size = record_size(payload as usize);
        // ORDERING: Relaxed, the session's own word, handed over with the lease.
        let start = lane.tail.load(Ordering::Relaxed);
        // Before anything is drawn: readers refuse a stamp near the end of its range, and everything behind it.
        assert!(dep.0 < MAX_DEPENDENCY, "no record of this log has the stamp {dep}");
        // SAFETY: the session was admitted for it: the old bytes were drained, and the lane is the session's own.
        let payload_crc = unsafe { circle.put_payload(how, start, size, record.parts) };
        // ORDERING: Relaxed, as above.
        let last = lane.seq.load(Ordering::Relaxed);
        debug_assert!(last & 1 == 0, "two appends into one lane");
        // ORDERING: Release, 2 of the proof: the tail of the record before stays published.
        lane.seq.store(last | 1, Ordering::Release);
        if !mutant("lanes: no fence in the draw") {
            // Between 2 and 3 of the proof; pairs with the heavy side in `begin`.
            self.fence.light();
        }
        // ORDERING: Relaxed, 3 of the proof; the fence orders it behind 2.
        let m = (last >> 1).max(dep.0).max(self.floor.load(Ordering::Relaxed));
        let commit = record.flags & flags::COMMIT != 0;
        let lsn = Lsn(if commit { self.draw_commit(m) } else { m + 1 });
        assert!(lsn.0 > m, "a record draws the stamp {lsn}, and depends on {m}");
        pause::point("wal: draw");
        let record = Checksummed { record: *record, payload, payload_crc };
        // SAFETY: as above.
        unsafe { circle.put_envelope(start, record.envelope(how, lsn)) };
        // ORDERING: Release, 5 of the proof; pairs with the leader's load.
        lane.tail.store(start + size as u64, Ordering::Release);
        // ORDERING: Release, 6 of the proof.
        lane.seq.store(lsn.0 << 1, Ordering::Release);
        circle.prefetch(start + size as u64);
        lsn
    }

    /// Does [`Self::append_by`], compiled for the CRC instructions, so that they are inlined.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "sse4.2,pclmulqdq")]
    fn append_by_instructions(&self, how: Instructions, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn {
        self.append_by(how, slot, record, dep)
    }

    /// Does steps a to d. Fails if the fence of b fails, because `S` is then unknown.
    fn begin(&self, cut: &mut Cut, prev: Lsn) -> Result<()> {
        // ORDERING: Relaxed on all of a, since any stamp will do: S is proved by b and c. Acquire on the clock: a
        // commit drawn from it makes its lane's step 2 visible.
        let clock = self.clock.load(Ordering::Acquire);
        // ORDERING: Relaxed, as above.
        let high = self.lanes[..self.used_len()].iter().map(|lane| lane.seq.load(Ordering::Relaxed) >> 1);
        // ORDERING: Relaxed, only leaders store into the floor, one at a time.
        let g = high.fold(clock.max(self.floor.load(Ordering::Relaxed)), u64::max);
        // ORDERING: Release, pairs with `current`; the fence of b orders it before the loads of c.
        self.floor.store(g, Ordering::Release);
        if !mutant("lanes: no fence in the cut") {
            // b of the proof; pairs with the light side in `append`.
            let fenced = self.fence.heavy(cut.size >= SPARING);
            fenced.map_err(|error| Error::io("use membarrier for", "log", error))?;
        }
        // ORDERING: AcqRel, a read-modify-write like all changes of the clock. It keeps the steps of commits short.
        self.clock.fetch_max(g, Ordering::AcqRel);
        let mut stamp = g;
        cut.targets.clear();
        cut.size = cut.provisional as u64;
        for (index, lane) in self.lanes[..self.used_len()].iter().enumerate() {
            let mut rereads = REREADS;
            // ORDERING: Acquire, c of the proof; the fence orders it behind b, and it pairs with the stores of 2 and 6.
            let mut seq = lane.seq.load(Ordering::Acquire);
            while seq & 1 == 1 && rereads > 0 {
                rereads -= 1;
                // WAIT: window - a session is between 2 and 6.
                hint::spin_loop();
                // ORDERING: as above.
                seq = lane.seq.load(Ordering::Acquire);
            }
            if seq & 1 == 1 && !mutant("lanes: drawing ignored") {
                stamp = stamp.min(seq >> 1);
            }
            // ORDERING: Acquire, the records below are whole; pairs with 5.
            let target = lane.tail.load(Ordering::Acquire);
            cut.size += target - self.drained(index);
            cut.targets.push(target);
        }
        (cut.next, cut.provisional) = (0, 0);
        let floor = if mutant("lanes: cut falls") { Lsn::ZERO } else { prev };
        cut.stamp = Some(Lsn(stamp).max(floor));
        Ok(())
    }

    /// Does step e as far as `staging` has space. Returns whether all is copied.
    fn copy(&self, cut: &mut Cut, staging: &mut Staging) -> bool {
        let rest = cut.next..cut.targets.len();
        staging.expect_extents(rest.filter(|&lane| self.drained(lane) < cut.targets[lane]).count());
        while cut.next < cut.targets.len() {
            if !self.copy_lane(cut.next, cut.targets[cut.next], staging) {
                return false;
            }
            cut.next += 1;
        }
        true
    }

    /// Copies the records of `lane` below `upto`, a position behind a whole record, as far as `staging` has space.
    /// Returns whether all are copied.
    fn copy_lane(&self, lane: usize, upto: u64, staging: &mut Staging) -> bool {
        let from = self.drained(lane);
        // The lane's own session may have copied them already.
        if from >= upto {
            return true;
        }
        let number = u16::try_from(lane).expect("a log has at most 65536 sessions");
        // SAFETY: 5 and c of the proof: records below the target are whole. The session writes there again only after
        // the store below.
        let to = unsafe { self.circle(lane).drain(number, from, upto, staging) };
        // ORDERING: Release, the copy comes before the session's next write there; pairs with `admit`.
        let order = if mutant("lanes: relaxed drained") { Ordering::Relaxed } else { Ordering::Release };
        // ORDERING: as said.
        self.drained[lane].store(to, order);
        assert!(to == upto || staging.data_len() > 0, "a record larger than a group");
        to == upto
    }

    fn drained(&self, lane: usize) -> u64 {
        // ORDERING: Relaxed, only leaders write it, and they hand over through their lock.
        self.drained[lane].load(Ordering::Relaxed)
    }
}

impl LogBuffer for Lanes {
    fn admit(&self, slot: usize, bytes: u64) -> Option<u64> {
        let admitted = &self.lanes[slot].admitted;
        // ORDERING: Acquire, the leader has copied the old bytes; pairs with `copy`.
        let limit = self.drained[slot].load(Ordering::Acquire) + self.bytes;
        // ORDERING: Relaxed, the session's own word, handed over with the lease.
        let free = limit - admitted.load(Ordering::Relaxed);
        if free < bytes {
            return None;
        }
        let granted = bytes.max(self.bytes / 2).min(free);
        // ORDERING: Relaxed, as above.
        admitted.store(limit - free + granted, Ordering::Relaxed);
        Some(granted)
    }

    fn is_short(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        // ORDERING: Relaxed on both, a hint.
        let taken = lane.admitted.load(Ordering::Relaxed) - self.drained[slot].load(Ordering::Relaxed);
        taken > self.bytes / 4
    }

    fn give_back(&self, slot: usize, bytes: u64) -> bool {
        let admitted = &self.lanes[slot].admitted;
        // ORDERING: Relaxed, the session's own word, handed over with the lease.
        admitted.store(admitted.load(Ordering::Relaxed) - bytes, Ordering::Relaxed);
        false
    }

    fn append(&self, slot: usize, record: &Record<'_>, dep: Lsn) -> Lsn {
        #[cfg(target_arch = "x86_64")]
        if let Some(how) = Instructions::get() {
            // SAFETY: the processor has them.
            return unsafe { self.append_by_instructions(how, slot, record, dep) };
        }
        self.append_by(Detected, slot, record, dep)
    }

    fn current(&self) -> Lsn {
        // ORDERING: Acquire, all that happened before the stamps read here is visible; pairs with 6 and the draws.
        let clock = self.clock.load(Ordering::Acquire);
        // ORDERING: as above.
        let high = self.lanes[..self.used_len()].iter().map(|lane| lane.seq.load(Ordering::Acquire) >> 1);
        // ORDERING: as above.
        Lsn(high.fold(clock.max(self.floor.load(Ordering::Acquire)), u64::max))
    }

    fn reaches(&self, lsn: Lsn) -> bool {
        // ORDERING: Relaxed, a check: the caller has drawn the commit from the clock or learned of it since.
        lsn.0 <= self.clock.load(Ordering::Relaxed) || lsn <= self.current()
    }

    fn commit_clock(&self) -> Lsn {
        // ORDERING: Acquire, pairs with the draw: commits up to here, and what happened before them, are visible.
        Lsn(self.clock.load(Ordering::Acquire))
    }

    fn raise_commit_clock(&self, to: Lsn) -> bool {
        assert!(to.0 < MAX_DEPENDENCY, "no commit of this log has the stamp {to}");
        rmw::contended(1);
        // ORDERING: AcqRel, a read-modify-write like all changes of the clock.
        self.clock.fetch_max(to.0, Ordering::AcqRel);
        true
    }

    fn drain(&self, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let mut guard = self.cut.try_lock().expect("one leader at a time");
        let cut = &mut *guard;
        if cut.stamp.is_none() {
            self.begin(cut, prev)?;
        }
        let done = self.copy(cut, staging);
        #[cfg(any(debug_assertions, foreshore_shuttle))]
        staging.verify_above(prev);
        let early = mutant("lanes: rises before its end");
        Ok(match cut.stamp {
            Some(stamp) if done => {
                cut.stamp = None;
                Drained { cut: stamp, more: false }
            }
            stamp => Drained { cut: stamp.filter(|_| early).unwrap_or(prev), more: true },
        })
    }

    fn drain_for(&self, slot: usize, prev: Lsn, staging: &mut Staging) -> Result<Drained> {
        let mut cut = self.cut.try_lock().expect("one leader at a time");
        if cut.stamp.is_some() || cut.provisional >= PROVISIONAL {
            drop(cut);
            return self.drain(prev, staging);
        }
        staging.expect_extents(1);
        // ORDERING: Acquire, the records below are whole; pairs with 5.
        let more = !self.copy_lane(slot, self.lanes[slot].tail.load(Ordering::Acquire), staging);
        cut.provisional += staging.data_len();
        #[cfg(debug_assertions)]
        staging.verify_above(prev);
        Ok(Drained { cut: prev, more })
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests;
