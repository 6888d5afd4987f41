//! A session: one transaction after the other, and what it is told.

use super::check::{Asked, Prepared};
use super::device;
use super::history::{Level, NEVER, Outcome, Txn};
use super::part::{Parts, Place};
use super::plan::{TxnPlan, one_in};
use super::shared::{Shared, Stop};
use crate::Random;
use foreshore::{CompactOptions, Error, Transaction};
use foreshore_sync::primitive::atomic::Ordering;
use foreshore_sync::schedule;
use std::ops::ControlFlow;
use std::time::Duration;

/// A session.
pub(super) struct Session<'s> {
    shared: &'s Shared,
    parts: &'s Parts,
    /// The session, and its action of the moment.
    place: Place,
    action: Place,
    /// The choices of the action, or of its operation.
    random: Random,
    /// What its transaction may see of others.
    level: Level,
    number: u32,
    prepared: u64,
}

impl<'s> Session<'s> {
    pub(super) fn new(shared: &'s Shared, parts: &'s Parts, place: Place, number: u32) -> Self {
        let random = parts.random(&place);
        Self { shared, parts, action: place.clone(), place, random, level: Level::Serializable, number, prepared: 0 }
    }

    pub(super) const fn shared(&self) -> &'s Shared {
        self.shared
    }

    pub(super) const fn parts(&self) -> &'s Parts {
        self.parts
    }

    /// Returns the action of the moment.
    pub(super) const fn action(&self) -> &Place {
        &self.action
    }

    /// Returns the choices of the action, or of its operation.
    pub(super) const fn random(&mut self) -> &mut Random {
        &mut self.random
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
                    0 if one_in(&mut self.random, 2) => self.compact(),
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

    /// Compacts the database, at times only for some steps.
    fn compact(&mut self) -> Result<(), Stop> {
        let most = [u64::MAX, 1 + self.random.below(40)][self.random.below(2) as usize];
        let mut steps = 0;
        let options = CompactOptions::new().share(if one_in(&mut self.random, 2) { 100 } else { 50 });
        let compacted = self.shared.db.compact_with(options, |_| {
            steps += 1;
            // Its pauses are as long as its work, in which the clock may have jumped.
            schedule::progress();
            if steps < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        compacted.map(drop).map_err(Stop::from)
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

    /// Returns what its transaction may see of others.
    pub(super) const fn level(&self) -> Level {
        self.level
    }

    fn transact(&mut self) -> Result<(), Stop> {
        let TxnPlan { options, level, is_relaxed, is_hasty } = TxnPlan::draw(&mut self.random);
        let begin = self.shared.moment();
        self.level = level;
        let mut txn = Txn {
            level,
            begin,
            ended: NEVER,
            answered: NEVER,
            durable: NEVER,
            outcome: Outcome::Aborted,
            record: None,
            steps: Vec::new(),
        };
        let tx = self.shared.db.begin_with(options);
        let worked = self.work(&tx, &mut txn.steps);
        txn.ended = self.shared.moment();
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
        match ended {
            Err(Stop::Error(Error::LockTimeout { .. } | Error::Deadline { .. })) if is_hasty => Ok(()),
            ended => ended,
        }
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
                txn.record = Some(ticket.record_lsn().0);
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
            // It has more locks than the log takes in a record, and is rolled back.
            Err(Error::ValueTooLarge { .. }) => {
                list.remove(&name);
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
