//! What to hope for where there is no room for undo.
//!
//! Whether chunks come back depends on who holds them. A session is **busy** while it holds one for an operation, while it takes
//! one from an idle session, and from the beginning of its transaction's end until its lease is idle; then it gives up what it
//! holds. It says so before, or under the mutex under which it takes the chunk, and takes that back when it has given it up. To be
//! busy and to be so no longer are counted. So who counts, looks through the idle sessions and all chunks, and counts the same
//! again, with nobody busy, knows that those who hold chunks keep them for as long as their transactions run: so it was at one
//! moment, for what is neither idle nor on a list nobody gave up meanwhile.
//!
//! Who looks for room is not busy: he gives up all that he has before, so that those who do wait for none that waits for them.

use super::arena::{Arena, Lists};
use super::entry;
use super::spill::BOOKED;
use foreshore_base::Csn;
use foreshore_sync::model::mutant;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::{CachePadded, pause};
use std::cmp::Reverse;
use std::time::Duration;

/// How long to wait before another look where somebody was busy and nobody is: those who look all the time keep the mutex from
/// those who give up chunks.
const BRIEFLY: Duration = Duration::from_millis(1);

/// How often a session has become busy or ceased to be; odd while it is.
#[derive(Debug)]
pub(super) struct Busy(CachePadded<AtomicU64>);

impl Default for Busy {
    fn default() -> Self {
        Self(CachePadded::new(AtomicU64::new(0)))
    }
}

impl Busy {
    /// By the session, in the order that the head of this file tells.
    pub(super) fn set(&self, is_busy: bool) {
        // ORDERING: Relaxed, stored by this session.
        let changes = self.0.load(Ordering::Relaxed);
        if changes.is_multiple_of(2) == is_busy {
            // ORDERING: Release, pairs with `calm`: who finds it idle finds what it gave up.
            self.0.store(changes + 1, Ordering::Release);
        }
    }

    /// By the session.
    pub(super) fn get(&self) -> bool {
        // ORDERING: Relaxed, stored by this session.
        !self.0.load(Ordering::Relaxed).is_multiple_of(2)
    }
}

/// Nobody is busy. The same number again: nobody was in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calm(u64);

/// What there is to hope for where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// There is room from this horizon on; from zero on if there is some as it is.
    From(Csn),
    /// Somebody is about to give up what he holds.
    Soon,
    /// Transactions have all of it, and keep it while they run.
    Never,
}

impl Arena {
    /// Whether nobody is busy.
    pub(crate) fn calm(&self) -> Option<Calm> {
        calm(&self.lists.lock())
    }

    /// What to hope for who has no room for an entry of `bytes`: the lowest horizon at which there is some is that of the chunk that
    /// goes first of those that nobody holds. `before`: as it was before the caller looked through the idle sessions.
    pub(crate) fn outlook(&self, bytes: usize, before: Option<Calm>) -> Outlook {
        let (lists, words) = (self.lists.lock(), entry::words(bytes));
        if self.has_room(&lists) || lists.partial.iter().any(|open| open.room() >= words) {
            return Outlook::From(Csn::ZERO);
        }
        let closed = lists.closed.iter().filter_map(|&chunk| self.goes_at(chunk, 0, Csn::ZERO));
        let partial = lists.partial.iter().filter_map(|open| self.goes_at(open.chunk, open.entries, open.newest));
        // Those in the file take a part of the memory too, and places that others may have; fewer than that make no room.
        let (used, most) = (lists.slots.used(), self.spill.as_ref().map_or(0, |spill| spill.chunks));
        let makes_room = |_: &&_| used == most || used >= BOOKED && lists.away.len() > used % BOOKED;
        let away = lists.away.peek().filter(makes_room).map(|&Reverse((newest, _))| Csn(newest));
        let soonest = closed.chain(partial).chain(away).min();
        pause::point("undo: looked at the chunks");
        let before = if mutant("undo: who is busy is counted after the look") { calm(&lists) } else { before };
        let stays = before.is_some() && (mutant("undo: who is busy is counted once") || calm(&lists) == before);
        match soonest {
            Some(horizon) => Outlook::From(horizon),
            None if stays || mutant("undo: nobody who is busy is waited for") => Outlook::Never,
            None => Outlook::Soon,
        }
    }

    /// Somebody is not busy any more, and others may wait for that.
    pub(crate) fn tell(&self) {
        self.left.notify_all();
    }

    /// Waits until somebody has given up what he held, while there is nothing but that to hope for an entry of `bytes`, and no longer
    /// than `most`. What has ended where memory had not been short when it ended was given up without a word.
    pub(crate) fn wait_for_others(&self, bytes: usize, most: Duration) {
        let key = self.left.prepare();
        // If nobody is busy any more, there may be nobody to tell.
        let most = if self.calm().is_none() { most } else { most.min(BRIEFLY) };
        if self.outlook(bytes, None) == Outlook::Soon {
            // WAIT: park - until an operation or a transaction is over.
            self.left.wait(key, Some(most));
        } else {
            self.left.cancel(key);
        }
    }
}

fn calm(lists: &Lists) -> Option<Calm> {
    // ORDERING: Acquire, pairs with `Busy::set`; and what is looked at after it is looked at later.
    let changes = lists.busy.iter().map(|busy| busy.0.load(Ordering::Acquire));
    let mut changes = changes.inspect(|_| pause::point("undo: counted a session"));
    changes.try_fold(0, |sum, changes| changes.is_multiple_of(2).then_some(sum + changes)).map(Calm)
}
