//! The victim of a deadlock is the member with the least to undo, whichever member closes the cycle; one that has lost
//! twice is immune to younger ones. A wait for a transaction of the same thread is told.

use crate::toy::{PATIENCE, TABLE, Toy, ToyTxn, key};
use foreshore_base::{Error, Lockable, Result};
use foreshore_lock::{Attempt, IMMUNE_AFTER, Interval, TableMode, Target};
use foreshore_sync::primitive::thread;
use foreshore_sync::{Clock, Nanos, SystemClock};
use std::sync::mpsc::channel;
use std::time::Duration;

/// What a thing is that one has and the other wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// A row that its holder has by the header.
    Written,
    /// A row that its holder shares.
    Read,
    /// A range that its holder covers, and in which the other one inserts.
    Range,
    /// A whole table.
    Table,
}

impl Thing {
    fn hold(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) {
        match self {
            Self::Written => txn.lock(at).map(drop),
            Self::Read => txn.read(at).map(drop),
            Self::Range => {
                assert!(toy.locks.try_cover(&mut txn.owner, TABLE, &Interval::of_key(&key(at))).is_some());
                Ok(())
            }
            Self::Table => self.lock_table(toy, txn, at),
        }
        .expect("free");
    }

    fn want(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) -> Result<()> {
        match self {
            Self::Written | Self::Read => txn.lock(at).map(drop),
            Self::Range => {
                toy.locks.wait_exclusive(&mut txn.owner, Target::row(TABLE, &key(at)), PATIENCE)?;
                toy.locks.end_exclusive(&mut txn.owner);
                Ok(())
            }
            Self::Table => self.lock_table(toy, txn, at),
        }
    }

    fn lock_table(self, toy: &Toy, txn: &mut ToyTxn<'_>, at: usize) -> Result<()> {
        let table = foreshore_base::TableId(100 + at as u32);
        toy.locks.lock_table(&mut txn.owner, table, TableMode::Exclusive, PATIENCE).map(drop)
    }
}

const THINGS: [Thing; 4] = [Thing::Written, Thing::Read, Thing::Range, Thing::Table];

/// What a transaction brings along: bytes to undo, the start of its first attempt, and losses.
type Past = (u64, u64, u32);

fn begin<'t>(toy: &'t Toy, label: &'static str, (undo_bytes, first, losses): Past) -> ToyTxn<'t> {
    let mut txn = toy.begin(label);
    txn.owner.begin_attempt(label, Attempt { first: Some(Nanos(first)), losses });
    txn.owner.set_undo_bytes(undo_bytes);
    txn.owner.set_thread(None);
    txn
}

fn until_waits(toy: &Toy, waits: u64) {
    while toy.locks.stats().waits < waits {
        thread::yield_now();
    }
}

/// The sleeper waits for the closer, which then closes the cycle. Returns the outcomes of both.
fn cycle(has: [Thing; 2], sleeper: Past, closer: Past) -> [Result<()>; 2] {
    let toy = Toy::new(&[0; 2], 8, PATIENCE);
    let (mut sleeps, mut closes) = (begin(&toy, "sleeper", sleeper), begin(&toy, "closer", closer));
    has[0].hold(&toy, &mut sleeps, 0);
    has[1].hold(&toy, &mut closes, 1);
    let outcomes = thread::scope(|scope| {
        let toy = &toy;
        let sleeper = scope.spawn(move || has[1].want(toy, &mut sleeps, 1).inspect(|()| sleeps.commit()));
        until_waits(toy, 1);
        let closer = scope.spawn(move || has[0].want(toy, &mut closes, 0).inspect(|()| closes.commit()));
        [sleeper, closer].map(|member| member.join().expect("no panic"))
    });
    let stats = toy.locks.stats();
    assert_eq!((stats.deadlocks, stats.timeouts), (1, 0), "{has:?}: {outcomes:?}");
    outcomes
}

fn labels(outcome: &Result<()>) -> Vec<&'static str> {
    let Err(Error::Deadlock { cycle }) = outcome else { panic!("{outcome:?}") };
    cycle.iter().map(|waiter| waiter.label).collect()
}

#[test]
fn the_member_with_the_least_to_undo_is_refused_asleep_or_not() {
    for first in THINGS {
        for second in THINGS {
            let [sleeper, closer] = cycle([first, second], (5, 1, 0), (900, 2, 0));
            assert!(closer.is_ok(), "{first:?} {second:?}: {closer:?}");
            assert_eq!(labels(&sleeper), ["sleeper", "closer"], "told from the victim on");
            let [sleeper, closer] = cycle([first, second], (900, 1, 0), (5, 2, 0));
            assert!(sleeper.is_ok(), "{first:?} {second:?}: {sleeper:?}");
            assert_eq!(labels(&closer), ["closer", "sleeper"]);
        }
    }
}

