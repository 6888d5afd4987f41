//! Operations of one thread on a database and on a model of it, with losses of power.

use crate::golden::{DIR, options};
use crate::input::Input;
use crate::model::{Model, Opened, TABLES, key, tables, value};
use foreshore::{Db, Durability, Error, Isolation, ReadTransaction, Result, Savepoint, Transaction, TxnOptions};
use foreshore_io::sim::{Fault, FaultKind, Persist};
use foreshore_io::{Fs, Sim};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// Operations of one transaction, so that it fits into the memory for undo.
const LONGEST: u32 = 60;
/// Operations of one input.
const MOST: u32 = 400;
/// The name of the transaction that is prepared.
const NAME: &str = "prepared";

/// The commit, or the part of one, that was asked for last.
enum Asked {
    Nothing,
    Commit(Model),
    Prepare(Model),
    /// It was acknowledged as prepared.
    Prepared(Model),
    CommitPrepared(Model),
    RollBackPrepared(Model),
}

struct Running {
    tx: Transaction,
    /// What the transaction sees.
    model: Model,
    savepoints: Vec<(Savepoint, Model)>,
    is_relaxed: bool,
    operations: u32,
}

/// A database and what it must hold.
pub struct Machine {
    disk: Sim,
    db: Option<Db>,
    /// The states that a loss of power may leave, the oldest first. The last is what is committed.
    states: Vec<Model>,
    asked: Asked,
    running: Option<Running>,
    reader: Option<(ReadTransaction, Model)>,
}

/// Runs the operations of an input.
///
/// # Panics
/// If the database and the model differ.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let disk = Sim::new(1);
    disk.stop_recording();
    let db = open(&disk).expect("a new database");
    let mut machine = Machine {
        disk,
        db: Some(db),
        states: vec![Model::default()],
        asked: Asked::Nothing,
        running: None,
        reader: None,
    };
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        if let Err(error) = machine.step(&mut input) {
            assert!(machine.disk.is_off(), "{error:?}");
            machine.restart(&mut input);
        }
    }
    machine.end();
}

fn open(disk: &Sim) -> Result<Db> {
    options(Arc::new(disk.clone()) as Arc<dyn Fs>).open(DIR)
}

