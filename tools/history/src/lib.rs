//! Recorded histories of transactions, and the check of their isolation.
//!
//! | module | holds |
//! |---|---|
//! | `history` | what transactions did and saw, and when |
//! | `check` | whether a level of isolation allows that |
//! | `drive` | sessions at work on a database, and what they saw |
//! | `edn`, `json` | histories as other checkers read them |
//!
//! ```
//! use foreshore_history::{Anomaly, History, Kind, Level, Op, Outcome, Txn, check};
//!
//! // Two transactions that each read what the other then appends to: write skew.
//! let mut history = History::new(Kind::Append, 2);
//! for (process, read, write) in [(0, 1, 2), (1, 2, 1)] {
//!     let ops = vec![Op::Read { key: read, found: Some(vec![]) }, Op::Write { key: write, value: 7 }];
//!     let (begin, end) = (process, 10 + process);
//!     history.txns.push(Txn { process, ops, outcome: Outcome::Ok, begin, end, settled: end });
//! }
//! assert!(check(&history, Level::SNAPSHOT).is_ok());
//! assert_eq!(check(&history, Level::SERIALIZABLE).unwrap_err().anomaly, Anomaly::G2Item);
//! ```

#![forbid(unsafe_code)]

mod check;
mod drive;
mod edn;
mod history;
mod json;

pub use check::{Anomaly, Base, Dependency, Edge, Level, Violation, check};
pub use drive::{Config, Planted, drive};
pub use edn::edn;
pub use history::{Found, History, Kind, NEVER, Op, Outcome, Txn};
pub use json::json;
