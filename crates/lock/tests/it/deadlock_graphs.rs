//! Random graphs of waits, with tails, branches and cycles that share an edge, beside a plain reference that knows
//! each of them whole. A wait is refused exactly if it closes a cycle. All others end when those in their way have.

use crate::toy::{PATIENCE, TABLE, Toy, ToyTxn, key};
use foreshore_base::{Error, Lockable, Result, TableId, Waiter};
use foreshore_lock::{Interval, TableMode, Target};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const GRAPHS: usize = 10_000;
const MEMBERS: usize = 8;
const LABELS: [&str; MEMBERS] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
const THINGS: usize = 6;
const EXCLUSIVE: TableMode = TableMode::Exclusive;
const MODES: [TableMode; 5] = [
    TableMode::IntentShared,
    TableMode::IntentExclusive,
    TableMode::Shared,
    TableMode::SharedIntentExclusive,
    EXCLUSIVE,
];

/// Rows and ranges are shared or exclusive; no owner has a range exclusively for longer than an insert takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Row,
    Range,
    Table,
}

fn table(thing: usize) -> TableId {
    TableId(100 + thing as u32)
}

/// What is asked of a thing.
#[derive(Clone, Copy, Debug)]
struct Ask {
    thing: usize,
    kind: Kind,
    mode: TableMode,
}

impl Ask {
    fn lock(self, toy: &Toy, txn: &mut ToyTxn<'_>) -> Result<()> {
        let key = key(self.thing);
        match (self.kind, self.mode) {
            (Kind::Row, TableMode::Shared) => txn.read(self.thing).map(drop),
            (Kind::Row, _) => txn.lock(self.thing).map(drop),
            (Kind::Range, TableMode::Shared) => {
                let interval = Interval::of_key(&key);
                while toy.locks.try_cover(&mut txn.owner, TABLE, &interval).is_none() {
                    toy.locks.wait_to_cover(&mut txn.owner, TABLE, &interval, PATIENCE)?;
                }
                Ok(())
            }
            (Kind::Range, _) => {
                toy.locks.wait_exclusive(&mut txn.owner, Target::row(TABLE, &key), PATIENCE)?;
                toy.locks.end_exclusive(&mut txn.owner);
                Ok(())
            }
            (Kind::Table, mode) => toy.locks.lock_table(&mut txn.owner, table(self.thing), mode, PATIENCE).map(drop),
        }
    }
}

/// How an error names a thing.
fn named(thing: usize, kind: Kind) -> Lockable {
    match kind {
        Kind::Row | Kind::Range => Lockable::Row(TABLE.into(), key(thing).to_vec()),
        Kind::Table => Lockable::Table(table(thing).into()),
    }
}

/// A thing in the reference: its holders, and its waiters.
#[derive(Clone)]
struct Thing {
    kind: Kind,
    holders: Vec<(usize, TableMode)>,
    queue: Vec<(usize, TableMode)>,
}

impl Thing {
    fn held_by(&self, member: usize) -> Option<TableMode> {
        self.holders.iter().find(|&&(holder, _)| holder == member).map(|&(_, mode)| mode)
    }

    fn position(&self, member: usize) -> Option<usize> {
        self.queue.iter().position(|&(waiter, _)| waiter == member)
    }

    /// Where `member` waits: if it has something, before those that wait for that. Otherwise behind all.
    fn place(&self, member: usize) -> usize {
        let Some(held) = self.held_by(member) else { return self.queue.len() };
        if self.kind != Kind::Table {
            return 0;
        }
        self.queue.iter().position(|&(_, mode)| !mode.is_compatible(held)).unwrap_or(self.queue.len())
    }

