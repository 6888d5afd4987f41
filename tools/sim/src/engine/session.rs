//! A session: one transaction after the other, and what it is told.

use super::check::{Asked, Prepared};
use super::device;
use super::history::{NEVER, Outcome, Txn};
use super::part::{Parts, Place};
use super::plan::{Trouble, one_in, txn_options};
use crate::Random;
use foreshore::{Db, Error, Transaction};
use foreshore_io::Sim;
use foreshore_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use foreshore_sync::{LockRank, Mutex, schedule};
use std::collections::BTreeMap;
use std::time::Duration;

/// What the sessions of a life share.
pub(super) struct Shared {
    pub(super) db: Db,
    /// Keys of a table.
    pub(super) keys: u16,
    /// Keys of the last table.
    pub(super) big_keys: u16,
    pub(super) trouble: Trouble,
    /// Moments, and numbers of values.
    pub(super) moments: AtomicU64,
    pub(super) txns: Mutex<Vec<Txn>>,
    pub(super) prepared: Mutex<BTreeMap<String, Prepared>>,
    /// Whether threads that can run do. Then only a transaction that waits to be resolved explains a wait without end.
    pub(super) is_prompt: bool,
    /// One in so many attempts to resolve a prepared transaction is made: others meet its locks meanwhile.
    pub(super) resolves_one_in: u64,
    /// Whether a transaction has been prepared.
    has_prepared: AtomicBool,
    /// Whether a session closes the database beside the others.
    is_closing: AtomicBool,
    /// The machine, if the process was killed on it.
    pub(super) killed: Mutex<Option<Sim>>,
    /// What must not be.
    pub(super) wrong: Mutex<Option<String>>,
}

/// Why a session's step ends.
pub(super) enum Stop {
    /// The engine said so.
    Error(Error),
    /// What it said must not be.
    Wrong(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<String> for Stop {
    fn from(wrong: String) -> Self {
        Self::Wrong(wrong)
    }
}

impl Shared {
    pub(super) fn new(
        db: Db,
        keys: (u16, u16),
        trouble: Trouble,
        first: u64,
        prepared: BTreeMap<String, Prepared>,
    ) -> Self {
        Self {
            db,
            keys: keys.0,
            big_keys: keys.1,
            trouble,
            is_prompt: false,
            resolves_one_in: 1,
            has_prepared: AtomicBool::new(!prepared.is_empty()),
            is_closing: AtomicBool::new(false),
            moments: AtomicU64::new(first),
            txns: Mutex::new(LockRank::Leaf, Vec::new()),
            prepared: Mutex::new(LockRank::Leaf, prepared),
            killed: Mutex::new(LockRank::Leaf, None),
            wrong: Mutex::new(LockRank::Leaf, None),
        }
    }

    pub(super) fn moment(&self) -> u64 {
        // ORDERING: Relaxed, a number that nothing rests on.
        self.moments.fetch_add(1, Ordering::Relaxed)
    }

    fn fail(&self, why: String) {
        self.wrong.lock().get_or_insert(why);
    }

    fn has_prepared(&self) -> bool {
        // ORDERING: Relaxed, a flag that nothing rests on.
        self.has_prepared.load(Ordering::Relaxed)
    }

    pub(super) fn is_closing(&self) -> bool {
        // ORDERING: Relaxed, a flag that nothing rests on.
        self.is_closing.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.wrong.lock().is_some()
    }

    /// Whether the session goes on after an error.
    fn goes_on(&self, stop: Stop) -> bool {
        let error = match stop {
            Stop::Error(error) => error,
            Stop::Wrong(why) => {
                self.fail(why);
                return false;
            }
        };
        match &error {
            Error::LockTimeout { .. } if self.is_prompt && !self.has_prepared() => {
                self.fail(format!("a wait for a lock that nothing explains: {error} ({error:?})"));
                false
            }
            _ if error.is_retryable() => true,
            Error::OwnThreadLock { .. }
            | Error::RowLocked { .. }
            | Error::KeyExists { .. }
            | Error::RolledBack
            | Error::NoTable { .. }
            | Error::TransactionTooLarge { .. }
            | Error::NoPrepared { .. }
            | Error::PreparedBusy { .. } => true,
            Error::DiskFull { .. } | Error::RollbackParked { .. } if self.trouble.is_full() => true,
            Error::Io { .. } if matches!(self.trouble, Trouble::Read(_)) => true,
            Error::Closed if self.is_closing() => false,
            Error::Poisoned { .. } | Error::Io { .. } | Error::Closed if self.trouble.may_stop() => false,
            _ => {
                self.fail(format!("an answer that must not be: {error} ({error:?})"));
                false
            }
        }
    }
}

/// A session.
pub(super) struct Session<'s> {
    pub(super) shared: &'s Shared,
    pub(super) parts: &'s Parts,
    /// The session, and its action of the moment.
    place: Place,
    pub(super) action: Place,
    /// The choices of the action, or of its operation.
    pub(super) random: Random,
    number: u32,
    prepared: u64,
}

impl<'s> Session<'s> {
    pub(super) fn new(shared: &'s Shared, parts: &'s Parts, place: Place, number: u32) -> Self {
        let random = parts.random(&place);
        Self { shared, parts, action: place.clone(), place, random, number, prepared: 0 }
    }

