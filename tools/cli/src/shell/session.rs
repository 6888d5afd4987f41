//! An open database, and the transaction that lines belong to.

use super::verbs::{ShellLine, Switch, Verb};
use super::words;
use crate::exit::Failure;
use crate::inspect::bounds::Bounds;
use crate::inspect::reader::Reader;
use crate::inspect::scan;
use crate::output::Output;
use clap::Parser;
use clap::error::ErrorKind;
use foreshore::{Db, ReadTransaction, Transaction};
use std::time::Instant;

/// What comes after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line,
    Quit,
}

/// The transaction that `begin` has begun.
enum Open {
    Write(Transaction),
    /// Of a database that is open for reading only.
    Read(ReadTransaction),
}

pub(super) struct Session {
    /// Ends before the database is closed.
    open: Option<Open>,
    db: Db,
    is_read_only: bool,
    has_timing: bool,
}

impl Session {
    pub(super) fn new(db: Db, is_read_only: bool) -> Self {
        Self { open: None, db, is_read_only, has_timing: false }
    }

    pub(super) const fn is_in_transaction(&self) -> bool {
        self.open.is_some()
    }

    /// Lists the names of the tables, of which those that the open transaction has given are not known yet.
    pub(super) fn tables(&self) -> Result<Vec<String>, Failure> {
        Ok(self.db.read().tables()?.into_iter().map(|table| table.name).collect())
    }

    /// Runs a line.
    pub(super) fn line(&mut self, line: &str) -> Result<Next, Failure> {
        let words = words::split(line).map_err(|why| Failure::Refused(why.to_owned()))?;
        if words.is_empty() {
            return Ok(Next::Line);
        }
        let verb = match ShellLine::try_parse_from(words) {
            Ok(line) => line.verb,
            Err(error) if error.kind() == ErrorKind::DisplayHelp => {
                let mut out = Output::new();
                error.to_string().lines().try_for_each(|line| out.line(line))?;
                return out.end().map(|()| Next::Line);
            }
            Err(error) => return Err(Failure::Refused(in_one_line(&error.to_string()))),
        };
        let begun = Instant::now();
        let done = self.run(&verb);
        if self.has_timing && !matches!(verb, Verb::Timing { .. }) {
            eprintln!("time: {:.3} ms", begun.elapsed().as_secs_f64() * 1e3);
        }
        done.map_err(|failure| self.ended(failure))
    }

    fn run(&mut self, verb: &Verb) -> Result<Next, Failure> {
        match verb {
            Verb::Begin => self.begin()?,
            Verb::Commit => match self.taken()? {
                Open::Write(tx) => drop(tx.commit()?),
                Open::Read(tx) => tx.finish()?.wait()?,
            },
            Verb::Rollback => match self.taken()? {
                Open::Write(tx) => tx.rollback()?,
                Open::Read(tx) => drop(tx),
            },
            Verb::Timing { switch } => self.has_timing = matches!(switch, Switch::On),
            Verb::Quit => return Ok(Next::Quit),
            Verb::Put(put) => self.write(|tx| put.run(tx))?,
            Verb::Rename(rename) => self.write(|tx| rename.run(tx))?,
            Verb::Clear(clear) => self.write(|tx| clear.run(tx))?,
            Verb::Del(del) => {
                let absent = self.write(|tx| del.run(tx))?;
                del.report(absent)?;
            }
            verb => match &self.open {
                None => read(&self.db.read(), verb)?,
                Some(Open::Write(tx)) => read(tx, verb)?,
                Some(Open::Read(tx)) => read(tx, verb)?,
            },
        }
        Ok(Next::Line)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        if self.open.is_some() {
            return Err(Failure::Refused("a transaction is open: commit or roll it back".to_owned()));
        }
        let is_read_only = self.is_read_only;
        self.open = Some(if is_read_only { Open::Read(self.db.read()) } else { Open::Write(self.db.begin()) });
        Ok(())
    }

    /// Takes the open transaction to end it.
    fn taken(&mut self) -> Result<Open, Failure> {
        self.open.take().ok_or_else(|| Failure::Refused("no transaction is open: begin one".to_owned()))
    }

    /// Runs `write` in the open transaction, or in one of its own that is durable when this returns.
    fn write<T>(&self, mut write: impl FnMut(&Transaction) -> Result<T, Failure>) -> Result<T, Failure> {
        match &self.open {
            None => self.db.run(|tx| write(tx)),
            Some(Open::Write(tx)) => write(tx),
            Some(Open::Read(_)) => Err(foreshore::Error::ReadOnly.into()),
        }
    }

    /// Forgets the open transaction if the engine has rolled it back, and says so.
    fn ended(&mut self, failure: Failure) -> Failure {
        let has_ended = match &self.open {
            Some(Open::Write(tx)) => tx.savepoint().is_err(),
            Some(Open::Read(tx)) => tx.tables().is_err(),
            None => false,
        };
        if has_ended {
            self.open = None;
            eprintln!("the transaction is rolled back");
        }
        failure
    }
}

/// Runs a verb that only reads.
fn read(from: &impl Reader, verb: &Verb) -> Result<(), Failure> {
    match verb {
        Verb::Tables(tables) => tables.run(from),
        Verb::Get(get) => get.run(from),
        Verb::Scan(of) => scan::print(from, &of.table, &of.bounds, &of.lines),
        Verb::Range(of) => {
            let bounds = Bounds { from: Some(of.from.clone()), to: of.to.clone(), prefix: None };
            scan::print(from, &of.table, &bounds, &of.lines)
        }
        Verb::Prefix(of) => {
            let bounds = Bounds { prefix: Some(of.prefix.clone()), ..Bounds::default() };
            scan::print(from, &of.table, &bounds, &of.lines)
        }
        Verb::Count(of) => scan::count(from, &of.table, &of.bounds),
        _ => unreachable!("the session runs the other verbs"),
    }
}

/// Returns what a message of the parser says up to its first empty line, without its own `error: `.
fn in_one_line(message: &str) -> String {
    let lines: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let line = lines.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}