impl Machine {
    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is open")
    }

    fn committed(&self) -> &Model {
        self.states.last().expect("there is always a state")
    }

    fn step(&mut self, input: &mut Input<'_>) -> Result<()> {
        let operation = input.byte();
        match operation % 16 {
            0..=7 => self.row(operation, input),
            8 => self.savepoint(input.byte()),
            9..=11 => self.finish(input.byte()),
            12 => self.upkeep(input.byte()),
            13 => self.read(),
            14 => self.prepare(input.byte()),
            _ => self.lose_power(input),
        }
    }

    /// The transaction that runs, or a new one.
    fn running(&mut self, kind: u8) -> Result<()> {
        if self.running.as_ref().is_some_and(|running| running.operations >= LONGEST) {
            self.finish(0)?;
        }
        if self.running.is_none() {
            let is_relaxed = kind & 0x30 == 0x30;
            let durability = if is_relaxed { Durability::Relaxed } else { Durability::Durable };
            let isolation = if kind & 0x40 == 0 { Isolation::Serializable } else { Isolation::Snapshot };
            let tx = self.db().begin_with(TxnOptions::new().durability(durability).isolation(isolation));
            let model = self.committed().clone();
            self.running = Some(Running { tx, model, savepoints: Vec::new(), is_relaxed, operations: 0 });
        }
        self.running.as_mut().expect("it has begun").operations += 1;
        Ok(())
    }

    fn row(&mut self, operation: u8, input: &mut Input<'_>) -> Result<()> {
        self.running(operation)?;
        let Some(Running { tx, model, .. }) = &mut self.running else { return Ok(()) };
        let which = usize::from(operation >> 7);
        let rows = &mut model.0[which];
        if operation % 16 == 7 && input.byte().is_multiple_of(8) {
            tx.drop_table(TABLES[which])?;
            rows.clear();
            return Ok(());
        }
        let table = tx.open(tables()[which])?;
        let key = key(input);
        match operation % 8 {
            0..=2 => {
                let value = value(input);
                assert_eq!(table.insert(&*key, &*value)?, rows.insert(key, value));
            }
            3 => {
                let value = value(input);
                match table.insert_new(&*key, &*value) {
                    Ok(()) => assert_eq!(rows.insert(key, value), None),
                    Err(Error::KeyExists { .. }) => assert!(rows.contains_key(&key)),
                    Err(error) => return Err(error),
                }
            }
            4 => assert_eq!(table.remove(&*key)?, rows.remove(&key)),
            5 => {
                let to = crate::model::key(input);
                let removed = table.remove_range((Bound::Included(&*key), Bound::Excluded(&*to)))?;
                let before = rows.len();
                rows.retain(|row, _| *row < key || *row >= to);
                assert_eq!(removed, (before - rows.len()) as u64);
            }
            6 => assert_eq!(table.get_for_update(&*key)?, rows.get(&key).cloned()),
            _ => {
                let to = crate::model::key(input);
                let bounds = (Bound::Included(&*key), Bound::Excluded(&*to));
                let up = table.range(bounds).collect::<Result<Vec<_>>>()?;
                let mut down = table.range(bounds).rev().collect::<Result<Vec<_>>>()?;
                down.reverse();
                let inside = rows.iter().filter(|(row, _)| **row >= key && **row < to);
                let wanted: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
                assert_eq!((&up, &down), (&wanted, &wanted));
            }
        }
        Ok(())
    }

    fn savepoint(&mut self, choice: u8) -> Result<()> {
        let Some(Running { tx, model, savepoints, .. }) = &mut self.running else { return Ok(()) };
        if choice.is_multiple_of(2) || savepoints.is_empty() {
            savepoints.push((tx.savepoint()?, model.clone()));
            return Ok(());
        }
        savepoints.truncate(usize::from(choice / 2) % savepoints.len() + 1);
        let (savepoint, then) = savepoints.last().expect("at least one is left");
        tx.rollback_to(savepoint)?;
        model.clone_from(then);
        Ok(())
    }

    /// Commits, or rolls back.
    fn finish(&mut self, choice: u8) -> Result<()> {
        let Some(Running { tx, model, is_relaxed, .. }) = self.running.take() else { return Ok(()) };
        if choice % 4 == 3 {
            return tx.rollback();
        }
        self.asked = Asked::Commit(model.clone());
        tx.commit()?;
        self.asked = Asked::Nothing;
        if model == *self.committed() {
            // One that changes nothing need not wait for relaxed commits that it does not rest on.
            return Ok(());
        }
        if !is_relaxed {
            self.states.clear();
        }
        self.states.push(model);
        Ok(())
    }

    fn upkeep(&mut self, choice: u8) -> Result<()> {
        match choice % 8 {
            0 => self.db().checkpoint(),
            1 => {
                self.db().sync()?;
                self.states.drain(..self.states.len() - 1);
                Ok(())
            }
            // They wait for the locks of the transaction that runs.
            2 if self.running.is_none() => self.db().check().map(drop),
            3 if self.running.is_none() => self.db().vacuum().map(drop),
            4 => self.reopen(),
            5 if self.running.is_none() => self.db().compact().map(drop),
            _ => {
                (0..choice / 8).for_each(|_| self.db().step());
                Ok(())
            }
        }
    }

    /// Closes, which makes all durable, and opens again.
    fn reopen(&mut self) -> Result<()> {
        (self.running, self.reader) = (None, None);
        let db = self.db.take().expect("it is open");
        // What is lost with the power is found at the restart.
        let closed = db.close(Duration::ZERO);
        drop(db);
        closed?;
        self.states.drain(..self.states.len() - 1);
        self.db = Some(open(&self.disk)?);
        self.compare();
        Ok(())
    }

    /// Begins a reader, or reads what it must still see.
    fn read(&mut self) -> Result<()> {
        let Some((reader, model)) = self.reader.take() else {
            // Readers see what is durable.
            if self.states.len() == 1 {
                self.reader = Some((self.db().read(), self.committed().clone()));
                // The snapshot is taken at the first operation.
                return self.read();
            }
            return Ok(());
        };
        match Opened(&reader).model() {
            Ok(seen) => assert_eq!(seen, model, "a snapshot has changed"),
            Err(Error::SnapshotTooOld { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
        if self.states.len() == 1 && self.running.is_none() {
            self.reader = Some((reader, model));
        }
        Ok(())
    }

    /// Prepares the transaction that runs and ends it, in this run or after a loss of power.
    fn prepare(&mut self, choice: u8) -> Result<()> {
        let Some(Running { tx, model, .. }) = self.running.take() else { return Ok(()) };
        self.reader = None;
        self.asked = Asked::Prepare(model.clone());
        tx.prepare(NAME)?;
        self.asked = Asked::Prepared(model.clone());
        // What the transaction rests on is durable with it.
        self.states.drain(..self.states.len() - 1);
        if choice & 4 != 0 {
            self.disk.power_off();
            return Err(Error::Closed);
        }
        self.resolve(choice & 1 == 0, model)
    }

    fn resolve(&mut self, commits: bool, model: Model) -> Result<()> {
        if commits {
            self.asked = Asked::CommitPrepared(model.clone());
            self.db().commit_prepared(NAME)?;
            self.states = vec![model];
        } else {
            self.asked = Asked::RollBackPrepared(model);
            self.db().rollback_prepared(NAME)?;
        }
        self.asked = Asked::Nothing;
        Ok(())
    }

    /// Loses power now, or at one of the next operations of the disk.
    fn lose_power(&mut self, input: &mut Input<'_>) -> Result<()> {
        let after = input.byte() % 32;
        if after == 0 {
            self.disk.power_off();
            return Err(Error::Closed);
        }
        let at = self.disk.ops() + u64::from(after);
        self.disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
        Ok(())
    }

    /// Opens what a loss of power has left, and compares.
    fn restart(&mut self, input: &mut Input<'_>) {
        (self.running, self.reader) = (None, None);
        if let Some(db) = self.db.take() {
            let _ = db.close(Duration::ZERO);
        }
        let mut depth = 0;
        let db = loop {
            let (policy, seed, after) = (input.byte(), input.byte(), input.byte());
            let image = self.disk.crash_image(&Persist::ALL[usize::from(policy) % Persist::ALL.len()], seed.into());
            image.stop_recording();
            self.disk = image;
            if after % 4 == 3 && depth < 3 {
                let at = self.disk.ops() + u64::from(after / 4);
                self.disk.inject(Fault { at, kind: FaultKind::Crash, sticky: false });
            }
            depth += 1;
            match open(&self.disk) {
                Ok(db) => break db,
                Err(error) => assert!(self.disk.is_off(), "a restart failed: {error:?}"),
            }
        };
        self.disk.clear_faults();
        if self.disk.is_off() {
            // In the work that ends a start, whose failure is none.
            drop(db);
            return self.restart(input);
        }
        self.db = Some(db);
        self.settle(input.byte() & 1 == 0);
    }

    /// Finds the state that the restart has found among those that it may.
    fn settle(&mut self, commits: bool) {
        let prepared = self.db().prepared().expect("it is open");
        let is_prepared = !prepared.is_empty();
        match std::mem::replace(&mut self.asked, Asked::Nothing) {
            Asked::Nothing => assert!(!is_prepared),
            Asked::Commit(model) => {
                assert!(!is_prepared);
                self.states.push(model);
            }
            Asked::Prepare(_) if !is_prepared => {}
            Asked::CommitPrepared(model) if !is_prepared => self.states = vec![model],
            Asked::RollBackPrepared(_) if !is_prepared => {}
            Asked::Prepare(model)
            | Asked::Prepared(model)
            | Asked::CommitPrepared(model)
            | Asked::RollBackPrepared(model) => {
                assert!(is_prepared, "a prepared transaction is gone");
                self.states.drain(..self.states.len() - 1);
                self.resolve(commits, model).expect("the disk works");
            }
        }
        let found = Opened(&self.db().read()).model().expect("the disk works");
        assert!(self.states.contains(&found), "after a loss of power: {found:?} is none of {:?}", self.states);
        self.states = vec![found];
        self.db().check().expect("the disk works");
    }

    fn compare(&self) {
        let found = Opened(&self.db().read()).model().expect("the disk works");
        assert_eq!(&found, self.committed());
    }

    fn end(&mut self) {
        self.disk.clear_faults();
        if let Err(error) = self.reopen() {
            assert!(self.disk.is_off(), "{error:?}");
            self.restart(&mut Input::new(&[]));
        }
        self.db().check().expect("the disk works");
    }
}
