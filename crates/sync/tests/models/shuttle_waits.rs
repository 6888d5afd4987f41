//! Waits in larger numbers than loom can explore: locks, queues and wake-ups among many threads, under random
//! schedules. A lost wake-up shows as a deadlock.

use foreshore_sync::model::{shuttle, shuttle_mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex, Parker, SystemClock, Turns, Unparker, WakeQueue};
use std::sync::Arc;
use std::time::Duration;

fn run<S: Send + Sync + 'static>(shared: &Arc<S>, actors: Vec<Box<dyn FnOnce(&S) + Send>>) {
    let spawn = |actor: Box<dyn FnOnce(&S) + Send>| {
        let shared = shared.clone();
        thread::spawn(move || actor(&shared))
    };
    let threads: Vec<_> = actors.into_iter().map(spawn).collect();
    for thread in threads {
        thread.join().expect("an actor ends");
    }
}

/// Twelve threads wait for one of two marks; some lose patience and look again by themselves.
fn wake_up() {
    struct Gate {
        mark: AtomicU64,
        list: Mutex<Vec<(u64, usize, Unparker)>>,
        queue: WakeQueue,
    }
    impl Gate {
        fn wait(&self, target: u64, own: usize) {
            let parker = Parker::new();
            self.list.lock().push((target, own, parker.unparker()));
            while self.mark.load(Ordering::SeqCst) < target {
                if own.is_multiple_of(4) {
                    parker.park_timeout(Duration::from_millis(1));
                } else {
                    parker.park();
                }
            }
            let mut list = self.list.lock();
            match list.iter().position(|(_, id, _)| *id == own) {
                Some(at) => drop(list.swap_remove(at)),
                None => {
                    drop(list);
                    self.queue.help();
                }
            }
        }

        fn raise(&self, target: u64) {
            self.mark.fetch_max(target, Ordering::SeqCst);
            {
                let mut list = self.list.lock();
                let reached = list.extract_if(.., |(wanted, ..)| *wanted <= target);
                self.queue.put(reached.map(|(.., unparker)| unparker).collect::<Vec<_>>());
            }
            self.queue.start();
        }
    }
    let list = Mutex::new(LockRank::LogWaiters, Vec::new());
    let gate = Arc::new(Gate { mark: AtomicU64::new(0), list, queue: WakeQueue::new(2) });
    let mut actors: Vec<Box<dyn FnOnce(&Gate) + Send>> = Vec::new();
    for own in 0..12 {
        actors.push(Box::new(move |gate| gate.wait(1 + own as u64 % 2, own)));
    }
    actors.push(Box::new(|gate| gate.raise(1)));
    actors.push(Box::new(|gate| gate.raise(2)));
    run(&gate, actors);
}

#[test]
fn no_waiter_is_forgotten() {
    shuttle(5_000, wake_up);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_woken_have_to_help() {
    shuttle_mutated("wake queue: leave without helping", 20_000, wake_up);
}

/// Some wait for their turn without a limit, others time out.
fn turns() {
    let shared = Arc::new((Turns::default(), AtomicBool::new(false), AtomicU64::new(0)));
    let actor = |most: Duration| -> Box<dyn FnOnce(&(Turns, AtomicBool, AtomicU64)) + Send> {
        Box::new(move |(turns, is_taken, had)| {
            for _ in 0..2 {
                let Some(turn) = turns.take(&SystemClock::new(), most) else {
                    assert!(most < Duration::MAX, "a wait without a limit ends with the lock");
                    continue;
                };
                // ORDERING: Relaxed, the turn excludes and orders.
                assert!(!is_taken.swap(true, Ordering::Relaxed), "one at a time");
                thread::yield_now();
                is_taken.store(false, Ordering::Relaxed);
                had.fetch_add(1, Ordering::Relaxed);
                drop(turn);
            }
        })
    };
    run(
        &shared,
        vec![actor(Duration::MAX), actor(Duration::MAX), actor(Duration::from_micros(100)), actor(Duration::ZERO)],
    );
    let (turns, _, had) = &*shared;
    assert!(had.load(Ordering::Relaxed) >= 4);
    assert!(turns.take(&SystemClock::new(), Duration::ZERO).is_some(), "no thread is left in the queue");
}

#[test]
fn turns_are_one_at_a_time_and_a_waiter_that_gives_up_is_out_of_the_way() {
    shuttle(20_000, turns);
}

/// One thread has the turn and keeps it. Two wait for theirs, without a timeout, when the queue is closed.
fn closed_line() {
    let turns = Arc::new(Turns::default());
    let kept = turns.take(&SystemClock::new(), Duration::ZERO);
    assert!(kept.is_some(), "an empty line");
    let waiters = [0, 1].map(|_| {
        let turns = turns.clone();
        thread::spawn(move || turns.take(&SystemClock::new(), Duration::MAX).is_none())
    });
    turns.close();
    assert!(waiters.into_iter().all(|waiter| waiter.join().expect("it ends")), "the turn is taken");
}

#[test]
fn a_line_that_is_closed_keeps_no_request() {
    shuttle(5_000, closed_line);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_close_wakes_the_requests_in_line() {
    shuttle_mutated("turns: a close wakes no waiter", 5_000, closed_line);
}

#[test]
#[should_panic(expected = "no thread is left in the queue")]
fn a_waiter_that_gives_up_has_to_leave_the_queue() {
    // All others time out as well, as no thread passes on a turn that was handed to a thread that is gone.
    shuttle_mutated("turns: a timed-out waiter stays queued", 20_000, || {
        let turns = Arc::new(Turns::default());
        let actor = || -> Box<dyn FnOnce(&Turns) + Send> {
            Box::new(|turns: &Turns| drop(turns.take(&SystemClock::new(), Duration::from_micros(100))))
        };
        run(&turns, vec![actor(), actor(), actor()]);
        assert!(turns.take(&SystemClock::new(), Duration::ZERO).is_some(), "no thread is left in the queue");
    });
}
