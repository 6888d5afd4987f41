//! A session: one transaction after the other.

use super::record::Recorder;
use super::store::{Store, Work};
use super::{Config, Planted};
use crate::Op;
use foreshore::{Csn, Db, Error, ReadOptions, Transaction};
use foreshore_sim::Random;
use std::ops::Range;
use std::thread;

/// Of so many transactions, one is rolled back on purpose.
const ROLLBACK: u64 = 8;
/// Of so many, one goes back to a savepoint.
const GOES_BACK: u64 = 4;

/// A thread of control and its choices.
#[derive(Debug)]
pub(super) struct Session {
    random: Random,
    process: u64,
    sessions: u64,
    keys: u64,
    done: u64,
    planted: Option<Planted>,
}

/// The steps of a transaction.
#[derive(Debug)]
struct Plan {
    ops: Vec<Op>,
    /// Steps after which it goes back to where it was before them.
    back: Range<usize>,
}

impl Plan {
    /// The steps of which nothing is left: those that go back from the first write on. What was seen before that has been seen.
    fn undone(&self) -> Range<usize> {
        let first = self.back.clone().find(|&at| matches!(self.ops[at], Op::Write { .. }));
        first.unwrap_or(self.back.end)..self.back.end
    }

    /// The steps that count.
    fn kept(mut self) -> Vec<Op> {
        self.ops.drain(self.undone());
        self.ops
    }
}

/// How a transaction ended.
pub(super) enum Ended {
    /// Committed, or rolled back as transactions are.
    Well,
    /// With the database.
    Stopped(Error),
}

impl Session {
    pub(super) fn new(config: &Config, number: u64) -> Self {
        let mut seeds = Random::new(config.seed ^ (number + 1) << 32);
        let random = Random::new(seeds.below(u64::MAX));
        Self { random, process: number, sessions: config.sessions, keys: config.keys, done: 0, planted: config.planted }
    }

    /// Transactions so far.
    pub(super) const fn done(&self) -> u64 {
        self.done
    }

    /// Runs a transaction.
    ///
    /// # Errors
    /// What the engine must not answer.
    pub(super) fn run(&mut self, db: &Db, store: &Store, recorder: &Recorder) -> Result<Ended, Error> {
        self.done += 1;
        let plan = self.plan(recorder);
        self.execute(db, store, recorder, plan)
    }

    /// Reads every key in one transaction, while no other runs.
    ///
    /// # Errors
    /// Why it could not.
    pub(super) fn read_all(&mut self, db: &Db, store: &Store, recorder: &Recorder) -> Result<(), Error> {
        let mut ops = vec![Op::Scan { keys: 0..self.keys, found: None }];
        let number = recorder.invoke(self.process, ops.clone());
        let tx = db.begin_with(store.options());
        let mut work = store.work(&tx)?;
        work.lock_table()?;
        perform(&mut work, &mut ops, &mut || {})?;
        let csn = tx.commit()?;
        recorder.ok(number, ops, csn);
        Ok(())
    }

