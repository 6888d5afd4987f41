//! Acknowledgements without a waiting thread: any number outstanding, each called once, none able to harm the log.

use crate::common::*;
use foreshore_base::{Error, Lsn, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_sync::NextWake;
use foreshore_wal::{CommitTicket, Log, LogOptions, Session};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

const TICKETS: u64 = 100_000;

fn null() -> Arc<dyn Fs> {
    Arc::new(Mem::null())
}

#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_hundred_thousand_tickets_wait_without_a_thread() {
    // One session may fill the whole ring, so that no session leads for space.
    let (buffer, ring_bytes) = (BufferKind::Faa.maker(), 8 << 20);
    let options = LogOptions { max_unacked: 1 << 20, segment_bytes: 1 << 20, ring_bytes, buffer, ..small() };
    let log = fresh(&null(), &options);
    let mut session = log.session().unwrap();
    let (called, woken) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let waker = Waker::from(woken.clone());
    let (mut futures, mut last) = (Vec::new(), Lsn::ZERO);
    for tag in 0..TICKETS {
        last = append(&mut session, tag, b"").unwrap();
        log.flush_soon(&mut session, last);
        let mut ticket = session.ticket(last, last.csn(), last);
        match tag % 4 {
            0 => {
                let called = called.clone();
                ticket.on_durable(move |outcome| {
                    outcome.expect("a log without faults");
                    called.0.fetch_add(1, Ordering::Relaxed);
                });
            }
            1 => {
                assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
                futures.push(ticket);
            }
            // Polled once and then forgotten, or dropped: neither holds up another ticket.
            2 => {
                assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
                std::mem::forget(ticket);
            }
            _ => drop(ticket),
        }
    }
    assert_eq!((log.stats().groups, called.0.load(Ordering::Relaxed)), (0, 0), "nobody has led");
    while log.flush_step() == NextWake::Now {}
    assert!(log.durable() >= last);
    assert_eq!(called.0.load(Ordering::Relaxed), TICKETS / 4);
    assert_eq!(woken.0.load(Ordering::Relaxed), TICKETS / 2);
    for mut ticket in futures {
        assert!(matches!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(()))));
    }
}

#[test]
fn callbacks_of_a_session_come_in_order_and_once() {
    for in_flight in [1, 3] {
        let log = fresh(&null(), &LogOptions { background: true, in_flight, ..small() });
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (log, report) = (log.clone(), report.clone());
                scope.spawn(move || {
                    let mut session = log.session().unwrap();
                    for commit in 0..500_u64 {
                        let lsn = append(&mut session, commit, b"commit").unwrap();
                        let (report, shared) = (report.clone(), log.clone());
                        session.ticket(lsn, lsn.csn(), lsn).on_durable(move |outcome| {
                            assert!(outcome.is_ok() && shared.durable() >= lsn);
                            report.send((thread, commit)).expect("the test listens");
                        });
                        log.flush_soon(&mut session, lsn);
                    }
                });
            }
        });
        log.close().unwrap();
        drop(report);
        let mut next = [0; 4];
        // The callbacks hold the last senders: the iteration ends when all are gone.
        for (thread, commit) in reports {
            assert_eq!(next[thread as usize], commit);
            next[thread as usize] += 1;
        }
        assert_eq!(next, [500; 4]);
        assert_eq!(log.stats().callback_panics, 0);
    }
}

#[test]
fn a_callback_that_panics_is_counted_and_harms_no_other() {
    let log = fresh(&null(), &small());
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 1, b"x").unwrap();
    session.ticket(lsn, lsn.csn(), lsn).on_durable(|_| panic!("a panic in a callback"));
    log.ticket(lsn, lsn.csn(), lsn).wait().unwrap();
    assert_eq!(log.stats().callback_panics, 1);
    assert!(log.poisoned().is_none());
    let lsn = append(&mut session, 2, b"y").unwrap();
    log.force(lsn).unwrap();
    // The answer is known: called at once.
    let (report, reports) = mpsc::channel();
    session.ticket(lsn, lsn.csn(), lsn).on_durable(move |outcome| report.send(outcome.is_ok()).unwrap());
    assert_eq!(reports.try_recv(), Ok(true));
}

