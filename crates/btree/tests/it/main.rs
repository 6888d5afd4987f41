//! What trees promise, one behaviour per file.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[path = "../common/mod.rs"]
mod common;

mod absence;
mod chains;
mod cursors;
mod empty_leaves;
mod hostile;
mod in_key_order;
mod last_leaf;
mod loads;
mod locks;
mod merges;
mod model;
mod moves;
mod out_of_reach;
mod phantoms;
mod pops;
mod prefixes;
mod read_ahead;
mod readers;
mod redo;
mod snapshots;
mod tables;
mod threads;
mod verify;
