//! A session: one transaction after the other.

use super::config::{Config, Planted};
use super::record::Recorder;
use super::store::{Store, Work};
use crate::Op;
use foreshore::{CommitTicket, Csn, Db, Error, ReadOptions, ReadTransaction, Transaction};
use foreshore_sim::Random;
use std::ops::Range;
use std::thread;

/// Of so many transactions, one is rolled back on purpose.
const ROLLBACK: u64 = 8;
/// Of so many, one goes back to a savepoint.
const GOES_BACK: u64 = 4;

/// Of so many that are not, one is committed in two phases.
const PREPARES: u64 = 4;

/// A thread of control and its choices.
#[derive(Debug)]
pub(super) struct Session {
    random: Random,
    process: u64,
    sessions: u64,
    keys: u64,
    done: u64,
    planted: Option<Planted>,
    /// See [`Session::set_heavy`].
    is_heavy: bool,
    in_doubt: Option<InDoubt>,
}

/// A transaction that may have been prepared when power was lost.
#[derive(Debug)]
struct InDoubt {
    number: usize,
    ops: Vec<Op>,
}

/// The name that a transaction is prepared under.
pub(super) fn name(number: usize) -> String {
    format!("T{number}")
}

/// The steps of a transaction.
#[derive(Debug)]
struct Plan {
    ops: Vec<Op>,
    /// Steps after which it goes back to where it was before them.
    back: Range<usize>,
}

