use super::*;
use crate::primitive::thread;
use std::sync::mpsc;

/// Parks a thread and returns once it is queued.
fn queue<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    table: &'scope ParkTable,
    key: u64,
    role: u32,
) -> std::thread::ScopedJoinHandle<'scope, ParkOutcome> {
    let (validated, ready) = mpsc::channel();
    let handle = scope.spawn(move || table.park_as(key, role, None, || validated.send(()).is_ok()));
    ready.recv().expect("the thread validates");
    // It holds the bucket's lock from its validation until it is queued, and `has_waiters` takes that lock.
    assert!(table.has_waiters(key));
    handle
}

fn outcome(handle: std::thread::ScopedJoinHandle<'_, ParkOutcome>) -> ParkOutcome {
    handle.join().expect("a parked thread ends")
}

fn none_counted(table: &ParkTable) -> bool {
    table.buckets.iter().all(|bucket| bucket.waiting.load(Ordering::Relaxed) == 0)
}

#[test]
fn a_failed_validation_does_not_wait() {
    let table = ParkTable::new();
    assert_eq!(table.park(1, None, || false), ParkOutcome::Invalid);
    assert!(!table.has_waiters(1));
    assert!(none_counted(&table));
}

#[test]
fn a_waiter_that_gives_up_is_not_queued_any_more() {
    let table = ParkTable::new();
    assert_eq!(table.park(1, Some(Duration::from_millis(1)), || true), ParkOutcome::TimedOut);
    assert_eq!(table.park(1, Some(Duration::ZERO), || true), ParkOutcome::TimedOut);
    assert!(!table.has_waiters(1));
    assert!(!table.unpark_one(1, 0));
    assert!(none_counted(&table));
}

#[test]
fn unpark_one_wakes_in_order_of_arrival_and_by_key() {
    let table = ParkTable::new();
    thread::scope(|scope| {
        let first = queue(scope, &table, 1, 0);
        let other = queue(scope, &table, 2, 0);
        let second = queue(scope, &table, 1, 0);
        assert!(table.unpark_one(1, 10));
        assert_eq!(outcome(first), ParkOutcome::Unparked(10));
        assert!(!second.is_finished() && !other.is_finished());
        assert!(table.unpark_one(1, 11));
        assert_eq!(outcome(second), ParkOutcome::Unparked(11));
        assert!(!table.unpark_one(1, 12), "nobody is left at this key");
        assert_eq!(table.unpark_all(2, 13), 1);
        assert_eq!(outcome(other), ParkOutcome::Unparked(13));
    });
    assert!(none_counted(&table));
}

#[test]
fn keys_that_share_a_bucket_do_not_share_wake_ups() {
    let table = ParkTable::new();
    let same_bucket = |key: &u64| std::ptr::eq(table.bucket(*key), table.bucket(1));
    let twin = (2..).find(same_bucket).expect("there are 256 buckets");
    thread::scope(|scope| {
        let one = queue(scope, &table, 1, 0);
        assert!(!table.has_waiters(twin));
        assert!(!table.unpark_one(twin, 5));
        let two = queue(scope, &table, twin, 0);
        assert_eq!(table.unpark_all(twin, 6), 1);
        assert_eq!(outcome(two), ParkOutcome::Unparked(6));
        assert!(table.unpark_one(1, 7));
        assert_eq!(outcome(one), ParkOutcome::Unparked(7));
    });
}

#[test]
fn those_of_a_role_are_woken_and_the_others_keep_their_places() {
    let table = ParkTable::new();
    thread::scope(|scope| {
        let [first, second, third, fourth] = [5, 7, 5, 6].map(|role| queue(scope, &table, 1, role));
        assert_eq!(table.unpark_role(1, 8, 2), 0);
        assert_eq!(table.unpark_role(1, 5, 2), 2);
        assert_eq!([first, third].map(outcome), [ParkOutcome::Unparked(2); 2]);
        for (handle, tag) in [(second, 3), (fourth, 4)] {
            assert!(table.unpark_one(1, tag));
            assert_eq!(outcome(handle), ParkOutcome::Unparked(tag));
        }
        assert!(!table.unpark_one(1, 5));
    });
}

#[test]
fn a_filter_stops_the_wake_up_and_gets_the_waiters_that_stay() {
    let table = ParkTable::new();
    let below_two = |role| if role < 2 { Pick::Wake } else { Pick::Stop };
    thread::scope(|scope| {
        let handles = [0, 1, 2, 0].map(|role| queue(scope, &table, 1, role));
        let mut left = None;
        assert_eq!(table.unpark_while(1, 3, below_two, |left_behind| left = Some(left_behind)), 2);
        assert_eq!(left, Some(true));
        assert!(!handles[3].is_finished(), "a filter stops at the first it refuses");
        assert_eq!(table.unpark_while(1, 3, |_| Pick::Wake, |left_behind| left = Some(left_behind)), 2);
        assert_eq!(left, Some(false));
        for handle in handles {
            assert_eq!(outcome(handle), ParkOutcome::Unparked(3));
        }
    });
}

#[test]
fn keys_spread_over_the_buckets() {
    let table = ParkTable::new();
    // Addresses of latches in an array of 128-byte frame headers, and small consecutive ids.
    for stride in [1, 128] {
        let mut used = vec![false; BUCKETS];
        for index in 0..BUCKETS as u64 {
            let bucket = table.bucket(0x7F00_0000_0000 + index * stride);
            let at = table.buckets.iter().position(|other| std::ptr::eq(&**other, bucket)).expect("one of ours");
            used[at] = true;
        }
        assert!(used.iter().filter(|&&used| used).count() > BUCKETS / 2, "stride {stride}");
    }
}

#[test]
fn a_semaphore_on_the_table_loses_no_waiter() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 500;
    let (table, permits, passed) = (ParkTable::new(), AtomicU64::new(1), AtomicU64::new(0));
    let take = |permits: u64| permits.checked_sub(1);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, permits, passed) = (&table, &permits, &passed);
            // Half of the threads time out early and try again: timeouts and wake-ups race.
            let patience = (thread % 2 == 0).then_some(Duration::from_micros(20));
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    while permits.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).is_err() {
                        table.park(9, patience, || permits.load(Ordering::Relaxed) == 0);
                    }
                    passed.fetch_add(1, Ordering::Relaxed);
                    permits.fetch_add(1, Ordering::AcqRel);
                    table.unpark_one(9, 0);
                }
            });
        }
    });
    assert_eq!(passed.load(Ordering::Relaxed), THREADS * ROUNDS);
    assert!(none_counted(&table));
}
