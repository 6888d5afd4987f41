//! The queue of a table's lock: upgrades in its middle that end without a grant, and requests that overtake others.

use foreshore_base::{Error, TableId};
use foreshore_lock::TableMode::{Exclusive, IntentExclusive, IntentShared, Shared};
use foreshore_lock::{LockManager, LockOptions, Owner, TableMode};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const TABLE: TableId = TableId(3);
const LONG: Duration = Duration::from_secs(60);
/// How many cycles one request is overtaken for.
const BOUND: u32 = 16;

/// One of each kind: the queue is the same wherever an intent is entered.
fn managers() -> impl Iterator<Item = Arc<LockManager>> {
    [false, true].into_iter().map(|fast_intents| {
        let options = LockOptions { max_owners: 8, share_slots: 16, fast_intents, ..LockOptions::default() };
        Arc::new(LockManager::new(options))
    })
}

const fn other(n: u32) -> TableId {
    TableId(100 + n)
}

fn lease(locks: &Arc<LockManager>, label: &'static str) -> Owner {
    locks.lease(label).expect("a slot")
}

fn lock(owner: &mut Owner, locks: &LockManager, table: TableId, mode: TableMode) {
    locks.lock_table(owner, table, mode, LONG).expect("granted in the end");
}

/// Locks [`TABLE`] and ends.
fn pass(locks: &Arc<LockManager>, label: &'static str, mode: TableMode) {
    let mut owner = lease(locks, label);
    lock(&mut owner, locks, TABLE, mode);
    locks.finish(&mut owner, None);
}

fn until_waits(locks: &LockManager, waits: u64) {
    while locks.stats().waits < waits {
        thread::yield_now();
    }
}

/// Queues a reader, an upgrade to X, and an intent that waits for that upgrade alone. `meets` gets the writer for which
/// the reader and the upgrade wait. The upgrade ends with the error returned. By then the intent is granted, although
/// the upgrader keeps its weaker lock and the reader still waits.
fn failed_upgrade(locks: &Arc<LockManager>, patience: Duration, meets: impl FnOnce(Owner) -> Owner + Send) -> Error {
    let [mut writer, mut upgrader] = ["writer", "upgrader"].map(|label| lease(locks, label));
    lock(&mut writer, locks, TABLE, IntentExclusive);
    lock(&mut upgrader, locks, TABLE, IntentShared);
    lock(&mut upgrader, locks, other(0), Exclusive);
    writer.set_undo_bytes(1);
    thread::scope(|scope| {
        let reader = scope.spawn(|| pass(locks, "reader", Shared));
        until_waits(locks, 1);
        let upgrade = scope.spawn(move || (locks.lock_table(&mut upgrader, TABLE, Exclusive, patience), upgrader));
        until_waits(locks, 2);
        let intent = scope.spawn(|| pass(locks, "intent", IntentShared));
        // On a slow machine the upgrade may have ended.
        while locks.stats().waits < 3 && !upgrade.is_finished() {
            thread::yield_now();
        }
        let meets = scope.spawn(|| meets(writer));
        let (outcome, mut upgrader) = upgrade.join().expect("no panic");
        intent.join().expect("the intent is granted");
        assert!(!reader.is_finished(), "the writer has the table");
        locks.finish(&mut upgrader, None);
        let mut writer = meets.join().expect("no panic");
        locks.finish(&mut writer, None);
        reader.join().expect("no panic");
        outcome.expect_err("the writer has the table")
    })
}

#[test]
fn an_upgrade_that_runs_out_of_time_lets_the_queue_behind_it_go_on() {
    for locks in managers() {
        let error = failed_upgrade(&locks, Duration::from_millis(300), |writer| writer);
        assert!(matches!(error, Error::LockTimeout { holder: "writer", .. }), "{error:?}");
    }
}

#[test]
fn an_upgrade_that_is_a_victim_lets_the_queue_behind_it_go_on() {
    for locks in managers() {
        let error = failed_upgrade(&locks, LONG, |mut writer| {
            lock(&mut writer, &locks, other(0), Exclusive);
            writer
        });
        assert!(matches!(error, Error::Deadlock { .. }), "{error:?}");
    }
}

