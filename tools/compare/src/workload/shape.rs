//! The shapes of the transactions of `read` and `values`.

use super::Workload;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What a transaction does, in workloads that have several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// One row.
    #[value(name = "get-1")]
    #[serde(rename = "get-1")]
    Get1,
    /// A hundred rows, one call each.
    #[value(name = "get-100")]
    #[serde(rename = "get-100")]
    Get100,
    /// A hundred rows by one call, where the engine has one.
    #[value(name = "get-many-100")]
    #[serde(rename = "get-many-100")]
    GetMany100,
    /// Ten rows in key order from a random key on.
    #[value(name = "range-10")]
    #[serde(rename = "range-10")]
    Range10,
    /// A value is replaced.
    Write,
    /// The bytes of a value are summed.
    Sum,
}

impl Shape {
    /// Returns the shapes of a workload; none where all transactions are of one kind.
    pub(crate) const fn of(workload: Workload) -> &'static [Self] {
        match workload {
            Workload::Read => &[Self::Get1, Self::Get100, Self::GetMany100, Self::Range10],
            Workload::Values => &[Self::Write, Self::Sum],
            _ => &[],
        }
    }

    /// Returns the name that `--shapes` takes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get1 => "get-1",
            Self::Get100 => "get-100",
            Self::GetMany100 => "get-many-100",
            Self::Range10 => "range-10",
            Self::Write => "write",
            Self::Sum => "sum",
        }
    }

    /// Whether transactions of this shape write.
    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Write)
    }

    /// Returns the operations of one transaction: keys that are looked up, or one range, or one value.
    pub(crate) const fn operations(self) -> u64 {
        match self {
            Self::Get1 | Self::Range10 | Self::Write | Self::Sum => 1,
            Self::Get100 | Self::GetMany100 => 100,
        }
    }
}
