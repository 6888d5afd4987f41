//! `run` repeats what others ended, gives back what the closure refused, and commits nothing then.

use crate::support::{NUMBERS, fill, in_memory, numbers};
use foreshore::{Durability, Error, Options, TxnOptions};
use foreshore_io::{Device, Fs, Mem};
use std::{
    path::Path,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

#[derive(Debug)]
enum Refused {
    NotEnough(i64),
    Engine(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

#[test]
fn an_error_of_the_closure_comes_back_and_nothing_is_committed() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let result = db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        table.insert(3, 0)?;
        match table.get(4)? {
            Some(balance) if balance < 100 => Err(Refused::NotEnough(balance)),
            _ => Ok(()),
        }
    });
    assert!(matches!(result, Err(Refused::NotEnough(4))), "{result:?}");
    assert_eq!(numbers(&db)[3], (3, 3));
}

#[test]
fn a_deadlock_is_run_again_until_both_are_through() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let runs = AtomicU32::new(0);
    let both_hold_one = Barrier::new(2);
    std::thread::scope(|scope| {
        for (first, second) in [(0, 1), (1, 0)] {
            let (db, runs, both_hold_one) = (&db, &runs, &both_hold_one);
            scope.spawn(move || {
                let mut is_first_run = true;
                db.run(|tx| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    let table = tx.open(NUMBERS)?;
                    let one = table.get_for_update(first)?.unwrap();
                    if std::mem::take(&mut is_first_run) {
                        both_hold_one.wait();
                    }
                    let other = table.get_for_update(second)?.unwrap();
                    table.insert(first, one + 10)?;
                    table.insert(second, other + 10)?;
                    Ok::<_, Error>(())
                })
                .unwrap();
            });
        }
    });
    assert_eq!(numbers(&db), [(0, 20), (1, 21)]);
    // The victim may be back before the other one runs, and meet it again.
    let deadlocks = db.stats().lock.deadlocks;
    assert!(deadlocks >= 1);
    assert_eq!(u64::from(runs.load(Ordering::Relaxed)), 2 + deadlocks, "one run each, and one more for each victim");
}

/// Everybody reads one row, all of them at once the first time, and then writes it: of those who have read it at a time all but
/// one are victims of deadlocks.
#[test]
fn a_storm_of_upgrades_of_one_row_lets_everybody_through() {
    const THREADS: u32 = 128;
    const UPGRADES: u32 = 30;
    let (db, _) = in_memory();
    fill(&db, 1);
    let all_have_read = Barrier::new(THREADS as usize);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut is_first = true;
                for _ in 0..UPGRADES {
                    db.run(|tx| {
                        let table = tx.open(NUMBERS)?;
                        let count = table.get(0)?.expect("a row");
                        if std::mem::take(&mut is_first) {
                            all_have_read.wait();
                        }
                        // The others come and read it too.
                        (0..30).for_each(|_| std::thread::yield_now());
                        table.insert(0, count + 1).map(drop)
                    })
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(numbers(&db), [(0, i64::from(THREADS * UPGRADES))]);
    assert!(db.stats().lock.deadlocks >= u64::from(THREADS) - 1, "one got through at first");
}

#[test]
fn who_is_ended_each_time_hears_what_ended_the_last_run() {
    let (db, _) = in_memory();
    fill(&db, 1);
    let other = db.begin_with(TxnOptions::new().label("the other"));
    other.open(NUMBERS).unwrap().insert(0, 5).unwrap();
    let mut runs = 0;
    let hasty = TxnOptions::new().lock_timeout(Duration::ZERO);
    let outcome: Result<(), Refused> = db.run_with(hasty, |tx| {
        runs += 1;
        // What the closure makes of the error does not hide it.
        tx.open(NUMBERS)?.insert(0, 1).map(drop).map_err(|_| Refused::NotEnough(runs))
    });
    let Err(Refused::Engine(Error::Exhausted { runs: 100, cause })) = outcome else { panic!("{outcome:?}") };
    assert!(matches!(*cause, Error::LockTimeout { holder: "the other", .. }), "{cause}");
    assert_eq!(runs, 100);
    other.rollback().unwrap();
    assert_eq!(numbers(&db), [(0, 0)]);
}

/// All transactions are taken for longer than a run needs to be refused a hundred times.
#[test]
fn who_finds_no_free_transaction_gives_the_others_time() {
    const LONG: Duration = Duration::from_millis(100);
    let db = Options::new().memory_limit(16 << 20).max_transactions(2).fs(Arc::new(Mem::null())).open("/db").unwrap();
    fill(&db, 2);
    let all_are_taken = Barrier::new(3);
    let refused = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for key in [0, 1] {
            let (db, all_are_taken) = (&db, &all_are_taken);
            scope.spawn(move || {
                let tx = db.begin();
                tx.open(NUMBERS).unwrap().insert(key, 10).unwrap();
                all_are_taken.wait();
                // Work that takes so long.
                std::thread::sleep(LONG);
                tx.commit().unwrap();
            });
        }
        all_are_taken.wait();
        db.run(|tx| {
            let table = tx.open(NUMBERS);
            refused.fetch_add(u32::from(table.is_err()), Ordering::Relaxed);
            table?.insert(2, 10).map(drop)
        })
        .unwrap();
    });
    assert!(refused.into_inner() > 8, "runs that pause are not 100 ms apart");
    assert_eq!(numbers(&db), [(0, 10), (1, 10), (2, 10)]);
}

/// E6: a result without a commit waits like one.
#[test]
fn a_refusal_waits_for_the_commit_that_it_rests_on() {
    const DELAY: Duration = Duration::from_millis(60);
    let fs: Arc<dyn Fs> = Device::Delay(DELAY).open(Path::new("/")).unwrap();
    let db = Options::new().memory_limit(16 << 20).fs(fs).open("/db").unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let started = Instant::now();
    let relaxed = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
    relaxed.open(NUMBERS).unwrap().insert(2, 2).unwrap();
    let csn = relaxed.commit().unwrap();
    assert!(started.elapsed() < DELAY, "a relaxed commit does not wait for the device");
    let refused = db.run(|tx| tx.open(NUMBERS)?.insert_new(2, 3));
    assert!(matches!(refused, Err(Error::KeyExists)));
    let durable = db.durable_csn();
    assert!(durable >= csn, "refused at {durable} because of the commit {csn}");
}
