//! Cycles of waits over every kind of edge: each is broken by the walk, by one victim, which is told the whole cycle.

use crate::toy::{PATIENCE, TABLE, Toy, ToyTxn, key};
use foreshore_base::{Error, Lockable, MAX_NAMED, Result, TableId, Waiter};
use foreshore_lock::{Interval, TableMode, Target};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::sync::Barrier;
use std::time::Duration;

/// Of the longest ring.
const MEMBERS: usize = 8;
const LABELS: [&str; MEMBERS] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
/// Cycles in the large test.
const GRAPHS: usize = 10_000;

/// How one member of a cycle has what the one before it wants.
#[derive(Clone, Copy, Debug)]
enum Edge {
    /// It has the row exclusively, another wants to read it.
    Writer,
    /// It has the row exclusively, another wants that as well.
    Owner,
    /// It has read the row, another wants to write it.
    Reader,
    /// It has scanned the key, another wants to insert it.
    Scan,
    /// It has the table.
    Table,
    /// Both have read the row, the other wants to write it.
    ReaderUpgrade,
    /// Both have scanned the key, the other wants to insert it.
    ScanUpgrade,
    /// Both have read the whole table, the other wants to write in it.
    TableUpgrade,
}

/// Those for which two members that have the same thing are a cycle.
const UPGRADES: [Edge; 3] = [Edge::ReaderUpgrade, Edge::ScanUpgrade, Edge::TableUpgrade];
const EDGES: [Edge; 8] = [
    Edge::Writer,
    Edge::Owner,
    Edge::Reader,
    Edge::Scan,
    Edge::Table,
    Edge::ReaderUpgrade,
    Edge::ScanUpgrade,
    Edge::TableUpgrade,
];

impl Edge {
    fn table(at: usize) -> TableId {
        TableId(100 + at as u32)
    }

    fn hold(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) {
        match self {
            Self::Writer | Self::Owner => txn.lock(at).map(drop).expect("free"),
            Self::Reader | Self::ReaderUpgrade => txn.read(at).map(drop).expect("free"),
            Self::Scan | Self::ScanUpgrade => {
                assert!(toy.locks.try_cover(&mut txn.owner, TABLE, &Interval::of_key(&key(at))).is_some());
            }
            Self::Table => {
                toy.locks.lock_table(&mut txn.owner, Self::table(at), TableMode::Exclusive, PATIENCE).expect("free");
            }
            Self::TableUpgrade => {
                toy.locks.lock_table(&mut txn.owner, Self::table(at), TableMode::Shared, PATIENCE).expect("free");
            }
        }
    }

    /// What its later requester has of it.
    fn hold_beside(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) {
        if matches!(self, Self::ReaderUpgrade | Self::ScanUpgrade | Self::TableUpgrade) {
            self.hold(toy, txn, at);
        }
    }

    fn want(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) -> Result<()> {
        match self {
            Self::Writer => txn.read(at).map(drop),
            Self::Owner | Self::Reader | Self::ReaderUpgrade => txn.lock(at).map(drop),
            Self::Scan | Self::ScanUpgrade => {
                toy.locks.wait_exclusive(&mut txn.owner, Target::row(TABLE, &key(at)), PATIENCE)?;
                toy.locks.end_exclusive(&mut txn.owner);
                Ok(())
            }
            Self::Table => {
                let mode = TableMode::IntentShared;
                toy.locks.lock_table(&mut txn.owner, Self::table(at), mode, PATIENCE).map(drop)
            }
            Self::TableUpgrade => {
                let mode = TableMode::IntentExclusive;
                toy.locks.lock_table(&mut txn.owner, Self::table(at), mode, PATIENCE).map(drop)
            }
        }
    }

    fn named(self, at: usize) -> Lockable {
        match self {
            Self::Table | Self::TableUpgrade => Lockable::Table(Self::table(at).into()),
            _ => Lockable::Row(TABLE.into(), key(at).to_vec()),
        }
    }
}

/// Each member has a thing, and wants that of the next.
struct Ring {
    edges: Vec<Edge>,
    begin: Barrier,
    end: Barrier,
}

impl Ring {
    fn new(edges: Vec<Edge>) -> Self {
        let (begin, end) = (Barrier::new(edges.len()), Barrier::new(MEMBERS));
        Self { edges, begin, end }
    }

