//! Models of waiting and leading: no waiter and no commit is forgotten. A lost wake-up shows as a deadlock.

use foreshore_base::{Error, GroupNo, Lsn, Result};
use foreshore_sync::model::{check, check_large, mutated};
use foreshore_sync::primitive::Arc as Shared;
use foreshore_sync::primitive::atomic::{AtomicU64, Ordering};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_sync::{NextWake, Parker, Unparker};
use foreshore_wal::log_buffer::Slots;
use foreshore_wal::model::{Calls, Cut, Decision, Group, GroupCommit, GroupPolicy, GroupSource};
use foreshore_wal::model::{Leader, Led, Observation, Order, Pipeline};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::time::Duration;

/// What other threads do at one moment.
type Meanwhile = Option<Box<dyn FnOnce() + Send>>;

/// A log of stamps alone: everything appended can be cut.
struct Stamps {
    tail: Shared<AtomicU64>,
    /// Done when the first group has its cut.
    missed: Meanwhile,
}

/// A group that writes the bit of its number where a model reads it. Elsewhere that were one more race to explore.
#[derive(Default)]
struct Bit {
    disk: Option<Shared<AtomicU64>>,
    number: u64,
    /// What other threads do while this group is written.
    meanwhile: Meanwhile,
}

impl Leader for Stamps {
    type Group = Bit;

    fn seal(&mut self, group: &mut Bit, order: Order) -> Result<Option<Cut>> {
        let upto = Lsn(self.tail.load(Ordering::Acquire));
        group.number = order.number.0;
        if let Some(missed) = self.missed.take() {
            missed();
        }
        Ok((upto > order.sealed).then_some(Cut { upto, more: false, bytes: 0 }))
    }
}

impl Group for Bit {
    fn write(&mut self) -> Result<()> {
        if let Some(disk) = &self.disk {
            disk.fetch_or(1 << self.number, Ordering::AcqRel);
        }
        if let Some(meanwhile) = self.meanwhile.take() {
            meanwhile();
        }
        Ok(())
    }
}

/// A log that always has one more record, so that no append is a race.
struct Endless;

impl Leader for Endless {
    type Group = Bit;

    fn seal(&mut self, group: &mut Bit, order: Order) -> Result<Option<Cut>> {
        group.number = order.number.0;
        Ok(Some(Cut { upto: Lsn(order.sealed.0 + 1), more: false, bytes: 0 }))
    }
}

/// Two groups of an endless log may be in flight.
fn endless(groups: [Bit; 2]) -> Arc<Pipeline<Endless>> {
    let (slots, policy) = (Arc::new(Slots::new(1)), (GroupCommit::Greedy, None));
    Arc::new(Pipeline::new(Endless, groups.into(), Lsn(0), GroupNo(1), slots, policy))
}

struct Log {
    tail: Shared<AtomicU64>,
    pipeline: Pipeline<Stamps>,
}

fn log(width: usize) -> Arc<Log> {
    log_with(width, None, None)
}

fn log_with(width: usize, source: Option<GroupSource>, missed: Meanwhile) -> Arc<Log> {
    let tail = Shared::new(AtomicU64::new(0));
    let slots = Slots::new(1);
    slots.lease().expect("one slot");
    let groups = (0..width).map(|_| Bit::default()).collect();
    let stamps = Stamps { tail: tail.clone(), missed };
    let pipeline =
        Pipeline::new(stamps, groups, Lsn(0), GroupNo(1), Arc::new(slots), (GroupCommit::Greedy, source.as_ref()));
    Arc::new(Log { pipeline, tail })
}

impl Log {
    fn append(&self) -> Lsn {
        Lsn(self.tail.fetch_add(1, Ordering::AcqRel) + 1)
    }

    /// As a ticket waits.
    fn wait(&self, lsn: Lsn) {
        self.pipeline.force(lsn, Calls::Here).expect("a log without faults");
        self.pipeline.acks().acknowledge_all();
    }

    fn commit(&self) {
        let lsn = self.append();
        self.wait(lsn);
        assert!(self.pipeline.progress().durable() >= lsn, "acknowledged before it is durable");
    }

