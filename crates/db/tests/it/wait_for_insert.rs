//! Consumers of a queue wait for inserts without polling: no insert is missed, and every wait ends.

use crate::script::disk;
use crate::support::{DIR, NUMBERS, TEXTS, block_on, fill, in_memory, small};
use foreshore::{Db, Error, InsertWatch, RowLock, TableDef, Transaction};
use foreshore_io::sim::{Fault, FaultKind};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake};
use std::thread;
use std::time::Duration;

/// Longest time for a wake-up. After this time the test fails.
const SOON: Duration = Duration::from_secs(60);

/// Takes the signal, if there is one.
fn signalled(watch: &mut InsertWatch) -> bool {
    watch.wait(Duration::ZERO).unwrap()
}

fn watched() -> (Db, InsertWatch) {
    let (db, _) = in_memory();
    fill(&db, 10);
    db.run(|tx| tx.open(TEXTS).map(drop)).unwrap();
    let watch = db.watch_inserts(NUMBERS).unwrap();
    (db, watch)
}

#[test]
fn a_commit_with_an_insert_signals_and_others_do_not() {
    let (db, mut watch) = watched();
    assert!(!signalled(&mut watch), "what was committed before");
    let tx = db.begin();
    let table = tx.open(NUMBERS).unwrap();
    table.insert(100, 1).unwrap();
    assert!(!signalled(&mut watch), "not committed");
    tx.commit().unwrap();
    assert!(signalled(&mut watch));
    assert!(!signalled(&mut watch), "taken");
    type Work = fn(&Transaction) -> Result<(), Error>;
    let cases: [(bool, Work); 12] = [
        (false, |tx| tx.open(NUMBERS)?.put(1, 7)),
        (false, |tx| tx.open(NUMBERS)?.insert(1, 7).map(drop)),
        (false, |tx| tx.open(NUMBERS)?.remove(2).map(drop)),
        (false, |tx| tx.open(NUMBERS)?.get(1).map(drop)),
        (false, |tx| tx.open(TEXTS)?.insert("a", "b").map(drop)),
        (true, |tx| tx.open(NUMBERS)?.put(101, 7)),
        (true, |tx| tx.open(NUMBERS)?.insert_new(102, 7)),
        (true, |tx| tx.open(NUMBERS)?.entry(103)?.or_insert(7).map(drop)),
        (true, |tx| tx.open(NUMBERS)?.entry(104)?.insert(7).map(drop)),
        (true, |tx| tx.open(NUMBERS)?.update_with(105, |_| Some(7)).map(drop)),
        // A row that is there again.
        (true, |tx| tx.open(NUMBERS)?.put(2, 7)),
        // More tables than a transaction notes one by one.
        (true, |tx| {
            for name in ["a", "b", "c", "d", "e"] {
                tx.open(TableDef::<u64, i64>::new(name))?.put(1, 1)?;
            }
            tx.open(NUMBERS)?.put(106, 7)
        }),
    ];
    for (number, (signals, work)) in cases.into_iter().enumerate() {
        db.run(work).unwrap();
        assert_eq!(signalled(&mut watch), signals, "case {number}");
    }
}

#[test]
fn a_value_written_in_parts_and_a_raw_row_signal_too() {
    const FILES: TableDef<u64, &[u8]> = TableDef::new("files");
    let (db, _) = in_memory();
    let mut watch = db.watch_inserts(FILES).unwrap();
    for signals in [true, false] {
        db.run(|tx| tx.open(FILES)?.insert_reader(1, &[7; 100_000][..], None)).unwrap();
        assert_eq!(signalled(&mut watch), signals);
    }
    db.run(|tx| tx.open_raw("files")?.put(&[7; 8][..], &[1][..])).unwrap();
    assert!(signalled(&mut watch));
}

