//! The classics in a database.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

mod log_buffers;
