//! What transactions promise, one behaviour per file.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[path = "../toy/mod.rs"]
mod toy;

mod bank;
mod deadline;
mod early_release;
mod losers;
mod outcomes;
mod parked;
mod room;
mod sessions;
mod snapshots;
mod status_tables;
mod xids;
