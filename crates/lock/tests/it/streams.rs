//! Promise: a transaction that asks for a lock alone gets it, although its sharers never all let go at once.

use foreshore_base::{Csn, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, Shared};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU32, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const TABLE: TableId = TableId(3);
const LONG: Duration = Duration::from_secs(60);
/// A waiter that is passed over and over ends with this.
const ENOUGH: Duration = Duration::from_secs(10);
const SHARERS: usize = 4;
const ROUNDS: usize = 20;

/// Ends the sharers, also where the waiter for them has failed.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Each sharer keeps its lock until another one has it as well, or is refused it: so no transaction gets it alone but
/// by being waited for.
fn stream(
    locks: &Arc<LockManager>,
    try_share: impl Fn(&mut Owner) -> bool + Sync,
    share: impl Fn(&mut Owner) + Sync,
    alone: impl Fn(&mut Owner),
) {
    let (holding, refused, ended) = (AtomicU32::new(0), AtomicU32::new(0), AtomicBool::new(false));
    let sharer = || {
        while !ended.load(Ordering::Relaxed) {
            let mut owner = locks.lease("sharer").expect("a slot");
            if !try_share(&mut owner) {
                refused.fetch_add(1, Ordering::Relaxed);
                share(&mut owner);
                refused.fetch_sub(1, Ordering::Relaxed);
            }
            holding.fetch_add(1, Ordering::Relaxed);
            while holding.load(Ordering::Relaxed) < 2
                && refused.load(Ordering::Relaxed) == 0
                && !ended.load(Ordering::Relaxed)
            {
                thread::yield_now();
            }
            holding.fetch_sub(1, Ordering::Relaxed);
            locks.finish(&mut owner, None);
        }
    };
    thread::scope(|scope| {
        for _ in 0..SHARERS {
            scope.spawn(sharer);
        }
        let _ends = Ends(&ended);
        for _ in 0..ROUNDS {
            let mut owner = locks.lease("alone").expect("a slot");
            while holding.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            alone(&mut owner);
            locks.finish(&mut owner, None);
        }
    });
}

fn manager(fast_intents: bool) -> Arc<LockManager> {
    Arc::new(LockManager::new(LockOptions { max_owners: 16, share_slots: 16, fast_intents, ..LockOptions::default() }))
}

#[test]
fn readers_of_a_row_and_a_writer() {
    let locks = manager(true);
    let row = Target::row(TABLE, b"row");
    stream(
        &locks,
        |owner| locks.try_share(owner, row).is_some(),
        |owner| locks.share(owner, row, LONG).expect("granted"),
        |owner| {
            locks.wait_exclusive(owner, row, ENOUGH).expect("it gets its turn");
            assert!(!locks.shared_by_other(owner, row));
        },
    );
}

fn of_a_table(fast_intents: bool, shared: TableMode, alone: TableMode) {
    let locks = manager(fast_intents);
    stream(
        &locks,
        |owner| locks.try_lock_table(owner, TABLE, shared).is_some(),
        |owner| assert_eq!(locks.lock_table(owner, TABLE, shared, LONG).expect("granted"), Csn::ZERO),
        |owner| assert_eq!(locks.lock_table(owner, TABLE, alone, ENOUGH).expect("it gets its turn"), Csn::ZERO),
    );
}

#[test]
fn readers_of_a_table_and_its_dropper() {
    for fast_intents in [false, true] {
        of_a_table(fast_intents, Shared, Exclusive);
    }
}

#[test]
fn writers_of_rows_and_a_reader_of_their_table() {
    for fast_intents in [false, true] {
        of_a_table(fast_intents, IntentExclusive, Shared);
        of_a_table(fast_intents, IntentExclusive, Exclusive);
    }
}
