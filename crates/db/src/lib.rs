//! Foreshore is an embedded, multi-writer, ACID storage manager.
//!
//! Many threads write at once. By default a commit is durable when it is acknowledged. While it waits for the disk, its
//! transaction holds no lock and no latch.
//!
//! ```
//! use foreshore::{Db, Error, TableDef};
//!
//! const ACCOUNTS: TableDef<u64, i64> = TableDef::new("accounts");
//!
//! # fn main() -> Result<(), Error> {
//! # let dir = std::env::temp_dir().join(format!("foreshore-doc-{}", std::process::id()));
//! let db = Db::open(&dir)?;
//! db.run(|tx| {                                      // durable when it returns
//!     let accounts = tx.open(ACCOUNTS)?;
//!     accounts.insert(&7, &100)?;
//!     let balance = accounts.get_for_update(&8)?.unwrap_or(0);
//!     accounts.insert(&8, &(balance - 100))?;
//!     Ok::<_, Error>(())
//! })?;
//!
//! let tx = db.begin();                               // serializable, durable
//! for row in tx.open(ACCOUNTS)?.range(1..100) {
//!     let (id, balance) = row?;
//!     println!("{id}: {balance}");
//! }
//! tx.commit()?;
//! # drop(db);
//! # std::fs::remove_dir_all(dir).unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! **Durability.** [`Transaction::commit`] returns when the commit survives power loss, unless the transaction is
//! [`Durability::Relaxed`]. [`Transaction::commit_pipelined`] returns at once with a [`CommitTicket`], which is a
//! future. A thread can also test it or block on it. Locks are released once the commit record is in the log buffer, so
//! another transaction may read the new rows before they are durable. The commit of that reader is acknowledged only
//! after those rows are durable. [`Transaction::rollback_to`] undoes the changes since a [`Savepoint`], and the
//! transaction continues.
//!
//! **Indexes.** [`TableDef::with_indexes`] declares secondary indexes of a table. Every write through the table
//! maintains them, and [`Table::by_index`] finds rows by them.
//!
//! **Isolation** is serializable, by strict two-phase locking, unless [`TxnOptions::isolation`] says otherwise.
//! [`Db::read`] begins a transaction that reads from a snapshot and waits for no writer. [`Db::run`] retries
//! transactions that a deadlock or a conflict ended.
//!
//! **Asynchronous programs.** A transaction that waits blocks its thread. [`Db::submit`] runs it on a thread of the
//! database and returns a future. [`Db::watch_inserts`] returns a watch of a table, for consumers of a queue: they
//! block on it or await it.
//!
//! **Failure.** A failed write or sync of the log or of pages stops the database: every operation returns
//! [`Error::Poisoned`], and [`Db::reopen`] opens it again. A full disk fails the transactions that need space and
//! nothing else.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod admission;
mod backup;
mod catalogue;
mod chains;
mod check;
mod compact;
mod create;
mod daemons;
mod damage;
mod db;
mod engine;
mod error;
mod fence;
mod files;
mod format;
mod idle;
mod index_def;
mod index_state;
mod insert_watch;
mod known_backups;
mod live;
mod maintenance;
mod marker;
mod max_age;
mod memory;
mod merge_def;
pub mod metrics;
mod open;
mod options;
mod passes;
mod popped;
mod prepared;
mod profile;
mod purge;
mod queues;
mod raw_index;
mod read;
mod reclaim;
mod repair;
mod restore;
mod run;
mod seat;
mod sequences;
mod stats;
mod storage;
mod submit;
mod table;
mod table_def;
mod tables;
mod ticket;
mod trace;
mod transaction;
mod vacuum;
mod watches;
mod workers;

pub use backup::Backup;
pub use catalogue::{ListedIndex, ListedTable};
pub use check::Report;
pub use compact::{CompactOptions, Compaction};
pub use damage::{DamageStats, DamagedPage};
pub use db::Db;
pub use error::{Error, Result};
pub use foreshore_base::codec::{Decoder, Short};
pub use foreshore_base::key::{Key, Timestamp, Value};
pub use foreshore_base::{
    Csn, GroupNo, InvalidOption, Lockable, Lsn, PageId, Place, RestoreRefusal, TableId, TableRef, UnknownBase, Uuid,
    Waiter, Xid, limits,
};
pub use foreshore_btree::TreeStats;
pub use foreshore_buffer::{DoublewriteKind, PageWrites, PoolStats, StampStats};
pub use foreshore_io::Device;
pub use foreshore_lock::{LockStats, LockWait, Locked, RowLock, Strength};
pub use foreshore_recovery::{CheckpointStats, RecoveryStats};
pub use foreshore_space::SpaceStats;
pub use foreshore_txn::{Isolation, OldestSnapshot, OldestTransaction, TxnStats};
pub use foreshore_wal::{ArchiveStats, Group, LogStats, Waits};
#[doc(hidden)]
pub use index_def::RawIndex;
pub use index_def::{IndexDef, IndexKeys, TableIndex};
pub use insert_watch::InsertWatch;
pub use memory::{MemoryShares, MemoryUse};
pub use merge_def::MergeDef;
#[doc(hidden)]
pub use options::LabOptions;
pub use options::{Durability, Options, ReadOptions, TxnOptions};
pub use prepared::PreparedTxn;
pub use profile::{HotKey, HotPage, Profile, TimeSplit};
pub use purge::HeldRows;
#[doc(hidden)]
pub use raw_index::RawKey;
#[doc(hidden)]
pub use read::SingleReader;
pub use read::{ReadTable, ReadTransaction};
pub use repair::{Repair, RepairRefusal, RepairSource, Repaired, RepairedPage, UnrepairedPage, repair};
pub use restore::{Restore, Restored, Until, restore};
pub use stats::Stats;
pub use submit::Submitted;
pub use table::{
    ByIndex, ByteValue, Cursor, Entry, ExtractIf, IndexEntries, IndexRange, KeyPrefix, KeyRange, Keys, LoadOptions,
    Range, Salvage, Salvaged, Table, TableStats, ValueReader,
};
pub use table_def::TableDef;
pub use ticket::CommitTicket;
pub use transaction::{Savepoint, Transaction};
