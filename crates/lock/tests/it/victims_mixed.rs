//! Transactions of random sizes lock rows, ranges and tables in any order. Each cycle has one victim, whichever member
//! that is: a cycle that is missed, or a victim that is not told, is a time-out.

use crate::toy::{TABLE, Toy, ToyTxn, key};
use foreshore_base::{Error, Result, TableId};
use foreshore_lock::{Attempt, Interval, TableMode};
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::ops::Bound;
use std::time::Duration;

const THREADS: u64 = 8;
const TRANSACTIONS: u64 = 1_500;
const ROWS: u64 = 6;
const STEPS: u64 = 5;
/// Far more than a run takes.
const PATIENCE: Duration = Duration::from_secs(20);
const MODES: [TableMode; 4] =
    [TableMode::IntentShared, TableMode::IntentExclusive, TableMode::Shared, TableMode::Exclusive];

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn step(toy: &Toy, txn: &mut ToyTxn<'_>, random: &mut Random) -> Result<()> {
    txn.owner.set_undo_bytes(random.below(4));
    let row = random.below(ROWS) as usize;
    match random.below(8) {
        0..=3 => txn.lock(row).map(drop),
        4 => txn.read(row).map(drop),
        5..=6 => {
            let (low, high) = (key(row), key(row + random.below(3) as usize));
            let interval = Interval::between(Bound::Included(&low), Bound::Included(&high));
            while toy.locks.try_cover(&mut txn.owner, TABLE, &interval).is_none() {
                toy.locks.wait_to_cover(&mut txn.owner, TABLE, &interval, PATIENCE)?;
            }
            Ok(())
        }
        _ => {
            let (table, mode) = (TableId(100 + random.below(2) as u32), MODES[random.below(4) as usize]);
            toy.locks.lock_table(&mut txn.owner, table, mode, PATIENCE).map(drop)
        }
    }
}

#[test]
fn no_cycle_is_missed_and_no_transaction_starves() {
    let toy = Toy::new(&[0; ROWS as usize], 4_000_000, PATIENCE);
    let clock = SystemClock::new();
    let began = clock.now();
    let (victims, most) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (toy, victims, most) = (&toy, &victims, &most);
            scope.spawn(move || {
                let mut random = Random(thread.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
                for _ in 0..TRANSACTIONS {
                    let mut attempt = Attempt::default();
                    loop {
                        let mut txn = toy.begin("mixed");
                        txn.owner.begin_attempt("mixed", attempt);
                        let began = attempt.first.unwrap_or_else(|| txn.owner.began());
                        let outcome = (0..1 + random.below(STEPS)).try_for_each(|_| {
                            thread::yield_now();
                            step(toy, &mut txn, &mut random)
                        });
                        match outcome {
                            Ok(()) => break txn.commit(),
                            Err(Error::Deadlock { cycle }) => {
                                assert!(!cycle.is_empty());
                                victims.fetch_add(1, Ordering::Relaxed);
                                attempt = Attempt { first: Some(began), losses: attempt.losses + 1 };
                                most.fetch_max(u64::from(attempt.losses), Ordering::Relaxed);
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                }
            });
        }
    });
    assert!(clock.now().since(began) < PATIENCE, "a victim was not woken");
    let stats = toy.locks.stats();
    eprintln!("{stats:?}, most losses of one: {}", most.load(Ordering::Relaxed));
    assert_eq!((stats.deadlocks, stats.timeouts), (victims.load(Ordering::Relaxed), 0));
}
