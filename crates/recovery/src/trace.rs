//! What the analysis keeps of the changes of one transaction: their stretches of the log, and which were undone.
//!
//! **Memory** does not grow with the number of changes:
//!
//! - Stretches are kept as at most [`MAX_SPANS`] spans. One more joins the two closest; undo then reads the part
//!   between them in vain.
//! - Undone changes are kept as intervals of LSNs. A rollback goes from the newest change to the oldest, so a
//!   compensation says that everything newer has been undone, too. Between two intervals a change remains. So a full
//!   rollback ends with one interval, and so does a transaction that rolls back to one savepoint again and again.
//! - A change that a rollback skipped remains, though older ones were undone, until a compensation names it. These are
//!   kept one by one. They are few, or else too many to be parked: a parked rollback has each of them in memory.
//! - If the changes of a rollback were copied forward, the trace is that of the last complete set of copies, and says
//!   which records those are. A change keeps its LSN.
//!
//! [`Trace::left`] counts the changes that must be found when the log is read again, so a mismatch with the log is
//! noticed.

use crate::stretch::StretchNo;
use foreshore_base::Lsn;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Most spans of stretches that are kept of a transaction.
const MAX_SPANS: usize = 32;

/// A range of LSNs in which no change remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gone {
    /// The first change after the range before this one.
    before: Lsn,
    from: Lsn,
    /// The end, which does not belong to it.
    to: Lsn,
}

/// The changes of a transaction, as the log has them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// First and last stretch of each, ascending, with stretches between them.
    spans: Vec<(StretchNo, StretchNo)>,
    /// Ascending and disjoint.
    taken_back: Vec<Gone>,
    /// Skipped changes, which remain in spite of that.
    passed: BTreeSet<Lsn>,
    /// The first change; zero before it.
    first: Lsn,
    /// The first change since the last compensation; zero if there is none.
    fresh: Lsn,
    /// Changes met.
    changes: u64,
    /// Compensations met.
    compensations: u64,
    /// LSNs of the first and the last record of its copies; `None` if it describes the changes' own records.
    copies: Option<(Lsn, Lsn)>,
}

impl Trace {
    /// Notes a change, newer than all before.
    pub(crate) fn add(&mut self, lsn: Lsn, stretch: StretchNo) {
        for place in [&mut self.first, &mut self.fresh] {
            if *place == Lsn::ZERO {
                *place = lsn;
            }
        }
        self.changes += 1;
        match self.spans.last_mut() {
            Some((_, last)) if *last + 1 >= stretch => *last = stretch,
            _ => self.spans.push((stretch, stretch)),
        }
        if self.spans.len() > MAX_SPANS {
            let gap = |at: &usize| self.spans[at + 1].0 - self.spans[*at].1;
            let closest = (0..MAX_SPANS).min_by_key(gap).expect("there are spans");
            self.spans[closest].1 = self.spans.remove(closest + 1).1;
        }
        assert!(self.spans.len() <= MAX_SPANS, "{} spans of one transaction", self.spans.len());
        debug_assert!(
            self.spans.is_sorted_by(|(_, last), (first, _)| last < first),
            "the spans of a transaction overlap: {:?}",
            self.spans
        );
    }

    /// Returns the same for changes that are copies, in records from `first` to `last`.
    pub(crate) fn copied(self, first: Lsn, last: Lsn) -> Self {
        Self { copies: Some((first, last)), ..self }
    }

    /// Returns whether the changes in the record at `lsn`, which are copies or not, are those that the trace
    /// describes.
    pub(crate) fn is_about(&self, lsn: Lsn, are_copies: bool) -> bool {
        self.copies.map_or(!are_copies, |(first, last)| are_copies && first <= lsn && lsn <= last)
    }

    /// Notes a compensation at `lsn` that undoes the change at `change`. Returns false if no rollback does so: there
    /// is no such change, or a newer one remains.
    pub(crate) fn mark_undone(&mut self, change: Lsn, lsn: Lsn) -> bool {
        self.compensations += 1;
        self.compensations <= self.changes && (self.passed.remove(&change) || self.go_past(change, lsn))
    }

    /// Notes a record at `lsn` that says that the rollback skipped `change`. Returns false as
    /// [`mark_undone`](Self::mark_undone) does.
    pub(crate) fn pass(&mut self, change: Lsn, lsn: Lsn) -> bool {
        self.go_past(change, lsn) && self.passed.insert(change)
    }

    /// Returns whether a rollback has skipped the change at `lsn`.
    pub(crate) fn is_passed(&self, lsn: Lsn) -> bool {
        self.passed.contains(&lsn)
    }

    /// Notes that a rollback continues behind `change`, by a record at `lsn`.
    fn go_past(&mut self, change: Lsn, lsn: Lsn) -> bool {
        let is_there = Lsn::ZERO < self.first && self.first <= change && change < lsn;
        if !is_there || (self.fresh != Lsn::ZERO && change < self.fresh) {
            return false;
        }
        // Everything newer has been undone.
        let mut before = self.fresh;
        while let Some(newer) = self.taken_back.pop_if(|newer| newer.from >= change) {
            before = newer.before;
        }
        match self.taken_back.last_mut() {
            Some(older) if older.to > change => return false,
            Some(older) if before == change => older.to = lsn,
            _ => self.taken_back.push(Gone { before, from: change, to: lsn }),
        }
        debug_assert!(
            self.taken_back.is_sorted_by(|older, newer| older.from < older.to && older.to <= newer.from),
            "ranges that a rollback went over overlap: {:?}",
            self.taken_back
        );
        self.fresh = Lsn::ZERO;
        true
    }

    /// Returns whether the change at `lsn` remains.
    pub(crate) fn stands(&self, lsn: Lsn) -> bool {
        let after = self.taken_back.partition_point(|gone| gone.from <= lsn);
        after.checked_sub(1).is_none_or(|i| self.taken_back[i].to <= lsn) || self.is_passed(lsn)
    }

    /// Returns how many changes remain.
    pub(crate) const fn left(&self) -> u64 {
        self.changes - self.compensations
    }

    /// Returns whether `stretch` may have changes of the transaction.
    pub(crate) fn is_in(&self, stretch: StretchNo) -> bool {
        let after = self.spans.partition_point(|&(first, _)| first <= stretch);
        after.checked_sub(1).is_some_and(|i| stretch <= self.spans[i].1)
    }

    /// Returns the stretches that may have changes of it, in runs, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = RangeInclusive<StretchNo>> {
        self.spans.iter().map(|&(first, last)| first..=last)
    }
}

#[cfg(test)]
mod tests;
