//! Waits while an appender is stopped in its copy: a group is needed, and none can be sealed.

use super::wait::STALL;
use super::*;
use crate::group_commit::Group::Greedy;
use crate::group_commit::{Decision, GroupPolicy, Observation};
use foreshore_base::Result;
use foreshore_sync::NextWake;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread;
use std::sync::mpsc;
use std::time::Duration;

/// A leader that can seal no group.
struct Stopped;

impl Leader for Stopped {
    type Group = Self;

    fn seal(&mut self, _group: &mut Self, _order: Order) -> Result<Option<Cut>> {
        Ok(None)
    }
}

impl Group for Stopped {
    fn write(&mut self) -> Result<()> {
        unreachable!("nothing was sealed")
    }
}

fn stopped() -> Pipeline<Stopped> {
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    Pipeline::new(Stopped, vec![Stopped], Lsn(0), GroupNo(1), Arc::new(slots), (Greedy, None))
}

fn is_signalled(pipeline: &Pipeline<Stopped>) -> bool {
    pipeline.flusher_signal(0).wait(Some(Duration::ZERO))
}

#[test]
fn a_flusher_that_can_cut_nothing_pauses() {
    let pipeline = stopped();
    pipeline.flush_soon(0, Lsn(8));
    assert!(is_signalled(&pipeline), "a commit signals");
    assert_eq!(pipeline.flush_step(0), NextWake::After(STALL));
    assert!(!is_signalled(&pipeline), "a flusher that signals itself would not pause");
    pipeline.flush_soon(0, Lsn(16));
    assert_eq!(pipeline.lead_for_space(0), Led::Nothing);
    assert!(!is_signalled(&pipeline), "its timer ends the pause");
}

#[test]
fn waiters_for_space_that_can_cut_nothing_do_not_wake_each_other() {
    let pipeline = stopped();
    let key = pipeline.space().prepare();
    assert_eq!(pipeline.lead_for_space(0), Led::Nothing);
    assert!(!pipeline.space().wait(key, Some(Duration::ZERO)));
}

#[test]
fn a_limited_wait_ends_though_nothing_can_be_cut() {
    let pipeline = stopped();
    let mut pauses = 0;
    let durable = pipeline.force_while(Lsn(8), Calls::Here, |_, pause| {
        assert_eq!(pause, Some(STALL));
        pauses += 1;
        pauses < 3
    });
    assert!(!durable.expect("no error"));
    assert_eq!(pauses, 3);
}

/// A leader whose first group leaves out a record that an appender has not copied yet. After it no group can be sealed.
struct Half;

impl Leader for Half {
    type Group = Self;

    fn seal(&mut self, _group: &mut Self, order: Order) -> Result<Option<Cut>> {
        Ok((order.number == GroupNo(1)).then_some(Cut { upto: Lsn(4), more: false, bytes: 4 }))
    }
}

impl Group for Half {
    fn write(&mut self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_leader_that_goes_on_waiting_leaves_the_callbacks_of_its_group_to_a_flusher() {
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    let pipeline = Pipeline::new(Half, vec![Half], Lsn(0), GroupNo(1), Arc::new(slots), (Greedy, None));
    let called = Arc::new(AtomicU64::new(0));
    let noted = called.clone();
    pipeline.call_when_durable(
        0,
        Lsn(4),
        Box::new(move |durable| _ = noted.fetch_add(u64::from(durable), Ordering::Relaxed)),
    );
    let is_signalled = || pipeline.flusher_signal(0).wait(Some(Duration::ZERO));
    assert!(is_signalled(), "a callback asks for its group");
    let durable = pipeline.force_while(Lsn(8), Calls::Here, |_, _| {
        assert!(is_signalled(), "no thread calls what is due");
        pipeline.flush_step(0);
        false
    });
    assert!(!durable.expect("no error"));
    assert_eq!((pipeline.progress().durable(), called.load(Ordering::Relaxed)), (Lsn(4), 1));
}

/// A leader that panics at a chosen step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panics {
    Sealing,
    Writing,
}

impl Leader for Panics {
    type Group = Self;