    /// Runs so many actions, or until the database stops.
    pub(super) fn run(&mut self, actions: u32) {
        for number in 0..actions {
            self.action = self.place.part(number);
            if !self.parts.has(&self.action) {
                continue;
            }
            self.random = self.parts.random(&self.action);
            let done = match self.random.below(24) {
                0..=16 => self.transact(),
                17..=18 => self.read(),
                19..=20 => self.resolve(),
                21 => self.shared.db.checkpoint().map_err(Stop::from),
                22 => match self.random.below(4) {
                    0 => self.shared.db.vacuum().map(drop).map_err(Stop::from),
                    1 => self.shared.db.check().map(drop).map_err(Stop::from),
                    _ => self.sync(),
                },
                _ if one_in(&mut self.random, 16) => self.close(),
                _ => {
                    let _ = self.shared.db.stats();
                    Ok(())
                }
            };
            schedule::progress();
            if self.shared.has_failed() || done.is_err_and(|stop| !self.shared.goes_on(stop)) {
                return;
            }
        }
    }

    /// Takes checkpoints beside the others, so many.
    pub(super) fn take_checkpoints(&mut self, count: u64) {
        for _ in 0..count {
            device::pause(Duration::from_micros(self.random.below(3_000)));
            let taken = self.shared.db.checkpoint().map_err(Stop::from);
            if self.shared.has_failed() || taken.is_err_and(|stop| !self.shared.goes_on(stop)) {
                return;
            }
        }
    }

    /// Closes the database while others work.
    fn close(&mut self) -> Result<(), Stop> {
        // ORDERING: Relaxed, as in `is_closing`.
        self.shared.is_closing.store(true, Ordering::Relaxed);
        self.shared.db.close(Duration::from_micros(self.random.below(100_000)))?;
        Err(Error::Closed.into())
    }

    /// Everything that was committed before is durable after.
    fn sync(&self) -> Result<(), Stop> {
        let before = self.shared.moment();
        self.shared.db.sync()?;
        let now = self.shared.moment();
        for txn in self.shared.txns.lock().iter_mut().filter(|txn| txn.answered < before) {
            txn.durable = txn.durable.min(now);
        }
        Ok(())
    }

    fn transact(&mut self) -> Result<(), Stop> {
        let (options, level, is_relaxed) = txn_options(&mut self.random);
        let begin = self.shared.moment();
        let mut txn =
            Txn { level, begin, answered: NEVER, durable: NEVER, outcome: Outcome::Aborted, steps: Vec::new() };
        let tx = self.shared.db.begin_with(options);
        let worked = self.work(&tx, &mut txn.steps);
        let ended = match worked {
            Ok(()) => self.end(tx, &mut txn, is_relaxed),
            Err(stop) => {
                if one_in(&mut self.random, 2) {
                    drop(tx);
                } else {
                    // What it says adds nothing to the error.
                    let _ = tx.rollback();
                }
                Err(stop)
            }
        };
        if !matches!(txn.outcome, Outcome::Prepared(_) | Outcome::PreparedUnknown(_)) {
            self.shared.txns.lock().push(txn);
        }
        ended
    }