    /// One member's part; if it is the victim, the cycle that it was told and the time that took.
    fn run(&self, toy: &Toy, member: usize) -> Option<(Vec<Waiter>, Duration)> {
        let mut txn = toy.begin(LABELS[member]);
        self.edges[member].hold(toy, &mut txn, member);
        let next = (member + 1) % self.edges.len();
        self.edges[next].hold_beside(toy, &mut txn, next);
        self.begin.wait();
        let clock = SystemClock::new();
        let began = clock.now();
        match self.edges[next].want(toy, &mut txn, next) {
            Ok(()) => {
                txn.commit();
                None
            }
            Err(Error::Deadlock { cycle }) => {
                let time = clock.now().since(began);
                drop(txn);
                Some((cycle.to_vec(), time))
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    /// What victim `member` has to be told.
    fn cycle_of(&self, member: usize) -> Vec<Waiter> {
        let len = self.edges.len();
        let named = |at: usize| {
            let next = (at + 1) % len;
            Waiter { label: LABELS[at % len], waits_for: self.edges[next].named(next) }
        };
        (member..member + len).take(MAX_NAMED).map(named).collect()
    }
}

/// Runs the rings one after the other, all by the same threads. Returns the times in which they were broken.
fn break_all(rings: &[Ring]) -> Vec<Duration> {
    let toy = Toy::new(&[0; 8], 8 * rings.len() + 2, PATIENCE);
    let outcomes: Vec<Vec<_>> = thread::scope(|scope| {
        let members: Vec<_> = (0..MEMBERS)
            .map(|member| {
                let (toy, rings) = (&toy, rings);
                let run = move |ring: &Ring| {
                    let victim = (member < ring.edges.len()).then(|| ring.run(toy, member)).flatten();
                    // A transaction in none of a ring begins no later ring either, in which it would have things of
                    // this one.
                    ring.end.wait();
                    victim
                };
                scope.spawn(move || rings.iter().map(run).collect())
            })
            .collect();
        members.into_iter().map(|member| member.join().expect("no panic")).collect()
    });
    let mut times = Vec::new();
    for (at, ring) in rings.iter().enumerate() {
        let told =
            outcomes.iter().enumerate().filter_map(|(member, told)| told[at].as_ref().map(|told| (member, told)));
        let victims: Vec<_> = told.collect();
        let [(member, (cycle, time))] = victims[..] else { panic!("{:?}: {victims:?}", ring.edges) };
        assert_eq!(*cycle, ring.cycle_of(member), "{:?}", ring.edges);
        times.push(*time);
    }
    let stats = toy.locks.stats();
    assert_eq!((stats.deadlocks, stats.timeouts), (rings.len() as u64, 0));
    times
}

#[test]
fn cycles_of_every_length_and_kind_have_one_victim_that_is_told_all_of_it() {
    let rings = (2..=8).flat_map(|len| EDGES.map(|edge| Ring::new(vec![edge; len])));
    break_all(&rings.collect::<Vec<_>>());
}

/// Two have the same thing and both want it alone: the last to ask is refused, and the other goes on.
#[test]
fn two_upgrades_of_one_thing_have_one_victim() {
    for edge in UPGRADES {
        for _ in 0..100 {
            let (toy, barrier) = (Toy::new(&[0], 16, PATIENCE), Barrier::new(2));
            let outcomes = thread::scope(|scope| {
                let members = ["one", "two"].map(|label| {
                    let (toy, barrier) = (&toy, &barrier);
                    scope.spawn(move || {
                        let mut txn = toy.begin(label);
                        edge.hold(toy, &mut txn, 0);
                        barrier.wait();
                        edge.want(toy, &mut txn, 0).inspect(|()| txn.commit())
                    })
                });
                members.map(|member| member.join().expect("no panic"))
            });
            let victims: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            let [Error::Deadlock { cycle }] = &victims[..] else { panic!("{edge:?}: {outcomes:?}") };
            assert_eq!(cycle.len(), 2);
            assert!(cycle.iter().all(|waiter| waiter.waits_for == edge.named(0)), "{edge:?}: {cycle:?}");
            assert_eq!((toy.locks.stats().deadlocks, toy.locks.stats().timeouts), (1, 0));
        }
    }
}

/// A reader waits behind a writer that waits for an earlier reader, and that one for something of the first. One edge
/// leads to a waiter in a queue, which has nothing yet.
#[test]
fn a_cycle_through_a_queue_has_one_victim() {
    let toy = Toy::new(&[0, 0], 16, PATIENCE);
    let until_waits = |waits| {
        while toy.locks.stats().waits < waits {
            thread::yield_now();
        }
    };
    let (mut early, mut writer, mut late) = (toy.begin("early"), toy.begin("writer"), toy.begin("late"));
    early.read(0).expect("free");
    late.lock(1).expect("free");
    let outcomes = thread::scope(|scope| {
        let writes = scope.spawn(move || writer.lock(0).map(drop).inspect(|()| writer.commit()));
        until_waits(1);
        let reads = scope.spawn(move || late.read(0).map(drop).inspect(|()| late.commit()));
        until_waits(2);
        let last = scope.spawn(move || early.lock(1).map(drop).inspect(|()| early.commit()));
        [writes, reads, last].map(|member| member.join().expect("no panic"))
    });
    let [Ok(()), Ok(()), Err(Error::Deadlock { cycle })] = &outcomes else { panic!("{outcomes:?}") };
    assert_eq!(cycle.iter().map(|waiter| waiter.label).collect::<Vec<_>>(), ["early", "late", "writer"]);
}

#[test]
fn ten_thousand_mixed_cycles_are_broken_by_the_walk() {
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let rings = (0..GRAPHS).map(|_| {
        let len = 2 + next(7);
        Ring::new((0..len).map(|_| EDGES[next(EDGES.len() as u64) as usize]).collect())
    });
    let mut times = break_all(&rings.collect::<Vec<_>>());
    times.sort_unstable();
    println!("{GRAPHS} cycles broken: p50 {:?}, p99 {:?}", times[GRAPHS / 2], times[GRAPHS * 99 / 100]);
}
