//! Models of the event count and of the parker below it. A lost notification shows as a deadlock.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{EventCount, Parker, Signal};
use std::sync::Arc;

#[derive(Default)]
struct Queue {
    events: EventCount,
    jobs: AtomicU64,
}

fn take(queue: &Queue) {
    loop {
        let key = queue.events.prepare();
        let take = |jobs: u64| jobs.checked_sub(1);
        if queue.jobs.fetch_update(Ordering::Acquire, Ordering::Relaxed, take).is_ok() {
            break queue.events.cancel(key);
        }
        queue.events.wait(key, None);
    }
}

fn give(queue: &Queue) {
    queue.jobs.fetch_add(1, Ordering::Release);
    queue.events.notify_one();
}

fn give_both(queue: &Queue) {
    queue.jobs.fetch_add(2, Ordering::Release);
    queue.events.notify_all();
}

fn run(actors: &[fn(&Queue)]) {
    let queue = Arc::new(Queue::default());
    let spawn = |&actor: &fn(&Queue)| {
        let queue = queue.clone();
        thread::spawn(move || actor(&queue))
    };
    let threads: Vec<_> = actors.iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

fn one_job() {
    run(&[take, give]);
}

#[test]
fn a_notified_thread_sees_the_job() {
    check(one_job);
    check(|| run(&[take, give_both, take]));
    check(|| run(&[take, |queue| (give(queue), give(queue)).0, take]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_waiters_fence() {
    mutated("event count: no fence after registration", one_job);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_notifiers_fence() {
    mutated("event count: no fence before looking", one_job);
}

fn tokens() {
    let parker = Parker::new();
    let done = Arc::new(AtomicU64::new(0));
    let unpark = || {
        let (unparker, done) = (parker.unparker(), done.clone());
        thread::spawn(move || {
            done.fetch_add(1, Ordering::Relaxed);
            unparker.unpark();
        })
    };
    let unparkers = [unpark(), unpark()];
    let count = done.clone();
    let owner = thread::spawn(move || {
        while count.load(Ordering::Relaxed) < 2 {
            parker.park();
        }
    });
    for thread in unparkers.into_iter().chain([owner]) {
        thread.join().expect("a thread ends");
    }
}

#[test]
fn a_token_is_never_lost() {
    check(tokens);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_token_model_needs_the_way_through_the_lock() {
    mutated("parker: notify without the lock", tokens);
}

fn signals() {
    let signal = Signal::new();
    let jobs = Arc::new(AtomicU64::new(0));
    let give = || {
        let (signal, jobs) = (signal.clone(), jobs.clone());
        thread::spawn(move || {
            jobs.fetch_add(1, Ordering::Relaxed);
            signal.notify();
        })
    };
    let givers = [give(), give()];
    let daemon = thread::spawn(move || {
        while jobs.load(Ordering::Relaxed) < 2 {
            signal.wait(None);
        }
    });
    for thread in givers.into_iter().chain([daemon]) {
        thread.join().expect("a thread ends");
    }
}

#[test]
fn a_step_follows_every_signal() {
    check(signals);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_signal_model_needs_the_notifiers_fence() {
    mutated("signal: no fence before looking", signals);
}
