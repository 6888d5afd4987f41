//! The queue for undo memory.
//!
//! **Protocol:**
//!
//! 1. A session that finds no chunk joins the queue.
//! 2. Only the first session of the queue may start an unused chunk. So sessions that ask later do not take the memory
//!    that becomes free. The others may take donated chunks.
//! 3. Each session counts how often it has begun or ceased to hold memory (see [`Holder`]). The searching session sums
//!    these counts over all others, before and after its search.
//!
//! **Invariant:** if both sums are equal and no other session holds memory, no other has held any during the search.
//! Then the searching session alone holds the memory that it lacks.

use super::{Arena, Lists};
use crate::undo::chunk::Open;
use crate::undo::entry;
use crate::undo::file::BOOKED;
use crate::undo::holder::Holder;
use foreshore_base::Csn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::{EventCount, pause};
use std::cmp::Reverse;
use std::sync::Arc;

/// The state of the queue for one waiting session, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Whether the session is the first in the queue, which takes the memory that becomes free.
    pub(crate) is_first: bool,
    /// Whether the session is the last in the queue.
    pub(crate) is_last: bool,
    /// Whether the first session of the queue is searching for memory, or is about to.
    pub(crate) first_searches: bool,
    /// The result of [`Arena::soonest`].
    pub(crate) soonest: Option<Csn>,
    /// The lock owners of all sessions in the queue.
    pub(crate) waiters: Vec<usize>,
    /// The lock owners of other sessions that hold memory.
    pub(crate) holders: Vec<usize>,
    /// How often all other sessions have begun or ceased to hold memory.
    changes: u64,
}

impl Queued {
    /// Returns whether no other session holds memory or has held some since `before`.
    pub(crate) fn none_has_held_since(&self, before: &Self) -> bool {
        before.holders.is_empty() && (before.changes == self.changes || mutant("undo: holders are counted once"))
    }
}

impl Arena {
    /// Adds a session, and returns its holder.
    pub(in crate::undo) fn enter(&self) -> Arc<Holder> {
        // ORDERING: hint, see `is_short`.
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let holder = Arc::<Holder>::default();
        self.lists.lock().sessions.push(holder.clone());
        holder
    }

    /// Removes a session.
    pub(in crate::undo) fn exit(&self, holder: &Arc<Holder>) {
        // ORDERING: hint, see `is_short`.
        self.sessions.fetch_sub(1, Ordering::Relaxed);
        self.lists.lock().sessions.retain(|other| !Arc::ptr_eq(other, holder));
    }

    /// Donates the chunks on the shelves of all sessions.
    pub(in crate::undo) fn clear_shelves(&self) {
        let sessions = self.lists.lock().sessions.clone();
        let chunks = sessions.iter().flat_map(|session| session.clear_shelf()).flatten();
        let chunks: Vec<Open> = chunks.collect();
        if !chunks.is_empty() {
            pause::point("undo: a chunk is in hand");
            self.donate(chunks.into_iter());
        }
    }

    /// Puts a session at the end of the queue.
    pub(in crate::undo) fn join_queue(&self, me: &Arc<Holder>) {
        let mut lists = self.lists.lock();
        debug_assert!(!lists.queue.iter().any(|other| Arc::ptr_eq(other, me)), "{} waits for undo twice", me.owner());
        lists.turn_due |= lists.queue.is_empty();
        lists.queue.push_back(me.clone());
    }

    /// Takes a session out of the queue. Another session may be the first or the last now.
    pub(in crate::undo) fn leave_queue(&self, me: &Arc<Holder>) {
        self.lists.lock().serve(me);
        self.tell();
    }

    /// Begins a search for space for an entry of `bytes`.
    pub(in crate::undo) fn begin_search(&self, me: &Arc<Holder>, bytes: usize) -> Queued {
        let mut lists = self.lists.lock();
        if lists.is_first(me) {
            (lists.is_looking, lists.turn_due) = (true, false);
        }
        self.queued_in(&lists, me, bytes)
    }

    /// Ends a search in which the first session of the queue found nothing. The other sessions check again whether to
    /// wait.
    pub(in crate::undo) fn end_search(&self) {
        self.lists.lock().is_looking = false;
        self.tell();
    }

    /// Returns the state of the queue for a session that waits for an entry of `bytes`.
    pub(in crate::undo) fn queued(&self, me: &Arc<Holder>, bytes: usize) -> Queued {
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
            is_first: lists.is_first(me),
            is_last: lists.queue.back().is_some_and(|last| Arc::ptr_eq(last, me)),
            first_searches: lists.is_looking || lists.turn_due,
            soonest: self.soonest(lists, bytes),
            waiters: lists.queue.iter().map(|waiter| waiter.owner()).collect(),
            holders,
            changes: sum,
        }
    }

    /// Returns the lowest horizon at which there is space for an entry of `bytes`, though no running transaction ends.
    /// Returns zero if there is space now, and `None` if running transactions hold all memory.
    fn soonest(&self, lists: &Lists, bytes: usize) -> Option<Csn> {
        let words = entry::words(bytes);
        if self.has_space(lists) || lists.donated.iter().any(|open| open.capacity() >= words) {
            return Some(Csn::ZERO);
        }
        let closed = lists.closed.iter().filter_map(|&chunk| self.chunks.needed_up_to(chunk, 0, Csn::ZERO));
        let donated =
            lists.donated.iter().filter_map(|open| self.chunks.needed_up_to(open.chunk, open.entries, open.newest));
        closed.chain(donated).chain(self.soonest_filed(lists)).min()
    }

    /// Returns the lowest horizon at which a chunk in the file can be freed, if freeing such chunks makes space. That
    /// is the case if the file is full, or if freeing all chunks of `filed` lowers the memory that the file's chunks
    /// take.
    fn soonest_filed(&self, lists: &Lists) -> Option<Csn> {
        let (used, most) = (lists.slots.used(), self.spill.as_ref().map_or(0, |spill| spill.chunks));
        let makes_space = used == most || used >= BOOKED && lists.filed.len() > used % BOOKED;
        let filed = lists.filed.peek().filter(|_| makes_space)?;
        let Reverse((newest, _)) = *filed;
        Some(Csn(newest))
    }

    /// Wakes all sessions that wait for memory. A session has returned some, or a condition has changed on which the
    /// waits depend.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    /// Returns the event for which sessions wait when memory is spent.
    pub(crate) fn changed(&self) -> &Arc<EventCount> {
        &self.changed
    }
}

impl Lists {
    /// Takes a session that has got a chunk out of the queue. Called in the critical section that gives it the chunk,
    /// so no other session finds it waiting while it holds memory.
    pub(super) fn serve(&mut self, me: &Arc<Holder>) {
        if self.is_first(me) {
            (self.is_looking, self.turn_due) = (false, true);
        }
        self.queue.retain(|other| !Arc::ptr_eq(other, me));
    }

    /// Returns whether `me` may start an unused chunk.
    pub(super) fn may_start(&self, me: &Arc<Holder>) -> bool {
        self.queue.is_empty() || self.is_first(me) || mutant("undo: memory goes to a session that asks later")
    }

    fn is_first(&self, me: &Arc<Holder>) -> bool {
        self.queue.front().is_some_and(|first| Arc::ptr_eq(first, me))
    }
}
