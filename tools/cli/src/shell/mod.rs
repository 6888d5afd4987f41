//! `foreshore shell`: verbs from lines, in one open of the database.
//!
//! | module | does |
//! |---|---|
//! | `words` | splits a line into words |
//! | `verbs` | the verbs of a line, made of those of the program |
//! | `session` | runs them, inside and outside of a transaction |
//! | `complete` | completes verbs and names of tables |
//! | `terminal` | lines from a terminal, with history |

mod complete;
mod session;
mod terminal;
mod verbs;
mod words;

use crate::exit::Failure;
use crate::inspect::database::Database;
use clap::Args;
use session::{Next, Session};
use std::io::{self, BufRead, IsTerminal};

/// Run verbs line by line, in one open of the database
///
/// The verbs are tables, get, put, del, scan, range, prefix, count, rename, clear, begin, commit, rollback, timing,
/// help and quit. Keys and values are written as after the verbs of the program, quoted as in a POSIX shell: get pairs
/// '[7, "x"]'.
///
/// At a terminal there are a history and completion, and an error ends a line. From a pipe or a file, an error ends the
/// shell with its exit status; the lines behind it do not run. An absent row is no error there, but the exit status
/// becomes 1. A transaction that is open at the end is rolled back, and the exit status from a pipe is then 2.
#[derive(Args)]
pub(crate) struct ShellArguments {
    #[command(flatten)]
    database: Database,
    /// Write to no file. The database must have been closed
    #[arg(long, conflicts_with = "archive")]
    read_only: bool,
}

pub(crate) fn run(arguments: &ShellArguments) -> Result<(), Failure> {
    let database = &arguments.database;
    let db = if arguments.read_only { database.open_read_only()? } else { database.open()? };
    let session = Session::new(db, arguments.read_only);
    if io::stdin().is_terminal() {
        let name = database.dir().file_name().unwrap_or(database.dir().as_os_str());
        return terminal::run(session, &name.to_string_lossy());
    }
    from_lines(session, io::stdin().lock())
}

/// Runs each line of a pipe or a file, up to the first that fails.
fn from_lines(mut session: Session, lines: impl BufRead) -> Result<(), Failure> {
    let mut all_yes = true;
    for line in lines.lines() {
        let line = line.map_err(|error| foreshore::Error::io("read", "standard input", error))?;
        match session.line(&line) {
            Ok(Next::Line) => {}
            Ok(Next::Quit) => break,
            Err(Failure::No) => all_yes = false,
            Err(failure) => return Err(failure),
        }
    }
    if session.is_in_transaction() {
        return Err(Failure::Refused("the input ends inside a transaction, which is rolled back".to_owned()));
    }
    if all_yes { Ok(()) } else { Err(Failure::No) }
}
