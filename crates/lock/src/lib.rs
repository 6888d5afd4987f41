//! The lock manager of Foreshore: locks of tables, single keys and intervals of keys, and the search for deadlocks.
//!
//! It knows ids and keys, but neither pages nor the log. A transaction holds each lock to its end (strict two-phase
//! locking). [`LockManager::finish`] releases the locks as soon as the commit record is appended (early lock release,
//! Aether §3). A later reader may depend on a commit that is not durable yet. That dependency travels as a tag of the
//! table or in the tuple header, not in the lock.
//!
//! | lock | where it lives | waits |
//! |---|---|---|
//! | table S, SIX, X | [`LockManager::lock_table`]: a head per table | FIFO queue of the head; an upgrade is before those that wait for its owner |
//! | table IS, IX | a word of the owner's slot, or the head | as above, while a strong lock is there |
//! | row X | **tuple header** (xid, status) | [`LockManager::wait_xid`]: parked by row, one woken at a time |
//! | key S | [`LockManager::share`]: an entry by key hash, and a counter | behind an exclusive waiter |
//! | interval S | [`LockManager::try_cover`]: a list per table and stripe of owners, counters | behind a writer queued on its keys |
//! | key X over foreign S | [`LockManager::wait_exclusive`]: key entry, queue of the table | until no foreign lock is left |
//!
//! **A queue of a table is not always in order.** A request that all holders allow overtakes the queue if it is in a
//! cycle of waits (`deadlock.rs`).
//!
//! **A writer detects readers** without searching a table. It stores its xid in the header, fences and reads two
//! counters. A reader counts itself, fences and reads the header. At least one of the two sees the other.
//!
//! **Memory.** A key or an interval is locked whether keys exist or not. When a transaction has used up its lock
//! memory, its locks are merged into wider intervals (`keys.rs`). So no transaction fails for want of lock memory.
//!
//! **Modules.** Each row uses only those above it. No module but `waits` and `manager` waits.
//!
//! | module | job |
//! |---|---|
//! | `mode`, `target`, `hash`, `victim`, `row_lock`, `lock_memory` | types, pure functions, units of lock memory |
//! | `slot`, `slots` | what owners publish, and where their threads sleep |
//! | `bound_key`, `interval`, `point_list`, `held` | what one owner holds |
//! | `intent`, `table_head`, `table` | locks of tables |
//! | `share_count`, `point` | locks of single keys |
//! | `interval_tree`, `table_ranges`, `writer_queue`, `range` | locks of intervals |
//! | `keys` | locks of keys and intervals in bounded memory |
//! | `graph`, `deadlock`, `waits` | waits and deadlocks |
//! | `manager` | the assembled manager, and requests that wait |
//!
//! **A row is identified by its hash**: 64 bits over table and key, seeded per instance. Two rows with the same hash
//! share their locks. That may cost a needless wait, but it never admits a conflict.

#![forbid(unsafe_code)]

mod bound_key;
mod deadlock;
mod graph;
mod hash;
mod held;
mod intent;
mod interval;
mod interval_tree;
mod keys;
mod lock_memory;
mod manager;
mod mode;
mod point;
mod point_list;
mod range;
mod row_lock;
mod share_count;
mod slot;
mod slots;
mod table;
mod table_head;
mod table_ranges;
mod target;
mod victim;
mod waits;
mod writer_queue;

pub use interval::Interval;
pub use keys::{NewRange, NewShare};
pub use lock_memory::UNIT_BYTES;
pub use manager::owner::{HeldRange, Owner};
pub use manager::row_wait::Patience;
pub use manager::{LockManager, LockOptions, LockStats};
pub use mode::TableMode;
pub use row_lock::{LockWait, Locked, RowLock, Strength};
pub use target::Target;
pub use victim::{Attempt, IMMUNE_AFTER};
pub use waits::Waits;