    /// The members that `member` has to wait for if it asks for `mode` behind the first `ahead` of the queue.
    fn in_the_way(&self, member: usize, mode: TableMode, ahead: usize) -> Vec<usize> {
        let excludes =
            |&(other, held): &(usize, TableMode)| (other != member && !held.is_compatible(mode)).then_some(other);
        let mut blockers: Vec<_> = self.holders.iter().filter_map(excludes).collect();
        let is_in_header = self.kind == Kind::Row && self.holders.iter().any(|&(_, held)| held == EXCLUSIVE);
        let is_upgrade = self.kind != Kind::Table && self.held_by(member).is_some();
        if is_upgrade || is_in_header {
            return blockers;
        }
        let queued = match (self.kind, mode) {
            (Kind::Table, _) | (_, EXCLUSIVE) => &self.queue[..ahead],
            // Readers of a key let all writers go first.
            _ => &self.queue[..],
        };
        // Writers of a key do not wait for readers that wait themselves.
        let counts = |(_, queued): &&(usize, TableMode)| self.kind == Kind::Table || *queued == EXCLUSIVE;
        blockers.extend(queued.iter().filter(counts).filter_map(excludes));
        blockers
    }
}

/// What all members have and wait for, with nothing of the lock manager but which modes go together.
#[derive(Clone)]
struct Reference {
    things: Vec<Thing>,
    /// Those that have not ended.
    live: Vec<usize>,
}

impl Reference {
    /// What `member` waits for.
    fn waits_for(&self, member: usize) -> Option<usize> {
        self.things.iter().position(|thing| thing.position(member).is_some())
    }

    /// The members that `member` waits for.
    fn blockers(&self, member: usize) -> Vec<usize> {
        let Some(thing) = self.waits_for(member).map(|thing| &self.things[thing]) else { return Vec::new() };
        let at = thing.position(member).expect("it waits");
        thing.in_the_way(member, thing.queue[at].1, at)
    }

    /// Whether waits lead from one member to another.
    fn leads(&self, from: usize, to: usize) -> bool {
        let (mut open, mut seen) = (self.blockers(from), [false; MEMBERS]);
        while let Some(member) = open.pop() {
            if member == to {
                return true;
            }
            if !std::mem::replace(&mut seen[member], true) {
                open.extend(self.blockers(member));
            }
        }
        false
    }

    /// Asks; whether `member` has to wait. Otherwise it has what it asked for.
    fn ask(&mut self, member: usize, ask: Ask) -> bool {
        let thing = &mut self.things[ask.thing];
        let held = thing.held_by(member);
        let mode = held.map_or(ask.mode, |held| held.supremum(ask.mode));
        if held == Some(mode) {
            return false;
        }
        if thing.in_the_way(member, mode, thing.place(member)).is_empty() {
            if ask.kind != Kind::Range || mode != EXCLUSIVE {
                thing.holders.retain(|&(holder, _)| holder != member);
                thing.holders.push((member, mode));
            }
            return false;
        }
        thing.queue.insert(thing.place(member), (member, mode));
        true
    }

    /// Ends `member`, and with it all that come to have what they waited for. Returns the members that have ended.
    fn end(&mut self, member: usize) -> Vec<usize> {
        let mut ended = Vec::new();
        let mut next = Some(member);
        while let Some(member) = next {
            for thing in &mut self.things {
                thing.holders.retain(|&(holder, _)| holder != member);
                thing.queue.retain(|&(waiter, _)| waiter != member);
            }
            self.live.retain(|&live| live != member);
            ended.push(member);
            let is_free = |&member: &usize| self.waits_for(member).is_some() && self.blockers(member).is_empty();
            next = self.live.iter().copied().find(is_free);
        }
        ended.sort_unstable();
        ended
    }

    /// Whether `told`, of `victim`, is a cycle of those that stand.
    fn is_cycle(&self, victim: usize, told: &[Waiter]) -> bool {
        let member = |waiter: &Waiter| LABELS.iter().position(|&label| label == waiter.label).expect("a member");
        let next = told.iter().cycle().skip(1).map(member);
        told.first().map(member) == Some(victim)
            && told.iter().zip(next).all(|(waiter, next)| {
                let thing = self.waits_for(member(waiter)).map(|thing| (thing, self.things[thing].kind));
                thing.is_some_and(|(thing, kind)| waiter.waits_for == named(thing, kind))
                    && self.blockers(member(waiter)).contains(&next)
            })
    }
}

