//! The workloads, by name.

use crate::units::invalid;
use foreshore::{Error, Result};
use serde::Serialize;
use std::{fmt, str::FromStr};

/// What runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// TPC-B, the debit and credit of a bank.
    Tpcb,
    /// TATP, the home location register of a mobile network.
    Tatp,
    /// One transaction of TATP alone: a subscriber has moved.
    TatpUpdateLocation,
    /// TPC-C, the orders of a wholesale supplier.
    Tpcc,
    /// One transaction of TPC-C alone: a customer pays.
    TpccPayment,
    /// One transaction of TPC-C alone: a customer orders.
    TpccNewOrder,
    /// YCSB, half reads and half updates.
    YcsbA,
    /// YCSB, mostly reads, and updates.
    YcsbB,
    /// YCSB, reads.
    YcsbC,
    /// YCSB, mostly reads of what was inserted last, and inserts.
    YcsbD,
    /// YCSB, mostly short scans, and inserts.
    YcsbE,
    /// YCSB, half reads, and half reads with an update.
    YcsbF,
    /// Each thread updates rows of a table of its own.
    Update,
    /// Each thread inserts into a table of its own, a thousand rows a transaction.
    Insert,
    /// Point reads, a hundred a transaction.
    Read,
    /// Producers insert at the end of a table, consumers take its first row that is free, one row a transaction.
    Queue,
}

names!(Workload, "workload", "tpcb" => Tpcb, "tatp" => Tatp, "tatp-update-location" => TatpUpdateLocation,
    "tpcc" => Tpcc, "tpcc-payment" => TpccPayment, "tpcc-new-order" => TpccNewOrder,
    "ycsb-a" => YcsbA, "ycsb-b" => YcsbB, "ycsb-c" => YcsbC, "ycsb-d" => YcsbD, "ycsb-e" => YcsbE, "ycsb-f" => YcsbF,
    "update" => Update, "insert" => Insert, "read" => Read, "queue" => Queue);

impl Workload {
    /// What the scale counts, the default and the most.
    pub(super) const fn scale(self) -> (&'static str, u64, u64) {
        match self {
            Self::Tpcb => ("branches of 100,000 accounts", 10, 10_000),
            Self::Tatp | Self::TatpUpdateLocation => ("subscribers", 100_000, 1_000_000_000),
            Self::Tpcc | Self::TpccPayment | Self::TpccNewOrder => ("warehouses", 1, 1000),
            Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbD | Self::YcsbE | Self::YcsbF => {
                ("records", 1_000_000, 1_000_000_000)
            }
            Self::Update => ("rows of a table", 100_000, 1_000_000_000),
            Self::Insert => ("no rows", 1, 1),
            Self::Read => ("rows", 1_000_000, 1_000_000_000),
            Self::Queue => ("no rows", 1, 1),
        }
    }

    /// The scale if none is asked for.
    #[must_use]
    pub const fn default_scale(self) -> u64 {
        self.scale().1
    }
}
