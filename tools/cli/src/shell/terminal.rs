//! Lines from a terminal, with history and completion.

use super::complete::Names;
use super::session::{Next, Session};
use super::verbs;
use crate::exit::Failure;
use crate::interrupt;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{Config, Editor};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Lines that the history keeps.
const HISTORY_LINES: usize = 1000;

/// Runs lines until one ends the shell, or the input does. A line that fails, or that Ctrl-C ends, does not end it.
pub(super) fn run(mut session: Session, name: &str) -> Result<(), Failure> {
    let config = Config::builder().max_history_size(HISTORY_LINES).map_err(failed)?.auto_add_history(true).build();
    let mut editor = Editor::<Names, FileHistory>::with_config(config).map_err(failed)?;
    editor.set_helper(Some(Names { verbs: verbs::names(), tables: session.tables()? }));
    let history = history_file();
    if let Some(path) = &history {
        // There is none before the first time.
        let _ = editor.load_history(path);
    }
    interrupt::install()?;
    loop {
        let mark = if session.is_in_transaction() { "*" } else { "" };
        match editor.readline(&format!("{name}{mark}> ")) {
            Ok(line) => {
                keep(&mut editor, history.as_deref());
                interrupt::clear();
                let done = session.line(&line);
                // A line may have renamed a table. What damage hides stays as it was.
                if let (Some(names), Ok(tables)) = (editor.helper_mut(), session.tables()) {
                    names.tables = tables;
                }
                match done {
                    Ok(Next::Line) | Err(Failure::No | Failure::PipeClosed) => {}
                    Ok(Next::Quit) => break,
                    Err(Failure::Interrupted) => eprintln!("interrupted"),
                    Err(failure) => eprintln!("error: {failure}"),
                }
            }
            // Ctrl-C gives up the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if session.is_in_transaction() {
        eprintln!("the open transaction is rolled back");
    }
    Ok(())
}

/// Appends the last line to the history, so that it is there however the shell ends. Without a file the shell goes on.
fn keep(editor: &mut Editor<Names, FileHistory>, path: Option<&Path>) {
    if let Some(path) = path {
        let _ = editor.append_history(path);
    }
}

/// Returns where the history is kept: the directory for state of the user. `None` if there is none.
fn history_file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    let dir = state.join("foreshore");
    fs::create_dir_all(&dir).ok()?;
    Some(dir.join("history"))
}

fn failed(error: ReadlineError) -> Failure {
    let error = match error {
        ReadlineError::Io(error) => error,
        error => io::Error::other(error),
    };
    Failure::Failed(foreshore::Error::io("read", "the terminal", error))
}
