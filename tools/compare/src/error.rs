//! What stops a comparison.

use std::{fmt, io, path::Path};

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// What stops a comparison.
#[derive(Debug)]
pub(crate) enum Error {
    /// A workload that is not built.
    Workload {
        /// The name that was asked for.
        name: String,
        known: Vec<&'static str>,
    },
    /// An engine that is not known.
    Engine {
        /// The name that was asked for.
        name: String,
        known: Vec<&'static str>,
    },
    /// A variant that the engine does not have for this workload.
    Variant { name: String, known: String },
    /// An option out of its range.
    Option { name: &'static str, value: String, expected: &'static str },
    /// A session that lacks a call.
    Unable { call: &'static str },
    /// An engine answered a call with an error.
    Failed { engine: &'static str, call: &'static str, cause: String },
    /// A row of the workload is missing or has other bytes than were written.
    Lost { engine: &'static str, what: String },
    /// A file operation failed.
    Io { operation: &'static str, path: String, cause: io::Error },
    /// The process of a row did not end well.
    Child { row: String, cause: String },
}

impl Error {
    /// Returns the constructor of an `Io` for an operation on `path`.
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.display().to_string();
        move |cause| Self::Io { operation, path, cause }
    }

    /// Returns the constructor of a `Failed` for a call of `engine`.
    pub(crate) fn failed<E: fmt::Display>(engine: &'static str, call: &'static str) -> impl FnOnce(E) -> Self {
        move |cause| Self::Failed { engine, call, cause: cause.to_string() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Workload { name, known } => write!(f, "no workload `{name}`: there are {}", known.join(", ")),
            Self::Engine { name, known } => write!(f, "no engine `{name}`: there are {}", known.join(", ")),
            Self::Variant { name, known } => write!(f, "no variant `{name}`: there are {known}"),
            Self::Option { name, value, expected } => write!(f, "--{name} is {value}: expected {expected}"),
            Self::Unable { call } => write!(f, "the session has no call {call}"),
            Self::Failed { engine, call, cause } => write!(f, "{engine}: {call} failed: {cause}"),
            Self::Lost { engine, what } => write!(f, "{engine}: {what}"),
            Self::Io { operation, path, cause } => write!(f, "cannot {operation} {path}: {cause}"),
            Self::Child { row, cause } => write!(f, "the process that measured {row} failed: {cause}"),
        }
    }
}

impl std::error::Error for Error {}
