//! The queue for undo memory, and which sessions hold some of it.
//!
//! A session that finds no chunk joins the queue. Only the first in the queue may start an unused chunk, so memory that comes free
//! is not taken by sessions that ask later. The others may fill chunks that were left with room.
//!
//! Between two transactions the chunks that a session fills lie on its **shelf**, until the next one enters its first change. A search
//! takes the chunks of all shelves, so a transaction that has begun and changed nothing keeps no memory from others.
//!
//! A session **holds** memory from before it takes a chunk until it has given up all its chunks, or has put them on its shelf.
//! Beginnings and ends of that are counted. If the sum over all other sessions is the same before and after
//! a search, and no session holds in between, then what the search lacks is held by the searching session alone.
//!
//! **Invariant:** a session counts as holding before others can miss the chunk, and stops counting after they can find it.

use super::arena::{Arena, Lists, Open};
use super::entry;
use super::spill::BOOKED;
use foreshore_base::Csn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, AtomicUsize, Ordering};
use foreshore_sync::{CachePadded, EventCount, LockRank, Mutex, pause};
use std::cmp::Reverse;
use std::sync::Arc;

/// The chunks that a session fills: those of entries that go soon and that old readers keep, and the next one.
pub(super) type Shelf = [Option<Open>; 3];

/// What a session shows of its undo memory.
#[derive(Debug)]
pub(super) struct Holder {
    /// How often the session has begun or ceased to hold memory; odd while it holds some.
    changes: CachePadded<AtomicU64>,
    /// The number of its lock owner.
    owner: AtomicUsize,
    /// Its chunks while no transaction has any use for them.
    shelf: Mutex<Shelf>,
}

impl Default for Holder {
    fn default() -> Self {
        let shelf = Mutex::new(LockRank::Leaf, Shelf::default());
        Self { changes: CachePadded::default(), owner: AtomicUsize::default(), shelf }
    }
}

impl Holder {
    /// Puts chunks on the shelf, which is empty. Called by the session, which ceases to hold memory.
    pub(super) fn put_on_shelf(&self, chunks: Shelf) {
        let none = std::mem::replace(&mut *self.shelf.lock(), chunks);
        debug_assert!(
            none.iter().all(Option::is_none),
            "a session takes its chunks from the shelf before it takes others"
        );
    }

    /// Takes the chunks from the shelf, if there are any. Called by the session, which then holds memory.
    pub(super) fn take_from_shelf(&self) -> Option<Shelf> {
        let mut shelf = self.shelf.lock();
        if shelf.iter().all(Option::is_none) {
            return None;
        }
        let chunks = std::mem::take(&mut *shelf);
        if mutant("undo: chunks of the shelf are taken before the session holds them") {
            drop(shelf);
            pause::point("undo: a chunk is in hand");
        }
        // Under the mutex: a search that misses the chunks finds that the session holds them.
        self.set(true);
        Some(chunks)
    }

    /// Takes the chunks from the shelf for other sessions.
    pub(super) fn clear_shelf(&self) -> Shelf {
        std::mem::take(&mut *self.shelf.lock())
    }

    /// Called by the session only.
    pub(super) fn set(&self, holds: bool) {
        // ORDERING: Relaxed, stored by this session.
        let changes = self.changes.load(Ordering::Relaxed);
        if changes.is_multiple_of(2) == holds {
            // ORDERING: Release, pairs with `changes`: one that finds the session without memory finds what it gave up.
            self.changes.store(changes + 1, Ordering::Release);
        }
    }

    fn changes(&self) -> u64 {
        // ORDERING: Acquire, pairs with `set`.
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn set_owner(&self, index: usize) {
        // ORDERING: Relaxed, stored before the session runs its first transaction.
        self.owner.store(index, Ordering::Relaxed);
    }

    fn owner(&self) -> usize {
        // ORDERING: Relaxed, final.
        self.owner.load(Ordering::Relaxed)
    }
}

/// What a session that waits for memory finds, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Whether it is the first in the queue, which takes what comes free.
    pub(crate) is_first: bool,
    /// Whether it joined last.
    pub(crate) is_last: bool,
    /// Whether the first looks for memory, or has something to look at.
    pub(crate) first_looks: bool,
    /// See [`Arena::soonest`].
    pub(crate) soonest: Option<Csn>,
    /// The lock owners of all sessions in the queue.
    pub(crate) waiters: Vec<usize>,
    /// The lock owners of other sessions that hold memory.
    pub(crate) holders: Vec<usize>,
    /// How often all others have begun or ceased to hold memory.
    changes: u64,
}

impl Queued {
    /// Whether no other session holds memory, or has held some since `before`.
    pub(crate) fn none_has_held_since(&self, before: &Self) -> bool {
        before.holders.is_empty() && (before.changes == self.changes || mutant("undo: holders are counted once"))
    }
}

impl Arena {
    /// One session more, and where it shows whether it holds memory.
    pub(super) fn enter(&self) -> Arc<Holder> {
        // ORDERING: hint, see `is_short`.
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let holder = Arc::<Holder>::default();
        self.lists.lock().sessions.push(holder.clone());
        holder
    }

