//! Groups in a table, drawn from by one exchange (Laser, sections 3 and 4).
//!
//! Sessions join the current group and get their offset in it by one compare-and-exchange on one word. They copy in
//! parallel and leave the group by one addition. The group is closed when it is full or a leader asks, and may be
//! written once all its members have left. A group is *Available*, *Ready* for members, or, in the paper's word,
//! *Durable*: complete in memory, not yet on disk.
//!
//! ```text
//! append                                       close (a thread that finds a full group, and the leader)
//!  1  draw: {g, o} -> {g, o + size}             a  draw: {g, o} -> {g, o, frozen}
//!  2  copy to base[g] + o                       b  base[g + 1] := base[g] + o     once, by exchange
//!  3  copied[g] += size                         c  draw: {g, o, frozen} -> {g + 1, 0}
//!
//! leader: while g lies before the current group and copied[g] = base[g + 1] - base[g]:  copied[g] := 0; g += 1
//!         publish base[g]
//! ```
//!
//! A thread that meets a frozen word does b and c itself, whatever became of the thread that froze it. So no step
//! waits for another thread. A member stopped in its copy delays only what is published.
//!
//! # What differs from the paper
//!
//! **A count in two steps loses members.** In the paper a member joins by its exchange and *then* adds one to `n`, the
//! number of active members. The group is Durable when `n` is zero and the flag `f`, set after the closing exchange,
//! is up. Between a member's two steps the group can be closed and another member can take `n` to zero: then the group
//! is written without the first one's record. And if all members leave before `f` is set, no thread marks the group.
//! Here the freezing exchange fixes the size of the group, copied bytes are counted up towards it, and the leader
//! compares. So no last member has to notice. The comparison holds only once the last member has left, so no thread
//! touches the group after it. Only the leader resets the count, when it retires the group. A reset as part of
//! opening, which several threads may do, would lose members that left meanwhile.
//!
//! **Waiting for Ready waits for one thread.** In the paper a grouping thread closes groups and then opens the next,
//! and a thread that joins meanwhile waits for it. With fewer processors than threads, that takes as long as the
//! scheduler decides. Even with helpers, for a moment only one thread knows what closes a group, and a group must not
//! be opened before its predecessor. Here the word stays frozen, with all that is needed to open the next group, until
//! that is open. A current group is always Ready, so the paper's `W_a` is the time of the help. No thread spins or
//! parks: the wait option changes nothing here.
//!
//! **Numbers.** The paper's word has 128 bits: group, members, offset. It numbers records. Here an LSN is a position
//! in bytes, and bytes also say whether a group is complete, so members are not counted and 64 bits are enough.
//!
//! **Space.** Sessions hold credit for ring memory before they append; in the paper members wait for the flusher after
//! they have joined. **The timer** that closes groups is a policy of the pipeline: it decides when a leader cuts.
//!
//! # Why it is right
//!
//! *Opening.* A base only grows in its place, so an exchange from the value read before the last check of the frozen
//! word opens the group once. A late thread fails, either at that check or at the exchange. The word moves to a group
//! after its base is stored, so bases are made in order, each from its predecessor's.
//!
//! *Reading a base.* A member reads it after its exchange, and the place is not reused before it has left.
//!
//! *The table never runs out.* Group `k` is closed only when the group that had the place of `k + 1` is retired.
//! Members' records lie undrained in the ring or hold credit of it. Of the groups not retired, those closed as full
//! hold a `limit` each, and those closed for a large record each have one such record. So there are at most
//! `ring / limit` of either. A leader closes a group only while fewer than a quarter of the table are
//! not retired. With `size / 4 + 2 * ring / limit < size`, which the constructor checks, there is always a free place,
//! and no thread waits for one.

mod draw;

use super::{Ring, RingBuffer};
use draw::{Draw, after, distance};
use foreshore_base::Lsn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, rmw};
use foreshore_wal::log_buffer::{Checksummed, MAX_GROUP};

/// The first group's number. Numbers wrap within the first few groups of every log; otherwise no test would see it.
const FIRST: u64 = u64::MAX - 2;

/// A place of the table. All zero before its first use.
#[derive(Debug)]
struct Group {
    /// Position of the group's first record; grows with each use of the place. Changed by exchanges in `open_next`
    /// only.
    base: AtomicU64,
    /// Bytes that members have copied. Members add, with Release; the leader resets.
    copied: AtomicU64,
}

