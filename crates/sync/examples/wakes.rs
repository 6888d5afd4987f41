//! How long a thread is busy that wakes many parked ones: a plain loop compared with a [`WakeQueue`].
//!
//! `cargo run --release -p foreshore-sync --example wakes -- [threads] [rounds]`. Each round parks all threads and
//! wakes them. It notes when the waker is free again, its processor time, and when the last thread has continued.
//! Prints microseconds: median and 99th percentile.

use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Parker, Unparker, WakeQueue, available_parallelism};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Mutex;
use std::time::Instant;

struct Round {
    done: AtomicU64,
    parked: AtomicU64,
    left: AtomicU64,
    list: Mutex<Vec<(usize, Unparker)>>,
    /// None: the waker wakes them all, and no thread helps.
    queue: Option<WakeQueue>,
}

impl Round {
    fn wait(&self, own: usize, target: u64) {
        let parker = Parker::current();
        self.list.lock().expect("no panic").push((own, parker.unparker()));
        self.parked.fetch_add(1, Ordering::SeqCst);
        while self.done.load(Ordering::SeqCst) < target {
            parker.park();
        }
        let mut list = self.list.lock().expect("no panic");
        if let Some(at) = list.iter().position(|(id, _)| *id == own) {
            list.swap_remove(at);
        } else {
            drop(list);
            self.queue.iter().for_each(WakeQueue::help);
        }
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    fn wake(&self, target: u64) {
        self.done.store(target, Ordering::SeqCst);
        let mut list = self.list.lock().expect("no panic");
        let threads: Vec<_> = list.drain(..).map(|(_, unparker)| unparker).collect();
        let Some(queue) = &self.queue else {
            drop(list);
            return threads.iter().for_each(Unparker::unpark);
        };
        queue.put(threads);
        drop(list);
        queue.start();
    }
}

fn measure(first: Option<usize>, threads: usize, rounds: u64) -> [Vec<f64>; 3] {
    let round = Round {
        done: AtomicU64::new(0),
        parked: AtomicU64::new(0),
        left: AtomicU64::new(0),
        list: Mutex::new(Vec::new()),
        queue: first.map(WakeQueue::new),
    };
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    thread::scope(|scope| {
        for own in 0..threads {
            let round = &round;
            scope.spawn(move || (1..=rounds).for_each(|target| round.wait(own, target)));
        }
        for target in 1..=rounds {
            let all = target * threads as u64;
            while round.parked.load(Ordering::SeqCst) < all {
                thread::yield_now();
            }
            // The last ones are between their count and their park; give them the processor.
            std::thread::sleep(std::time::Duration::from_millis(2));
            let (begin, used) = (Instant::now(), processor_time());
            round.wake(target);
            times[2].push(processor_time() - used);
            times[0].push(begin.elapsed().as_secs_f64() * 1e6);
            while round.left.load(Ordering::SeqCst) < all {
                thread::yield_now();
            }
            times[1].push(begin.elapsed().as_secs_f64() * 1e6);
        }
    });
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    times
}

/// Microseconds of processor time that this thread has used.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let (threads, rounds) = (arguments.next().unwrap_or(128), arguments.next().unwrap_or(500));
    println!("{threads} threads, {rounds} rounds, {} processors; microseconds p50 / p99", available_parallelism());
    for (name, first) in [("loop", None), ("queue of 4", Some(4)), ("queue of 16", Some(16)), ("queue of 1", Some(1))] {
        let [waker, last, used] = measure(first, threads, rounds as u64);
        let at = |times: &[f64], part: f64| times[((times.len() - 1) as f64 * part) as usize];
        println!(
            "{name:12} waker free {:7.1} / {:7.1}, its processor time {:7.1} / {:7.1}, last thread out {:7.1} / {:7.1}",
            at(&waker, 0.5),
            at(&waker, 0.99),
            at(&used, 0.5),
            at(&used, 0.99),
            at(&last, 0.5),
            at(&last, 0.99),
        );
    }
}
