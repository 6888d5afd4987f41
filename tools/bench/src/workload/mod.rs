//! What a run can drive: tables, transactions, and how each workload tells that no commit is missing.
//!
//! | module | holds |
//! |---|---|
//! | `work` | what a workload is to a run |
//! | `tpcb` | TPC-B, the debit and credit of a bank |
//! | `tatp` | TATP, the home location register of a mobile network |
//! | `tpcc` | TPC-C, the orders of a wholesale supplier |
//! | `ycsb` | the core workloads A to F of YCSB |
//! | `update` | each thread updates rows of a table of its own, or of one that all share, one a transaction |
//! | `insert` | each thread inserts into a table of its own, a thousand rows a transaction (the insert test of Shore-MT) |
//! | `read` | point reads of one table, a hundred a transaction |
//! | `queue` | producers and consumers of the rows of one table |
//!
//! A workload is a `Work` and an entry in [`Workload`].

mod insert;
mod mark;
mod queue;
mod read;
mod tables;
mod tatp;
mod tpcb;
mod tpcc;
mod update;
mod work;
mod ycsb;

pub(crate) use mark::{begin_run, next_run};
pub use work::Audit;
pub(crate) use work::{End, Transactions, Work, Worker};

use crate::{Config, config::Workload};

/// The workload that `config` sizes.
pub(crate) fn work(workload: Workload, config: &Config) -> Box<dyn Work> {
    let threads = config.threads.iter().copied().max().unwrap_or(1);
    match workload {
        Workload::Tpcb => Box::new(tpcb::Tpcb::new(config)),
        Workload::Tatp => Box::new(tatp::Tatp::new(config)),
        Workload::TatpUpdateLocation => Box::new(tatp::Tatp::update_location(config)),
        Workload::Tpcc => Box::new(tpcc::Tpcc::new(config)),
        Workload::TpccPayment => Box::new(tpcc::Tpcc::payment(config)),
        Workload::TpccNewOrder => Box::new(tpcc::Tpcc::new_order(config)),
        Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbD | Workload::YcsbE | Workload::YcsbF => {
            Box::new(ycsb::Ycsb::new(config, workload))
        }
        Workload::Update => Box::new(update::Update::new(config, threads)),
        Workload::Insert => Box::new(insert::Insert::new(threads, config.records.batch)),
        Workload::Read => Box::new(read::Read::new(config.seed, config.records.skew, config.scale)),
        Workload::Queue => Box::new(queue::Queue::new(&config.queue, config.records.row_bytes)),
    }
}

#[cfg(test)]
mod tests;
