//! Callbacks and wakers of users run while the engine holds no lock. They may take a checkpoint, close the database,
//! or drop its last handle, on any thread.

use crate::support::{DIR, NUMBERS, fill, in_memory, open, small};
use foreshore::{CommitTicket, Db, Error, Transaction};
use foreshore_io::{Fs, Mem};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake};
use std::thread;
use std::time::{Duration, Instant};

/// What takes longer waits for ever.
const SOON: Duration = Duration::from_secs(60);

fn write(db: &Db) -> Transaction {
    let tx = db.begin();
    tx.open(NUMBERS).unwrap().insert(1, 2).unwrap();
    tx
}

fn pipelined(db: &Db) -> CommitTicket {
    write(db).commit_pipelined().unwrap()
}

/// The checkpointer completes the group, under its lock.
#[test]
fn a_checkpoint_that_makes_a_commit_durable_does_not_call_its_callback() {
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::new(Mem::null()));
        })
        .open(DIR)
        .unwrap();
    fill(&db, 10);
    let (report, reports) = mpsc::channel();
    let ticket = pipelined(&db);
    let other = db.clone();
    ticket.on_durable(move |outcome| report.send(outcome.and_then(|()| other.checkpoint())).unwrap());
    db.checkpoint().unwrap();
    assert!(reports.try_recv().is_err(), "it was called under the checkpointer's lock");
    // The next one that holds nothing calls it.
    write(&db).commit().unwrap();
    assert!(matches!(reports.try_recv(), Ok(Ok(()))));
    assert_eq!(db.stats().log.callback_panics, 0);
}

/// A commit calls callbacks that are due when nothing of its own transaction is left to wait for.
#[test]
fn a_callback_that_a_commit_calls_does_not_find_that_transaction_running() {
    let fs: Arc<dyn Fs> = Arc::new(Mem::null());
    let db = small()
        .lab(|lab| {
            lab.background = false;
            lab.fs = Some(Arc::clone(&fs));
        })
        .open(DIR)
        .unwrap();
    fill(&db, 10);
    let (report, reports) = mpsc::channel();
    let (ticket, other) = (pipelined(&db), db.clone());
    ticket.on_durable(move |_| {
        let begun = Instant::now();
        report.send((other.close(SOON), begun.elapsed())).unwrap();
    });
    // It makes the commit durable and calls nothing.
    db.checkpoint().unwrap();
    let tx = write(&db);
    assert!(reports.try_recv().is_err(), "the next commit calls it");
    let ticket = tx.commit_pipelined().unwrap();
    let (closed, took) = reports.try_recv().expect("called before the commit returns");
    closed.unwrap();
    assert!(took < SOON, "it waited for the transaction whose commit called it");
    drop((ticket, db));
    assert!(small().lab(|lab| lab.fs = Some(fs)).open(DIR).unwrap().stats().recovery.was_clean);
}

#[test]
fn callbacks_run_on_no_thread_of_the_checkpointer_or_the_cleaner() {
    let (db, _) = in_memory();
    fill(&db, 1000);
    let (report, reports) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| (0..50).for_each(|_| db.checkpoint().unwrap()));
        for _ in 0..500 {
            let (report, other) = (report.clone(), db.clone());
            pipelined(&db).on_durable(move |outcome| {
                let checkpoint = outcome.and_then(|()| other.checkpoint());
                report.send((thread::current().name().unwrap_or("").to_owned(), checkpoint)).unwrap();
            });
        }
    });
    drop(report);
    for _ in 0..500 {
        let (name, outcome) = reports.recv_timeout(SOON).expect("called");
        assert!(!name.starts_with("foreshore-") || name == "foreshore-flush", "{name}");
        outcome.unwrap();
    }
    assert_eq!(db.stats().log.callback_panics, 0);
}

/// Drops what it has when it is woken.
struct Dropper(Mutex<Option<Db>>, Mutex<mpsc::Sender<()>>);

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        let db = self.0.lock().unwrap().take();
        drop(db);
        self.1.lock().unwrap().send(()).unwrap();
    }
}

#[test]
fn the_last_handle_may_be_dropped_in_a_callback_or_a_waker() {
    for round in 0..40 {
        let (db, fs) = in_memory();
        fill(&db, 10);
        let (report, reports) = mpsc::channel();
        let mut ticket = pipelined(&db);
        if round % 2 == 0 {
            ticket.on_durable(move |_| {
                drop(db);
                report.send(()).unwrap();
            });
            reports.recv_timeout(SOON).expect("the callback comes to its end");
        } else {
            let dropper = Arc::new(Dropper(Mutex::new(Some(db)), Mutex::new(report)));
            let waker = dropper.clone().into();
            if Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending() {
                reports.recv_timeout(SOON).expect("the waker comes to its end");
            } else {
                drop(dropper.0.lock().unwrap().take());
            }
            drop(ticket);
        }
        let db = open(&fs).unwrap();
        assert_eq!(db.stats().recovery.redone, 0, "round {round}: it was closed");
    }
}

/// Two databases' worth of threads close at once: one in a callback, on the thread that another one waits for.
#[test]
fn a_callback_may_close_the_database_that_others_close() {
    for _ in 0..40 {
        let (db, fs) = in_memory();
        fill(&db, 10);
        let (report, reports) = mpsc::channel();
        let tickets = [0; 3].map(|_| pipelined(&db));
        for ticket in tickets {
            let (report, other) = (report.clone(), db.clone());
            ticket.on_durable(move |_| report.send(other.close(Duration::ZERO)).unwrap());
        }
        db.close(Duration::ZERO).unwrap();
        for _ in 0..3 {
            reports.recv_timeout(SOON).expect("it comes to its end").unwrap();
        }
        assert!(matches!(db.begin().open(NUMBERS), Err(Error::Closed)));
        drop(open(&fs).unwrap());
    }
}

#[test]
fn a_callback_may_open_the_database_again() {
    let (db, _) = in_memory();
    fill(&db, 10);
    let (report, reports) = mpsc::channel();
    let other = db.clone();
    pipelined(&db).on_durable(move |_| report.send(other.reopen()).unwrap());
    let again = reports.recv_timeout(SOON).expect("it comes to its end").unwrap();
    assert!(matches!(db.begin().open(NUMBERS), Err(Error::Closed)));
    assert_eq!(again.begin().open(NUMBERS).unwrap().get(1).unwrap(), Some(2));
}