/// The buffer. See the head of this file.
#[derive(Debug)]
pub struct Laser {
    ring: Ring,
    draw: CachePadded<AtomicU64>,
    groups: Box<[CachePadded<Group>]>,
    /// A group of so many bytes is full. A larger record gets its own group if no record comes in between.
    limit: u64,
    /// Number of the oldest group that is not retired. Only the leader uses it.
    oldest: CachePadded<AtomicU64>,
}

impl Laser {
    /// Places of the table of a log.
    pub const GROUPS: usize = 4096;

    /// Returns the bytes that make a group full in a ring of `bytes`: those of the largest group on disk.
    pub fn limit(bytes: usize) -> u64 {
        (bytes as u64 / 16).min(MAX_GROUP as u64)
    }

    /// An empty buffer over `ring` with a table of `groups` places, a power of two, whose groups are full with `limit`
    /// bytes.
    pub fn new(ring: Ring, limit: u64, groups: usize) -> Self {
        assert!(groups.is_power_of_two() && groups >= 2, "a table of {groups}");
        let closed = 2 * (ring.bytes() / limit) + Self::leader_may_close(groups);
        assert!(closed < groups as u64, "{closed} groups may be closed, the table has {groups}");
        let group = |_| CachePadded::new(Group { base: AtomicU64::new(0), copied: AtomicU64::new(0) });
        let laser = Self {
            draw: CachePadded::new(AtomicU64::new(Draw::empty(FIRST).0)),
            groups: (0..groups).map(group).collect(),
            limit,
            oldest: CachePadded::new(AtomicU64::new(Draw::empty(FIRST).group())),
            ring,
        };
        // ORDERING: Relaxed, no other thread knows the buffer yet.
        laser.group(FIRST).base.store(laser.ring.first(), Ordering::Relaxed);
        laser
    }

    /// Returns the limit of unretired groups below which a leader may close a group.
    fn leader_may_close(groups: usize) -> u64 {
        (groups as u64 / 4).max(1)
    }

    #[inline]
    fn group(&self, number: u64) -> &Group {
        &self.groups[number as usize & (self.groups.len() - 1)]
    }

    #[inline]
    fn look(&self) -> Draw {
        // ORDERING: Acquire, what led to the word is visible, the bases up to the current group's too; pairs with
        // `swap`.
        Draw(self.draw.load(Ordering::Acquire))
    }

    /// Changes the word from `seen` to `new`, or returns its current value.
    #[inline]
    fn swap(&self, seen: Draw, new: Draw) -> Result<(), Draw> {
        rmw::contended(1);
        // ORDERING: AcqRel, a reader of the new word sees what led to it: bases, and the credits that the members
        // took. Acquire on failure, as in `look`.
        let swapped = self.draw.compare_exchange(seen.0, new.0, Ordering::AcqRel, Ordering::Acquire);
        swapped.map(drop).map_err(Draw)
    }

    /// Step 1: joins the current group, and returns it and the record's position.
    #[inline]
    fn join(&self, bytes: u64) -> (&Group, u64) {
        let mut alone = bytes > self.limit;
        let mut draw = self.look();
        loop {
            let full = draw.drawn() >= self.limit;
            if draw.is_frozen() || full || (alone && draw.drawn() > 0) {
                // A large record asks once: small ones that always come in between would fill the table.
                alone &= draw.is_frozen() || full;
                draw = self.close(draw);
                continue;
            }
            match self.swap(draw, draw.joined(bytes)) {
                Ok(()) => break,
                Err(seen) => draw = seen,
            }
        }
        let group = self.group(draw.group());
        if mutant("laser: count in two steps") {
            // ORDERING: Relaxed, part of a mutant.
            group.copied.fetch_sub(bytes, Ordering::Relaxed);
        }
        // ORDERING: Relaxed, the exchange has acquired it.
        (group, group.base.load(Ordering::Relaxed) + draw.drawn())
    }

    /// Closes the current group, if the word is still `draw` or frozen, and returns a later word.
    #[cold]
    fn close(&self, draw: Draw) -> Draw {
        let frozen = draw.frozen();
        if draw != frozen {
            // Step a.
            if let Err(seen) = self.swap(draw, frozen) {
                return seen;
            }
        }
        if mutant("laser: open out of order") {
            let _ = self.swap(frozen, frozen.next());
        }
        self.open_next(frozen);
        self.look()
    }

