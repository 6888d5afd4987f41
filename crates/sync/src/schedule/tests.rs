//! What the scheduler promises to the code that it runs.

use super::*;
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::{Clock, Condvar, LockRank, Mutex, Parker, SystemClock};
use std::collections::HashSet;

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        mean_slice: 3,
        jump_one_in: 0,
        uneven: false,
        patience: Duration::from_secs(3_600),
        most_decisions: 100_000,
        stacks: false,
    }
}

/// Two threads that each read a counter and write it back, with a gap between. Returns the final count.
fn race() -> u64 {
    let counter = Arc::new(AtomicU64::new(0));
    let raise = |counter: Arc<AtomicU64>| {
        move || (0..10).for_each(|_| counter.store(counter.load(Ordering::SeqCst) + 1, Ordering::SeqCst))
    };
    let handles = [(); 2].map(|()| spawn("racer", raise(counter.clone())).unwrap());
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    counter.load(Ordering::SeqCst)
}

#[test]
fn a_seed_repeats_its_run_and_other_seeds_give_other_runs() {
    let runs: Vec<_> = (0..50).map(|seed| run(plan(seed), race).unwrap()).collect();
    let again: Vec<_> = (0..50).rev().map(|seed| run(plan(seed), race).unwrap()).collect();
    assert!(runs.iter().eq(again.iter().rev()));
    let counts: HashSet<u64> = runs.iter().map(|run| run.0).collect();
    assert!(counts.len() > 3 && counts.iter().any(|&count| count < 20), "no update was lost: {counts:?}");
}

#[test]
fn hash_maps_have_the_same_order_in_each_run() {
    let order = || (0..100).collect::<HashSet<u32>>().into_iter().collect::<Vec<_>>();
    assert_eq!(run(plan(1), order).unwrap().0, run(plan(2), order).unwrap().0);
}

#[test]
fn threads_that_wait_for_each_other_are_reported() {
    let cross = || {
        let locks = Arc::new([Mutex::new(LockRank::Leaf, ()), Mutex::new(LockRank::Leaf, ())]);
        let take = |first: usize| {
            let locks = locks.clone();
            move || {
                let _first = locks[first].try_lock();
                // `lock` would refuse a second lock of the same rank.
                while locks[1 - first].try_lock().is_none() {
                    Parker::new().park();
                }
            }
        };
        [spawn("one", take(0)).unwrap(), spawn("other", take(1)).unwrap()]
            .into_iter()
            .for_each(|handle| handle.join().unwrap());
    };
    let stopped: Vec<String> = (0..30).filter_map(|seed| run(plan(seed), cross).err()).collect();
    assert!(!stopped.is_empty() && stopped.len() < 30, "{} of 30", stopped.len());
    assert!(stopped.iter().all(|why| why.contains("no task can go on") && why.contains(" waits for a signal")));
}

#[test]
fn time_jumps_while_all_tasks_wait_and_a_timed_wait_ends_on_time() {
    let wait = || {
        let clock = SystemClock::new();
        let begun = clock.now();
        let (mutex, condvar) = (Mutex::new(LockRank::Leaf, ()), Condvar::new());
        let timed_out = condvar.wait_timeout(mutex.lock(), Duration::from_secs(1_000)).1;
        (timed_out, clock.now().since(begun))
    };
    let ((timed_out, passed), summary) = run(plan(1), wait).unwrap();
    assert!(timed_out && passed >= Duration::from_secs(1_000) && passed < Duration::from_secs(1_001));
    assert!(summary.time >= passed && summary.decisions < 100, "{summary:?}");
}

#[test]
fn a_notification_ends_a_timed_wait_before_its_time() {
    let wait = || {
        let (parker, clock) = (Parker::new(), SystemClock::new());
        let unparker = parker.unparker();
        let handle = spawn("waker", move || unparker.unpark()).unwrap();
        let woken = parker.park_timeout(Duration::from_secs(1_000));
        handle.join().unwrap();
        (woken, Duration::from(clock.now()))
    };
    for seed in 0..20 {
        let (woken, passed) = run(plan(seed), wait).unwrap().0;
        assert!(woken && passed < Duration::from_secs(1), "{passed:?}");
    }
}

/// Runs a thread that yields for `time`, while another one waits for it for at most `patience`. Returns whether the
/// wait was woken before it timed out.
fn awaited_yields(time: Duration, patience: Duration) -> bool {
    let parker = Parker::new();
    let unparker = parker.unparker();
    let yields = move || {
        let clock = SystemClock::new();
        let begun = clock.now();
        while clock.now().since(begun) < time {
            crate::primitive::thread::yield_now();
        }
        unparker.unpark();
    };
    let handle = spawn("yields", yields).unwrap();
    let woken = parker.park_timeout(patience);
    handle.join().unwrap();
    woken
}

#[test]
fn yields_of_the_only_ready_task_do_not_time_out_a_wait_for_it() {
    let yields = || awaited_yields(Duration::from_micros(50), Duration::from_secs(1));
    assert!((0..50).all(|seed| run(plan(seed), yields).unwrap().0));
}

#[test]
fn a_thread_that_yields_until_a_time_gets_there_soon() {
    let yields = || awaited_yields(Duration::from_secs(10), Duration::from_secs(100));
    let (woken, summary) = run(Plan { most_decisions: 200_000, ..plan(1) }, yields).unwrap();
    assert!(woken && summary.time < Duration::from_secs(11), "{summary:?}");
}

#[test]
fn a_run_that_only_yields_ends_at_its_limit() {
    let spin = || {
        let never = AtomicU64::new(0);
        while never.load(Ordering::SeqCst) == 0 {
            crate::primitive::thread::yield_now();
        }
    };
    assert!(run(plan(1), spin).unwrap_err().contains("too many decisions"));
    let patient = Plan { patience: Duration::from_micros(10), ..plan(1) };
    assert!(run(patient, spin).unwrap_err().contains("nothing has ended for too long"));
}

#[test]
fn a_panic_of_a_task_ends_it_and_no_other() {
    let main = || {
        let counter = Arc::new(AtomicU64::new(0));
        let own = counter.clone();
        assert!(spawn("bad", || panic!("on purpose")).unwrap().join().is_err());
        spawn("good", move || own.store(7, Ordering::SeqCst)).unwrap().join().unwrap();
        counter.load(Ordering::SeqCst)
    };
    assert_eq!(run(plan(1), main).unwrap().0, 7);
}