/// A consumer skips the row of another one, and has to learn that it is free again.
#[test]
fn a_claim_that_is_given_up_signals() {
    let (db, mut watch) = watched();
    let claim = || {
        let tx = db.begin();
        let table = tx.open(NUMBERS).unwrap();
        let (key, _) = table.range_locked(.., RowLock::update().skip_locked()).next().unwrap().unwrap();
        assert_eq!(key, 0);
        let savepoint = tx.savepoint().unwrap();
        table.remove(key).unwrap();
        drop(table);
        (tx, savepoint)
    };
    drop(claim());
    assert!(signalled(&mut watch), "a drop");
    claim().0.rollback().unwrap();
    assert!(signalled(&mut watch), "a rollback");
    let (tx, savepoint) = claim();
    tx.rollback_to(&savepoint).unwrap();
    assert!(!signalled(&mut watch), "the row stays locked");
    tx.commit().unwrap();
    assert!(signalled(&mut watch), "a commit after a rollback to a savepoint");
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().get_for_update(0).unwrap();
    tx.commit().unwrap();
    assert!(signalled(&mut watch), "a lock alone");
    db.run(|tx| {
        tx.open(NUMBERS)?.remove(0)?;
        Err::<(), _>(Error::NoSavepoint)
    })
    .unwrap_err();
    assert!(signalled(&mut watch), "an error of a closure");
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().get(0).unwrap();
    drop(tx);
    assert!(!signalled(&mut watch), "a reader frees no row");
}

#[test]
fn a_prepared_transaction_signals_when_it_is_resolved() {
    let (db, mut watch) = watched();
    for commits in [true, false] {
        let tx = db.begin();
        tx.open(NUMBERS).unwrap().insert(100 + u64::from(commits), 1).unwrap();
        tx.prepare("one").unwrap();
        assert!(!signalled(&mut watch));
        if commits { db.commit_prepared("one").map(drop) } else { db.rollback_prepared("one") }.unwrap();
        assert!(signalled(&mut watch));
    }
}

/// Transactions begun before the watch, and committed after it, count.
#[test]
fn a_watch_made_during_an_insert_is_signalled_by_its_commit() {
    let (db, _) = watched();
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(100, 1).unwrap();
    let mut watch = db.watch_inserts(NUMBERS).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| watch.wait(SOON));
        tx.commit().unwrap();
        assert!(waits.join().unwrap().unwrap());
    });
}

