//! Cycles of waits over every kind of edge: each is broken by the walk, by one victim, which is told the whole cycle.
#![cfg(not(foreshore_loom))]

#[expect(dead_code, reason = "shared with other tests")]
mod toy;

use foreshore_base::{Error, Lockable, MAX_NAMED, Result, TableId, Waiter};
use foreshore_lock::{TableMode, Target};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, SystemClock};
use std::sync::Barrier;
use std::time::Duration;
use toy::{PATIENCE, TABLE, Toy, ToyTxn, key};

const LABELS: [&str; 8] = ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"];
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
    /// It has scanned the gap, another wants to insert.
    Scan,
    /// It has the table.
    Table,
}

const EDGES: [Edge; 5] = [Edge::Writer, Edge::Owner, Edge::Reader, Edge::Scan, Edge::Table];

impl Edge {
    fn table(at: usize) -> TableId {
        TableId(100 + at as u32)
    }

    fn hold(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) {
        match self {
            Self::Writer | Self::Owner => txn.lock(at).map(drop).expect("free"),
            Self::Reader => txn.read(at).map(drop).expect("free"),
            Self::Scan => {
                assert!(toy.locks.try_share(&mut txn.owner, Target::gap(TABLE, Some(&key(at)))).expect("room"));
            }
            Self::Table => {
                toy.locks.lock_table(&mut txn.owner, Self::table(at), TableMode::Exclusive, PATIENCE).expect("free");
            }
        }
    }

    fn want(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) -> Result<()> {
        match self {
            Self::Writer => txn.read(at).map(drop),
            Self::Owner | Self::Reader => txn.lock(at).map(drop),
            Self::Scan => {
                toy.locks.wait_exclusive(&mut txn.owner, Target::gap(TABLE, Some(&key(at))), PATIENCE)?;
                toy.locks.end_exclusive(&mut txn.owner);
                Ok(())
            }
            Self::Table => {
                let mode = TableMode::IntentShared;
                toy.locks.lock_table(&mut txn.owner, Self::table(at), mode, PATIENCE).map(drop)
            }
        }
    }

    fn named(self, at: usize) -> Lockable {
        match self {
            Self::Writer | Self::Owner | Self::Reader => Lockable::Row(TABLE, key(at).to_vec()),
            Self::Scan => Lockable::Gap(TABLE, Some(key(at).to_vec())),
            Self::Table => Lockable::Table(Self::table(at)),
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
        let (begin, end) = (Barrier::new(edges.len()), Barrier::new(edges.len()));
        Self { edges, begin, end }
    }

    /// One member's part; if it is the victim, the cycle that it was told and the time that took.
    fn run(&self, toy: &Toy, member: usize) -> Option<(Vec<Waiter>, Duration)> {
        let mut txn = toy.begin(LABELS[member]);
        self.edges[member].hold(toy, &mut txn, member);
        let next = (member + 1) % self.edges.len();
        self.begin.wait();
        let clock = SystemClock::new();
        let began = clock.now();
        let victim = match self.edges[next].want(toy, &mut txn, next) {
            Ok(()) => {
                txn.commit();
                None
            }
            Err(Error::Deadlock { cycle }) => {
                let time = clock.now().since(began);
                drop(txn);
                Some((cycle.to_vec(), time))
            }
            Err(error) => panic!("{error}"),
        };
        self.end.wait();
        victim
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
        let members: Vec<_> = (0..8)
            .map(|member| {
                let (toy, rings) = (&toy, rings);
                let run = move |ring: &Ring| (member < ring.edges.len()).then(|| ring.run(toy, member)).flatten();
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
