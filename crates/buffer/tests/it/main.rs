//! The promises of the buffer pool, one behaviour per file.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[path = "../common/mod.rs"]
mod common;

mod around;
mod crash;
mod fix;
mod replacement;
mod scan_hints;
mod stale;
mod two_rounds;
mod write_back;
