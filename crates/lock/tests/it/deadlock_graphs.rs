//! Random graphs of waits, with tails, branches and cycles that share an edge, beside a plain reference that knows
//! each of them whole. A wait is refused exactly if it closes a cycle that is not only due to the order of a queue. All
//! others end when those in their way have.

mod reference;

use crate::toy::{PATIENCE, TABLE, Toy, ToyTxn, key};
use foreshore_base::{Error, Result, TableId, Waiter};
use foreshore_lock::{Interval, TableMode, Target};
use foreshore_sync::primitive::atomic::{AtomicUsize, Ordering};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use reference::{Reference, Thing, member_of};

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
    /// All cycles that a wait closes have soft waits.
    soft: usize,
    /// Of these, two waiters of one queue exclude each other, and there was a victim still.
    contested: usize,
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

/// The members that ended in the time of one request, and the cycle for which the requester was refused, if it was.
#[derive(Debug, Default)]
struct Ended {
    members: Vec<usize>,
    refused: Option<Arc<[Waiter]>>,
}

/// Carries out the jobs of one member.
fn work(toy: &Toy, member: usize, slot: &AtomicUsize, jobs: &Receiver<Job>, reports: &Sender<Report>) {
    let clock = SystemClock::new();
    let mut running = None;
    for Job { begins, asks, ends } in jobs {
        let began = clock.now();
        let mut txn = if begins { toy.begin(LABELS[member]) } else { running.take().expect("it has begun") };
        // ORDERING: Relaxed, the report that follows publishes it.
        slot.store(txn.owner.index(), Ordering::Relaxed);
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
    /// The slots of the members' owners.
    slots: &'a [AtomicUsize; MEMBERS],
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
            let kind = [Kind::Row, Kind::Row, Kind::Range, Kind::Table, Kind::Table][self.below(5)];
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
        if !graph.is_on_hard_cycle(member) {
            self.break_soft_cycles(graph, member, before);
            return Asked::Overtook;
        }
        let closed = graph.clone();
        for _ in graph.end(member) {
            let (ended, outcome, took) = self.reports.recv().expect("members report");
            if ended != member {
                assert!(!graph.live.contains(&ended) && outcome.is_ok(), "{ended}: {outcome:?}, refused was {member}");
                continue;
            }
            let Err(Error::Deadlock { cycle }) = outcome else { panic!("{member}: {outcome:?}, not a deadlock") };
            assert!(closed.is_cycle(member, &cycle), "{cycle:?}");
            assert!(cycle.iter().all(|waiter| !closed.is_soft(member_of(waiter))), "a soft wait is in {cycle:?}");
            self.times.push(took);
        }
        Asked::Refused
    }

    /// The wait of `closer` has closed only cycles with soft waits. Soft waiters overtake, until none of them stands.
    fn break_soft_cycles(&mut self, graph: &mut Reference, closer: usize, waits_before: u64) {
        self.shapes.soft += 1;
        let closed = graph.clone();
        let Ended { members, refused } = self.settle(graph, closer, waits_before);
        let overtakes = |graph: &Reference, member: usize| {
            // One that overtook may have ended while the closer still looked at the others.
            let is_free_to = graph.may_overtake(member, closer) || closed.may_overtake(member, closer);
            graph.live.contains(&member) && is_free_to && (refused.is_none() || member != closer)
        };
        let mut overtook = 0;
        while let Some(&member) = members.iter().find(|&&member| overtakes(graph, member)) {
            overtook += 1;
            let freed = graph.end(member);
            assert!(freed.iter().all(|member| members.contains(member)), "{freed:?} are free, ended are {members:?}");
        }
        assert!(overtook > 0, "no soft waiter of the cycle is among {members:?}");
        if let Some(cycle) = refused {
            self.shapes.contested += 1;
            assert!(closed.is_cycle(closer, &cycle), "{cycle:?}");
            if graph.live.contains(&closer) {
                graph.end(closer);
            }
        }
        let stand: Vec<_> = members.iter().filter(|member| graph.live.contains(member)).collect();
        assert!(stand.is_empty(), "{stand:?} have ended and were in a wait");
        assert!(!graph.live.contains(&closer) || !graph.leads(closer, closer), "a cycle stands");
    }

    /// Receives reports until all members that have not ended wait for others.
    fn settle(&mut self, graph: &Reference, closer: usize, waits_before: u64) -> Ended {
        let mut ended = Ended::default();
        while self.toy.locks.stats().waits == waits_before {
            thread::yield_now();
        }
        loop {
            while let Ok((member, outcome, took)) = self.reports.try_recv() {
                ended.members.push(member);
                match outcome {
                    Ok(()) => {}
                    Err(Error::Deadlock { cycle }) if member == closer => {
                        ended.refused = Some(cycle);
                        self.times.push(took);
                    }
                    Err(error) => panic!("{}: {error:?}, closed by {}", LABELS[member], LABELS[closer]),
                }
            }
            let waiters = graph.live.iter().filter(|&&member| graph.waits_for(member).is_some());
            let mut left = waiters.filter(|member| !ended.members.contains(member));
            if left.all(|&member| graph.live.iter().any(|&other| other != member && self.waits_for(member, other))) {
                return ended;
            }
            thread::yield_now();
        }
    }

    /// Whether the lock manager knows of waits that lead from one member to another.
    fn waits_for(&self, member: usize, other: usize) -> bool {
        // ORDERING: Relaxed, see the store.
        let [from, to] = [member, other].map(|member| self.slots[member].load(Ordering::Relaxed));
        !self.toy.locks.any_goes_on(&[from], &[to])
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
                Asked::Overtook => {}
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
    Overtook,
    Refused,
}

#[test]
fn a_wait_is_refused_exactly_if_it_closes_a_cycle() {
    let toy = Toy::new(&[0; THINGS], GRAPHS * MEMBERS + 1, PATIENCE);
    let slots = [const { AtomicUsize::new(0) }; MEMBERS];
    thread::scope(|scope| {
        let (report, reports) = channel();
        let member = |member| {
            let (send, jobs) = channel();
            let (toy, slot, report) = (&toy, &slots[member], report.clone());
            scope.spawn(move || work(toy, member, slot, &jobs, &report));
            send
        };
        let workers = (0..MEMBERS).map(member).collect();
        let (shapes, times) = (Shapes::default(), Vec::new());
        let mut driver = Driver { toy: &toy, workers, reports, slots: &slots, state: 7, shapes, times };
        (0..GRAPHS).for_each(|_| driver.graph());
        let Driver { shapes, mut times, .. } = driver;
        let Shapes { without_a_cycle, victims, tails, branches, sharing, soft, contested } = shapes;
        assert!(soft > GRAPHS / 100 && contested < soft / 10, "{shapes:?}");
        assert!([without_a_cycle, victims, tails, branches, sharing].iter().all(|&n| n > GRAPHS / 100), "{shapes:?}");
        let stats = toy.locks.stats();
        assert_eq!((stats.deadlocks, stats.timeouts), (times.len() as u64, 0));
        times.sort_unstable();
        let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!("{} cycles in {GRAPHS} graphs broken: p50 {p50:?}, p99 {p99:?}; {shapes:?}", times.len());
    });
}