impl Plan {
    /// The steps of which nothing is left: those that go back from the first write on. What was seen before that has
    /// been seen.
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
        let (sessions, keys, planted) = (config.sessions, config.keys, config.planted);
        Self { random, process: number, sessions, keys, done: 0, planted, is_heavy: false, in_doubt: None }
    }

    /// Transactions so far.
    pub(super) const fn done(&self) -> u64 {
        self.done
    }

    /// Says whether transactions write more than the history shows.
    pub(super) const fn set_heavy(&mut self, is_heavy: bool) {
        self.is_heavy = is_heavy;
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

    /// Reads every key by one snapshot, before and after what happens in `between`, instead of its transactions up to
    /// the `goal`.
    ///
    /// # Errors
    /// What the engine must not answer, and those of `between`.
    pub(super) fn read_twice(
        &mut self,
        db: &Db,
        store: &Store,
        recorder: &Recorder,
        goal: u64,
        between: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Ended, Error> {
        if let Ended::Stopped(error) = self.resolve(db, recorder)? {
            return Ok(Ended::Stopped(error));
        }
        self.done = goal;
        let scan = Op::Scan { keys: 0..self.keys, found: None };
        let mut ops = vec![scan.clone(), scan];
        let number = recorder.invoke(self.process, ops.clone());
        let tx = self.begin_to_read(db);
        let read = |ops: &mut [Op]| perform(&mut store.read(&tx)?, ops, &mut || {});
        let before = read(&mut ops[..1]);
        between()?;
        let read = before.and_then(|()| read(&mut ops[1..]));
        let tried = self.end_of_read(tx, read);
        self.note(store, recorder, number, tried, ops)
    }

    /// Commits or rolls back what was prepared when power was lost.
    ///
    /// # Errors
    /// What the engine must not answer.
    pub(super) fn resolve(&mut self, db: &Db, recorder: &Recorder) -> Result<Ended, Error> {
        let Some(in_doubt) = self.in_doubt.take() else { return Ok(Ended::Well) };
        let number = in_doubt.number;
        let tried = match db.prepared() {
            // It was not prepared yet, or had ended, and the recovery has settled it.
            Ok(prepared) if prepared.iter().all(|found| found.name != name(number)) => return Ok(Ended::Well),
            // Where power is lost already, too: others may wait for it.
            _ => self.end(db, number),
        };
        match tried {
            Tried::Committed(csn) if self.planted != Some(Planted::Mistold) => recorder.ok(number, in_doubt.ops, csn),
            Tried::Committed(_) | Tried::RolledBack => recorder.fail(number),
            Tried::Failed(error) => return Err(error),
            Tried::Unknown(error) | Tried::InDoubt(error) => {
                self.in_doubt = Some(in_doubt);
                return Ok(Ended::Stopped(error));
            }
        }
        Ok(Ended::Well)
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
                    ops.push(Op::Write { key, value: recorder.new_value() });
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
            self.write(db, store, &mut plan, number)
        };
        self.note(store, recorder, number, tried, plan.kept())
    }

    /// Notes how a transaction ended, and what its steps have found if they count.
    fn note(
        &mut self,
        store: &Store,
        recorder: &Recorder,
        number: usize,
        tried: Tried,
        ops: Vec<Op>,
    ) -> Result<Ended, Error> {
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
                self.unanswered(recorder, number);
                Ok(Ended::Stopped(error))
            }
            Tried::InDoubt(error) => {
                self.unanswered(recorder, number);
                self.in_doubt = Some(InDoubt { number, ops });
                Ok(Ended::Stopped(error))
            }
        }
    }

    /// Ends the process: it got no answer, so its outcome is unknown.
    fn unanswered(&mut self, recorder: &Recorder, number: usize) {
        recorder.info(number);
        self.process += self.sessions;
    }

    /// A transaction that may write.
    fn write(&mut self, db: &Db, store: &Store, plan: &mut Plan, number: usize) -> Tried {
        let tx = db.begin_with(store.options());
        let seed = self.random.below(u64::MAX);
        let performed = store.work(&tx).and_then(|mut work| {
            work.shuffle(seed);
            self.perform_in(&tx, &mut work, plan)?;
            if self.is_heavy { store.weigh(&tx, self.process) } else { Ok(()) }
        });
        if let Err(error) = performed {
            return Tried::Failed(error);
        }
        self.pause();
        if self.random.below(ROLLBACK) == 0 {
            return tx.rollback().map_or_else(Tried::Failed, |()| Tried::RolledBack);
        }
        if self.random.below(PREPARES) == 0 {
            return match tx.prepare(&name(number)) {
                Ok(()) => {
                    self.pause();
                    self.end(db, number)
                }
                Err(error @ (Error::Poisoned { .. } | Error::Closed)) => Tried::InDoubt(error),
                Err(error) => Tried::Failed(error),
            };
        }
        match commit(tx, self.random.below(2) == 0) {
            Ok(csn) => Tried::Committed(csn),
            Err(error @ (Error::Poisoned { .. } | Error::Closed)) => Tried::Unknown(error),
            Err(error) => Tried::Failed(error),
        }
    }

    /// Ends a prepared transaction, one way or the other.
    fn end(&mut self, db: &Db, number: usize) -> Tried {
        let name = name(number);
        let ended = if self.random.below(3) == 0 {
            db.rollback_prepared(&name).map(|()| Tried::RolledBack)
        } else {
            db.commit_prepared(&name).map(Tried::Committed)
        };
        ended.unwrap_or_else(|error| match error {
            Error::Poisoned { .. } | Error::Closed => Tried::InDoubt(error),
            _ => Tried::Failed(error),
        })
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
        let tx = self.begin_to_read(db);
        let seed = self.random.below(u64::MAX);
        let performed = store.read(&tx).and_then(|mut work| {
            work.shuffle(seed);
            perform(&mut work, ops, &mut || self.pause())
        });
        self.end_of_read(tx, performed)
    }

    fn begin_to_read(&mut self, db: &Db) -> ReadTransaction {
        let options = ReadOptions::new().label("history");
        db.read_with(if self.random.below(4) == 0 { options } else { options.latest() })
    }

    fn end_of_read(&self, tx: ReadTransaction, performed: Result<(), Error>) -> Tried {
        let is_early = self.planted == Some(Planted::Early);
        let answer = |ticket: CommitTicket| {
            if !is_early {
                ticket.wait()?;
            }
            Ok(ticket.csn())
        };
        performed.and_then(|()| tx.finish()).and_then(answer).map_or_else(Tried::Failed, Tried::Committed)
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
    /// The answer to its commit says that the outcome is unknown.
    Unknown(Error),
    /// The same of one that may be prepared.
    InDoubt(Error),
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
        // A wait lasts so long only if a cycle of waits was not detected.
        Error::LockTimeout { .. } => Err(error),
        _ if error.is_retryable() || store.expects(&error) => Ok(Ended::Well),
        _ => Ok(Ended::Stopped(error)),
    }
}
