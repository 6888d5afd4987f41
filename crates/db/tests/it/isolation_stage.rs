//! Scripts of sessions whose steps run one after the other, though some of them wait.
//!
//! A line is `session step => answer`; without an answer it is `ok`. The answer `waits` says that the step waits for a
//! lock; `session => answer` then says how it ends. A session begins its transaction with its first step.
//!
//! | step | does |
//! |---|---|
//! | `r1`, `u1` | reads row 1, the second for an update |
//! | `all`, `=30`, `%3` | scans: all rows, those with the value 30, those whose value 3 divides |
//! | `w1=11`, `i3=30`, `x1` | writes a row, adds one, removes one |
//! | `x=20` | removes the rows that have the value 20 when their turn comes |
//! | `+10` | adds 10 to all rows |
//! | `commit`, `rollback` | ends |

use crate::support::{NUMBERS, in_memory, numbers};
use foreshore::{Db, Error, Isolation, Table, Transaction, TxnOptions};
use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, Sender, TryRecvError, channel},
    thread,
    time::{Duration, Instant},
};

/// Longer than anything takes that will ever end.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a script at a level of isolation, on the rows 1=10 and 2=20, and expects the rows `end` when it is over.
pub(crate) fn play(isolation: &str, script: &str, end: &str) {
    let isolation: Isolation = isolation.parse().unwrap();
    let (db, _) = in_memory();
    db.run(|tx| {
        let table = tx.open(NUMBERS)?;
        table.insert(1, 10)?;
        table.insert(2, 20).map(drop)
    })
    .unwrap();
    let mut stage = Stage { db: &db, isolation, sessions: BTreeMap::new() };
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (step, answer) = line.split_once("=>").unwrap_or((line, "ok"));
        let (name, step) = step.trim().split_once(' ').unwrap_or((step.trim(), ""));
        let found = stage.step(name, step, answer.trim() == "waits");
        assert_eq!(found, answer.trim(), "{line}, at {isolation:?} in\n{script}");
    }
    drop(stage);
    assert_eq!(shown(&numbers(&db)), end, "at the end, at {isolation:?} of\n{script}");
}

struct Stage<'a> {
    db: &'a Db,
    isolation: Isolation,
    sessions: BTreeMap<String, Session>,
}

/// A thread with a transaction.
struct Session {
    steps: Sender<String>,
    answers: Receiver<String>,
}

impl Stage<'_> {
    /// Gives a step to a session, or none if the last one has yet to be answered.
    fn step(&mut self, name: &str, step: &str, may_wait: bool) -> String {
        let waits = || self.db.stats().lock.waits;
        let before = waits();
        if !self.sessions.contains_key(name) {
            self.sessions.insert(name.to_owned(), Session::start(self.db, self.isolation));
        }
        let session = &self.sessions[name];
        if !step.is_empty() {
            session.steps.send(step.to_owned()).unwrap();
        }
        let begin = Instant::now();
        loop {
            match session.answers.try_recv() {
                Ok(answer) => return answer,
                // Only this session has been given anything to do: the wait is its own.
                Err(TryRecvError::Empty) if may_wait && waits() > before => return "waits".to_owned(),
                Err(TryRecvError::Empty) if begin.elapsed() < LIMIT => thread::yield_now(),
                Err(error) => return error.to_string(),
            }
        }
    }
}

impl Session {
    fn start(db: &Db, isolation: Isolation) -> Self {
        let (steps, orders) = channel::<String>();
        let (replies, answers) = channel();
        let db = db.clone();
        thread::spawn(move || {
            let mut tx = Some(db.begin_with(TxnOptions::new().isolation(isolation).lock_timeout(LIMIT)));
            for step in orders {
                if replies.send(perform(&mut tx, &step).unwrap_or_else(|error| name(&error))).is_err() {
                    return;
                }
            }
        });
        Self { steps, answers }
    }
}

fn perform(tx: &mut Option<Transaction>, step: &str) -> Result<String, Error> {
    let done = || "ok".to_owned();
    match step {
        "commit" => return tx.take().unwrap().commit().map(|_| done()),
        "rollback" => return tx.take().unwrap().rollback().map(|()| done()),
        _ => {}
    }
    let table = tx.as_ref().unwrap().open(NUMBERS)?;
    let (verb, rest) = step.split_at(1);
    match verb {
        "r" => table.get(number(rest)).map(one),
        "u" => table.get_for_update(number(rest)).map(one),
        "a" => rows(&table, |_| true),
        "=" => rows(&table, |value| value == signed(rest)),
        "%" => rows(&table, |value| value % signed(rest) == 0),
        "w" => table.insert(row(rest).0, row(rest).1).map(|_| done()),
        "i" => table.insert_new(row(rest).0, row(rest).1).map(|()| done()),
        "x" if rest.starts_with('=') => remove_all(&table, signed(&rest[1..])),
        "x" => table.remove(number(rest)).map(one),
        "+" => {
            let keys = table.iter().map(|row| row.map(|row| row.0)).collect::<Result<Vec<_>, _>>()?;
            keys.into_iter().try_for_each(|key| {
                let value = table.get_for_update(key)?.unwrap_or_default();
                table.insert(key, value + signed(rest)).map(drop)
            })?;
            Ok(done())
        }
        _ => panic!("{step} is no step"),
    }
}

fn rows(table: &Table<'_, u64, i64>, is_wanted: impl Fn(i64) -> bool) -> Result<String, Error> {
    let wanted = table.iter().filter(|row| row.as_ref().map_or(true, |row| is_wanted(row.1)));
    Ok(shown(&wanted.collect::<Result<Vec<_>, _>>()?))
}

/// Scans for the rows, and looks at each again with a lock, as it may have changed where a scan takes none.
fn remove_all(table: &Table<'_, u64, i64>, value: i64) -> Result<String, Error> {
    let found = table.iter().collect::<Result<Vec<_>, _>>()?;
    let mut removed = Vec::new();
    for (key, _) in found.into_iter().filter(|row| row.1 == value) {
        if table.get_for_update(key)? == Some(value) {
            table.remove(key)?;
            removed.push((key, value));
        }
    }
    Ok(shown(&removed))
}

fn shown(rows: &[(u64, i64)]) -> String {
    let rows: Vec<String> = rows.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if rows.is_empty() { "none".to_owned() } else { rows.join(" ") }
}

fn one(value: Option<i64>) -> String {
    value.map_or("none".to_owned(), |value| value.to_string())
}

fn row(text: &str) -> (u64, i64) {
    let (key, value) = text.split_once('=').unwrap();
    (number(key), signed(value))
}

fn number(text: &str) -> u64 {
    text.parse().unwrap()
}

fn signed(text: &str) -> i64 {
    text.parse().unwrap()
}

/// The name of an error: `deadlock`.
fn name(error: &Error) -> String {
    let shown = format!("{error:?}");
    shown.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase()
}
