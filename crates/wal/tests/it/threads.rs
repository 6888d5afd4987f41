//! Many threads that commit in every way at once: each acknowledgement is true, and every waiter gets one.

use crate::common::*;
use foreshore_base::{Error, Lsn};
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_io::sim::{Fault, FaultKind};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_sync::{NextWake, Parker, primitive::thread};
use foreshore_wal::{CommitTicket, Dep, LogOptions, Record, Session, flags};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

fn threaded(buffer: BufferKind) -> LogOptions {
    LogOptions { buffer: buffer.maker(), max_sessions: 64, ring_bytes: 256 << 10, background: true, ..small() }
}

/// `threads` threads of `commits` commits of a few records each: blocking, awaited, pipelined and dropped tickets.
fn storm(fs: Arc<dyn Fs>, options: &LogOptions, threads: u64, commits: u64) {
    let log = fresh(&fs, options);
    let worker = |thread: u64| {
        let log = log.clone();
        move || {
            let mut session = log.session().unwrap();
            let (mut open_tickets, mut last) = (VecDeque::<CommitTicket>::new(), Lsn::ZERO);
            for commit in 0..commits {
                let tag = thread << 32 | commit;
                let len = (tag as usize * 131) % 700;
                session.reserve(2 * Session::cost(len)).unwrap();
                for part in 0..2 {
                    let bytes = payload(tag * 2 + part, len);
                    let record = Record { tag, flags: if part == 1 { flags::COMMIT } else { 0 }, parts: &[&bytes] };
                    let lsn = session.append(record, Dep::none().transaction(last));
                    assert!(lsn > last);
                    last = lsn;
                }
                let ticket = log.ticket(last, last.csn(), last);
                match (thread + commit) % 5 {
                    0 => ticket.wait().unwrap(),
                    1 => {
                        block_on(ticket).unwrap();
                        assert!(log.durable() >= last);
                    }
                    2 => {
                        log.flush_soon(&mut session, last);
                        open_tickets.push_back(ticket);
                    }
                    3 => {
                        log.flush_soon(&mut session, last);
                        ticket.wait_timeout(Duration::from_micros(200)).unwrap();
                    }
                    _ => {
                        let mut ticket = Box::pin(ticket);
                        let noop = std::task::Waker::noop();
                        let _ = ticket.as_mut().poll(&mut Context::from_waker(noop));
                    }
                }
                if open_tickets.len() > 8 {
                    let ticket = open_tickets.pop_front().expect("more than eight");
                    if commit % 2 == 0 { block_on(ticket).unwrap() } else { ticket.wait().unwrap() }
                }
            }
            open_tickets.into_iter().for_each(|ticket| block_on(ticket).unwrap());
        }
    };
    let handles: Vec<_> = (0..threads).map(|thread| thread::spawn(worker(thread))).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    log.close().unwrap();
    let stats = log.stats();
    assert_eq!(stats.records, threads * commits * 2);
    drop(log);

    let (_, recovered) = open(&fs, options).unwrap();
    let mut seen = BTreeMap::<u64, u64>::new();
    let mut last = Lsn::ZERO;
    for record in all(&recovered) {
        assert!(record.lsn >= last, "records come in the order of their stamps");
        last = record.lsn;
        let (thread, commit) = (record.tag >> 32, record.tag & 0xffff_ffff);
        let part = u64::from(record.flags == flags::COMMIT);
        assert!(record.payload == payload(record.tag * 2 + part, record.payload.len()));
        let count = seen.entry(thread).or_default();
        assert_eq!(*count, commit * 2 + part, "records of a session in their order, none missing");
        *count += 1;
    }
    assert!(seen.len() as u64 == threads && seen.values().all(|&count| count == commits * 2));
}

#[test]
fn eight_threads_on_a_free_device() {
    for buffer in KINDS {
        for in_flight in [1, 4] {
            storm(Arc::new(Mem::null()), &LogOptions { in_flight, ..threaded(buffer) }, 8, 300);
        }
    }
}

#[test]
fn sixty_four_threads_on_a_slow_device() {
    for buffer in KINDS {
        for in_flight in [1, 2, 16] {
            let options = LogOptions { in_flight, ..threaded(buffer) };
            storm(Arc::new(Mem::delay(Duration::from_micros(300))), &options, 64, 20);
        }
    }
}

#[test]
fn the_least_of_slots_is_enough() {
    for buffer in [BufferKind::CArray, BufferKind::Hybrid, BufferKind::Delegated] {
        for wait in [WaitKind::Park, WaitKind::Spin] {
            let buffer = BufferOptions { wait, slots: 1, slot_pool: 2, ..BufferOptions::new(buffer) };
            let options = LogOptions { buffer: buffer.maker().unwrap(), ..threaded(BufferKind::Lanes) };
            storm(Arc::new(Mem::null()), &options, 8, 100);
        }
    }
}

