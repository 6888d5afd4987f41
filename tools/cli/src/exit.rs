//! Why a verb ends without success, and the exit status for it.

use foreshore::Error;
use std::fmt;
use std::io;
use std::process::ExitCode;

/// The exit statuses, as `--help` shows them.
pub(crate) const STATUSES: &str = "\
Exit status:
  0  done; also if the reader of a pipe has closed it
  1  the answer is no: a check found damage, a repair left some, a salvage did not find all rows, the row is absent,
     or a check of a benchmark is false
  2  the request is refused: an argument, a key or value that does not fit its type, an unknown table, a new name that
     a table has
  3  the database cannot be opened: there is none, it is in use, of a newer format, or damaged
  4  the operation failed";

/// Why a verb ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The answer is no, and the verb has printed why.
    No,
    /// The request is refused.
    Refused(String),
    /// The database cannot be opened.
    Unopened(Error),
    /// The operation failed.
    Failed(Error),
    /// The reader of the output has closed the pipe. The rest of the output is not wanted.
    PipeClosed,
    /// Ctrl-C ended a verb of the shell.
    Interrupted,
}

impl Failure {
    /// Returns the failure of an open.
    pub(crate) fn unopened(error: impl Into<Error>) -> Self {
        match error.into() {
            error @ Error::InvalidOption { .. } => Self::Refused(error.to_string()),
            error => Self::Unopened(error),
        }
    }

    /// Returns the failure of a write to standard output.
    pub(crate) fn output(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::PipeClosed,
            _ => Self::Failed(foreshore_base::Error::io("write", "standard output", error).into()),
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::PipeClosed => 0,
            Self::No => 1,
            Self::Refused(_) => 2,
            Self::Unopened(_) => 3,
            Self::Failed(_) | Self::Interrupted => 4,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No | Self::PipeClosed => Ok(()),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Refused(why) => f.write_str(why),
            Self::Unopened(error) | Self::Failed(error) => error.fmt(f),
        }
    }
}

/// Errors of operations on an open database, and of benchmarks.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Io { op: "write", source, .. } if source.kind() == io::ErrorKind::BrokenPipe => Self::PipeClosed,
            Error::NoTable { name } => Self::Refused(format!("there is no table {name:?}")),
            Error::TableName { .. }
            | Error::TableTypes { .. }
            | Error::TableExists { .. }
            | Error::NotEmpty { .. }
            | Error::Restore(_)
            | Error::UnknownBase(_)
            | Error::ReadOnly
            | Error::KeyTooLarge { .. }
            | Error::ValueTooLarge { .. }
            | Error::InvalidOption { .. } => Self::Refused(error.to_string()),
            error => Self::Failed(error),
        }
    }
}
