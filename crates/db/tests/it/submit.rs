//! Submitted transactions: results, retries, durability, cancellation, panics, and the end of the database.

use crate::script::disk;
use crate::support::{DIR, NUMBERS, block_on, fill, in_memory, numbers, open, small};
use foreshore::{CommitTicket, Db, Durability, Error, Isolation, Submitted, Transaction, TxnOptions};
use foreshore_io::sim::Persist;
use foreshore_io::{Fs, Mem, Sim};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// More than there are workers.
const MANY: u64 = 300;
/// Longest time for what happens at once. After this time the test fails.
const SOON: Duration = Duration::from_secs(60);

/// A database whose jobs run only in [`Db::step`].
fn without_threads() -> (Db, Arc<dyn Fs>) {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let options = small().lab(|lab| {
        lab.background = false;
        lab.fs = Some(Arc::clone(&fs));
    });
    let db = options.open(DIR).unwrap();
    fill(&db, 10);
    (db, fs)
}

fn insert(db: &Db, key: u64) -> Submitted<Option<i64>, Error> {
    db.submit(move |tx| tx.open(NUMBERS)?.insert(key, 1))
}

fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Steps until the future is ready.
fn step_until_ready<T>(db: &Db, future: &mut (impl Future<Output = T> + Unpin)) -> T {
    let begun = Instant::now();
    loop {
        if let std::task::Poll::Ready(value) = Pin::new(&mut *future).poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        assert!(begun.elapsed() < SOON, "not ready");
        db.step();
    }
}

#[derive(Debug)]
enum Refused {
    Sold,
    Engine(Error),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

#[test]
fn a_future_resolves_to_the_value_or_the_error_of_its_closure() {
    let (db, _) = in_memory();
    assert_eq!(block_on(insert(&db, 1)).unwrap(), None);
    assert_eq!(block_on(insert(&db, 1)).unwrap(), Some(1));
    let refused = block_on(db.submit(|tx: &Transaction| {
        tx.open(NUMBERS)?.insert(2, 2)?;
        Err::<(), _>(Refused::Sold)
    }));
    assert!(matches!(refused, Err(Refused::Sold)));
    let failed = block_on(db.submit(|tx: &Transaction| {
        tx.open(NUMBERS)?.insert_new(1, 1)?;
        Ok::<_, Refused>(())
    }));
    assert!(matches!(failed, Err(Refused::Engine(Error::KeyExists { .. }))));
    assert_eq!(numbers(&db), [(1, 1)], "errors roll back");
}

#[test]
fn a_closure_that_another_transaction_ended_runs_again() {
    let (db, _) = in_memory();
    fill(&db, 1);
    let ((report, reports), (go, went)) = (mpsc::channel(), mpsc::channel());
    let runs = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&runs);
    let future = db.submit_with(TxnOptions::new().isolation(Isolation::Snapshot), move |tx| {
        let table = tx.open(NUMBERS)?;
        let old = table.get(0)?.unwrap();
        if count.fetch_add(1, Ordering::Relaxed) == 0 {
            report.send(()).unwrap();
            went.recv().unwrap();
        }
        table.insert(0, old + 1)
    });
    reports.recv_timeout(SOON).unwrap();
    db.run(|tx| tx.open(NUMBERS)?.put(0, 10)).unwrap();
    go.send(()).unwrap();
    assert_eq!(block_on(future).unwrap(), Some(10), "it has read the new value");
    assert_eq!((runs.load(Ordering::Relaxed), numbers(&db)), (2, vec![(0, 11)]));
}

fn on_disk(sim: &Sim) -> Db {
    let db = small().lab(|lab| lab.fs = Some(Arc::new(sim.clone()))).open(DIR).unwrap();
    fill(&db, 1);
    db
}