#[test]
fn a_dependency_on_another_log_harms_its_session_alone() {
    for buffer in KINDS {
        let log = fresh(&(Arc::new(Mem::null()) as Arc<dyn Fs>), &threaded(buffer));
        let stranger = {
            let log = log.clone();
            thread::spawn(move || {
                let mut session = log.session().unwrap();
                session.reserve(Session::cost(8)).unwrap();
                let elsewhere = Dep::none().transaction(Lsn(1 << 61));
                session.append(Record { tag: 1, flags: 0, parts: &[&[1; 8]] }, elsewhere)
            })
        };
        assert!(stranger.join().is_err(), "{buffer} appends before what the record depends on");
        let mut session = log.session().unwrap();
        let lsn = append(&mut session, 2, b"goes on").unwrap();
        log.force(lsn).unwrap();
        log.close().unwrap();
    }
}

#[test]
fn a_small_ring_makes_threads_wait_for_space_and_go_on() {
    for buffer in KINDS {
        let fs: Arc<dyn Fs> = Arc::new(Mem::null());
        let log = fresh(&fs, &LogOptions { ring_bytes: 64 << 10, in_flight: 3, ..threaded(buffer) });
        let handles: Vec<_> = (0..8)
            .map(|thread: u64| {
                let log = log.clone();
                thread::spawn(move || {
                    let mut session = log.session().unwrap();
                    for i in 0..60 {
                        // The sessions' reservations together exceed the ring, and no session forces a write.
                        session.reserve(log.max_reserve()).unwrap();
                        let len = log.max_record() - i;
                        let bytes = payload(thread, len);
                        session.append(Record { tag: thread, flags: 0, parts: &[&bytes] }, Dep::none());
                    }
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(log.stats().records, 480);
        log.close().unwrap();
    }
}

#[test]
fn a_failed_write_reaches_every_waiter() {
    let sim = Sim::new(5);
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    let log = fresh(&fs, &LogOptions { max_sessions: 64, ..small() });
    let mut session = log.session().unwrap();
    let sessions: Vec<_> = (0..16).map(|_| log.session().unwrap()).collect();
    // Space for all of them, so that only groups are written from here on.
    while log.prepare_step() == NextWake::Now {}
    let acked = append(&mut session, 0, b"acknowledged").unwrap();
    log.force(acked).unwrap();
    sim.inject(Fault { at: sim.ops(), kind: FaultKind::Eio, sticky: true });
    let handles: Vec<_> = (0..)
        .zip(sessions)
        .map(|(i, mut session): (u64, Session)| {
            let log = log.clone();
            thread::spawn(move || {
                let lsn = append(&mut session, i, b"lost")?;
                let ticket = log.ticket(lsn, lsn.csn(), lsn);
                if i.is_multiple_of(2) { ticket.wait() } else { block_on(ticket) }
            })
        })
        .collect();
    // Futures do not lead; one thread at least does.
    for handle in handles {
        let outcome = handle.join().unwrap();
        assert!(matches!(outcome, Err(Error::Poisoned { .. })), "{outcome:?}");
    }
    let writes = sim.ops();
    assert!(matches!(log.force(log.current()), Err(Error::Poisoned { .. })));
    assert!(matches!(session.reserve(16 << 10), Err(Error::Poisoned { .. })));
    assert!(matches!(log.poisoned(), Some(Error::Poisoned { .. })));
    log.force(acked).unwrap();
    assert_eq!(sim.ops(), writes, "a failed write was tried again");
}

#[test]
fn poison_from_outside_wakes_every_waiter() {
    let log = fresh(&(Arc::new(Mem::null()) as Arc<dyn Fs>), &small());
    let mut session = log.session().unwrap();
    let lsn = append(&mut session, 1, b"x").unwrap();
    // No thread flushes this log, so the wait lasts until the log is poisoned.
    let parker = Parker::new();
    let waker = Arc::new(ThreadWaker(parker.unparker())).into();
    let mut future = pin!(log.ticket(lsn, lsn.csn(), lsn));
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(!parker.park_timeout(Duration::ZERO), "woken for nothing");
    let cause = Error::Closed;
    log.poison(&cause);
    // By the flusher, or another thread that holds no lock.
    log.acknowledge_all();
    assert!(parker.park_timeout(Duration::ZERO), "the future was not woken");
    let outcome = future.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(matches!(outcome, Poll::Ready(Err(Error::Closed))));
    assert!(matches!(log.force(lsn), Err(Error::Closed)));
}
