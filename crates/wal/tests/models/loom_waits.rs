//! Models of waits beside a leader that can cut nothing, and of waits for space. No waiter sleeps that should lead, and
//! none that has what it waits for. A lost wake-up shows as a deadlock.

use foreshore_base::{GroupNo, Lsn, Result};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::Arc as Shared;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_wal::log_buffer::Slots;
use foreshore_wal::model::{Calls, Cut, Group, GroupCommit, Leader, Order, Pipeline};
use std::sync::Arc;

/// A log whose buffer holds one record of one byte. `ready` counts those appended, `drained` those that were cut.
struct Buffer {
    ready: Shared<AtomicU64>,
    drained: Shared<AtomicU64>,
}

/// A group. While the first one is in flight another session may append.
struct Way {
    ready: Shared<AtomicU64>,
    drained: Shared<AtomicU64>,
    appends: bool,
}

impl Leader for Buffer {
    type Group = Way;

    fn seal(&mut self, _group: &mut Way, order: Order) -> Result<Option<Cut>> {
        let upto = self.ready.load(Ordering::Acquire);
        self.drained.store(upto, Ordering::Release);
        Ok((upto > order.sealed.0).then_some(Cut { upto: Lsn(upto), more: false, bytes: 1 }))
    }
}

impl Group for Way {
    fn write(&mut self) -> Result<()> {
        if std::mem::take(&mut self.appends) {
            append(&self.ready, &self.drained);
        }
        Ok(())
    }
}

struct Log {
    ready: Shared<AtomicU64>,
    drained: Shared<AtomicU64>,
    pipeline: Pipeline<Buffer>,
}

fn log(appends: bool) -> Arc<Log> {
    let (ready, drained) = (Shared::new(AtomicU64::new(0)), Shared::new(AtomicU64::new(0)));
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    let buffer = Buffer { ready: ready.clone(), drained: drained.clone() };
    let group = Way { ready: ready.clone(), drained: drained.clone(), appends };
    let pipeline = Pipeline::new(buffer, vec![group], Lsn(0), GroupNo(1), Arc::new(slots), (GroupCommit::Greedy, None));
    Arc::new(Log { ready, drained, pipeline })
}

/// Appends a record if there is space. Space is taken and used in one step: space that is taken and not used is what
/// the retry of a wait is for.
fn append(ready: &AtomicU64, drained: &AtomicU64) -> Option<()> {
    let end = ready.load(Ordering::Acquire);
    let space = drained.load(Ordering::Acquire) == end;
    (space && ready.compare_exchange(end, end + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()).then_some(())
}

fn spawn(log: &Arc<Log>, body: impl Fn(&Log) + Send + 'static) -> JoinHandle<()> {
    let log = log.clone();
    thread::spawn(move || body(&log))
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().expect("an actor ends"));
}

/// A session wants space while a leader makes some, and another session takes that space first. No session waits for
/// durability, and no other thread ever leads.
fn space_for_one() {
    let log = log(true);
    append(&log.ready, &log.drained).expect("an empty buffer");
    join([
        spawn(&log, |log| _ = log.pipeline.lead_for_space(0)),
        spawn(&log, |log| {
            let space = log.pipeline.wait_for_space(0, None, || Ok(append(&log.ready, &log.drained)));
            space.expect("a log without faults");
        }),
    ]);
}

/// Two threads wait for records that a third one has drawn and not copied yet.
fn stopped() {
    let log = log(false);
    let wait = |lsn: u64| {
        spawn(&log, move |log| {
            log.pipeline.force(Lsn(lsn), Calls::Elsewhere).expect("a log without faults");
            assert!(log.pipeline.progress().durable() >= Lsn(lsn), "acknowledged before it is durable");
        })
    };
    join([wait(1), wait(2), spawn(&log, |log| _ = log.ready.fetch_add(2, Ordering::AcqRel))]);
    assert_eq!(log.pipeline.progress().durable(), Lsn(2));
}

#[test]
fn a_waiter_for_space_is_not_forgotten() {
    check(space_for_one);
}

#[test]
#[should_panic(expected = "deadlock")]
fn waiting_for_space_without_a_check_of_the_lead_is_noticed() {
    mutated("pipeline: waits for space without a check", space_for_one);
}

#[test]
fn waiters_behind_a_stopped_appender_are_not_forgotten() {
    check(stopped);
}

#[test]
#[should_panic(expected = "deadlock")]
fn leaving_the_timer_to_a_sleeper_is_noticed() {
    mutated("pipeline: leaves the timer to a sleeper", stopped);
}
