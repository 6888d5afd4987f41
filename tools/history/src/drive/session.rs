//! A session: one transaction after the other.

use super::Config;
use super::record::Recorder;
use super::store::{Store, Work};
use crate::Op;
use foreshore::{Csn, Db, Error, ReadOptions, Transaction};
use foreshore_sim::Random;
use std::thread;

/// Of so many transactions, one is rolled back on purpose.
const ROLLBACK: u64 = 8;

/// A thread of control and its choices.
#[derive(Debug)]
pub(super) struct Session {
    random: Random,
    process: u64,
    sessions: u64,
    keys: u64,
    done: u64,
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
        Self { random, process: number, sessions: config.sessions, keys: config.keys, done: 0 }
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
        let ops = self.plan(recorder);
        self.execute(db, store, recorder, ops)
    }

    /// Reads every key in one transaction, while no other runs.
    ///
    /// # Errors
    /// Why it could not.
    pub(super) fn read_all(&mut self, db: &Db, store: &Store, recorder: &Recorder) -> Result<(), Error> {
        let (number, mut ops) = self.invoke(recorder, vec![Op::Scan { keys: 0..self.keys, found: None }]);
        let tx = db.begin_with(store.options());
        let mut work = store.work(&tx)?;
        work.lock_table()?;
        perform(&mut work, &mut ops, &mut || {})?;
        let csn = tx.commit()?;
        recorder.ok(number, ops, csn);
        Ok(())
    }

    fn invoke(&self, recorder: &Recorder, ops: Vec<Op>) -> (usize, Vec<Op>) {
        (recorder.invoke(self.process, ops.clone()), ops)
    }

    /// Chooses the steps of a transaction.
    fn plan(&mut self, recorder: &Recorder) -> Vec<Op> {
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
        ops
    }

    fn execute(&mut self, db: &Db, store: &Store, recorder: &Recorder, ops: Vec<Op>) -> Result<Ended, Error> {
        let only_reads = !ops.iter().any(|op| matches!(op, Op::Write { .. }));
        let (number, mut ops) = self.invoke(recorder, ops);
        let tried = if only_reads && self.random.below(3) > 0 {
            self.read(db, store, &mut ops)
        } else {
            self.write(db, store, &mut ops)
        };
        match tried {
            Tried::Committed(csn) => {
                recorder.ok(number, ops, csn);
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
    fn write(&mut self, db: &Db, store: &Store, ops: &mut [Op]) -> Tried {
        let tx = db.begin_with(store.options());
        let seed = self.random.below(u64::MAX);
        let performed = store.work(&tx).and_then(|mut work| {
            work.shuffle(seed);
            perform(&mut work, ops, &mut || self.pause())
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

    /// A transaction that only reads: what is durable, or what is newest and counts once that is durable.
    fn read(&mut self, db: &Db, store: &Store, ops: &mut [Op]) -> Tried {
        let options = ReadOptions::new().label("history");
        let tx = db.read_with(if self.random.below(2) == 0 { options } else { options.latest() });
        let performed = store.read(&tx).and_then(|mut work| perform(&mut work, ops, &mut || self.pause()));
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
