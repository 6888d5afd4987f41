//! Workloads and measurement for Foreshore: what `foreshore bench` and `foreshore lab` run and report.
//!
//! | module | holds |
//! |---|---|
//! | [`config`] | options of a run, by the names that users type |
//! | [`group`] | the policies of group commit, by name |
//! | [`workload`] | what a run drives: tables, transactions, checks |
//! | [`row`] | one measured row: threads, window, counters |
//! | [`run`](crate::run()) | a whole run: directory, load, rows, report |
//! | [`report`] | the numbers, as JSON and as a table |
//! | [`stepper`] | counts read-modify-writes, instruction by instruction |
//! | [`lab`] | experiments that reproduce the figures of the papers |
//! | [`machine`], [`process`] | what the run ran on and what it used |
//! | [`random`], [`units`] | seeded draws; sizes and times as text |

#![forbid(unsafe_code)]

pub mod config;
mod counters;
pub mod group;
mod home;
pub mod lab;
pub mod machine;
pub mod process;
mod progress;
pub mod random;
pub mod report;
pub mod row;
mod run;
pub mod stepper;
mod table;
mod terminal;
pub mod units;
pub mod workload;

pub use config::Config;
pub use progress::{Progress, Silent};
pub use report::Report;
pub use run::{run, take_turns};