/// Graphs of each shape, so that none is tested by name alone.
#[derive(Debug, Default)]
struct Shapes {
    /// At least four waits and no cycle.
    without_a_cycle: usize,
    /// More than one victim.
    victims: usize,
    /// Waiters outside of a cycle lead to it.
    tails: usize,
    /// A member on a cycle waits for others too, which are on none.
    branches: usize,
    /// One wait closes two cycles, which part behind its own edge.
    sharing: usize,
}

impl Shapes {
    fn note_cycle(&mut self, graph: &Reference, victim: usize) {
        let leads_back = |member: usize| member == victim || graph.leads(member, victim);
        let cycle: Vec<_> =
            graph.live.iter().copied().filter(|&member| graph.leads(victim, member) && leads_back(member)).collect();
        let back = |member: usize| {
            let blockers = graph.blockers(member);
            (blockers.iter().filter(|&&blocker| leads_back(blocker)).count(), blockers.len())
        };
        self.tails += usize::from(graph.live.iter().any(|&live| !cycle.contains(&live) && leads_back(live)));
        self.branches += usize::from(cycle.iter().any(|&member| back(member).0 < back(member).1));
        self.sharing += usize::from(cycle.iter().any(|&member| member != victim && back(member).0 > 1));
    }
}

/// For one member: to begin, to ask for things, to end once it has them.
struct Job {
    begins: bool,
    asks: Vec<Ask>,
    ends: bool,
}

/// What a job has come to, and when. A member that is refused has ended.
type Report = (usize, Result<()>, Duration);

/// Carries out the jobs of one member.
fn work(toy: &Toy, member: usize, jobs: &Receiver<Job>, reports: &Sender<Report>) {
    let clock = SystemClock::new();
    let mut running = None;
    for Job { begins, asks, ends } in jobs {
        let began = clock.now();
        let mut txn = if begins { toy.begin(LABELS[member]) } else { running.take().expect("it has begun") };
        let outcome = asks.iter().try_for_each(|ask| ask.lock(toy, &mut txn));
        let took = clock.now().since(began);
        match outcome {
            Ok(()) if ends => txn.commit(),
            Ok(()) => running = Some(txn),
            Err(_) => drop(txn),
        }
        if reports.send((member, outcome, took)).is_err() {
            return;
        }
    }
}

struct Driver<'a> {
    toy: &'a Toy,
    workers: Vec<Sender<Job>>,
    reports: Receiver<Report>,
    state: u64,
    shapes: Shapes,
    /// In which time waits were refused.
    times: Vec<Duration>,
}

