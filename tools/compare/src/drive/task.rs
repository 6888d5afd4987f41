//! The transactions of a worker, one after the other.

use super::{
    flow::{Flow, Shared},
    tally::Tally,
};
use crate::{
    engine::Session,
    error::Result,
    random::Random,
    spec::Spec,
    tatp,
    workload::{
        BATCH, CHURNED_ROWS, RANGE_ROWS, Shape, Table, Transfer, Workload, churned, deleted, thread_key, values::Pool,
    },
    ycsb::{self, Numbers},
};
use std::{collections::VecDeque, ops::Range};

/// Of how many reads one is timed: reading the clock twice costs as much as a tenth of a read.
const TIMED_READS: u64 = 16;

/// What became of a transaction.
pub(super) enum Ran {
    /// There was none.
    Nothing,
    /// It is acknowledged, though older ones may be in flight.
    Ended,
    /// It is acknowledged after those that are in flight.
    InFlight {
        /// The number of the record that it inserts, in `ycsb-d` and `ycsb-e`.
        inserted: Option<u64>,
    },
}

impl Ran {
    const fn new(is_read: bool, inserted: Option<u64>) -> Self {
        if is_read { Self::Ended } else { Self::InFlight { inserted } }
    }
}

/// A worker's source of transactions.
pub(super) enum Task<'a> {
    Transfers { random: Random, scale: u64, thread: usize, sequence: u64 },
    Reads { random: Random, rows: u64, shape: Shape, keys: Vec<u64> },
    Inserts { table: Table, next: u64 },
    Pushes { flow: &'a Flow },
    Pops { flow: &'a Flow, last: Option<u64>, is_ordered: bool },
    Values { random: Random, pool: Pool, rows: u64, len: u64, mine: Mine, value: Vec<u8> },
    Sums { random: Random, pool: Pool, rows: u64, len: u64 },
    Churns { left: VecDeque<u64>, mine: Mine },
    Scans { rows: u64, expected: u64 },
    Deletes { left: Vec<Range<u64>> },
    Tatp { draw: tatp::Draw, timed: u64 },
    Ycsb { draw: ycsb::Draw, numbers: &'a Numbers, timed: u64 },
}

/// What is of one thread alone: words and numbers that no other thread draws, and each `threads`th key.
pub(super) struct Mine {
    thread: u64,
    threads: u64,
    sequence: u64,
}

impl Mine {
    fn draw(&mut self) -> u64 {
        self.sequence += 1;
        thread_key(self.thread as usize, self.sequence - 1)
    }
}

impl<'a> Task<'a> {
    pub(super) fn new(spec: &Spec, thread: usize, shared: &'a Shared) -> Self {
        let (random, flow) = (Random::new(spec.seed, thread as u64), shared.flow());
        // A transaction that waits for the device costs much more than two readings of the clock.
        let timed = if spec.durable && spec.workload.writes() { 1 } else { TIMED_READS };
        if let Some(mix) = ycsb::Mix::of(spec.workload) {
            let draw = ycsb::Draw::new(spec.seed, thread as u64, mix, spec.scale);
            return Self::Ycsb { draw, numbers: shared.numbers(), timed };
        }
        // Words and numbers from `from` on are not in the loaded table.
        let mine = |from| Mine { thread: thread as u64, threads: spec.threads as u64, sequence: from };
        match spec.workload {
            Workload::Tpcb => Self::Transfers { random, scale: spec.scale, thread, sequence: 0 },
            Workload::Read => {
                Self::Reads { random, rows: spec.scale, shape: spec.shape.unwrap_or(Shape::Get1), keys: Vec::new() }
            }
            Workload::Insert => Self::Inserts { table: Table(thread as u16), next: 0 },
            Workload::Queue if thread < spec.producers() => Self::Pushes { flow },
            // Keys of several producers may commit in another order than they were drawn.
            Workload::Queue => Self::Pops { flow, last: None, is_ordered: spec.producers() == 1 },
            Workload::Values => {
                let (pool, rows, len) = (Pool::new(), spec.value_rows(), spec.value_bytes);
                match spec.shape {
                    Some(Shape::Write) => Self::Values { random, pool, rows, len, mine: mine(rows), value: Vec::new() },
                    _ => Self::Sums { random, pool, rows, len },
                }
            }
            Workload::Churn => {
                let left = (thread as u64..spec.scale).step_by(spec.threads).collect();
                Self::Churns { left, mine: mine(spec.scale) }
            }
            Workload::Scan => Self::Scans { rows: spec.scale, expected: (0..spec.scale).fold(0, |sum, key| sum ^ key) },
            Workload::DeleteRange => {
                // All threads shuffle alike, and take turns.
                let (mut all, mut random) = (deleted(spec.scale).collect::<Vec<_>>(), Random::new(spec.seed, u64::MAX));
                for at in (1..all.len()).rev() {
                    all.swap(at, random.below(at as u64 + 1) as usize);
                }
                Self::Deletes { left: all.into_iter().skip(thread).step_by(spec.threads).collect() }
            }
            Workload::Tatp => Self::Tatp { draw: tatp::Draw::new(spec.seed, thread as u64, spec.scale), timed },
            _ => unreachable!("a bulk load is no transaction, and YCSB's are above"),
        }
    }

    /// Whether there is a transaction to run.
    pub(super) fn is_due(&self) -> bool {
        match self {
            Self::Pushes { flow } => flow.may_push(),
            Self::Pops { flow, .. } => flow.reserve(),
            _ => true,
        }
    }

    /// Whether there will be no transaction any more.
    pub(super) fn is_over(&self) -> bool {
        matches!(self, Self::Deletes { left } if left.is_empty())
    }

    /// Of how many transactions one is timed.
    pub(super) const fn timed(&self) -> u64 {
        match self {
            Self::Reads { .. } | Self::Sums { .. } => TIMED_READS,
            Self::Tatp { timed, .. } | Self::Ycsb { timed, .. } => *timed,
            _ => 1,
        }
    }

    /// Runs one transaction, if there is one.
    pub(super) fn run(&mut self, session: &mut dyn Session, tally: &mut Tally) -> Result<Ran> {
        match self {
            Self::Transfers { random, scale, thread, sequence } => {
                session.transfer(&Transfer::draw(random, *scale, thread_key(*thread, *sequence)))?;
                *sequence += 1;
            }
            Self::Reads { random, rows, shape, keys } => {
                let is_right = read(session, random, *rows, *shape, keys)?;
                tally.wrong_reads += u64::from(!is_right);
            }
            Self::Inserts { table, next } => {
                session.insert(*table, *next, BATCH)?;
                *next += BATCH;
                tally.inserted.insert(table.0, *next);
            }
            Self::Pushes { flow } => {
                let key = flow.draw();
                session.push(key)?;
                tally.queued.pushed += 1;
                tally.queued.pushed_sum ^= key;
                flow.give();
            }
            Self::Pops { flow, last, is_ordered } => {
                let Some(key) = session.pop()? else {
                    flow.give();
                    return Ok(Ran::Nothing);
                };
                tally.queued.out_of_order += u64::from(*is_ordered && last.is_some_and(|last| last >= key));
                *last = Some(key);
                tally.queued.popped += 1;
                tally.queued.popped_sum ^= key;
            }
            Self::Values { random, pool, rows, len, mine, value } => {
                let own_rows = (*rows - mine.thread).div_ceil(mine.threads);
                let (key, word) = (random.below(own_rows) * mine.threads + mine.thread, mine.draw());
                pool.fill(word, *len as usize, value);
                session.put_value(key, value)?;
                tally.words.insert(key, word);
            }
            Self::Sums { random, pool, rows, len } => {
                let key = random.below(*rows);
                tally.wrong_reads += u64::from(session.sum_value(key)? != pool.expected(key, *len));
            }
            Self::Churns { left, mine } => {
                let count = CHURNED_ROWS.min(left.len() as u64);
                let old: Vec<u64> = left.drain(..count as usize).map(churned).collect();
                let numbers: Vec<u64> = (0..count).map(|_| mine.draw()).collect();
                let new: Vec<u64> = numbers.iter().copied().map(churned).collect();
                session.churn(&old, &new)?;
                left.extend(numbers);
                tally.churned_sum = old.iter().chain(&new).fold(tally.churned_sum, |sum, key| sum ^ key);
            }
            Self::Scans { rows, expected } => {
                tally.wrong_reads += u64::from(session.range(0, *rows)? != *expected);
            }
            Self::Deletes { left } => {
                let Some(range) = left.pop() else { return Ok(Ran::Nothing) };
                session.delete_range(range.clone())?;
                tally.deleted += range.end - range.start;
                tally.deleted_sum = range.fold(tally.deleted_sum, |sum, key| sum ^ key);
            }
            Self::Tatp { draw, .. } => return transact(session, draw, tally),
            Self::Ycsb { draw, numbers, .. } => return operate(session, draw, numbers, tally),
        }
        Ok(Ran::InFlight { inserted: None })
    }
}

/// Runs one transaction of `tatp`.
fn transact(session: &mut dyn Session, draw: &mut tatp::Draw, tally: &mut Tally) -> Result<Ran> {
    let (kind, input) = draw.any();
    let effect = tatp::run(session, input)?;
    tally.count(kind, effect.has_succeeded);
    tally.change = tally.change.wrapping_add(effect.change);
    Ok(Ran::new(input.is_read(), None))
}

/// Runs one operation of YCSB.
fn operate(session: &mut dyn Session, draw: &mut ycsb::Draw, numbers: &Numbers, tally: &mut Tally) -> Result<Ran> {
    let (kind, operation) = draw.operation(numbers);
    let is_right = ycsb::run(session, operation)?;
    tally.count(kind, is_right);
    tally.wrong_reads += u64::from(!is_right);
    Ok(Ran::new(operation.is_read(), operation.inserted()))
}

/// Runs one transaction of `read`, and says whether it returned the rows that were loaded.
fn read(session: &mut dyn Session, random: &mut Random, rows: u64, shape: Shape, keys: &mut Vec<u64>) -> Result<bool> {
    if shape == Shape::Range10 {
        let count = RANGE_ROWS.min(rows);
        let first = random.below(rows - count + 1);
        let expected = (first..first + count).fold(0, |sum, key| sum ^ key);
        return Ok(session.range(first, count)? == expected);
    }
    keys.clear();
    keys.extend((0..shape.operations()).map(|_| random.below(rows)));
    let expected = keys.iter().fold(0, |sum, key| sum ^ key);
    let found = if shape == Shape::GetMany100 { session.get_many(keys)? } else { session.get(keys)? };
    Ok(found == expected)
}