    /// The flusher's thread until `upto` is durable.
    fn flush_until(&self, upto: Lsn) {
        while self.pipeline.progress().durable() < upto {
            if self.pipeline.flush_step(0) == NextWake::OnSignal {
                self.pipeline.flusher_signal(0).wait(None);
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
    let log = log(1);
    join([spawn(&log, Log::commit), spawn(&log, Log::commit)]);
    assert_eq!(log.pipeline.progress().durable(), Lsn(2));
}

/// Like `two_waiters`, with two groups in flight.
fn two_groups() {
    let log = log(2);
    join([spawn(&log, Log::commit), spawn(&log, Log::commit)]);
    assert_eq!(log.pipeline.progress().durable(), Lsn(2));
    assert_eq!(log.pipeline.progress().durable_group().next(), log.pipeline.progress().next_group());
}

/// Two groups in flight fill the window, and a third one waits for the first to complete. `first` leads the first.
fn full_window(first: fn(&Pipeline<Endless>)) {
    let pipeline = endless(Default::default());
    let (one, other) = (pipeline.clone(), pipeline.clone());
    join([
        thread::spawn(move || first(&one)),
        thread::spawn(move || {
            other.lead_for_space(0);
            other.force(Lsn(3), Calls::Here).expect("a log without faults");
        }),
    ]);
    let (groups, durable) = (pipeline.progress().next_group().0 - 1, pipeline.progress().durable().0);
    assert!(durable == groups && durable >= 3, "{durable} of {groups} groups are durable");
}

/// Leads without a wait.
fn lead_once(pipeline: &Pipeline<Endless>) {
    pipeline.lead_for_space(0);
}

/// Leads, or waits for another thread that does.
fn lead_or_wait(pipeline: &Pipeline<Endless>) {
    pipeline.force(Lsn(1), Calls::Here).expect("a log without faults");
}

/// A thread leads while the first group is in flight: once beside it, and then the window is full.
fn filled_window() {
    let filler = Arc::new(OnceLock::<Arc<Pipeline<Endless>>>::new());
    let filled = filler.clone();
    let meanwhile = move || {
        let pipeline = filled.get().expect("set before the first group").clone();
        join([thread::spawn(move || {
            assert_eq!(pipeline.lead_for_space(0), Led::Sealed);
            assert_eq!(pipeline.lead_for_space(0), Led::Busy);
            assert_eq!(pipeline.progress().durable(), Lsn(0), "the second group is durable before the first");
        })]);
    };
    let first = Bit { meanwhile: Some(Box::new(meanwhile)), ..Bit::default() };
    // The number of the first group is odd.
    let pipeline = endless([Bit::default(), first]);
    filler.set(pipeline.clone()).unwrap_or_else(|_| panic!("set once"));
    let leader = pipeline.clone();
    join([thread::spawn(move || assert_eq!(leader.lead_for_space(0), Led::Sealed))]);
    assert_eq!(pipeline.progress().durable(), Lsn(2));
}

/// Two threads lead groups, the second one `leads` of them. Each checks the durable LSN after its last.
fn watched(leads: usize) {
    let disk = Shared::new(AtomicU64::new(0));
    let group = || Bit { disk: Some(disk.clone()), ..Bit::default() };
    let pipeline = endless([group(), group()]);
    let actor = |leads: usize| {
        let (pipeline, disk) = (pipeline.clone(), disk.clone());
        thread::spawn(move || {
            for _ in 0..leads {
                pipeline.lead_for_space(0);
            }
            let (acked, upto) = (pipeline.progress().durable_group().0, pipeline.progress().durable().0);
            let disk = disk.load(Ordering::Acquire);
            assert!((1..=acked).all(|group| disk & (1 << group) != 0), "group {acked} of {disk:b} is durable");
            assert!((1..=upto).all(|group| disk & (1 << group) != 0), "{upto} of {disk:b} is durable");
        })
    };
    join([actor(1), actor(leads)]);
}

/// A pipelined commit beside a parked flusher.
fn pipelined() {
    let log = log(1);
    join([
        spawn(&log, |log| {
            let lsn = log.append();
            log.pipeline.flush_soon(0, lsn);
        }),
        spawn(&log, |log| log.flush_until(Lsn(1))),
    ]);
}

/// A policy that waits once for each group. Loom has no time, so any time may pass before the leader checks again.
#[derive(Debug)]
struct WaitsOnce(Option<GroupNo>);

impl GroupPolicy for WaitsOnce {
    fn decide(&mut self, seen: &Observation) -> Decision {
        match self.0.replace(seen.group) == Some(seen.group) {
            true => Decision::Seal,
            false => Decision::Wait(Duration::from_micros(1)),
        }
    }
}

fn waits_once() -> GroupSource {
    GroupSource::new(|| Box::new(WaitsOnce(None)))
}

/// Waits as long as all commits are relaxed.
#[derive(Debug)]
struct WaitsWhileRelaxed;

impl GroupPolicy for WaitsWhileRelaxed {
    fn decide(&mut self, seen: &Observation) -> Decision {
        if seen.is_relaxed { Decision::Wait(Duration::from_micros(1)) } else { Decision::Seal }
    }
}

/// A pipelined commit beside a flusher that sleeps for a relaxed one, whose time never passes.
fn pipelined_beside_a_relaxed_one() {
    let log = log_with(1, Some(GroupSource::new(|| Box::new(WaitsWhileRelaxed))), None);
    let first = log.append();
    log.pipeline.flush_later(0, first);
    join([
        spawn(&log, |log| {
            let second = log.append();
            log.pipeline.flush_soon(0, second);
        }),
        spawn(&log, |log| {
            while log.pipeline.progress().durable() < Lsn(2) {
                if log.pipeline.flush_step(0) != NextWake::Now {
                    log.pipeline.flusher_signal(0).wait(None);
                }
            }
        }),
    ]);
}

/// Two blocking commits whose groups wait for a time.
fn two_timed_waiters() {
    let log = log_with(1, Some(waits_once()), None);
    join([spawn(&log, Log::commit), spawn(&log, Log::commit)]);
    assert_eq!(log.pipeline.progress().durable(), Lsn(2));
}

/// A commit for which the flusher waits with a timer, and another one after a lead meanwhile.
fn pipelined_around_a_lead() {
    let log = log_with(1, Some(waits_once()), None);
    let first = log.append();
    log.pipeline.flush_soon(0, first);
    join([
        spawn(&log, move |log| {
            log.pipeline.lead_for_space(0);
            let second = log.append();
            log.pipeline.flush_soon(0, second);
        }),
        spawn(&log, |log| log.flush_until(Lsn(2))),
    ]);
}

/// A pipelined commit while a thread leads a group that it may just have missed.
fn pipelined_beside_a_leader() {
    let log = log(1);
    let flusher = spawn(&log, |log| log.flush_until(Lsn(2)));
    join([spawn(&log, |log| log.pipeline.flush_soon(0, log.append())), spawn(&log, Log::commit)]);
    end_flusher(&log, flusher);
}

/// Joins the flusher of two records when all other threads have ended. Where they have made both durable, no thread
/// notifies it any more.
fn end_flusher(log: &Log, flusher: JoinHandle<()>) {
    if log.pipeline.progress().durable() == Lsn(2) {
        log.pipeline.flusher_signal(0).notify();
    }
    join([flusher]);
}

/// A commit that does not wait, while a thread leads for space a group that it may just have missed. The flusher is at
/// rest before, and only the signal of one of them starts it.
fn beside_a_leader(request: fn(&Log, Lsn)) {
    let log = log(1);
    log.append();
    while log.pipeline.flush_step(0) != NextWake::OnSignal {}
    join([spawn(&log, move |log| request(log, log.append())), spawn(&log, |log| _ = log.pipeline.lead_for_space(0))]);
    join([spawn(&log, |log| {
        if log.pipeline.progress().durable() < Lsn(2) {
            log.pipeline.flusher_signal(0).wait(None);
            log.flush_until(Lsn(2));
        }
    })]);
}

fn pipelined_commit(log: &Log, lsn: Lsn) {
    log.pipeline.flush_soon(0, lsn);
}

fn relaxed_commit(log: &Log, lsn: Lsn) {
    log.pipeline.flush_later(0, lsn);
}

/// A flusher beside a thread that leads for space a group that a pipelined commit has just missed.
fn flusher_beside_a_leader(width: usize) {
    let committer = Arc::new(OnceLock::<Arc<Log>>::new());
    let missed = committer.clone();
    let missed = move || {
        let log = missed.get().expect("set before the first group");
        join([spawn(log, |log| pipelined_commit(log, log.append()))]);
    };
    let log = log_with(width, None, Some(Box::new(missed)));
    committer.set(log.clone()).unwrap_or_else(|_| panic!("set once"));
    log.append();
    let flusher = spawn(&log, |log| log.flush_until(Lsn(2)));
    join([spawn(&log, |log| assert_eq!(log.pipeline.lead_for_space(0), Led::Sealed))]);
    end_flusher(&log, flusher);
}

struct ThreadWaker(Unparker);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future until `lsn` is durable.
fn poll(log: &Log, lsn: Lsn) {
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(ThreadWaker(parker.unparker())));
    let mut key = None;
    while log.pipeline.progress().durable() < lsn {
        key = log.pipeline.register_waker(0, lsn, key.take(), &waker);
        if key.is_some() {
            parker.park();
        }
    }
}

/// A future whose flush was not requested before its poll, and the flusher.
fn awaited() {
    let log = log(1);
    join([spawn(&log, |log| poll(log, log.append())), spawn(&log, |log| log.flush_until(Lsn(1)))]);
}

/// A waker is registered while its group is completed by another thread, which comes once.
fn awaited_beside_a_leader() {
    let log = log(1);
    let lsn = log.append();
    join([spawn(&log, move |log| poll(log, lsn)), spawn(&log, move |log| log.wait(lsn))]);
}

/// A callback is registered while its group is completed by another thread.
fn called_back() {
    let log = log(1);
    let calls = Shared::new(AtomicU64::new(0));
    let lsn = log.append();
    let noted = calls.clone();
    let callback = move |durable: bool| {
        assert!(durable, "a log without faults");
        noted.fetch_add(1, Ordering::Relaxed);
    };
    join([
        spawn(&log, move |log| log.pipeline.call_when_durable(0, lsn, Box::new(callback.clone()))),
        spawn(&log, move |log| log.wait(lsn)),
    ]);
    assert_eq!(calls.load(Ordering::Relaxed), 1, "a callback is called once");
}

/// Two commits with callbacks in one shard. The holder of the token may have checked before the second callback is due,
/// and the thread that makes it due then finds the token taken.
fn called_back_twice() {
    let log = log(1);
    let calls = Shared::new(AtomicU64::new(0));
    let commit = || {
        let noted = calls.clone();
        spawn(&log, move |log| {
            let (lsn, noted) = (log.append(), noted.clone());
            let callback = move |_| _ = noted.fetch_add(1, Ordering::Relaxed);
            log.pipeline.call_when_durable(0, lsn, Box::new(callback));
            log.wait(lsn);
        })
    };
    join([commit(), commit()]);
    assert_eq!(calls.load(Ordering::Relaxed), 2, "a callback is called once");
}

/// A callback whose group is completed by a thread that may hold locks, and so leaves the call to the flusher.
fn called_by_the_flusher() {
    let log = log(1);
    // Held by this thread to the end: loom aborts the process for an atomic that is dropped by a thread in a deadlock.
    let calls = Arc::new(AtomicU64::new(0));
    let (lsn, noted, seen) = (log.append(), calls.clone(), calls.clone());
    let callback = move |_| {
        noted.fetch_add(1, Ordering::Relaxed);
    };
    log.pipeline.call_when_durable(0, lsn, Box::new(callback));
    join([
        spawn(&log, move |log| log.pipeline.force(lsn, Calls::Elsewhere).expect("a log without faults")),
        spawn(&log, move |log| {
            while seen.load(Ordering::Relaxed) == 0 {
                if log.pipeline.flush_step(0) == NextWake::OnSignal && seen.load(Ordering::Relaxed) == 0 {
                    log.pipeline.flusher_signal(0).wait(None);
                }
            }
        }),
    ]);
}

/// A log whose first write fails, and which must not see a second one.
struct Failing(Shared<AtomicU64>);

/// Counts attempts to write.
struct Broken(Shared<AtomicU64>);

impl Leader for Failing {
    type Group = Broken;

    fn seal(&mut self, _group: &mut Broken, order: Order) -> Result<Option<Cut>> {
        let upto = Lsn(self.0.load(Ordering::Acquire));
        Ok((upto > order.sealed).then_some(Cut { upto, more: false, bytes: 0 }))
    }
}

impl Group for Broken {
    fn write(&mut self) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Err(Error::Closed)
    }
}

struct FailingLog {
    tail: Shared<AtomicU64>,
    writes: Shared<AtomicU64>,
    pipeline: Pipeline<Failing>,
}

impl FailingLog {
    fn new(width: usize) -> Arc<Self> {
        let (tail, writes) = (Shared::new(AtomicU64::new(0)), Shared::new(AtomicU64::new(0)));
        let groups = (0..width).map(|_| Broken(writes.clone())).collect();
        let slots = Arc::new(Slots::new(1));
        let pipeline =
            Pipeline::new(Failing(tail.clone()), groups, Lsn(0), GroupNo(1), slots, (GroupCommit::Greedy, None));
        Arc::new(Self { tail, writes, pipeline })
    }

