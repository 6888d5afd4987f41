//! How often a lock changes hands: the engine's mutex and the locks of the log buffers, under threads that do nothing
//! else.
//!
//! `cargo run --release -p foreshore-classics --example locks -- [threads] [seconds]`. Each hold adds to a few words,
//! some 20 ns of work; as much is done between two holds. Prints millions of holds a second, and the holds of the
//! luckiest thread in multiples of the unluckiest.

use foreshore_classics::log_buffers::{McsLock, Mutex8};
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{LockRank, Mutex, ParkTable, available_parallelism};
use std::time::{Duration, Instant};

/// Words that the holder changes.
#[derive(Default)]
struct Work([AtomicU64; 8]);

impl Work {
    fn step(&self) {
        for word in &self.0 {
            word.store(word.load(Ordering::Relaxed).wrapping_mul(3) + 1, Ordering::Relaxed);
        }
    }
}

/// Runs `hold` with the thread's number in all threads for a while, and returns what each thread has done.
fn measure(threads: usize, time: Duration, hold: impl Fn(usize, &Work) + Sync) -> (f64, Vec<u64>) {
    let (shared, stop) = (Work::default(), AtomicBool::new(false));
    let begin = Instant::now();
    let counts = thread::scope(|scope| {
        let spawn = |own: usize| {
            let (shared, stop, hold) = (&shared, &stop, &hold);
            scope.spawn(move || {
                let (own_work, mut count) = (Work::default(), 0);
                while !stop.load(Ordering::Relaxed) {
                    hold(own, shared);
                    own_work.step();
                    count += 1;
                }
                count
            })
        };
        let workers: Vec<_> = (0..threads).map(spawn).collect();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    (begin.elapsed().as_secs_f64(), counts)
}

fn report(name: &str, (seconds, counts): (f64, Vec<u64>)) {
    let (sum, least) = (counts.iter().sum::<u64>(), counts.iter().min().copied().unwrap_or(0).max(1));
    let most = counts.iter().max().copied().unwrap_or(0);
    println!(
        "{name:12} {:8.3} M/s, luckiest/unluckiest {:8.1}",
        sum as f64 / seconds / 1e6,
        most as f64 / least as f64
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<usize>().expect("a number"));
    let (threads, seconds) = (arguments.next().unwrap_or(16), arguments.next().unwrap_or(2));
    let time = Duration::from_secs(seconds as u64);
    println!("{threads} threads, {seconds} s each, {} processors", available_parallelism());
    let mutex = Mutex::new(LockRank::Leaf, ());
    let held = |_, work: &Work| {
        let _held = mutex.lock();
        work.step();
    };
    report("Mutex", measure(threads, time, held));
    let (lock, table) = (Mutex8::default(), ParkTable::new());
    let hold = |_, work: &Work| {
        lock.lock(&table);
        work.step();
        lock.unlock(&table);
    };
    report("Mutex8", measure(threads, time, hold));
    let lock = McsLock::new(threads);
    let hold = |own, work: &Work| {
        lock.lock(own);
        work.step();
        lock.unlock(own);
    };
    report("MCS", measure(threads, time, hold));
}
