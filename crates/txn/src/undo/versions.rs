//! Version chains: the older versions of each row.
//!
//! The header of a row points to the undo entry of the row's last holder. That entry contains the row as it was before.
//! It points to the entry of the holder before, or skips that entry if no reader sees the version in it.
//!
//! | operation | by |
//! |---|---|
//! | [`Arena::older`] finds the version that a snapshot sees | readers, without a latch |
//! | [`Arena::clear`] prunes dead versions before a change | writers, with the leaf of the row latched exclusively |
//!
//! **Invariant:** only a writer with the exclusive latch of the row's leaf changes the header or the chain. So a reader
//! that afterwards finds the version of the page unchanged has read a consistent chain.
//!
//! **Invariant:** a dropped entry is dead: no reader sees its version, now or later (see [`View::is_dead`]).

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

/// The number of entries that a reader follows between two checks of the page.
const STRIDE: usize = 64;

/// The least number of changes of a row between two times that its whole chain is pruned.
const CLEAR_EVERY: u32 = 16;

/// The name of a mutant.
const EARLY: &str = "undo: what is passed goes before the change is sure";

/// Whether to check a version again that a reader saw at the last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Now,
    Soon,
}

/// The result of a search for an older version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// The row, with these flags, as this commit left it. Its value has been copied.
    Row(u16, Csn),
    /// There was no row.
    Absent,
    /// The pointers led to no entry: the page has changed meanwhile, or the snapshot was cancelled.
    Lost,
    /// The search ended early, because the page was latched or had changed, or the snapshot was cancelled.
    ///
    /// It says nothing about the row, even if the page validates afterwards: a writer may release its latch without a
    /// change.
    Unfinished,
    /// The search continues at an entry in the spill file. [`Arena::fetch`] runs it from there.
    Spilled(Spot),
}

/// Returns what a snapshot at `at` finds in an entry: the version that it sees, or the entry to read next.
pub(super) fn look(entry: Option<Entry<'_>>, at: Csn, image: &mut Vec<u8>) -> ControlFlow<Older, UndoPtr> {
    let Some(entry) = entry else { return ControlFlow::Break(Older::Lost) };
    let since = entry.since();
    if since > at {
        let next = entry.next();
        return if next == UndoPtr::ABSENT { ControlFlow::Break(Older::Absent) } else { ControlFlow::Continue(next) };
    }
    let Some(flags) = entry.flags() else { return ControlFlow::Break(Older::Absent) };
    image.clear();
    entry.append_image(image);
    ControlFlow::Break(Older::Row(flags, since))
}

/// Returns whether no reader sees the version that commit `from` made and commit `to` replaced.
fn is_dead(view: &View, from: Csn, to: Csn) -> bool {
    view.is_dead(from, to) || mutant("undo: a version that a reader sees is dropped")
}

impl Arena {
    /// Returns the version of a row that a snapshot at `at` sees, and copies its value to `image`. The snapshot does
    /// not see the change that `entry` undoes.
    ///
    /// `holds` returns whether the page that led here is unchanged. It returns false while a writer has the page
    /// latched, and true again if that writer changes nothing.
    pub(crate) fn older(&self, entry: UndoPtr, at: Csn, image: &mut Vec<u8>, holds: impl Fn() -> bool) -> Older {
        if entry == UndoPtr::ABSENT {
            return Older::Absent;
        }
        let mut next = entry;
        // Pointers of a damaged page may form a cycle.
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

    /// Returns whether the entry is only the lock of its row, or its place if it is in the file.
    ///
    /// The entry belongs to the caller's transaction. If it is a change, its LSN was set before the latch of its leaf
    /// was released.
    pub(crate) fn is_lock(&self, entry: UndoPtr) -> Result<bool, Spot> {
        let is_lock = self.entry(entry).is_some_and(|entry| entry.is_lock());
        self.spot(entry).map_or(Ok(is_lock), Err)
    }

    /// Prefetches the header of an entry that will be read soon, if the entry is in memory.
    pub(crate) fn prefetch(&self, entry: UndoPtr) {
        self.prefetch_words(entry, HEADER);
    }

    /// Prunes the version chain of a row: drops entries that no reader needs. So a long-running reader keeps only the
    /// version that it sees, and not all later ones.
    ///
    /// `first` is the entry of the row's last holder, whose commit number is `csn`; both have ended. The result is the
    /// link of the next change to the chain. It is null if no reader needs any of the chain.
    ///
    /// 1. The first entry stays, because the next change may be rolled back. If its version is dead, the next change
    ///    skips it, and the change after that drops it.
    /// 2. Dead entries directly after the first are dropped at once.
    /// 3. The rest of the chain, and what is after a version that a reader saw at the last check, is pruned only now
    ///    and then. The number of changes between two times is the number of entries found there, and at least
    ///    [`CLEAR_EVERY`]. So the cost of a change does not depend on the length of the chain.
    ///
    /// An entry is read only if the commit that made it is above the pinned horizon: its chunk cannot be freed
    /// meanwhile. An entry in the file, or on its way there, does not change, and neither does the chain after it.
    pub(crate) fn clear(&self, first: UndoPtr, csn: Csn, pinned: Csn, view: &View) -> Link {
        let link = Link { since: csn, next: first, ..Link::default() };
        if first == UndoPtr::ABSENT {
            return Link { countdown: CLEAR_EVERY, ..link };
        }
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
        // If this is false, the version may be too new to be judged, which changes soon.
        Link { seen: !is_dead && csn <= view.floor(), countdown, ..link }
    }

    /// Prunes the whole chain after an entry. Returns how many entries the chain has left, with this one.
    fn clear_all_behind(&self, entry: &Entry<'_>, csn: Csn, pinned: Csn, view: &View) -> u32 {
        let mut behind = self.clear_behind(entry, csn, pinned, view, Look::Now);
        let mut count = 1;
        while let Some((entry, csn)) = behind {
            count += 1;
            behind = self.clear_behind(&entry, csn, pinned, view, Look::Now);
        }
        count
    }

    /// Drops the entry that `entry`, made by commit `csn`, skips: no rollback undoes the change of `entry` any more.
    ///
    /// The skipped entry was made no earlier than the commit that `entry` names. If that commit is not above the pinned
    /// horizon, the chunk of the skipped entry may have been freed, and the entry with it.
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

    /// Returns the link of a change to `own`, the entry of an earlier change of the same row by the same transaction.
    /// `own` is dropped no sooner than the entry of this change.
    ///
    /// The countdown is taken over, so a transaction that locks a row and then changes it prunes the chain no more
    /// often. An entry in the file reads as zeros: then the next pruning only comes sooner.
    pub(crate) fn behind_own(&self, own: UndoPtr) -> Link {
        let countdown = self.entry(own).map_or(0, |own| own.countdown());
        Link { since: Csn(u64::MAX), next: own, countdown, ..Link::default() }
    }

    /// Drops the dead entries directly after `kept`, which commit `csn` made. Returns the first entry left, with the
    /// number of the commit that made it. Returns `None` if none is left, or if it is not to be read yet.
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
                // If this is false, the version may be too new to be judged, which changes soon.
                kept.set_seen_behind(until <= view.floor());
                return Some((entry, until));
            }
            // Read before the drop: the memory of the last entry of a chunk may be reused at once.
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

    /// Returns the entry at `pointer`, which commit `csn` made, if its memory is sure to be in place.
    fn reachable(&self, pointer: UndoPtr, csn: Csn, pinned: Csn) -> Option<Entry<'_>> {
        if csn > pinned { self.entry(pointer) } else { None }
    }
}