    fn seal(&mut self, _group: &mut Self, order: Order) -> Result<Option<Cut>> {
        assert!(*self != Self::Sealing, "told to panic");
        Ok(Some(Cut { upto: Lsn(order.sealed.0 + 8), more: false, bytes: 8 }))
    }
}

impl Group for Panics {
    fn write(&mut self) -> Result<()> {
        panic!("told to panic");
    }
}

/// A leader that unwinds out of a lead or a group stops the log, so that no thread waits for ever.
#[test]
fn a_leader_that_panics_stops_the_log() {
    for panics in [Panics::Sealing, Panics::Writing] {
        let slots = Slots::new(1);
        slots.lease().expect("one slot");
        let pipeline = Pipeline::new(panics, vec![panics, panics], Lsn(0), GroupNo(1), Arc::new(slots), (Greedy, None));
        let called = Arc::new(AtomicU64::new(0));
        let noted = called.clone();
        let callback = move |durable| _ = noted.fetch_add(1 + u64::from(durable), Ordering::Relaxed);
        pipeline.call_when_durable(0, Lsn(8), Box::new(callback));
        let space = pipeline.space().prepare();
        let led = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pipeline.force(Lsn(8), Calls::Elsewhere)));
        assert!(led.is_err(), "the panic is the leader's own");
        assert!(matches!(pipeline.force(Lsn(8), Calls::Elsewhere), Err(Error::Poisoned { .. })));
        assert_eq!(called.load(Ordering::Relaxed), 0, "it is called where nothing is held");
        let _ = pipeline.flush_step(0);
        assert_eq!(called.load(Ordering::Relaxed), 1, "the callback learns of it once");
        assert!(pipeline.space().wait(space, Some(Duration::ZERO)), "a thread that waits for space is woken");
        assert_eq!(pipeline.lead_for_space(0), Led::Unwanted, "the lead is free, and no thread seals any more");
        assert_eq!(pipeline.progress().durable(), Lsn(0));
    }
}

/// A policy that postpones every group for a long time.
#[derive(Debug)]
struct Late;

impl GroupPolicy for Late {
    fn decide(&mut self, _seen: &Observation) -> Decision {
        Decision::Wait(Duration::from_secs(10))
    }
}

/// Sessions of `lanes` may wait for equal stamps. A waiter that was woken registers again, in front of its equals.
#[test]
fn a_woken_waiter_keeps_the_timer_for_its_equals() {
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    let late = GroupSource::new(|| Box::new(Late));
    let pipeline = Pipeline::new(Stopped, vec![Stopped], Lsn(0), GroupNo(1), Arc::new(slots), (Greedy, Some(&late)));
    let (park, parked) = mpsc::channel();
    thread::scope(|scope| {
        let pipeline = &pipeline;
        let mut timers = Vec::new();
        let durable = pipeline.force_while(Lsn(1), Calls::Here, |_, timer| {
            timers.push(timer);
            if timers.len() == 2 {
                return false;
            }
            let park = park.clone();
            scope.spawn(move || {
                let durable = pipeline.force_while(Lsn(1), Calls::Here, |parker, timer| {
                    park.send(timer).expect("the test waits for it");
                    timer.is_none() && {
                        parker.park();
                        true
                    }
                });
                assert!(!durable.expect("no error"));
            });
            assert_eq!(parked.recv().expect("the other parks"), None, "one timer is enough");
            pipeline.hand_off(HandOff::Lead);
            true
        });
        assert!(!durable.expect("no error"));
        assert!(timers.iter().all(Option::is_some), "no thread wakes when the group is due");
        assert!(parked.recv().expect("the other goes on").is_some(), "a waiter that goes away hands off");
    });
}