    /// Ends a transaction in one of the ways that there are.
    fn end(&mut self, tx: Transaction, txn: &mut Txn, is_relaxed: bool) -> Result<(), Stop> {
        match self.random.below(16) {
            0 => tx.rollback().map_err(Stop::from),
            1 => {
                drop(tx);
                Ok(())
            }
            2 => self.prepare(tx, txn),
            3..=6 => match tx.commit() {
                Ok(csn) => {
                    txn.outcome = Outcome::Committed(csn.0);
                    txn.answered = self.shared.moment();
                    txn.durable = if is_relaxed { NEVER } else { txn.answered };
                    Ok(())
                }
                Err(error) => {
                    txn.outcome = unless_retryable(&error);
                    Err(error.into())
                }
            },
            _ => {
                let ticket = match tx.commit_pipelined() {
                    Ok(ticket) => ticket,
                    Err(error) => {
                        txn.outcome = unless_retryable(&error);
                        return Err(error.into());
                    }
                };
                txn.outcome = Outcome::Committed(ticket.csn().0);
                txn.answered = self.shared.moment();
                let ticket = if is_relaxed && one_in(&mut self.random, 2) { ticket.harden() } else { ticket };
                let waits = self.random.below(4) != 0;
                let waited = if waits { ticket.wait() } else { Ok(()) };
                if ticket.is_durable() {
                    txn.durable = self.shared.moment();
                } else if waits && waited.is_ok() && !is_relaxed {
                    return Err(Stop::Wrong("a ticket was waited for, and is not durable".to_owned()));
                }
                waited.map_err(Stop::from)
            }
        }
    }

    fn prepare(&mut self, tx: Transaction, txn: &mut Txn) -> Result<(), Stop> {
        self.prepared += 1;
        // ORDERING: Relaxed, as in `has_prepared`.
        self.shared.has_prepared.store(true, Ordering::Relaxed);
        let name = format!("{}-{}-{}", self.number, self.prepared, txn.begin);
        let entry = Prepared { txn: txn.clone(), asked: Asked::Prepare };
        self.shared.prepared.lock().insert(name.clone(), entry);
        let prepared = tx.prepare(&name);
        let mut list = self.shared.prepared.lock();
        match prepared {
            Ok(()) => {
                if let Some(entry) = list.get_mut(&name).filter(|entry| entry.asked == Asked::Prepare) {
                    entry.asked = Asked::Nothing;
                }
                txn.outcome = Outcome::Prepared(name);
                Ok(())
            }
            Err(error) => {
                if unless_retryable(&error) == Outcome::Unknown && !matches!(error, Error::DiskFull { .. }) {
                    txn.outcome = Outcome::PreparedUnknown(name);
                } else {
                    list.remove(&name);
                }
                Err(error.into())
            }
        }
    }

    /// Ends one of the prepared transactions.
    fn resolve(&mut self) -> Result<(), Stop> {
        let names: Vec<String> = {
            let list = self.shared.prepared.lock();
            list.iter().filter(|(_, entry)| entry.asked == Asked::Nothing).map(|(name, _)| name.clone()).collect()
        };
        if names.is_empty() || !one_in(&mut self.random, self.shared.resolves_one_in) {
            return Ok(());
        }
        let name = &names[self.random.below(names.len() as u64) as usize];
        let commits = one_in(&mut self.random, 2);
        {
            let mut list = self.shared.prepared.lock();
            let Some(entry) = list.get_mut(name).filter(|entry| entry.asked == Asked::Nothing) else { return Ok(()) };
            entry.asked = if commits { Asked::Commit } else { Asked::Rollback };
        }
        let done = if commits {
            self.shared.db.commit_prepared(name).map(|csn| Outcome::Committed(csn.0))
        } else {
            self.shared.db.rollback_prepared(name).map(|()| Outcome::Aborted)
        };
        let mut list = self.shared.prepared.lock();
        match done {
            Ok(outcome) => {
                let mut txn = list.remove(name).expect("one session ends it").txn;
                drop(list);
                if matches!(outcome, Outcome::Committed(_)) {
                    txn.answered = self.shared.moment();
                    txn.durable = txn.answered;
                }
                txn.outcome = outcome;
                self.shared.txns.lock().push(txn);
                Ok(())
            }
            // The decision is durable, and the rest is taken back later.
            Err(Error::RollbackParked { .. }) if self.shared.trouble.is_full() => {
                list.remove(name);
                Ok(())
            }
            Err(error @ Error::NoPrepared { .. }) => Err(Stop::Wrong(format!("{name} was prepared: {error}"))),
            Err(error) => {
                if matches!(error, Error::PreparedBusy { .. } | Error::DiskFull { .. }) || error.is_retryable() {
                    list.get_mut(name).expect("one session ends it").asked = Asked::Nothing;
                }
                Err(error.into())
            }
        }
    }
}

/// What became of a commit that was answered with an error.
fn unless_retryable(error: &Error) -> Outcome {
    if error.is_retryable() || matches!(error, Error::RolledBack) { Outcome::Aborted } else { Outcome::Unknown }
}
