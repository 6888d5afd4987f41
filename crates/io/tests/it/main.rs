//! What every disk promises.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

mod conformance;
mod whole;