/// The log's writes are held, and all closures run nevertheless: there are more of them than workers.
#[test]
fn workers_go_on_while_the_disk_is_busy_and_futures_wait_for_it() {
    let sim = disk(3);
    let db = on_disk(&sim);
    sim.hold(|path| path.extension().is_some_and(|extension| extension == "seg"));
    let (report, reports) = mpsc::channel();
    let mut futures: Vec<_> = (1..=100)
        .map(|key| {
            let report = report.clone();
            db.submit(move |tx| {
                report.send(()).unwrap();
                tx.open(NUMBERS)?.insert(key, 1)
            })
        })
        .collect();
    for _ in 0..100 {
        reports.recv_timeout(SOON).expect("it runs");
    }
    assert!(futures.iter_mut().all(is_pending), "nothing is durable");
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    block_on(db.submit_with(relaxed, |tx| tx.open(NUMBERS)?.insert(1000, 1))).unwrap();
    sim.stop_holding();
    for future in futures {
        assert_eq!(block_on(future).unwrap(), None);
    }
    let image = sim.crash_image(&Persist::None, 0);
    let survived = numbers(&small().lab(|lab| lab.fs = Some(Arc::new(image))).open(DIR).unwrap());
    assert_eq!(survived[1..101], (1..=100).map(|key| (key, 1)).collect::<Vec<_>>());
}

#[test]
fn a_commit_that_may_not_survive_is_an_error() {
    let sim = disk(4);
    let db = on_disk(&sim);
    let mut commits = db.watch_inserts(NUMBERS).unwrap();
    sim.hold(|path| path.extension().is_some_and(|extension| extension == "seg"));
    let future = insert(&db, 1);
    assert!(commits.wait(SOON).unwrap(), "committed, and not durable");
    sim.power_off();
    let failed = block_on(future);
    assert!(matches!(failed, Err(Error::Poisoned { .. })), "{failed:?}");
    assert!(matches!(block_on(insert(&db, 2)), Err(Error::Poisoned { .. })));
}

#[test]
fn a_future_dropped_before_the_start_cancels_its_closure() {
    let (db, _) = without_threads();
    let kept = Arc::new(());
    let runs = Arc::new(AtomicU64::new(0));
    let mut futures: Vec<_> = (0..3_u64)
        .map(|n| {
            let (kept, runs) = (Arc::clone(&kept), Arc::clone(&runs));
            db.submit(move |tx| {
                let _kept = &kept;
                runs.fetch_add(1 << (8 * n), Ordering::Relaxed);
                tx.open(NUMBERS)?.insert(100 + n, 1)
            })
        })
        .collect();
    drop(futures.remove(1));
    assert_eq!(Arc::strong_count(&kept), 3, "the closure is dropped with its future");
    for mut future in futures {
        step_until_ready(&db, &mut future).unwrap();
    }
    (0..100).for_each(|_| db.step());
    assert_eq!(runs.load(Ordering::Relaxed), 0x01_00_01);
    assert_eq!(numbers(&db)[10..], [(100, 1), (102, 1)]);
}

/// Says when it is dropped.
struct Dropped(mpsc::Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.send(()).unwrap();
    }
}

#[test]
fn a_future_dropped_after_the_start_leaves_the_transaction_to_its_end() {
    let (db, _) = in_memory();
    fill(&db, 1);
    let ((report, reports), (go, went)) = (mpsc::channel(), mpsc::channel());
    let (dropped, drops) = mpsc::channel();
    let mut future = db.submit(move |tx| {
        report.send(()).unwrap();
        went.recv().unwrap();
        tx.open(NUMBERS)?.insert(1, 1)?;
        Ok::<_, Error>(Dropped(dropped.clone()))
    });
    reports.recv_timeout(SOON).unwrap();
    assert!(is_pending(&mut future));
    drop(future);
    go.send(()).unwrap();
    drops.recv_timeout(SOON).expect("the result is dropped");
    assert_eq!(numbers(&db), [(0, 0), (1, 1)]);
}

#[test]
fn a_panic_resumes_where_the_future_is_polled() {
    let (db, _) = in_memory();
    fill(&db, 1);
    for _ in 0..20 {
        let future = db.submit(|tx: &Transaction| {
            tx.open(NUMBERS)?.insert(1, 1)?;
            if tx.open(NUMBERS)?.get(1)?.is_some() {
                panic!("out of ink");
            }
            Ok::<_, Error>(())
        });
        let panic = catch_unwind(AssertUnwindSafe(|| block_on(future))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"out of ink"));
    }
    assert_eq!(numbers(&db), [(0, 0)], "rolled back");
    assert_eq!(block_on(insert(&db, 1)).unwrap(), None, "the workers go on");
}

