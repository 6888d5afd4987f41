//! The whole log among many threads, under random schedules: small rings and segments that fill, commits of every kind,
//! disks that fail at a random moment. Every wait ends with its answer, and each acknowledgement is true.
//!
//! A lost wake-up shows as a deadlock, or as an endless run where another thread checks again by the clock.

use crate::common::policies::{bounded, delay};
use crate::common::*;
use foreshore_base::{Error, Lsn, Result};
use foreshore_classics::log_buffers::{BufferKind, BufferOptions, WaitKind};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Mem, Sim};
use foreshore_sync::Parker;
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_wal::{
    CommitTicket, Decision, Dep, Group, GroupPolicy, GroupSource, Log, LogOptions, LoggedRecord, Observation, Record,
    Session, flags,
};
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

/// The way in which a writer commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Waits by LSN.
    Force,
    /// Waits by ticket.
    Wait,
    /// Waits by ticket with a short timeout, and again at the end.
    Briefly,
    /// Awaits the ticket.
    Await,
    /// Requests a flush, and waits or awaits at the end.
    Soon,
    /// Requests a flush with a later group, and waits or awaits at the end.
    Later,
    /// Registers a callback, and waits at the end until it was called.
    Call,
    /// Polls the ticket once and drops it.
    Glance,
    /// Does nothing.
    Leave,
}

/// Ways of committing that need another thread to write.
const ALL: &[Way] =
    &[Way::Force, Way::Wait, Way::Briefly, Way::Await, Way::Soon, Way::Later, Way::Call, Way::Glance, Way::Leave];
/// Ways that work in a log without threads.
const ALONE: &[Way] = &[Way::Force, Way::Wait, Way::Briefly, Way::Leave];

/// The plan of a run: the options of the log, and the ways of its writers.
#[derive(Clone, Debug)]
struct Plan {
    options: LogOptions,
    writers: u64,
    /// Commits of each writer.
    commits: u64,
    ways: &'static [Way],
    /// Sizes of records go up to this.
    max: usize,
}

/// A policy with random decisions.
#[derive(Debug)]
struct Whim;

impl GroupPolicy for Whim {
    fn decide(&mut self, seen: &Observation) -> Decision {
        match choose(4) {
            0 => Decision::Yield,
            1 => Decision::Wait(Duration::from_micros(choose(300))),
            2 if seen.in_flight > 0 => Decision::Hold,
            _ => Decision::Seal,
        }
    }
}

impl Plan {
    /// Two writers of small records that only commit in these ways.
    fn pair(ways: &'static [Way]) -> Self {
        let background = ways.iter().any(|way| !ALONE.contains(way));
        let options = LogOptions { buffer: None, in_flight: 1, background, ..small() };
        Self { options, writers: 2, commits: 2, ways, max: 200 }
    }

    /// Two writers of small records, with a delay of each group.
    fn timed(ways: &'static [Way]) -> Self {
        let mut plan = Self::pair(ways);
        plan.options.group_from = delay(Duration::from_micros(200));
        plan.options.in_flight = 1 + pick(3);
        Self { writers: 5, ..plan }
    }

    /// Records of which a few fill the ring, without a session that waits for them.
    fn narrow() -> Self {
        let options = LogOptions { buffer: BufferKind::Faa.maker(), ..small() };
        Self { options, writers: 4, commits: 3, max: 40_000, ..Self::pair(&[Way::Leave]) }
    }

    /// Writers of all ways, over a ring that is smaller than the appended records.
    fn any() -> Self {
        let background = choose(4) > 0;
        let group_from = match choose(8) {
            0 => bounded(Duration::from_micros(300), Some(3), Some(20_000)),
            1 => delay(Duration::from_micros(200)),
            2 => Some(GroupSource::new(|| Box::new(Whim))),
            _ => None,
        };
        let group = if choose(2) == 0 { Group::Greedy } else { Group::Window(Duration::from_micros(250)) };
        let slots = 1 + pick(3);
        let buffer = BufferOptions {
            kind: KINDS[pick(KINDS.len())],
            wait: if choose(4) == 0 { WaitKind::Spin } else { WaitKind::Park },
            slots,
            slot_pool: slots + 1 + pick(3),
        };
        let options = LogOptions {
            buffer: buffer.maker().expect("numbers in their ranges"),
            group,
            group_from,
            in_flight: 1 + pick(3),
            background,
            ..small()
        };
        Self { options, writers: 8, commits: 2, ways: if background { ALL } else { ALONE }, max: 70_000 }
    }
}

