//! The commits of one session that were requested from the flusher.

use foreshore_base::Lsn;
use foreshore_sync::Nanos;
use std::collections::VecDeque;

/// Commits that are not known to be durable, ascending, with the time of their request if waits are measured.
#[derive(Debug, Default)]
pub(super) struct Commits(VecDeque<(Lsn, Option<Nanos>)>);

impl Commits {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the commit at `lsn`, unless the list has a later one.
    #[inline]
    pub(super) fn add(&mut self, lsn: Lsn, asked: Option<Nanos>) {
        if self.0.back().is_none_or(|&(last, _)| last < lsn) {
            self.0.push_back((lsn, asked));
        }
    }

    /// Removes the commits up to `durable`, and calls `count` for those with a time.
    #[inline]
    pub(super) fn remove_upto(&mut self, durable: Lsn, count: impl Fn(Lsn, Nanos)) {
        while let Some(&(lsn, asked)) = self.0.front().filter(|(lsn, _)| *lsn <= durable) {
            asked.into_iter().for_each(|asked| count(lsn, asked));
            self.0.pop_front();
        }
    }

    /// Returns the commit that must become durable so that fewer than `most` are left; `None` if there are fewer
    /// already.
    pub(super) fn oldest_of(&self, most: usize) -> Option<Lsn> {
        self.0.len().checked_sub(most).and_then(|index| self.0.get(index)).map(|&(lsn, _)| lsn)
    }
}