/// A writer has the table, and so does one that will upgrade, and that has another table exclusively.
fn writer_and_upgrader(locks: &Arc<LockManager>) -> [Owner; 2] {
    let [mut writer, mut upgrader] = ["writer", "upgrader"].map(|label| lease(locks, label));
    lock(&mut writer, locks, TABLE, IntentExclusive);
    lock(&mut upgrader, locks, TABLE, IntentShared);
    lock(&mut upgrader, locks, other(0), Exclusive);
    [writer, upgrader]
}

/// A reader waits for a writer, the writer for the upgrader, and the upgrader would wait for the reader.
#[test]
fn an_upgrade_overtakes_a_reader_to_break_a_cycle_and_no_transaction_fails() {
    for locks in managers() {
        let [mut writer, mut upgrader] = writer_and_upgrader(&locks);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pass(&locks, "reader", Shared));
            until_waits(&locks, 1);
            let writer = scope.spawn(|| {
                lock(&mut writer, &locks, other(0), Exclusive);
                locks.finish(&mut writer, None);
            });
            until_waits(&locks, 2);
            lock(&mut upgrader, &locks, TABLE, IntentExclusive);
            assert!(!reader.is_finished() && !writer.is_finished(), "both wait for the upgrader");
            locks.finish(&mut upgrader, None);
            [writer, reader].into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!(locks.stats().deadlocks, 0);
    }
}

/// The writer closes the cycle, and the upgrade that overtakes the reader sleeps by then.
#[test]
fn an_upgrade_that_sleeps_is_woken_when_it_may_overtake() {
    for locks in managers() {
        let [mut writer, mut upgrader] = writer_and_upgrader(&locks);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pass(&locks, "reader", Shared));
            until_waits(&locks, 1);
            let upgrade = scope.spawn(|| {
                lock(&mut upgrader, &locks, TABLE, IntentExclusive);
                locks.finish(&mut upgrader, None);
            });
            until_waits(&locks, 2);
            lock(&mut writer, &locks, other(0), Exclusive);
            upgrade.join().expect("no panic");
            assert!(!reader.is_finished(), "the writer has the table");
            locks.finish(&mut writer, None);
            reader.join().expect("no panic");
        });
        assert_eq!(locks.stats().deadlocks, 0);
    }
}

/// A reader waits for a writer. The writer's thread asks for another lock that only the queued reader excludes.
#[test]
fn a_thread_that_waits_for_its_own_transaction_by_the_queue_alone_overtakes() {
    for locks in managers() {
        let [mut first, mut second] = ["first", "second"].map(|label| lease(&locks, label));
        lock(&mut first, &locks, TABLE, IntentExclusive);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pass(&locks, "reader", Shared));
            until_waits(&locks, 1);
            lock(&mut second, &locks, TABLE, IntentExclusive);
            assert!(!reader.is_finished(), "the first has the table");
            locks.finish(&mut second, None);
            locks.finish(&mut first, None);
            reader.join().expect("no panic");
        });
        assert_eq!((locks.stats().deadlocks, locks.stats().timeouts), (0, 0));
    }
}

/// Another transaction stands between the two: it waits in the queue, and the second waits for a table that it has.
#[test]
fn a_waiter_on_the_path_to_the_own_thread_overtakes() {
    for locks in managers() {
        let [mut first, mut second] = ["first", "second"].map(|label| lease(&locks, label));
        lock(&mut first, &locks, TABLE, IntentExclusive);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pass(&locks, "reader", Shared));
            until_waits(&locks, 1);
            let between = scope.spawn(|| {
                let mut between = lease(&locks, "between");
                lock(&mut between, &locks, other(0), Exclusive);
                lock(&mut between, &locks, TABLE, IntentExclusive);
                locks.finish(&mut between, None);
            });
            until_waits(&locks, 2);
            lock(&mut second, &locks, other(0), Exclusive);
            assert!(!reader.is_finished(), "the first has the table");
            [&mut second, &mut first].into_iter().for_each(|owner| locks.finish(owner, None));
            [between, reader].into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!((locks.stats().deadlocks, locks.stats().timeouts), (0, 0));
    }
}

