//! The queue for undo memory.
//!
//! A session that finds no chunk joins the queue. Only the first in the queue may start an unused chunk, so memory that
//! comes free is not taken by sessions that ask later. The others may take chunks that were donated.
//!
//! Sessions that hold memory are counted (see [`Holder`]). Where the sum over all other sessions is the same before and
//! after a search, and none holds memory, the searching session alone holds what the search lacks.

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

/// What a session that waits for memory finds, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    /// Whether it is the first in the queue, which takes what comes free.
    pub(crate) is_first: bool,
    /// Whether it joined last.
    pub(crate) is_last: bool,
    /// Whether the first looks for memory, or has something to look at.
    pub(crate) first_looks: bool,
    /// What [`Arena::soonest`] returns.
    pub(crate) soonest: Option<Csn>,
    /// The lock owners of all sessions in the queue.
    pub(crate) waiters: Vec<usize>,
    /// The lock owners of other sessions that hold memory.
    pub(crate) holders: Vec<usize>,
    /// How often all others have begun or ceased to hold memory.
    changes: u64,
}

impl Queued {
    /// Returns whether no other session holds memory, or has held some since `before`.
    pub(crate) fn none_has_held_since(&self, before: &Self) -> bool {
        before.holders.is_empty() && (before.changes == self.changes || mutant("undo: holders are counted once"))
    }
}

impl Arena {
    /// One session more, and where it shows whether it holds memory.
    pub(in crate::undo) fn enter(&self) -> Arc<Holder> {
        // ORDERING: hint, see `is_short`.
        self.sessions.fetch_add(1, Ordering::Relaxed);
        let holder = Arc::<Holder>::default();
        self.lists.lock().sessions.push(holder.clone());
        holder
    }

    /// One session less.
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

    /// Takes a session out of the queue. The next one may be the first now, or the last.
    pub(in crate::undo) fn leave_queue(&self, me: &Arc<Holder>) {
        self.lists.lock().serve(me);
        self.tell();
    }

    /// Begins a look for space for an entry of `bytes`.
    pub(in crate::undo) fn begin_look(&self, me: &Arc<Holder>, bytes: usize) -> Queued {
        let mut lists = self.lists.lock();
        if lists.is_first(me) {
            (lists.is_looking, lists.turn_due) = (true, false);
        }
        self.queued_in(&lists, me, bytes)
    }

    /// The first in the queue has found nothing. The others look again whether to wait.
    pub(in crate::undo) fn end_look(&self) {
        self.lists.lock().is_looking = false;
        self.tell();
    }

    /// Returns what a session that waits for an entry of `bytes` finds.
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
            first_looks: lists.is_looking || lists.turn_due,
            soonest: self.soonest(lists, bytes),
            waiters: lists.queue.iter().map(|waiter| waiter.owner()).collect(),
            holders,
            changes: sum,
        }
    }

    /// Returns the lowest horizon at which there is space for an entry of `bytes` without help of running transactions.
    /// Zero if there is some as it is, `None` if running transactions hold all memory.
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

    /// The lowest horizon of the chunks in the file. They take a part of the memory too, and places that others may
    /// have; fewer than that make no space.
    fn soonest_filed(&self, lists: &Lists) -> Option<Csn> {
        let (used, most) = (lists.slots.used(), self.spill.as_ref().map_or(0, |spill| spill.chunks));
        let makes_space = used == most || used >= BOOKED && lists.filed.len() > used % BOOKED;
        let filed = lists.filed.peek().filter(|_| makes_space)?;
        let Reverse((newest, _)) = *filed;
        Some(Csn(newest))
    }

    /// Wakes all that wait for memory: a session has given some up, or something has changed that decides whether they
    /// may wait.
    pub(crate) fn tell(&self) {
        self.changed.notify_all();
    }

    /// Returns where sessions wait for memory.
    pub(crate) fn changed(&self) -> &Arc<EventCount> {
        &self.changed
    }
}

impl Lists {
    /// Takes a session out of the queue that has a chunk. In one step with that: others do not find it waiting with
    /// memory in hand.
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
