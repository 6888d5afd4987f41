//! What the lock manager promises, one behaviour per file.
#![cfg(not(any(foreshore_loom, foreshore_shuttle)))]

mod deadlock_graphs;
mod deadlocks;
mod intents;
mod ranges;
mod row_locks;
mod row_order;
mod streams;
mod table_locks;
mod table_queue;
mod toy;
mod victims;
mod victims_mixed;
