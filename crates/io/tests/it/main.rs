//! The promises of every disk.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

mod conformance;
mod whole;