/// Producers and consumers: each job is taken once, and no consumer polls. A lost wake-up would hang the test.
#[test]
fn every_job_is_taken_once_by_consumers_that_wait_without_a_limit() {
    const JOBS: u64 = 400;
    const PRODUCERS: u64 = 4;
    let (db, _) = in_memory();
    let (report, reports) = mpsc::channel();
    let take = |db: &Db, skips: bool| {
        db.run(|tx| {
            let table = tx.open(NUMBERS)?;
            if !skips {
                return table.pop_first();
            }
            let found = table.range_locked(.., RowLock::update().skip_locked()).next().transpose()?;
            found.iter().try_for_each(|&(key, _)| table.remove(key).map(drop))?;
            Ok::<_, Error>(found)
        })
    };
    thread::scope(|scope| {
        let (db, take) = (&db, &take);
        for consumer in 0..4 {
            let report = report.clone();
            scope.spawn(move || {
                let mut watch = db.watch_inserts(NUMBERS).unwrap();
                loop {
                    match take(db, consumer % 2 == 0) {
                        Ok(Some((job, _))) => report.send(job).unwrap(),
                        Ok(None) if consumer == 0 => match block_on(&mut watch) {
                            Ok(()) => {}
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        },
                        Ok(None) => match watch.wait(Duration::MAX) {
                            Ok(is_signalled) => assert!(is_signalled, "a wait without a limit"),
                            Err(Error::Closed) => return,
                            Err(error) => panic!("{error}"),
                        },
                        Err(Error::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        let mut seen = vec![0; (JOBS * PRODUCERS) as usize];
        // One by one first: each consumer is likely to wait.
        for job in 0..JOBS {
            db.run(|tx| tx.open(NUMBERS)?.put(job, 1)).unwrap();
            seen[reports.recv_timeout(SOON).expect("the job is taken") as usize] += 1;
        }
        let producers = (1..PRODUCERS).map(|producer| {
            scope.spawn(move || {
                for job in producer * JOBS..(producer + 1) * JOBS {
                    let (_, ticket) = db.run_pipelined(|tx| tx.open(NUMBERS)?.put(job, 1)).unwrap();
                    drop(ticket);
                }
            })
        });
        producers.collect::<Vec<_>>().into_iter().for_each(|producer| producer.join().unwrap());
        for _ in JOBS..JOBS * PRODUCERS {
            seen[reports.recv_timeout(SOON).expect("the job is taken") as usize] += 1;
        }
        db.close(SOON).unwrap();
        assert!(seen.iter().all(|&times| times == 1), "{seen:?}");
    });
    assert!(reports.try_recv().is_err(), "no job is taken twice");
}

#[derive(Default)]
struct Count(AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_watch_is_a_future_that_can_be_awaited_again() {
    let (db, mut watch) = watched();
    let count = Arc::new(Count::default());
    let waker = Arc::clone(&count).into();
    let mut context = Context::from_waker(&waker);
    for round in 1..4 {
        assert!(Pin::new(&mut watch).poll(&mut context).is_pending());
        db.run(|tx| tx.open(NUMBERS)?.put(100 + round, 1)).unwrap();
        assert_eq!(u64::from(count.0.load(Ordering::Relaxed)), round, "woken by the commit");
        db.run(|tx| tx.open(NUMBERS)?.put(200 + round, 1)).unwrap();
        assert_eq!(u64::from(count.0.load(Ordering::Relaxed)), round, "woken once");
        assert!(Pin::new(&mut watch).poll(&mut context).is_ready());
    }
    assert!(Pin::new(&mut watch).poll(&mut context).is_pending());
    drop(watch);
    drop(waker);
    assert_eq!(Arc::strong_count(&count), 1, "a watch dropped in a wait leaves nothing");
    db.run(|tx| tx.open(NUMBERS)?.put(300, 1)).unwrap();
    assert_eq!(count.0.load(Ordering::Relaxed), 3);
}

#[test]
fn the_end_of_the_database_ends_all_waits() {
    for poisons in [false, true] {
        let sim = disk(8);
        let db = small().lab(|lab| lab.fs = Some(Arc::new(sim.clone()))).open(DIR).unwrap();
        fill(&db, 10);
        let mut watches = [(); 3].map(|()| db.watch_inserts(NUMBERS).unwrap());
        let is_expected = |error: &Error| match error {
            Error::Closed => !poisons,
            Error::Poisoned { .. } => poisons,
            _ => false,
        };
        thread::scope(|scope| {
            let waits = watches.each_mut().map(|watch| scope.spawn(|| watch.wait(Duration::MAX)));
            if poisons {
                sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
                db.run(|tx| tx.open(NUMBERS)?.put(1, 1)).unwrap_err();
            } else {
                db.close(Duration::ZERO).unwrap();
            }
            for wait in waits {
                let ended = wait.join().unwrap();
                assert!(ended.as_ref().is_err_and(is_expected), "{ended:?}");
            }
        });
        let [watch, ..] = &mut watches;
        let later = block_on(watch);
        assert!(later.as_ref().is_err_and(is_expected), "{later:?}");
        let refused = db.watch_inserts(NUMBERS).map(drop);
        assert!(refused.as_ref().is_err_and(is_expected), "{refused:?}");
    }
}

#[test]
fn the_drop_of_the_table_ends_the_wait() {
    let (db, mut watch) = watched();
    let mut other = db.watch_inserts(TEXTS).unwrap();
    let tx = db.begin();
    assert!(tx.drop_table("numbers").unwrap());
    drop(tx);
    assert!(watch.wait(Duration::ZERO).is_ok(), "the drop is rolled back");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut waits = 0;
            loop {
                match watch.wait(SOON) {
                    Ok(is_signalled) => assert!(is_signalled && waits < 10, "not woken"),
                    Err(error) => return error,
                }
                waits += 1;
            }
        });
        assert!(db.run(|tx| tx.drop_table("numbers")).unwrap());
        let error = waits.join().unwrap();
        assert!(matches!(&error, Error::TableDropped { .. }) && error.to_string().contains("numbers"), "{error}");
    });
    assert!(!signalled(&mut other));
    let mut anew = db.watch_inserts(NUMBERS).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.put(1, 1)).unwrap();
    assert!(signalled(&mut anew));
    assert!(matches!(watch.wait(Duration::ZERO), Err(Error::TableDropped { .. })));
}
