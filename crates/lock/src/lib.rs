//! The lock manager of Foreshore: intents, locks of keys and of intervals of keys, deadlocks.
//!
//! It knows ids and keys, not pages or log. A lock is held to the end of its transaction (strict two-phase locking) and
//! released by [`LockManager::finish`] as soon as the commit record is appended (early lock release, Aether §3): what a
//! later reader must wait for travels as a tag of its table or in the tuple header, not in the lock.
//!
//! | lock | where it lives | who waits how |
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
//! **Memory.** A key or an interval is locked whether keys exist or not. Where the share of a transaction is spent, its
//! locks are merged into wider intervals (`share.rs`): lock memory ends no transaction.
//!
//! **A row is its hash**: 64 bits over table and key, seeded per instance. Two rows with one hash are locked as one, which
//! may cost a needless wait and is never wrong.

#![forbid(unsafe_code)]

mod choice;
mod deadlock;
mod exclusive;
mod hash;
mod header;
mod held;
mod intent;
mod interval;
mod interval_tree;
mod manager;
mod memory;
mod mode;
mod owner;
mod range;
mod room;
mod row;
mod share;
mod share_count;
mod stop;
mod table;
mod table_ranges;
mod target;
mod victim;
mod wait_time;

pub use choice::{LockWait, Locked, RowLock, Strength};
pub use header::Patience;
pub use held::HeldRange;
pub use interval::Interval;
pub use manager::{LockManager, LockOptions, LockStats, SHARE_BYTES};
pub use mode::TableMode;
pub use owner::Owner;
pub use range::NewRange;
pub use row::NewShare;
pub use target::Target;
pub use victim::{Attempt, IMMUNE_AFTER};