    /// One session less.
    pub(super) fn exit(&self, holder: &Arc<Holder>) {
        // ORDERING: hint, see `is_short`.
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.lists.lock().sessions.retain(|other| !Arc::ptr_eq(other, holder));
    }

    /// Leaves the chunks on the shelves of all sessions to all.
    pub(super) fn clear_shelves(&self) {
        let sessions = self.lists.lock().sessions.clone();
        let chunks = sessions.iter().flat_map(|session| session.clear_shelf()).flatten();
        let chunks: Vec<Open> = chunks.collect();
        if !chunks.is_empty() {
            pause::point("undo: a chunk is in hand");
            self.leave(chunks.into_iter());
        }
    }

    /// Puts a session at the end of the queue.
    pub(super) fn join_queue(&self, me: &Arc<Holder>) {
        let mut lists = self.lists.lock();
        debug_assert!(!lists.queue.iter().any(|other| Arc::ptr_eq(other, me)), "{} waits for undo twice", me.owner());
        lists.turn_due |= lists.queue.is_empty();
        lists.queue.push_back(me.clone());
    }

    /// Takes a session out of the queue. The next one may be the first now, or the last.
    pub(super) fn leave_queue(&self, me: &Arc<Holder>) {
        Self::serve(&mut self.lists.lock(), me);
        self.tell();
    }

    /// Takes a session out of the queue that has a chunk. In one step with that: others do not find it waiting with memory in hand.
    pub(super) fn serve(lists: &mut Lists, me: &Arc<Holder>) {
        if is_first(lists, me) {
            (lists.is_looking, lists.turn_due) = (false, true);
        }
        lists.queue.retain(|other| !Arc::ptr_eq(other, me));
    }

    /// Begins a look for room for an entry of `bytes`.
    pub(super) fn begin_look(&self, me: &Arc<Holder>, bytes: usize) -> Queued {
        let mut lists = self.lists.lock();
        if is_first(&lists, me) {
            (lists.is_looking, lists.turn_due) = (true, false);
        }
        self.queued_in(&lists, me, bytes)
    }

    /// The first in the queue has found nothing. The others look again whether to wait.
    pub(super) fn end_look(&self) {
        self.lists.lock().is_looking = false;
        self.tell();
    }

    /// What a session that waits for an entry of `bytes` finds.
    pub(super) fn queued(&self, me: &Arc<Holder>, bytes: usize) -> Queued {
        self.queued_in(&self.lists.lock(), me, bytes)
    }

    fn queued_in(&self, lists: &Lists, me: &Arc<Holder>, bytes: usize) -> Queued {
        let (mut holders, mut sum) = (Vec::new(), 0);
        for other in lists.sessions.iter().filter(|&other| !Arc::ptr_eq(other, me)) {
            let changes = other.changes();
            sum += changes;
            if !changes.is_multiple_of(2) {
                holders.push(other.owner());
            }
            pause::point("undo: counted a session");
        }
        Queued {
            is_first: is_first(lists, me),
            is_last: lists.queue.back().is_some_and(|last| Arc::ptr_eq(last, me)),
            first_looks: lists.is_looking || lists.turn_due,
            soonest: self.soonest(lists, bytes),
            waiters: lists.queue.iter().map(|waiter| waiter.owner()).collect(),
            holders,
            changes: sum,
        }
    }

    /// The lowest horizon at which there is room for an entry of `bytes` without help of running transactions; zero if there is some
    /// as it is, `None` if running transactions hold all memory.
    fn soonest(&self, lists: &Lists, bytes: usize) -> Option<Csn> {
        let words = entry::words(bytes);
        if self.has_room(lists) || lists.partial.iter().any(|open| open.room() >= words) {
            return Some(Csn::ZERO);
        }
        let closed = lists.closed.iter().filter_map(|&chunk| self.goes_at(chunk, 0, Csn::ZERO));
        let partial = lists.partial.iter().filter_map(|open| self.goes_at(open.chunk, open.entries, open.newest));
        closed.chain(partial).chain(self.soonest_away(lists)).min()
    }

    /// The lowest horizon of the chunks in the file. They take a part of the memory too, and places that others may have; fewer than
    /// that make no room.
    fn soonest_away(&self, lists: &Lists) -> Option<Csn> {
        let (used, most) = (lists.slots.used(), self.spill.as_ref().map_or(0, |spill| spill.chunks));
        let makes_room = used == most || used >= BOOKED && lists.away.len() > used % BOOKED;
        let away = lists.away.peek().filter(|_| makes_room)?;
        let Reverse((newest, _)) = *away;
        Some(Csn(newest))
    }

    /// Wakes all that wait for memory: a session has given some up, or something has changed that decides whether they may wait.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    /// Where sessions wait for memory.
    pub(crate) fn changed(&self) -> &Arc<EventCount> {
        &self.changed
    }

    /// Whether `me` may start an unused chunk.
    pub(super) fn may_start(lists: &Lists, me: &Arc<Holder>) -> bool {
        lists.queue.is_empty() || is_first(lists, me) || mutant("undo: memory goes to a session that asks later")
    }
}

fn is_first(lists: &Lists, me: &Arc<Holder>) -> bool {
    lists.queue.front().is_some_and(|first| Arc::ptr_eq(first, me))
}
