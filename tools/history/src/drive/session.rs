//! A session: one transaction after the other.

use super::Config;
use super::record::Recorder;
use super::store::{Store, Work};
use crate::Op;
use foreshore::{Csn, Db, Error, Transaction};
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

    /// Reads every key in one transaction, as often as others stand in its way.
    ///
    /// # Errors
    /// Why it could not.
    pub(super) fn read_all(&mut self, db: &Db, store: &Store, recorder: &Recorder) -> Result<(), Error> {
        let (number, mut ops) = self.invoke(recorder, vec![Op::Scan { keys: 0..self.keys, found: None }]);
        let tx = db.begin_with(store.options());
        perform(&mut store.work(&tx)?, &mut ops, &mut || {})?;
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
        let (number, mut ops) = self.invoke(recorder, ops);
        let tx = db.begin_with(store.options());
        let random = &mut self.random;
        let mut between = || {
            if random.below(2) == 0 {
                // Others shall come in between; with few cores they would seldom do otherwise.
                thread::yield_now();
            }
        };
        let performed = store.work(&tx).and_then(|mut work| {
            work.shuffle(number as u64);
            perform(&mut work, &mut ops, &mut between)
        });
        if let Err(error) = performed {
            drop(tx);
            recorder.fail(number);
            return judge(error, store);
        }
        between();
        if self.random.below(ROLLBACK) == 0 {
            let ended = tx.rollback();
            recorder.fail(number);
            return ended.map_or_else(|error| judge(error, store), |()| Ok(Ended::Well));
        }
        match commit(tx, self.random.below(2) == 0) {
            Ok(csn) => {
                recorder.ok(number, ops, csn);
                Ok(Ended::Well)
            }
            Err(error @ (Error::Poisoned { .. } | Error::Closed)) => {
                recorder.info(number);
                self.process += self.sessions;
                Ok(Ended::Stopped(error))
            }
            Err(error) => {
                recorder.fail(number);
                judge(error, store)
            }
        }
    }
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
