//! 32 threads move money between hot rows and meet in deadlocks: sums hold, reads repeat, no thread hangs.

use crate::toy::{Toy, small};
use foreshore_base::Error;
use foreshore_io::Mem;
use foreshore_sync::primitive::thread;

const THREADS: u64 = 32;
const COMMITS: u64 = 40;
const ROWS: u64 = 5;
const TOTAL: i64 = 100 * ROWS as i64;

#[test]
fn sums_hold_and_no_thread_hangs() {
    let (toy, _) = Toy::new(Mem::null(), &[100; ROWS as usize], small());
    thread::scope(|scope| {
        for seed in 1..=THREADS {
            let toy = &toy;
            scope.spawn(move || {
                let (mut random, mut commits) = (seed, 0);
                while commits < COMMITS {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    match work(toy, random >> 33) {
                        Ok(()) => commits += 1,
                        Err(Error::Deadlock { .. }) => (),
                        Err(error) => panic!("{error:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(toy.sum(), TOTAL);
    let stats = toy.manager.stats();
    assert_eq!(stats.commits, THREADS * COMMITS);
    assert_eq!((stats.aborts, stats.locks.timeouts), (stats.locks.deadlocks, 0));
}

fn work(toy: &Toy, choice: u64) -> Result<(), Error> {
    let (from, to) = (choice % ROWS, choice / ROWS % ROWS);
    let mut txn = toy.begin("work");
    if (choice / 64).is_multiple_of(4) {
        let sum = (0..ROWS).map(|row| toy.get(&mut txn, (row + from) % ROWS)).sum::<Result<i64, _>>()?;
        assert_eq!(sum, TOTAL, "a reader saw half a transfer");
    } else {
        let seen = toy.get(&mut txn, from)?;
        thread::yield_now();
        assert_eq!(toy.add(&mut txn, from, -7)?, seen - 7, "a read did not repeat");
        toy.add(&mut txn, to, 7)?;
    }
    if (choice / 256).is_multiple_of(2) {
        // WAIT: help - or park behind the leader, with all locks free.
        txn.commit()?.wait()
    } else {
        txn.commit_pipelined().map(drop)
    }
}
