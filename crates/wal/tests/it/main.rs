//! The promises of the log, one behaviour per file.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

#[path = "../common/mod.rs"]
mod common;

mod acks;
mod commit_clock;
mod copy;
mod crash;
mod damage;
mod discarding;
mod examples;
mod flights;
mod full_disk;
mod golden;
mod history;
mod limited;
mod policies;
mod reserved;
mod round_trip;
#[cfg(debug_assertions)]
mod stopped;
mod threads;
mod undo_log;
mod waits;
