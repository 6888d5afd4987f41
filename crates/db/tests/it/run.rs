//! `run` repeats what others ended, gives back what the closure refused, and commits nothing then.

use crate::support::{NUMBERS, fill, in_memory, numbers};
use foreshore::{Db, Durability, Error, Isolation, Options, TxnOptions};
use foreshore_io::Mem;
use foreshore_sync::SystemClock;
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, Ordering},
        mpsc,
    },
    time::Duration,
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

/// All threads read one row, the first time all at once, and then write it. Of those that read it at the same time,
/// all but one are victims of deadlocks.
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
                    // However slow the machine is.
                    db.run_with(TxnOptions::new().deadline(Duration::MAX), |tx| {
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

/// A row that another thread's transaction has locked.
fn with_a_locked_row(work: impl FnOnce(&Db)) {
    let (db, _) = in_memory();
    fill(&db, 1);
    let ((locked, is_locked), (over, is_over)) = (mpsc::channel(), mpsc::channel::<()>());
    std::thread::scope(|scope| {
        let of_other = db.clone();
        scope.spawn(move || {
            let other = of_other.begin_with(TxnOptions::new().label("the other"));
            other.open(NUMBERS).unwrap().insert(0, 5).unwrap();
            locked.send(()).unwrap();
            is_over.recv().expect_err("nothing is sent");
            other.rollback().unwrap();
        });
        is_locked.recv().unwrap();
        work(&db);
        drop(over);
    });
    assert_eq!(numbers(&db), [(0, 0)]);
}

#[test]
fn a_lock_timeout_is_given_back_unless_there_is_a_deadline() {
    with_a_locked_row(|db| {
        let mut runs = 0;
        let hasty = TxnOptions::new().lock_timeout(Duration::ZERO);
        let outcome = db.run_with(hasty, |tx| {
            runs += 1;
            tx.open(NUMBERS)?.insert(0, 1).map(drop)
        });
        assert!(matches!(outcome, Err(Error::LockTimeout { holder: "the other", .. })), "{outcome:?}");
        assert_eq!(runs, 1);
    });
}

#[test]
fn a_closure_that_fails_each_time_gets_the_error_of_the_last_run() {
    with_a_locked_row(|db| {
        let mut runs = 0;
        let hasty = TxnOptions::new().lock_timeout(Duration::ZERO).deadline(Duration::MAX);
        let outcome: Result<(), Refused> = db.run_with(hasty, |tx| {
            runs += 1;
            // What the closure makes of the error does not hide it.
            tx.open(NUMBERS)?.insert(0, 1).map(drop).map_err(|_| Refused::NotEnough(runs))
        });
        let Err(Refused::Engine(Error::Exhausted { runs: 100, cause })) = outcome else { panic!("{outcome:?}") };
        assert!(matches!(*cause, Error::LockTimeout { holder: "the other", .. }), "{cause}");
        assert_eq!(runs, 100);
    });
}

#[test]
fn a_deadline_ends_waits_and_names_the_blocker() {
    const DEADLINE: Duration = Duration::from_millis(150);
    with_a_locked_row(|db| {
        // One wait as long as the deadline, or many short ones.
        for (timeout, many) in [(Duration::from_secs(600), false), (Duration::from_millis(20), true)] {
            let mut count = 0;
            let outcome = db.run_with(TxnOptions::new().lock_timeout(timeout).deadline(DEADLINE), |tx| {
                count += 1;
                tx.open(NUMBERS)?.insert(0, 1).map(drop)
            });
            let Err(Error::Deadline { holder: "the other", runs, elapsed, cause }) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!((runs, runs > 1), (count, many));
            assert!(DEADLINE <= elapsed, "{elapsed:?}");
            assert!(matches!(*cause, Error::LockTimeout { .. }), "{cause}");
        }
    });
}

/// A closure that has the time for it may take longer than the deadline.
#[test]
fn a_run_without_waits_goes_on_beyond_its_deadline() {
    let (db, _) = in_memory();
    let options = TxnOptions::new().deadline(Duration::ZERO);
    db.run_with(options, |tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    assert_eq!(numbers(&db), [(1, 1)]);
}

#[test]
fn a_wait_for_a_transaction_of_the_same_thread_is_told_in_time() {
    let (db, _) = in_memory();
    fill(&db, 1);
    let outer = db.begin_with(TxnOptions::new().label("outer"));
    outer.open(NUMBERS).unwrap().insert(0, 1).unwrap();
    let patient = TxnOptions::new().lock_timeout(Duration::from_secs(600));
    let mut runs = 0;
    let inner = db.run_with(patient, |tx| {
        runs += 1;
        tx.open(NUMBERS)?.get(0).map(drop)
    });
    assert!(matches!(inner, Err(Error::OwnThreadLock { holder: "outer", .. })), "{inner:?}");
    assert!(inner.unwrap_err().to_string().contains("\"numbers\""), "the table is named");
    assert_eq!(runs, 1);
    // Another thread may end it while this one waits.
    std::thread::scope(|scope| {
        let ((given, is_given), (_hold, never)) = (mpsc::channel(), mpsc::channel::<()>());
        scope.spawn(move || {
            outer.open(NUMBERS).unwrap().insert(0, 2).unwrap();
            given.send(()).unwrap();
            never.recv_timeout(Duration::from_millis(250)).unwrap_err();
            outer.commit().unwrap();
        });
        is_given.recv().unwrap();
        assert_eq!(db.run_with(patient, |tx| tx.open(NUMBERS)?.get(0)).unwrap(), Some(2));
    });
}

/// Returns when the clock that stamps the begin of transactions has moved. The order of transactions that begin within
/// one tick is arbitrary.
fn next_tick() {
    let clock = SystemClock::new();
    let before = clock.recent();
    while clock.recent() == before {
        std::thread::yield_now();
    }
}

/// All transactions are taken by threads that end them in their time.
#[test]
fn a_transaction_waits_in_line_to_begin() {
    const THREADS: i64 = 8;
    let db = Options::new()
        .memory_limit(16 << 20)
        .max_transactions(2)
        .lab(|lab| lab.fs = Some(Arc::new(Mem::null())))
        .open("/db")
        .unwrap();
    fill(&db, 2);
    std::thread::scope(|scope| {
        for key in 0..THREADS {
            let db = &db;
            scope.spawn(move || {
                for _ in 0..20 {
                    let tx = db.begin();
                    tx.open(NUMBERS).expect("a session in time").insert(key as u64, key).unwrap();
                    std::thread::yield_now();
                    tx.commit().unwrap();
                }
            });
        }
    });
    assert_eq!(numbers(&db).len(), THREADS as usize);
    let first = db.begin_with(TxnOptions::new().label("first"));
    next_tick();
    let taken = [first, db.begin()];
    let short = TxnOptions::new().lock_timeout(Duration::from_millis(50));
    let refused = db.begin_with(short).open(NUMBERS).map(drop);
    assert!(matches!(refused, Err(Error::TooManyTransactions { max: 2, oldest: "first" })), "{refused:?}");
    let short = short.deadline(Duration::from_millis(150));
    let again = db.run_with(short, |tx| tx.open(NUMBERS).map(drop));
    assert!(matches!(again, Err(Error::Deadline { holder: "first", .. })), "{again:?}");
    drop(taken);
    db.begin_with(short).open(NUMBERS).unwrap();
}

/// One updates all rows in the order of the keys; the others five random ones each.
#[test]
fn a_large_transaction_beside_many_small_ones_gets_through() {
    const ROWS: u64 = 20_000;
    const SMALL: usize = 8;
    let db = Options::new().memory_limit(64 << 20).lab(|lab| lab.fs = Some(Arc::new(Mem::null()))).open("/db").unwrap();
    fill(&db, ROWS);
    let (over, commits, failed) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let mut runs = 0;
    let (before, after) = std::thread::scope(|scope| {
        for seed in 1..=SMALL as u64 {
            let (db, over, commits, failed) = (&db, &over, &commits, &failed);
            scope.spawn(move || {
                let mut state = seed;
                while !over.load(Ordering::Relaxed) {
                    let done = db.run(|tx| {
                        let table = tx.open(NUMBERS)?;
                        (0..5).try_for_each(|_| {
                            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            let key = (state >> 33) % ROWS;
                            let value = table.get_for_update(key)?.expect("a row");
                            table.insert(key, value + 1).map(drop)
                        })
                    });
                    let count = if done.is_ok() { commits } else { failed };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while commits.load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        let before = commits.load(Ordering::Relaxed);
        let large = db.run(|tx| {
            runs += 1;
            let table = tx.open(NUMBERS)?;
            (0..ROWS).try_for_each(|key| {
                let value = table.get_for_update(key)?.expect("a row");
                table.insert(key, value + 1_000_000).map(drop)
            })
        });
        let after = commits.load(Ordering::Relaxed);
        while commits.load(Ordering::Relaxed) < after + 100 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Relaxed);
        large.expect("it gets through");
        (before, after)
    });
    assert!(runs <= 20, "{runs} runs");
    assert_eq!(failed.into_inner(), 0, "the small ones get through, too");
    let sum: i64 = numbers(&db).iter().map(|&(_, value)| value).sum();
    let first: i64 = (0..ROWS as i64).sum();
    assert_eq!(sum, first + ROWS as i64 * 1_000_000 + 5 * i64::from(commits.into_inner()));
    println!("{runs} runs of the large one, {} commits of small ones meanwhile", after - before);
}

/// E6: a result without a commit waits like one. No thread in the background writes the log.
#[test]
fn a_refusal_waits_for_the_commit_that_it_rests_on() {
    let db = Options::new()
        .memory_limit(16 << 20)
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::new(Mem::null()));
        })
        .open("/db")
        .unwrap();
    db.run(|tx| tx.open(NUMBERS)?.insert(1, 1).map(drop)).unwrap();
    let relaxed = db.begin_with(TxnOptions::new().durability(Durability::Relaxed));
    relaxed.open(NUMBERS).unwrap().insert(2, 2).unwrap();
    let csn = relaxed.commit().unwrap();
    assert!(db.durable_csn() < csn, "a relaxed commit does not wait for the device");
    let refused = db.run(|tx| tx.open(NUMBERS)?.insert_new(2, 3));
    assert!(matches!(refused, Err(Error::KeyExists { .. })));
    let durable = db.durable_csn();
    assert!(durable >= csn, "refused at {durable} because of the commit {csn}");
}

#[test]
fn a_transaction_that_waits_for_no_lock_is_run_again_after_a_conflict() {
    let (db, _) = in_memory();
    fill(&db, 2);
    let options = TxnOptions::new().isolation(Isolation::Snapshot).lock_timeout(Duration::ZERO);
    let mut runs = 0;
    let done = db.run_with(options, |tx| {
        let table = tx.open(NUMBERS)?;
        table.get(1)?;
        runs += 1;
        if runs == 1 {
            db.run(|tx| tx.open(NUMBERS)?.insert(1, 7).map(drop))?;
        }
        table.insert(1, 8).map(drop)
    });
    assert!(done.is_ok() && runs == 2, "{runs} runs: {done:?}");
}
