//! One fetch-and-add per record; sessions copy in parallel (ERMIA; InnoDB 8.0's link buffer is similar).

use super::{Ring, RingBuffer};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, rmw};
use foreshore_wal::log_buffer::{Checksummed, Slots};
use std::sync::Arc;

/// The start of no record: the session is not between drawing and publishing.
const IDLE: u64 = u64::MAX;

/// The tail is the only word that sessions share.
///
/// A session announces a lower bound of its position in its slot *before* it draws, and withdraws it after the copy.
/// The leader reads the tail first and then the slots, and cuts at the smallest of them:
///
/// 1. A record below the tail that the leader read has drawn. So its announcement came before the leader's read of the
///    slot: the draw is a Release operation on the tail, and draws form one release sequence.
/// 2. Then the leader finds in that slot the announcement, which bounds the cut. Or it finds `IDLE` or the announcement
///    of a later record, both stored with Release after the copy, so the bytes are visible. Stores to one slot by one
///    session do *not* form a release sequence: a Relaxed announcement of the next record would hide the copy of this
///    one.
/// 3. A session stopped between announcement and draw holds an old bound. The cut therefore never falls below the
///    previous one; that session's draw comes after the tail that the previous cut read.
#[derive(Debug)]
pub struct Faa {
    ring: Ring,
    tail: CachePadded<AtomicU64>,
    /// By slot: a lower bound of the record in progress, or [`IDLE`].
    starts: Box<[CachePadded<AtomicU64>]>,
    slots: Arc<Slots>,
}

impl Faa {
    /// Makes an empty buffer over `ring`.
    pub fn new(ring: Ring, slots: Arc<Slots>) -> Self {
        let tail = CachePadded::new(AtomicU64::new(ring.first()));
        let starts = (0..slots.len()).map(|_| CachePadded::new(AtomicU64::new(IDLE))).collect();
        Self { ring, tail, starts, slots }
    }
}

impl RingBuffer for Faa {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn insert(&self, slot: usize, record: &Checksummed<'_>) -> Lsn {
        let announced = &self.starts[slot];
        // ORDERING: Relaxed, the session's own.
        debug_assert_eq!(
            announced.load(Ordering::Relaxed),
            IDLE,
            "where session {slot} appends a record beside this one"
        );
        // ORDERING: Release on both stores into the slot, rule 2, pairs with `published`.
        let announce = if mutant("faa: relaxed slot") { Ordering::Relaxed } else { Ordering::Release };
        if !mutant("faa: no announcement") {
            // ORDERING: Relaxed load, any earlier tail is a lower bound. Release store, rule 2, pairs with `published`.
            announced.store(self.tail.load(Ordering::Relaxed), announce);
        }
        rmw::contended(1);
        // ORDERING: AcqRel, Release for rule 1; Acquire chains the credits of earlier records to this copy.
        let start = self.tail.fetch_add(record.size() as u64, Ordering::AcqRel);
        // ORDERING: Release, a tighter bound, rule 2.
        announced.store(start, announce);
        // SAFETY: the draw is exclusive.
        let lsn = unsafe { self.ring.fill(start, record) };
        // ORDERING: Release, publishes the copy; pairs with `published`.
        announced.store(IDLE, Ordering::Release);
        lsn
    }

    fn tail(&self) -> u64 {
        // ORDERING: Acquire, what led to the draws read here is visible; pairs with the draw.
        self.tail.load(Ordering::Acquire)
    }

    fn published(&self) -> u64 {
        // ORDERING: Acquire, rule 1; the slots are read after it.
        let tail = self.tail.load(Ordering::Acquire);
        // Slots leased since the tail was read have drawn nothing below it.
        let used = &self.starts[..self.slots.used_len()];
        // ORDERING: Acquire, rule 2; pairs with the stores in `insert`.
        used.iter().map(|start| start.load(Ordering::Acquire)).fold(tail, u64::min)
    }
}