impl Driver<'_> {
    fn below(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) as usize % below
    }

    fn draw(&mut self, graph: &Reference) -> Ask {
        let thing = self.below(THINGS);
        let kind = graph.things[thing].kind;
        let mode = match kind {
            Kind::Table => MODES[self.below(MODES.len())],
            Kind::Row | Kind::Range => [TableMode::Shared, EXCLUSIVE][self.below(2)],
        };
        Ask { thing, kind, mode }
    }

    fn send(&self, member: usize, job: Job) {
        self.workers[member].send(job).expect("a member listens");
    }

    /// The next report, which is not that of a refusal.
    fn granted(&self) -> usize {
        let (member, outcome, _) = self.reports.recv().expect("members report");
        outcome.unwrap_or_else(|error| panic!("{}: {error:?}", LABELS[member]));
        member
    }

    /// Waits until `expected` have reported that they have what they wanted.
    fn all_report(&self, expected: &[usize]) {
        let mut reported: Vec<_> = expected.iter().map(|_| self.granted()).collect();
        reported.sort_unstable();
        assert_eq!(reported, expected);
    }

    /// All begin, each with some things that are free.
    fn begin(&mut self) -> Reference {
        let things = (0..THINGS).map(|_| {
            let kind = [Kind::Row, Kind::Row, Kind::Range, Kind::Table][self.below(4)];
            Thing { kind, holders: Vec::new(), queue: Vec::new() }
        });
        let mut graph = Reference { things: things.collect(), live: (0..MEMBERS).collect() };
        for member in 0..MEMBERS {
            let mut asks = Vec::new();
            for _ in 0..2 {
                let ask = self.draw(&graph);
                let waits = graph.ask(member, ask);
                graph.things[ask.thing].queue.clear();
                // An insert has nothing afterwards, and would wait for those that begin with the range.
                if !waits && (ask.kind, ask.mode) != (Kind::Range, EXCLUSIVE) {
                    asks.push(ask);
                }
            }
            self.send(member, Job { begins: true, asks, ends: false });
        }
        self.all_report(&graph.live);
        graph
    }

    /// One member asks for one thing more.
    fn ask(&mut self, graph: &mut Reference, member: usize) -> Asked {
        let ask = self.draw(graph);
        let before = self.toy.locks.stats().waits;
        let waits = graph.ask(member, ask);
        self.send(member, Job { begins: false, asks: vec![ask], ends: waits });
        if !waits {
            assert_eq!(self.granted(), member, "nobody is in the way");
            return Asked::Granted;
        }
        if !graph.leads(member, member) {
            // A wait is counted when its walk is over.
            while self.toy.locks.stats().waits == before {
                thread::yield_now();
            }
            return Asked::Waits;
        }
        self.shapes.note_cycle(graph, member);
        let closed = graph.clone();
        for _ in graph.end(member) {
            let (ended, outcome, took) = self.reports.recv().expect("members report");
            if ended != member {
                assert!(!graph.live.contains(&ended) && outcome.is_ok(), "{ended}: {outcome:?}, refused was {member}");
                continue;
            }
            let Err(Error::Deadlock { cycle }) = outcome else { panic!("{member}: {outcome:?}, not a deadlock") };
            assert!(closed.is_cycle(member, &cycle), "{cycle:?}");
            self.times.push(took);
        }
        Asked::Refused
    }

    /// Draws a graph, wait by wait, and lets all end.
    fn graph(&mut self) {
        let mut graph = self.begin();
        let (mut waits, mut victims) = (0, 0);
        let mut order: Vec<_> = (0..MEMBERS).collect();
        while !order.is_empty() {
            let member = order.swap_remove(self.below(order.len()));
            match self.ask(&mut graph, member) {
                Asked::Granted => {}
                Asked::Waits => waits += 1,
                Asked::Refused => victims += 1,
            }
            // Those that have ended meanwhile ask for nothing.
            order.retain(|member| graph.live.contains(member));
        }
        self.shapes.without_a_cycle += usize::from(waits >= 4 && victims == 0);
        self.shapes.victims += usize::from(victims > 1);
        let running: Vec<_> = graph.live.iter().copied().filter(|&live| graph.waits_for(live).is_none()).collect();
        let mut ended: Vec<_> = running.iter().flat_map(|&member| graph.end(member)).collect();
        assert!(graph.live.is_empty(), "without a cycle all waits lead to somebody who runs");
        running.iter().for_each(|&member| self.send(member, Job { begins: false, asks: Vec::new(), ends: true }));
        ended.sort_unstable();
        self.all_report(&ended);
    }
}

enum Asked {
    Granted,
    Waits,
    Refused,
}

#[test]
fn a_wait_is_refused_exactly_if_it_closes_a_cycle() {
    let toy = Toy::new(&[0; THINGS], GRAPHS * MEMBERS + 1, PATIENCE);
    thread::scope(|scope| {
        let (report, reports) = channel();
        let member = |member| {
            let (send, jobs) = channel();
            let (toy, report) = (&toy, report.clone());
            scope.spawn(move || work(toy, member, &jobs, &report));
            send
        };
        let workers = (0..MEMBERS).map(member).collect();
        let mut driver = Driver { toy: &toy, workers, reports, state: 7, shapes: Shapes::default(), times: Vec::new() };
        (0..GRAPHS).for_each(|_| driver.graph());
        let Driver { shapes, mut times, .. } = driver;
        let Shapes { without_a_cycle, victims, tails, branches, sharing } = shapes;
        assert!([without_a_cycle, victims, tails, branches, sharing].iter().all(|&n| n > GRAPHS / 100), "{shapes:?}");
        let stats = toy.locks.stats();
        assert_eq!((stats.deadlocks, stats.timeouts), (times.len() as u64, 0));
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{} cycles in {GRAPHS} graphs broken: p50 {p50:?}, p99 {p99:?}; {shapes:?}", times.len());
    });
}