#[test]
fn a_transaction_that_has_lost_twice_is_immune_to_younger_ones() {
    const HAS: [Thing; 2] = [Thing::Written, Thing::Table];
    let small_and_old = |losses| cycle(HAS, (900, 2, 0), (5, 1, losses));
    for losses in 0..IMMUNE_AFTER {
        assert_eq!(labels(&small_and_old(losses)[1]), ["closer", "sleeper"], "{losses} losses");
    }
    assert_eq!(labels(&small_and_old(IMMUNE_AFTER)[0]), ["sleeper", "closer"]);
    let [sleeper, closer] = cycle(HAS, (900, 1, 0), (5, 2, IMMUNE_AFTER));
    assert!(sleeper.is_ok(), "not to older ones");
    assert_eq!(labels(&closer), ["closer", "sleeper"]);
}

/// Two read a row; each wants something of a third one, which wants to write that row.
#[test]
fn a_wait_that_closes_two_cycles_has_two_victims() {
    let toy = Toy::new(&[0; 3], 8, PATIENCE);
    let mut large = begin(&toy, "large", (900, 1, 0));
    (1..3).for_each(|row| assert_eq!(large.lock(row).expect("free"), 0));
    let outcomes = thread::scope(|scope| {
        let toy = &toy;
        let small = [1, 2].map(|row| {
            let mut txn = begin(toy, "small", (row as u64, 2, 0));
            txn.read(0).expect("free");
            let small = scope.spawn(move || txn.lock(row).map(drop).inspect(|()| txn.commit()));
            until_waits(toy, row as u64);
            small
        });
        large.lock(0).expect("both are refused");
        large.commit();
        small.map(|member| member.join().expect("no panic"))
    });
    outcomes.iter().for_each(|outcome| assert_eq!(labels(outcome), ["small", "large"]));
    assert_eq!(toy.locks.stats().deadlocks, 2);
}

#[test]
fn a_wait_for_a_transaction_of_the_same_thread_is_told_long_before_the_time_limit() {
    let clock = SystemClock::new();
    for thing in THINGS {
        let toy = Toy::new(&[0], 8, PATIENCE);
        let (mut outer, mut inner) = (toy.begin("outer"), toy.begin("inner"));
        thing.hold(&toy, &mut outer, 0);
        let began = clock.now();
        let refused = thing.want(&toy, &mut inner, 0);
        let took = clock.now().since(began);
        let Err(Error::OwnThreadLock { holder: "outer", what, waited }) = &refused else { panic!("{refused:?}") };
        assert_eq!(matches!(what, Lockable::Table(_)), thing == Thing::Table, "{what}");
        assert!((Duration::from_millis(100)..PATIENCE / 2).contains(&took) && *waited <= took, "{took:?}");
        outer.commit();
        drop(inner);
        assert_eq!(toy.locks.stats().timeouts, 0);
    }
}

#[test]
fn a_wait_through_another_thread_for_the_same_thread_is_told() {
    let toy = Toy::new(&[0; 2], 8, PATIENCE);
    let (mut outer, mut inner, mut between) = (toy.begin("outer"), toy.begin("inner"), toy.begin("between"));
    outer.lock(0).expect("free");
    between.lock(1).expect("free");
    thread::scope(|scope| {
        let between = scope.spawn(|| {
            between.lock(0).map(drop).expect("the outer one ends");
            between.commit();
        });
        until_waits(&toy, 1);
        let refused = inner.lock(1);
        assert!(matches!(refused, Err(Error::OwnThreadLock { holder: "outer", .. })), "{refused:?}");
        outer.commit();
        between.join().expect("no panic");
    });
    drop(inner);
}

#[test]
fn a_transaction_that_another_thread_works_for_is_waited_for() {
    const LONGER: Duration = Duration::from_millis(250);
    let toy = Toy::new(&[0], 8, PATIENCE);
    let (mut given, mut waits) = (toy.begin("given away"), toy.begin("waiter"));
    given.lock(0).expect("free");
    let ((send, receive), (_hold, never)) = (channel(), channel::<()>());
    let clock = SystemClock::new();
    thread::scope(|scope| {
        scope.spawn(move || {
            given.owner.set_thread(Some(foreshore_sync::thread_index()));
            send.send(()).expect("received");
            never.recv_timeout(LONGER).expect_err("nothing is sent");
            given.commit();
        });
        receive.recv().expect("sent");
        let began = clock.now();
        waits.lock(0).expect("the other thread ends it");
        assert!(clock.now().since(began) > LONGER / 2);
    });
    waits.commit();
}
