//! Models of waits that close a cycle at once: a waiter sees it, and one alone is refused, the one with the least to
//! undo. A cycle that no waiter sees, and a victim that is not told, show as a deadlock of the model, for no wait has
//! an end of its own.

use foreshore_base::{Error, Result, TableId, Xid};
use foreshore_lock::{LockManager, LockOptions, Owner, Patience, TableMode};
use foreshore_sync::model::{check, mutated};
use foreshore_sync::primitive::atomic::{AtomicBool, Ordering};
use foreshore_sync::primitive::thread;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

const EVER: Duration = Duration::MAX;
const ROWS: TableId = TableId(100);

/// What owners have and want.
#[derive(Clone, Copy, Debug)]
enum Thing {
    /// A whole table.
    Table(u32),
    /// A row that the owner of that number has by its header.
    RowOf(usize),
}

use Thing::{RowOf, Table};

/// One owner: what it has at the beginning, besides its row, and what it then wants, one after the other.
struct Member {
    has: &'static [Thing],
    wants: &'static [Thing],
}

struct Model {
    locks: Arc<LockManager>,
    /// Owners whose status is final.
    ended: Vec<AtomicBool>,
    /// Those that have had the first thing that they want.
    served: Vec<AtomicBool>,
}

const fn xid(member: usize) -> Xid {
    Xid(1 + member as u64)
}

impl Model {
    fn new(members: usize) -> Self {
        let options = LockOptions { max_owners: members, share_slots: 1, memory_units: 4, fast_intents: false };
        let none = || (0..members).map(|_| AtomicBool::new(false)).collect();
        Self { locks: Arc::new(LockManager::new(options)), ended: none(), served: none() }
    }

    /// Waits for a thing until it is there.
    fn lock(&self, owner: &mut Owner, thing: Thing) -> Result<()> {
        let holder = match thing {
            Table(n) => return self.locks.lock_table(owner, TableId(n), TableMode::Exclusive, EVER).map(drop),
            RowOf(holder) => holder,
        };
        let is_live = || !self.ended[holder].load(Ordering::Acquire);
        let mut patience = Patience::new(EVER);
        while is_live() {
            self.locks.wait_xid(owner, ROWS, &[holder as u8], xid(holder), &is_live, &mut patience)?;
        }
        Ok(())
    }