/// The queue alone leads to the thread's own transaction, and a holder of another thread excludes the request, too.
#[test]
fn a_holder_of_another_thread_is_waited_for() {
    const LONGER: Duration = Duration::from_millis(250);
    for locks in managers() {
        let [mut first, mut second] = ["first", "second"].map(|label| lease(&locks, label));
        lock(&mut first, &locks, TABLE, IntentShared);
        let ((send, receive), (_hold, never)) = (channel(), channel::<()>());
        thread::scope(|scope| {
            let locks = &locks;
            let holder = scope.spawn(move || {
                let mut holder = lease(locks, "holder");
                lock(&mut holder, locks, TABLE, Shared);
                send.send(()).expect("received");
                until_waits(locks, 2);
                never.recv_timeout(LONGER).expect_err("nothing is sent");
                locks.finish(&mut holder, None);
            });
            receive.recv().expect("sent");
            let writer = scope.spawn(|| pass(locks, "writer", Exclusive));
            until_waits(locks, 1);
            lock(&mut second, locks, TABLE, IntentExclusive);
            assert!(!writer.is_finished(), "the first has the table");
            [&mut second, &mut first].into_iter().for_each(|owner| locks.finish(owner, None));
            [holder, writer].into_iter().for_each(|thread| thread.join().expect("no panic"));
        });
        assert_eq!((locks.stats().deadlocks, locks.stats().timeouts), (0, 0));
    }
}

#[test]
fn a_queued_reader_is_overtaken_a_bounded_number_of_times() {
    for locks in managers() {
        let mut writer = lease(&locks, "writer");
        lock(&mut writer, &locks, TABLE, IntentExclusive);
        thread::scope(|scope| {
            let reader = scope.spawn(|| pass(&locks, "reader", Shared));
            until_waits(&locks, 1);
            let mut later = None;
            let overtook = (0..2 * BOUND).take_while(|&n| {
                if n == BOUND / 2 {
                    // It is overtaken half as often. One that may not be overtaken is enough.
                    let waits = locks.stats().waits;
                    later = Some(scope.spawn(|| pass(&locks, "later reader", Shared)));
                    until_waits(&locks, waits + 1);
                }
                let mut upgrader = lease(&locks, "upgrader");
                lock(&mut upgrader, &locks, TABLE, IntentShared);
                lock(&mut upgrader, &locks, other(n), Exclusive);
                let waits = locks.stats().waits;
                thread::scope(|scope| {
                    scope.spawn(|| lock(&mut writer, &locks, other(n), Exclusive));
                    until_waits(&locks, waits + 1);
                    let granted = locks.lock_table(&mut upgrader, TABLE, IntentExclusive, LONG);
                    assert!(matches!(granted, Ok(_) | Err(Error::Deadlock { .. })), "{granted:?}");
                    locks.finish(&mut upgrader, None);
                    granted.is_ok()
                })
            });
            let overtook = overtook.count();
            locks.finish(&mut writer, None);
            [Some(reader), later].into_iter().flatten().for_each(|thread| thread.join().expect("no panic"));
            assert_eq!(overtook, BOUND as usize, "upgrades that have overtaken the reader");
        });
    }
}

/// Transactions that read a row before they write one, as serializable ones do, on several threads without a pause.
#[test]
fn a_queued_reader_precedes_all_upgrades_that_come_after_it() {
    for locks in managers() {
        let mut writer = lease(&locks, "writer");
        lock(&mut writer, &locks, TABLE, IntentExclusive);
        let upgrades = AtomicU64::new(0);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut owner = lease(&locks, "reader");
                lock(&mut owner, &locks, TABLE, Shared);
                // ORDERING: Relaxed, the lock of the table orders it.
                let before = upgrades.load(Ordering::Relaxed);
                locks.finish(&mut owner, None);
                before
            });
            until_waits(&locks, 1);
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let mut owner = lease(&locks, "upgrader");
                        lock(&mut owner, &locks, TABLE, IntentShared);
                        lock(&mut owner, &locks, TABLE, IntentExclusive);
                        // ORDERING: as above.
                        upgrades.fetch_add(1, Ordering::Relaxed);
                        locks.finish(&mut owner, None);
                    }
                });
            }
            // ORDERING: hint, it ends the test early.
            while locks.stats().waits < 5 && upgrades.load(Ordering::Relaxed) == 0 {
                thread::yield_now();
            }
            locks.finish(&mut writer, None);
            assert_eq!(reader.join().expect("no panic"), 0, "upgrades before the reader");
        });
        assert_eq!((upgrades.into_inner(), locks.stats().deadlocks), (400, 0));
    }
}
