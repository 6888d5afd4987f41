//! Systems from the literature, as parts that plug into Foreshore beside its own.
//!
//! The engine ships one design of each part. The designs here are alternatives to it, kept so that published results
//! can be reproduced and compared in one run. `bench`, `lab`, the simulator and the histories choose them by name
//! through the doc-hidden options of the engine.
//!
//! | module | part of the engine | designs |
//! |---|---|---|
//! | [`log_buffers`] | log buffer | `mutex`, `carray`, `decoupled`, `hybrid`, `delegated`, `laser`, `faa` |
//! | [`replacement`] | replacement of pages in the buffer pool | `lru`, `2q`, `bp-lru`, `bp-2q`, `clock`, `gclock` |
//! | [`nbgclock`] | buffer pool | `nbgclock` |
//! | [`group_policies`] | when a group of commits is written | `fixed`, `adaptive`, `delay` |
//! | [`status_tables`] | what became of a transaction | `direct`, `lru:N`, `lru:N:banks` |
//! | [`early_release`] | locks released before a commit is durable | `off`, `s_only` |
//! | [`intents`] | intents on tables | `table` |
//! | [`growth`] | growth of the data file | `inline` |

pub mod early_release;
pub mod group_policies;
pub mod growth;
pub mod intents;
pub mod log_buffers;
pub mod nbgclock;
pub mod replacement;
pub mod status_tables;