    /// What `member` does once all have begun. A member ends that is refused, or has got what it wanted.
    fn run(&self, member: usize, owner: Owner, wants: &[Thing]) -> Outcome {
        // A model that is in a deadlock unwinds, and to release would panic again.
        let mut owner = ManuallyDrop::new(owner);
        let mut outcome = Outcome { refused_by: None, first_before: Vec::new() };
        for (at, &thing) in wants.iter().enumerate() {
            match self.lock(&mut owner, thing) {
                Ok(()) if at == 0 => {
                    self.served[member].store(true, Ordering::Release);
                    let served = self.served.iter().map(|served| served.load(Ordering::Acquire));
                    outcome.first_before = served.map(|served| !served).collect();
                }
                Ok(()) => {}
                Err(Error::Deadlock { cycle }) => {
                    outcome.refused_by = Some(cycle.len());
                    break;
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        self.ended[member].store(true, Ordering::Release);
        self.locks.finish(&mut owner, None);
        outcome
    }
}

struct Outcome {
    /// The length of the cycle for which it was refused.
    refused_by: Option<usize>,
    /// The members that it preceded when it got the first thing that it wants; empty if it never did.
    first_before: Vec<bool>,
}

fn all(members: &'static [Member]) -> Vec<Outcome> {
    weighed(members, &[0; 3])
}

/// Each has so many bytes to undo.
fn weighed(members: &'static [Member], undo_bytes: &[u64]) -> Vec<Outcome> {
    let model = Arc::new(Model::new(members.len()));
    let owners: Vec<_> = (0..members.len())
        .map(|member| {
            let mut owner = model.locks.lease("member").expect("a slot");
            owner.set_xid(xid(member));
            owner.set_undo_bytes(undo_bytes[member]);
            members[member].has.iter().for_each(|&thing| model.lock(&mut owner, thing).expect("free"));
            owner
        })
        .collect();
    let threads: Vec<_> = owners
        .into_iter()
        .enumerate()
        .map(|(member, owner)| {
            let model = model.clone();
            thread::spawn(move || model.run(member, owner, members[member].wants))
        })
        .collect();
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("a member ends")).collect();
    assert_eq!(model.locks.stats().deadlocks, outcomes.iter().flat_map(|outcome| outcome.refused_by).count() as u64);
    outcomes
}

/// `members` are a cycle, but for those at the end that lead to it.
fn ring(members: &'static [Member], tail: usize) {
    let cycle = members.len() - tail;
    let refused: Vec<_> = all(members).iter().map(|outcome| outcome.refused_by).collect();
    assert_eq!(refused[..cycle].iter().flatten().count(), 1, "one victim of a cycle");
    assert_eq!(refused.iter().flatten().collect::<Vec<_>>(), [&cycle], "it is in the cycle, and told all of it");
}

/// All of `members` are a cycle, of which the one with the least to undo is refused.
fn ring_with_victim(members: &'static [Member], undo_bytes: &[u64]) {
    let refused: Vec<_> = weighed(members, undo_bytes).iter().map(|outcome| outcome.refused_by).collect();
    let least = (0..members.len()).min_by_key(|&member| undo_bytes[member]);
    for (member, refused) in refused.into_iter().enumerate() {
        let expected = (Some(member) == least).then_some(members.len());
        assert_eq!(refused, expected, "the member with the least to undo is the victim");
    }
}

const TABLES: [Member; 2] =
    [Member { has: &[Table(0)], wants: &[Table(1)] }, Member { has: &[Table(1)], wants: &[Table(0)] }];
const ROWS_OF_BOTH: [Member; 2] = [Member { has: &[], wants: &[RowOf(1)] }, Member { has: &[], wants: &[RowOf(0)] }];
const MIXED: [Member; 2] = [Member { has: &[Table(0)], wants: &[RowOf(1)] }, Member { has: &[], wants: &[Table(0)] }];
const THREE: [Member; 3] = [
    Member { has: &[Table(0)], wants: &[Table(1)] },
    Member { has: &[Table(1)], wants: &[RowOf(2)] },
    Member { has: &[], wants: &[Table(0)] },
];
const TAIL: [Member; 3] = [
    Member { has: &[Table(0)], wants: &[Table(1)] },
    Member { has: &[Table(1)], wants: &[Table(0)] },
    Member { has: &[], wants: &[RowOf(0)] },
];

/// The first has what the others want, and ends. If the second is granted it before the third, the edge of the third
/// comes to lead to the second, though neither has published anything then.
fn an_edge_that_moves() {
    const MEMBERS: [Member; 3] = [
        Member { has: &[Table(0)], wants: &[] },
        Member { has: &[], wants: &[Table(0), Table(1)] },
        Member { has: &[Table(1)], wants: &[Table(0)] },
    ];
    let outcomes = all(&MEMBERS);
    let closes = outcomes[1].first_before.get(2).copied().unwrap_or(false);
    let victims = outcomes.iter().filter(|outcome| outcome.refused_by.is_some()).count();
    assert_eq!(victims, usize::from(closes), "one victim of a cycle");
}

#[test]
fn of_two_that_wait_for_tables_at_once_one_is_refused() {
    check(|| ring(&TABLES, 0));
}

#[test]
fn of_two_that_wait_for_rows_at_once_one_is_refused() {
    check(|| ring(&ROWS_OF_BOTH, 0));
}

#[test]
fn of_two_that_wait_for_a_table_and_a_row_at_once_one_is_refused() {
    check(|| ring(&MIXED, 0));
}

#[test]
fn of_three_that_wait_at_once_one_is_refused() {
    check(|| ring(&THREE, 0));
}

#[test]
fn a_waiter_for_a_cycle_is_not_refused() {
    check(|| ring(&TAIL, 1));
}

#[test]
fn a_cycle_of_an_edge_that_moves_is_found() {
    check(an_edge_that_moves);
}

#[test]
fn of_two_that_wait_for_tables_the_one_with_less_to_undo_is_refused() {
    check(|| ring_with_victim(&TABLES, &[5, 1]));
}

#[test]
fn of_two_that_wait_for_rows_the_one_with_less_to_undo_is_refused() {
    check(|| ring_with_victim(&ROWS_OF_BOTH, &[1, 5]));
}

#[test]
fn of_two_that_wait_for_a_table_and_a_row_the_one_with_less_to_undo_is_refused() {
    check(|| ring_with_victim(&MIXED, &[5, 1]));
    check(|| ring_with_victim(&MIXED, &[1, 5]));
}

#[test]
fn of_three_that_wait_the_one_with_the_least_to_undo_is_refused() {
    check(|| ring_with_victim(&THREE, &[5, 1, 3]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_victim_in_a_queue_is_woken_behind_its_verdict() {
    mutated("deadlock: a victim is woken before its verdict", || ring_with_victim(&TABLES, &[5, 1]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_victim_at_a_row_sleeps_only_while_its_signal_stands_still() {
    mutated("deadlock: a waiter for a row has no signal", || ring_with_victim(&ROWS_OF_BOTH, &[5, 1]));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_walks_when_it_has_published_its_edge() {
    mutated("deadlock: walks before it publishes", || ring(&TABLES, 0));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_for_a_row_walks_when_it_has_published_its_edge() {
    mutated("deadlock: walks before it publishes", || ring(&ROWS_OF_BOTH, 0));
}

#[test]
#[should_panic(expected = "one victim of a cycle")]
fn a_victim_confirms_that_it_is_one() {
    mutated("deadlock: a waiter that sees a cycle is its victim", || ring(&TABLES, 0));
}
