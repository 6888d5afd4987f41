//! Models of waiting and leading: no waiter and no commit is forgotten. A forgotten one shows as a deadlock.
#![cfg(foreshore_loom)]

use foreshore_base::{Error, Lsn, Result};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::Arc as Shared;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_sync::{NextWake, Parker, Unparker};
use foreshore_wal::model::{Leader, Pipeline, Slots};
use std::sync::Arc;
use std::task::{Wake, Waker};

/// A log of stamps alone: everything appended can be cut.
struct Stamps(Shared<AtomicU64>);

impl Leader for Stamps {
    fn seal(&mut self, sealed: Lsn) -> Result<Option<Lsn>> {
        let tail = Lsn(self.0.load(Ordering::Acquire));
        Ok((tail > sealed).then_some(tail))
    }

    fn write(&mut self) -> Result<()> {
        Ok(())
    }
}

struct Log {
    tail: Shared<AtomicU64>,
    pipeline: Pipeline<Stamps>,
}

fn log() -> Arc<Log> {
    let tail = Shared::new(AtomicU64::new(0));
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    Arc::new(Log { pipeline: Pipeline::new(Stamps(tail.clone()), Lsn(0), Arc::new(slots)), tail })
}

impl Log {
    fn append(&self) -> Lsn {
        Lsn(self.tail.fetch_add(1, Ordering::AcqRel) + 1)
    }

    fn commit(&self) {
        let lsn = self.append();
        self.pipeline.force(lsn).expect("a log without faults");
        assert!(self.pipeline.durable() >= lsn, "acknowledged before it is durable");
    }

    /// The flusher's thread until `upto` is durable.
    fn flush_until(&self, upto: Lsn) {
        while self.pipeline.durable() < upto {
            if self.pipeline.flush_step() == NextWake::OnSignal {
                self.pipeline.flusher_signal().wait(None);
            }
        }
    }
}

fn spawn(log: &Arc<Log>, body: impl Fn(&Log) + Send + 'static) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
}

/// Two blocking commits: one leads, the other waits or leads after it.
fn two_waiters() {
    let log = log();
    join([spawn(&log, Log::commit), spawn(&log, Log::commit)]);
    assert_eq!(log.pipeline.durable(), Lsn(2));
}

/// A pipelined commit beside a parked flusher.
fn pipelined() {
    let log = log();
    join([
        spawn(&log, |log| {
            let lsn = log.append();
            log.pipeline.flush_soon(0, lsn);
        }),
        spawn(&log, |log| log.flush_until(Lsn(1))),
    ]);
}

/// A pipelined commit while a thread leads a group that it may just have missed.
fn pipelined_beside_a_leader() {
    let log = log();
    let flusher = spawn(&log, |log| log.flush_until(Lsn(2)));
    join([
        spawn(&log, |log| {
            let lsn = log.append();
            log.pipeline.flush_soon(0, lsn);
        }),
        spawn(&log, Log::commit),
    ]);
    if log.pipeline.durable() == Lsn(2) {
        // Nothing is left to do, so nobody rings a flusher that is parked.
        log.pipeline.flusher_signal().notify();
    }
    join([flusher]);
}

struct ThreadWaker(Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A future that nobody asked the flusher for, and the flusher.
fn awaited() {
    let log = log();
    join([
        spawn(&log, |log| {
            let lsn = log.append();
            let parker = Parker::new();
            let waker = Waker::from(Arc::new(ThreadWaker(parker.unparker())));
            let mut key = None;
            while log.pipeline.durable() < lsn {
                key = log.pipeline.register_waker(lsn, key.take(), &waker);
                if key.is_some() {
                    parker.park();
                }
            }
        }),
        spawn(&log, |log| log.flush_until(Lsn(1))),
    ]);
}

/// A log whose first write fails, and which must not see a second one.
struct Failing(Stamps, bool);

impl Leader for Failing {
    fn seal(&mut self, sealed: Lsn) -> Result<Option<Lsn>> {
        self.0.seal(sealed)
    }

    fn write(&mut self) -> Result<()> {
        assert!(!self.1, "written after a failed write");
        self.1 = true;
        Err(Error::Closed)
    }
}

/// Two blocking commits on a device that fails: both learn it, and nobody writes behind the failed group.
fn failed_write() {
    let tail = Shared::new(AtomicU64::new(0));
    let leader = Failing(Stamps(tail.clone()), false);
    let pipeline = Arc::new(Pipeline::new(leader, Lsn(0), Arc::new(Slots::new(1))));
    let commit = || {
        let (tail, pipeline) = (tail.clone(), pipeline.clone());
        thread::spawn(move || {
            let lsn = Lsn(tail.fetch_add(1, Ordering::AcqRel) + 1);
            assert!(matches!(pipeline.force(lsn), Err(Error::Poisoned { .. })));
        })
    };
    join([commit(), commit()]);
    assert_eq!(pipeline.durable(), Lsn(0));
}

#[test]
fn nothing_is_written_behind_a_failed_write() {
    check(failed_write);
}

#[test]
#[should_panic(expected = "written after a failed write")]
fn a_leader_that_ignores_poison_is_noticed() {
    mutated("pipeline: lead though poisoned", failed_write);
}

#[test]
fn a_waiter_is_not_forgotten() {
    check(two_waiters);
}

#[test]
fn a_pipelined_commit_is_not_forgotten() {
    check(pipelined);
}

#[test]
fn a_pipelined_commit_beside_a_leader_is_not_forgotten() {
    check(pipelined_beside_a_leader);
}

#[test]
fn a_future_is_not_forgotten() {
    check(awaited);
}

#[test]
#[should_panic(expected = "deadlock")]
fn parking_without_a_look_at_the_lead_is_noticed() {
    mutated("pipeline: park without may_lead", two_waiters);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_not_rung_by_a_future_is_noticed() {
    mutated("pipeline: future does not ring", awaited);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_commit_that_does_not_fence_is_noticed() {
    mutated("pipeline: flush_soon without fence", pipelined_beside_a_leader);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_leader_that_forgets_the_flusher_is_noticed() {
    mutated("pipeline: leader forgets the flusher", pipelined_beside_a_leader);
}
