//! Options of a run, by job. Names that are not built are refused with what is.

/// Gives a fieldless enum the names that users type. A name that is not here is refused with those that are.
macro_rules! names {
    ($kind:ident, $option:literal, $($name:literal => $variant:ident),+) => {
        impl FromStr for $kind {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(invalid($option, text, &[$($name),+].join(", "))),
                }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $name),+ })
            }
        }
    };
}

mod parts;
mod queue;
mod records;
mod storage;
mod values;
mod window;
mod workload;

pub use parts::Parts;
pub use queue::{Claim, Sides};
pub use records::{Distribution, Records};
pub use storage::Storage;
pub use window::Window;
pub use workload::Workload;

use crate::units::invalid;
use foreshore::{Error, Isolation, Result};
use serde::{Serialize, Serializer};
use std::{fmt, path::PathBuf, str::FromStr};
use values::{MANY, count, text};

/// When a transaction counts as committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Commit {
    /// Durable when the call returns: one transaction in flight per thread.
    Blocking,
    /// Durable when its ticket says so: many in flight per thread.
    #[default]
    Pipelined,
    /// At pre-commit. The same log and flusher; what a relaxed transaction gets.
    Async,
}

names!(Commit, "commit", "blocking" => Blocking, "pipelined" => Pipelined, "async" => Async);

/// Everything that a run depends on, defaults filled in. In JSON all options are fields of one object.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// Where the database lives; `None`: a fresh directory below the current one, removed at the end.
    #[serde(serialize_with = "path")]
    pub dir: Option<PathBuf>,
    /// Worker threads, one row each.
    pub threads: Vec<usize>,
    /// Transactions in flight per thread when commits are pipelined.
    pub clients: usize,
    /// Size of the workload: branches of TPC-B, warehouses of TPC-C, rows of the others.
    pub scale: u64,
    /// When a transaction counts as committed.
    pub commit: Commit,
    /// Isolation of the transactions.
    #[serde(serialize_with = "text")]
    pub isolation: Isolation,
    /// Seed of all randomness.
    pub seed: u64,
    /// What is measured, how long and under which load.
    #[serde(flatten)]
    pub window: Window,
    /// The parts of the engine that can be exchanged.
    #[serde(flatten)]
    pub parts: Parts,
    /// What the database is stored on, and its limits.
    #[serde(flatten)]
    pub storage: Storage,
    /// Which records the transactions are about.
    #[serde(flatten)]
    pub records: Records,
    /// The two sides of `queue`.
    #[serde(flatten)]
    pub queue: Sides,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dir: None,
            threads: vec![foreshore_sync::available_parallelism()],
            clients: 64,
            scale: 10,
            commit: Commit::default(),
            isolation: Isolation::default(),
            seed: 1,
            window: Window::default(),
            parts: Parts::default(),
            storage: Storage::default(),
            records: Records::default(),
            queue: Sides::default(),
        }
    }
}

/// Most worker threads: each has a transaction, and the engine runs 1024 at once by default.
const MAX_THREADS: usize = 1000;

impl Config {
    /// Transactions in flight per thread.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        if self.commit == Commit::Pipelined { self.clients } else { 1 }
    }

    /// Refuses values out of range and names that are not built. The engine checks its own options itself.
    ///
    /// # Errors
    /// `InvalidOption`.
    pub fn check(&self, workload: Workload) -> Result<()> {
        if self.threads.is_empty() {
            return Err(invalid("threads", "", "at least one number"));
        }
        self.threads.iter().try_for_each(|&threads| count("threads", threads, MAX_THREADS))?;
        count("clients", self.clients, MANY)?;
        if workload == Workload::Queue {
            self.queue.check(&self.threads)?;
        }
        self.parts.log_buffer()?;
        self.window.check()?;
        let (of, _, most) = workload.scale();
        if !(1..=most).contains(&self.scale) {
            return Err(invalid("scale", &self.scale.to_string(), &format!("1 to {most} {of}")));
        }
        self.records.check(most)
    }

    /// One line for the head of a table.
    #[must_use]
    pub fn summary(&self) -> String {
        let Self { scale, commit, isolation, seed, window, parts, storage, records, queue, .. } = self;
        format!(
            "scale {scale} commit {commit} isolation {isolation} {parts} {storage} {records} {queue} \
             seed {seed} {window}"
        )
    }
}

fn path<S: Serializer>(value: &Option<PathBuf>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    value.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

#[cfg(test)]
mod tests;
