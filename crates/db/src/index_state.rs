//! What is known of the indexes of a table without a lock.
//!
//! A table that is open for writes has to keep all indexes that the table has. The set of indexes changes only in a
//! transaction that holds the catalogue exclusively and has locked the table against writes. This word tells the others
//! that it has changed:
//!
//! | bits | field | written by |
//! |---|---|---|
//! | 32..63 | `changes`: how many changes have begun | a transaction that changes the set, under those locks |
//! | 0..31 | `count`: indexes of the table, or `UNSETTLED` | the same; and a transaction that has read the catalogue |
//!
//! 1. *Change.* A transaction that creates or drops an index adds one to `changes` and makes `count` unsettled.
//! 2. *Settle.* While the count is unsettled, a transaction that needs it locks the catalogue shared. So no change is
//!    running, and it counts the indexes there and stores the count, unless it has changed them itself.
//! 3. *Write.* A writer remembers the word under which it knows all indexes of the table. It compares the words before
//!    each write and after it. During the second comparison it holds its intent on the table, to its end. So either it
//!    sees the change, or the change begins after its end.
//!
//! **Invariant:** a settled count is that of the committed indexes, and no transaction is changing them.

use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};

/// `count` while it is not known.
const UNSETTLED: u64 = u32::MAX as u64;
const ONE_CHANGE: u64 = 1 << 32;

/// State of the indexes of a table.
#[derive(Debug)]
pub(crate) struct IndexState(AtomicU64);

/// A value of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexWord(u64);

impl IndexWord {
    /// Differs from the word of every table.
    pub(crate) const NONE: Self = Self(u64::MAX);

    /// Returns how many indexes the table has; `None` if it is unsettled.
    pub(crate) const fn count(self) -> Option<u64> {
        match self.0 & UNSETTLED {
            UNSETTLED => None,
            count => Some(count),
        }
    }
}

impl IndexState {
    /// A new table, without indexes.
    pub(crate) fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A table whose indexes are not known yet.
    pub(crate) fn unsettled() -> Self {
        Self(AtomicU64::new(UNSETTLED))
    }

    #[inline]
    pub(crate) fn word(&self) -> IndexWord {
        // ORDERING: Acquire, pairs with `change` and `settle`. The infos of the indexes are found by their own cells.
        IndexWord(self.0.load(Ordering::Acquire))
    }

    /// Notes that the transaction, which holds both locks, changes the indexes, or has rolled such a change back.
    pub(crate) fn change(&self) {
        let next = |word: u64| (word & !UNSETTLED).wrapping_add(ONE_CHANGE) | UNSETTLED;
        // ORDERING: Release, before the locks go; a writer that is granted an intent of the table finds it by that.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |word| Some(next(word)));
    }

    /// Stores the count that was read from the catalogue under its lock, since `seen` was the word.
    pub(crate) fn settle(&self, seen: IndexWord, count: usize) {
        if seen.count().is_some() {
            return;
        }
        // ORDERING: Release, so that a reader of the count finds the infos that were added before. A failure is a
        // transaction that has stored the same count.
        let _ =
            self.0.compare_exchange(seen.0, (seen.0 & !UNSETTLED) | count as u64, Ordering::Release, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_until_the_count_is_settled_and_after_it() {
        let state = IndexState::none();
        let first = state.word();
        assert_eq!(first.count(), Some(0));
        state.change();
        let changed = state.word();
        assert_eq!(changed.count(), None);
        state.settle(first, 0);
        assert_eq!(state.word(), changed, "a settled word is not settled again");
        state.settle(changed, 2);
        assert_eq!(state.word().count(), Some(2));
        state.change();
        state.settle(changed, 3);
        assert_eq!(state.word().count(), None, "the count is of another change");
        let words = [first, changed, state.word(), IndexWord::NONE];
        assert!((0..words.len()).all(|at| !words[..at].contains(&words[at])));
    }
}