    /// Steps b and c, if the word still is `frozen`.
    fn open_next(&self, frozen: Draw) {
        let (group, next) = (self.group(frozen.group()), self.group(frozen.group() + 1));
        // ORDERING: Acquire on both, so that a base of a later group comes with the word that had left this group, and
        // the check below finds that; pairs with the exchange below.
        let before = next.base.load(Ordering::Acquire);
        let base = group.base.load(Ordering::Acquire) + frozen.drawn();
        // ORDERING: Acquire, as above: a thread that has copied into the next group has found the word there.
        let copied = next.copied.load(Ordering::Acquire);
        let late = self.look() != frozen && !mutant("laser: help without a second look");
        if late && !mutant("laser: open out of order") {
            return;
        }
        // The table never runs out: nothing of an earlier use is left.
        assert!(copied == 0 || late, "the place of the group behind {} is in use", frozen.group());
        if mutant("laser: reset in open") {
            // ORDERING: Relaxed, part of a mutant.
            next.copied.store(0, Ordering::Relaxed);
        }
        if before != base {
            rmw::contended(1);
            // ORDERING: AcqRel, its own base is in before the next one; Acquire on failure, another helper's is.
            match next.base.compare_exchange(before, base, Ordering::AcqRel, Ordering::Acquire) {
                Err(seen) if seen != base => return,
                _ => {}
            }
        }
        // Another helper may have been faster.
        let _ = self.swap(frozen, frozen.next());
    }

    /// Closes the current group for the leader, if it has members; returns a word of it or a later group.
    fn close_current(&self) -> Draw {
        let mut draw = self.look();
        let current = draw.group();
        // ORDERING: Relaxed, the leader's own word.
        let open = distance(self.oldest.load(Ordering::Relaxed), current);
        let may_freeze = open < Self::leader_may_close(self.groups.len());
        // Each pass that changes nothing finds another member.
        while draw.group() == current && (draw.is_frozen() || (may_freeze && draw.drawn() > 0)) {
            draw = self.close(draw);
        }
        draw
    }

    /// Retires complete groups before `current` and returns the position behind them.
    fn retire(&self, current: u64) -> u64 {
        // ORDERING: Relaxed, the leader's own word; leaders hand over through their lock.
        let mut oldest = self.oldest.load(Ordering::Relaxed);
        // ORDERING: Relaxed on all bases here, the word that was read last has acquired those up to `current`.
        let base = |number: u64| self.group(number).base.load(Ordering::Relaxed);
        let mut start = base(oldest);
        while oldest != current {
            let (next, end) = (after(oldest), base(oldest + 1));
            let copied = &self.group(oldest).copied;
            let complete = if mutant("laser: count in two steps") { 0 } else { end - start };
            // ORDERING: Acquire, the members' copies are visible; pairs with step 3 of each, which form one release
            // sequence.
            if copied.load(Ordering::Acquire) != complete {
                break;
            }
            // ORDERING: Relaxed, members of a later group in this place took credit that the leader gives after this.
            copied.store(0, Ordering::Relaxed);
            (oldest, start) = (next, end);
        }
        // ORDERING: Relaxed, as above.
        self.oldest.store(oldest, Ordering::Relaxed);
        start
    }
}

impl RingBuffer for Laser {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn insert(&self, _slot: usize, record: &Checksummed<'_>) -> Lsn {
        let bytes = record.size() as u64;
        let (group, start) = self.join(bytes);
        // SAFETY: the draw is exclusive.
        let lsn = unsafe { self.ring.fill(start, record) };
        rmw::contended(1);
        // ORDERING: Release, publishes the copy; pairs with `retire`.
        let order = if mutant("laser: relaxed completion") { Ordering::Relaxed } else { Ordering::Release };
        group.copied.fetch_add(bytes, order);
        lsn
    }

    fn tail(&self) -> u64 {
        let draw = self.look();
        // ORDERING: Acquire on both, as in `open_next`: a later base comes with a later word.
        let base = self.group(draw.group()).base.load(Ordering::Acquire);
        let now = self.look();
        let current = self.group(now.group()).base.load(Ordering::Acquire);
        // A base that changed belongs to a group that was opened during the call: everything drawn before is below it.
        if now.group() == draw.group() && current == base { base + now.drawn() } else { current }
    }

    fn published(&self) -> u64 {
        // Groups retired now count when the leader checks whether it may close another one.
        self.retire(self.look().group());
        self.retire(self.close_current().group())
    }
}

#[cfg(all(test, not(foreshore_loom)))]
mod tests;
