//! Older versions of a row, one behind the other.
//!
//! The header of a row leads to the entry of its last holder, which has the row as it was before. That entry leads to
//! the entry of the holder before, or past it if no reader sees the version in it. Only a writer that has the leaf of
//! the row latched exclusively changes the header or the chain. So a reader that finds the version of the page
//! unchanged afterwards has read a whole chain.

use super::arena::Arena;
use super::change::Link;
use super::entry::{Entry, HEADER};
use super::pointer::{Spot, UndoPtr};
use crate::visibility::View;
use foreshore_base::Csn;
use foreshore_sync::model::mutant;
use foreshore_sync::pause;
use foreshore_sync::primitive::thread::yield_now;
use std::ops::ControlFlow;

/// Entries that are followed between two looks at whether that still makes sense.
const STRIDE: usize = 64;

/// Changes of a row, at least, between two times that the way behind it is cleared.
const CLEAR_EVERY: u32 = 16;

/// A mutant.
const EARLY: &str = "undo: what is passed goes before the change is sure";

/// When to look again at what a reader saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Now,
    Soon,
}

/// What a reader finds behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// The row with these flags, as the commit left it; its value has been copied.
    Row(u16, Csn),
    /// No row.
    Absent,
    /// Nothing that makes sense: the page has changed meanwhile, or the snapshot was cancelled.
    Lost,
    /// The search ended early, because the page was latched or had changed, or the snapshot was cancelled. The search
    /// says nothing about the row, even if the page validates afterwards: a writer may release its latch without a
    /// change.
    Unfinished,
    /// It is to be asked of [`Arena::fetch`] from an entry on that is in the file.
    Spilled(Spot),
}

/// Returns what a snapshot at `at` finds in an entry: what it sees, or where to look next.
pub(super) fn look(entry: Option<Entry<'_>>, at: Csn, image: &mut Vec<u8>) -> ControlFlow<Older, UndoPtr> {
    let Some(entry) = entry else { return ControlFlow::Break(Older::Lost) };
    let since = entry.since();
    if since > at {
        return ControlFlow::Continue(entry.next());
    }
    let Some(flags) = entry.flags() else { return ControlFlow::Break(Older::Absent) };
    image.clear();
    entry.append_image(image);
    ControlFlow::Break(Older::Row(flags, since))
}

/// Returns whether no reader sees the version of commit `from` that commit `to` has replaced.
fn is_dead(view: &View, from: Csn, to: Csn) -> bool {
    view.is_dead(from, to) || mutant("undo: a version that a reader sees is dropped")
}

impl Arena {
    /// The version of a row that a snapshot at `at` sees, which does not see the change that `entry` undoes. Its value
    /// goes to `image`. `holds` tells whether the page that led here is as it was. It is false while a writer has the
    /// page latched, and true again if that writer changes nothing.
    pub(crate) fn older(&self, entry: UndoPtr, at: Csn, image: &mut Vec<u8>, holds: impl Fn() -> bool) -> Older {
        let mut next = entry;
        // A damaged page may lead into a circle.
        for step in 1..=self.limit_bytes() / 8 {
            let early = mutant("undo: a reader looks only before it reads").then(|| self.spot(next));
            early.iter().for_each(|_| yield_now());
            let look = look(self.entry(next), at, image);
            if let Some(spot) = early.unwrap_or_else(|| self.spot(next)) {
                return Older::Spilled(spot);
            }
            match look {
                ControlFlow::Break(older) => return older,
                ControlFlow::Continue(behind) => next = behind,
            }
            if step % STRIDE == 0 {
                pause::point("undo: about to look at the page again");
                if !holds() {
                    pause::point("undo: a search is given up");
                    return Older::Unfinished;
                }
            }
        }
        Older::Lost
    }

    /// Returns whether the entry is only the lock of its row; where it is, if it is in the file. For one of the
    /// caller's own transaction: a change of it has an LSN from before the latch of its leaf was free.
    pub(crate) fn is_lock(&self, entry: UndoPtr) -> Result<bool, Spot> {
        let is_lock = self.entry(entry).is_some_and(|entry| entry.is_lock());
        self.spot(entry).map_or(Ok(is_lock), Err)
    }

    /// Asks for the memory of an entry whose header will be looked at soon, if it is where the pointer says.
    pub(crate) fn prefetch(&self, entry: UndoPtr) {
        self.prefetch_words(entry, HEADER);
    }