/// A result that panics when it is dropped, and a future that drops it: neither ends the worker.
#[test]
fn a_panic_of_a_dropped_result_ends_no_worker() {
    struct Broken;
    impl Drop for Broken {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let (db, _) = without_threads();
    let future = db.submit(|_: &Transaction| {
        std::panic::panic_any(Broken);
        #[expect(unreachable_code, reason = "the type of the result")]
        Ok::<(), Error>(())
    });
    drop(future);
    let ((report, reports), (go, went)) = (mpsc::channel(), mpsc::channel());
    let (db, _) = in_memory();
    let future = db.submit(move |_: &Transaction| {
        report.send(()).unwrap();
        went.recv().unwrap();
        std::panic::panic_any(Broken);
        #[expect(unreachable_code, reason = "the type of the result")]
        Ok::<(), Error>(())
    });
    reports.recv_timeout(SOON).unwrap();
    drop(future);
    go.send(()).unwrap();
    for key in 0..MANY {
        assert_eq!(block_on(insert(&db, key)).unwrap(), None);
    }
}

#[test]
fn close_refuses_closures_that_have_not_started() {
    let (db, fs) = without_threads();
    let mut futures: Vec<_> = (100..103).map(|key| insert(&db, key)).collect();
    assert!(futures.iter_mut().all(is_pending));
    db.close(Duration::ZERO).unwrap();
    for future in futures {
        assert!(matches!(block_on(future), Err(Error::Closed)));
    }
    assert!(matches!(block_on(insert(&db, 103)), Err(Error::Closed)));
    drop(db);
    assert_eq!(numbers(&open(&fs).unwrap()).len(), 10);
}

#[test]
fn the_drop_of_the_last_handle_refuses_them_too() {
    let (db, fs) = without_threads();
    let future = insert(&db, 100);
    drop(db);
    assert!(matches!(block_on(future), Err(Error::Closed)));
    assert_eq!(numbers(&open(&fs).unwrap()).len(), 10);
}

/// Closures hold all workers, and others are queued behind them.
#[test]
fn close_waits_for_closures_that_run() {
    let (db, fs) = in_memory();
    fill(&db, 1);
    let (report, reports) = mpsc::channel();
    let mut gates = Vec::new();
    let mut futures: Vec<_> = (1..=MANY)
        .map(|key| {
            let ((go, went), report) = (mpsc::channel::<()>(), report.clone());
            gates.push(go);
            db.submit(move |tx| {
                tx.open(NUMBERS)?.insert(key, 1)?;
                report.send(key).unwrap();
                went.recv().unwrap();
                Ok::<_, Error>(key)
            })
        })
        .collect();
    let first = reports.recv_timeout(SOON).unwrap();
    assert!(first <= MANY);
    thread::scope(|scope| {
        let closer = scope.spawn(|| db.close(Duration::from_secs(600)));
        // The queue is refused before the wait for those that run.
        let last = futures.pop().unwrap();
        assert!(matches!(block_on(last), Err(Error::Closed)));
        for go in &gates {
            // A closure that was refused has no gate any more.
            let _ = go.send(());
        }
        closer.join().unwrap().unwrap();
    });
    let results: Vec<_> = futures.into_iter().map(block_on).collect();
    let done: Vec<u64> = results.iter().filter_map(|result| result.as_ref().ok().copied()).collect();
    let refused = results.iter().filter(|result| matches!(result, Err(Error::Closed))).count();
    assert!(!done.is_empty() && done.len() + refused == results.len(), "{} ran, {refused} refused", done.len());
    assert!(done.contains(&first) || first == MANY, "a closure that ran has committed");
    let rows: Vec<u64> = numbers(&open(&fs).unwrap()).into_iter().skip(1).map(|(key, _)| key).collect();
    assert_eq!(rows, done, "what has resolved is what is there");
}

#[test]
fn a_closure_may_hold_or_close_its_database() {
    for closes in [false, true] {
        let (db, fs) = in_memory();
        fill(&db, 1);
        let other = db.clone();
        let future = db.submit(move |tx| {
            let old = tx.open(NUMBERS)?.insert(1, 1)?;
            if closes {
                other.close(Duration::ZERO)?;
            }
            Ok::<_, Error>(old)
        });
        drop(db);
        match (closes, block_on(future)) {
            (false, Ok(None)) | (true, Err(Error::Closed)) => {}
            (_, result) => panic!("{result:?}"),
        }
        // The worker has dropped the last handle before the future resolved.
        let again = open(&fs).unwrap();
        assert_eq!(numbers(&again).len(), if closes { 1 } else { 2 });
    }
}

/// As many closures wait for a lock as there are workers, and more are queued. Its holder needs no worker.
#[test]
fn closures_wait_for_a_lock_of_another_transaction_and_for_each_other() {
    let (db, _) = in_memory();
    fill(&db, 4);
    let holder = db.begin();
    for row in 0..4 {
        holder.open(NUMBERS).unwrap().get_for_update(row).unwrap();
    }
    // Each takes two rows, in one order or the other: deadlocks come, and are retried.
    let add = |n: u64| {
        db.submit(move |tx| {
            let table = tx.open(NUMBERS)?;
            for row in [n % 4, (n / 4) % 4] {
                let old = table.get_for_update(row)?.unwrap();
                table.put(row, old + 1)?;
            }
            Ok::<_, Error>(())
        })
    };
    let futures: Vec<_> = (0..MANY).map(add).collect();
    holder.commit().unwrap();
    for future in futures {
        block_on(future).unwrap();
    }
    let sum: i64 = numbers(&db).into_iter().map(|(_, value)| value).sum();
    assert_eq!(sum as u64, 1 + 2 + 3 + 2 * MANY);
}

#[test]
fn only_the_last_waker_is_woken() {
    struct Count(AtomicU32);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (db, _) = without_threads();
    let mut future = insert(&db, 100);
    let counts = [0; 2].map(|zero| Arc::new(Count(AtomicU32::new(zero))));
    for count in &counts {
        let waker = Arc::clone(count).into();
        assert!(Pin::new(&mut future).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!(Arc::strong_count(&counts[0]), 1, "the first waker is dropped");
    db.close(Duration::ZERO).unwrap();
    assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
    assert!(matches!(block_on(future), Err(Error::Closed)));
}

#[test]
fn a_pipelined_run_returns_the_value_and_the_ticket() {
    let sim = disk(5);
    let db = on_disk(&sim);
    sim.hold(|path| path.extension().is_some_and(|extension| extension == "seg"));
    let (value, ticket): (_, CommitTicket) = db.run_pipelined(|tx| tx.open(NUMBERS)?.insert(0, 7)).unwrap();
    assert_eq!(value, Some(0));
    assert!(!ticket.is_durable());
    let next = db.run_pipelined(|tx| tx.open(NUMBERS)?.get(0)).unwrap();
    assert_eq!(next.0, Some(7), "the locks are free");
    let relaxed = TxnOptions::new().durability(Durability::Relaxed);
    let (_, at_once) = db.run_pipelined_with(relaxed, |tx| tx.open(NUMBERS)?.insert(1, 1)).unwrap();
    at_once.wait().unwrap();
    let refused = db.run_pipelined_with(relaxed, |_: &Transaction| Err::<(), _>(Refused::Sold));
    assert!(matches!(refused, Err(Refused::Sold)));
    assert!(!ticket.is_durable() && !next.1.is_durable());
    sim.stop_holding();
    ticket.wait().unwrap();
    next.1.wait().unwrap();
}

/// The error rests on a row whose commit is on its way to the disk.
#[test]
fn an_error_waits_for_the_commits_that_it_rests_on() {
    let sim = disk(6);
    let db = on_disk(&sim);
    sim.hold(|path| path.extension().is_some_and(|extension| extension == "seg"));
    let (_, ticket) = db.run_pipelined(|tx| tx.open(NUMBERS)?.insert(0, 7)).unwrap();
    let (report, reports) = mpsc::channel();
    let mut future = db.submit(move |tx: &Transaction| {
        let seen = tx.open(NUMBERS)?.get(0)?;
        report.send(seen).unwrap();
        Err::<(), _>(Refused::Sold)
    });
    assert_eq!(reports.recv_timeout(SOON).unwrap(), Some(7));
    // Another one behind it on the same workers: the first has ended, or is about to.
    assert!(is_pending(&mut future) && !ticket.is_durable());
    sim.stop_holding();
    assert!(matches!(block_on(future), Err(Refused::Sold)));
    assert!(ticket.is_durable());
}