/// Chooses like [`choose`], for a number.
fn pick(bound: usize) -> usize {
    choose(bound as u64) as usize
}

/// The appended records, and the LSN up to which they were acknowledged. It is behind a lock of std, which no
/// scheduling point interrupts: all threads of a run are coroutines of one thread.
#[derive(Debug, Default)]
struct Books(Mutex<(Vec<Entry>, Lsn)>);

/// LSN, tag and length.
type Entry = (Lsn, u64, usize);

impl Books {
    fn note(&self, entry: Entry) {
        self.0.lock().unwrap().0.push(entry);
    }

    /// Notes the `answer` of a wait for `lsn`.
    fn answer(&self, log: &Log, lsn: Lsn, answer: Result<()>) -> Result<()> {
        match &answer {
            Ok(()) => {
                assert!(log.durable() >= lsn, "{lsn} was acknowledged at {}", log.durable());
                let mut books = self.0.lock().unwrap();
                books.1 = books.1.max(lsn);
            }
            Err(error) => {
                assert!(matches!(error, Error::Poisoned { .. }), "a waiter got {error:?}");
                assert!(log.poisoned().is_some());
            }
        }
        answer
    }

    /// Checks that the disk holds every record up to `upto`, and behind it those up to the end of the log, in the order
    /// of stamps.
    fn check(&self, fs: &Arc<dyn Fs>, upto: Lsn, context: &str) {
        // Another buffer each time.
        let options = LogOptions { buffer: KINDS[pick(KINDS.len())].maker(), ..small() };
        let (log, recovered) = open(fs, &options).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let found = all(&recovered);
        let end = recovered.end();
        assert!(end >= upto, "{context}: {upto} acknowledged, the log ends at {end}");
        assert!(found.is_sorted_by_key(|record| record.lsn), "{context}: records come in the order of stamps");
        let whole = |record: &LoggedRecord| record.payload == payload(record.tag, record.payload.len());
        assert!(found.iter().all(whole), "{context}: a record has changed");
        let mut found: Vec<Entry> = found.iter().map(|record| (record.lsn, record.tag, record.payload.len())).collect();
        let mut expected = self.0.lock().unwrap().0.clone();
        expected.retain(|&(lsn, ..)| lsn <= end);
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "{context}: LSN, tag and length of records up to {end}");
        drop(log);
    }
}

/// Runs one writer, to its end or the first error.
fn write(log: &Log, plan: &Plan, id: u64, books: &Books) -> Result<()> {
    let mut session = log.session()?;
    let (mut tickets, mut calls) = (Vec::new(), Vec::new());
    let mut last = Lsn::ZERO;
    for commit in 0..plan.commits {
        let lsn = append_some(log, plan, &mut session, id << 8 | commit, last, books)?;
        assert!(lsn > last, "a session's stamps grow");
        last = lsn;
        let ticket = match choose(2) {
            0 => session.ticket(lsn, lsn.csn(), lsn),
            _ => log.ticket(lsn, lsn.csn(), lsn),
        };
        match plan.ways[pick(plan.ways.len())] {
            Way::Force => books.answer(log, lsn, log.force(lsn))?,
            Way::Wait => books.answer(log, lsn, ticket.wait())?,
            Way::Briefly => {
                let answer = ticket.wait_timeout(Duration::from_micros(100));
                if answer.as_ref().is_ok_and(|durable| !durable) {
                    tickets.push((lsn, ticket));
                } else {
                    books.answer(log, lsn, answer.map(drop))?;
                }
            }
            Way::Await => books.answer(log, lsn, block_on(ticket))?,
            Way::Soon => {
                log.flush_soon(&mut session, lsn);
                tickets.push((lsn, ticket));
            }
            Way::Later => {
                log.flush_later(&mut session, lsn);
                tickets.push((lsn, ticket));
            }
            Way::Call => calls.push((lsn, call(ticket))),
            Way::Glance => glance(ticket),
            Way::Leave => {}
        }
        match choose(4) {
            0 => session.release(),
            1 => {
                drop(session);
                session = log.session()?;
            }
            _ => {}
        }
    }
    let background = plan.options.background;
    for (lsn, ticket) in tickets {
        let answer = if background && choose(2) == 0 { block_on(ticket) } else { ticket.wait() };
        books.answer(log, lsn, answer)?;
    }
    for (lsn, answer) in calls {
        books.answer(log, lsn, answer())?;
    }
    Ok(())
}

