//! The two sides of `queue`.

use super::values::{MANY, text};
use crate::units::invalid;
use foreshore::{Error, Result};
use serde::Serialize;
use std::{fmt, str::FromStr};

/// How a consumer of a queue takes a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// The first row that no other transaction has locked.
    #[default]
    SkipLocked,
    /// The first row. Of several consumers only one at a time gets on.
    First,
}

names!(Claim, "claim", "skip-locked" => SkipLocked, "first" => First);

/// Threads that insert rows, threads that take them, and what keeps them together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sides {
    /// Threads of `queue` that insert. Together with the consumers they are its threads.
    pub producers: usize,
    /// Threads of `queue` that take rows. Without any, nothing slows the producers down.
    pub consumers: usize,
    /// Rows that are in the queue at any time, at least; twice as many at most.
    pub backlog: u64,
    /// How consumers of `queue` take a row.
    #[serde(serialize_with = "text")]
    pub claim: Claim,
}

impl Default for Sides {
    fn default() -> Self {
        Self { producers: 1, consumers: 1, backlog: 100, claim: Claim::default() }
    }
}

impl Sides {
    /// Refuses values out of range, and `given` threads that are not those of both sides.
    pub(super) fn check(&self, given: &[usize]) -> Result<()> {
        let threads = self.producers.saturating_add(self.consumers);
        if self.producers == 0 {
            return Err(invalid("producers", "0", "at least one"));
        }
        if given != [threads] {
            let given: Vec<String> = given.iter().map(ToString::to_string).collect();
            return Err(invalid("threads", &given.join(","), &format!("{threads}, the producers and consumers")));
        }
        if !(1..=MANY as u64).contains(&self.backlog) {
            return Err(invalid("backlog", &self.backlog.to_string(), &format!("1 to {MANY}")));
        }
        Ok(())
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { producers, consumers, backlog, claim } = self;
        write!(f, "producers {producers} consumers {consumers} backlog {backlog} claim {claim}")
    }
}
