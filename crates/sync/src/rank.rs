//! Lock ranks: one global order of all mutexes, checked per thread in debug builds.

macro_rules! lock_ranks {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// The order in which a thread may take locks: each next one ranks strictly above all it holds.
        ///
        /// A deadlock needs a cycle, and a cycle needs one thread that goes down. `try_lock` is free of the rule,
        /// since it never waits, but what it took counts for the locks that follow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum LockRank {
            $($(#[doc = $doc])+ $name,)+
        }

        impl LockRank {
            /// Every rank, outermost first, with what it guards.
            pub const ALL: &'static [(LockRank, &'static str)] = &[$((LockRank::$name, concat!($($doc),+)),)+];
        }
    };
}

// The order has a meaning: a lock may be taken under every lock above it. A new rank goes where its users nest.
lock_ranks! {
    /// The values that threads have in one object. A thread that ends frees what its value holds.
    PerThread,
    /// Opening, closing and poisoning of a database.
    Database,
    /// The table catalogue.
    Catalogue,
    /// One checkpoint at a time.
    Checkpoint,
    /// The state of the archive of the log. Free while its device works.
    LogArchive,
    /// Extents and free space. A new map page needs a frame, so it ranks above the cleaner.
    Space,
    /// A round of the page cleaner, of which two take turns.
    Cleaner,
    /// The xid ceiling: raising it appends to the log.
    XidCeiling,
    /// The list of parked rollbacks. One that leaves it shows its xid under this lock.
    ParkedRollbacks,
    /// Confirming a deadlock: one waiter at a time decides to be the victim.
    Deadlock,
    /// A shard of the table locks.
    TableLocks,
    /// A shard of the shared row locks.
    RowLocks,
    /// A shard of the range locks.
    RangeLocks,
    /// State of one transaction that waiting transactions read.
    LockOwner,
    /// Cutting and sealing of log groups.
    LogDrain,
    /// Threads that wait for durability or log space.
    LogWaiters,
    /// The log's control slots, and making or recycling its segments.
    LogCtl,
    /// The list of log segments.
    LogSegments,
    /// Pages of a status table: a miss reads and writes them.
    StatusTable,
    /// Moving undo to its file: one at a time writes.
    UndoSpill,
    /// Access to files, taken back when a database closes. Shared by calls in flight.
    FileFence,
    /// Files whose changes stay in memory, above the files that they show.
    FileOverlay,
    /// Syncs of one open file, which take turns.
    FileSync,
    /// State of an open file or of a simulated disk.
    File,
    /// Making a session, and the search of all shards for an idle one.
    Leases,
    /// A lock under which no engine lock is taken.
    Leaf,
    /// Sleepers of an event count.
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

/// Proof that a lock of some rank is counted as held by this thread; dropping it ends the count.
#[cfg(all(debug_assertions, not(any(foreshore_loom, foreshore_shuttle))))]
pub(crate) struct Held(LockRank);

/// In release builds, and under a model checker whose threads share one thread-local, nothing is counted.
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
        /// Counts `rank` as held. Called before a wait so that a wrong order shows without the deadlock.
        ///
        /// # Panics
        /// When this thread holds a lock of `rank` or above.
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

        /// Counts `rank` as held after a lock that did not wait.
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
