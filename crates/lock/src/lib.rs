//! The lock manager of Foreshore: intents, locks of keys and of intervals of keys, deadlocks.
//!
//! It knows ids and keys, not pages or log. A lock is held to the end of its transaction (strict two-phase locking).
//! [`LockManager::finish`] releases it as soon as the commit record is appended (early lock release, Aether §3). What
//! a later reader must wait for travels as a tag of its table or in the tuple header, not in the lock.
//!
//! | lock | where it lives | waits |
//! |---|---|---|
//! | table S, SIX, X | [`LockManager::lock_table`]: a head per table | FIFO queue of the head, upgrades first |
//! | table IS, IX | a word of the owner's slot, or the head | as above, while a strong lock is there |
//! | row X | **tuple header** (xid and its status); nothing here | [`LockManager::wait_xid`]: parked by row, one woken at a time |
//! | key S | [`LockManager::share`]: an entry by key hash, and a counter that writers read | behind an exclusive waiter |
//! | keys of an interval S | [`LockManager::try_cover`]: a list per table, and a counter that writers read (`range.rs`) | behind a writer queued on a key in it |
//! | row X or insert over foreign S | [`LockManager::wait_exclusive`]: a turn in the key's entry, a place in the table's list, upgrades first | until no foreign lock has the key |
//!
//! **A writer sees readers** without entering a table: it stores its xid in the header, fences and reads two counters;
//! a reader counts itself, fences and reads the header. One of the two sees the other.
//!
//! **Memory.** A key or an interval is locked whether keys exist or not. Where a transaction has spent its lock
//! memory, its locks are merged into wider intervals (`keys.rs`): lock memory ends no transaction.
//!
//! **Modules.** Each row uses only those above it. No module but `waits` and `manager` waits.
//!
//! | module | job |
//! |---|---|
//! | `mode`, `target`, `hash`, `victim`, `row_lock`, `lock_memory` | words of the crate, and units of lock memory |
//! | `slot`, `slots` | what owners show, and where their threads sleep |
//! | `interval`, `point_list`, `held` | what one owner holds |
//! | `intent`, `table_head`, `table` | locks of tables |
//! | `share_count`, `point` | locks of single keys |
//! | `interval_tree`, `table_ranges`, `range` | locks of intervals |
//! | `keys` | locks of keys and intervals in bounded memory |
//! | `graph`, `deadlock`, `waits` | waits and deadlocks |
//! | `manager` | the parts together, and requests that wait |
//!
//! **A row is its hash**: 64 bits over table and key, seeded per instance. Two rows with one hash are locked as one,
//! which may cost a needless wait and is never wrong.

#![forbid(unsafe_code)]

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