    /// Chooses the steps of a transaction.
    fn plan(&mut self, recorder: &Recorder) -> Plan {
        let only_reads = self.random.below(6) == 0;
        let mut ops = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let key = self.random.below(self.keys);
            match self.random.below(10) {
                0 => {
                    let to = key + 1 + self.random.below(self.keys - key);
                    ops.push(Op::Scan { keys: key..to, found: None });
                }
                1..5 => ops.push(Op::Read { key, found: None }),
                _ if only_reads => ops.push(Op::Read { key, found: None }),
                which => {
                    if which < 7 {
                        ops.push(Op::Read { key, found: None });
                    }
                    ops.push(Op::Write { key, value: recorder.values.next() });
                }
            }
        }
        let mut back = 0..0;
        if self.random.below(GOES_BACK) == 0 {
            let (from, len) = (self.random.below(ops.len() as u64), ops.len() as u64);
            back = from as usize..(from + 1 + self.random.below(len - from)) as usize;
        }
        Plan { ops, back }
    }

    fn execute(&mut self, db: &Db, store: &Store, recorder: &Recorder, mut plan: Plan) -> Result<Ended, Error> {
        let only_reads = !plan.ops.iter().any(|op| matches!(op, Op::Write { .. }));
        let number = recorder.invoke(self.process, Plan { ops: plan.ops.clone(), back: plan.back.clone() }.kept());
        let tried = if only_reads && self.random.below(3) > 0 {
            self.read(db, store, &mut plan.ops)
        } else {
            self.write(db, store, &mut plan)
        };
        match tried {
            Tried::Committed(csn) => {
                recorder.ok(number, plan.kept(), csn);
                Ok(Ended::Well)
            }
            Tried::RolledBack => {
                recorder.fail(number);
                Ok(Ended::Well)
            }
            Tried::Failed(error) => {
                recorder.fail(number);
                judge(error, store)
            }
            Tried::Unknown(error) => {
                recorder.info(number);
                self.process += self.sessions;
                Ok(Ended::Stopped(error))
            }
        }
    }

    /// A transaction that may write.
    fn write(&mut self, db: &Db, store: &Store, plan: &mut Plan) -> Tried {
        let tx = db.begin_with(store.options());
        let seed = self.random.below(u64::MAX);
        let performed = store.work(&tx).and_then(|mut work| {
            work.shuffle(seed);
            self.perform_in(&tx, &mut work, plan)
        });
        if let Err(error) = performed {
            return Tried::Failed(error);
        }
        self.pause();
        if self.random.below(ROLLBACK) == 0 {
            return tx.rollback().map_or_else(Tried::Failed, |()| Tried::RolledBack);
        }
        match commit(tx, self.random.below(2) == 0) {
            Ok(csn) => Tried::Committed(csn),
            Err(error @ (Error::Poisoned { .. } | Error::Closed)) => Tried::Unknown(error),
            Err(error) => Tried::Failed(error),
        }
    }

    /// Does the steps of a plan, and goes back where it says so.
    fn perform_in(&mut self, tx: &Transaction, work: &mut impl Work, plan: &mut Plan) -> Result<(), Error> {
        let (back, undone) = (plan.back.clone(), plan.undone());
        let (before, rest) = plan.ops.split_at_mut(back.start);
        let (tried, after) = rest.split_at_mut(back.len());
        perform(work, before, &mut || self.pause())?;
        if !tried.is_empty() {
            let savepoint = tx.savepoint()?;
            perform(work, tried, &mut || self.pause())?;
            tx.rollback_to(&savepoint)?;
            let first = undone.start - back.start;
            if self.planted == Some(Planted::Forgets)
                && let Some(write) = tried.get(first)
            {
                perform(work, &mut [write.clone()], &mut || {})?;
            }
        }
        perform(work, after, &mut || self.pause())
    }

    /// A transaction that only reads: what is durable, or what is newest and counts once that is durable.
    fn read(&mut self, db: &Db, store: &Store, ops: &mut [Op]) -> Tried {
        let options = ReadOptions::new().label("history");
        let tx = db.read_with(if self.random.below(2) == 0 { options } else { options.latest() });
        let seed = self.random.below(u64::MAX);
        let performed = store.read(&tx).and_then(|mut work| {
            work.shuffle(seed);
            perform(&mut work, ops, &mut || self.pause())
        });
        let ended = performed.and_then(|()| tx.finish()).and_then(|ticket| ticket.wait().map(|()| ticket.csn()));
        ended.map_or_else(Tried::Failed, Tried::Committed)
    }

    /// Lets others come in between; with few cores they would seldom do otherwise.
    fn pause(&mut self) {
        if self.random.below(2) == 0 {
            thread::yield_now();
        }
    }
}

/// What became of a transaction.
enum Tried {
    Committed(Csn),
    RolledBack,
    /// It has no effect.
    Failed(Error),
    /// The answer to its commit is that nobody knows.
    Unknown(Error),
}

/// Does the steps and notes what they find.
fn perform(work: &mut impl Work, ops: &mut [Op], between: &mut impl FnMut()) -> Result<(), Error> {
    for op in ops {
        between();
        match op {
            Op::Write { key, value } => work.write(*key, *value)?,
            Op::Read { key, found } => *found = Some(work.read(*key)?),
            Op::Scan { keys, found } => *found = Some(work.scan(keys.clone())?),
        }
    }
    Ok(())
}

fn commit(tx: Transaction, waits: bool) -> Result<Csn, Error> {
    if waits {
        return tx.commit();
    }
    let ticket = tx.commit_pipelined()?;
    ticket.wait()?;
    Ok(ticket.csn())
}

/// What an error that ended a transaction means for its session.
fn judge(error: Error, store: &Store) -> Result<Ended, Error> {
    match error {
        // Nobody waits for so long unless a cycle of waits was not seen.
        Error::LockTimeout { .. } => Err(error),
        _ if error.is_retryable() || store.expects(&error) => Ok(Ended::Well),
        _ => Ok(Ended::Stopped(error)),
    }
}
