//! Lock ranks: one global order of all locks, checked per thread in debug builds.

macro_rules! lock_ranks {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The order in which a thread may take locks, from the outermost to the innermost. A lock may be waited for
        /// only if its rank comes after the ranks of all locks that the thread holds.
        ///
        /// A deadlock needs a cycle of waits, and in a cycle at least one thread breaks this rule. `try_lock` is exempt
        /// because it never waits. But a lock that it took counts as held for later ones.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum LockRank {
            $($(#[doc = $doc])+ $name,)+
        }

        impl LockRank {
            /// Every rank, outermost first, with the documentation of what it guards.
            pub const ALL: &'static [(LockRank, &'static str)] = &[$((LockRank::$name, concat!($($doc),+)),)+];
        }
    };
}

// Outermost first. Insert a new rank after the ranks of all locks that are held while it is taken, and before those of
// all locks that are taken while it is held.
lock_ranks! {
    /// The per-thread values of one object. A thread that ends cleans up its value under this lock.
    PerThread,
    /// The background threads of a database. Held during the whole close.
    Database,
    /// The table catalogue.
    Catalogue,
    /// The undo of losers beside new transactions, one piece at a time.
    RestartUndo,
    /// One checkpoint at a time.
    Checkpoint,
    /// The list of known backups, and the replacement of its file. Backups alone take it, at their ends.
    KnownBackups,
    /// The state of the log archive. Not held during I/O of the archive.
    LogArchive,
    /// Extents and free space. Outside the cleaner, because a new map page needs a frame.
    Space,
    /// The buffer of a round of the page cleaner. Two rounds alternate.
    Cleaner,
    /// The xid ceiling: raising it appends to the log.
    XidCeiling,
    /// The list of parked rollbacks. A rollback that leaves the list publishes its xid under this lock.
    ParkedRollbacks,
    /// Confirming a deadlock: one waiter at a time confirms a cycle and chooses the victim.
    Deadlock,
    /// A shard of the table locks.
    TableLocks,
    /// A shard of the shared row locks.
    RowLocks,
    /// A stripe or the queue of a shard of the range locks.
    RangeLocks,
    /// State of one transaction that waiting transactions read.
    LockOwner,
    /// The state of the leader that seals log groups, and the memory of each group.
    LogDrain,
    /// Lists of threads, futures and callbacks that wait for the log, and the cause of its stop.
    LogWaiters,
    /// The log's control slots, and making or recycling its segments.
    LogCtl,
    /// The list of log segments.
    LogSegments,
    /// Pages of a status table: a miss reads and writes them.
    StatusTable,
    /// Moving undo to the spill file: one thread at a time.
    UndoSpill,
    /// A block of the stamps of pages: a miss of a page reads it.
    Stamps,
    /// The gate for calls that change files. Calls in flight hold it shared; a close of the database shuts it.
    FileFence,
    /// Changes of files that a read-only database keeps in memory. Outside the locks of the files below.
    FileOverlay,
    /// Syncs of one open file, which take turns.
    FileSync,
    /// State of an open file or of a simulated disk.
    File,
    /// The number of sessions that may still be made. Held while a thread searches all shards for an idle session.
    Leases,
    /// A lock under which only the locks inside event counts, park tables and parkers are taken.
    Leaf,
    /// The sleeping threads of an event count.
    EventCount,
    /// A bucket of a park table.
    ParkBucket,
    /// A thread's own parker.
    Parker,
}

/// The lock order as a Markdown document, outermost lock first.
pub fn lock_order_markdown() -> String {
    let mut text = String::from(
        "# Lock order\n\nA thread takes locks downwards in this table only. Debug builds check it; `try_lock` may go \
         upwards because it never waits.\n\n| rank | guards |\n|---|---|\n",
    );
    for (rank, doc) in LockRank::ALL {
        text.push_str(&format!("| `{rank:?}` | {} |\n", doc.trim()));
    }
    text
}

/// A guard that records a lock of some rank as held by this thread, until it is dropped.
#[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
pub(crate) struct Held(LockRank);

/// A guard without effect: release builds record nothing, and neither do model checkers, whose threads share one
/// thread-local.
#[cfg(not(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle)))))]
pub(crate) struct Held;

#[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
mod check {
    use super::{Held, LockRank};
    use std::cell::RefCell;

    std::thread_local! {
        static HELD: RefCell<Vec<LockRank>> = const { RefCell::new(Vec::new()) };
    }

    impl Held {
        /// Records `rank` as held. Called before the lock is waited for, so that a wrong order is found without a
        /// deadlock.
        ///
        /// # Panics
        /// When this thread holds a lock of `rank` or of a later one.
        pub(crate) fn ordered(rank: LockRank) -> Self {
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(top) = held.iter().copied().max() {
                    assert!(top < rank, "lock order: {rank:?} wanted while {held:?} are held");
                }
                held.push(rank);
            });
            Self(rank)
        }

        /// Records `rank` as held after a `try_lock`, which may break the order.
        pub(crate) fn unordered(rank: LockRank) -> Self {
            let _ = HELD.try_with(|held| held.borrow_mut().push(rank));
            Self(rank)
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // Thread-locals may be gone while a thread ends; the order then no longer matters.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                let at = held.iter().rposition(|&rank| rank == self.0);
                held.remove(at.expect("a held rank is on the stack"));
            });
        }
    }
}

#[cfg(not(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle)))))]
impl Held {
    #[inline(always)]
    pub(crate) fn ordered(_rank: LockRank) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn unordered(_rank: LockRank) -> Self {
        Self
    }
}

#[cfg(all(test, not(any(foreshore_loom, foreshore_shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_rank_is_listed_in_its_own_order() {
        assert!(LockRank::ALL.is_sorted_by(|a, b| a.0 < b.0));
        assert!(LockRank::ALL.iter().all(|(_, doc)| doc.trim().ends_with('.')));
        let text = lock_order_markdown();
        let database = text.find("`Database`").expect("the outermost lock");
        assert!(database < text.find("`Parker`").expect("the innermost lock"));
        assert_eq!(text.lines().filter(|line| line.starts_with("| `")).count(), LockRank::ALL.len());
    }
}