    /// Clears the way behind a row of entries that no reader needs. So a reader that stays long keeps the version that
    /// it sees and not all that came after. `first` is the entry of the row's last holder, whose commit number is
    /// `csn`; both have ended. Returns how the entry of the next change leads there: nowhere, if no reader needs any of
    /// it.
    ///
    /// The first entry stays, as the next change may be rolled back. If the version in it is dead the next change leads
    /// past it, and the change after that drops it, without a look at it. What else is dead directly behind goes at
    /// once. Further behind, and behind what a reader saw the last time, dead ones are looked for only once in so many
    /// changes as entries were found there. So a change costs the same however many there are.
    ///
    /// Entries are looked at if the horizon that the caller has pinned is below the commit that made them. What is in
    /// the file, or on its way there, stays as it is, with all behind it.
    pub(crate) fn clear(&self, first: UndoPtr, csn: Csn, pinned: Csn, view: &View) -> Link {
        let link = Link { since: csn, next: first, ..Link::default() };
        if csn > pinned && self.is_leaving(first) {
            return Link { countdown: CLEAR_EVERY, ..link };
        }
        let Some(entry) = self.reachable(first, csn, pinned) else { return Link { next: UndoPtr::NULL, ..link } };
        self.drop_passed(&entry, csn, pinned);
        let countdown = if entry.countdown() > 1 {
            self.clear_behind(&entry, csn, pinned, view, Look::Soon);
            entry.countdown() - 1
        } else {
            self.clear_all_behind(&entry, csn, pinned, view).max(CLEAR_EVERY)
        };
        let until = entry.since().min(csn);
        let is_dead = is_dead(view, entry.since(), csn);
        if is_dead && until > pinned {
            if mutant(EARLY) {
                self.drop_entry(first);
            }
            return Link {
                since: until,
                next: entry.next(),
                passed: first,
                seen: entry.is_seen_behind(),
                countdown,
                ..link
            };
        }
        // Otherwise it is too new to be judged, which passes soon.
        Link { seen: !is_dead && csn <= view.floor(), countdown, ..link }
    }

    /// Clears all of the way behind an entry. Returns how many entries are there, with this one.
    fn clear_all_behind(&self, entry: &Entry<'_>, csn: Csn, pinned: Csn, view: &View) -> u32 {
        let mut behind = self.clear_behind(entry, csn, pinned, view, Look::Now);
        let mut count = 1;
        while let Some((entry, csn)) = behind {
            count += 1;
            behind = self.clear_behind(&entry, csn, pinned, view, Look::Now);
        }
        count
    }

    /// Drops the entry that `entry`, made by commit `csn`, leads past: no rollback undoes that change any more.
    ///
    /// What is led past was made no earlier than the commit that `entry` names. Where that is not above what is pinned
    /// its chunk may have gone, and it with that.
    fn drop_passed(&self, entry: &Entry<'_>, csn: Csn, pinned: Csn) {
        let passed = entry.passed();
        if passed == UndoPtr::NULL {
            return;
        }
        if !mutant("undo: what is passed goes again and again") {
            entry.forget_passed();
        }
        if entry.since().min(csn) > pinned || mutant("undo: what is passed goes without a look at the pin") {
            if !mutant(EARLY) {
                self.drop_entry(passed);
            }
            self.count_pruned();
        }
    }

    /// How a change leads to `own`, the entry of a change before it of the same row and transaction, which goes no
    /// sooner than this one. A transaction that locks a row first and changes it then has the way behind it cleared no
    /// more often. One that is in the file reads as zeros, which only lets a writer look sooner.
    pub(crate) fn behind_own(&self, own: UndoPtr) -> Link {
        let countdown = self.entry(own).map_or(0, |own| own.countdown());
        Link { since: Csn(u64::MAX), next: own, countdown, ..Link::default() }
    }

    /// Drops the entries directly behind `kept`, made by commit `csn`, that no reader needs, and returns the first one
    /// that is left, with its commit number. `None` if there is none, or it is not to be looked at yet.
    fn clear_behind(
        &self,
        kept: &Entry<'_>,
        csn: Csn,
        pinned: Csn,
        view: &View,
        look: Look,
    ) -> Option<(Entry<'_>, Csn)> {
        loop {
            if look == Look::Soon && kept.is_seen_behind() {
                return None;
            }
            let until = kept.since().min(csn);
            pause::point("undo: about to look behind an entry");
            if until > pinned && self.is_leaving(kept.next()) {
                kept.set_seen_behind(true);
                return None;
            }
            let entry = self.reachable(kept.next(), until, pinned)?;
            self.drop_passed(&entry, until, pinned);
            if !is_dead(view, entry.since(), until) {
                // As above.
                kept.set_seen_behind(until <= view.floor());
                return Some((entry, until));
            }
            // Read before it is dropped: the memory of the last entry of a chunk is used again at once.
            let dead = kept.next();
            let too_early = mutant("undo: an entry is dropped before it is read");
            if too_early {
                self.drop_entry(dead);
                yield_now();
            }
            kept.skip(&entry);
            if !too_early {
                self.drop_entry(dead);
            }
            self.count_pruned();
        }
    }

    /// The entry at `pointer`, made by commit `csn`, if its memory is sure to be there.
    fn reachable(&self, pointer: UndoPtr, csn: Csn, pinned: Csn) -> Option<Entry<'_>> {
        if csn > pinned { self.entry(pointer) } else { None }
    }
}