    fn commit(&self) {
        let lsn = Lsn(self.tail.fetch_add(1, Ordering::AcqRel) + 1);
        assert!(matches!(self.pipeline.force(lsn, Calls::Elsewhere), Err(Error::Closed)));
    }
}

/// Two blocking commits on a device that fails: both get the error, and neither is acknowledged.
fn failed_writes(width: usize) {
    let log = FailingLog::new(width);
    let commit = || {
        let log = log.clone();
        thread::spawn(move || log.commit())
    };
    join([commit(), commit()]);
    assert_eq!(log.pipeline.progress().durable(), Lsn(0));
    // Another group may be in flight beside the failing one, but none begins after it.
    assert!(log.writes.load(Ordering::Relaxed) <= width as u64, "written behind a failed write");
}

/// A commit after one that got an error.
fn commit_after_a_failure() {
    let log = FailingLog::new(2);
    let actor = log.clone();
    let actor = thread::spawn(move || {
        actor.commit();
        _ = actor.tail.fetch_add(1, Ordering::AcqRel);
        actor.pipeline.lead_for_space(0);
    });
    join([actor]);
    assert_eq!(log.writes.load(Ordering::Relaxed), 1, "written behind a failed write");
}

#[test]
fn a_failed_write_ends_all_waits() {
    check(|| failed_writes(1));
}

#[test]
fn two_failed_writes_end_all_waits() {
    check(|| failed_writes(2));
}

#[test]
fn nothing_is_written_behind_a_failed_write() {
    check(commit_after_a_failure);
}

#[test]
#[should_panic(expected = "written behind a failed write")]
fn a_leader_that_ignores_poison_is_noticed() {
    mutated("pipeline: lead though stopped", commit_after_a_failure);
}

#[test]
fn a_waiter_is_not_forgotten() {
    check(two_waiters);
}

#[test]
fn a_waiter_for_a_timed_group_is_not_forgotten() {
    check(two_timed_waiters);
}

#[test]
#[should_panic(expected = "deadlock")]
fn leaving_the_timer_of_a_group_to_a_sleeper_is_noticed() {
    mutated("pipeline: leaves the timer to a sleeper", two_timed_waiters);
}

#[test]
fn a_waiter_beside_two_groups_is_not_forgotten() {
    check(two_groups);
}

#[test]
fn a_waiter_for_a_place_in_the_window_is_not_forgotten() {
    check(|| full_window(lead_once));
    check_large(|| full_window(lead_or_wait));
}

#[test]
#[should_panic(expected = "deadlock")]
fn parking_without_a_check_of_the_full_window_is_noticed() {
    mutated("pipeline: park without may_lead", || full_window(lead_once));
}

#[test]
fn the_window_counts_groups_behind_one_in_flight() {
    check(filled_window);
}

#[test]
fn durable_moves_in_the_order_of_groups() {
    check(|| watched(1));
    check_large(|| watched(2));
}

#[test]
fn a_pipelined_commit_is_not_forgotten() {
    check(pipelined);
}

#[test]
fn a_pipelined_commit_beside_a_leader_is_not_forgotten() {
    check(|| beside_a_leader(pipelined_commit));
    check(|| flusher_beside_a_leader(1));
    check(|| flusher_beside_a_leader(2));
    check_large(pipelined_beside_a_leader);
}

#[test]
fn a_relaxed_commit_beside_a_leader_is_not_forgotten() {
    check(|| beside_a_leader(relaxed_commit));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_leader_that_forgets_a_relaxed_commit_is_noticed() {
    mutated("pipeline: leader forgets the flusher", || beside_a_leader(relaxed_commit));
}

#[test]
fn a_pipelined_commit_does_not_wait_for_the_time_of_relaxed_ones() {
    check(pipelined_beside_a_relaxed_one);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_pipelined_commit_that_lets_a_relaxed_timer_run_is_noticed() {
    mutated("pipeline: every commit lets a relaxed timer run", pipelined_beside_a_relaxed_one);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_that_rests_for_relaxed_commits_without_a_look_is_noticed() {
    mutated("pipeline: flusher rests for relaxed commits without a check", pipelined_beside_a_relaxed_one);
}

#[test]
fn a_pipelined_commit_after_a_lead_is_not_forgotten() {
    check(pipelined_around_a_lead);
}

#[test]
fn a_future_is_not_forgotten() {
    check(awaited);
}

#[test]
fn a_future_beside_a_leader_is_not_forgotten() {
    check(awaited_beside_a_leader);
}

#[test]
fn a_callback_is_not_forgotten() {
    check(called_back);
}

#[test]
fn a_callback_that_is_left_to_the_flusher_is_not_forgotten() {
    check(called_by_the_flusher);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_thread_that_leaves_a_callback_to_the_flusher_signals_it() {
    mutated("pipeline: calls are left to no thread", called_by_the_flusher);
}

#[test]
#[should_panic(expected = "deadlock")]
fn the_flusher_checks_for_callbacks_before_it_is_idle() {
    mutated("pipeline: flusher rests without a check of the calls", called_by_the_flusher);
}

#[test]
fn a_callback_of_a_taken_shard_is_not_forgotten() {
    check(called_back_twice);
}

#[test]
#[should_panic(expected = "a callback is called once")]
fn registering_without_a_check_is_noticed() {
    mutated("acks: no check after the registration", called_back);
}

#[test]
#[should_panic(expected = "deadlock")]
fn registering_a_waker_without_a_check_is_noticed() {
    mutated("acks: no check after the registration", awaited_beside_a_leader);
}

#[test]
#[should_panic(expected = "a callback is called once")]
fn leaving_a_shard_without_a_check_is_noticed() {
    mutated("acks: no check after the token", called_back_twice);
}

#[test]
#[should_panic(expected = "deadlock")]
fn parking_without_a_check_of_the_lead_is_noticed() {
    mutated("pipeline: park without may_lead", two_waiters);
}

#[test]
#[should_panic(expected = "deadlock")]
fn parking_without_a_check_of_the_window_is_noticed() {
    mutated("pipeline: park without may_lead", two_groups);
}

#[test]
#[should_panic(expected = "durable")]
fn completing_out_of_order_is_noticed() {
    mutated("window: completes out of order", || watched(1));
}

#[test]
#[should_panic(expected = "a group has its place to itself")]
fn a_window_of_running_writes_is_noticed() {
    mutated("window: counts running writes only", filled_window);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_not_signalled_by_a_future_is_noticed() {
    mutated("pipeline: a future signals no flusher", awaited);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_commit_that_does_not_fence_is_noticed() {
    mutated("pipeline: flush_soon without fence", pipelined);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_that_rests_without_a_check_is_noticed() {
    mutated("pipeline: flusher rests without a check", pipelined);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_leader_that_forgets_the_flusher_is_noticed() {
    mutated("pipeline: leader forgets the flusher", || beside_a_leader(pipelined_commit));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_leader_that_forgets_a_flusher_that_goes_to_rest_is_noticed() {
    mutated("pipeline: leader forgets the flusher", || flusher_beside_a_leader(1));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_that_rests_beside_a_leader_without_a_check_is_noticed() {
    mutated("pipeline: flusher rests without a check", || flusher_beside_a_leader(2));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_flusher_that_keeps_its_timer_bit_is_noticed() {
    mutated("pipeline: a flusher keeps its timer bit", pipelined_around_a_lead);
}
