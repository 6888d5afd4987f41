//! Models of the park table's promise that no wake-up is lost. A lost one shows as a deadlock.

use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{ParkOutcome, ParkTable};
use std::sync::Arc;
use std::time::Duration;

#[derive(Default)]
struct Gate {
    table: ParkTable,
    open: AtomicBool,
    tickets: AtomicU64,
}

const KEY: u64 = 7;
const TAG: u64 = 42;

fn pass(gate: &Gate) {
    while !gate.open.load(Ordering::Acquire) {
        let outcome = gate.table.park(KEY, None, || !gate.open.load(Ordering::Relaxed));
        assert!(matches!(outcome, ParkOutcome::Invalid | ParkOutcome::Unparked(TAG)), "{outcome:?}");
    }
}

fn open_for_one() {
    let gate = Arc::new(Gate::default());
    let passer = spawn(&gate, pass);
    let opener = spawn(&gate, |gate| {
        gate.open.store(true, Ordering::Release);
        gate.table.unpark_one(KEY, TAG);
    });
    passer.join().expect("the passer ends");
    opener.join().expect("the opener ends");
    assert!(!gate.table.has_waiters(KEY));
}

fn open_for_all() {
    let gate = Arc::new(Gate::default());
    let passers = [spawn(&gate, pass), spawn(&gate, pass)];
    let opener = spawn(&gate, |gate| {
        gate.open.store(true, Ordering::Release);
        gate.table.unpark_all(KEY, TAG);
    });
    for passer in passers {
        passer.join().expect("a passer ends");
    }
    opener.join().expect("the opener ends");
}

/// A waiter that gives up leaves no trace, and a wake-up that came is not reported as a time-out.
fn give_up() {
    let gate = Arc::new(Gate::default());
    let waiter = spawn(&gate, |gate| {
        let patience = Some(Duration::from_secs(1));
        if let ParkOutcome::Unparked(tag) = gate.table.park(KEY, patience, || true) {
            gate.tickets.store(tag, Ordering::Relaxed);
        }
    });
    let waker = spawn(&gate, |gate| gate.table.unpark_one(KEY, TAG));
    waiter.join().expect("the waiter ends");
    let woke = waker.join().expect("the waker ends");
    assert_eq!(woke, gate.tickets.load(Ordering::Relaxed) == TAG, "both sides tell the same story");
    assert!(!gate.table.has_waiters(KEY), "a waiter that gave up is still queued");
}

/// Two threads that go by turns, each waiting at a key of its own.
fn turns() {
    let gate = Arc::new(Gate::default());
    let threads = [0, 1].map(|own| {
        let gate = gate.clone();
        thread::spawn(move || {
            let waits = || gate.tickets.load(Ordering::Acquire) != own;
            while waits() {
                gate.table.park(own, None, waits);
            }
            gate.tickets.store(own + 1, Ordering::Release);
            gate.table.unpark_all(own + 1, TAG);
        })
    });
    for thread in threads {
        thread.join().expect("an actor ends");
    }
    assert_eq!(gate.tickets.load(Ordering::Relaxed), 2);
}

fn spawn<R: 'static>(gate: &Arc<Gate>, actor: fn(&Gate) -> R) -> thread::JoinHandle<R> {
    let gate = gate.clone();
    thread::spawn(move || actor(&gate))
}

#[test]
fn no_wake_up_is_lost() {
    check(open_for_one);
    check(open_for_all);
}

#[test]
fn time_out_and_wake_up_agree() {
    check(give_up);
}

#[test]
fn every_turn_comes() {
    check(turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_turns_need_the_waiters_fence() {
    mutated("park table: no fence before validation", turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_turns_need_the_wakers_fence() {
    mutated("park table: no fence before looking", turns);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_waiters_fence() {
    mutated("park table: no fence before validation", open_for_one);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_model_needs_the_wakers_fence() {
    mutated("park table: no fence before looking", open_for_one);
}
