//! Six transactions at once on four keys, under many schedules. Each has some isolation level, every way to lock rows
//! and the table occurs, and early release and intents vary. What each has seen, committed or not, is allowed by its
//! level among the states that the commits have made in order. Every deadlock is found by the walk, as no wait has a
//! timeout.
//! walk, as no wait has an end of its own.

use crate::common::{self, Bed, Modes, Rng, WAYS, Way};
use crate::four_keys::{FIXED, KEYS, fill, tag, value};
use foreshore_base::{Csn, Error, Result};
use foreshore_classics::early_release::EarlyRelease;
use foreshore_lock::{LockWait, Locked, RowLock, TableMode};
use foreshore_sync::model::{choose, shuttle, shuttle_mutated};
use foreshore_sync::primitive::thread;
use foreshore_txn::{Isolation, Txn, TxnOptions};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

const ITERATIONS: usize = 150;
const TXNS: u16 = 6;
const LEVELS: [Isolation; 3] = [Isolation::Serializable, Isolation::Snapshot, Isolation::ReadCommitted];

/// What each key has.
type State = [Option<u16>; KEYS.len()];

/// One operation, by the number of its key.
#[derive(Clone, Copy, Debug)]
enum Op {
    Get(usize),
    Lock(usize, RowLock),
    Scan(Way, usize, usize),
    Take(Way, usize, usize, RowLock),
    Put(usize, u16),
    Insert(usize, u16),
    Update(usize, u16),
    Remove(usize),
    /// Requests a table lock; at once or not at all if it may not wait.
    Table(TableMode, LockWait),
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Row(Option<u16>),
    Rows(Vec<(usize, u16)>),
    Exists,
    /// Others held the lock.
    Refused,
    Table,
}

fn bounds<'a>(from: usize, to: usize) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    (Bound::Included(KEYS[from]), Bound::Included(KEYS[to]))
}