#[test]
fn a_callback_learns_that_the_log_has_stopped() {
    let sim = Sim::new(3);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &small());
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 1, b"lost").unwrap();
    let (report, reports) = mpsc::channel();
    session.ticket(lsn, lsn.csn(), lsn).on_durable(move |outcome| report.send(outcome).unwrap());
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
    log.flush_soon(&mut session, lsn);
    while log.flush_step() == NextWake::Now {}
    assert!(matches!(reports.try_recv(), Ok(Err(Error::Poisoned { .. }))));
}

/// The flusher's own thread ends the log: it cannot wait for its own end.
#[test]
fn the_last_handle_may_be_dropped_in_a_callback() {
    for _ in 0..20 {
        let log = fresh(&null(), &LogOptions { background: true, ..small() });
        let mut session = log.session().unwrap();
        let lsn = append(&mut session, 1, b"last").unwrap();
        let ticket = session.ticket(lsn, lsn.csn(), lsn);
        log.flush_soon(&mut session, lsn);
        let (report, reports) = mpsc::channel();
        let handle: Log = log;
        ticket.on_durable(move |outcome| {
            drop(handle);
            report.send(outcome.is_ok()).expect("the test listens");
        });
        assert_eq!(reports.recv(), Ok(true));
    }
}

#[test]
fn a_session_with_too_many_commits_on_their_way_waits() {
    let log = fresh(&null(), &LogOptions { max_unacked: 3, ..small() });
    let mut session = log.session().unwrap();
    for tag in 0..3 {
        let lsn = append(&mut session, tag, b"commit").unwrap();
        log.flush_soon(&mut session, lsn);
        assert_eq!(log.durable(), Lsn::ZERO);
    }
    // No other thread flushes: the waiting append leads until fewer commits are outstanding.
    let lsn = append(&mut session, 3, b"held back").unwrap();
    assert!(log.durable() > Lsn::ZERO && log.durable() < lsn);
    log.flush_soon(&mut session, lsn);
    append(&mut session, 4, b"not held back").unwrap();
    assert!(log.durable() < lsn);
}

/// Returns a pending ticket: its record is appended, and no thread writes it.
fn pending(session: &mut Session) -> CommitTicket {
    let lsn = append(session, 1, b"commit").unwrap();
    session.ticket(lsn, lsn.csn(), lsn)
}