fn append_some(log: &Log, plan: &Plan, session: &mut Session, tag: u64, last: Lsn, books: &Books) -> Result<Lsn> {
    let max = plan.max.min(log.max_large());
    let len = match choose(4) {
        0 => max - pick(100),
        1 => max.min(log.max_record()) - pick(100),
        2 => max.min(3000),
        _ => pick(100),
    };
    let bytes = payload(tag, len);
    let record = Record { tag, flags: if choose(2) == 0 { flags::COMMIT } else { 0 }, parts: &[&bytes] };
    let dep = Dep::none().transaction(last);
    let lsn = if len > log.max_record() || choose(2) == 0 {
        session.append_large(record, dep)?
    } else {
        let large = plan.max > log.max_record() && choose(4) == 0;
        session.reserve(if large { log.max_reserve() } else { Session::cost(len) })?;
        session.append(record, dep)
    };
    books.note((lsn, tag, len));
    Ok(lsn)
}

/// Registers a callback for the acknowledgement of a commit. The returned function waits for the call and returns its
/// answer.
fn call(ticket: CommitTicket) -> impl FnOnce() -> Result<()> {
    let (parker, told) = (Parker::new(), Arc::new(Mutex::new(None)));
    let (unparker, tell) = (parker.unparker(), told.clone());
    ticket.on_durable(move |answer| {
        assert!(tell.lock().unwrap().replace(answer).is_none(), "called twice");
        unparker.unpark();
    });
    move || {
        loop {
            if let Some(answer) = told.lock().unwrap().take() {
                return answer;
            }
            parker.park();
        }
    }
}

