//! What history to make.

use crate::Kind;
use crate::check::{Base, Level};

/// What history to make.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What writes do.
    pub kind: Kind,
    /// The isolation of every transaction.
    pub isolation: Base,
    /// Sessions at once, each a thread.
    pub sessions: u64,
    /// Transactions of each session.
    pub txns: u64,
    /// Keys.
    pub keys: u64,
    /// How often power is lost, and the database recovered.
    pub losses: u64,
    /// Seed of all choices.
    pub seed: u64,
    /// What goes wrong on purpose.
    pub planted: Option<Planted>,
}

/// An error that the driver makes in place of the engine. Its histories show that such a one is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A rollback to a savepoint leaves one write as it is.
    Forgets,
    /// A scan from the back comes to its end one row too early.
    Short,
    /// A reader of the newest version is answered before that version is durable.
    Early,
    /// A transaction that was prepared when power was lost, and committed after that, is reported as rolled back.
    Mistold,
}

impl Config {
    /// The level that the history must pass: what was acknowledged is seen by all that begin later.
    #[must_use]
    pub fn level(&self) -> Level {
        Level { base: self.isolation, real_time: true }
    }
}