fn rows(found: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Seen {
    let found = found.into_iter().filter(|(key, _)| !FIXED.contains(&&key[..]));
    let number = |key: &[u8]| KEYS.iter().position(|&known| known == key).expect("a key of the test");
    Seen::Rows(found.map(|(key, value)| (number(&key), tag(&value))).collect())
}

fn run(bed: &Bed, txn: &mut Txn, op: Op) -> Result<Seen> {
    let (tree, mut out) = (&bed.tree, Vec::new());
    let old = |value: Option<Vec<u8>>| Seen::Row(value.as_deref().map(tag));
    let seen = match op {
        Op::Get(key) => tree.get(txn, KEYS[key], &mut out).map(|found| Seen::Row(found.then(|| tag(&out)))),
        Op::Lock(key, lock) => tree.get_locked(txn, KEYS[key], lock, &mut out).map(|found| match found {
            Locked::Row(()) => Seen::Row(Some(tag(&out))),
            Locked::Absent => Seen::Row(None),
            Locked::Skipped => Seen::Refused,
        }),
        Op::Scan(way, from, to) => {
            let (lower, upper) = bounds(from, to);
            common::scan_by(way, tree, txn, lower, upper).map(rows)
        }
        Op::Take(way, from, to, lock) => {
            let (lower, upper) = bounds(from, to);
            tree.range_locked(txn, lower, upper, lock).and_then(|mut cursor| way.collect(&mut cursor, txn)).map(rows)
        }
        Op::Put(key, new) => tree.put(txn, KEYS[key], &value(new)).map(old),
        Op::Insert(key, new) => tree.insert_new(txn, KEYS[key], &value(new)).map(|()| Seen::Row(None)),
        Op::Update(key, new) => tree.update(txn, KEYS[key], &value(new)).map(old),
        Op::Remove(key) => tree.remove(txn, KEYS[key]).map(old),
        Op::Table(mode, LockWait::Wait) => txn.lock_table(common::TABLE, mode).map(|()| Seen::Table),
        Op::Table(mode, _) => Ok(if txn.try_lock_table(common::TABLE, mode) { Seen::Table } else { Seen::Refused }),
    };
    match seen {
        Err(Error::KeyExists { .. }) => Ok(Seen::Exists),
        Err(Error::RowLocked { .. }) => Ok(Seen::Refused),
        seen => seen,
    }
}

/// A transaction as it ran.
#[derive(Clone, Debug)]
struct Played {
    level: Isolation,
    history: Vec<(Op, Seen)>,
    /// Its place in the order of commits.
    committed: Option<Csn>,
}

impl Played {
    /// Returns what it leaves of its own at each key; none if it has changed nothing.
    fn changes(&self) -> [Option<Option<u16>>; KEYS.len()] {
        let mut own = [None; KEYS.len()];
        self.history.iter().for_each(|(op, seen)| change(&mut own, *op, seen));
        own
    }
}

fn change(own: &mut [Option<Option<u16>>; KEYS.len()], op: Op, seen: &Seen) {
    match (op, seen) {
        (Op::Put(key, new), _)
        | (Op::Insert(key, new), Seen::Row(None))
        | (Op::Update(key, new), Seen::Row(Some(_))) => {
            own[key] = Some(Some(new));
        }
        (Op::Remove(key), Seen::Row(Some(_))) => own[key] = Some(None),
        _ => {}
    }
}

fn over(state: &State, own: &[Option<Option<u16>>; KEYS.len()]) -> State {
    std::array::from_fn(|key| own[key].unwrap_or(state[key]))
}

/// What one operation of a transaction could see.
struct Sight {
    level: Isolation,
    /// The state when the transaction ends: all that it has locked is in that state.
    newest: State,
    /// The state that it reads without locks.
    read: State,
    /// Keys that have been absent at some time.
    ever_absent: [bool; KEYS.len()],
}

impl Sight {
    /// Whether a key that is locked, in a row or by a change, has a value.
    fn locked(&self, key: usize, value: Option<u16>) -> bool {
        // The first to change a row wins.
        self.newest[key] == value && (self.level != Isolation::Snapshot || self.read[key] == value)
    }

    fn fits(&self, op: Op, seen: &Seen) -> bool {
        match (op, seen) {
            (Op::Lock(_, lock) | Op::Take(_, _, _, lock), Seen::Refused) => lock.on_conflict() != LockWait::Wait,
            (Op::Table(_, wait), Seen::Refused) => wait != LockWait::Wait,
            (Op::Table(..), Seen::Table) => true,
            (Op::Get(key), Seen::Row(value)) => self.read[key] == *value,
            (Op::Put(key, _), Seen::Row(value)) => self.locked(key, *value),
            (Op::Insert(key, _), Seen::Row(None)) => self.locked(key, None),
            (Op::Insert(key, _), Seen::Exists) => self.newest[key].is_some() && self.locked(key, self.newest[key]),
            (Op::Lock(key, _) | Op::Update(key, _) | Op::Remove(key), Seen::Row(Some(value))) => {
                self.locked(key, Some(*value))
            }
            // No missing row is locked, except by a serializable transaction, which reads the newest state.
            (Op::Lock(key, _) | Op::Update(key, _) | Op::Remove(key), Seen::Row(None)) => self.read[key].is_none(),
            (Op::Scan(_, from, to), Seen::Rows(rows)) => {
                let all = (from..=to).filter_map(|key| Some((key, self.read[key]?)));
                all.eq(rows.iter().copied())
            }
            (Op::Take(_, from, to, lock), Seen::Rows(rows)) => {
                let may_miss = |key: usize| match lock.on_conflict() {
                    LockWait::SkipLocked => true,
                    // One key after the other, each at its own time.
                    _ if self.level == Isolation::ReadCommitted => self.ever_absent[key],
                    _ => self.read[key].is_none(),
                };
                rows.iter().all(|&(key, value)| self.locked(key, Some(value)))
                    && (from..=to).all(|key| rows.iter().any(|row| row.0 == key) || may_miss(key))
            }
            _ => false,
        }
    }
}

/// The states made by the commits: the first one, and one after each.
struct States(Vec<State>);

impl States {
    /// Returns whether a transaction that ended before the commit of that number has seen what its level allows.
    fn allow(&self, txn: &Played, at: usize) -> bool {
        match txn.level {
            Isolation::Serializable => self.walk(txn, at, at, at),
            Isolation::Snapshot => (0..=at).any(|by| self.walk(txn, at, by, by)),
            Isolation::ReadCommitted => self.walk(txn, at, 0, at),
        }
    }

    /// Returns whether each operation may have read a state from `first` to `last`, none older than the operation
    /// before it.
    fn walk(&self, txn: &Played, at: usize, first: usize, last: usize) -> bool {
        let (mut by, mut own) = (first, [None; KEYS.len()]);
        txn.history.iter().all(|(op, seen)| {
            let newest = over(&self.0[at], &own);
            let ever_absent =
                std::array::from_fn(|key| self.0[..=at].iter().any(|state| over(state, &own)[key].is_none()));
            let fits = |by: &usize| {
                let read = over(&self.0[*by], &own);
                Sight { level: txn.level, newest, read, ever_absent }.fits(*op, seen)
            };
            let found = (by..=last).find(fits);
            by = found.unwrap_or(by);
            change(&mut own, *op, seen);
            found.is_some()
        })
    }
}

fn row_lock(rng: &mut Rng) -> RowLock {
    let lock = [RowLock::share(), RowLock::update()][rng.below(2)];
    [lock, lock.no_wait(), lock.skip_locked()][rng.below(3)]
}

/// The operations of one transaction.
fn script(rng: &mut Rng, number: u16) -> Vec<Op> {
    let ops = (0..2 + rng.below(2)).map(|step| {
        let (key, other, new) = (rng.below(4), rng.below(4), 1 + number * 4 + step as u16);
        let (from, to, way) = (key.min(other), key.max(other), WAYS[rng.below(3)]);
        match rng.below(16) {
            0 | 1 => Op::Get(key),
            2 | 3 => Op::Lock(key, row_lock(rng)),
            4 | 5 => Op::Scan(way, from, to),
            6 | 7 => Op::Take(way, from, to, row_lock(rng)),
            8 | 9 => Op::Put(key, new),
            10 | 11 => Op::Insert(key, new),
            12 => Op::Update(key, new),
            13 | 14 => Op::Remove(key),
            _ => {
                let mode = [TableMode::Shared, TableMode::SharedIntentExclusive, TableMode::Exclusive][rng.below(3)];
                Op::Table(mode, [LockWait::Wait, LockWait::NoWait][rng.below(2)])
            }
        }
    });
    ops.collect()
}

fn play(bed: &Bed, level: Isolation, ops: &[Op], commits: bool) -> Played {
    let options = TxnOptions { label: "test", lock_timeout: Duration::MAX, isolation: level, ..TxnOptions::default() };
    let mut txn = bed.txns.begin(options).expect("a session");
    let mut played = Played { level, history: Vec::new(), committed: None };
    for &op in ops {
        match run(bed, &mut txn, op) {
            Ok(seen) => played.history.push((op, seen)),
            Err(Error::Deadlock { .. }) => return played,
            Err(Error::Conflict { .. }) if level == Isolation::Snapshot => return played,
            Err(error) => panic!("{op:?}: {error:?}"),
        }
    }
    if commits {
        let ticket = txn.commit().expect("a commit");
        played.committed = Some(ticket.csn());
        ticket.wait().expect("a sound log");
    } else {
        txn.rollback().expect("a rollback");
    }
    played
}

/// Runs a plan, and checks what each transaction has seen.
fn six(levels: [Isolation; TXNS as usize], rng: &mut Rng) {
    let early_release = [EarlyRelease::Off, EarlyRelease::SharedOnly, EarlyRelease::Full][rng.below(3)];
    let fast_intents = [true, false][rng.below(2)];
    // Little of it, so that locks are merged.
    let lock_memory = [1, 1 << 10][rng.below(2)];
    let modes = Modes { hold_until_durable: early_release.hook(), fast_intents, lock_memory };
    let bed = Arc::new(fill(Bed::with_modes(32, modes)));
    bed.log.force(bed.log.current()).expect("a sound log");
    let threads: Vec<_> = (0..TXNS)
        .zip(levels)
        .map(|(number, level)| {
            let (bed, ops, commits) = (bed.clone(), script(rng, number), rng.below(4) > 0);
            thread::spawn(move || play(&bed, level, &ops, commits))
        })
        .collect();
    let played: Vec<Played> = threads.into_iter().map(|thread| thread.join().expect("a thread")).collect();
    let changes_any = |txn: &&Played| txn.committed.is_some() && txn.changes() != [None; KEYS.len()];
    let mut writers: Vec<_> = played.iter().filter(changes_any).collect();
    writers.sort_by_key(|txn| txn.committed);
    let mut states = States(vec![[None, Some(0), Some(0), None]]);
    for txn in &writers {
        states.0.push(over(states.0.last().expect("the first"), &txn.changes()));
    }
    for txn in &played {
        let at = writers.iter().position(|writer| std::ptr::eq(*writer, txn));
        let range = at.map_or(0..states.0.len(), |at| at..at + 1);
        assert!(
            range.into_iter().any(|at| states.allow(txn, at)),
            "not of its level: {txn:?} {at:?} {modes:?}: {played:?}"
        );
    }
    let mut txn = bed.begin_as("test", Duration::MAX);
    let last = run(&bed, &mut txn, Op::Scan(Way::Up, 0, 3)).expect("a scan");
    drop(txn);
    let left = states.0.last().expect("the first").iter().enumerate();
    assert_eq!(last, Seen::Rows(left.filter_map(|(key, tag)| Some((key, (*tag)?))).collect()), "{played:?}");
    bed.verify();
}

/// All at one level.
fn alike(level: Isolation) {
    six([level; TXNS as usize], &mut Rng(choose(u64::MAX)));
}

fn mixed() {
    let mut rng = Rng(choose(u64::MAX));
    let levels = std::array::from_fn(|_| LEVELS[rng.below(3)]);
    six(levels, &mut rng);
}

#[test]
fn serializable_transactions_in_every_mode_are_serial() {
    shuttle(ITERATIONS, || alike(Isolation::Serializable));
}

#[test]
fn snapshots_in_every_mode_are_states_and_the_first_updater_wins() {
    shuttle(ITERATIONS, || alike(Isolation::Snapshot));
}

#[test]
fn read_committed_in_every_mode_reads_what_is_committed() {
    shuttle(ITERATIONS, || alike(Isolation::ReadCommitted));
}

#[test]
fn transactions_of_all_levels_see_what_theirs_allow() {
    shuttle(ITERATIONS, mixed);
}

#[test]
#[should_panic(expected = "not of its level")]
fn a_scan_that_covers_its_rows_alone_is_noticed() {
    shuttle_mutated("range: a step covers its rows alone", 10 * ITERATIONS, || alike(Isolation::Serializable));
}

#[test]
#[should_panic(expected = "not of its level")]
fn a_row_that_is_taken_back_and_read_is_noticed() {
    let name = "btree: validate before the holder is asked for";
    shuttle_mutated(name, 10 * ITERATIONS, || alike(Isolation::ReadCommitted));
}

#[test]
#[should_panic(expected = "not of its level")]
fn an_update_of_a_row_that_has_changed_since_is_noticed() {
    shuttle_mutated("txn: the last updater wins", 10 * ITERATIONS, || alike(Isolation::Snapshot));
}
