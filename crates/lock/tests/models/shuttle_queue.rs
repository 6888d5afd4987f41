//! Cycles of waits that the order of a table's queue alone closes: no transaction is refused for one, in any order in
//! which the waits begin. A wake-up that is lost shows as a deadlock of the model.

use foreshore_base::{Csn, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, IntentShared, Shared};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode};
use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 200;
const TABLE: TableId = TableId(1);
const OTHER: TableId = TableId(2);
type Lock = (TableId, TableMode);

/// What owners have and want. The writer waits for the upgrader, and two readers for the writer. The upgrader would
/// wait for the readers, and the last one waits for a reader.
const OWNERS: [(&str, &[Lock], Lock); 5] = [
    ("writer", &[(TABLE, IntentExclusive)], (OTHER, Exclusive)),
    ("upgrader", &[(TABLE, IntentShared), (OTHER, Exclusive)], (TABLE, IntentExclusive)),
    ("reader", &[], (TABLE, Shared)),
    ("reader", &[], (TABLE, Shared)),
    ("last", &[], (TABLE, IntentExclusive)),
];

fn a_cycle_by_queue_order(fast_intents: bool) {
    let options = LockOptions { max_owners: 5, share_slots: 64, fast_intents, ..LockOptions::default() };
    let locks = Arc::new(LockManager::new(options));
    let lock = |locks: &LockManager, owner: &mut Owner, (table, mode): Lock| {
        locks.lock_table(owner, table, mode, Duration::MAX).expect("no owner is a victim")
    };
    let owners = OWNERS.map(|(label, has, wants)| {
        let mut owner = locks.lease(label).expect("a slot");
        has.iter().for_each(|&has| assert_eq!(lock(&locks, &mut owner, has), Csn::ZERO));
        (owner, wants)
    });
    let threads = owners.map(|(mut owner, wants)| {
        let locks = locks.clone();
        thread::spawn(move || {
            lock(&locks, &mut owner, wants);
            locks.finish(&mut owner, None);
        })
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

#[test]
fn the_order_of_a_queue_makes_no_victim() {
    [false, true].into_iter().for_each(|fast| shuttle(ITERATIONS, move || a_cycle_by_queue_order(fast)));
}

#[test]
#[should_panic(expected = "no owner is a victim")]
fn a_soft_waiter_is_no_victim() {
    shuttle_mutated("deadlock: the order of a queue makes victims", ITERATIONS, || a_cycle_by_queue_order(true));
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_owner_that_overtakes_is_woken() {
    shuttle_mutated("deadlock: an owner overtakes and is not woken", ITERATIONS, || a_cycle_by_queue_order(true));
}