/// Requests a flush of a commit and does not wait.
fn glance(ticket: CommitTicket) {
    let mut ticket = Box::pin(ticket);
    _ = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

/// Runs the plan's writers, and `beside` concurrently. Returns the results of the writers.
fn run(log: &Log, plan: &Plan, books: &Arc<Books>, beside: impl FnOnce()) -> Vec<Result<()>> {
    let start = |id| {
        let (log, plan, books) = (log.clone(), plan.clone(), books.clone());
        thread::spawn(move || write(&log, &plan, id, &books))
    };
    let writers: Vec<_> = (0..plan.writers).map(start).collect();
    beside();
    writers.into_iter().map(|writer| writer.join().expect("a writer ends")).collect()
}

fn disk(sim: &Sim) -> Arc<dyn Fs> {
    let fs: Arc<dyn Fs> = Arc::new(sim.clone());
    fs.create_dir(&dir()).unwrap();
    fs.sync_dir("/".as_ref()).unwrap();
    fs
}

fn new_sim() -> Sim {
    let sim = Sim::new(choose(1 << 32));
    sim.stop_recording();
    sim
}

/// A run on a disk that works. `crash` loses power beside it, on a copy of the disk.
fn healthy(plan: &Plan, fs: &Arc<dyn Fs>, crash: impl FnOnce(&Log) -> Option<(Sim, Lsn)>) {
    let log = fresh(fs, &plan.options);
    let books = Arc::new(Books::default());
    let mut crashed = None;
    let outcomes = run(&log, plan, &books, || crashed = crash(&log));
    outcomes.into_iter().for_each(|outcome| outcome.expect("the disk works"));
    log.close().expect("the disk works");
    let upto = log.current();
    drop(log);
    books.check(fs, upto, "closed");
    if let Some((image, upto)) = crashed {
        books.check(&(Arc::new(image) as Arc<dyn Fs>), upto, "without power");
    }
}

fn on_memory(plan: &Plan) {
    healthy(plan, &(Arc::new(Mem::null()) as Arc<dyn Fs>), |_| None);
}

fn with_power_loss(plan: &Plan) {
    let sim = new_sim();
    healthy(plan, &disk(&sim), |log| {
        (0..choose(400)).for_each(|_| thread::yield_now());
        // Only acknowledgements before the power loss count.
        let upto = log.durable();
        Some((image(&sim), upto))
    });
}

fn image(sim: &Sim) -> Sim {
    let image = sim.crash_image(&Persist::ALL[pick(Persist::ALL.len())], choose(1 << 32));
    image.stop_recording();
    image
}

/// A run on a disk of which a random operation fails.
fn failing(plan: &Plan) {
    let sim = new_sim();
    let fs = disk(&sim);
    let log = fresh(&fs, &plan.options);
    let kind = [FaultKind::Eio, FaultKind::Eio, FaultKind::Enospc, FaultKind::Crash][pick(4)];
    sim.inject(Fault { at: sim.ops() + choose(120), kind, sticky: choose(2) == 0 });
    let books = Arc::new(Books::default());
    for outcome in run(&log, plan, &books, || {}) {
        let typed = |error: &Error| matches!(error, Error::Poisoned { .. } | Error::Io { .. } | Error::DiskFull { .. });
        assert!(outcome.as_ref().err().is_none_or(typed), "a writer ended with {outcome:?}");
    }
    // Stops the flushers. Groups before the failed one may have become durable meanwhile.
    let answer = log.close();
    let upto = log.durable();
    if log.poisoned().is_some() {
        assert!(upto >= log.current() || matches!(answer, Err(Error::Poisoned { .. })), "closed with {answer:?}");
        let refused = log.session().and_then(|mut session| session.reserve(log.max_reserve()));
        assert!(matches!(refused, Err(Error::Poisoned { .. })), "a log that has stopped answers {refused:?}");
        _ = log.force(log.current());
        assert_eq!(log.durable(), upto, "something is acknowledged by a log that has stopped");
    }
    assert!(upto >= books.0.lock().unwrap().1, "durable falls");
    drop(log);
    sim.clear_faults();
    if !sim.is_off() {
        books.check(&(Arc::new(sim.fork()) as Arc<dyn Fs>), upto, "after the failure");
    }
    books.check(&(Arc::new(image(&sim)) as Arc<dyn Fs>), upto, "after the failure and without power");
}

#[test]
fn no_waiter_is_forgotten_and_nothing_is_lost() {
    shuttle(100, || on_memory(&Plan::any()));
}

#[test]
fn a_power_loss_takes_nothing_acknowledged() {
    shuttle(100, || with_power_loss(&Plan::any()));
}

#[test]
fn every_waiter_learns_of_a_failure() {
    shuttle(100, || failing(&Plan::any()));
}

#[test]
fn a_timed_group_has_a_timer() {
    shuttle(100, || on_memory(&Plan::timed(ALONE)));
    shuttle(100, || on_memory(&Plan::timed(ALL)));
}

#[test]
#[should_panic]
fn parking_without_a_check_of_the_lead_is_noticed() {
    shuttle_mutated("pipeline: park without may_lead", 10_000, || on_memory(&Plan::pair(&[Way::Wait])));
}

#[test]
#[should_panic]
fn a_flusher_that_is_not_signalled_is_missed() {
    shuttle_mutated("pipeline: leader forgets the flusher", 10_000, || {
        on_memory(&Plan::pair(&[Way::Wait, Way::Await]))
    });
}

#[test]
#[should_panic]
fn a_flusher_that_rests_without_a_check_is_missed() {
    shuttle_mutated("pipeline: flusher rests without a check", 10_000, || {
        on_memory(&Plan { writers: 3, ..Plan::pair(&[Way::Await]) })
    });
}

#[test]
#[should_panic]
fn a_future_that_does_not_signal_waits_for_ever() {
    shuttle_mutated("pipeline: a future signals no flusher", 10_000, || {
        on_memory(&Plan { writers: 3, ..Plan::pair(&[Way::Await]) })
    });
}

#[test]
#[should_panic]
fn a_token_given_back_without_a_check_is_missed() {
    shuttle_mutated("acks: no check after the token", 10_000, || {
        // Two sessions, so that a ticket of the log falls into the shard of one of them, and no later call makes up for
        // it.
        let mut plan = Plan { commits: 1, ..Plan::pair(&[Way::Call]) };
        plan.options.max_sessions = 2;
        on_memory(&plan);
    });
}

#[test]
#[should_panic]
fn space_without_a_signal_is_missed() {
    shuttle_mutated("pipeline: waits for space without an end", 10_000, || on_memory(&Plan::narrow()));
}

#[test]
#[should_panic]
fn a_cut_above_a_drawing_session_is_noticed() {
    shuttle_mutated("lanes: drawing ignored", 10_000, || on_memory(&Plan::pair(&[Way::Wait])));
}

#[test]
#[should_panic]
fn a_cut_that_falls_is_noticed() {
    shuttle_mutated("lanes: cut falls", 10_000, || on_memory(&Plan::pair(&[Way::Wait])));
}

#[test]
#[should_panic]
fn a_group_acknowledged_before_an_older_one_is_lost() {
    shuttle_mutated("window: completes out of order", 10_000, || {
        let mut plan = Plan::timed(&[Way::Wait]);
        plan.options.in_flight = 3;
        // Every leader begins a group, beside those in flight.
        plan.options.group_from = delay(Duration::from_nanos(1));
        failing(&plan);
    });
}