fn poll(ticket: &mut CommitTicket, waker: &Waker) -> Poll<Result<()>> {
    Pin::new(ticket).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_future_that_is_dropped_or_forgotten_at_any_await_leaves_nothing() {
    let log = fresh(&null(), &small());
    let mut session = log.session().unwrap();
    let woken = Arc::new(Count::default());
    let wakers = || Arc::strong_count(&woken) - 1;
    let mut ticket = pending(&mut session);
    let lsn = ticket.record_lsn();
    for round in 0..10_000 {
        let waker = Waker::from(woken.clone());
        let mut other = session.ticket(lsn, lsn.csn(), lsn);
        // Polled once or again, by the same waker or by new ones.
        for _ in 0..=round % 3 {
            assert!(poll(&mut other, &waker).is_pending());
            assert!(poll(&mut other, &Waker::from(woken.clone())).is_pending());
        }
        assert_eq!((log.stats().watchers, wakers()), (1, 2));
    }
    assert_eq!((log.stats().watchers, wakers()), (0, 0));
    // The same in the middle of an `async` block.
    for _ in 0..10_000 {
        let other = session.ticket(lsn, lsn.csn(), lsn);
        let mut task = Box::pin(async move { other.await.map(|()| unreachable!("nobody writes")) });
        let waker = Waker::from(woken.clone());
        assert!(Future::poll(task.as_mut(), &mut Context::from_waker(&waker)).is_pending());
    }
    assert_eq!((log.stats().watchers, wakers()), (0, 0));
    let waker = Waker::from(woken.clone());
    for _ in 0..10_000 {
        let mut other = session.ticket(lsn, lsn.csn(), lsn);
        assert!(poll(&mut other, &waker).is_pending());
        std::mem::forget(other);
    }
    let called = Arc::new(Count::default());
    let counts = called.clone();
    session.ticket(lsn, lsn.csn(), lsn).on_durable(move |outcome| {
        outcome.expect("a log without faults");
        counts.0.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(log.stats().watchers, 10_001);
    assert!(poll(&mut ticket, &waker).is_pending());
    drop(waker);
    assert_eq!(called.0.load(Ordering::Relaxed), 0);
    log.force(lsn).unwrap();
    assert_eq!(
        called.0.load(Ordering::Relaxed),
        0,
        "a force may be deep inside of something, and leaves it to the flusher"
    );
    while log.flush_step() == NextWake::Now {}
    assert_eq!((log.stats().watchers, wakers()), (0, 0), "those that were forgotten go when the commit is durable");
    assert_eq!((woken.0.load(Ordering::Relaxed), called.0.load(Ordering::Relaxed)), (10_001, 1));
}

#[test]
fn the_waker_of_the_last_poll_is_the_one_that_is_called() {
    let log = fresh(&null(), &small());
    let mut session = log.session().unwrap();
    let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let mut ticket = pending(&mut session);
    for count in [&first, &second, &first, &second] {
        assert!(poll(&mut ticket, &Waker::from(count.clone())).is_pending());
    }
    log.ticket(ticket.record_lsn(), ticket.csn(), ticket.record_lsn()).wait().unwrap();
    assert_eq!((first.0.load(Ordering::Relaxed), second.0.load(Ordering::Relaxed)), (0, 1));
    assert!(matches!(poll(&mut ticket, Waker::noop()), Poll::Ready(Ok(()))));
}

/// A runtime of one thread: sleeps until its task is woken.
struct Runtime(thread::Thread);

impl Wake for Runtime {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Runtime {
    fn run<F: Future>(future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Self(thread::current())));
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    }
}

/// Tickets begun on one runtime and finished on another, beside futures that race two tickets and drop the loser.
#[test]
fn tickets_go_from_one_runtime_to_another() {
    let log = fresh(&null(), &LogOptions { background: true, ..small() });
    let (hand_over, handed) = mpsc::channel::<CommitTicket>();
    thread::scope(|scope| {
        scope.spawn(|| {
            Runtime::run(async {
                for ticket in handed {
                    ticket.await.unwrap();
                }
            });
        });
        let mut session = log.session().unwrap();
        for _ in 0..2000 {
            let (mut ticket, mut loser) = (pending(&mut session), pending(&mut session));
            Runtime::run(std::future::poll_fn(|context| {
                // Once, by this runtime's waker.
                let _ = Pin::new(&mut ticket).poll(context);
                let _ = Pin::new(&mut loser).poll(context);
                Poll::Ready(())
            }));
            drop(loser);
            hand_over.send(ticket).unwrap();
        }
        drop(hand_over);
    });
    assert_eq!(log.stats().watchers, 0);
    log.close().unwrap();
}

#[test]
fn a_relaxed_ticket_waits_once_it_is_hardened() {
    let log = fresh(&null(), &small());
    let mut session = log.session().unwrap();
    let mut ticket = pending(&mut session).relax();
    let (report, reports) = mpsc::channel();
    session.ticket(ticket.record_lsn(), ticket.csn(), ticket.record_lsn()).relax().on_durable(move |outcome| {
        report.send(outcome.is_ok()).unwrap();
    });
    ticket.wait().unwrap();
    assert!(ticket.wait_timeout(std::time::Duration::MAX).unwrap());
    assert!(matches!(poll(&mut ticket, Waker::noop()), Poll::Ready(Ok(()))));
    assert!(!ticket.is_durable() && reports.try_recv().is_err(), "acknowledged and not durable");
    let mut ticket = ticket.harden();
    let woken = Arc::new(Count::default());
    assert!(poll(&mut ticket, &Waker::from(woken.clone())).is_pending());
    while log.flush_step() == NextWake::Now {}
    assert_eq!((woken.0.load(Ordering::Relaxed), reports.try_recv()), (1, Ok(true)));
    assert!(matches!(poll(&mut ticket, Waker::noop()), Poll::Ready(Ok(()))));
    assert!(ticket.is_durable());
    // The blocking form writes the group itself. `harden` asks the flusher without a poll.
    let ticket = pending(&mut session).relax().harden();
    ticket.wait().unwrap();
    assert!(ticket.is_durable());
    let ticket = pending(&mut session).relax().harden();
    while log.flush_step() == NextWake::Now {}
    assert!(ticket.is_durable());
}
