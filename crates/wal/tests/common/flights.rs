//! A log on a simulated disk that holds its groups in flight, and a chain of records through several lanes.

use crate::common::policies::bounded;
use crate::common::*;
use foreshore_base::limits::SECTOR;
use foreshore_base::{Error, Lsn, Result};
use foreshore_classics::log_buffers::BufferKind;
use foreshore_io::sim::{OpNo, Persist};
use foreshore_io::{Fs, Sim};
use foreshore_sync::primitive::thread::{self, JoinHandle};
use foreshore_sync::{LockRank, Mutex, NextWake};
use foreshore_wal::{Dep, Log, LogOptions, Record, Recovered, Session, flags};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Buffers that number their records in two ways.
pub(crate) const BUFFERS: [BufferKind; 2] = [BufferKind::Lanes, BufferKind::Faa];
/// Groups in flight at once.
pub(crate) const DEPTH: usize = 3;
/// Records of a group. Each is of another session and depends on the one before.
pub(crate) const LINKS: u64 = 3;
/// Bytes of a record: a group takes three blocks, and five groups a segment.
const LEN: usize = 3000;
/// The number of orders in which the groups can land.
pub(crate) const ORDERS: [[usize; DEPTH]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

pub(crate) fn deep(buffer: BufferKind) -> LogOptions {
    // Each commit is due at once, whatever writes have taken so far.
    let group_from = bounded(Duration::from_millis(10), Some(1), None);
    LogOptions { buffer: buffer.maker(), in_flight: DEPTH, group_from, ..small() }
}

/// A group in flight, and the thread that writes it.
struct Flying {
    no: OpNo,
    len: usize,
    writer: JoinHandle<()>,
}

/// Answers of acknowledgements in the order in which they came: the number of the group, and whether it is durable.
type Answers = Arc<Mutex<Vec<(u64, bool)>>>;

pub(crate) struct Flights {
    pub(crate) sim: Sim,
    pub(crate) log: Log,
    sessions: Vec<Session>,
    up: Vec<Flying>,
    /// LSNs of the records, by tag: the chain in the order of dependency.
    pub(crate) chain: Vec<Lsn>,
    answers: Answers,
    /// Threads that wait for a group, by its number.
    waiters: Vec<(u64, JoinHandle<Result<()>>)>,
}

impl Flights {
    /// Creates a log with `before` groups that have landed.
    pub(crate) fn new(buffer: BufferKind, seed: u64, before: u64) -> Self {
        let sim = Sim::new(seed);
        // The owner of a log makes the name of its directory durable.
        sim.create_dir(&dir()).expect("an empty disk takes a directory");
        sim.sync_dir(Path::new("/")).expect("a disk without faults");
        let log = fresh(&fs(&sim), &deep(buffer));
        let sessions = (0..LINKS).map(|_| log.session().expect("there are more")).collect();
        sim.hold(|path| path.extension().is_some_and(|name| name == "seg"));
        let answers = Arc::new(Mutex::new(LockRank::Leaf, Vec::new()));
        let (up, chain, waiters) = (Vec::new(), Vec::new(), Vec::new());
        let mut flights = Self { sim, log, sessions, up, chain, answers, waiters };
        for _ in 0..before {
            flights.fly();
            flights.land(0);
        }
        flights
    }

    /// Appends links to the chain and issues a group with them.
    pub(crate) fn fly(&mut self) {
        let group = self.groups();
        for session in &mut self.sessions {
            let tag = self.chain.len() as u64;
            let dep = self.chain.last().map_or(Dep::none(), |&before| Dep::none().transaction(before));
            session.reserve(Session::cost(LEN)).expect("the disk has room");
            let flags = if tag % LINKS == LINKS - 1 { flags::COMMIT } else { 0 };
            self.chain.push(session.append(Record { tag, flags, parts: &[&payload(tag, LEN)] }, dep));
        }
        let (session, last) = (self.sessions.last_mut().expect("some"), self.chain[self.chain.len() - 1]);
        let answers = self.answers.clone();
        let ticket = session.ticket(last, last.csn(), last);
        self.log.flush_soon(session, last);
        ticket.on_durable(move |answer| answers.lock().push((group, answer.is_ok())));
        let log = self.log.clone();
        let writer = thread::spawn(move || {
            assert_eq!(log.flush_step(), NextWake::Now, "a group is due");
        });
        let flight = self.sim.wait_for_flights(self.up.len() + 1).pop().expect("as many as asked for");
        self.up.push(Flying { no: flight.no, len: flight.len, writer });
        let log = self.log.clone();
        self.waiters.push((group, thread::spawn(move || log.force(last))));
    }

    /// Lets a group land, counted from the oldest in flight. Returns when all effects of its end have happened.
    pub(crate) fn land(&mut self, nth: usize) {
        let flying = self.up.remove(nth);
        self.sim.release(flying.no);
        flying.writer.join().expect("a group is written");
    }

    /// Lets any of the groups in flight land.
    pub(crate) fn land_any(&mut self, seed: u64) {
        let flight = self.sim.release_any(seed).expect("one is in flight");
        let nth = self.up.iter().position(|flying| flying.no == flight.no).expect("each group is known");
        self.up.remove(nth).writer.join().expect("a group is written");
    }

    /// Lets the write of a group fail, counted as in [`Self::land`].
    pub(crate) fn fail(&mut self, nth: usize) {
        let flying = self.up.remove(nth);
        self.sim.fail(flying.no);
        flying.writer.join().expect("a failed write is no panic");
    }

    /// Puts sectors of each group in flight on the medium, and returns the disk after a power loss. `reached` gets the
    /// count of sectors and returns those to write.
    pub(crate) fn crash_with(&self, reached: impl Fn(usize, usize) -> Range<usize>) -> Sim {
        for (nth, flying) in self.up.iter().enumerate() {
            self.sim.reach(flying.no, reached(nth, flying.len / SECTOR));
        }
        self.sim.crash_image(&Persist::None, 0)
    }

    /// Returns the groups in flight. A group that has landed before an older one still counts in the window of the log.
    pub(crate) fn in_flight(&self) -> usize {
        self.up.len()
    }

    /// Whether the window admits another group.
    pub(crate) fn has_room(&self) -> bool {
        self.groups() - self.durable() < DEPTH as u64
    }

    /// Returns the groups issued so far.
    pub(crate) fn groups(&self) -> u64 {
        self.chain.len() as u64 / LINKS
    }

    /// Returns the groups whose records are all durable.
    pub(crate) fn durable(&self) -> u64 {
        let durable = self.log.durable();
        self.chain.iter().filter(|&&lsn| lsn <= durable).count() as u64 / LINKS
    }

    /// Returns the answers so far.
    pub(crate) fn answers(&self) -> Vec<(u64, bool)> {
        self.answers.lock().clone()
    }

    /// Joins all waiters, and returns the groups that they found durable. The other waiters got the error of the log.
    pub(crate) fn waited(&mut self) -> Vec<u64> {
        let ends = self.waiters.drain(..).map(|(group, waiter)| (group, waiter.join().expect("a wait does not panic")));
        ends.filter_map(|(group, end)| match end {
            Ok(()) => Some(group),
            Err(Error::Poisoned { .. }) => None,
            Err(other) => panic!("{other:?}"),
        })
        .collect()
    }

    /// Loses power and ends all threads.
    pub(crate) fn end(mut self) {
        self.sim.power_off();
        self.up.drain(..).for_each(|flying| flying.writer.join().expect("a lost power is an error"));
        self.waited();
    }

    /// Returns how many links a start found, and checks that they are the front of the chain, each as it was appended.
    pub(crate) fn found(&self, recovered: &Recovered) -> u64 {
        let records = all(recovered);
        for (i, record) in records.iter().enumerate() {
            assert_eq!((record.tag, record.lsn), (i as u64, self.chain[i]), "not the front of the chain");
            assert!(record.payload == payload(record.tag, LEN), "wrong bytes in {i}");
        }
        records.len() as u64
    }
}

pub(crate) fn fs(sim: &Sim) -> Arc<dyn Fs> {
    Arc::new(sim.clone())
}

/// Returns the length of the gapless run of landed groups from the oldest on, after the first `n` landings of `order`.
fn landed_in_front(order: [usize; DEPTH], n: usize) -> u64 {
    (0..DEPTH).take_while(|group| order[..n].contains(group)).count() as u64
}

/// Returns the index of `order[n]` among the groups in flight, after the earlier landings of `order`.
fn nth(order: [usize; DEPTH], n: usize) -> usize {
    order[n] - order[..n].iter().filter(|&&earlier| earlier < order[n]).count()
}

/// T5: groups land in `order`. The durable LSN and the answers follow the order of the groups.
pub(crate) fn land_in(buffer: BufferKind, order: [usize; DEPTH]) {
    let mut flights = Flights::new(buffer, 5, 1);
    (0..DEPTH).for_each(|_| flights.fly());
    for n in 0..DEPTH {
        flights.land(nth(order, n));
        let groups = 1 + landed_in_front(order, n + 1);
        assert_eq!(flights.durable(), groups, "{order:?}, {n}");
        assert_eq!(flights.answers(), (0..groups).map(|group| (group, true)).collect::<Vec<_>>(), "{order:?}, {n}");
    }
    // The window admits a group again.
    flights.fly();
    flights.land(0);
    assert_eq!(flights.durable(), DEPTH as u64 + 2);
    assert_eq!(flights.waited(), (0..DEPTH as u64 + 2).collect::<Vec<_>>());
    flights.end();
}

/// T8: groups land in `order`, but one fails. From then on no commit is acknowledged, whatever lands later, and every
/// waiter gets the error. Returns the log as it was left, and how many groups were acknowledged.
pub(crate) fn fail_in(buffer: BufferKind, order: [usize; DEPTH], failing: usize) -> (Flights, u64) {
    let mut flights = Flights::new(buffer, 8, 1);
    (0..DEPTH).for_each(|_| flights.fly());
    let context = format!("{buffer}, {order:?}, group {failing} fails");
    let turn = order.iter().position(|&group| group == failing).expect("all land");
    let acked = 1 + landed_in_front(order, turn);
    for n in 0..DEPTH {
        match order[n] == failing {
            true => flights.fail(nth(order, n)),
            false => flights.land(nth(order, n)),
        }
        if n >= turn {
            assert_eq!(flights.durable(), acked, "{context}, {n}");
        }
    }
    let answers = flights.answers();
    let expected = |group| (group, group < acked);
    let mut sorted = answers.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1 + DEPTH as u64).map(expected).collect::<Vec<_>>(), "{context}");
    assert!(answers.is_sorted_by_key(|&(_, durable)| !durable), "{context}: acknowledged after the failure");
    assert_eq!(flights.waited(), (0..acked).collect::<Vec<_>>(), "{context}");
    // The log refuses new work.
    let last = flights.chain[flights.chain.len() - 1];
    assert!(matches!(flights.log.force(last), Err(Error::Poisoned { .. })), "{context}");
    let refused = flights.sessions[0].reserve(flights.log.max_reserve());
    assert!(matches!(refused, Err(Error::Poisoned { .. })), "{context}");
    (flights, acked)
}
